/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/network.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "policy/network_inner.h"

enum {
    LABEL = 63,
    PORT_HTTP = 80,
    PORT_HTTPS = 443,
};

/* --- names --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* What a resolver could take for a part of an address: 127, 0177, 0x7f, 0x. No public name ends so.
 */
static bool is_number(const char *label, size_t n)
{
    bool hex = n >= 2 && label[0] == '0' && label[1] == 'x';

    for (size_t i = hex ? 2 : 0; i < n; i++) {
        if (!is_digit(label[i]) && !(hex && label[i] >= 'a' && label[i] <= 'f'))
            return false;
    }
    return true;
}

static bool is_label(const char *label, size_t n)
{
    return n > 0 && n <= LABEL && label[0] != '-' && label[n - 1] != '-';
}

bool network_name(const char *text, size_t n, char ret[NETWORK_NAME])
{
    size_t label = 0;

    if (n > 0 && text[n - 1] == '.')
        n--;
    if (n == 0 || n >= NETWORK_NAME)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = lower(text[i]);
        if (c == '.') {
            if (!is_label(ret + label, i - label))
                return false;
            label = i + 1;
        } else if (!(c >= 'a' && c <= 'z') && !is_digit(c) && c != '-' && c != '_') {
            return false;
        }
        ret[i] = c;
    }
    ret[n] = '\0';
    return is_label(ret + label, n - label) && !is_number(ret + label, n - label);
}

/* Whether the rule is about that name. */
static bool names(const struct network_rule *rule, const char *name)
{
    size_t n = strlen(name);
    size_t tail = strlen(rule->name);

    if (!rule->wildcard)
        return strcmp(name, rule->name) == 0;
    return n > tail + 1 && name[n - tail - 1] == '.' && strcmp(name + n - tail, rule->name) == 0;
}

/* --- rules --- */

struct words {
    const char *at;
    size_t n;
};

/* The next word; n is 0 behind the last. */
static struct words next_word(const char *text)
{
    text += strspn(text, " ");
    return (struct words){text, strcspn(text, " ")};
}

static bool is_word(struct words w, const char *text)
{
    return w.n == strlen(text) && memcmp(w.at, text, w.n) == 0;
}

/* Names under which clouds hand out credentials; their addresses are never dialled either. */
static bool is_metadata(const char *name)
{
    static const char *const known[] = {"metadata.google.internal", "instance-data.ec2.internal",
                                        "metadata.azure.internal", "metadata.tencentyun.com"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0)
            return true;
    }
    return false;
}

/* "com", "co.uk": below it are the names of everybody. The many others are not known here. */
static bool is_public_suffix(const char *name)
{
    static const char *const seconds[] = {"ac",  "co",  "com", "edu", "go",  "gob", "gov",
                                          "gub", "mil", "ne",  "net", "nom", "or",  "org"};
    const char *dot = strchr(name, '.');

    if (!dot)
        return true;
    if (strlen(dot + 1) != 2)
        return false;
    for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
        if (strlen(seconds[i]) == (size_t)(dot - name) &&
            memcmp(seconds[i], name, (size_t)(dot - name)) == 0)
            return true;
    }
    return false;
}

/* What somebody meant whose host is no name. */
static int explain_host(const char *host, size_t n, struct err *err)
{
    char name[NETWORK_NAME];
    bool digits = true;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)host[i];
        if (c >= 0x80)
            return err_set(err, ERR_INVALID, 0,
                           "the name is not ASCII: write it as DNS has it, xn--...");
        if (c == '@' || c == '/')
            return err_set(err, ERR_INVALID, 0,
                           "'%c' is no part of a name: write the host alone, as example.org or "
                           "example.org:8443",
                           c);
        digits = digits && (is_digit((char)c) || strchr(".:xXabcdefABCDEF[]%", c));
    }
    /* With a letter at the end, only that it ends in a number can have been wrong. */
    if (n > 0 && n < NETWORK_NAME - 2 && host[n - 1] != '-') {
        char probe[NETWORK_NAME];
        int length = snprintf(probe, sizeof(probe), "%.*sz", (int)n, host);
        digits = digits || network_name(probe, (size_t)length, name);
    }
    if (n > 0 && digits)
        return err_set(err, ERR_INVALID, 0,
                       "an address cannot be allowed, only names can: write the name of the host");
    return err_set(
        err, ERR_INVALID, 0,
        "'%.*s' is not the name of a host: letters, digits, hyphens and underscores, and dots "
        "between, at most 253",
        (int)(n > 64 ? 64 : n), host);
}

static int parse_wildcard(const char **host, size_t *n, struct network_rule *r, struct err *err)
{
    if (*n == 1 && **host == '*')
        return err_set(err, ERR_INVALID, 0,
                       "'*' would be every name there is: name the hosts, or write "
                       "'*.example.org' for those below one of yours");
    if (*n > 1 && (*host)[0] == '*' && (*host)[1] == '.') {
        r->wildcard = true;
        *host += 2;
        *n -= 2;
    }
    if (memchr(*host, '*', *n))
        return err_set(err, ERR_INVALID, 0,
                       "a '*' can only stand at the beginning, as in '*.example.org'");
    return 0;
}

static int parse_port(const char *text, size_t n, uint16_t *ret, struct err *err)
{
    unsigned port = 0;

    for (size_t i = 0; i < n; i++) {
        port = is_digit(text[i]) && port <= UINT16_MAX ? port * 10 + (unsigned)(text[i] - '0')
                                                       : UINT16_MAX + 1U;
    }
    if (n == 0 || text[0] == '0' || port > UINT16_MAX)
        return err_set(err, ERR_INVALID, 0, "a port is a number from 1 to 65535");
    *ret = (uint16_t)port;
    return 0;
}

static int parse_host(const char *host, size_t n, struct network_rule *r, struct err *err)
{
    const char *colon = memchr(host, ':', n);

    if (memchr(host, '[', n) || (colon && memchr(colon + 1, ':', n - (size_t)(colon + 1 - host))))
        return explain_host("::", 2, err);
    if (colon && colon[1] == '/')
        return explain_host("/", 1, err);
    if (colon && parse_port(colon + 1, n - (size_t)(colon + 1 - host), &r->port, err) < 0)
        return -1;
    if (colon)
        n = (size_t)(colon - host);
    if (parse_wildcard(&host, &n, r, err) < 0)
        return -1;
    if (!network_name(host, n, r->name))
        return explain_host(host, n, err);
    if (r->wildcard && !r->deny && is_public_suffix(r->name))
        return err_set(err, ERR_INVALID, 0,
                       "'*.%.64s' would be the names of everybody below '%.64s': write more of the "
                       "name",
                       r->name, r->name);
    if (!r->wildcard && !r->deny && is_metadata(r->name))
        return err_set(err, ERR_INVALID, 0,
                       "'%.64s' hands out the credentials of this machine, and is never reached "
                       "from a sandbox",
                       r->name);
    return 0;
}

static int parse_option(struct words w, struct network_rule *r, struct err *err)
{
    bool *flag = is_word(w, "tls=opaque")   ? &r->opaque
                 : is_word(w, "ech=refuse") ? &r->refuse_ech
                 : is_word(w, "udp")        ? &r->udp
                                            : NULL;

    int inner = flag ? 0 : network_parse_inner(w.at, w.n, r, err);
    if (inner != 0)
        return inner < 0 ? -1 : 0;
    if (!flag)
        return err_set(err, ERR_INVALID, 0,
                       "'%.*s' is no option of a rule: there are udp, tls=opaque, tls=inspect, "
                       "ech=refuse, methods=, paths=, secret=, header= and env=",
                       (int)(w.n > 64 ? 64 : w.n), w.at);
    if (*flag)
        return err_set(err, ERR_INVALID, 0, "'%.*s' is there twice", (int)w.n, w.at);
    *flag = true;
    return 0;
}

/* Rules that contradict themselves. */
static int check_options(const struct network_rule *r, struct err *err)
{
    if (r->deny && (r->udp || r->opaque || r->refuse_ech || r->inspect))
        return err_set(err, ERR_INVALID, 0, "a rule that denies has no options");
    if (r->udp && r->port == 0)
        return err_set(err, ERR_INVALID, 0,
                       "a rule about UDP names its port, as in time.example.org:123 udp");
    if (r->udp && (r->opaque || r->refuse_ech || r->inspect))
        return err_set(
            err, ERR_INVALID, 0,
            "what is sent over UDP is not looked at: leave out what is about TLS or requests");
    if (r->opaque && r->refuse_ech)
        return err_set(err, ERR_INVALID, 0,
                       "tls=opaque looks at no hello, so that ech=refuse cannot be kept: write one "
                       "of the two");
    if (r->inspect && (r->opaque || r->refuse_ech))
        return err_set(err, ERR_INVALID, 0,
                       "tls=opaque and ech=refuse say nothing where requests are looked at: leave "
                       "them out");
    if (r->port == PORT_HTTP && r->inspect)
        return err_set(err, ERR_INVALID, 0,
                       "port 80 is plain HTTP: methods, paths and secrets are kept over TLS alone, "
                       "so leave the port out, or write :443");
    if (r->port == PORT_HTTP && (r->opaque || r->refuse_ech))
        return err_set(err, ERR_INVALID, 0,
                       "port 80 is plain HTTP, which an option about TLS does not change");
    return 0;
}

int network_parse_rule(const char *text, struct network_rule *ret, struct err *err)
{
    struct network_rule rule = {.port = 0};

    if (strlen(text) >= NETWORK_RULE)
        return err_set(err, ERR_INVALID, 0, "a rule has at most %d characters", NETWORK_RULE - 1);
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return err_set(err, ERR_INVALID, 0, "a control character in a rule");
    }
    struct words w = next_word(text);
    if (w.n > 0 && *w.at == '!') {
        rule.deny = true;
        w.at++;
        w.n--;
    }
    if (w.n == 0)
        return err_set(err, ERR_INVALID, 0, "a host is missing: write example.org, for example");
    if (parse_host(w.at, w.n, &rule, err) < 0)
        return -1;
    for (w = next_word(w.at + w.n); w.n > 0; w = next_word(w.at + w.n)) {
        if (parse_option(w, &rule, err) < 0)
            return -1;
    }
    if (check_options(&rule, err) < 0 || network_complete_inner(&rule, err) < 0)
        return -1;
    *ret = rule;
    return 0;
}

const char *network_rule_text(const struct network_rule *rule, char *ret)
{
    char port[8] = "";
    char inner[NETWORK_RULE];

    if (rule->port)
        snprintf(port, sizeof(port), ":%u", (unsigned)rule->port);
    snprintf(ret, NETWORK_RULE, "%s%s%s%s%s%s%s%s", rule->deny ? "!" : "",
             rule->wildcard ? "*." : "", rule->name, port, rule->udp ? " udp" : "",
             rule->opaque ? " tls=opaque" : "", rule->refuse_ech ? " ech=refuse" : "",
             network_inner_text(rule, inner));
    return ret;
}

/* --- decisions --- */

static bool covers_port(const struct network_rule *rule, uint32_t port)
{
    if (!rule->deny && rule->udp != ((port & NETWORK_UDP) != 0))
        return false;
    port &= UINT16_MAX;
    if (rule->port)
        return rule->port == port;
    if (rule->inspect)
        return port == PORT_HTTPS;
    return rule->deny || port == PORT_HTTP || port == PORT_HTTPS;
}

static unsigned exactness(const struct network_rule *rule)
{
    unsigned name = rule->wildcard ? (unsigned)strlen(rule->name) : NETWORK_NAME;

    return 2 * name + (rule->port != 0);
}

static const struct network_rule *decide_at(const struct network_rule *rules, size_t count,
                                            const char *name, uint32_t port)
{
    const struct network_rule *best = NULL;

    for (size_t i = 0; i < count; i++) {
        if (!covers_port(&rules[i], port) || !names(&rules[i], name))
            continue;
        if (rules[i].deny)
            return &rules[i];
        if (!best || exactness(&rules[i]) > exactness(best))
            best = &rules[i];
    }
    return best;
}

/* The ports of a rule that allows; how many. */
static size_t ports_of(const struct network_rule *rule, uint32_t ret[2])
{
    ret[0] = rule->udp       ? NETWORK_UDP | (uint32_t)rule->port
             : rule->port    ? rule->port
             : rule->inspect ? PORT_HTTPS
                             : PORT_HTTP;
    ret[1] = PORT_HTTPS;
    return rule->port || rule->inspect ? 1 : 2;
}

const struct network_rule *network_next(const struct network_rule *rules, size_t count,
                                        const char *name, uint32_t port, size_t *at)
{
    const struct network_rule *best = decide_at(rules, count, name, port);

    while (best && !best->deny && *at < count) {
        const struct network_rule *rule = &rules[(*at)++];
        if (covers_port(rule, port) && names(rule, name) && exactness(rule) == exactness(best))
            return rule;
    }
    return NULL;
}

bool network_inspects(const struct network_rule *rules, size_t count, const char *name,
                      uint32_t port)
{
    const struct network_rule *rule;
    size_t at = 0;

    while ((rule = network_next(rules, count, name, port, &at))) {
        if (rule->inspect)
            return true;
    }
    return false;
}

static const struct network_rule *decide_anywhere(const struct network_rule *rules, size_t count,
                                                  const char *name)
{
    const struct network_rule *denying = NULL;
    uint32_t ports[2];

    for (size_t i = 0; i < count; i++) {
        if (rules[i].deny || !names(&rules[i], name))
            continue;
        size_t n = ports_of(&rules[i], ports);
        for (size_t k = 0; k < n; k++) {
            const struct network_rule *rule = decide_at(rules, count, name, ports[k]);
            if (!rule->deny)
                return rule;
            denying = rule;
        }
    }
    return denying ? denying : decide_at(rules, count, name, 0); /* one that denies everything */
}

const struct network_rule *network_decide(const struct network_rule *rules, size_t count,
                                          const char *name, uint32_t port)
{
    return port ? decide_at(rules, count, name, port) : decide_anywhere(rules, count, name);
}

/* Keeps them in order; -1: no room. */
static int add_port(uint32_t *ports, size_t *n, size_t most, uint32_t port)
{
    size_t at = 0;

    while (at < *n && ports[at] < port)
        at++;
    if (at < *n && ports[at] == port)
        return 0;
    if (*n == most)
        return -1;
    memmove(ports + at + 1, ports + at, (*n - at) * sizeof(*ports));
    ports[at] = port;
    ++*n;
    return 0;
}

int network_ports(const struct network_rule *rules, size_t count, uint32_t *ret, size_t most)
{
    uint32_t ports[2];
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        size_t some = rules[i].deny ? 0 : ports_of(&rules[i], ports);
        for (size_t k = 0; k < some; k++) {
            if (add_port(ret, &n, most, ports[k]) < 0)
                return -1;
        }
    }
    return (int)n;
}

/* Whether every name of the one is one of the other's. */
static bool covers_names(const struct network_rule *wider, const struct network_rule *rule)
{
    if (rule->wildcard && wider->wildcard && strcmp(rule->name, wider->name) == 0)
        return true;
    return (!rule->wildcard || wider->wildcard) && names(wider, rule->name);
}

/* Whether the one looks at no less than the other. */
static bool looks_at_as_much(const struct network_rule *rule, const struct network_rule *wider)
{
    return (wider->opaque || !rule->opaque) &&
           (rule->refuse_ech || rule->inspect || !wider->refuse_ech) &&
           network_inner_is_within(rule, wider);
}

/* For each name of the rule it is the most exact one that decides what is looked at: of those that
 * have all of them one, and each of those that have some. */
static bool is_within_at(const struct network_rule *rule, uint32_t port,
                         const struct network_rule *wider, size_t count)
{
    const struct network_rule *best = NULL;
    bool inside = false; /* one as exact as the best */

    for (size_t i = 0; i < count; i++) {
        const struct network_rule *w = &wider[i];
        bool has_all = covers_names(w, rule);
        bool has_some = !has_all && covers_names(rule, w);
        if (!covers_port(w, port) || (!has_all && !has_some))
            continue;
        if (w->deny || (has_some && !looks_at_as_much(rule, w)))
            return false;
        if (!has_all || (best && exactness(w) < exactness(best)))
            continue;
        /* Of several that look at requests, one is enough; else it is the first that decides. */
        if (!best || exactness(w) > exactness(best))
            inside = looks_at_as_much(rule, w);
        else if (rule->inspect && w->inspect)
            inside = inside || looks_at_as_much(rule, w);
        if (!best || exactness(w) > exactness(best))
            best = w;
    }
    return best && inside;
}

bool network_is_within(const struct network_rule *rule, const struct network_rule *wider,
                       size_t count)
{
    uint32_t ports[2];
    size_t n = rule->deny ? 0 : ports_of(rule, ports);

    for (size_t i = 0; i < n; i++) {
        if (!is_within_at(rule, ports[i], wider, count))
            return false;
    }
    return true;
}

/* --- addresses --- */

struct range {
    unsigned char address[16];
    unsigned bits;
};

static bool is_in(const unsigned char *address, const struct range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned whole = ranges[i].bits / 8;
        unsigned rest = ranges[i].bits % 8;
        if (memcmp(address, ranges[i].address, whole) == 0 &&
            (rest == 0 || (address[whole] ^ ranges[i].address[whole]) >> (8 - rest) == 0))
            return true;
    }
    return false;
}

#define IS_IN(address, ranges) is_in(address, ranges, sizeof(ranges) / sizeof((ranges)[0]))

static enum network_place place_of_v4(const unsigned char address[4])
{
    static const struct range metadata[] = {{{169, 254, 169, 254}, 32}, {{169, 254, 169, 253}, 32},
                                            {{169, 254, 170, 2}, 32},   {{169, 254, 170, 23}, 32},
                                            {{169, 254, 0, 23}, 32},    {{100, 100, 100, 200}, 32},
                                            {{192, 0, 0, 192}, 32},     {{168, 63, 129, 16}, 32}};
    static const struct range ours[] = {{{0}, 8},          {{10}, 8},        {{100, 64}, 10},
                                        {{127}, 8},        {{169, 254}, 16}, {{172, 16}, 12},
                                        {{192, 0, 0}, 24}, {{192, 168}, 16}, {{198, 18}, 15},
                                        {{224}, 4},        {{240}, 4}};

    if (IS_IN(address, metadata))
        return NETWORK_METADATA;
    return IS_IN(address, ours) ? NETWORK_PRIVATE : NETWORK_PUBLIC;
}

/* The IPv4 address that an IPv6 address stands for, or NULL. */
static const unsigned char *inner_v4(const unsigned char address[16])
{
    static const struct {
        struct range range;
        unsigned at;
    } forms[] = {
        {{{[10] = 0xff, [11] = 0xff}, 96}, 12}, /* ::ffff:a.b.c.d, mapped */
        {{{[8] = 0xff, [9] = 0xff}, 96}, 12},   /* ::ffff:0:a.b.c.d, translated */
        {{{0x00, 0x64, 0xff, 0x9b}, 96}, 12},   /* 64:ff9b::a.b.c.d, NAT64 */
        {{{0x20, 0x02}, 16}, 2},                /* 2002:ab:cd::, 6to4 */
    };

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (is_in(address, &forms[i].range, 1))
            return address + forms[i].at;
    }
    return NULL;
}

static enum network_place place_of_v6(const unsigned char address[16])
{
    static const struct range metadata[] = {
        {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, 128}, /* fd00:ec2::254 */
        {{0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23}, 128},
        {{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}, 128}};
    static const struct range global[] = {{{0x20}, 3}};
    static const struct range tunnels[] = {{{0x20, 0x01}, 32}}; /* Teredo: to an IPv4 address */
    const unsigned char *v4 = inner_v4(address);

    if (v4)
        return place_of_v4(v4);
    if (IS_IN(address, metadata))
        return NETWORK_METADATA;
    return IS_IN(address, global) && !IS_IN(address, tunnels) ? NETWORK_PUBLIC : NETWORK_PRIVATE;
}

enum network_place network_place_of(const void *address, size_t n)
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;
    sa_family_t family = AF_UNSPEC;

    if (n >= sizeof(family))
        memcpy(&family, address, sizeof(family));
    if (family == AF_INET && n >= sizeof(v4)) {
        memcpy(&v4, address, sizeof(v4));
        return place_of_v4((const unsigned char *)&v4.sin_addr);
    }
    if (family == AF_INET6 && n >= sizeof(v6)) {
        memcpy(&v6, address, sizeof(v6));
        return place_of_v6((const unsigned char *)&v6.sin6_addr);
    }
    return NETWORK_PRIVATE; /* whatever it is, nothing public */
}
