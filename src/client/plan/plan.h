/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `carrel plan` share: the options, and where the plans are, which is a workspace
 * of the daemon or a plain directory here. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "client/core/args.h"
#include "client/core/http.h"
#include "client/exec/exec.h"

enum {
    PLAN_WORDS = 258, /* what to do, workspace, plan, and paths */
    PLAN_TEXT = 72 << 20,
};

struct plan_options {
    struct args_common common;
    const char *dir; /* NULL: the daemon's */
    const char *hash;
    const char *comment;
    const char *check;
    const char *in_state;
    const char *path; /* of --diff */
    struct args_list operations;
    bool diff;
    bool all;
    bool keep_going;
    bool async;
    bool force;
    /* of `run` */
    struct exec_options exec;
    const char *plan; /* to go on with */
    bool keep_open;
};

/* One place where plans are. Answers are the caller's to let go. */
struct plan_address {
    const struct plan_ways *ways;
    struct daemon daemon;  /* remote */
    const char *workspace; /* remote; NULL: all of them */
    const char *dir;       /* local, as it was given */
    int tree;              /* local; O_PATH */
    int plans;             /* local: where the plans' directories are; -1: there are none */
    int lock;              /* local: of the plan that is worked on, or -1 */
};

/* How it is asked. */
struct plan_ways {
    int (*list)(struct plan_address *, const char *state, json_t **ret, struct err *);
    /* The plan; its operations too, unless ret_operations is NULL. */
    int (*get)(struct plan_address *, const char *plan, json_t **ret, json_t **ret_operations,
               struct err *);
    /* `body` is consumed. */
    int (*act)(struct plan_address *, const char *plan, const char *verb, json_t *body,
               json_t **ret, struct err *);
    int (*submit)(struct plan_address *, json_t *body, json_t **ret, struct err *);
    int (*discard)(struct plan_address *, const char *plan, struct err *);
    /* `path` NULL: of all files. */
    int (*diff)(struct plan_address *, const char *plan, const char *path, struct buf *ret,
                struct err *);
    void (*close)(struct plan_address *);
};

int plan_open_remote(struct plan_address *ret, const char *state, const char *workspace,
                     struct err *err);
int plan_open_local(struct plan_address *ret, const char *dir, struct err *err);

/* "desk p1" or "--dir DIR p1", as it is typed; quoted for a shell. */
void plan_print_where(struct buf *b, const struct plan_address *place, const char *plan);

/* What there is to do; each returns the exit status. `words` are those after the place. */
typedef int plan_fn(struct plan_address *place, const struct plan_options *o,
                    const char *const *words, struct err *err);

plan_fn plan_show;
plan_fn plan_list;
/* The findings of a verification, one or two lines each. */
void plan_print_findings(struct buf *b, const json_t *findings, bool colours);

/* Commands in plan mode: with the daemon, and by `carrel run --plan`. */
int plan_run(const struct plan_options *o, struct err *err);
