/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/broker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "broker/log.h"

enum {
    END_MS = 10000, /* for the front to end, and for all sandboxes */
};

size_t broker_slot(const char *name)
{
    uint32_t hash = 2166136261U;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    return hash % BROKER_SLOTS;
}

uint64_t broker_wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct beat {
    struct timer timer;
    struct events *events;
    uint64_t every_ms;
};

/* Only a loop that turns says so: a broker that hangs is restarted by the service manager. */
static void beat(struct timer *timer)
{
    struct beat *b = (struct beat *)(void *)timer;

    listen_notify("WATCHDOG=1");
    ignore(timer_set(b->events, &b->timer, now_ms() + b->every_ms) == 0); /* it had its place */
}

struct stopper {
    struct watch watch;
    struct broker *broker;
};

static void stop(struct watch *watch, uint32_t what)
{
    struct stopper *stopper = (struct stopper *)(void *)watch;
    struct signalfd_siginfo info;

    (void)what;
    if (read(watch->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    log_info("stopping", "signal", info.ssi_signo == SIGTERM ? "TERM" : "INT", NULL);
    stopper->broker->stopping = true;
}

static int turn(struct broker *b, struct err *err)
{
    int r = events_turn(b->events);

    if (r < 0)
        return err_set(err, ERR_IO, -r, "wait for events");
    desk_sweep(b);
    return 0;
}

static void nothing(struct timer *timer)
{
    (void)timer;
}

static bool front_is_gone(const struct broker *b)
{
    return b->front_pid == 0;
}

static bool sandboxes_are_gone(const struct broker *b)
{
    return b->desk_count == 0;
}

/* Turns the loop until it is so, or the time is over. */
static int turn_until(struct broker *b, bool (*so)(const struct broker *b), uint64_t ms,
                      struct err *err)
{
    uint64_t due = now_ms() + ms;
    struct timer limit = {.ring = nothing};
    int r = 0;

    ignore(timer_set(b->events, &limit, due) == 0); /* else it takes as long as it takes */
    while (r == 0 && !so(b) && now_ms() < due)
        r = turn(b, err);
    timer_stop(b->events, &limit);
    return r;
}

/* The front first, which finishes what it has in hand, and is answered; then everything that runs.
 */
static int end_everything(struct broker *b, struct err *err)
{
    listen_notify("STOPPING=1");
    front_ask_to_end(b);
    int r = turn_until(b, front_is_gone, END_MS, err);
    if (r == 0 && !front_is_gone(b)) {
        log_warning("front_slow", "then", "it is killed", NULL);
        front_kill(b);
        r = turn_until(b, front_is_gone, END_MS, err);
    }
    link_close(b);
    desk_end_all(b, "daemon stopped");
    desk_sweep(b);
    if (r == 0)
        r = turn_until(b, sandboxes_are_gone, END_MS, err);
    if (!sandboxes_are_gone(b))
        log_warning("sandboxes_left", "then", "they end with this process", NULL);
    trees_close(b);
    (void)journal_note(b,
                       &(struct audit_record){.actor = "broker",
                                              .workspace = "",
                                              .request = "",
                                              .operation = "daemon.stop",
                                              .result = "ok",
                                              .details = ""},
                       NULL);
    journal_flush(b);
    journal_close(b);
    tasks_clear(b);
    listen_close(b);
    state_close(b);
    return r;
}

int broker_run(struct broker *b, struct err *err)
{
    struct stopper stopper = {.watch = {.ready = stop, .fd = -1}, .broker = b};
    struct beat heart = {.timer = {.ring = beat}, .events = b->events};
    sigset_t signals;
    int r = 0;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    scoped_fd int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || events_watch(b->events, &stopper.watch, fd, EPOLLIN) < 0)
        return err_set(err, ERR_IO, errno, "watch for signals");
    heart.every_ms = listen_watchdog_ms();
    if (heart.every_ms && timer_set(b->events, &heart.timer, now_ms() + heart.every_ms) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "set a timer");
    listen_notify("READY=1");
    while (r == 0 && !b->stopping)
        r = turn(b, err);
    if (r == 0)
        r = end_everything(b, err);
    events_forget(b->events, &stopper.watch);
    timer_stop(b->events, &heart.timer);
    return r;
}
