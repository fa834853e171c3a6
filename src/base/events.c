/* SPDX-License-Identifier: Apache-2.0 */
#include "base/events.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    BATCH = 128
};

struct events {
    int epoll;
    struct epoll_event batch[BATCH];
    int batch_at; /* handed out up to here */
    int batch_n;
    struct timer **heap; /* the earliest first; every parent before its children */
    size_t timers;
    size_t room;
};

int events_open(struct events **ret)
{
    struct events *e = calloc(1, sizeof(*e));

    if (!e)
        return -ENOMEM;
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll < 0) {
        int r = -errno;
        free(e);
        return r;
    }
    *ret = e;
    return 0;
}

void events_close(struct events *e)
{
    if (!e)
        return;
    (void)close(e->epoll);
    free(e->heap);
    free(e);
}

static int control(struct events *e, int operation, struct watch *watch, uint32_t what)
{
    struct epoll_event event = {.events = what, .data.ptr = watch};

    return epoll_ctl(e->epoll, operation, watch->fd, &event) < 0 ? -errno : 0;
}

int events_watch(struct events *e, struct watch *watch, int fd, uint32_t what)
{
    watch->fd = fd;
    int r = control(e, EPOLL_CTL_ADD, watch, what);
    if (r < 0)
        watch->fd = -1;
    return r;
}

int events_change(struct events *e, struct watch *watch, uint32_t what)
{
    return control(e, EPOLL_CTL_MOD, watch, what);
}

void events_forget(struct events *e, struct watch *watch)
{
    if (watch->fd < 0)
        return;
    (void)control(e, EPOLL_CTL_DEL, watch, 0);
    watch->fd = -1;
    for (int i = e->batch_at; i < e->batch_n; i++) {
        if (e->batch[i].data.ptr == watch)
            e->batch[i].data.ptr = NULL;
    }
}

static void put(struct events *e, size_t place, struct timer *timer)
{
    e->heap[place] = timer;
    timer->place = place;
}

/* Moves a timer up or down to where it belongs, beginning at a free place. */
static void settle(struct events *e, size_t place, struct timer *timer)
{
    while (place > 0 && e->heap[(place - 1) / 2]->due_ms > timer->due_ms) {
        put(e, place, e->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * place + 1;
        if (child + 1 < e->timers && e->heap[child + 1]->due_ms < e->heap[child]->due_ms)
            child++;
        if (child >= e->timers || e->heap[child]->due_ms >= timer->due_ms)
            break;
        put(e, place, e->heap[child]);
        place = child;
    }
    put(e, place, timer);
}

int timer_set(struct events *e, struct timer *timer, uint64_t due_ms)
{
    if (due_ms == 0)
        due_ms = 1;
    if (timer->due_ms) {
        timer->due_ms = due_ms;
        settle(e, timer->place, timer);
        return 0;
    }
    if (e->timers == e->room) {
        size_t room = e->room ? e->room * 2 : 64;
        struct timer **heap = realloc(e->heap, room * sizeof(struct timer *));
        if (!heap)
            return -ENOMEM;
        e->heap = heap;
        e->room = room;
    }
    timer->due_ms = due_ms;
    e->timers++;
    settle(e, e->timers - 1, timer);
    return 0;
}

void timer_stop(struct events *e, struct timer *timer)
{
    if (!timer->due_ms)
        return;
    timer->due_ms = 0;
    struct timer *last = e->heap[--e->timers];
    if (last != timer)
        settle(e, timer->place, last);
}

static int until_next_timer(const struct events *e)
{
    if (e->timers == 0)
        return -1;
    uint64_t now = now_ms();
    uint64_t due = e->heap[0]->due_ms;
    return due <= now ? 0 : due - now > 3600000 ? 3600000 : (int)(due - now);
}

static void ring_timers(struct events *e)
{
    uint64_t now = now_ms();

    /* As many as there are now: one that sets itself again at once must not keep us here. */
    for (size_t most = e->timers; most > 0 && e->timers > 0 && e->heap[0]->due_ms <= now; most--) {
        struct timer *timer = e->heap[0];
        timer_stop(e, timer);
        timer->ring(timer);
    }
}

int events_turn(struct events *e)
{
    int n = epoll_wait(e->epoll, e->batch, BATCH, until_next_timer(e));

    if (n < 0 && errno != EINTR)
        return -errno;
    e->batch_n = n > 0 ? n : 0;
    for (e->batch_at = 0; e->batch_at < e->batch_n;) {
        struct epoll_event *event = &e->batch[e->batch_at++];
        struct watch *watch = event->data.ptr;
        if (watch)
            watch->ready(watch, event->events);
    }
    e->batch_n = 0;
    ring_timers(e);
    return 0;
}
