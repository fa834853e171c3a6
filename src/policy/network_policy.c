/* SPDX-License-Identifier: Apache-2.0 */
/* The key "network" of a policy where it is an object: names that may be reached. Each entry
 * becomes a line of network.h; "@set" stays until network_sets_expand. */
#include "policy/network_policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/network.h"
#include "policy/network_sets.h"
#include "policy/reader.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum {
    MOST_CONNECTIONS = 65536
};

/* --- one entry that is an object --- */

struct entry {
    struct reader reader; /* first: a reader is what the walk hands on */
    const char *host;
    uint64_t port;
    const char *udp;
    const char *tls;
    const char *ech;
    const char *methods; /* " methods=…", as the others; "" */
    const char *paths;
    const char *secret;
    const char *header;
    const char *env;
};

static struct entry *entry_of(struct reader *r)
{
    return (struct entry *)(void *)r;
}

static int read_host(struct reader *r, const json_t *value)
{
    entry_of(r)->host = reader_text(r, value);
    return entry_of(r)->host ? 0 : -EINVAL;
}

static int read_port(struct reader *r, const json_t *value)
{
    return reader_count(value, 65535, &entry_of(r)->port);
}

static int read_tls(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (!text || (strcmp(text, "opaque") != 0 && strcmp(text, "inspect") != 0))
        return -EINVAL;
    entry_of(r)->tls = strcmp(text, "opaque") == 0 ? " tls=opaque" : " tls=inspect";
    return 0;
}

static int read_ech(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (!text || (strcmp(text, "refuse") != 0 && strcmp(text, "allow-grease") != 0))
        return -EINVAL;
    entry_of(r)->ech = strcmp(text, "refuse") == 0 ? " ech=refuse" : "";
    return 0;
}

static int read_udp(struct reader *r, const json_t *value)
{
    if (!json_is_boolean(value))
        return -EINVAL;
    entry_of(r)->udp = json_is_true(value) ? " udp" : "";
    return 0;
}

/* A word of a line, or a part of one: nothing that would begin another. */
static const char *word_of(struct reader *r, const json_t *value)
{
    const char *text = reader_text(r, value);

    return text && *text && !strpbrk(text, " ,\t") ? text : NULL;
}

/* " name=a,b" of a list that is not empty. */
static int read_list(struct reader *r, const json_t *value, const char *name, const char **ret)
{
    const char *line = name;
    json_t *item;
    size_t i;

    if (json_array_size(value) == 0)
        return -EINVAL;
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        const char *word = word_of(r, item);
        line = word ? arena_printf(r->arena, "%s%s%s", line, i ? "," : "", word) : NULL;
        if (!line)
            return -EINVAL;
    }
    *ret = line;
    return 0;
}

static int read_methods(struct reader *r, const json_t *value)
{
    return read_list(r, value, " methods=", &entry_of(r)->methods);
}

static int read_paths(struct reader *r, const json_t *value)
{
    return read_list(r, value, " paths=", &entry_of(r)->paths);
}

static int read_word(struct reader *r, const json_t *value, const char *name, const char **ret)
{
    const char *word = word_of(r, value);

    *ret = word ? arena_printf(r->arena, " %s=%s", name, word) : NULL;
    return *ret ? 0 : -EINVAL;
}

static int read_from(struct reader *r, const json_t *value)
{
    return read_word(r, value, "secret", &entry_of(r)->secret);
}

static int read_header(struct reader *r, const json_t *value)
{
    return read_word(r, value, "header", &entry_of(r)->header);
}

static int read_env(struct reader *r, const json_t *value)
{
    return read_word(r, value, "env", &entry_of(r)->env);
}

static const struct key secret_keys[] = {
    {"from", "the name of a secret", read_from},
    {"header", "the name of a header, such as \"Authorization\"", read_header},
    {"env", "the name of a variable that has the placeholder", read_env},
};

static int read_secret(struct reader *r, const json_t *value)
{
    if (!json_is_object(value) || !json_object_get(value, "from"))
        return -EINVAL;
    return reader_object(r, value, secret_keys, LENGTH(secret_keys)) < 0 ? -ECANCELED : 0;
}

static const struct key entry_keys[] = {
    {"host", "a name such as \"api.example.com\" or \"*.example.org\"", read_host},
    {"port", "a whole number from 1 to 65535", read_port},
    {"tls", "\"opaque\" or \"inspect\"", read_tls},
    {"ech", "\"refuse\" or \"allow-grease\"", read_ech},
    {"udp", "true or false", read_udp},
    {"methods", "a list such as [\"GET\", \"HEAD\"]", read_methods},
    {"paths", "a list such as [\"/v1/models\", \"/v1/chat/*\"]", read_paths},
    {"secret", "an object such as {\"from\": \"example-key\", \"header\": \"Authorization\"}",
     read_secret},
};

static const char *entry_text(struct reader *r, const json_t *object, int *ret)
{
    struct entry entry = {.reader = *r,
                          .udp = "",
                          .tls = "",
                          .ech = "",
                          .methods = "",
                          .paths = "",
                          .secret = "",
                          .header = "",
                          .env = ""};
    char port[8] = "";

    *ret = -ECANCELED;
    if (reader_object(&entry.reader, object, entry_keys, LENGTH(entry_keys)) < 0)
        return NULL;
    *ret = -EINVAL;
    if (!entry.host || strchr(entry.host, ' ') || entry.host[0] == '!' || entry.host[0] == '@')
        return NULL;
    if (entry.port)
        snprintf(port, sizeof(port), ":%u", (unsigned)(uint16_t)entry.port);
    *ret = 0;
    return arena_printf(r->arena, "%s%s%s%s%s%s%s%s%s%s", entry.host, port, entry.udp, entry.tls,
                        entry.ech, entry.methods, entry.paths, entry.secret, entry.header,
                        entry.env);
}

/* --- the lists --- */

static int add_rule(struct reader *r, const char *text, const char *before)
{
    struct network_rule rule;
    struct policy *p = r->policy;
    const char *line = arena_printf(r->arena, "%s%s", before, text);

    if (!line || p->net_rule_count == NETWORK_MOST || text[0] == '!')
        return -EINVAL;
    if (text[0] == '@') {
        if (!network_set_is_name(text + 1))
            return -EINVAL;
    } else if (network_parse_rule(line, &rule, r->err) < 0) {
        err_wrap(r->err, "policy: \"network\"");
        return -ECANCELED;
    }
    p->net_rules[p->net_rule_count++] = line;
    return 0;
}

static int read_rules(struct reader *r, const json_t *value, const char *before)
{
    json_t *item;
    size_t i;

    if (!json_is_array(value))
        return -EINVAL;
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        int result = 0;
        const char *text =
            json_is_object(item) ? entry_text(r, item, &result) : reader_text(r, item);
        if (!text)
            return result ? result : -EINVAL;
        result = add_rule(r, text, before);
        if (result < 0)
            return result;
    }
    return 0;
}

static int read_allow(struct reader *r, const json_t *value)
{
    return read_rules(r, value, "");
}

static int read_deny(struct reader *r, const json_t *value)
{
    return read_rules(r, value, "!");
}

static int read_bytes(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->net_bytes_per_hour);
}

static int read_connections(struct reader *r, const json_t *value)
{
    return reader_count(value, MOST_CONNECTIONS, &r->policy->net_connections);
}

#define RULES                                                                                      \
    "a list of at most 256 names: \"HOST\", \"*.HOST\", \"HOST:PORT\", \"@set\", or objects with " \
    "host, port, tls, ech, methods, paths and secret"

static const struct key network_keys[] = {
    {"allow", RULES, read_allow},
    {"deny", RULES, read_deny},
    {"bytes_per_hour", "a size such as \"1G\" (K, M, G or T)", read_bytes},
    {"connections", "a whole number from 1 to 65536", read_connections},
};

int network_policy_read(struct reader *r, const json_t *value)
{
    if (json_object_size(value) == 0 || !json_object_get(value, "allow"))
        return -EINVAL;
    if (reader_object(r, value, network_keys, LENGTH(network_keys)) < 0)
        return -ECANCELED;
    r->policy->net = CARREL_NET_ALLOW;
    return 0;
}

/* --- under a spec --- */

static size_t count_of(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* The rules of the policy that allow, parsed. */
static int parse_allowed(const struct policy *policy, struct network_rule *rules, size_t *ret,
                         struct err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < policy->net_rule_count; i++) {
        if (policy->net_rules[i][0] == '!')
            continue;
        if (network_parse_rule(policy->net_rules[i], &rules[n++], err) < 0)
            return -1;
    }
    *ret = n;
    return 0;
}

static int check_within(const struct policy *policy, struct arena *arena, const char *const *asked,
                        struct err *err)
{
    struct network_rule *rules = arena_alloc(arena, NETWORK_MOST * sizeof(*rules));
    struct network_rule rule;
    size_t n;

    if (!rules)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (parse_allowed(policy, rules, &n, err) < 0)
        return -1;
    for (size_t i = 0; asked[i]; i++) {
        if (network_parse_rule(asked[i], &rule, err) < 0)
            return -1;
        if (!rule.deny && !network_is_within(&rule, rules, n))
            return err_set(err, ERR_DENIED, 0,
                           "--allow %s goes beyond the policy (add it to \"allow\" of its "
                           "\"network\")",
                           asked[i]);
    }
    return 0;
}

/* Asked for are rules that allow (and perhaps deny), or only some that deny. */
static bool only_denies(const char *const *rules)
{
    for (size_t i = 0; rules[i]; i++) {
        if (rules[i][0] != '!')
            return false;
    }
    return true;
}

/* Own rules first, then the policy's that deny; with `all`, all of the policy's. */
static int join(const struct policy *policy, struct arena *arena, struct carrel_spec *spec,
                bool all, struct err *err)
{
    size_t own = count_of(spec->net_rules);
    const char **rules = arena_alloc(arena, (own + policy->net_rule_count + 1) * sizeof(*rules));
    size_t n = own;

    if (!rules)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (own)
        memcpy(rules, spec->net_rules, own * sizeof(*rules));
    for (size_t i = 0; i < policy->net_rule_count; i++) {
        if (all || policy->net_rules[i][0] == '!')
            rules[n++] = policy->net_rules[i];
    }
    spec->net_rules = rules;
    return 0;
}

static uint64_t least(uint64_t asked, uint64_t allowed)
{
    return !asked || (allowed && allowed < asked) ? allowed : asked;
}

int network_policy_apply(const struct policy *policy, struct arena *arena, struct carrel_spec *spec,
                         struct err *err)
{
    static const char *const nothing[] = {NULL};
    const char *const *asked = spec->net_rules ? spec->net_rules : nothing;
    bool only = only_denies(asked);

    if (spec->net == CARREL_NET_NONE || (policy->net == CARREL_NET_HOST && !asked[0]))
        return 0;
    if (asked[0] && policy->net != CARREL_NET_ALLOW && (policy->net != CARREL_NET_HOST || only))
        return err_set(err, ERR_DENIED, 0,
                       "%s is forbidden by the policy (add \"network\": {\"allow\": [...]} to it)",
                       only ? "--deny without names that are allowed" : "--allow");
    if (policy->net != CARREL_NET_ALLOW)
        return 0;
    if (spec->net_private && spec->net_private[0])
        return err_set(err, ERR_DENIED, 0,
                       "--allow-private does not go with --policy, which it would widen");
    if ((!only && check_within(policy, arena, asked, err) < 0) ||
        join(policy, arena, spec, only, err) < 0)
        return -1;
    spec->net = CARREL_NET_ALLOW;
    spec->net_connections = least(spec->net_connections, policy->net_connections);
    spec->net_bytes_per_hour = least(spec->net_bytes_per_hour, policy->net_bytes_per_hour);
    return 0;
}
