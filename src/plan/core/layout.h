/* SPDX-License-Identifier: Apache-2.0 */
/* Where the objects of a tree lie when some of a plan's operations are in force, and which sets of
 * operations make sense. Pure. A set is one byte for each operation: 0 or 1. The empty set is the
 * base tree, the full one the plan's final tree. The top of the tree has the path "". */
#pragma once

#include "plan/core/plan.h"

/* Operations in the order of one of their paths. */
struct layout_order {
    const char *(*key)(const struct plan_operation *);
    uint32_t *at;
    int32_t *above;    /* where in the order the nearest directory above is; -1: nowhere */
    uint16_t *lengths; /* of the paths */
    size_t count;
};

struct layout {
    const struct plan *plan;
    struct layout_order paths; /* those that put or keep an object, by its path in the final tree */
    struct layout_order bases; /* those that have one in the base, by its path there */
};

struct layout_range {
    size_t from;
    size_t to; /* the first that is not in it */
};

enum {
    LAYOUT_NONE = -1
};

int layout_init(struct layout *layout, const struct plan *plan, struct err *err);
void layout_clear(struct layout *layout);

/* The operation for exactly this path, or LAYOUT_NONE. */
long layout_at_path(const struct layout *layout, const char *path);
long layout_at_base(const struct layout *layout, const char *base);
/* Those at the path and below it. */
struct layout_range layout_below(const struct layout *layout, const struct layout_order *order,
                                 const char *path);
/* Where a base object lies under `set`: into path[PLAN_MAX_PATH + 1]. False: nowhere, it is deleted
 * (or its path would be too long). */
bool layout_locate(const struct layout *layout, const char *set, const char *base, char *path);
/* The reverse: which base object lies at `path` under `set`. False: one that the plan made. */
bool layout_origin(const struct layout *layout, const char *set, const char *path, char *base);
/* Whether the operation leaves its object in the directory and under the name it had. */
bool layout_same_place(const struct layout *layout, size_t operation);

/* Takes those marked in `out` out of the set, and all that make no sense without them: what lies in
 * a directory that one made or moved, what takes the place that one cleared, the deletion of a
 * directory that one saved something from. `why` of each (may be NULL) gets the operation for which
 * it was taken out. */
int layout_exclude(const struct layout *layout, char *set, const char *out, uint32_t *why,
                   struct err *err);

/* The part of a path before its last '/', "" at the top; into parent[PLAN_MAX_PATH + 1]. */
void layout_parent(const char *path, char *parent);
const char *layout_name(const char *path);
