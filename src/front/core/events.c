/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/events: what happens, as it happens, to everybody who may know of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "front/core/live.h"

enum {
    WAITING_MAX = 256 << 10, /* a listener that does not read is cut off */
    PING_MS = 15000,
};

struct listener {
    struct listener *next;
    struct call *call;
    const char *workspace; /* only this one's; NULL: all */
    struct buf out;
    size_t out_at;
    bool lost; /* it was too slow, and has to be told by the end of its stream */
    bool over; /* the last word is among what waits */
    struct timer ping;
};

void front_announce(struct front *front, const char *type, const char *workspace, const char *owner,
                    json_t *details)
{
    front->tree_changed(front, workspace); /* it may be; most of what happens is a change */
    if (!front->listeners) {
        json_decref(details);
        return;
    }
    json_t *object = json_pack("{s:s, s:s, s:s, s:o}", "type", type, "workspace", workspace,
                               "owner", owner, "time", time_json(wall_ms()));
    if (details)
        json_object_update(object, details);
    json_decref(details);
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    for (struct listener *l = front->listeners; text && l; l = l->next) {
        if (l->over || !actor_may_see(&l->call->actor, owner, workspace) ||
            (l->workspace && strcmp(l->workspace, workspace) != 0))
            continue;
        buf_printf(&l->out, "event: %s\ndata: ", type);
        buf_str(&l->out, text);
        buf_str(&l->out, "\n\n");
        l->lost = l->lost || l->out.failed;
        if (l->call->x)
            http_wake(l->call->x);
    }
    free(text);
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct listener *l = context;
    size_t n = l->out.n - l->out_at;

    if (n == 0)
        return l->lost ? -EPIPE : l->over ? 0 : -EAGAIN;
    n = n < size ? n : size;
    memcpy(bytes, l->out.p + l->out_at, n);
    l->out_at += n;
    if (l->out_at == l->out.n) {
        buf_clear(&l->out);
        buf_init(&l->out, WAITING_MAX);
        l->out_at = 0;
    }
    return (ssize_t)n;
}

static void say_last(struct call *call, const struct ending *ending)
{
    struct listener *l = call->context;

    if (l->over)
        return;
    char *line = ending_line(ending);
    buf_printf(&l->out, "event: error\ndata: %s\n\n", line ? line : "{}");
    free(line);
    l->lost = l->lost || l->out.failed;
    l->over = true;
    timer_stop(call->front->events, &l->ping);
    http_wake(call->x);
}

static void ping(struct timer *timer)
{
    struct listener *l = container_of(timer, struct listener, ping);

    ignore(timer_set(l->call->front->events, timer, now_ms() + PING_MS));
    buf_str(&l->out, ": ping\n\n");
    if (l->call->x)
        http_wake(l->call->x);
}

static void stop(struct call *call)
{
    struct listener *l = call->context;

    for (struct listener **at = &call->front->listeners; *at; at = &(*at)->next) {
        if (*at == l) {
            *at = l->next;
            break;
        }
    }
    timer_stop(call->front->events, &l->ping);
    buf_clear(&l->out);
    free(l);
}

void events_follow(struct call *call)
{
    const char *workspace;

    if (!call_text(call, "workspace", &workspace) || !live_hold(call, HTTP_NEWS))
        return;
    struct listener *l = calloc(1, sizeof(*l));
    if (!l) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    *l = (struct listener){.next = call->front->listeners,
                           .call = call,
                           .workspace = workspace,
                           .ping = {.ring = ping}};
    buf_init(&l->out, WAITING_MAX);
    buf_str(&l->out, ": carrel\n\n");
    call->front->listeners = l;
    call->context = l;
    call->abandoned = stop;
    call->ending = say_last;
    ignore(timer_set(call->front->events, &l->ping, now_ms() + PING_MS));
    call_stream(call, 200, "text/event-stream", "Cache-Control: no-store\r\n", pull, l);
}
