/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "front/core/live.h"
#include "front/core/parser.h"
#include "front/core/planned.h"
#include "front/core/quota.h"
#include "front/core/scope.h"
#include "http/head.h"
#include "protocol/broker.h"

#define ARENA_BYTES (16UL << 20)

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void router_free(struct call *call)
{
    live_remove(call);
    json_decref(call->body);
    if (call->tenant)
        owner_use_drop(call->front, call->tenant);
    arena_clear(&call->arena);
    free(call);
}

/* One segment of the pattern against one of the path; an id is decoded and kept. */
static bool match_segment(struct call *call, size_t *params, const char *pattern, size_t pattern_n,
                          const char *path, size_t path_n)
{
    if (pattern[0] != '{')
        return pattern_n == path_n && memcmp(pattern, path, path_n) == 0;
    char *id = arena_copy(&call->arena, path, path_n);
    if (!id || path_n == 0 || !http_decode(id) || !protocol_id_is_valid(id))
        return false; /* no such thing can exist */
    call->params[(*params)++] = id;
    return true;
}

bool router_match(struct call *call, const char *pattern, const char *path)
{
    size_t params = 0;

    while (*pattern == '/' && *path == '/') {
        if (strcmp(pattern, "/{*}") == 0) {
            call->rest = path;
            return true;
        }
        size_t pattern_n = strcspn(++pattern, "/");
        size_t path_n = strcspn(++path, "/");
        if (!match_segment(call, &params, pattern, pattern_n, path, path_n))
            return false;
        pattern += pattern_n;
        path += path_n;
    }
    return *pattern == '\0' && *path == '\0';
}

/* "Allow: GET, HEAD" and so on, of what works at a path. */
static const char *allow_line(struct call *call, unsigned methods)
{
    scoped_buf struct buf b;

    buf_init(&b, 128);
    for (unsigned i = 0; i < HTTP_OTHER; i++) {
        if (methods & 1U << i)
            buf_printf(&b, "%s%s", b.n ? ", " : "Allow: ", http_method_name((enum http_method)i));
    }
    buf_str(&b, "\r\n");
    return buf_done(&b) == 0 ? arena_copy(&call->arena, b.p, b.n) : NULL;
}

/* Without one for this method call->allow says which there are, if any. */
static void find_route(struct call *call)
{
    const struct http_request *request = http_request_of(call->x);
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    unsigned methods = 0;

    for (const struct route *const *room = call->front->routes; *room; room++) {
        for (const struct route *route = *room; route->path; route++) {
            if (!router_match(call, route->path, request->path))
                continue;
            if (route->method == method) {
                call->route = route;
                return;
            }
            methods |= 1U << route->method;
            if (route->method == HTTP_GET && !(route->flags & NO_HEAD))
                methods |= 1U << HTTP_HEAD;
        }
    }
    if (methods)
        call->allow = allow_line(call, methods);
}

static bool equal(const char *a, const char *b, size_t n)
{
    unsigned char difference = 0;

    for (size_t i = 0; i < n; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return difference == 0;
}

static void become_admin(struct actor *actor, const char *name)
{
    actor->scopes = SCOPE_ADMIN;
    actor->workspaces = "";
    text_copy(actor->name, sizeof(actor->name), name);
    text_copy(actor->owner, sizeof(actor->owner), "admin");
}

static bool use_key(struct call *call, const char *key)
{
    struct store_key found;
    struct err err;
    char hash[FRONT_HASH];

    hash_hex(key, strlen(key), hash);
    if (equal(hash, call->front->admin_hash, FRONT_HASH - 1)) {
        become_admin(&call->actor, "admin");
        return true;
    }
    if (store_key_by_hash(call->front->store, &call->arena, hash, &found, &err) != 1)
        return false;
    call->actor.scopes = found.scopes;
    call->actor.workspaces = found.workspaces;
    text_copy(call->actor.owner, sizeof(call->actor.owner), found.owner);
    text_copy(call->actor.key, sizeof(call->actor.key), found.id);
    memcpy(call->actor.name, "key:", 4);
    text_copy(call->actor.name + 4, sizeof(call->actor.name) - 4, found.id);
    return true;
}

/* The token of a workspace that is there for a time: an agent's key for that one alone. */
static bool use_token(struct call *call, const char *token)
{
    struct store_workspace w;
    struct err err;
    char hash[FRONT_HASH];

    hash_hex(token, strlen(token), hash);
    if (store_workspace_by_token(call->front->store, &call->arena, hash, &w, &err) != 1)
        return false;
    router_become_workspace(call, &w);
    return call->actor.workspaces != NULL;
}

void router_become_workspace(struct call *call, const struct store_workspace *w)
{
    call->actor = (struct actor){.scopes = SCOPE_AGENT};
    call->actor.workspaces = arena_printf(&call->arena, "[\"%s\"]", w->id);
    text_copy(call->actor.owner, sizeof(call->actor.owner), w->owner);
    memcpy(call->actor.name, "token:", 6);
    text_copy(call->actor.name + 6, sizeof(call->actor.name) - 6, w->id);
}

bool router_use_key(struct call *call, const char *key)
{
    return strncmp(key, "ct_", 3) == 0 ? use_token(call, key) : use_key(call, key);
}

/* By the key; without one, over the Unix socket, by the peer's uid. */
bool router_identify(struct call *call)
{
    static const char scheme[] = "Bearer ";
    const char *header = http_header(http_request_of(call->x), "authorization");
    int64_t uid = http_peer_uid(call->x);

    if (header)
        return strncasecmp(header, scheme, sizeof(scheme) - 1) == 0 &&
               router_use_key(call, header + sizeof(scheme) - 1);
    if (uid != 0 && (uid < 0 || uid != call->front->broker_uid))
        return false;
    become_admin(&call->actor, "socket");
    return true;
}

/* The one owner check. Absent, deleted for good and somebody else's look the same. */
static bool find_workspace(struct call *call)
{
    struct err err;

    if (!strstr(call->route->path, "{ws}"))
        return true;
    int found = store_workspace_get(call->front->store, &call->arena, call->params[0],
                                    &call->workspace, &err);
    if (found < 0) {
        call_fail(call, &err);
        return false;
    }
    if (found == 1 && actor_may_see(&call->actor, call->workspace.owner, call->workspace.id)) {
        call->planned = planned_is(&call->actor, &call->workspace);
        return planned_admits(call);
    }
    call_error(call, 404, "not_found", "there is no workspace '%s'", call->params[0]);
    return false;
}

bool router_recheck(struct call *call)
{
    const char *secret = call->actor.secret;
    unsigned wanted = call->route->scopes;

    call->actor = (struct actor){.scopes = 0};
    bool known = secret ? router_use_key(call, secret) : router_identify(call);
    call->actor.secret = secret;
    if (known && (secret || (call->actor.scopes & wanted)))
        return find_workspace(call);
    call_error(call, 401, "unauthorized", "the key is no longer valid");
    return false;
}

/* A parameter that is misspelt must not do what its absence does. */
static bool knows_query(struct call *call)
{
    const char *known = call->route->query;
    size_t n = 0;
    const char *other = http_query_other(http_request_of(call->x)->query, known, &n);

    if (!other)
        return true;
    call_error(call, 400, "invalid_request", "there is no parameter '%.*s' here%s%s",
               (int)(n < 100 ? n : 100), other, *known ? "; there are: " : "", known);
    return false;
}

static void refuse_unrouted(struct call *call)
{
    const struct http_request *request = http_request_of(call->x);
    const char *method =
        request->method == HTTP_OTHER ? "this method" : http_method_name(request->method);

    if (call->allow)
        call_error(call, 405, "method_not_allowed",
                   "no route for %s %.200s; it takes other methods", method, request->path);
    else
        call_error(call, 404, "not_found", "no route for %s %.200s; all routes: /openapi.json",
                   method, request->path);
}

static bool admit(struct call *call)
{
    bool is_port = call->front->is_for_port(call);

    bool is_foreign = !is_port && call->front->is_foreign && call->front->is_foreign(call);
    if (is_port)
        call->route = call->front->port_route;
    else if (!is_foreign)
        find_route(call);
    if (call->route && call->route->scopes == 0 && !is_port && !is_foreign)
        return true;
    if (!call->front->resumed || call->front->draining) {
        call_error(call, 503, "unavailable", "the daemon is starting or stopping; try again");
        return false;
    }
    if (is_port && http_request_of(call->x)->method == HTTP_OTHER) {
        call_error(call, 501, "unsupported", "this method is not passed on");
        return false;
    }
    if (is_port)
        return true; /* who may is asked there */
    if (is_foreign)
        return call->front->admit_foreign(call);
    if (!router_identify(call)) {
        call_error(call, 401, "unauthorized",
                   "a valid key is needed: send 'Authorization: Bearer KEY'");
        return false;
    }
    if (!live_charge(call, call->actor.owner, call->actor.scopes & SCOPE_ADMIN))
        return false;
    if (!call->route) {
        refuse_unrouted(call);
        return false;
    }
    if (!(call->actor.scopes & call->route->scopes)) {
        char wanted[96];
        call_error(call, 403, "forbidden", "this key lacks the scope %s",
                   scopes_wanted(call->route->scopes, wanted, sizeof(wanted)));
        return false;
    }
    return find_workspace(call) && knows_query(call);
}

/* Every answer has an id, whoever gives it. */
static void on_refusal(void *owner, struct exchange *x, char *headers, size_t size)
{
    const struct call *call = x ? http_data(x) : NULL;
    char id[28];

    (void)owner;
    make_id('r', id);
    snprintf(headers, size, "X-Request-Id: %s\r\n", call ? call->id : id);
}

/* False: answered. */
static bool open_account(struct call *call)
{
    const char *owner = call->workspace.owner ? call->workspace.owner : call->actor.owner;

    if (!call->route->body || call->route->body == HTTP_BODY_STREAM)
        return true;
    call->tenant = owner_use_use(call->front, owner);
    if (call->tenant)
        http_set_account(call->x, &call->tenant->bodies);
    else
        call_error(call, 503, "unavailable", "out of memory");
    return call->tenant != NULL;
}

static int64_t on_head(void *owner, struct exchange *x)
{
    struct call *call = calloc(1, sizeof(*call));

    if (!call) {
        static const char failed[] =
            "{\"error\":{\"code\":\"unavailable\",\"message\":\"out of memory\"}}";
        char headers[64];
        on_refusal(owner, x, headers, sizeof(headers));
        http_reply(x, 503, "application/json", headers, failed, sizeof(failed) - 1);
        return 0;
    }
    call->front = owner;
    call->x = x;
    call->began_us = now_us();
    arena_init(&call->arena, ARENA_BYTES);
    make_id('r', call->id);
    http_set_data(x, call);
    live_add(call);
    if (!admit(call) || !open_account(call))
        return 0;
    int64_t body = call->route->body;
    if (body == HTTP_BODY_STREAM)
        call->route->handle(call);
    return body;
}

/* Whether it is an object; else that is answered. */
static bool take_json(struct call *call, const struct parsed *parsed)
{
    call->body = parsed->json;
    if (parsed->has_too_many)
        call_error(call, 413, "too_large", "the body has more than %d values", PARSER_MOST_VALUES);
    else if (!parsed->json)
        call_error(call, 400, "invalid_request", "the body is not proper JSON: %s (line %d)",
                   parsed->error.text, parsed->error.line);
    else if (!json_is_object(parsed->json))
        call_error(call, 400, "invalid_request", "the body must be a JSON object");
    else
        return true;
    return false;
}

/* The body may have taken its time: keys are revoked meanwhile, and workspaces deleted. */
static bool still_may(struct call *call)
{
    return !call->route->body || !call->route->scopes || router_recheck(call);
}

static void heard_json(struct call *call, const struct parsed *parsed)
{
    if (!call->x || !still_may(call))
        json_decref(parsed->json);
    else if (take_json(call, parsed))
        call->route->handle(call);
}

static void parse_body(struct call *call)
{
    struct parsed parsed = {0};
    size_t n;
    const char *bytes = http_body(call->x, &n);

    if (n > PARSER_AT_ONCE) {
        if (!parser_give(call->front->parser, call, heard_json))
            call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    if (n == 0)
        parsed.json = json_object();
    else
        parse_json(bytes, n, &parsed);
    if (take_json(call, &parsed))
        call->route->handle(call);
}

static void on_request(void *owner, struct exchange *x)
{
    struct call *call = http_data(x);

    (void)owner;
    if (!call || !call->route)
        return; /* answered at the head */
    if (call->route->body == HTTP_BODY_STREAM) {
        if (call->whole)
            call->whole(call);
        return;
    }
    if (call->status)
        return; /* likewise */
    if (!still_may(call))
        return;
    if (call->route->body && !(call->route->flags & RAW))
        parse_body(call);
    else
        call->route->handle(call);
}

static size_t on_body(void *owner, struct exchange *x, const char *bytes, size_t n)
{
    struct call *call = http_data(x);

    (void)owner;
    return call && call->piece ? call->piece(call, bytes, n) : n;
}

static void on_done(void *owner, struct exchange *x, bool complete)
{
    struct call *call = http_data(x);

    (void)owner;
    (void)complete;
    if (!call)
        return;
    call->front->count.request_us += now_us() - call->began_us;
    call->x = NULL;
    if (call->leaving)
        call->leaving(call);
    if (call->abandoned)
        call->abandoned(call);
    if (call->pending == 0)
        router_free(call);
}

const struct http_calls router_calls = {.on_head = on_head,
                                        .on_body = on_body,
                                        .on_request = on_request,
                                        .on_done = on_done,
                                        .on_refusal = on_refusal,
                                        .on_evict = live_evicted};
