/* SPDX-License-Identifier: Apache-2.0 */
/* What a rule of network.h says of what is inside TLS: which requests, and a secret for them. For
 * network.c, and who looks at requests. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "policy/network.h"

enum {
    NETWORK_SECRET = 64,     /* longest name of a secret, header or variable, with its end */
    NETWORK_VALUE_LEAST = 8, /* of a secret: a shorter one could not be found in answers */
    NETWORK_VALUE_MOST = 4096,
    NETWORK_PATH = 4096, /* longest path that is compared, likewise */
};

/* 1: the word is one of these options, and is in the rule now; 0: it is none; -1: it is malformed.
 */
int network_parse_inner(const char *word, size_t n, struct network_rule *rule, struct err *err);
/* Once all words are read: what is missing is filled in. 0 or -1. */
int network_complete_inner(struct network_rule *rule, struct err *err);
/* " methods=… paths=…", or ""; `ret` has room for NETWORK_RULE. */
const char *network_inner_text(const struct network_rule *rule, char *ret);
/* Whether every request that the rule lets through is one that `wider` lets through, with the same
 * secret in it. */
bool network_inner_is_within(const struct network_rule *rule, const struct network_rule *wider);

/* Small letters, digits, - and _, a letter first. */
bool network_is_secret(const char *name);
/* What a secret may be: visible ASCII, and blanks within. */
bool network_is_value(const char *value, size_t n);
/* What a program inside has in place of the value, in `ret` with room for size bytes. */
void network_placeholder(const char *name, char *ret, size_t size);

struct network_request {
    const char *name; /* of the host */
    uint16_t port;
    const char *method;
    const char *path; /* as it came, without the query */
};

/* The rule that lets that request through, of those that decide about the name and the port; NULL:
 * none, and *ret_why says why. */
const struct network_rule *network_decide_request(const struct network_rule *rules, size_t count,
                                                  const struct network_request *asked,
                                                  const char **ret_why);
