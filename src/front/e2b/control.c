/* SPDX-License-Identifier: Apache-2.0 */
/* Their API: sandboxes that are there, one by one. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "front/e2b/network.h"
#include "front/e2b/sandbox.h"

#define ONE "/sandboxes/{id}"

static void get(struct call *call);
static void kill_it(struct call *call);
static void set_timeout(struct call *call);
static void refresh(struct call *call);
static void pause_it(struct call *call);
static void connect_it(struct call *call);
static void resume_it(struct call *call);
static void no_snapshots(struct call *call);
static void none_yet(struct call *call);
static void no_template(struct call *call);
static void alias(struct call *call);
static void health(struct call *call);
static void unsupported(struct call *call);

const struct route e2b_control_routes[] = {
    {HTTP_GET, "/health", 0, 0, FOREIGN, health, "", NULL},
    {HTTP_POST, "/sandboxes", 0, BODY_SMALL, FOREIGN, e2b_create, "", NULL},
    {HTTP_POST, "/v2/sandboxes", 0, BODY_SMALL, FOREIGN, e2b_create, "", NULL},
    {HTTP_GET, "/sandboxes", 0, 0, FOREIGN, e2b_list, "", NULL},
    {HTTP_GET, "/v2/sandboxes", 0, 0, FOREIGN, e2b_list, "", NULL},
    {HTTP_GET, ONE, 0, 0, FOREIGN, get, "", NULL},
    {HTTP_DELETE, ONE, 0, 0, FOREIGN, kill_it, "", NULL},
    {HTTP_POST, ONE "/timeout", 0, BODY_SMALL, FOREIGN, set_timeout, "", NULL},
    {HTTP_POST, ONE "/refreshes", 0, BODY_SMALL, FOREIGN, refresh, "", NULL},
    {HTTP_POST, ONE "/pause", 0, BODY_SMALL, FOREIGN, pause_it, "", NULL},
    {HTTP_POST, ONE "/connect", 0, BODY_SMALL, FOREIGN, connect_it, "", NULL},
    {HTTP_POST, "/v2" ONE "/connect", 0, BODY_SMALL, FOREIGN, connect_it, "", NULL},
    {HTTP_POST, ONE "/resume", 0, BODY_SMALL, FOREIGN, resume_it, "", NULL},
    {HTTP_GET, ONE "/metrics", 0, 0, FOREIGN, e2b_metrics, "", NULL},
    {HTTP_GET, ONE "/logs", 0, 0, FOREIGN, e2b_logs, "", NULL},
    {HTTP_GET, "/v2" ONE "/logs", 0, 0, FOREIGN, e2b_logs, "", NULL},
    {HTTP_PUT, ONE "/network", 0, BODY_SMALL, FOREIGN, network_update, "", NULL},
    {HTTP_POST, ONE "/fork", 0, BODY_SMALL, FOREIGN, no_snapshots, "", NULL},
    {HTTP_POST, ONE "/snapshots", 0, BODY_SMALL, FOREIGN, no_snapshots, "", NULL},
    {HTTP_GET, "/snapshots", 0, 0, FOREIGN, none_yet, "", NULL},
    {HTTP_GET, "/volumes", 0, 0, FOREIGN, none_yet, "", NULL},
    {HTTP_GET, "/secrets", 0, 0, FOREIGN, none_yet, "", NULL},
    {HTTP_POST, "/volumes", 0, BODY_SMALL, FOREIGN, unsupported, "", NULL},
    {HTTP_POST, "/secrets", 0, BODY_SMALL, FOREIGN, unsupported, "", NULL},
    {HTTP_POST, "/v3/templates", 0, BODY_SMALL, FOREIGN, unsupported, "", NULL},
    {HTTP_POST, "/templates/tags", 0, BODY_SMALL, FOREIGN, unsupported, "", NULL},
    {HTTP_GET, "/templates/aliases/{*}", 0, 0, FOREIGN, alias, "", NULL},
    {HTTP_DELETE, "/templates/{*}", 0, BODY_SMALL, FOREIGN, no_template, "", NULL},
    ROUTES_END,
};

static void health(struct call *call)
{
    call_bytes(call, "text/plain", "OK", 2);
}

static void get(struct call *call)
{
    struct lifetime l;

    if (e2b_find(call, &l))
        call_json(call, 200, sandbox_detail(call, &l));
}

/* --- changes --- */

static void emptied(struct e2b *e, int status, json_t *object)
{
    if (status >= 400)
        e2b_refuse(e, status, object);
    else
        call_empty(e->call);
}

static void kill_it(struct call *call)
{
    struct lifetime l;
    struct e2b *e = e2b_find(call, &l) ? e2b_begin(call, NULL) : NULL;

    if (e)
        e2b_ask(e, HTTP_DELETE, NULL, emptied, "/v1/workspaces/%s?purge=1", call->workspace.id);
}

/* Seconds; 0: none were given. False: answered. */
static bool read_seconds(struct call *call, const char *name, uint64_t *ret)
{
    *ret = 0;
    return field_number(call, call->body, name, 1, 31536000, ret);
}

static void update(struct e2b *e, json_t *lifetime, void (*heard)(struct e2b *, int, json_t *))
{
    e2b_ask(e, HTTP_PATCH, json_pack("{s:o}", "lifetime", lifetime), heard, "/v1/workspaces/%s",
            e->call->workspace.id);
}

static void set_timeout(struct call *call)
{
    struct lifetime l;
    uint64_t seconds;

    if (!e2b_find(call, &l) || !read_seconds(call, "timeout", &seconds))
        return;
    if (!seconds) {
        call_bad_field(call, "timeout", "a number of seconds");
        return;
    }
    struct e2b *e = e2b_begin(call, NULL);
    if (e)
        update(e, json_pack("{s:I}", "seconds", (json_int_t)seconds), emptied);
}

/* Whether its end would come sooner than that. */
static bool would_lengthen(const struct call *call, uint64_t seconds)
{
    return call->workspace.ends_ms < wall_ms() + (int64_t)seconds * 1000;
}

static void refresh(struct call *call)
{
    struct lifetime l;
    uint64_t seconds;

    if (!e2b_find(call, &l) || !read_seconds(call, "duration", &seconds))
        return;
    struct e2b *e = seconds && would_lengthen(call, seconds) ? e2b_begin(call, NULL) : NULL;
    if (e)
        update(e, json_pack("{s:I}", "seconds", (json_int_t)seconds), emptied);
    else if (!call->status)
        call_empty(call);
}

static void noted_pause(struct e2b *e, int status, json_t *object)
{
    if (status >= 400)
        e2b_refuse(e, status, object);
    else
        e2b_ask(e, HTTP_POST, NULL, emptied, "/v1/workspaces/%s/sleep%s", e->call->workspace.id,
                json_is_false(json_object_get(e->call->body, "memory")) ? "" : "?memory=1");
}

static void pause_it(struct call *call)
{
    struct lifetime l;

    if (!e2b_find(call, &l))
        return;
    if (l.paused) {
        call_error(call, 409, "conflict", "sandbox %s is already paused", call->workspace.id);
        return;
    }
    struct e2b *e = e2b_begin(call, NULL);
    if (e)
        update(e, json_pack("{s:b}", "paused", 1), noted_pause);
}

static void answer_brief(struct e2b *e, int status)
{
    struct call *call = e->call;
    struct lifetime l;

    if (e2b_find(call, &l))
        call_json(call, status, sandbox_brief(call, &l));
}

static void connected(struct e2b *e, int status, json_t *object)
{
    if (status >= 400)
        e2b_refuse(e, status, object);
    else
        answer_brief(e, e->data ? 201 : 200);
}

static json_t *resumption(uint64_t seconds)
{
    return json_pack("{s:b, s:I}", "paused", 0, "seconds", (json_int_t)seconds);
}

/* What it had in memory is gone by now, as was asked for. */
static void rebooted(struct e2b *e, int status, json_t *object)
{
    uint64_t seconds = 300;

    if (status >= 400)
        e2b_refuse(e, status, object);
    else if (read_seconds(e->call, "timeout", &seconds))
        update(e, resumption(seconds ? seconds : 300), connected);
}

static void connect_for(struct call *call, bool only_paused)
{
    static char paused;
    struct lifetime l;
    uint64_t seconds;

    if (!e2b_find(call, &l) || !read_seconds(call, "timeout", &seconds))
        return;
    if (only_paused && !l.paused) {
        call_error(call, 409, "conflict", "sandbox %s is already running", call->workspace.id);
        return;
    }
    struct e2b *e = e2b_begin(call, l.paused ? &paused : NULL);
    if (!e)
        return;
    seconds = seconds ? seconds : 300;
    bool reboots = json_is_false(json_object_get(call->body, "memory"));
    if (l.paused && reboots && front_is_frozen(call->front, call->workspace.id))
        e2b_ask(e, HTTP_POST, NULL, rebooted, "/v1/workspaces/%s/sleep", call->workspace.id);
    else if (l.paused)
        update(e, resumption(seconds), connected);
    else if (would_lengthen(call, seconds))
        update(e, json_pack("{s:I}", "seconds", (json_int_t)seconds), connected);
    else
        answer_brief(e, 200);
}

static void connect_it(struct call *call)
{
    connect_for(call, false);
}

static void resume_it(struct call *call)
{
    connect_for(call, true);
}

/* --- what there is not --- */

static void unsupported(struct call *call)
{
    call_error(call, 400, "unsupported",
               "this daemon has no such thing for E2B's clients; docs/from-e2b.md says what to use "
               "instead");
}

static void no_snapshots(struct call *call)
{
    struct lifetime l;

    if (e2b_find(call, &l))
        call_error(call, 400, "unsupported",
                   "this daemon makes no snapshots and forks for E2B's clients");
}

static void none_yet(struct call *call)
{
    call_json(call, 200, json_array());
}

static void no_template(struct call *call)
{
    call_error(call, 404, "not_found", "there is no template or snapshot '%.200s'", call->rest + 1);
}

static void aliased(struct e2b *e, int status, json_t *object)
{
    if (status == 200)
        call_json(
            e->call, 200,
            json_pack("{s:O, s:b}", "templateID", json_object_get(object, "name"), "public", 1));
    else
        call_error(e->call, 404, "not_found", "template '%.200s' not found", e->call->rest + 1);
}

static void alias(struct call *call)
{
    if (strcmp(call->rest, "/base") == 0 || strcmp(call->rest, "/code-interpreter-v1") == 0) {
        call_json(call, 200, json_pack("{s:s, s:b}", "templateID", call->rest + 1, "public", 1));
        return;
    }
    struct e2b *e = e2b_begin(call, NULL);
    if (e)
        e2b_ask(e, HTTP_GET, NULL, aliased, "/v1/templates%s", call->rest);
}
