/* SPDX-License-Identifier: Apache-2.0 */
/* Named sets of rules: files of a directory, "python" for "@python". Each line is a rule of
 * network.h, or "mirrors pip|npm|apt": the hosts that this host's own configuration of that
 * program names. "#" begins a comment. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "policy/network.h"

/* Small letters, digits and hyphens. */
bool network_set_is_name(const char *name);

/* Mirrors that are known otherwise: "pip" and the like, and an address. */
struct network_mirror {
    const char *name; /* NULL ends a list */
    const char *url;  /* "": none */
};

/* "https://user@host:port/path" gives "host:port"; false: its host can be no rule (an address). */
bool network_sets_url(const char *url, char ret[NETWORK_RULE]);

/* The list with every "@set" and "!@set" replaced by the lines of the set; ends with NULL. What
 * comes of it is in `arena`; `mirrors` may be NULL. */
int network_sets_expand(const char *const *rules, const char *dir,
                        const struct network_mirror *mirrors, struct arena *arena,
                        const char *const **ret, struct err *err);
