/* SPDX-License-Identifier: Apache-2.0 */
/* What a carrel-plan tells of its steps while it works: lines through a pipe. */
#pragma once

#include "base/buf.h"
#include "base/events.h"

enum {
    LONGEST_STEP = 32768,
};

struct plan_steps {
    struct watch watch;
    struct timer timer;
    struct events *events;
    struct buf line;
    int fd; /* not ours */
    uint64_t count;
    uint64_t told;
    void (*heard)(struct plan_steps *steps, const char *line);
    void (*tell)(struct plan_steps *steps); /* there are more than `told`, now and then */
};

void plan_steps_init(struct plan_steps *steps, struct events *events);
/* Reads from `fd`, which stays the caller's, until plan_steps_end. -errno. */
int plan_steps_begin(struct plan_steps *steps, int fd);
/* The process has ended: reads what it has left. */
void plan_steps_drain(struct plan_steps *steps);
void plan_steps_end(struct plan_steps *steps);
