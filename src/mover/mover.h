/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-mover: one job with one object store, and then its end. Started by the broker as a user of
 * its own, in a mount namespace that shows the tree read-only; it gives up the rest (Landlock)
 * before it reads anything. rclone carries the bytes, as its child, under the same walls. What
 * changed, what of that is in the store, and when that is consistent, is known here.
 *
 *   main.c      arguments, the store's configuration, confinement
 *   rclone.c    rclone, run; what went wrong, in words
 *   s3.c        the few requests that rclone cannot make: conditional writes
 *   owner.c     whose a path of a store is
 *   check.c     what a store can do
 *   names.c     which paths can be names of objects
 *   scan.c      a tree as a sorted list
 *   index.c     what of it is in the store
 *   manifest.c  what plain objects cannot hold
 *   mirror.c    from the tree to the store
 *   hydrate.c   and from the store to a new tree
 *   listing.c   what of a store's names a tree can have
 *
 * Told on standard output: lines of JSON, {"progress": …}, and at last {"done": …} or {"error": …}.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "protocol/store.h"

struct mover {
    const char *workspace;      /* "": the job is with the store alone */
    const char *daemon;         /* our name, as the owner of a path */
    const char *tree;           /* the directory; "": none */
    const char *state;          /* what is kept between jobs; "": nothing */
    const char *const *exclude; /* patterns of names, ends with NULL */
    bool fills;                 /* the tree is written to */
    bool take_over;             /* the path, from whoever has it */
    char *conf_text;
    struct store_conf conf;
    char rclone[256];   /* the program */
    char **environment; /* rclone's, with the store's configuration: no path leads there */
    int state_fd;
    const char *code; /* of the failure that is told; NULL: "store_failed" */
};

/* Tells a line, and takes it. */
void mover_tell(json_t *line);

/* --- rclone.c */
/* Finds the program; -1: it is not here. */
int rclone_find(struct mover *m, struct err *err);
/* Runs `rclone ARGS` (ends with NULL). `in`: its input, -1 for none. `out`: gets its output; NULL:
 * nobody wants it. */
int rclone_run(struct mover *m, const char *const *args, int in, struct buf *out, struct err *err);
/* "store:PATH", PATH being what is below the store's own path. In the arena of the caller. */
const char *rclone_place(const struct mover *m, struct arena *arena, const char *below);
/* 1 and the content of a small object; 0: there is none. -1. */
int rclone_read(struct mover *m, const char *below, struct buf *ret, struct err *err);
/* 1 and the files below it as rclone's JSON; 0: there is no such directory. -1. */
int rclone_list(struct mover *m, const char *below, struct buf *ret, struct err *err);
int rclone_write(struct mover *m, const char *below, const char *bytes, size_t n, struct err *err);
int rclone_remove(struct mover *m, const char *below, struct err *err);
/* The empty directories from there down; none being there is no failure. */
int rclone_remove_dirs(struct mover *m, const char *below, struct err *err);

/* --- s3.c */
bool s3_is(const struct mover *m);
/* An object that must not be there yet. 1: written; 0: there is one; -1. */
int s3_create(struct mover *m, const char *below, const char *bytes, size_t n, struct err *err);

/* --- owner.c */
/* Makes sure that the path of the store is ours. */
int owner_claim(struct mover *m, struct err *err);

/* --- the jobs */
int job_check(struct mover *m, json_t **ret, struct err *err);
int job_mirror(struct mover *m, json_t **ret, struct err *err);
int job_hydrate(struct mover *m, json_t **ret, struct err *err);
