/* SPDX-License-Identifier: Apache-2.0 */
/* What the sandbox did not allow, and what to do about it. Refused system calls and connections
 * come from the kernel: the filter (filter.h) hands them to a listener, and they wait until this
 * module answers. Read-only places and full file systems are inferred from the command's error
 * output. All of it is untrusted: a bounded number of kinds is kept, in printable characters, with
 * texts for the fix that the command has no part in, but for a name that was checked. Nothing here
 * blocks or fails; without memory a denial is counted as dropped. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carrel.h"
#include "sandbox/denial/connector.h"
#include "sandbox/view.h"

enum {
    DENIALS_LINE = 512, /* of error output that is looked at */
    DENIALS_TAIL = 8192,
};

struct denials {
    pthread_mutex_t lock; /* of the list: the thread and the supervisor both add to it */
    pthread_t thread;     /* answers, once there was something to answer */
    bool aside;           /* the thread runs */
    int stop;             /* eventfd: tells the thread to end */
    int alarm;            /* eventfd: the thread could not go on, see failure */
    int failure;          /* -errno */
    double window_cpu_ms; /* cpu time of whoever answers, at the begin of the window */
    struct run_view run;
    struct connector connector; /* connections under way, with the host's network */
    bool can_wait;              /* there is a thread for them */
    bool is_caller;             /* ... which has the rights of those inside (setid.h) */
    int listener;               /* seccomp's, or -1 */
    int timer;                  /* runs while the listener rests; or -1 */
    bool resting;               /* too many calls: the callers wait until the timer has run out */
    uint64_t window_ms;         /* begin of the present window of time ... */
    unsigned window_left;       /* ... and how much work is left in it */
    uint64_t refused;           /* calls in all */
    struct carrel_denial *list; /* CARREL_MAX_DENIALS of them; NULL until there is one */
    size_t count;
    unsigned dropped;
    size_t scanned; /* bytes of error output */
    char line[DENIALS_LINE];
    size_t line_n;
    char *tail; /* the last of the error output, when there is too much to look at all */
    size_t tail_n;
};

/* Whether this kernel can hand refused calls to the engine and let connections go on. */
bool host_can_notify(void);

void denials_init(struct denials *d, struct run_view run);
/* Takes the descriptor. */
void denials_listen(struct denials *d, int listener);
/* To poll for input before each denials_attend, or -1. Not always the same: ask before each poll.
 */
int denials_fd(const struct denials *d);
/* At the first call a thread takes over that answers all that come, for reading the caller's memory
 * can wait for locks that the caller holds, and a path for a disk. 0, or -errno as denials_serve.
 */
int denials_attend(struct denials *d);
/* Answers what is waiting. Never blocks; does a bounded part of the work, the rest stays ready. 0,
 * or -errno when a caller could not be answered: it would wait for ever. */
int denials_serve(struct denials *d);
/* One denial; the same one again is counted. */
void denials_add(struct denials *d, const char *what, const char *rule, const char *fix,
                 enum carrel_source source);
/* One that is written already (denied.h), as often as its count says. */
void denials_tell(struct denials *d, const struct carrel_denial *one);
/* The same as denials_add, as limits are told of (limits.h); `denials` is a struct denials. */
void denials_add_limit(void *denials, const char *what, const char *rule, const char *fix,
                       enum carrel_source source);
/* What the kernel refused because it leads out of a network of the sandbox's own: it counts that
 * itself (sys/refusals.h), so that nothing that may go is held up to be looked at. All so far, of
 * the sandbox whose pid 1 is `pid`; 0 where the network is the host's. */
uint64_t refusals_of(const struct run_view *run, pid_t pid);
/* One denial for so many of them, in place of what was inferred of it. */
void denials_add_refusals(struct denials *d, uint64_t n);
/* The command's error output, as it passes by. */
void denials_scan(struct denials *d, const char *bytes, size_t n);
/* Gives the list to the result. */
void denials_take(struct denials *d, struct carrel_result *ret);
void denials_clear(struct denials *d);
