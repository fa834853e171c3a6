/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/plan_policy.h"

#include <errno.h>
#include <string.h>

#include "policy/reader.h"
#include "policy/units.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

const char *const plan_policy_kinds[PLAN_POLICY_KINDS] = {
    "mkdir", "create", "write", "symlink", "move", "delete", "chmod",
};

const char *const plan_policy_magics[PLAN_MAGIC_COUNT_] = {
    [PLAN_MAGIC_NONE] = "",       [PLAN_MAGIC_ELF] = "elf",       [PLAN_MAGIC_PE] = "pe",
    [PLAN_MAGIC_MACH] = "mach-o", [PLAN_MAGIC_SCRIPT] = "script",
};

/* The place of a word in a list, or -EINVAL. */
static int word(const json_t *value, const char *const *words, size_t count)
{
    const char *text = json_string_value(value);

    for (size_t i = 0; text && i < count; i++) {
        if (strcmp(words[i], text) == 0)
            return (int)i;
    }
    return -EINVAL;
}

static int read_base(struct reader *r, const json_t *value)
{
    static const char *const words[] = {[PLAN_BASE_FREE] = "free", [PLAN_BASE_LOCKED] = "locked"};
    int i = word(value, words, LENGTH(words));

    if (i < 0)
        return i;
    r->policy->plan.base = (enum plan_base)i;
    return 0;
}

static int read_approval(struct reader *r, const json_t *value)
{
    static const char *const words[] = {
        [PLAN_APPROVAL_NONE] = "none", [PLAN_APPROVAL_REQUIRED] = "required"};
    int i = word(value, words, LENGTH(words));

    if (i < 0)
        return i;
    r->policy->plan.approval = (enum plan_approval)i;
    return 0;
}

static int read_care(const json_t *value, enum plan_care *ret)
{
    static const char *const words[] = {[PLAN_CARE_DEFAULT] =
                                            "", /* refused below: it is said by saying nothing */
                                        [PLAN_CARE_REVIEW] = "review",
                                        [PLAN_CARE_ALLOW] = "allow",
                                        [PLAN_CARE_REFUSE] = "refuse"};
    int i = word(value, words, LENGTH(words));

    if (i <= PLAN_CARE_DEFAULT)
        return -EINVAL;
    *ret = (enum plan_care)i;
    return 0;
}

static int read_executables(struct reader *r, const json_t *value)
{
    return read_care(value, &r->policy->plan.executables);
}

static int read_sensitive(struct reader *r, const json_t *value)
{
    return read_care(value, &r->policy->plan.sensitive);
}

static int read_case_twins(struct reader *r, const json_t *value)
{
    return read_care(value, &r->policy->plan.case_twins);
}

static int read_expires(struct reader *r, const json_t *value)
{
    return json_is_string(value)
               ? units_parse_duration(json_string_value(value), &r->policy->plan.expires_ms)
               : -EINVAL;
}

/* "a/b": no "..", no "/" in front. With a "/" only between braces one pattern would begin at the
 * top and anywhere at once. */
static bool is_pattern(const char *text)
{
    size_t depth = 0;
    bool inside = false;
    bool outside = false;

    if (!*text || *text == '/' || strlen(text) > PLAN_POLICY_PATTERN_BYTES)
        return false;
    for (const char *at = text; *at; at += strcspn(at, "/"), at += *at == '/') {
        size_t n = strcspn(at, "/");
        if (n == 2 && memcmp(at, "..", 2) == 0)
            return false;
    }
    for (const char *at = text; *at; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '{')
            depth++;
        else if (*at == '}' && depth > 0)
            depth--;
        else if (*at == '/')
            *(depth > 0 ? &inside : &outside) = true;
    }
    return outside || !inside;
}

static int read_patterns(struct reader *r, const json_t *value, struct plan_patterns *ret)
{
    json_t *item;
    size_t i;

    if (!json_is_array(value))
        return -EINVAL;
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        const char *text = reader_text(r, item);
        if (!text || !is_pattern(text) || ret->count == PLAN_POLICY_PATTERNS)
            return -EINVAL;
        ret->at[ret->count++] = text;
    }
    return 0;
}

static int read_allow(struct reader *r, const json_t *value)
{
    r->policy->plan.has_allow = true;
    return read_patterns(r, value, &r->policy->plan.allow);
}

static int read_protect(struct reader *r, const json_t *value)
{
    return read_patterns(r, value, &r->policy->plan.protect);
}

static int read_operations(struct reader *r, const json_t *value)
{
    struct plan_policy *plan = &r->policy->plan;
    json_t *item;
    size_t i;

    if (!json_is_array(value))
        return -EINVAL;
    plan->has_operations = true;
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        int kind = word(item, plan_policy_kinds, PLAN_POLICY_KINDS);
        if (kind < 0)
            return kind;
        plan->operations |= 1U << kind;
    }
    return 0;
}

static int read_max_file_bytes(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->plan.max_file_bytes);
}

static int read_max_bytes(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->plan.max_bytes);
}

static int read_max_operations(struct reader *r, const json_t *value)
{
    return reader_count(value, PLAN_POLICY_MOST_OPERATIONS, &r->policy->plan.max_operations);
}

static int read_waiting_bytes(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->plan.waiting_bytes);
}

static int read_deny(struct reader *r, const json_t *value)
{
    struct plan_policy *plan = &r->policy->plan;
    json_t *item;
    size_t i;

    if (!json_is_array(value))
        return -EINVAL;
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        int magic = word(item, plan_policy_magics, PLAN_MAGIC_COUNT_);
        const char *text = reader_text(r, item);
        if (magic > PLAN_MAGIC_NONE) {
            plan->magics |= 1U << magic;
            continue;
        }
        if (!text || text[0] != '.' || !text[1] || strchr(text, '/') ||
            plan->ending_count == PLAN_POLICY_TYPES)
            return -EINVAL;
        plan->endings[plan->ending_count++] = text;
    }
    return 0;
}

static const struct key type_keys[] = {
    {"deny", "a list of at most 64 of \".ENDING\", \"elf\", \"pe\", \"mach-o\" and \"script\"",
     read_deny},
};

static int read_types(struct reader *r, const json_t *value)
{
    if (!json_is_object(value))
        return -EINVAL;
    return reader_object(r, value, type_keys, LENGTH(type_keys)) < 0 ? -ECANCELED : 0;
}

static int read_keep(struct reader *r, const json_t *value)
{
    return reader_count(value, 1000000, &r->policy->plan.history_keep);
}

static int read_days(struct reader *r, const json_t *value)
{
    return reader_count(value, 36500, &r->policy->plan.history_days);
}

static int read_history_bytes(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->plan.history_bytes);
}

static const struct key history_keys[] = {
    {"keep", "a whole number from 1 to 1000000", read_keep},
    {"days", "a whole number from 1 to 36500", read_days},
    {"bytes", "a size such as \"10G\" (K, M, G or T)", read_history_bytes},
};

static int read_history(struct reader *r, const json_t *value)
{
    if (!json_is_object(value))
        return -EINVAL;
    return reader_object(r, value, history_keys, LENGTH(history_keys)) < 0 ? -ECANCELED : 0;
}

static int read_snapshot(struct reader *r, const json_t *value)
{
    r->policy->plan.snapshot = json_is_true(value);
    return json_is_boolean(value) ? 0 : -EINVAL;
}

#define CARE "\"allow\", \"review\" or \"refuse\""
#define PATTERNS                                                                                   \
    "a list of at most 64 patterns such as \"docs/**\", relative, without \"..\", of at most "     \
    "1024 bytes, and with a \"/\" between braces only beside one outside"

static const struct key plan_keys[] = {
    {"base", "\"free\" or \"locked\"", read_base},
    {"approval", "\"none\" or \"required\"", read_approval},
    {"expires", "a duration such as \"72h\"", read_expires},
    {"allow", PATTERNS, read_allow},
    {"protect", PATTERNS, read_protect},
    {"operations", "a list of mkdir, create, write, symlink, move, delete, chmod", read_operations},
    {"max_file_bytes", "a size such as \"64M\" (K, M, G or T)", read_max_file_bytes},
    {"max_bytes", "a size such as \"1G\" (K, M, G or T)", read_max_bytes},
    {"max_operations", "a whole number from 1 to 200000", read_max_operations},
    {"waiting_bytes", "a size such as \"16G\" (K, M, G or T)", read_waiting_bytes},
    {"types", "an object such as {\"deny\": [\".exe\"]}", read_types},
    {"executables", CARE, read_executables},
    {"sensitive", CARE, read_sensitive},
    {"case_twins", CARE, read_case_twins},
    {"snapshot", "true or false", read_snapshot},
    {"history", "an object of keep, days and bytes", read_history},
};

int plan_policy_read(struct reader *r, const json_t *value)
{
    if (!json_is_object(value))
        return -EINVAL;
    return reader_object(r, value, plan_keys, LENGTH(plan_keys)) < 0 ? -ECANCELED : 0;
}
