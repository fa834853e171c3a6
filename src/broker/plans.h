/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker's files about plans share.
 *
 *   plans.c         what is done with a plan: a process each, from the request to its end
 *   plan_process.c  that process: its descriptors, its rights
 *   plan_dirs.c     the plans' directories
 *   tree_locks.c    locks on the workspaces' trees
 */
#pragma once

#include "broker/broker.h"

struct plan_message;
void plan_request(struct broker *broker, uint64_t tag, const struct plan_message *m);
void plan_request_cancel(struct broker *broker, uint64_t tag);
/* Whether a process that does not only read works on the plan. */
bool plan_is_worked_on(const struct broker *broker, const char *plan);
/* Whether any process works on a plan of the workspace. */
bool plans_use(const struct broker *broker, const char *workspace);
/* To be called when a sandbox has ended: begins what waited for it. */
void plans_look(struct broker *broker);
/* Begins to take back what a daemon that was killed had half done, and locks those trees until that
 * is done. -1: there may be more that were not found. */
int plans_recover_all(struct broker *broker, struct err *err);
void plans_front_died(struct broker *broker);
/* Kills the processes that change nothing. */
void plans_end_all(struct broker *broker);
bool plans_are_over(const struct broker *broker);
void plan_processes_close(struct broker *broker);
/* Packs a list of all plans that have a directory: "workspace/plan". */
int plan_scan(const struct broker *broker, const char *bucket, struct buf *names, struct err *err);
/* The directory above those of all workspaces of a bucket; -errno. */
int plan_open_workspaces(const struct broker *broker, const char *bucket);

struct plan_id {
    char bucket[PROTOCOL_ID + 1];
    char workspace[PROTOCOL_ID + 1];
    char plan[PROTOCOL_EXEC_ID + 1];
};

/* --- plan_dirs.c */
/* Where the plan's directory is, for the engine. */
void plan_path(const struct broker *b, const char *bucket, const char *workspace, const char *plan,
               char *path, size_t size);
/* Opens the plan's directory, with `make` makes it first; or -1. */
int plan_open_dir(const struct broker *b, const struct plan_id *at, bool make, struct err *err);
/* Of what is Carrel's own of a workspace, the directory of this name, made if it is missing; or
 * -errno. */
int plan_open_own(const struct broker *b, const char *bucket, const char *workspace,
                  const char *name);
/* The directory of the workspace's snapshots, made if it is missing; or -1. */
int plan_open_snapshots(const struct broker *b, const struct plan_id *at, struct err *err);
/* Marks the plan as being applied or undone: a start of the daemon that finds the mark recovers the
 * plan first. */
int plan_mark(const struct broker *b, const struct plan_id *at, struct err *err);
void plan_unmark(const struct broker *b, const struct plan_id *at);
/* The directory of a workspace's plans, or -1. */
int plan_open_parent(const struct broker *b, const char *bucket, const char *workspace,
                     struct err *err);

/* Of a workspace's environment or cache: "venv", "node", "uv", "bun", "python"; made if need be.
 * `tree` is the workspace's. Its descriptor, or -1. */
int layer_open(const struct broker *b, const struct plan_id *at, const char *name, int tree,
               struct err *err);
/* Discards the layer. A background process removes it. */
/* The directory of all of them; -ENOENT: there is none. */
int layers_open(const struct broker *broker, const char *bucket, const char *workspace);
void layer_drop(struct broker *b, const struct plan_id *at, const char *name);

/* --- plan_process.c */
struct plan_child {
    pid_t pid;
    int pidfd;
    int job;    /* where to write the job */
    int answer; /* the file where it will be */
    int steps;  /* a pipe */
};

enum plan_rights {
    PLAN_NO_RIGHTS,
    PLAN_READS_LAYERS, /* as root: the marks of a layer are seen by nobody else */
    PLAN_READS_ALL,    /* as root: also what its modes forbid the owner */
};

struct plan_start {
    const char *verb;
    int tree;
    int dir;
    int others[2]; /* what it is held against, or stands on; -1: none */
    enum plan_rights rights;
};

/* Starts `carrel-plan VERB`. */
int plan_child_start(const struct broker *b, const struct plan_start *how, struct plan_child *ret,
                     struct err *err);
void plan_child_close(struct plan_child *child);

/* --- plans.c */
/* Locks the tree and has carrel-plan take back what was half done, until that succeeds. */
int plan_recover(struct broker *b, const struct plan_id *at, struct err *err);
