/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/validations.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "plan/core/content.h"
#include "plan/core/tree_digest.h"
#include "policy/glob.h"

enum {
    MOST_COUNTED = 1 << 20, /* names looked at for one count */
};

static const char *const check_names[VALIDATE_COUNT_] = {
    [VALIDATE_EXISTS] = "exists", [VALIDATE_ABSENT] = "absent",         [VALIDATE_HASH] = "hash",
    [VALIDATE_COUNT] = "count",   [VALIDATE_FREE_SPACE] = "free_space",
};

/* --- reading --- */

struct raw {
    const char *check;
    const char *when;
    const char *path;
    const char *type;
    const char *sha256;
    json_int_t count, min, max, bytes;
};

enum {
    UNSET = -1
};

static bool read_word(const char *text, const char *const *words, size_t count, size_t *ret)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(words[i], text) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

static int read_type(const char *text, mode_t *ret)
{
    static const char *const words[] = {"file", "directory", "symlink"};
    static const mode_t types[] = {S_IFREG, S_IFDIR, S_IFLNK};
    size_t i;

    if (!text)
        return 0;
    if (!read_word(text, words, 3, &i))
        return -1;
    *ret = types[i];
    return 0;
}

static bool is_glob(const char *path)
{
    return strpbrk(path, "*?[{") != NULL;
}

static int read_path(struct validation *v, const char *path, struct err *err)
{
    const char *why = NULL;

    if (!path)
        return err_set(err, ERR_INVALID, 0, "validations: \"%s\" needs a \"path\"",
                       check_names[v->check]);
    path += *path == '/';
    v->path = path;
    if (v->check != VALIDATE_COUNT || !is_glob(path))
        return plan_check_path(path, strlen(path), err);
    struct glob *glob = strlen(path) > PLAN_MAX_PATH ? NULL : glob_make(path, &why);
    if (!glob)
        return err_set(err, ERR_INVALID, 0, "validations: '%.80s' is no pattern", path);
    glob_free(glob);
    return 0;
}

static int read_numbers(struct validation *v, const struct raw *raw, struct err *err)
{
    bool exact = raw->count != UNSET;

    v->most = UINT64_MAX;
    if (v->check == VALIDATE_FREE_SPACE) {
        v->least = (uint64_t)raw->bytes;
        return raw->bytes > 0 ? 0
                              : err_set(err, ERR_INVALID, 0,
                                        "validations: \"free_space\" needs \"bytes\" above 0");
    }
    if (v->check != VALIDATE_COUNT)
        return 0;
    if ((exact && (raw->min != UNSET || raw->max != UNSET)) ||
        (!exact && raw->min == UNSET && raw->max == UNSET) || raw->count < UNSET ||
        raw->min < UNSET || raw->max < UNSET)
        return err_set(err, ERR_INVALID, 0,
                       "validations: \"count\" needs \"count\", or \"min\", \"max\" or both");
    json_int_t least = exact ? raw->count : raw->min;
    json_int_t most = exact ? raw->count : raw->max;
    if (least != UNSET)
        v->least = (uint64_t)least;
    if (most != UNSET)
        v->most = (uint64_t)most;
    return 0;
}

/* What belongs to another check is as wrong as what belongs to none. */
static bool has_foreign(enum validation_check check, const struct raw *raw)
{
    bool counts = raw->count != UNSET || raw->min != UNSET || raw->max != UNSET;

    return (raw->type && check != VALIDATE_EXISTS) || (raw->sha256 && check != VALIDATE_HASH) ||
           (counts && check != VALIDATE_COUNT) ||
           (raw->bytes != UNSET && check != VALIDATE_FREE_SPACE) ||
           (raw->path && check == VALIDATE_FREE_SPACE);
}

/* Strictly; its texts stay the object's. */
static int validation_read(struct validation *ret, const json_t *object, struct err *err)
{
    static const char *const times[] = {"before", "after"};
    struct raw raw = {.count = UNSET, .min = UNSET, .max = UNSET, .bytes = UNSET};
    struct validation v = {0};
    json_error_t why;
    size_t check;
    size_t after = 0;

    if (json_unpack_ex((json_t *)(uintptr_t)object, &why, JSON_STRICT,
                       "{s:s, s?s, s?s, s?s, s?s, s?I, s?I, s?I, s?I}", "check", &raw.check, "when",
                       &raw.when, "path", &raw.path, "type", &raw.type, "sha256", &raw.sha256,
                       "count", &raw.count, "min", &raw.min, "max", &raw.max, "bytes",
                       &raw.bytes) < 0)
        return err_set(err, ERR_INVALID, 0, "validations: %s", why.text);
    if (!read_word(raw.check, check_names, VALIDATE_COUNT_, &check))
        return err_set(err, ERR_INVALID, 0,
                       "validations: unknown check \"%.40s\"; known are: exists, absent, hash, "
                       "count, free_space",
                       raw.check);
    v.check = (enum validation_check)check;
    if (has_foreign(v.check, &raw) || read_type(raw.type, &v.type) < 0 ||
        (raw.when && !read_word(raw.when, times, 2, &after)))
        return err_set(err, ERR_INVALID, 0, "validations: \"%s\" has an unexpected key or value",
                       raw.check);
    v.after = after == 1;
    if (v.check != VALIDATE_FREE_SPACE && read_path(&v, raw.path, err) < 0)
        return -1;
    if (v.check == VALIDATE_HASH && (!raw.sha256 || strlen(raw.sha256) != 2UL * PLAN_HASH ||
                                     !bytes_from_hex(raw.sha256, PLAN_HASH, v.hash)))
        return err_set(err, ERR_INVALID, 0,
                       "validations: \"hash\" needs \"sha256\", 64 small hex digits");
    if (read_numbers(&v, &raw, err) < 0)
        return -1;
    *ret = v;
    return 0;
}

int validations_check(const json_t *array, struct err *err)
{
    struct validation v;

    if (!json_is_array(array) || json_array_size(array) > VALIDATIONS_MOST)
        return err_set(err, ERR_INVALID, 0, "\"validations\" must be a list of at most %d",
                       VALIDATIONS_MOST);
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (validation_read(&v, json_array_get(array, i), err) < 0)
            return -1;
    }
    return 0;
}

/* --- looking --- */

struct look {
    const struct plan_index *index;
    const struct plan_facts *facts;
    int tree;
    char *message;   /* of PLAN_MESSAGE bytes: why it does not hold */
    uint64_t *holes; /* bytes of them that may still be hashed */
};

static bool say(const struct look *look, const char *message)
{
    snprintf(look->message, PLAN_MESSAGE, "%s", message);
    return false;
}

/* What there is at a path: 1, 0 or -1 when that cannot be said. */
static int see(const struct look *look, const struct validation *v, mode_t *ret)
{
    char origin[PLAN_MAX_PATH + 1];
    const char *path = v->path;
    struct plan_sight sight;
    ssize_t by;

    if (v->after) {
        ssize_t operation = plan_after(look->index, path);
        if (operation != PLAN_NOBODY) {
            *ret = look->index->plan->operations[operation].mode;
            return 1;
        }
        if (plan_place_of(look->index, path, origin, &by) != PLACE_BASE)
            return 0;
        path = origin;
    }
    plan_look(look->tree, path, &sight);
    *ret = sight.mode;
    if (sight.state == SIGHT_PRESENT)
        return 1;
    return sight.state == SIGHT_ABSENT || sight.state == SIGHT_FILE_ABOVE ||
                   sight.state == SIGHT_LINK_ABOVE
               ? 0
               : -1;
}

static bool holds_exists(const struct look *look, const struct validation *v)
{
    mode_t mode = 0;
    int there = see(look, v, &mode);

    if (there <= 0)
        return say(look, there < 0 ? "it cannot be looked at" : "it is not there");
    return !v->type || (mode & S_IFMT) == v->type || say(look, "it is of another type");
}

static bool holds_absent(const struct look *look, const struct validation *v)
{
    mode_t mode;
    int there = see(look, v, &mode);

    return there == 0 || say(look, there < 0 ? "it cannot be looked at" : "it is there");
}

/* The hash of a file in the base. */
static bool hash_base(const struct look *look, const char *path, unsigned char hash[PLAN_HASH])
{
    struct stat st;
    scoped_fd int fd = content_open(look->tree, path);

    return fd >= 0 && fstat(fd, &st) == 0 &&
           content_hash(fd, (uint64_t)st.st_size, look->holes, hash) == 0;
}

static bool hash_after(const struct look *look, const char *path, unsigned char hash[PLAN_HASH])
{
    const struct plan_operation *operations = look->index->plan->operations;
    char origin[PLAN_MAX_PATH + 1];
    ssize_t at = plan_after(look->index, path);
    ssize_t by;

    if (at != PLAN_NOBODY && operations[at].link && !operations[at].has_hash) {
        path = operations[at].link; /* a file of the base, which has no link itself */
        at = plan_after(look->index, path);
    }
    if (at == PLAN_NOBODY)
        return plan_place_of(look->index, path, origin, &by) == PLACE_BASE &&
               hash_base(look, origin, hash);
    if (operations[at].has_hash) {
        memcpy(hash, operations[at].hash, PLAN_HASH);
        return true;
    }
    const char *base = plan_base_path(&operations[at]);
    return base && S_ISREG(operations[at].mode) && hash_base(look, base, hash);
}

static bool holds_hash(const struct look *look, const struct validation *v)
{
    unsigned char hash[PLAN_HASH];

    if (!(v->after ? hash_after(look, v->path, hash) : hash_base(look, v->path, hash)))
        return say(look, "there is no file that could be read");
    return memcmp(hash, v->hash, PLAN_HASH) == 0 || say(look, "its content is another");
}

/* --- counting: files and links, not directories --- */

struct count {
    const struct look *look;
    const struct validation *v;
    struct glob *glob; /* NULL: everything below a directory */
    uint64_t names;
    uint64_t found;
};

static bool counts(const struct count *count, const char *path)
{
    if (count->glob)
        return glob_match(count->glob, path);
    return plan_is_below(path, count->v->path) && strcmp(path, count->v->path) != 0;
}

static int count_entry(void *context, struct plan_entry *entry, struct err *err)
{
    struct count *count = context;
    const struct plan_index *index = count->look->index;
    char final[PLAN_MAX_PATH + 1];

    if (count->names++ == MOST_COUNTED)
        return err_set(err, ERR_LIMIT, 0, "too many names");
    if (S_ISDIR(entry->st->st_mode))
        return 0;
    if (!count->v->after)
        count->found += counts(count, entry->path);
    else if (plan_follow(index, entry->path, final))
        count->found += counts(count, final);
    return 0;
}

/* What the base has not: the rest has followed the operations. */
static void count_new(struct count *count)
{
    const struct plan *plan = count->look->index->plan;

    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_operation *operation = &plan->operations[i];
        if (operation->kind != PLAN_DELETE && !operation->has_base && !S_ISDIR(operation->mode))
            count->found += counts(count, operation->path);
    }
}

static bool holds_count(const struct look *look, const struct validation *v)
{
    struct count count = {.look = look, .v = v};
    struct plan_walk walk = {
        .root = look->tree, .top = "", .visit = count_entry, .context = &count};
    const char *why;
    struct err err;

    if (is_glob(v->path)) {
        count.glob = glob_make(v->path, &why);
        if (!count.glob)
            return say(look, "it is no pattern");
        glob_take_dots(count.glob);
    }
    int r = plan_walk(&walk, &err);
    if (v->after)
        count_new(&count);
    glob_free(count.glob);
    if (r < 0)
        return say(look, "there are too many names to be counted");
    if (count.found >= v->least && count.found <= v->most)
        return true;
    snprintf(look->message, PLAN_MESSAGE, "there are %llu", (unsigned long long)count.found);
    return false;
}

static bool holds_free_space(const struct look *look, const struct validation *v)
{
    return look->facts->free_bytes >= v->least || say(look, "there is less free space");
}

static bool (*const holds[VALIDATE_COUNT_])(const struct look *, const struct validation *) = {
    [VALIDATE_EXISTS] = holds_exists,
    [VALIDATE_ABSENT] = holds_absent,
    [VALIDATE_HASH] = holds_hash,
    [VALIDATE_COUNT] = holds_count,
    [VALIDATE_FREE_SPACE] = holds_free_space,
};

static int run_all(struct plan_findings *findings, const struct look *look, const json_t *array,
                   struct err *err)
{
    struct validation v = {0};

    for (size_t i = 0; i < json_array_size(array); i++) {
        if (validation_read(&v, json_array_get(array, i), err) < 0)
            return -1;
        if (holds[v.check](look, &v))
            continue;
        struct plan_finding finding = {.operation = PLAN_NOBODY,
                                       .path = v.path,
                                       .rule = "validation",
                                       .severity = PLAN_REFUSE,
                                       .remedy = "mend the plan, or what it wants to be so"};
        snprintf(finding.message, sizeof(finding.message),
                 "\"%s\" does not hold %s the plan: %.400s", check_names[v.check],
                 v.after ? "after" : "before", look->message);
        plan_find_fault(findings, &finding);
    }
    return 0;
}

int validations_run(struct plan_findings *findings, const struct plan_index *index,
                    const struct plan_facts *facts, int tree, const char *text, struct err *err)
{
    char message[PLAN_MESSAGE] = "";
    uint64_t holes = CONTENT_HOLES;
    struct look look = {
        .index = index, .facts = facts, .tree = tree, .message = message, .holes = &holes};
    json_error_t why;

    if (!text)
        return 0;
    json_t *array = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    int r = array ? validations_check(array, err)
                  : err_set(err, ERR_INVALID, 0, "validations: %s", why.text);
    if (r == 0)
        r = run_all(findings, &look, array, err);
    json_decref(array);
    return r;
}
