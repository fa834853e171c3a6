/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a network by name, as the settings bound them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/programs.h"
#include "broker/channel.h"
#include "broker/egress.h"
#include "broker/sandboxes.h"
#include "policy/network_inner.h"
#include "policy/network_sets.h"
#include "protocol/egress.h"
#include "sys/message.h"

enum {
    MOST_PRIVATE = EGRESS_MOST_PRIVATE,
};

size_t egress_split(char *text, const char **words, size_t most)
{
    char *rest;
    size_t n = 0;

    for (char *word = strtok_r(text, ", \t", &rest); word && n < most;
         word = strtok_r(NULL, ", \t", &rest))
        words[n++] = word;
    return n;
}

static int parse_limit(const struct broker *b, struct network_rule *rules, size_t *ret,
                       struct err *err)
{
    char text[sizeof(b->settings.network_limit)];
    const char *words[NETWORK_MOST];

    snprintf(text, sizeof(text), "%s", b->settings.network_limit);
    *ret = egress_split(text, words, NETWORK_MOST);
    for (size_t i = 0; i < *ret; i++) {
        if (network_parse_rule(words[i], &rules[i], err) < 0)
            return err_wrap(err, "the setting network_limit");
    }
    return 0;
}

int egress_check_settings(const struct broker *b, struct err *err)
{
    const struct settings *s = &b->settings;
    char text[sizeof(s->network_private)];
    const char *words[MOST_PRIVATE + 1];
    struct network_rule rule;
    size_t n;

    snprintf(text, sizeof(text), "%s", s->network_private);
    n = egress_split(text, words, MOST_PRIVATE + 1);
    if (n > MOST_PRIVATE)
        return err_set(err, ERR_INVALID, 0, "the setting network_private names more than %d hosts",
                       MOST_PRIVATE);
    for (size_t i = 0; i < n; i++) {
        if (words[i][0] == '!' || network_parse_rule(words[i], &rule, err) < 0)
            return err_set(err, ERR_INVALID, 0,
                           "the setting network_private: '%.80s' is not HOST or HOST:PORT",
                           words[i]);
    }
    if (strspn(s->nameservers, "0123456789abcdefABCDEF.:[], ") != strlen(s->nameservers))
        return err_set(err, ERR_INVALID, 0,
                       "the setting nameservers must be ADDRESS:PORT, with commas between");
    struct network_rule *limit = malloc(NETWORK_MOST * sizeof(*limit));
    int r = limit ? parse_limit(b, limit, &n, err)
                  : err_set(err, ERR_LIMIT, ENOMEM, "check the settings");
    free(limit);
    return r;
}

static int check_rules(const struct broker *b, const char *const *texts, struct network_rule *limit,
                       size_t limits, struct err *err)
{
    struct network_rule rule;

    (void)b;
    for (size_t i = 0; texts && texts[i]; i++) {
        if (i == NETWORK_MOST)
            return err_set(err, ERR_LIMIT, 0, "more than %d rules of the network", NETWORK_MOST);
        if (network_parse_rule(texts[i], &rule, err) < 0)
            return err_wrap(err, "the policy's network");
        if (!rule.deny && limits && !network_is_within(&rule, limit, limits))
            return err_set(err, ERR_DENIED, 0,
                           "the policy allows %s, which goes beyond the setting network_limit",
                           texts[i]);
    }
    return 0;
}

int egress_check(const struct broker *b, const struct spec_message *m, struct err *err)
{
    size_t limits = 0;

    if (m->net != CARREL_NET_ALLOW)
        return 0;
    if (!b->settings.allow_net) {
        err_set(err, ERR_DENIED, 0,
                "the policy names hosts of the network, which the setting allow_net forbids");
        err->said = SAID_ALLOW_NET;
        return -1;
    }
    struct network_rule *limit = malloc(NETWORK_MOST * sizeof(*limit));
    if (!limit)
        return err_set(err, ERR_LIMIT, ENOMEM, "check the policy");
    int r = parse_limit(b, limit, &limits, err);
    if (r == 0)
        r = check_rules(b, m->net_rules, limit, limits, err);
    free(limit);
    return r;
}

int egress_expand(const struct broker *b, struct spec_message *m, struct arena *arena,
                  struct err *err)
{
    const struct network_mirror mirrors[] = {{"pip", b->settings.package_index},
                                             {"npm", b->settings.package_registry},
                                             {"apt", b->settings.debian_mirror},
                                             {NULL, NULL}};
    char path[4096];

    if (m->net != CARREL_NET_ALLOW)
        return 0;
    const char *dir = *b->settings.networks ? b->settings.networks
                                            : program_share("networks", path, sizeof(path));
    return network_sets_expand(m->net_rules, dir, mirrors, arena, &m->net_rules, err);
}

void egress_request(struct broker *b, uint64_t tag, const struct exec_message *m)
{
    struct exec_message expanded = *m;
    struct arena arena;
    scoped_buf struct buf names;
    struct err err;

    arena_init(&arena, 8 << 20);
    buf_init(&names, MESSAGE_MAX_BYTES);
    pack_u64(&names, tag);
    int r = egress_expand(b, &expanded.spec, &arena, &err);
    if (r == 0)
        r = egress_check(b, &expanded.spec, &err);
    if (r == 0) {
        sandbox_change_network(b, &expanded);
        pack_list(&names, expanded.spec.net_rules);
        r = buf_done(&names) < 0 ? err_set(&err, ERR_LIMIT, ENOMEM, "tell the rules") : 0;
    }
    arena_clear(&arena);
    if (r < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send(b, ANSWER_NAMES, &names, NULL, 0);
}

/* The ports of rules that were checked; -1: too many. */
static int ports_of(const char *const *texts, uint32_t *ret)
{
    struct network_rule *rules = malloc(NETWORK_MOST * sizeof(*rules));
    struct err err;
    size_t n = 0;

    while (rules && texts && texts[n] && n < NETWORK_MOST &&
           network_parse_rule(texts[n], &rules[n], &err) == 0)
        n++;
    int count = rules ? network_ports(rules, n, ret, EGRESS_PORTS) : -1;
    free(rules);
    return count;
}

/* What the sandbox was made with: the hosts that its authority is for, and its placeholders. */
static bool inspects_same(const char *const *was, const char *const *is)
{
    struct network_rule a = {.inspect = false};
    struct network_rule b = {.inspect = false};
    struct err err;

    for (;;) {
        while (*was && (network_parse_rule(*was, &a, &err) < 0 || !a.inspect))
            was++;
        while (*is && (network_parse_rule(*is, &b, &err) < 0 || !b.inspect))
            is++;
        if (!*was || !*is)
            return !*was && !*is;
        if (strcmp(a.name, b.name) != 0 ||
            strcmp(network_inner(&a, a.secret), network_inner(&b, b.secret)) != 0 ||
            strcmp(network_inner(&a, a.env), network_inner(&b, b.env)) != 0)
            return false;
        was++;
        is++;
    }
}

static bool leads_to_same_ports(const char *const *was, const char *const *is)
{
    uint32_t old[EGRESS_PORTS];
    uint32_t new[EGRESS_PORTS];
    int n = ports_of(was, old);
    int m = ports_of(is, new);

    return n > 0 && n == m && memcmp(old, new, (size_t)n * sizeof(*old)) == 0;
}

bool egress_is_alike(const char *const *was, const char *const *is)
{
    return leads_to_same_ports(was, is) && inspects_same(was, is);
}
