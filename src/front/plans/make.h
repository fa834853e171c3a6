/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, as the front knows them: a row each, and what is under way with one. What may be done in
 * which state, and what becomes of it, is in plan/core/state.h.
 *
 * A row is written before what it says is begun, and again when that is over: a front that dies in
 * between finds "applying" or "undoing", and asks the journal of the plan how far it went. */
#pragma once

#include <jansson.h>

#include "front/core/front.h"
#include "front/plans/process.h"
#include "plan/core/state.h"
#include "policy/plan_policy.h"

struct exec;

enum {
    PLAN_ID = 28,
};

/* How a plan action went. */
struct plan_outcome {
    int status;       /* as of HTTP: 200, or that of the error */
    const char *code; /* of an error */
    char message[400];
    json_t *details; /* of an error, or NULL; borrowed */
};

typedef void plan_done(void *context, const struct plan_outcome *outcome);

/* A plan action: of which plan, and who asks for it. The texts are copied. */
struct plan_asked {
    const char *plan;
    const char *actor;
    const char *request;
    plan_done *done; /* is called once, at once or later */
    void *context;
};

/* Ends the plan's sandbox and makes operations of what its commands have changed. */
void plan_close(struct front *front, const struct plan_asked *asked);
/* Whether one more plan of this key may wait in the workspace: 1; 0: too many do; -1. A key with
 * less than a tenth of them always may, so that no key keeps the others out. */
int plan_has_room(struct front *front, const char *workspace, const char *key,
                  const struct plan_policy *policy, struct err *err);
#define PLAN_NO_ROOM                                                                               \
    "too many plans of the workspace wait already, or too large ones (\"waiting_bytes\" in the "   \
    "policy's \"plan\"), and of this key more than its share; apply, reject or discard some of "   \
    "them"

/* What a plan is made of, other than by a command. */
struct plan_source {
    const char *bucket;
    enum plan_verb verb; /* PLAN_SUBMIT: of a written one; PLAN_MERGE: of versions of the tree */
    char *text;          /* its job, malloc'd and taken */
    size_t n;
    const char *base; /* of versions: as in struct plan_message; or NULL */
    const char *theirs;
    json_t *merge; /* what of it is shown with the plan; taken. Its "fork" and "snapshot" are kept
                      as what the next merge begins from. NULL: it is no merge */
};

/* Makes a plan. Adds the row once carrel-plan has understood what it is made of. */
void plan_submit(struct front *front, const struct plan_asked *asked, const struct store_plan *row,
                 const struct plan_source *source);
void plan_verify(struct front *front, const struct plan_asked *asked);
/* Verifies and applies. */
void plan_apply(struct front *front, const struct plan_asked *asked, bool keep_going);
/* Puts the plan into the queue. */
void plan_enqueue(struct front *front, const struct plan_asked *asked, bool keep_going);
/* Takes `paths`: a list, or NULL for all. */
void plan_undo(struct front *front, const struct plan_asked *asked, json_t *paths, bool force);
/* Takes the plan out of the queue. */
void plan_cancel(struct front *front, const struct plan_asked *asked);
void plan_discard(struct front *front, const struct plan_asked *asked);

/* Whether an action is under way with the plan. */
bool plan_is_busy(const struct front *front, const char *plan);
/* How many steps of that action are done. */
uint64_t plan_steps_done(const struct front *front, const char *plan);

/* Removes the plan's directory as soon as nothing runs in it; the row stays. */
void plan_drop_files(struct front *front, const char *bucket, const char *workspace,
                     const char *plan);

/* The policy of its workspace; and as JSON, a new reference. False: it cannot be read. */
bool plan_policy_of(const struct store_workspace *w, struct arena *arena, struct plan_policy *ret,
                    json_t **ret_json, struct err *err);
/* A row whose details are these: in the arena. */
const char *plan_details_text(struct arena *arena, const json_t *details);
json_t *plan_details(const struct store_plan *row);

/* A command of a plan (exec_hold) has ended, and its records are on disk. */
void plan_exec_settled(struct exec *exec);

/* Settles what the front before this one has left, and starts the timer of the queue. */
void plans_resume(struct front *front);
/* Has the timer look at once. */
void plans_wake(struct front *front);
