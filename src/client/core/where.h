/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon keeps its state, and where it is reached. One rule for both sides. */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum {
    WHERE_PATH = 4096
};

/* An environment variable; NULL when it is not set or empty. */
const char *where_env(const char *name);

/* The state directory: `option` (of --state) if there is one; as root /var/lib/carrel; otherwise
 * $XDG_STATE_HOME/carrel or ~/.local/state/carrel. */
int where_state(const char *option, char *path, size_t size, struct err *err);

/* How to reach the daemon: over `socket`, or when that is "" at `url`. */
struct where {
    char socket[WHERE_PATH];
    char url[WHERE_PATH]; /* "http://carrel" with a socket; never ends in / */
    const char *key;      /* NULL: none */
    const char *ca;       /* a file: what is trusted over https instead of the host's; NULL */
};

/* --state, CARREL_URL, CARREL_SOCKET, the default: the first there is. */
int where_daemon(const char *state, struct where *ret, struct err *err);
