/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a snapshot of a tree that nobody writes to: copies of what has changed since the last one,
 * and hard links to that one's copies of what has not. The live tree itself is never linked to. Of
 * a fork, what it has not changed is linked to the snapshot that it stands on. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct snapshot_wish {
    int tree;
    int base;        /* of a fork: the directory of the snapshot that it stands on; -1 */
    int layer;       /* ... its layer */
    bool privileged; /* ... whose marks are trusted.overlay.* */
    int dir;         /* of the workspace's snapshots: kept.h */
    const char *id;
    const char *name;  /* "": none */
    const char *actor; /* for those who look at it */
    const char *why;   /* "asked", "apply", ... */
};

/* `ret_meta` is what is told of it. */
int snapshot_make(const struct snapshot_wish *wish, json_t **ret_meta, struct err *err);
