/* SPDX-License-Identifier: Apache-2.0 */
/* The address itself: who may ask from where, which of the two protocols a message speaks, and
 * whether its head says what its body does. */
#include "front/mcp/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/network.h"
#include "front/core/live.h"
#include "front/core/parser.h"
#include "front/core/scope.h"
#include "front/mcp/mcp.h"
#include "protocol/broker.h"
#ifdef CARREL_MCP_FIXTURES
#include "front/mcp/fixtures.h"
#endif

/* What a tool changes is looked after by the route that it asks. There is no GET: nothing is said
 * but in answers, and neither protocol has to offer a stream beside them. */
const struct route mcp_routes[] = {
    {HTTP_POST, "/mcp", VIEWERS, BODY_FILES, RAW, mcp_post, "workspace", NOT_IN_PLAN},
    {HTTP_DELETE, "/mcp", VIEWERS, 0, 0, mcp_delete, "workspace", NOT_IN_PLAN},
    ROUTES_END,
};

static const char *const legacy[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

enum {
    LEGACY = sizeof(legacy) / sizeof(legacy[0]),
};

static bool is_legacy(const char *version)
{
    for (size_t i = 0; i < LEGACY; i++) {
        if (strcmp(version, legacy[i]) == 0)
            return true;
    }
    return false;
}

static const char *header(const struct call *call, const char *name)
{
    return http_header(http_request_of(call->x), name);
}

/* --- from where --- */

/* Whether a list of the settings has this. */
static bool lists(const char *list, const char *text, size_t n)
{
    while (*list) {
        size_t one = strcspn(list, " ,\t");
        if ((one == 1 && *list == '*') || (one > 0 && one == n && strncasecmp(list, text, n) == 0))
            return true;
        list += one;
        list += strspn(list, " ,\t");
    }
    return false;
}

/* The name in HOST[:PORT]. */
static size_t name_of(const char *host)
{
    if (*host == '[') {
        const char *end = strchr(host, ']');
        return end ? (size_t)(end - host) + 1 : 0;
    }
    return strcspn(host, ":");
}

static bool is_this_host(const char *name, size_t n)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == n && strncasecmp(name, names[i], n) == 0)
            return true;
    }
    return false;
}

/* A page that has another name lead here can give that name only, and no address. */
static bool is_address(const char *name, size_t n)
{
    char text[80];
    struct networks one = {0};
    const char *at = NULL;

    if (n > 2 && *name == '[') {
        name++;
        n -= 2;
    }
    if (n == 0 || n >= sizeof(text))
        return false;
    memcpy(text, name, n);
    text[n] = '\0';
    return !strpbrk(text, "/ ,") && networks_parse(text, &one, &at);
}

static bool host_may(const struct call *call)
{
    const char *host = header(call, "host");
    size_t n = host ? name_of(host) : 0;

    return http_peer_uid(call->x) >= 0 || is_this_host(host, n) || is_address(host, n) ||
           lists(call->front->settings->mcp_hosts, host, n);
}

static bool origin_may(const struct call *call)
{
    const char *origin = header(call, "origin");

    if (!origin)
        return true;
    const char *host = strstr(origin, "://");
    if (host && (strncmp(origin, "http://", 7) == 0 || strncmp(origin, "https://", 8) == 0) &&
        is_this_host(host + 3, name_of(host + 3)))
        return true;
    return lists(call->front->settings->mcp_origins, origin, strlen(origin));
}

static bool may(struct call *call)
{
    if (host_may(call) && origin_may(call))
        return true;
    call_error(call, 403, "forbidden",
               "/mcp refuses this Host or Origin; to allow it, set mcp_hosts or mcp_origins of the "
               "daemon");
    return false;
}

/* --- the workspace of the address, or of the key --- */

/* The only one that the key was made for; "": there is none such. */
static void only_of(const struct actor *actor, char ret[FRONT_ID])
{
    json_t *list = actor->workspaces && *actor->workspaces ? json_parsed(actor->workspaces) : NULL;
    const char *id = json_string_value(json_array_get(list, 0));

    *ret = '\0';
    if (id && json_array_size(list) == 1 && protocol_id_is_valid(id))
        snprintf(ret, FRONT_ID, "%s", id);
    json_decref(list);
}

static bool take_workspace(struct mcp_ask *ask)
{
    struct call *call = ask->call;
    const char *fixed;

    if (!call_text(call, "workspace", &fixed))
        return false;
    if (fixed && !protocol_id_is_valid(fixed)) {
        call_bad_field(call, "workspace", "the id of a workspace");
        return false;
    }
    ask->is_fixed = fixed != NULL;
    if (fixed)
        snprintf(ask->workspace, sizeof(ask->workspace), "%s", fixed);
    else
        only_of(&call->actor, ask->workspace);
    return true;
}

/* --- the newer protocol --- */

/* A value as it is meant: =?base64?...?= has bytes that no header could. */
static bool means(struct mcp_ask *ask, const char *value, const char *expected)
{
    static const char prefix[] = "=?base64?";
    size_t skip = sizeof(prefix) - 1;
    size_t n = strlen(value);

    if (n < skip + 2 || strncmp(value, prefix, skip) != 0 || strcmp(value + n - 2, "?=") != 0)
        return strcmp(value, expected) == 0;
    char *plain = arena_alloc(&ask->call->arena, n);
    ssize_t size = plain ? bytes_from_base64(value + skip, n - skip - 2, plain) : -1;
    return size >= 0 && (size_t)size == strlen(expected) &&
           memcmp(plain, expected, (size_t)size) == 0;
}

static bool agrees(struct mcp_ask *ask, const char *name, const char *shown, const char *expected)
{
    const char *value = header(ask->call, name);

    if (value && means(ask, value, expected))
        return true;
    mcp_error(ask, 400, MCP_HEADER_MISMATCH, NULL,
              "the header %s is %s%.100s, and the body says '%.100s'", shown,
              value ? "" : "missing", value ? value : "", expected);
    return false;
}

/* What a header repeats of the params; NULL: nothing. */
static const char *name_in(const struct mcp_ask *ask, const char *method)
{
    const char *member = strcmp(method, "tools/call") == 0 || strcmp(method, "prompts/get") == 0
                             ? "name"
                         : strcmp(method, "resources/read") == 0 ? "uri"
                                                                 : NULL;

    return member ? json_string_value(json_object_get(ask->params, member)) : NULL;
}

static bool check_modern(struct mcp_ask *ask, const char *method)
{
    const json_t *meta = json_object_get(ask->params, "_meta");
    const char *version = json_string_value(json_object_get(meta, MCP_META "protocolVersion"));

    if (!version || !json_is_object(json_object_get(meta, MCP_META "clientCapabilities"))) {
        mcp_error(ask, 400, MCP_BAD_PARAMS, NULL,
                  "params._meta needs \"" MCP_META "protocolVersion\" and \"" MCP_META
                  "clientCapabilities\"");
        return false;
    }
    if (!agrees(ask, "mcp-protocol-version", "MCP-Protocol-Version", version))
        return false;
    if (strcmp(version, MCP_MODERN_VERSION) != 0) {
        mcp_error(ask, 400, MCP_NO_VERSION,
                  json_pack("{s:[s], s:s}", "supported", MCP_MODERN_VERSION, "requested", version),
                  "this server does not speak version '%.40s'", version);
        return false;
    }
    const char *name = name_in(ask, method);
    return agrees(ask, "mcp-method", "Mcp-Method", method) &&
           (!name || agrees(ask, "mcp-name", "Mcp-Name", name));
}

/* Whether a message is of the newer protocol: its body says so, or its head. */
static bool is_modern(const struct mcp_ask *ask, const char *method)
{
    const json_t *meta = json_object_get(ask->params, "_meta");
    const char *version = header(ask->call, "mcp-protocol-version");

    if (json_object_get(meta, MCP_META "protocolVersion") ||
        json_object_get(meta, MCP_META "clientCapabilities") ||
        strcmp(method, "server/discover") == 0)
        return true;
    if (header(ask->call, "mcp-session-id") || (version && is_legacy(version)))
        return false;
    return version || header(ask->call, "mcp-method");
}

/* --- the older one --- */

static void initialize(struct mcp_ask *ask)
{
    const char *wanted = json_string_value(json_object_get(ask->params, "protocolVersion"));
    char head[96];

    if (!wanted) {
        mcp_error(ask, 400, MCP_BAD_PARAMS, NULL, "params.protocolVersion is missing");
        return;
    }
    if (!mcp_session_open(ask->call, ask->session)) {
        mcp_error(ask, 503, MCP_INTERNAL, NULL, "out of memory");
        return;
    }
    snprintf(head, sizeof(head), "Mcp-Session-Id: %s\r\n", ask->session);
    json_t *result = json_pack("{s:s, s:o, s:o}", "protocolVersion",
                               is_legacy(wanted) ? wanted : MCP_LATEST_LEGACY, "capabilities",
                               mcp_capabilities(), "serverInfo", mcp_server_info());
    json_object_set_new(result, "instructions", json_string(mcp_instructions));
    mcp_result_with(ask, result, head);
}

static bool check_legacy(struct mcp_ask *ask)
{
    const char *version = header(ask->call, "mcp-protocol-version");
    const char *session = header(ask->call, "mcp-session-id");

    if (version && !is_legacy(version)) {
        mcp_error(ask, 400, MCP_INVALID, NULL,
                  "in a session this server does not speak version '%.40s'", version);
        return false;
    }
    if (!session) {
        mcp_error(ask, 400, MCP_INVALID, NULL,
                  "the header Mcp-Session-Id is missing; 'initialize' gives one");
        return false;
    }
    if (!mcp_session_find(ask->call, session)) {
        mcp_error(ask, 404, MCP_INVALID, NULL,
                  "there is no such session; it may have ended; begin one by 'initialize'");
        return false;
    }
    snprintf(ask->session, sizeof(ask->session), "%s", session);
    return true;
}

/* The one of this session with that id. */
static struct mcp_ask *find_ask(struct mcp_ask *of, const json_t *id)
{
    for (struct mcp_ask *a = of->front->mcp->asks; a; a = a->next) {
        if (a != of && !a->modern && a->id && !a->over && strcmp(a->session, of->session) == 0 &&
            json_equal(a->id, id))
            return a;
    }
    return NULL;
}

/* A notification, or an answer to a request of ours. */
static void take_note(struct mcp_ask *ask, const char *method)
{
    if (!ask->modern && method && strcmp(method, "notifications/cancelled") == 0) {
        struct mcp_ask *other = find_ask(ask, json_object_get(ask->params, "requestId"));
        if (other) {
            mcp_run_leave(other, true);
            inner_drop(other->inner);
            other->inner = NULL;
            mcp_silence(other);
        }
    }
#ifdef CARREL_MCP_FIXTURES
    if (!method)
        fixtures_reply(ask);
#endif
    ask->over = true;
    call_reply(ask->call, 202, NULL, NULL, "", 0);
}

/* --- a message --- */

static void left(struct call *call)
{
    struct mcp_ask *ask = call->context;

    /* Who speaks the newer protocol says by leaving that it wants no more of it. */
    mcp_run_leave(ask, ask->modern && !ask->over);
    inner_drop(ask->inner);
#ifdef CARREL_MCP_FIXTURES
    fixtures_left(ask);
#endif
    timer_stop(ask->front->events, &ask->ping);
    *ask->at = ask->next;
    if (ask->next)
        ask->next->at = ask->at;
    buf_clear(&ask->out);
    json_decref(ask->args);
    json_decref(ask->kept);
    json_decref(ask->message);
    free(ask);
}

/* Its place is needed, or its key was revoked: what it has asked for is told why. */
static void say_last(struct call *call, const struct ending *ending)
{
    struct mcp_ask *ask = call->context;

    if (ask->modern)
        mcp_run_end(ask);
    else
        mcp_run_leave(ask, false);
    inner_drop(ask->inner);
    ask->inner = NULL;
    mcp_error(ask, ending->status, MCP_INTERNAL, NULL, "%s", ending->message);
}

/* NULL: answered. */
static struct mcp_ask *make(struct call *call)
{
    struct mcp *mcp = mcp_of(call->front);
    struct mcp_ask *ask = mcp ? calloc(1, sizeof(*ask)) : NULL;

    if (!ask) {
        call_error(call, 503, "unavailable", "out of memory");
        return NULL;
    }
    ask->call = call;
    ask->front = call->front;
    ask->at = &mcp->asks;
    ask->next = mcp->asks;
    if (ask->next)
        ask->next->at = &ask->next;
    mcp->asks = ask;
    call->context = ask;
    call->abandoned = left;
    call->ending = say_last;
    if (!inner_asker_of(call, &ask->who)) {
        call_error(call, 401, "unauthorized", "the key is too long");
        return NULL;
    }
    return take_workspace(ask) ? ask : NULL;
}

static bool is_id(const json_t *id)
{
    return json_is_string(id) || json_is_integer(id);
}

static void answer(struct mcp_ask *ask)
{
    const json_t *version = json_object_get(ask->message, "jsonrpc");
    const char *method = json_string_value(json_object_get(ask->message, "method"));
    json_t *id = json_object_get(ask->message, "id");

    ask->id = is_id(id) ? id : NULL;
    ask->params = json_object_get(ask->message, "params");
    bool is_answer = !method && (json_object_get(ask->message, "result") ||
                                 json_object_get(ask->message, "error"));
    if (!json_is_string(version) || strcmp(json_string_value(version), "2.0") != 0 ||
        (!method && !is_answer) || (id && !ask->id) ||
        (ask->params && !json_is_object(ask->params))) {
        mcp_error(
            ask, 400, MCP_INVALID, NULL,
            "the body must be one JSON-RPC 2.0 message: \"jsonrpc\": \"2.0\", a method, an id "
            "that is a text or a whole number, and params that are an object");
        return;
    }
    ask->modern = method && is_modern(ask, method);
    if (ask->modern && ask->id && !check_modern(ask, method))
        return;
    if (!ask->modern && method && ask->id && strcmp(method, "initialize") == 0) {
        initialize(ask);
        return;
    }
    if (!ask->modern && !check_legacy(ask))
        return;
    if (!ask->id || is_answer)
        take_note(ask, method);
    else
        mcp_answer(ask, method);
}

static void heard(struct call *call, const struct parsed *parsed)
{
    struct mcp_ask *ask;

    /* Its bytes may have taken their time. */
    if (!call->x || !router_recheck(call) || !(ask = make(call))) {
        json_decref(parsed->json);
        return;
    }
    ask->message = parsed->json;
    if (parsed->has_too_many)
        mcp_error(ask, 413, MCP_INVALID, NULL, "the body has more than %d values",
                  PARSER_MOST_VALUES);
    else if (!parsed->json)
        mcp_error(ask, 400, MCP_PARSE, NULL, "the body is not proper JSON: %s (line %d)",
                  parsed->error.text, parsed->error.line);
    else if (!json_is_object(parsed->json))
        mcp_error(ask, 400, MCP_INVALID, NULL, "the body must be one message, not several");
    else
        answer(ask);
}

void mcp_post(struct call *call)
{
    struct parsed parsed = {0};
    size_t n;
    const char *bytes = http_body(call->x, &n);

    if (!may(call))
        return;
    if (n > PARSER_AT_ONCE) {
        if (!parser_give(call->front->parser, call, heard))
            call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    parse_json(bytes, n, &parsed);
    heard(call, &parsed);
}

void mcp_delete(struct call *call)
{
    const char *session = header(call, "mcp-session-id");
    const char *version = header(call, "mcp-protocol-version");

    if (!may(call))
        return;
    if (!session || (version && strcmp(version, MCP_MODERN_VERSION) == 0)) {
        call->allow = "Allow: POST, DELETE\r\n";
        call_error(call, 405, "method_not_allowed",
                   "DELETE ends a session; name one in the header Mcp-Session-Id");
    } else if (mcp_session_close(call, session)) {
        call_empty(call);
    } else {
        call_error(call, 404, "not_found", "there is no such session, or no more");
    }
}
