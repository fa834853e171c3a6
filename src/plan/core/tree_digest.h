/* SPDX-License-Identifier: Apache-2.0 */
/* Everything below a directory, as one number: what the delete of a directory notes, and what is
 * compared before it is carried out. Walks by descriptor, follows nothing, opens nothing but
 * directories. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "plan/core/plan.h"

/* One entry of a walk. `path` is relative to the walk's `root`. */
struct plan_entry {
    const char *path;
    const struct stat *st;
    bool skip_below; /* set by the visitor: not into this directory */
};

/* Negative ends the walk, `err` is set then. */
typedef int plan_visit(void *context, struct plan_entry *entry, struct err *err);

struct plan_walk {
    int root;        /* a descriptor, O_PATH will do */
    const char *top; /* the directory whose entries are visited; "" is the root itself */
    plan_visit *visit;
    void *context;
    /* Before a directory is opened: 0 or -errno. May be NULL. */
    int (*let_in)(void *context, const char *path);
};

/* In canonical order, a directory before what is in it, crossing no mount (sys/tree_walk.h).
 * ERR_LIMIT past the length of a path, and without memory for the names of a directory. */
int plan_walk(const struct plan_walk *walk, struct err *err);

struct tree_digest {
    uint64_t entries;
    uint64_t bytes;    /* of regular files */
    int64_t newest_ns; /* the last ctime; of a file with several names, no later than its mtime */
    unsigned char below[PLAN_HASH];
};

/* Of what is below `top` under `root`. With `except`, a settled plan: without the objects that its
 * operations name by their base path, and what is below those; `top` is then a base path. With
 * NULL: of all (as for a directory that was taken out of the tree after them). */
int tree_digest(struct tree_digest *ret, int root, const char *top, const struct plan *except,
                struct err *err);

/* A set of base paths, for who takes the digest of several directories of one plan. */
struct plan_bases {
    const char **paths; /* in canonical order */
    size_t count;
};

int plan_bases_make(struct plan_bases *ret, const struct plan *plan, struct err *err);
void plan_bases_clear(struct plan_bases *bases);
bool plan_bases_has(const struct plan_bases *bases, const char *path);
int tree_digest_except(struct tree_digest *ret, int root, const char *top,
                       const struct plan_bases *except, struct err *err);
