/* SPDX-License-Identifier: Apache-2.0 */
/* What a program inside sends first, looked at before it leaves: that a connection which was made
 * for a name is used for that name. Pure.
 *
 *   UNDECIDED --first bytes--> TLS  (hello.c) --the server has answered--> FREE
 *            |             \-> HTTP (web.c)   --a WebSocket was agreed on--> FREE
 *            \-neither, where that is allowed--> FREE
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "egress/hello.h"
#include "egress/web.h"
#include "policy/network.h"

enum {
    LOOK_HELD = 64 << 10, /* of bytes that wait, at most */
    LOOK_LINE = 8 << 10,  /* as much of a first line is waited for */
};

enum look_state {
    LOOK_UNDECIDED,
    LOOK_TLS,
    LOOK_HTTP,
    LOOK_FREE, /* nothing is looked at any more */
    LOOK_OVER, /* refused */
};

struct look {
    enum look_state state;
    uint16_t port;
    uint64_t cleared; /* so many bytes from inside may leave; UINT64_MAX: all */
    const char *name; /* borrowed */
    bool refuse_ech;
    bool is_waiting;  /* for the rest of what has begun to come */
    struct buf first; /* while undecided */
    bool had_hello;
    bool had_web;
    struct hello hello;
    struct web web;
    const char *why; /* it was refused */
    const char *fix;
};

void look_begin(struct look *look, const char *name, uint16_t port,
                const struct network_rule *rule);
/* The next bytes from inside. 0, or -1: refused. */
int look_up(struct look *look, const unsigned char *bytes, size_t n);
/* ... from outside, before they go in. */
void look_down(struct look *look, const unsigned char *bytes, size_t n);
/* Whether these are needed. */
bool look_wants_down(const struct look *look);
void look_clear(struct look *look);
