/* SPDX-License-Identifier: Apache-2.0 */
#include "front/e2b/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "front/core/live.h"
#include "front/e2b/e2b.h"
#include "front/ports/routes.h"
#include "protocol/broker.h"

static void nowhere(struct call *call);
static void port(struct call *call);

static const struct route unknown = {
    .path = "", .body = BODY_SMALL, .flags = RAW | FOREIGN, .handle = nowhere};
static const struct route to_port = {
    .path = "", .body = HTTP_BODY_STREAM, .flags = RAW | FOREIGN, .handle = port};

/* --- which --- */

/* A port and a sandbox, as a request says where it goes. */
struct place {
    unsigned port;
    char id[FRONT_ID];
    bool is_broken; /* only half of it is said */
};

static bool read_port(const char *text, size_t n, unsigned *ret)
{
    unsigned number = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || n > 5)
            return false;
        number = number * 10 + (unsigned)(text[i] - '0');
    }
    *ret = number;
    return n > 0 && number > 0 && number <= 65535;
}

/* PORT-ID.anything */
static bool place_of_host(const char *host, struct place *ret)
{
    size_t port_n = host ? strspn(host, "0123456789") : 0;

    if (port_n == 0 || host[port_n] != '-' || !read_port(host, port_n, &ret->port))
        return false;
    const char *id = host + port_n + 1;
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789");
    if (n == 0 || n >= sizeof(ret->id) || id[n] != '.')
        return false;
    memcpy(ret->id, id, n);
    ret->id[n] = '\0';
    return true;
}

static bool place_of(const struct http_request *request, struct place *ret)
{
    const char *id = http_header(request, "e2b-sandbox-id");
    const char *number = http_header(request, "e2b-sandbox-port");

    *ret = (struct place){.port = 0};
    if (place_of_host(http_header(request, "host"), ret))
        return true;
    if (!id && !number)
        return false;
    ret->is_broken = !id || !number || !protocol_id_is_valid(id) ||
                     !read_port(number, strlen(number), &ret->port);
    if (!ret->is_broken)
        memcpy(ret->id, id, strlen(id) + 1);
    return true;
}

static const struct route *route_in(struct call *call, const struct route *table)
{
    const struct http_request *request = http_request_of(call->x);
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;

    for (const struct route *route = table; route->path; route++) {
        if (route->method == method && router_match(call, route->path, request->path))
            return route;
    }
    return &unknown;
}

/* What their API has and we have not is told in their words, too. */
static bool is_control(const struct http_request *request)
{
    static const char *const roots[] = {
        "/sandboxes", "/v2/sandboxes", "/templates",     "/v2/templates", "/v3/templates",
        "/snapshots", "/volumes",      "/volumecontent", "/secrets",      "/teams"};

    if (http_header(request, "x-api-key") && !http_header(request, "authorization"))
        return true;
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        size_t n = strlen(roots[i]);
        if (strncmp(request->path, roots[i], n) == 0 &&
            (request->path[n] == '\0' || request->path[n] == '/'))
            return true;
    }
    return false;
}

bool e2b_takes(struct call *call)
{
    const struct http_request *request = http_request_of(call->x);
    struct place place;

    call->translate = e2b_words;
    if (place_of(request, &place)) {
        call->route = place.is_broken          ? &unknown
                      : place.port == E2B_ENVD ? route_in(call, e2b_envd_routes)
                      : place.port == E2B_CODE ? route_in(call, e2b_code_routes)
                                               : &to_port;
        return true;
    }
    if (strcmp(request->path, "/files") == 0) {
        call->route = route_in(call, e2b_envd_routes);
        return true;
    }
    if (is_control(request)) {
        call->route = route_in(call, e2b_control_routes);
        return true;
    }
    call->translate = NULL;
    return false;
}

/* --- whose --- */

bool e2b_same(const char *a, const char *b)
{
    size_t n = strlen(a); /* which is no secret */
    unsigned char difference = n != strlen(b);

    for (size_t i = 0; i < n && strlen(b) == n; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return difference == 0;
}

void e2b_gone(struct call *call, const char *id)
{
    call_json(call, 502,
              json_pack("{s:s, s:s, s:i}", "sandboxId", id, "message", "The sandbox was not found",
                        "code", 502));
}

bool e2b_lifetime(struct call *call, struct lifetime *ret)
{
    return !call->workspace.deleted_ms && lifetime_of(&call->workspace, &call->arena, ret);
}

static bool find(struct call *call, const char *id)
{
    struct err err;
    int found = store_workspace_get(call->front->store, &call->arena, id, &call->workspace, &err);

    if (found < 0)
        call_fail(call, &err);
    else if (found == 0)
        e2b_gone(call, id);
    return found > 0;
}

static void refuse_token(struct call *call, const char *why)
{
    call_json(call, 401, json_pack("{s:i, s:s}", "code", 401, "message", why));
}

static bool has_token(struct call *call, const struct lifetime *l)
{
    const char *given = http_header(http_request_of(call->x), "x-access-token");

    if (given && e2b_same(given, l->token))
        return true;
    refuse_token(call, given ? "access token present in header but does not match"
                             : "unauthorized access, please provide a valid access token or "
                               "method signing if supported");
    return false;
}

/* A port is open to whoever knows the name of the sandbox, unless it was made otherwise. */
static bool may_port(struct call *call, const struct lifetime *l)
{
    const char *given = http_header(http_request_of(call->x), "e2b-traffic-access-token");

    if (!ports_allow(call->front, "token")) {
        call_error(call, 403, "forbidden", "the daemon's setting ports=%s does not allow this",
                   call->front->settings->ports);
        return false;
    }
    if (!l->private_ports || (given && e2b_same(given, l->port_token)))
        return true;
    call_json(call, 403,
              json_pack("{s:s, s:s, s:i}", "sandboxId", call->workspace.id, "message",
                        given ? "The traffic access token is not valid"
                              : "The sandbox wants a traffic access token",
                        "code", 403));
    return false;
}

/* The code interpreter's clients show the token when they run code, and not with contexts. The name
 * of a sandbox is in the address of each of its pages: it is no reason to run anything. */
static bool may_enter(struct call *call, const struct place *place, const struct lifetime *l)
{
    const struct http_request *request = http_request_of(call->x);

    if (place->port == E2B_CODE)
        return strcmp(call->route->path, "/execute") == 0 || http_header(request, "x-access-token")
                   ? has_token(call, l)
                   : may_port(call, l);
    if (place->port != E2B_ENVD)
        return may_port(call, l);
    if (strcmp(request->path, "/health") == 0)
        return true;
    if (strcmp(request->path, "/files") == 0 && !http_header(request, "x-access-token"))
        return e2b_signature(call, request->method == HTTP_POST, l);
    return has_token(call, l);
}

static bool enter(struct call *call, const struct place *place)
{
    struct lifetime l;

    if (!find(call, place->id))
        return false;
    if (!e2b_lifetime(call, &l)) {
        e2b_gone(call, place->id);
        return false;
    }
    if (!may_enter(call, place, &l))
        return false;
    if (l.paused && !l.resume) {
        e2b_gone(call, place->id);
        return false;
    }
    if (l.paused && !lifetime_resume(call, &call->workspace))
        return false;
    router_become_workspace(call, &call->workspace);
    call->actor.secret = l.token;
    return live_charge(call, call->workspace.owner, false);
}

static bool admit_control(struct call *call)
{
    const char *key = http_header(http_request_of(call->x), "x-api-key");

    if (!key || strncmp(key, "ct_", 3) == 0 || !router_use_key(call, key)) {
        refuse_token(call, "a valid key is needed: set E2B_API_KEY to one of this daemon's keys");
        return false;
    }
    call->actor.secret = key;
    return live_charge(call, call->actor.owner, call->actor.scopes & SCOPE_ADMIN);
}

bool e2b_admit(struct call *call)
{
    const struct http_request *request = http_request_of(call->x);
    struct place place;

    if (place_of(request, &place)) {
        if (place.is_broken) {
            call_error(call, 400, "invalid_request",
                       "E2b-Sandbox-Id and E2b-Sandbox-Port come together: the id of a sandbox, "
                       "and a number from 1 to 65535");
            return false;
        }
        return enter(call, &place);
    }
    if (strcmp(request->path, "/files") == 0)
        return e2b_signed(call, request->method == HTTP_POST);
    return admit_control(call);
}

/* --- where --- */

static void nowhere(struct call *call)
{
    const struct http_request *request = http_request_of(call->x);

    call_error(call, 404, "not_found", "this daemon has no %s %.200s (docs/from-e2b.md)",
               request->method == HTTP_OTHER ? "such method for" : "such route:", request->path);
}

static void port(struct call *call)
{
    struct place place;

    if (!place_of(http_request_of(call->x), &place))
        return;
    call->translate = e2b_port_words;
    call->number = place.port;
    port_pass(call, place.port);
}
