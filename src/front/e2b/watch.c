/* SPDX-License-Identifier: Apache-2.0 */
/* Changes below a directory: our own route tells them by lines, which become messages of a stream,
 * or are kept until somebody asks for them (a watcher). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/live.h"
#include "front/e2b/entry.h"
#include "front/e2b/files.h"
#include "front/e2b/rpc.h"

enum {
    LINE_MOST = 1 << 16,
    KEPT_MOST = 10000, /* events of a watcher that nobody has asked for */
    OUT_MOST = 1 << 20,
    WATCHERS_MOST = 64, /* of a workspace */
    WATCHER_MS = 3600000,
};

struct watching {
    struct watching *next; /* of watchers */
    struct front *front;
    struct call *call; /* of a stream, and of a watcher that is being made; NULL */
    struct inner *inner;
    struct inner_asker who;
    char workspace[FRONT_ID];
    char id[28]; /* of a watcher */
    char *path;
    struct buf line;
    struct buf out; /* of a stream */
    size_t out_at;
    json_t *events; /* of a watcher */
    struct timer keepalive;
    uint64_t keepalive_ms;
    struct timer deadline;
    bool is_watcher;
    bool is_ready;
    bool is_late;
    bool ended;
};

static struct watching *watchers;

static void watching_free(struct watching *w)
{
    for (struct watching **at = &watchers; *at; at = &(*at)->next) {
        if (*at == w) {
            *at = w->next;
            break;
        }
    }
    timer_stop(w->front->events, &w->keepalive);
    timer_stop(w->front->events, &w->deadline);
    inner_drop(w->inner);
    buf_clear(&w->line);
    buf_clear(&w->out);
    json_decref(w->events);
    free(w->path);
    free(w);
}

/* --- events --- */

static void tell(struct watching *w, const char *type, const char *path)
{
    size_t above = strcmp(w->path, "/") == 0 ? 0 : strlen(w->path);

    if (strncmp(path, w->path, above) != 0 || path[above] != '/')
        return;
    json_t *event = json_pack("{s:s, s:s}", "name", path + above + 1, "type", type);
    if (!w->is_watcher)
        envelope_put(&w->out, 0, json_pack("{s:o}", "filesystem", event));
    else if (json_array_size(w->events) < KEPT_MOST)
        json_array_append_new(w->events, event);
    else
        json_decref(event);
}

/* A file that is written whole is told by us as one that is there now; by them as one that is
 * created and written. */
static void translate(struct watching *w, const json_t *line)
{
    const char *event = json_string_value(json_object_get(line, "event"));
    const char *path = json_string_value(json_object_get(line, "path"));
    const char *to = json_string_value(json_object_get(line, "to"));
    bool is_dir = json_is_true(json_object_get(line, "is_dir"));

    if (!event || !path)
        return;
    if (strcmp(event, "create") == 0) {
        tell(w, "EVENT_TYPE_CREATE", path);
        if (!is_dir)
            tell(w, "EVENT_TYPE_WRITE", path);
    } else if (strcmp(event, "modify") == 0) {
        tell(w, "EVENT_TYPE_WRITE", path);
    } else if (strcmp(event, "delete") == 0) {
        tell(w, "EVENT_TYPE_REMOVE", path);
    } else if (strcmp(event, "attrib") == 0) {
        tell(w, "EVENT_TYPE_CHMOD", path);
    } else if (strcmp(event, "move") == 0) {
        tell(w, "EVENT_TYPE_RENAME", path);
        if (to)
            tell(w, "EVENT_TYPE_CREATE", to);
    }
}

static void wake(struct watching *w)
{
    if (w->call && w->call->x)
        http_wake(w->call->x);
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct watching *w = context;

    if (w->out_at == w->out.n && w->ended)
        return 0;
    if (buf_done(&w->out) < 0)
        return -ENOMEM; /* it does not read what is told */
    size_t n = w->out.n - w->out_at < size ? w->out.n - w->out_at : size;
    if (n == 0)
        return -EAGAIN;
    memcpy(bytes, w->out.p + w->out_at, n);
    w->out_at += n;
    if (w->out_at == w->out.n) {
        buf_clear(&w->out);
        buf_init(&w->out, OUT_MOST);
        w->out_at = 0;
    }
    return (ssize_t)n;
}

static void ready(struct watching *w)
{
    struct call *call = w->call;

    w->is_ready = true;
    if (!w->is_watcher) {
        envelope_put(&w->out, 0, json_pack("{s:{}}", "start"));
        call->refused = NULL;
        call_stream(call, 200, "application/connect+json", "Cache-Control: no-store\r\n", pull, w);
        return;
    }
    w->next = watchers;
    watchers = w;
    w->call = NULL; /* it goes on without it */
    call->context = NULL;
    call->abandoned = NULL;
    call_json(call, 200, json_pack("{s:s}", "watcherId", w->id));
}

/* Before anything of it was told, by the code of our own error. */
static void refuse(struct watching *w, const char *ours)
{
    struct call *call = w->call;
    bool missing = strcmp(ours, "file_not_found") == 0;
    bool is_file = strcmp(ours, "not_a_directory") == 0;
    const char *code = missing ? "not_found" : is_file ? "invalid_argument" : "internal";
    char text[512];

    snprintf(text, sizeof(text), "%s: '%.400s'",
             missing   ? "path not found"
             : is_file ? "path is not a directory"
                       : "it cannot be watched",
             w->path);
    if (w->is_watcher)
        rpc_error(call, missing ? 404 : is_file ? 400 : 500, code, text);
    else
        rpc_end(call, code, text);
}

static void take_line(struct watching *w, const char *text, size_t n)
{
    json_t *line = json_loadb(text, n, 0, NULL);
    const char *event = json_string_value(json_object_get(line, "event"));

    bool begins = event && strcmp(event, "ready") == 0 && !w->is_ready;
    if (begins && json_is_true(json_object_get(line, "is_dir")))
        ready(w);
    else if (begins)
        refuse(w, "not_a_directory");
    else if (event)
        translate(w, line);
    json_decref(line);
}

static size_t piece(void *context, const char *bytes, size_t n)
{
    struct watching *w = context;

    for (size_t at = 0; at < n;) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t some = end ? (size_t)(end - bytes) - at : n - at;
        buf_add(&w->line, bytes + at, some);
        at += some + (end != NULL);
        if (!end)
            break;
        if (buf_done(&w->line) == 0 && w->line.n)
            take_line(w, w->line.p, w->line.n);
        buf_clear(&w->line);
        buf_init(&w->line, LINE_MOST);
    }
    wake(w);
    return n;
}

/* It was refused, or has ended with its sandbox. */
static void done(void *context, int status, const struct buf *body)
{
    struct watching *w = context;
    struct call *call = w->call;

    (void)status;
    w->inner = NULL;
    if (!call) {
        watching_free(w);
        return;
    }
    if (w->is_ready || call->status) {
        if (call->x && w->is_ready)
            http_cut(call->x);
        return;
    }
    json_t *object = body->n ? json_loadb(body->p, body->n, 0, NULL) : NULL;
    const char *code = json_string_value(json_object_get(json_object_get(object, "error"), "code"));
    refuse(w, code ? code : "");
    json_decref(object);
}

static void ring_keepalive(struct timer *timer)
{
    struct watching *w = container_of(timer, struct watching, keepalive);

    if (w->is_ready && !w->ended && w->out.n == 0) {
        envelope_put(&w->out, 0, json_pack("{s:{}}", "keepalive"));
        wake(w);
    }
    ignore(timer_set(w->front->events, timer, now_ms() + w->keepalive_ms));
}

static void ring_deadline(struct timer *timer)
{
    struct watching *w = container_of(timer, struct watching, deadline);

    if (w->is_watcher && w->is_ready) {
        watching_free(w); /* nobody has asked for so long */
        return;
    }
    if (!w->is_ready) { /* its call still has it */
        if (w->call->x && w->is_watcher)
            rpc_error(w->call, 504, "deadline_exceeded", "context deadline exceeded");
        else if (w->call->x)
            rpc_end(w->call, "deadline_exceeded", "context deadline exceeded");
        return;
    }
    w->ended = true;
    envelope_end(&w->out, "deadline_exceeded", "context deadline exceeded");
    wake(w);
}

static void left(struct call *call)
{
    struct watching *w = call->context;

    call->context = NULL;
    watching_free(w);
}

static void cut(struct call *call, const struct ending *ending)
{
    (void)ending;
    if (call->x)
        http_cut(call->x);
}

/* NULL: answered. */
static struct watching *begin(struct call *call, const json_t *message, bool is_watcher)
{
    const char *text = json_string_value(json_object_get(message, "path"));
    const char *user = rpc_user(call);
    const char *path = user ? rpc_path(call, user, text ? text : "") : NULL;

    if (!path)
        return NULL;
    struct watching *w = calloc(1, sizeof(*w));
    if (!w) {
        call_error(call, 503, "unavailable", "out of memory");
        return NULL;
    }
    w->front = call->front;
    w->call = call;
    w->is_watcher = is_watcher;
    w->path = strdup(path);
    w->who.uid = -1;
    snprintf(w->who.authorization, sizeof(w->who.authorization), "Bearer %s", call->actor.secret);
    text_copy(w->workspace, sizeof(w->workspace), call->workspace.id);
    make_id('w', w->id);
    w->events = json_array();
    w->keepalive.ring = ring_keepalive;
    w->deadline.ring = ring_deadline;
    w->keepalive_ms = rpc_keepalive(call);
    buf_init(&w->line, LINE_MOST);
    buf_init(&w->out, OUT_MOST);
    call->context = w;
    call->abandoned = left;
    char target[2 * FRONT_ID + 64];
    snprintf(target, sizeof(target),
             "/v1/workspaces/%s/files-watch?recursive=%d&path=", w->workspace,
             json_is_true(json_object_get(message, "recursive")));
    const char *whole = arena_printf(&call->arena, "%s%s", target, e2b_encoded(call, path, false));
    const struct inner_request request = {
        .method = HTTP_GET, .target = whole, .piece = piece, .done = done, .context = w};
    w->inner = w->path && whole ? inner_start(call->front, &w->who, &request) : NULL;
    if (!w->inner) {
        call_error(call, 503, "unavailable", "the daemon has no room for this now; try again");
        return NULL;
    }
    return w;
}

void watch_stream(struct call *call)
{
    rpc_is_stream(call);
    json_t *message = rpc_message(call);
    if (!message)
        return;
    uint64_t timeout_ms = rpc_timeout(call);
    struct watching *w = live_hold(call, HTTP_WATCH) ? begin(call, message, false) : NULL;
    if (w) {
        call->ending = cut;
        ignore(timer_set(w->front->events, &w->keepalive, now_ms() + w->keepalive_ms));
        if (timeout_ms)
            ignore(timer_set(w->front->events, &w->deadline, now_ms() + timeout_ms));
    }
    json_decref(message);
}

/* --- watchers --- */

void watcher_create(struct call *call)
{
    size_t n = 0;

    rpc_is_unary(call);
    for (const struct watching *w = watchers; w; w = w->next)
        n += strcmp(w->workspace, call->workspace.id) == 0;
    if (n >= WATCHERS_MOST) {
        rpc_error(call, 429, "resource_exhausted", "this sandbox has 64 watchers already");
        return;
    }
    struct watching *w = begin(call, call->body, true);
    if (w)
        ignore(timer_set(w->front->events, &w->deadline, now_ms() + WATCHER_MS));
}

/* NULL: answered. */
static struct watching *find(struct call *call)
{
    const char *id = json_string_value(json_object_get(call->body, "watcherId"));

    rpc_is_unary(call);
    for (struct watching *w = watchers; id && w; w = w->next) {
        if (strcmp(w->id, id) == 0 && strcmp(w->workspace, call->workspace.id) == 0)
            return w;
    }
    char text[160];
    snprintf(text, sizeof(text), "watcher with id %.64s not found", id ? id : "");
    rpc_error(call, 404, "not_found", text);
    return NULL;
}

void watcher_events(struct call *call)
{
    struct watching *w = find(call);

    if (!w)
        return;
    json_t *events = w->events;
    w->events = json_array();
    ignore(timer_set(w->front->events, &w->deadline, now_ms() + WATCHER_MS));
    call_json(call, 200, json_pack("{s:o}", "events", events));
}

void watcher_remove(struct call *call)
{
    struct watching *w = find(call);

    if (!w)
        return;
    watching_free(w);
    rpc_done(call);
}
