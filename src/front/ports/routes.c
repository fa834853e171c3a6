/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/ports */
#include "front/ports/routes.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/clock.h"
#include "front/core/record.h"
#include "policy/policy.h"

#define PORTS "/v1/workspaces/{ws}/ports"

const struct route port_routes[] = {
    {HTTP_GET, PORTS, READERS, 0, 0, ports_list, "", IN_PLAN},
    {HTTP_POST, PORTS "/{port}", WORKERS, BODY_SMALL, 0, ports_open, "", IN_PLAN},
    {HTTP_DELETE, PORTS "/{port}", WORKERS, 0, 0, ports_close, "", IN_PLAN},
    ROUTES_END,
};

enum {
    TOKEN = 28,
    ADDRESS = 300, /* a host with its port */
};

/* --- addresses --- */

/* "HOST:PORT" as the client knows us; over the Unix socket, where we listen for TCP. "": nowhere */
static const char *own_address(const struct call *call)
{
    const char *host = http_header(http_request_of(call->x), "host");

    if (http_peer_uid(call->x) >= 0)
        return call->front->address;
    return host && strlen(host) < ADDRESS ? host : call->front->address;
}

static const char *scheme(const struct call *call)
{
    const char *proto = http_header(http_request_of(call->x), "x-forwarded-proto");

    return proto && strcasecmp(proto, "https") == 0 ? "https" : "http";
}

/* With a name of its own: to a browser another place than the daemon and other ports. There is none
 * below a number. */
static json_t *host_url(const struct call *call, const char *address, const char *token)
{
    char host[ADDRESS];
    const char *colon = strrchr(address, ':');
    struct in_addr number;

    if (colon && strchr(colon, ']'))
        colon = NULL;
    size_t n = colon ? (size_t)(colon - address) : strlen(address);
    if (n == 0 || n >= sizeof(host))
        return json_null();
    memcpy(host, address, n);
    host[n] = '\0';
    if (strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0)
        memcpy(host, "localhost", sizeof("localhost"));
    if (host[0] == '[' || inet_aton(host, &number))
        return json_null();
    return json_sprintf("%s://%s.%s%s/", scheme(call), token, host, colon ? colon : "");
}

static json_t *port_json(const struct call *call, const struct store_port *port, const char *token)
{
    const char *address = own_address(call);
    json_t *object = json_pack("{s:s, s:i, s:s, s:s, s:o}", "workspace", port->workspace, "port",
                               (int)port->port, "access", port->access, "made_by", port->made_by,
                               "created", time_json(port->created_ms));

    json_object_set_new(object, "path", *token ? json_sprintf("/p/%s/", token) : json_null());
    json_object_set_new(object, "url",
                        *token && *address
                            ? json_sprintf("%s://%s/p/%s/", scheme(call), address, token)
                            : json_null());
    json_object_set_new(object, "host_url", *token ? host_url(call, address, token) : json_null());
    return object;
}

/* --- who may --- */

bool ports_allow(const struct front *front, const char *access)
{
    const char *allowed = front->settings->ports;

    return strcmp(allowed, "token") == 0 || strcmp(allowed, access) == 0;
}

static bool read_port(struct call *call, unsigned *ret)
{
    const char *text = call->params[1];
    unsigned port = 0;

    for (size_t i = 0; i < 5 && text[i] >= '0' && text[i] <= '9'; i++)
        port = port * 10 + (unsigned)(text[i] - '0');
    *ret = port;
    if (port > 0 && port <= 65535 && text[0] != '0' && strspn(text, "0123456789") == strlen(text) &&
        strlen(text) <= 5)
        return true;
    call_bad_field(call, "port", "a number from 1 to 65535");
    return false;
}

/* With the host's network a port "inside" would be any of the host's own. */
static bool has_own_network(struct call *call)
{
    struct policy *policy = arena_alloc(&call->arena, sizeof(*policy));
    struct err err;

    if (!policy) {
        call_error(call, 503, "unavailable", "out of memory");
    } else if (policy_parse(policy, &call->arena, call->workspace.policy,
                            strlen(call->workspace.policy), &err) < 0) {
        call_fail(call, &err);
    } else if (policy->net == CARREL_NET_HOST) {
        call_error(call, 409, "unsupported",
                   "the workspace uses the host's network; its ports are reached there directly");
    } else {
        return true;
    }
    return false;
}

/* --- opening --- */

struct new_port {
    struct store_port row;
    char token[TOKEN];
    char hash[FRONT_HASH];
};

/* An agent of planned writes has none of the ports that lead into the tree's own sandbox. */
static bool is_anothers(struct call *call, const struct store_port *port)
{
    if (!call->planned || strcmp(port->made_by, call->actor.name) == 0)
        return false;
    call_error(call, 403, "forbidden",
               "port %u was opened with another key; the policy of this workspace says \"writes\": "
               "\"plan\", so an agent's key opens and closes ports of its own plan only",
               port->port);
    return true;
}

/* All that are open of the workspace; how many, or -1. */
static int read_open(struct call *call, struct store_port **ret, struct err *err)
{
    *ret = arena_alloc(&call->arena, STORE_PORTS_MOST * sizeof(**ret));
    return *ret ? store_ports(call->front->store, &call->arena, call->workspace.id, *ret, err) : -1;
}

static bool has_room(struct call *call, unsigned port)
{
    struct store_port *open;
    struct err err = {.code = ERR_LIMIT};
    int n = read_open(call, &open, &err);

    if (n < 0) {
        call_fail(call, &err);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (open[i].port == port)
            return !is_anothers(call, &open[i]);
    }
    if (n < STORE_PORTS_MOST)
        return true;
    call_quota(call, "ports", "%d ports of this workspace are open already", n);
    return false;
}

/* Whether what is on record may still be done: while that was written the key may have been
 * revoked, or the port become another's. False: answered, and on record. */
static bool may_still(struct call *call, const char *operation, unsigned port,
                      bool (*may)(struct call *, unsigned))
{
    const struct front_record r = {.actor = call->actor.name,
                                   .request = call->id,
                                   .workspace = call->workspace.id,
                                   .operation = operation,
                                   .result = "refused"};

    if (!call_still_may(call))
        call_no_more(call);
    else if (may(call, port))
        return true;
    front_record(call->front, &r, json_pack("{s:i}", "port", (int)port), NULL, NULL);
    return false;
}

static void recorded_open(struct call *call, struct answer *answer)
{
    struct new_port *port = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    if (!may_still(call, "port.open", port->row.port, has_room))
        return;
    if (store_port_put(call->front->store, &port->row, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    port_cut(call->front, port->row.workspace, port->row.port); /* by an address of before */
    if (call->x)
        call_json(call, 201, port_json(call, &port->row, port->token));
}

static bool read_access(struct call *call, const char **ret)
{
    static const char *const known[] = {"access", NULL};

    *ret = "key";
    if (!fields_known(call, call->body, known) || !field_text(call, call->body, "access", 16, ret))
        return false;
    if (strcmp(*ret, "key") != 0 && strcmp(*ret, "token") != 0) {
        call_bad_field(call, "access", "\"key\" or \"token\"");
        return false;
    }
    if (ports_allow(call->front, *ret))
        return true;
    call_error(call, 403, "forbidden", "the daemon's setting ports=%s does not allow this",
               call->front->settings->ports);
    return false;
}

void ports_open(struct call *call)
{
    struct new_port *port = arena_alloc(&call->arena, sizeof(*port));
    const char *access;
    unsigned number;

    if (!read_port(call, &number) || !read_access(call, &access) || !has_own_network(call) ||
        !has_room(call, number))
        return;
    if (call->workspace.deleted_ms || !port) {
        call_error(call, 409, "conflict", "the workspace is in the trash; undelete it first");
        return;
    }
    bool secret = strcmp(access, "token") == 0;
    make_id('p', port->token);
    hash_hex(port->token, strlen(port->token), port->hash);
    port->row = (struct store_port){.workspace = call->workspace.id,
                                    .port = number,
                                    .hash = port->hash,
                                    .token = secret ? "" : port->token,
                                    .access = secret ? "token" : "key",
                                    .made_by = call->actor.name,
                                    .created_ms = wall_ms()};
    call->context = port;
    call_record(call, call->workspace.id, "port.open", "ok",
                json_pack("{s:i, s:s}", "port", (int)number, "access", port->row.access),
                recorded_open);
}

/* --- looking and closing --- */

void ports_list(struct call *call)
{
    struct store_port *open;
    struct err err = {.code = ERR_LIMIT};
    int n = read_open(call, &open, &err);

    if (n < 0) {
        call_fail(call, &err);
        return;
    }
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, port_json(call, &open[i], open[i].token));
    call_json(call, 200, json_pack("{s:o, s:n}", "ports", list, "next"));
}

static bool is_open(struct call *call, unsigned port)
{
    struct store_port *open;
    struct err err;
    int n = read_open(call, &open, &err);

    for (int i = 0; i < n; i++) {
        if (open[i].port == port)
            return !is_anothers(call, &open[i]);
    }
    call_error(call, 404, "not_found", "port %u of this workspace is not open", port);
    return false;
}

static void recorded_close(struct call *call, struct answer *answer)
{
    const unsigned *number = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    if (!may_still(call, "port.close", *number, is_open))
        return;
    if (store_port_remove(call->front->store, call->workspace.id, *number, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    port_cut(call->front, call->workspace.id, *number);
    call_empty(call);
}

void ports_close(struct call *call)
{
    unsigned *number = arena_alloc(&call->arena, sizeof(*number));

    if (!number) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    if (!read_port(call, number) || !is_open(call, *number))
        return;
    call->context = number;
    call_record(call, call->workspace.id, "port.close", "ok",
                json_pack("{s:i}", "port", (int)*number), recorded_close);
}
