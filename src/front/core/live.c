/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void live_add(struct call *call)
{
    struct front *front = call->front;

    call->live_at = &front->calls;
    call->live_next = front->calls;
    if (call->live_next)
        call->live_next->live_at = &call->live_next;
    front->calls = call;
}

void live_remove(struct call *call)
{
    if (!call->live_at)
        return;
    *call->live_at = call->live_next;
    if (call->live_next)
        call->live_next->live_at = call->live_at;
    call->live_at = NULL;
}

/* --- in words --- */

static json_t *error_of(const struct ending *e)
{
    json_t *error = json_pack("{s:s, s:s}", "code", e->code, "message", e->message);

    if (e->reason)
        json_object_set_new(error, "details", json_pack("{s:s}", "reason", e->reason));
    return error;
}

char *ending_line(const struct ending *e)
{
    json_t *object = json_pack("{s:s, s:o}", "type", "error", "error", error_of(e));
    char *line = json_dumps(object, JSON_COMPACT);

    json_decref(object);
    return line;
}

void call_answer_ending(struct call *call, const struct ending *e)
{
    json_t *object = json_pack("{s:o}", "error", error_of(e));

    call->refused = NULL;
    call_json(call, e->status, object);
}

/* --- the end --- */

void call_end_plainly(struct call *call, const struct ending *e)
{
    if (!http_is_answered(call->x)) {
        void (*refused)(struct call *, int, json_t *) = call->refused;
        call_answer_ending(call, e);
        call->refused = refused; /* whoever has something to take back goes on */
    } else {
        http_cut(call->x);
    }
}

static void end_if_live(struct call *call, const struct ending *e)
{
    if (!call->x || http_is_finished(call->x))
        return; /* it has nothing more to say */
    if (http_is_answered(call->x))
        http_hurry(call->x);
    if (call->ending)
        call->ending(call, e);
    else
        call_end_plainly(call, e);
}

void live_end_key(struct front *front, const char *key, const struct call *except)
{
    static const struct ending revoked = {
        .status = 401, .code = "unauthorized", .message = "the key is no longer valid"};

    for (struct call *call = front->calls, *next; call; call = next) {
        next = call->live_next;
        if (call != except && strcmp(call->actor.key, key) == 0)
            end_if_live(call, &revoked);
    }
}

void live_end_workspace(struct front *front, const char *workspace, const struct call *except)
{
    char message[128];
    const struct ending gone = {
        .status = 404, .code = "not_found", .message = message, .ends_commands = true};

    snprintf(message, sizeof(message), "there is no workspace '%s' any more", workspace);
    for (struct call *call = front->calls, *next; call; call = next) {
        next = call->live_next;
        if (call == except || !call->workspace.id || strcmp(call->workspace.id, workspace) != 0)
            continue;
        if (call->ending || (call->x && http_is_answered(call->x)))
            end_if_live(call, &gone);
    }
}

static struct ending no_room(enum http_limit limit)
{
    bool of_all = limit == HTTP_MAX_CONNECTIONS;

    return (struct ending){.status = of_all ? 503 : 429,
                           .code = of_all ? "unavailable" : "quota_exceeded",
                           .reason = http_limit_setting(limit),
                           .message = http_limit_advice(limit)};
}

void live_evicted(void *front, struct exchange *x, enum http_limit limit)
{
    struct call *call = http_data(x);
    const struct ending full = no_room(limit);

    (void)front;
    if (call && call->x)
        end_if_live(call, &full);
    else
        http_cut(x);
}

/* --- a place --- */

static bool has_room(struct call *call, enum http_limit limit)
{
    const struct ending full = no_room(limit);

    if (limit == HTTP_ROOM)
        return true;
    call_answer_ending(call, &full);
    return false;
}

bool live_charge(struct call *call, const char *owner, bool is_admin)
{
    char who[FRONT_ID + 1];

    /* An owner may be called like an administrator. */
    snprintf(who, sizeof(who), "%s%s", is_admin ? "*" : "", owner);
    return has_room(call,
                    http_charge(call->x, who, *call->actor.key ? call->actor.key : "-", is_admin));
}

bool live_hold(struct call *call, enum http_stream_kind kind)
{
    return has_room(call, http_hold(call->x, kind));
}
