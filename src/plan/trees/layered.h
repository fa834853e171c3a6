/* SPDX-License-Identifier: Apache-2.0 */
/* A walk through what a fork shows: the snapshot that it stands on, and its layer over it. The
 * kernel is not asked to mount anything for that. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sys/tree_walk.h"

/* An entry as of a walk through one tree: `dir` is the top of the snapshot (`base`), or that of the
 * layer, and `name` the path in it, while `path` is that in the fork. A directory comes before what
 * is in it, and once more after that. -1 ends the walk, and `err` is set. */
typedef int layered_take(void *context, const struct tree_entry *entry, struct err *err);

struct layered {
    int base;        /* the snapshot's tree, open for reading */
    int layer;       /* what has upper/ in it */
    bool privileged; /* its marks are trusted.overlay.*, else user.overlay.* */
    layered_take *take;
    /* A file of the snapshot of which the fork has changed the mode alone, to that in `st`: it is
     * no file of its own, and not that one. */
    layered_take *take_with_mode;
    void *context;
};

int layered_walk(const struct layered *l, struct err *err);
