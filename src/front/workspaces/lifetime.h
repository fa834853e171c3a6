/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces that are there for a time, and what becomes of them when it is over.
 *
 *   "lifetime": {"seconds": 300, "at_end": "delete" | "purge" | "sleep" | "freeze", "resume": true}
 *
 * "freeze" keeps what is in memory, where the host can, as long as the daemon lives; else it is
 * "sleep". One that was put to sleep by that is paused, until somebody says it is not: clients that
 * know of lifetimes wait for that, unless it says "resume". Such a workspace has a token: a key for
 * it alone, which who may change it is told whenever he asks. */
#pragma once

#include "front/core/call.h"

struct lifetime {
    uint64_t seconds;
    const char *at_end; /* one of the above */
    bool resume;
    bool paused;
    bool private_ports;     /* who reaches a port by its number has to know port_token */
    const char *token;      /* with private_ports also: */
    const char *port_token; /* "" */
    int64_t started_ms;
};

/* Of the row; false: it has none. Texts in `arena`. */
bool lifetime_of(const struct store_workspace *w, struct arena *arena, struct lifetime *ret);
/* "lifetime" of the body, if it is there, into the row. False: answered. */
bool lifetime_read(struct call *call, struct store_workspace *w);
/* For who asks; null: it has none. */
json_t *lifetime_json(const struct call *call, const struct store_workspace *w);
/* It is not paused any more, and has all its time again. False: answered. */
bool lifetime_resume(struct call *call, struct store_workspace *w);
/* What stands still in it goes on, if it is not paused. */
void lifetime_wake(struct call *call, const struct store_workspace *w);
/* Rows have changed: what is due next is looked up again. */
void lifetimes_look(struct front *front);
