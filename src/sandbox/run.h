/* SPDX-License-Identifier: Apache-2.0 */
/* One run, from the caller's spec to the end of the last process. run.c drives it; each function
 * below fills its part. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "carrel.h"
#include "sandbox/host.h"
#include "sandbox/identity.h"
#include "sandbox/limits/cgroup.h"
#include "sandbox/setup.h"
#include "sandbox/view.h"

struct live;

enum {
    RUN_MAX_MADE = 512
};

struct run {
    const struct carrel_spec *spec;
    enum carrel_level level; /* decided: never AUTO */
    enum carrel_net net;     /* decided: never DEFAULT */
    struct host host;
    struct arena arena;   /* every string the setup and the command point to */
    int lock;             /* shared lock on it, or -1 */
    int workspace;        /* the tree that is read-write: the workspace, or the current directory */
    char *workspace_path; /* canonical */
    struct layer *plan;   /* the layer over that tree, or NULL */
    uid_t owner_uid;      /* of that tree */
    gid_t owner_gid;
    struct identity identity;
    struct cgroup cgroup;
    const char *authority_key;  /* in hex digits; NULL: no TLS ends in carrel-egress */
    const char *authority_cert; /* what is trusted inside then */
    const char *authority_java; /* the same for Java, in base64; "": it is not on this host */
    bool pids_by_rlimit;        /* no cgroup can hold the limit on processes: RLIMIT_NPROC does */
    struct prepared *taken;     /* a sandbox of the pool's whose frame stands already; or NULL */
    bool misfit;                /* ... and cannot be used for this tree after all */
    bool in_image;              /* the tree is a detached mount of its own */
    ino_t image_made;           /* ... in an image that this run has made; else 0 */
    bool stays;                 /* for many commands, and calls on its files */
    bool dry;                   /* only explained: nothing is made on disk */
    bool imagined;              /* dry, and the workspace does not exist yet */
    bool created;               /* the workspace was made by this run */
    const char *made[RUN_MAX_MADE]; /* what this run made in the workspace, in that order */
    size_t made_count;
    struct layer layers[CARREL_MAX_LAYERS + 1];
    size_t layer_count;
    struct setup setup;
    int sources[SETUP_MAX_OPS]; /* of OP_BIND: opened while the setup was written, or -1; as root
                                   already a mount tree of its own */
    struct command command;
};

/* run.c: checks the spec and fills everything above; all it makes on disk is a workspace that was
 * to be created. Into `early` (or NULL) goes pid 1, started as soon as it is known how: it makes
 * its namespaces while the rest is prepared. */
int run_prepare(struct run *run, const struct carrel_spec *spec, bool dry, struct live *early,
                struct err *err);
void run_clear(struct run *run);
/* For limits/ and denial/, once it is prepared; what it points to is the run's. */
struct run_view run_view_of(struct run *run);
/* Turns an error into the public one; returns -1. */
int run_report(const struct err *err, struct carrel_error *error);

/* ... without a tree and a command: what a pool prepares. */
int run_prepare_frame(struct run *run, const struct carrel_spec *spec, struct err *err);
/* rootfs.c: the mount operations, of the frame and then of the root. */
int rootfs_write_frame(struct run *run, struct err *err);
int rootfs_write_root(struct run *run, struct err *err);
/* confinement.c: namespaces, and who keeps the limit on processes: what pid 1 is cloned with. */
void confinement_begin(struct run *run);
/* ... and limits, filter, Landlock. */
int confinement_write(struct run *run, struct err *err);
/* environment.c: the command, its directory and its variables. */
int environment_write(struct run *run, struct err *err);

/* One command of several in a sandbox. */
struct environment {
    char *const *argv;
    const char *const *env; /* over the spec's; or NULL */
    const char *cwd;        /* inside; NULL: the home */
    bool tty;
    bool root; /* of a system of its own (system.h) */
};

/* What it becomes; the strings are the arena's or the asker's. `ret` is zeroed before. */
int environment_command(const struct run *run, const struct environment *ask, struct arena *arena,
                        struct command *ret, struct err *err);
/* workspace.c: opens the tree; makes or checks the names Carrel mounts on. */
int workspace_open(struct run *run, struct err *err);
int workspace_enter_image(struct run *run, struct err *err);
int workspace_check_mount_points(const struct run *run, bool missing[SETUP_MAX_OPS],
                                 struct err *err);
int workspace_make_mount_points(struct run *run, struct err *err);
/* Takes back what this run made, where it is still empty; for runs that failed to start. */
void workspace_unmake(struct run *run);
/* ... only the names to mount on; from the layer, where there is one. */
void workspace_unmake_points(struct run *run);
/* An empty directory or file as the tree's owner makes it; 0 or -errno. */
int workspace_make_as_owner(const struct run *run, int dir, const char *name, bool is_directory);
/* Remembers a path as made by this run. */
int workspace_note_made(struct run *run, const char *path, size_t n, struct err *err);
/* supervise.c: takes pid 1, or starts it, and stays until all is over. */
int supervise(struct run *run, struct live *early, struct carrel_result *ret, struct err *err);
