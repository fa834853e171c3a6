/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the network by name: untrusted texts into checked rules, and which one decides about a
 * name and a port. Pure.
 *
 *     [!]HOST[:PORT] [tls=opaque] [ech=refuse]
 *
 * HOST is a name of letters, digits and hyphens in labels, in any case, with at most one dot
 * behind; "*.example.org" is every name below example.org, not itself. "*", "*.com", addresses in
 * any spelling, and names that are not ASCII are refused, with what to write instead. Without a
 * port: 80 and 443. "!" denies, without a port at every one, and wins over what allows. tls=opaque:
 * what is sent need not be TLS that names the host (on port 80 it is HTTP all the same).
 * ech=refuse: nor may it have an encrypted hello. No rules allow nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    NETWORK_NAME = 254, /* with its end */
    NETWORK_RULE = 320, /* longest line, with its end */
    NETWORK_MOST = 256, /* rules in a list */
};

struct network_rule {
    char name[NETWORK_NAME]; /* small letters, no dot behind; what follows "*." of a wildcard */
    bool wildcard;
    bool deny;
    uint16_t port; /* 0: 80 and 443; of a denying rule: every port */
    bool opaque;
    bool refuse_ech;
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
                                          const char *name, uint16_t port);
/* The TCP ports that the rules allow, each once, in order; -1: more than `most`. */
int network_ports(const struct network_rule *rules, size_t count, uint16_t *ret, size_t most);
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
