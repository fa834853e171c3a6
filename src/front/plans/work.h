/* SPDX-License-Identifier: Apache-2.0 */
/* One plan action that is under way: what the files about plans share. */
#pragma once

#include "front/plans/make.h"

struct verifying;

enum {
    PLAN_VERSION = FRONT_ID + PLAN_ID, /* "WORKSPACE/SNAPSHOT" */
    PLAN_TRIES = 20,                   /* of one in the queue */
    PLAN_FINDINGS = 200,               /* of one verification that are recorded, and kept */
    PLAN_UNDECIDED = 100,              /* of one workspace */
    PLAN_SHARE = 10,                   /* one part of so many each key has for itself */
};

/* A request to take the plan out of the queue, made while it is being applied: it is answered when
 * that has ended. */
struct plan_canceller {
    plan_done *done;
    void *context;
    char actor[FRONT_ID + 8];
    char request[PLAN_ID];
};

struct plan_work {
    struct plan_work *next;
    struct front *front;
    char plan[PLAN_ID];
    char workspace[FRONT_ID];
    char bucket[FRONT_ID];
    char actor[FRONT_ID + 8];
    char request[PLAN_ID];
    plan_done *done;
    void *context;
    struct plan_process *process;
    uint64_t steps;
    json_t *options; /* of apply and undo */
    json_t *merge;   /* of one that is being made (struct plan_source) */
    char base[PLAN_VERSION];
    char theirs[PLAN_VERSION];
    json_t *failure; /* what carrel-plan answered, while its journal is asked what that means */
    char failure_why[32];
    struct verifying *verifying;
    bool asks_journal; /* the process does: that is not called off */
    bool from_queue;
    bool cancelled;
    struct plan_canceller canceller; /* done NULL: none */
    bool needs_review;               /* the last verification wants a person to look at it */
    bool is_stale;         /* the last verification refuses it for nothing but what changed since */
    struct store_plan row; /* as it was read last; its texts in the arena */
    struct arena arena;
};

/* Returns NULL after passing the reason to asked->done. On success the row is freshly read. */
struct plan_work *work_begin(struct front *front, const struct plan_asked *asked);
/* Calls its `done` with this outcome, and frees it. */
void work_end(struct plan_work *work, int status, const char *code, json_t *details,
              const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Ends with this error, as HTTP has it (failure_said). */
void work_fail(struct plan_work *work, const struct err *err);
/* Ends with the error that carrel-plan has answered. Takes the answer. */
void work_fail_answer(struct plan_work *work, const struct plan_end *end, json_t *answer);
/* Reads its row again. False: it is gone, and the action has ended with that. */
bool work_read_row(struct plan_work *work);
/* The event happens to it, and its row is written, with what else was set there. Takes the details
 * (NULL: as they were). False: `err` says why not. */
bool work_change(struct plan_work *work, enum plan_event event, uint64_t in_force, json_t *details,
                 struct err *err);
/* The same, where the state stays what it is. */
bool work_keep(struct plan_work *work, json_t *details, struct err *err);
/* Starts a plan process with that job, which it takes. False: the action has ended with an error.
 */
bool work_start(struct plan_work *work, enum plan_verb verb, json_t *job,
                const struct plan_process_calls *calls);
/* The same with a text, which it takes. */
bool work_start_text(struct plan_work *work, enum plan_verb verb, char *text, size_t n,
                     const struct plan_process_calls *calls);
void work_record(struct plan_work *work, const char *operation, const char *result, json_t *details,
                 front_recorded *heard);
struct plan_work *work_find(const struct front *front, const char *plan);
struct plan_work *work_find_in(const struct front *front, const char *workspace);
/* Sends the plan's state to the followers of /v1/events. */
void work_announce(const struct plan_work *work, const char *what);
/* The policy of its workspace as it is now; as JSON, too, where `ret_rules` is not NULL. */
bool work_policy(struct plan_work *work, struct plan_policy *ret, json_t **ret_rules,
                 struct err *err);
/* queue.c: forgets what the policy does not keep of a workspace's history. */
void plans_trim(struct front *front, const char *workspace);
/* apply.c: asks the journal what became of one that was interrupted. */
void plan_settle(struct front *front, const struct plan_asked *asked);
/* verify.c: the first of a list, as far as a row holds them: one may name a path of 4095
 * bytes. */
json_t *plan_shortened(const json_t *list);
/* verify.c: for apply. Calls `then` with the verdict ("clean", "review", "refused"); the findings
 * are in the row's details by then. */
void work_verify(struct plan_work *work, void (*then)(struct plan_work *work, const char *verdict));
