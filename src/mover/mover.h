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
 *   mount.c     a store as a directory, served by rclone, and whether it answers
 *   mount_probe.c  whether rclone is good enough to be written through
 *
 * Told on standard output: lines of JSON, {"progress": …}, and at last {"done": …} or {"error": …}.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
    const char *program; /* rclone, as the settings name it; "": the host's */
    const char *cache;   /* bytes that a mount may keep */
    bool serves;         /* a mount: what it tells are lines, not JSON */
    char rclone[1024];   /* the program */
    char **environment;  /* rclone's, with the store's configuration: no path leads there */
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

/* What is run for as long as it serves a mount: its process id, *ret_words gets its log; or -1.
 * `environment` NULL: the store's. It gets `device` as MOVER_DEVICE. */
pid_t rclone_serve(const struct mover *m, const char *const *args, char *const *environment,
                   int device, int *ret_words, struct err *err);
/* What a line of its log means, for people; false: it is no error. */
bool rclone_explain_line(const struct mover *m, char *line, char *ret, size_t size);

/* --- mount.c, mount_probe.c */
enum {
    MOVER_DEVICE = 200, /* open on /dev/fuse, for who is called fusermount */
};

/* As fusermount: hands that over instead of mounting anything. */
int mount_hand_over(char **argv);
/* 1: what is written through rclone's mount after a directory was renamed arrives; 0: it is lost.
 * -1. */
int mount_probe(const struct mover *m, int device, int mount, struct err *err);

/* --- the jobs */
int job_check(struct mover *m, json_t **ret, struct err *err);
int job_mirror(struct mover *m, json_t **ret, struct err *err);
int job_hydrate(struct mover *m, json_t **ret, struct err *err);
/* Descriptors 4 to 7: /dev/fuse and the mount, and both once more to try it. Returns at its end. */
int job_mount(struct mover *m, json_t **ret, struct err *err);
