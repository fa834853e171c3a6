/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are before a plan and after it. Pure: it knows the operations, and nothing of what
 * is on disk. A path is found in the time of a search among the operations, however deep. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/core/plan.h"

enum {
    PLAN_NOBODY = -1 /* no operation */
};

/* The operations by one of their paths, those below a directory behind it. */
struct plan_order {
    uint32_t *at;   /* operations */
    int32_t *above; /* for each of these: the place here of the nearest one above it */
    const char **name;
    size_t count;
};

struct plan_index {
    const struct plan *plan;
    struct plan_order after;  /* by final path; deletes are not in it */
    struct plan_order before; /* by base path; those that only make something are not in it */
};

int plan_index_make(struct plan_index *ret, const struct plan *plan, struct err *err);
void plan_index_clear(struct plan_index *index);

#define scoped_index __attribute__((cleanup(plan_index_clear)))

/* The operation whose final path, or whose base path, is this; or PLAN_NOBODY. */
ssize_t plan_after(const struct plan_index *index, const char *path);
ssize_t plan_before(const struct plan_index *index, const char *path);
/* ... or the nearest above it. */
ssize_t plan_before_or_above(const struct plan_index *index, const char *path);

enum plan_place {
    PLACE_BASE,    /* what the base has at `origin`, which no operation names */
    PLACE_HELD,    /* what the base has at `origin`, changed where it is by operation `by` */
    PLACE_VACATED, /* free: operation `by` takes away what the base has at `origin` */
    PLACE_NEW,     /* free: below a directory that operation `by` makes */
    PLACE_GONE,    /* nowhere: a directory above leaves the base by operation `by` */
    PLACE_BLOCKED, /* nowhere: operation `by` makes something above it that is no directory */
};

/* What is at a final path, apart from an operation that puts something there. `origin` has room for
 * PLAN_MAX_PATH + 1 bytes. */
enum plan_place plan_place_of(const struct plan_index *index, const char *path, char *origin,
                              ssize_t *by);
/* Where what the base has at `path` will be; false: it is deleted, or its name gets too long. */
bool plan_follow(const struct plan_index *index, const char *path, char *final);
