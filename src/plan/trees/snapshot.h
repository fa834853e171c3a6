/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a snapshot of a tree that nobody writes to: copies of what has changed since the last one,
 * and hard links to that one's copies of what has not. The live tree itself is never linked to. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

struct snapshot_wish {
    int tree;
    int dir; /* of the workspace's snapshots: kept.h */
    const char *id;
    const char *name;  /* "": none */
    const char *actor; /* for those who look at it */
    const char *why;   /* "asked", "apply", ... */
};

/* `ret_meta` is what is told of it. */
int snapshot_make(const struct snapshot_wish *wish, json_t **ret_meta, struct err *err);
