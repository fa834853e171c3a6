/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/execs.h"
#include "broker/front_process.h"
#include "broker/listen.h"
#include "broker/plans.h"
#include "broker/record.h"
#include "broker/record_export.h"
#include "broker/record_heads.h"
#include "broker/sandboxes.h"
#include "broker/state.h"
#include "broker/store_mounts.h"
#include "broker/tls.h"
#include "broker/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "audit/line.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "broker/chores.h"
#include "broker/egress.h"
#include "broker/movers.h"

enum {
    STOP_MS = 10000, /* for everything to end */
    TELL_MS = 7000,  /* of it, for all sandboxes, and for the front to write that down */
    KILL_MS = 1000,  /* then, for a front that was killed */
};

size_t broker_slot(const char *name)
{
    return hash_text(name) % BROKER_SLOTS;
}

struct beat {
    struct timer timer;
    struct events *events;
    const struct broker *broker;
    uint64_t every_ms;
};

/* Only a loop that turns says so, and only while there is a front that answers: a daemon that hangs
 * and does not help itself is restarted by the service manager. */
static void beat(struct timer *timer)
{
    struct beat *b = (struct beat *)(void *)timer;

    if (watchdog_is_content(b->broker))
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

/* What is to be done before the loop waits. Whoever hears that a record is on disk may end a
 * sandbox, and who waited for that may add records. */
static void tidy(struct broker *b)
{
    do {
        sandbox_sweep(b);
        record_commit(b);
    } while (b->sweep);
    heads_look(b);
}

static int turn(struct broker *b, struct err *err)
{
    tidy(b);
    int r = events_turn(b->events);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "wait for events");
    sandbox_sweep(b);
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

static bool all_is_told(const struct broker *b)
{
    return b->sandbox_count == 0 && broker_execs_are_told(b) && plans_are_over(b);
}

/* Turns the loop until it is so, or the time is over. */
static int turn_until(struct broker *b, bool (*so)(const struct broker *b), uint64_t due,
                      struct err *err)
{
    struct timer limit = {.ring = nothing};
    int r = 0;

    ignore(timer_set(b->events, &limit, due) == 0); /* else it takes as long as it takes */
    for (;;) {
        tidy(b); /* what is on disk by then may have been the last thing to wait for */
        if (r != 0 || so(b) || now_ms() >= due)
            break;
        r = turn(b, err);
    }
    timer_stop(b->events, &limit);
    return r;
}

/* The front finishes what it has in hand, and is answered. */
static int end_front(struct broker *b, uint64_t due, struct err *err)
{
    front_ask_to_end(b);
    int r = turn_until(b, front_is_gone, due, err);
    if (r == 0 && !front_is_gone(b)) {
        log_warning("front_slow", "then", "it is killed", NULL);
        front_kill(b);
        r = turn_until(b, front_is_gone, now_ms() + KILL_MS, err);
    }
    channel_close(b);
    return r;
}

/* Everything that runs first: the front takes the last bytes out of the pipes and writes down every
 * end; one that dies meanwhile is started once more for that. Then the front. */
static int end_everything(struct broker *b, struct err *err)
{
    uint64_t began = now_ms();

    listen_notify("STOPPING=1");
    sandbox_end_all(b, "daemon stopped");
    plans_end_all(b);
    sandbox_sweep(b);
    int r = turn_until(b, all_is_told, began + TELL_MS, err);
    if (r == 0 && !all_is_told(b))
        log_warning("ends_not_told", "then", "the next start does it", NULL);
    if (r == 0)
        r = end_front(b, began + STOP_MS, err);
    bool all = r == 0 && b->sandbox_count == 0;
    if (b->sandbox_count > 0)
        log_warning("sandboxes_left", "then", "they end with this process", NULL);
    chores_close(b);
    (void)record_note(b,
                      &(struct audit_record){.actor = "broker",
                                             .workspace = "",
                                             .request = "",
                                             .operation = AUDIT_STOP,
                                             .result = "ok",
                                             .details = ""},
                      NULL);
    all = record_flush(b) && all;
    plan_processes_close(b);
    uint64_t last = b->audit ? audit_synced(b->audit) : 0;
    record_close(b);
    heads_stop(b, last);
    export_stop(b);
    egress_stop(b);
    movers_close(b);
    store_mounts_close(b);
    tls_stop(b);
    broker_execs_clear(b);
    listen_close(b);
    state_close(b, all);
    return r;
}

int broker_run(struct broker *b, struct err *err)
{
    struct stopper stopper = {.watch = {.ready = stop, .fd = -1}, .broker = b};
    struct beat heart = {.timer = {.ring = beat}, .events = b->events, .broker = b};
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
