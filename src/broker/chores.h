/* SPDX-License-Identifier: Apache-2.0 */
/* Work on trees that may take long: a short-lived child of the broker for each, which ends with it.
 */
#pragma once

#include "broker/broker.h"

enum {
    CHORE_FDS = 4,
};

/* Written by the child, read when it has ended. */
struct chore_report {
    struct err err;
    uint64_t files;
    uint64_t bytes;
};

struct chore_work {
    int fds[CHORE_FDS]; /* all that it has; -1: none. They are closed by the caller */
    /* In the child, with its copies of them. 0 or -1. Only system calls, as other threads of the
     * broker may have held locks. */
    int (*work)(const int *fds, const void *what, struct chore_report *report);
    const void *what; /* need not outlive the call that starts it */
    uint64_t tag;     /* who is answered; 0: nobody */
    const char *plan; /* whose directory it makes or removes; NULL: none. As `what` */
    /* Of these there are few at once, as no quota counts them: others always find a place. One more
     * is refused with ERR_CONFLICT, and asked for again later. */
    bool can_wait;
    /* Or called instead, once; `failed` is NULL when it went well. */
    void (*done)(struct broker *b, void *context, const struct err *failed,
                 const struct chore_report *report);
    void *context;
};

int chore_start(struct broker *b, const struct chore_work *work, struct err *err);
/* Whether one makes or removes the plan's directory. */
bool chore_has_plan(const struct broker *b, const char *plan);
/* Ends all. */
void chores_close(struct broker *b);
