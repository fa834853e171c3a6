/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the network by name: untrusted texts into checked rules, and which one decides about a
 * name and a port. Pure.
 *
 *     [!]HOST[:PORT] [udp] [tls=opaque|inspect] [ech=refuse]
 *                    [methods=M,...] [paths=/P,...] [secret=NAME] [header=NAME] [env=NAME]
 *
 * HOST is a name of letters, digits and hyphens (and underscores, as some hosts have) in labels, in
 * any case, with at most one dot behind; "*.example.org" is every name below example.org, not
 * itself. "*", "*.com", addresses in any spelling, and names that are not ASCII are refused, with
 * what to write instead. Without a port: 80 and 443. "!" denies, without a port at every one, and
 * wins over what allows. tls=opaque: what is sent need not be TLS that names the host (on port 80
 * it is HTTP all the same). ech=refuse: nor may it have an encrypted hello. tls=inspect, and
 * each option behind it, has TLS end in carrel-egress, which looks at every request; without a port
 * it is about 443 alone. udp: it is about UDP at its port, and about nothing of TCP; what denies,
 * denies both. A path may end in "*", and a "*" between two slashes is one name. No rules
 * allow nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    NETWORK_NAME = 254,    /* with its end */
    NETWORK_RULE = 320,    /* longest line, with its end */
    NETWORK_MOST = 256,    /* rules in a list */
    NETWORK_UDP = 1 << 16, /* in a number that stands for a port: it is of UDP */
};

struct network_rule {
    char name[NETWORK_NAME]; /* small letters, no dot behind; what follows "*." of a wildcard */
    bool wildcard;
    bool deny;
    uint16_t port; /* 0: 80 and 443; of a denying rule: every port */
    bool udp;      /* has a port then */
    bool opaque;
    bool refuse_ech;
    bool inspect; /* TLS ends with us; the next four are of such a rule, "" where it says nothing */
    uint16_t methods; /* where in `inner`, as for the others; 0: "" */
    uint16_t paths;
    uint16_t secret;
    uint16_t header; /* which the secret goes into */
    uint16_t env;    /* the variable that has its placeholder */
    uint16_t inner_n;
    char inner[NETWORK_RULE];
};

/* One strict parser for every name: of a rule, a question, a ClientHello, a Host field. Copies it
 * in small letters without the dot behind; false: it is not a name that may be asked for. */
bool network_name(const char *text, size_t n, char ret[NETWORK_NAME]);
/* 0, or -1 with *err set: what is wrong with it and what to write. */
int network_parse_rule(const char *text, struct network_rule *ret, struct err *err);
/* As it would be written; ret has room for NETWORK_RULE. */
const char *network_rule_text(const struct network_rule *rule, char *ret);
/* The rule that decides about the name (as network_name gives it) at that port, or NULL: none, so
 * it is refused. A denying rule is returned too; of those that allow the one that says most exactly
 * what it is about, of several the first. Port 0: whether the name is allowed at any port. */
const struct network_rule *network_decide(const struct network_rule *rules, size_t count,
                                          const char *name, uint32_t port);
/* Whether TLS to it ends with us: one of the rules that decide says so. */
bool network_inspects(const struct network_rule *rules, size_t count, const char *name,
                      uint32_t port);
/* A text of `inner`. */
const char *network_inner(const struct network_rule *rule, uint16_t at);
/* The next rule that decides about the name and port as exactly as the one that network_decide
 * gives; begins with *at 0. NULL: there is no more. */
const struct network_rule *network_next(const struct network_rule *rules, size_t count,
                                        const char *name, uint32_t port, size_t *at);
/* The ports that the rules allow, each once, in order, those of UDP behind; -1: more than `most`.
 */
int network_ports(const struct network_rule *rules, size_t count, uint32_t *ret, size_t most);
/* Whether everything the rule allows is allowed by `wider`, and as strictly. */
bool network_is_within(const struct network_rule *rule, const struct network_rule *wider,
                       size_t count);

enum network_place {
    NETWORK_PUBLIC,
    NETWORK_PRIVATE,  /* loopback, link-local, private and shared ranges, multicast, ... */
    NETWORK_METADATA, /* where clouds hand out credentials: never, whatever is set */
};

/* What the address is for, of a struct sockaddr; forms of IPv6 that stand for an IPv4 address
 * (mapped, translated, NAT64, 6to4) are that address. Ranges for documentation are public. */
enum network_place network_place_of(const void *address, size_t n);
