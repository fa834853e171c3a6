/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker's files about plans share.
 *
 *   plans.c         what is done with a plan: a process each, from the request to its end
 *   plan_process.c  that process: its descriptors, its rights
 *   plan_dirs.c     the plans' directories
 *   tree_locks.c    who may use a workspace's tree meanwhile
 */
#pragma once

#include "broker/broker.h"

struct plan_message;
void plan_request(struct broker *broker, uint64_t tag, const struct plan_message *m);
void plan_request_cancel(struct broker *broker, uint64_t tag);
/* Whether something other than reading is done with it. */
bool plan_is_worked_on(const struct broker *broker, const char *plan);
/* Whether anything is done with any of the workspace's. */
bool plans_use(const struct broker *broker, const char *workspace);
/* A sandbox has gone: who waited for that may begin. */
void plans_look(struct broker *broker);
/* What a daemon that was killed had half done is taken back, before anybody uses those trees.
 * -1: one may be left that is not known of. */
int plans_recover_all(struct broker *broker, struct err *err);
void plans_front_died(struct broker *broker);
/* Those that change nothing. */
void plans_end_all(struct broker *broker);
bool plans_are_over(const struct broker *broker);
void plan_processes_close(struct broker *broker);
/* The names of all that have a directory, packed as a list. */
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
/* Its directory, with `make` made if it is missing; or -1. */
int plan_open_dir(const struct broker *b, const struct plan_id *at, bool make, struct err *err);
/* From then until plan_unmark a start that finds it so recovers it first. */
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
};

struct plan_start {
    const char *verb;
    int tree;
    int dir;
    enum plan_rights rights;
};

/* Starts `carrel-plan VERB`. */
int plan_child_start(const struct broker *b, const struct plan_start *how, struct plan_child *ret,
                     struct err *err);
void plan_child_close(struct plan_child *child);

/* --- plans.c */
/* At the start: nobody else uses the tree before it is done. -1: it could not be seen to. */
int plan_recover(struct broker *b, const struct plan_id *at, struct err *err);
