/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/lifetime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "front/core/live.h"
#include "front/core/record.h"
#include "front/workspaces/trash.h"
#include "protocol/broker.h"

enum {
    LONGEST_S = 365 * 86400,
    SOON_MS = 1000, /* after a failure, or while another change is under way */
    MOST_WAIT_MS = 60000,
};

#define TELLS_TOKEN (SCOPE_ADMIN | SCOPE_OWNER | SCOPE_USER)

bool lifetime_of(const struct store_workspace *w, struct arena *arena, struct lifetime *ret)
{
    const char *at_end = NULL;
    const char *token = NULL;
    const char *port_token = "";
    json_int_t seconds = 0;
    json_int_t started = 0;
    int resume = 0;
    int paused = 0;
    int private_ports = 0;

    if (!w->lifetime || !*w->lifetime)
        return false;
    json_t *object = json_parsed(w->lifetime);
    bool whole = json_unpack(object, "{s:I, s:s, s:b, s:b, s:b, s:s, s:s, s:I}", "seconds",
                             &seconds, "at_end", &at_end, "resume", &resume, "paused", &paused,
                             "private_ports", &private_ports, "token", &token, "port_token",
                             &port_token, "started_ms", &started) == 0;
    if (whole) {
        *ret = (struct lifetime){.seconds = (uint64_t)seconds,
                                 .at_end = arena_copy(arena, at_end, strlen(at_end)),
                                 .resume = resume,
                                 .paused = paused,
                                 .private_ports = private_ports,
                                 .token = arena_copy(arena, token, strlen(token)),
                                 .port_token = arena_copy(arena, port_token, strlen(port_token)),
                                 .started_ms = started};
        whole = ret->at_end && ret->token && ret->port_token;
    }
    json_decref(object);
    return whole;
}

static bool write_row(struct call *call, struct store_workspace *w, const struct lifetime *l)
{
    char hash[FRONT_HASH];
    json_t *object = json_pack(
        "{s:I, s:s, s:b, s:b, s:b, s:s, s:s, s:I}", "seconds", (json_int_t)l->seconds, "at_end",
        l->at_end, "resume", l->resume, "paused", l->paused, "private_ports", l->private_ports,
        "token", l->token, "port_token", l->port_token, "started_ms", (json_int_t)l->started_ms);

    hash_hex(l->token, strlen(l->token), hash);
    w->lifetime = json_compact(&call->arena, object);
    w->token = arena_copy(&call->arena, hash, strlen(hash));
    json_decref(object);
    if (w->lifetime && w->token)
        return true;
    call_error(call, 413, "too_large", "the request is too large");
    return false;
}

static bool is_an_end(const char *text)
{
    return strcmp(text, "delete") == 0 || strcmp(text, "purge") == 0 ||
           strcmp(text, "sleep") == 0 || strcmp(text, "freeze") == 0;
}

bool lifetime_read(struct call *call, struct store_workspace *w)
{
    static const char *const known[] = {"seconds", "at_end",        "resume",
                                        "paused",  "private_ports", NULL};
    struct lifetime l = {.at_end = "delete", .token = "", .port_token = ""};
    const json_t *given = json_object_get(call->body, "lifetime");
    json_t *object = NULL;
    char token[2][28];

    if (!given)
        return true;
    if (json_is_null(given)) {
        w->lifetime = w->token = "";
        w->ends_ms = 0;
        return true;
    }
    bool is_new = !lifetime_of(w, &call->arena, &l);
    if (!field_object(call, call->body, "lifetime", &object) ||
        !fields_known(call, object, known) ||
        !field_number(call, object, "seconds", 1, LONGEST_S, &l.seconds) ||
        !field_text(call, object, "at_end", 16, &l.at_end) ||
        !field_flag(call, object, "resume", &l.resume) ||
        !field_flag(call, object, "paused", &l.paused) ||
        !field_flag(call, object, "private_ports", &l.private_ports))
        return false;
    if (!is_an_end(l.at_end)) {
        call_bad_field(call, "lifetime.at_end", "\"delete\", \"purge\", \"sleep\" or \"freeze\"");
        return false;
    }
    if (!l.seconds) {
        call_bad_field(call, "lifetime.seconds", "given: a number from 1 to 31536000");
        return false;
    }
    if (is_new) {
        make_id('t', token[0]);
        l.token = arena_printf(&call->arena, "ct_%s", token[0]);
        l.started_ms = wall_ms();
    }
    if (l.private_ports && !*l.port_token) {
        make_id('t', token[1]);
        l.port_token = arena_copy(&call->arena, token[1], strlen(token[1]));
    }
    if (l.paused)
        w->ends_ms = 0;
    else if (!w->ends_ms || json_object_get(object, "seconds"))
        w->ends_ms = wall_ms() + (int64_t)l.seconds * 1000;
    if (!l.token || !l.port_token) {
        call_error(call, 413, "too_large", "the request is too large");
        return false;
    }
    return write_row(call, w, &l);
}

json_t *lifetime_json(const struct call *call, const struct store_workspace *w)
{
    struct lifetime l;
    struct arena arena;
    json_t *object = NULL;

    arena_init(&arena, 65536);
    if (lifetime_of(w, &arena, &l)) {
        object = json_pack("{s:I, s:s, s:b, s:b, s:b, s:o, s:o}", "seconds", (json_int_t)l.seconds,
                           "at_end", l.at_end, "resume", l.resume, "paused", l.paused,
                           "private_ports", l.private_ports, "started", time_json(l.started_ms),
                           "ends", time_json(w->ends_ms));
        if (call->actor.scopes & TELLS_TOKEN)
            json_object_update_new(
                object, json_pack("{s:s, s:s}", "token", l.token, "port_token", l.port_token));
    }
    arena_clear(&arena);
    return object ? object : json_null();
}

/* Asks for one that stands still, or is to; `heard` once it does. False: without memory. */
static bool ask_freeze(struct front *front, const char *id, bool freeze,
                       void (*heard)(void *, struct answer *))
{
    const struct plain_message m = {.texts = {id}, .number = freeze};
    uint64_t tag = broker_expect(front->channel, heard, NULL);
    struct buf b;

    if (!tag)
        return false;
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &m);
    broker_send(front->channel, REQUEST_FREEZE, &b);
    return true;
}

static void woken(void *context, struct answer *answer)
{
    (void)context;
    (void)answer; /* or its sandbox has ended, and nothing stands still */
}

void lifetime_wake(struct call *call, const struct store_workspace *w)
{
    struct lifetime l;

    if (front_is_frozen(call->front, w->id) && lifetime_of(w, &call->arena, &l) && !l.paused)
        ignore(ask_freeze(call->front, w->id, false, woken));
}

bool lifetime_resume(struct call *call, struct store_workspace *w)
{
    struct lifetime l;
    struct err err;

    if (!lifetime_of(w, &call->arena, &l))
        return true;
    l.paused = false;
    w->ends_ms = wall_ms() + (int64_t)l.seconds * 1000;
    w->updated_ms = wall_ms();
    if (!write_row(call, w, &l))
        return false;
    if (store_workspace_update(call->front->store, w, &err) < 0) {
        call_fail(call, &err);
        return false;
    }
    lifetimes_look(call->front);
    lifetime_wake(call, w);
    return true;
}

/* --- the end --- */

/* One at a time: what is due next waits until this is over. */
static struct {
    struct front *front;
    struct timer timer;
    struct change change;
    struct store_workspace w; /* only what is looked at below */
    char id[FRONT_ID];
    char owner[FRONT_ID];
    char bucket[FRONT_ID];
    char stamp[24];
    bool sleeps;
    bool freezes;
    bool for_good;
    bool is_at_work;
} ending;

static void again(uint64_t ms)
{
    ignore(timer_set(ending.front->events, &ending.timer, now_ms() + ms));
}

static void over(void *context, const struct err *failed)
{
    char text[512];

    (void)context;
    if (failed)
        log_warning("lifetime_failed", "workspace", ending.id, "error",
                    err_text(failed, text, sizeof(text)), NULL);
    change_end(&ending.change);
    ending.is_at_work = false;
    again(failed ? SOON_MS : 0);
}

static void slept(void *context, struct answer *answer)
{
    (void)answer; /* it was asleep already, or is now */
    over(context, NULL);
}

/* So that whoever asks sees it paused before what runs in it ends. */
static bool write_paused(struct err *err)
{
    struct store_workspace row;
    struct arena arena;
    json_t *object = NULL;
    int r = -1;

    arena_init(&arena, 8UL << 20);
    if (store_workspace_get(ending.front->store, &arena, ending.id, &row, err) == 1) {
        object = json_parsed(row.lifetime);
        json_object_set_new(object, "paused", json_true());
        row.lifetime = json_compact(&arena, object);
        row.ends_ms = 0;
        r = store_workspace_update(ending.front->store, &row, err);
    }
    json_decref(object);
    arena_clear(&arena);
    return r == 0;
}

static void end_sandbox(struct err *err)
{
    const struct plain_message m = {.texts = {ending.id, "its lifetime is over"}};
    uint64_t tag = broker_expect(ending.front->channel, slept, NULL);
    struct buf b;

    if (!tag) {
        err_set(err, ERR_LIMIT, ENOMEM, "ask the broker");
        over(NULL, err);
        return;
    }
    live_end_workspace(ending.front, ending.id, NULL);
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &m);
    broker_send(ending.front->channel, REQUEST_SLEEP, &b);
}

/* What cannot stand still ends. */
static void frozen(void *context, struct answer *answer)
{
    struct err err;

    (void)context;
    if (answer_check(answer, &err) < 0)
        end_sandbox(&err);
    else
        over(NULL, NULL);
}

static void put_to_sleep(struct err *err)
{
    if (!write_paused(err))
        over(NULL, err);
    else if (!ending.freezes || !ask_freeze(ending.front, ending.id, true, frozen))
        end_sandbox(err);
}

static void recorded(void *context, struct answer *answer)
{
    struct err err;

    (void)context;
    if (answer_check(answer, &err) < 0) {
        over(NULL, &err);
        return;
    }
    if (ending.sleeps) {
        put_to_sleep(&err);
        return;
    }
    int64_t now = wall_ms();
    snprintf(ending.stamp, sizeof(ending.stamp), "%jd", (intmax_t)now);
    ending.w = (struct store_workspace){.id = ending.id,
                                        .bucket = ending.bucket,
                                        .trash = ending.stamp,
                                        .deleted_ms = ending.for_good ? -now : now,
                                        .updated_ms = now};
    if (store_workspace_move(ending.front->store, &ending.w, 0, &err) < 0) {
        over(NULL, &err);
        return;
    }
    front_announce(ending.front, "workspace.delete", ending.id, ending.owner, NULL);
    live_end_workspace(ending.front, ending.id, NULL);
    sweep_move(ending.front, &ending.w, over, NULL);
}

/* What forks stand on is not removed under them, nor where that cannot be found out. */
static bool is_stood_on(const char *id)
{
    const char *names = NULL;
    struct arena arena;
    struct err err;

    arena_init(&arena, 1UL << 20);
    int n = store_workspace_forks(ending.front->store, &arena, id, "", &names, &err);
    arena_clear(&arena);
    return n != 0;
}

static void begin_end(const struct store_workspace *w, const struct lifetime *l)
{
    struct front *front = ending.front;
    struct buf b;

    text_copy(ending.id, sizeof(ending.id), w->id);
    text_copy(ending.owner, sizeof(ending.owner), w->owner);
    text_copy(ending.bucket, sizeof(ending.bucket), w->bucket);
    ending.freezes = strcmp(l->at_end, "freeze") == 0;
    ending.sleeps = ending.freezes || strcmp(l->at_end, "sleep") == 0 || is_stood_on(w->id);
    ending.for_good = strcmp(l->at_end, "purge") == 0 || front->settings->trash_ms == 0;
    if (!change_begin(&ending.change, ending.id)) {
        again(SOON_MS);
        return;
    }
    const struct record_message record = {.actor = "carrel",
                                          .workspace = ending.id,
                                          .request = "",
                                          .operation = ending.sleeps     ? "workspace.sleep"
                                                       : ending.for_good ? "workspace.purge"
                                                                         : "workspace.delete",
                                          .result = "ok",
                                          .details = "{\"reason\":\"lifetime over\"}"};
    uint64_t tag = broker_expect(front->channel, recorded, NULL);
    if (!tag) {
        change_end(&ending.change);
        again(SOON_MS);
        return;
    }
    ending.is_at_work = true;
    buf_init(&b, 8192);
    protocol_pack_record(&b, tag, &record);
    broker_send(front->channel, REQUEST_RECORD, &b);
}

static void ring(struct timer *timer)
{
    struct store_workspace w;
    struct lifetime l;
    struct arena arena;
    struct err err;

    (void)timer;
    if (ending.is_at_work)
        return;
    if (!ending.front->resumed) {
        again(SOON_MS);
        return;
    }
    arena_init(&arena, 8UL << 20);
    int found = store_workspace_ends(ending.front->store, &arena, &w, &err);
    int64_t left = found > 0 ? w.ends_ms - wall_ms() : 0;
    if (found > 0 && left > 0)
        again(left < MOST_WAIT_MS ? (uint64_t)left : MOST_WAIT_MS);
    else if (found > 0 && lifetime_of(&w, &arena, &l))
        begin_end(&w, &l);
    else if (found != 0)
        again(SOON_MS);
    arena_clear(&arena);
}

void lifetimes_look(struct front *front)
{
    ending.front = front;
    ending.timer.ring = ring;
    if (!ending.is_at_work)
        again(0);
}
