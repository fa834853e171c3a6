/* SPDX-License-Identifier: Apache-2.0 */
/* Commands stand still by the groups that they are in (sandbox/session/freeze.c). The file server
 * is ours and goes on: it can be asked while they do. A time limit of a command runs on, and ends
 * it. A broker that is killed takes the sandbox with it, whose processes the next one lets go
 * (cgroup_sweep), which is when they die. */
#include "broker/pause.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "broker/channel.h"
#include "broker/sandboxes.h"

enum {
    AGAIN_MS = 2,
    PATIENCE_MS = 5000,
};

void pause_tell(const struct sandbox *s)
{
    struct plain_message m = {.texts = {s->workspace}, .number = s->pause.state == PAUSE_FROZEN};

    channel_send_plain(s->broker, EVENT_SANDBOX_FROZEN, 0, &m);
}

/* To who asked, if it is still there. */
static void answer(struct sandbox *s, const struct err *failed)
{
    if (s->pause.generation != s->broker->generation)
        return;
    if (failed)
        channel_send_error(s->broker, s->pause.tag, failed);
    else
        channel_send_ok(s->broker, s->pause.tag);
}

static void go_on(struct sandbox *s)
{
    bool was_frozen = s->pause.state == PAUSE_FROZEN;

    s->pause.state = PAUSE_NONE;
    timer_stop(s->broker->events, &s->pause.timer);
    session_thaw(s->session);
    if (was_frozen && s->broker->resumed)
        pause_tell(s);
}

static void give_up(struct sandbox *s, int errnum, const char *why)
{
    struct err err;

    go_on(s);
    err_set(&err, errnum == ENOTSUP ? ERR_LIMIT : ERR_CONFLICT, errnum, "%s", why);
    answer(s, &err);
}

static void stop_more(struct timer *timer)
{
    struct sandbox *s = container_of(timer, struct sandbox, pause.timer);
    int r = session_freeze(s->session);

    if (r < 0) {
        give_up(s, ENOTSUP, "this host has no freezer, by which commands could stand still");
    } else if (r == 0) {
        s->pause.state = PAUSE_FROZEN;
        if (s->broker->resumed)
            pause_tell(s);
        answer(s, NULL);
    } else if (now_ms() >= s->pause.until_ms ||
               timer_set(s->broker->events, timer, now_ms() + AGAIN_MS) < 0) {
        give_up(s, EBUSY, "its commands do not stand still");
    }
}

void pause_end(struct sandbox *s)
{
    if (s->pause.state == PAUSE_STOPPING)
        give_up(s, EBUSY, "it was asked for meanwhile");
    else if (s->pause.state == PAUSE_FROZEN)
        go_on(s);
}

void pause_request(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct sandbox *s = sandbox_find(b, m->texts[0]);
    struct err err;

    if (!s || s->ending || s->over) {
        err_set(&err, ERR_NOT_FOUND, 0, "there is no such sandbox");
        channel_send_error(b, tag, &err);
        return;
    }
    pause_end(s);
    s->pause.tag = tag;
    s->pause.generation = b->generation;
    if (m->number != 1) {
        answer(s, NULL);
        return;
    }
    s->pause.state = PAUSE_STOPPING;
    s->pause.until_ms = now_ms() + PATIENCE_MS;
    s->pause.timer.ring = stop_more;
    stop_more(&s->pause.timer);
}
