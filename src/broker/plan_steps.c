/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/plan_steps.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum {
    PIECE = 16384,
    TELL_MS = 200,
};

static void take_lines(struct plan_steps *s)
{
    size_t at = 0;

    for (;;) {
        char *end = memchr(s->line.p + at, '\n', s->line.n - at);
        if (!end)
            break;
        *end = '\0';
        s->count++;
        s->heard(s, s->line.p + at);
        at = (size_t)(end + 1 - s->line.p);
    }
    memmove(s->line.p, s->line.p + at, s->line.n - at);
    s->line.n -= at;
    if (s->line.n > LONGEST_STEP)
        s->line.n = 0; /* no line of ours */
}

/* False: there are no more now. */
static bool read_some(struct plan_steps *s)
{
    char piece[PIECE];
    ssize_t n = read(s->fd, piece, sizeof(piece));

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            events_forget(s->events, &s->watch);
        return false;
    }
    buf_add(&s->line, piece, (size_t)n);
    if (s->line.failed || !s->line.p)
        return false;
    take_lines(s);
    return true;
}

static void ring(struct timer *timer)
{
    struct plan_steps *s = container_of(timer, struct plan_steps, timer);

    if (s->count != s->told)
        s->tell(s);
    s->told = s->count;
}

static void ready(struct watch *watch, uint32_t what)
{
    struct plan_steps *s = container_of(watch, struct plan_steps, watch);

    (void)what;
    (void)read_some(s);
    if (s->count != s->told && !s->timer.due_ms)
        ignore(timer_set(s->events, &s->timer, now_ms() + TELL_MS) == 0);
}

void plan_steps_init(struct plan_steps *steps, struct events *events)
{
    steps->events = events;
    steps->watch = (struct watch){.ready = ready, .fd = -1};
    steps->timer.ring = ring;
    steps->fd = -1;
}

int plan_steps_begin(struct plan_steps *steps, int fd)
{
    steps->fd = fd;
    steps->count = steps->told = 0;
    buf_init(&steps->line, LONGEST_STEP + 2UL * PIECE);
    return events_watch(steps->events, &steps->watch, fd, EPOLLIN);
}

void plan_steps_drain(struct plan_steps *steps)
{
    timer_stop(steps->events, &steps->timer);
    while (read_some(steps))
        continue;
}

void plan_steps_end(struct plan_steps *steps)
{
    timer_stop(steps->events, &steps->timer);
    events_forget(steps->events, &steps->watch);
    buf_clear(&steps->line);
    steps->fd = -1;
}
