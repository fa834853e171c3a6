/* SPDX-License-Identifier: Apache-2.0 */
/* One loop over descriptors and timers, for one thread. Watches and timers are
 * embedded in what they belong to; taking one away while the loop hands out events is safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

struct events;

/* What a member that `p` leads to is in, such as a watch or a timer; `p` must be of its type. */
#define container_of(p, type, member)                                                              \
    ((type *)(void *)((char *)(1 ? (p) : &((type *)NULL)->member) - offsetof(type, member)))

struct watch {
    void (*ready)(struct watch *watch, uint32_t what); /* EPOLLIN and the like */
    int fd;                                            /* -1: not watched */
};

struct timer {
    void (*ring)(struct timer *timer);
    uint64_t due_ms; /* of now_ms(); 0: not set */
    size_t place;    /* the loop's own */
};

/* 0 or -errno. */
int events_open(struct events **ret);
void events_close(struct events *events);

/* 0 or -errno. The watch must stay where it is until events_forget. */
int events_watch(struct events *events, struct watch *watch, int fd, uint32_t what);
int events_change(struct events *events, struct watch *watch, uint32_t what);
/* Does not close the descriptor. Nothing happens for one that is not watched. */
void events_forget(struct events *events, struct watch *watch);

/* Sets or moves; it rings once. 0 or -ENOMEM. */
int timer_set(struct events *events, struct timer *timer, uint64_t due_ms);
void timer_stop(struct events *events, struct timer *timer);

/* Waits for something to happen, at most until the next timer, and hands it out. 0 or -errno. */
int events_turn(struct events *events);
