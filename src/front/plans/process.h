/* SPDX-License-Identifier: Apache-2.0 */
/* One thing that is done with a plan, by a process of the broker's: its job is written to it, and
 * its answer read when it has ended. It runs to its end even if the client has disconnected. */
#pragma once

#include <jansson.h>

#include "front/core/record.h"
#include "protocol/broker.h"

struct plan_process;

enum {
    PLAN_PROCESSES_OWN = 16, /* at a time of one owner, of the broker's 64; more wait for these */
};

struct plan_end {
    int status;         /* of carrel-plan: 0, 1 with an error in its answer; PLAN_KILLED */
    const char *why;    /* "", "timeout", "cancelled" */
    int fd;             /* its answer, from the beginning; borrowed */
    uint64_t n;         /* so much of it */
    uint64_t frozen_ms; /* for how long the workspace's commands stood still for it */
};

struct plan_process_calls {
    /* It could not be begun. Nothing else is called afterwards. */
    void (*failed)(void *owner, const struct err *err);
    void (*steps)(void *owner, uint64_t count); /* or NULL */
    /* Its end. Nothing else is called afterwards. */
    void (*ended)(void *owner, const struct plan_end *end);
};

/* `text` is its job, malloc'd and taken; of PLAN_DERIVE it is its mode, "close" or
 * "look", of PLAN_VIEW the plan's hash. NULL without memory. */
struct plan_process *plan_process_start(struct front *front, const struct plan_message *m,
                                        char *text, size_t n,
                                        const struct plan_process_calls *calls, void *owner);
/* How many run for this owner's workspaces, or wait for those. */
size_t plan_processes_of(const struct front *front, const char *owner);
/* Calls nothing any more, and ends a process that changes nothing. */
void plan_process_leave(struct plan_process *process);
/* A process that has not begun does not begin: `failed` is called, perhaps at once. One that
 * changes the tree runs to its end; others are ended. */
void plan_process_cancel(struct plan_process *process);

/* What the "error" in its answer says: one of its own codes (errors.def), whatever is there. */
enum err_said plan_answer_said(const json_t *error);
/* The answer as an object; NULL: it is none, or longer than anybody may be kept waiting for. */
json_t *plan_end_json(const struct plan_end *end);
/* The whole of it, malloc'd, with a NUL; NULL without memory. */
char *plan_end_text(const struct plan_end *end);
