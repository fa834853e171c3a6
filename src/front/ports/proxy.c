/* SPDX-License-Identifier: Apache-2.0 */
/* A request to a port of a workspace, and the answer of the server there: heads are read and
 * written anew (http/forward.h), bodies pass through with their framing made anew, at the pace of
 * who takes them; one request for each connection inside.
 *
 *   handed to us --(file server connects)--> head and body of the request go in
 *     --head of the answer--> its body goes out, the rest of the request's still in
 *     --101--> bytes both ways, until both ends have ended                       */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/live.h"
#include "front/files/servers.h"
#include "front/plans/planned.h"
#include "front/ports/routes.h"
#include "http/forward.h"

enum {
    TOKEN = 27,
    HEAD_MS = 60000,        /* for the head of an answer, since the last byte was sent */
    KEPT = 65536,           /* of the request's body, until the server takes it */
    REQUEST_HEAD = 32768,   /* at most */
    ANSWER_HEAD = 65536,    /* at most, with its cookies under longer paths */
    ERROR_BODY = 4096,      /* of the file server's */
    MOST_CONNECTIONS = 512, /* to one workspace */
};

enum framing {
    UNTIL_CLOSED, /* also of what is not HTTP any more */
    SIZED,
    CHUNKED,
};

struct proxy {
    struct proxy *next; /* in front->proxies */
    struct proxy **at;
    struct call *call;
    unsigned port;
    char workspace[FRONT_ID];
    char sandbox[FRONT_ID]; /* as the broker names it: its own, or that of a plan */
    struct sandbox_request wanted;
    struct http_forward forward;
    char host[24];
    char prefix[40];
    struct files_stream *connecting;
    struct buf refusal; /* of the file server */
    int refused;        /* ... with this status; 200: it is not */
    int fd;             /* -1: not yet, or no more */
    struct watch watch;
    struct timer timer;
    struct buf out; /* towards the server */
    size_t out_at;
    bool deaf;       /* it takes no more */
    bool whole;      /* all of the request has come */
    bool client_end; /* of what is not HTTP any more */
    bool shut;
    bool upgrades; /* the request asks for that */
    bool raw;      /* and has got it */
    bool answered;
    char *in; /* HTTP_MAX_HEAD bytes, while there are any that nobody took */
    size_t in_at;
    size_t in_n;
    bool wants_in;
    enum framing framing;
    uint64_t left;
    struct http_chunks chunks;
    bool ended; /* the last chunk has come */
};

static void ready(struct watch *watch, uint32_t what);

/* --- the end --- */

/* Lets go of the server; the call still has its answer to give or to finish. */
static void stop(struct proxy *p)
{
    struct events *events = p->call->front->events;

    events_forget(events, &p->watch);
    timer_stop(events, &p->timer);
    scope_close(&p->fd);
    if (p->connecting)
        files_free(p->connecting);
    p->connecting = NULL;
    p->deaf = true;
    buf_clear(&p->out);
    p->out_at = 0;
    free(p->in);
    p->in = NULL;
    p->in_n = 0;
}

static void left(struct call *call)
{
    struct proxy *p = call->context;

    call->context = NULL;
    call->piece = NULL;
    call->whole = NULL;
    stop(p);
    *p->at = p->next;
    if (p->next)
        p->next->at = p->at;
    buf_clear(&p->refusal);
    free(p);
}

static void fail(struct proxy *p, int status, const char *code, const char *why)
{
    stop(p);
    if (p->answered && p->call->x)
        http_cut(p->call->x);
    else if (!p->answered)
        call_error(p->call, status, code, "the server on port %u inside %s", p->port, why);
    p->answered = true;
}

void port_cut(struct front *front, const char *where, unsigned port)
{
    for (struct proxy *p = front->proxies; p; p = p->next) {
        if ((port && p->port != port) || strcmp(port ? p->workspace : p->sandbox, where) != 0)
            continue;
        stop(p);
        p->answered = true;
        if (p->call->x)
            http_cut(p->call->x);
    }
}

/* --- towards the server --- */

static void arm(struct proxy *p)
{
    struct events *events = p->call->front->events;
    uint32_t what = (p->out.n > p->out_at ? EPOLLOUT : 0U) | (p->wants_in ? EPOLLIN : 0U);
    int r = 0;

    if (p->fd < 0)
        return;
    if (!what)
        events_forget(events, &p->watch); /* a hang-up would be told again and again */
    else if (p->watch.fd < 0)
        r = events_watch(events, &p->watch, p->fd, what);
    else
        r = events_change(events, &p->watch, what);
    if (r < 0)
        fail(p, 503, "unavailable", "cannot be watched: out of memory");
}

/* It may have answered without waiting for all of it: that is still read. */
static void turn_deaf(struct proxy *p)
{
    p->deaf = true;
    buf_clear(&p->out);
    p->out_at = 0;
    if (p->raw && p->call->x)
        http_cut(p->call->x);
}

static void push(struct proxy *p)
{
    while (p->fd >= 0 && p->out_at < p->out.n) {
        ssize_t n =
            send(p->fd, p->out.p + p->out_at, p->out.n - p->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            turn_deaf(p);
            break;
        }
        p->out_at += (size_t)n;
        if (!p->answered)
            ignore(timer_set(p->call->front->events, &p->timer, now_ms() + HEAD_MS)); /* later */
    }
    if (p->fd < 0)
        return;
    buf_clear(&p->out);
    p->out_at = 0;
    if (p->raw && p->client_end && !p->shut) {
        p->shut = true;
        (void)shutdown(p->fd, SHUT_WR);
    }
    if (p->call->x)
        http_continue_body(p->call->x);
}

static size_t piece(struct call *call, const char *bytes, size_t n)
{
    struct proxy *p = call->context;
    size_t waiting = p->out.n - p->out_at;

    if (p->deaf)
        return n;
    if (waiting >= KEPT)
        return 0;
    n = n < KEPT - waiting ? n : KEPT - waiting;
    if (p->out_at > 0) {
        memmove(p->out.p, p->out.p + p->out_at, waiting);
        p->out.n = waiting;
        p->out_at = 0;
    }
    bool chunked = !p->raw && http_request_of(call->x)->chunked;
    if (chunked)
        buf_printf(&p->out, "%zx\r\n", n);
    buf_add(&p->out, bytes, n);
    if (chunked)
        buf_str(&p->out, "\r\n");
    if (p->out.failed) {
        fail(p, 503, "unavailable", "gets no more: out of memory");
        return n;
    }
    push(p);
    arm(p);
    return n;
}

/* The end of the request; or, once upgraded, of all that the client says. */
static void whole(struct call *call)
{
    struct proxy *p = call->context;

    if (!p->raw && !p->whole && http_request_of(call->x)->chunked && !p->deaf)
        buf_str(&p->out, "0\r\n\r\n");
    p->whole = true;
    p->client_end = p->raw;
    push(p);
    arm(p);
}

/* --- from the server --- */

/* Bytes of the answer; 0 at its end, or -errno. */
static ssize_t take(struct proxy *p, char *bytes, size_t size)
{
    ssize_t n;

    if (p->in_n > 0) {
        size_t some = p->in_n < size ? p->in_n : size;
        memcpy(bytes, p->in + p->in_at, some);
        p->in_at += some;
        p->in_n -= some;
        return (ssize_t)some;
    }
    free(p->in);
    p->in = NULL;
    if (p->fd < 0)
        return -EPIPE;
    do {
        n = recv(p->fd, bytes, size, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* Takes the chunks off what has come; how many bytes are left of it, or -errno. */
static ssize_t unchunk(struct proxy *p, char *bytes, size_t n)
{
    size_t data = 0;

    if (http_chunks_decode(&p->chunks, bytes, n, &data, &p->ended) < 0)
        return -EBADMSG;
    return (ssize_t)data;
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct proxy *p = context;
    ssize_t n = 0;

    while (n == 0) {
        if (p->ended || (p->framing == SIZED && p->left == 0))
            return 0;
        n = take(p, bytes, p->framing == SIZED && p->left < size ? (size_t)p->left : size);
        if (n == -EAGAIN) {
            p->wants_in = true;
            arm(p);
        }
        if (n == 0 && p->framing != UNTIL_CLOSED)
            return -EPIPE; /* that was not all of it */
        if (n <= 0)
            return n;
        if (p->framing == SIZED)
            p->left -= (uint64_t)n;
        if (p->framing == CHUNKED)
            n = unchunk(p, bytes, (size_t)n);
    }
    return n;
}

static void begin_raw(struct proxy *p, const char *headers)
{
    struct call *call = p->call;

    p->raw = true;
    call_answered(call, 101);
    http_upgrade(call->x, headers, pull, p);
}

static void begin_answer(struct proxy *p, const struct http_response *r)
{
    struct call *call = p->call;
    scoped_buf struct buf headers;

    buf_init(&headers, ANSWER_HEAD);
    http_forward_response(&headers, r, &p->forward);
    if (buf_done(&headers) < 0) {
        fail(p, 502, "port_bad_answer", "gives an answer whose head is too large");
        return;
    }
    p->answered = true;
    p->wants_in = false;
    timer_stop(call->front->events, &p->timer);
    p->framing = r->status == 101 ? UNTIL_CLOSED
                 : r->chunked     ? CHUNKED
                 : r->has_length  ? SIZED
                                  : UNTIL_CLOSED;
    p->left = r->length;
    if (r->status == 101) {
        begin_raw(p, headers.p);
        return;
    }
    bool none = r->status == 204 || r->status == 304;
    call_answered(call, r->status);
    http_stream_duplex(call->x, r->status, headers.p,
                       r->has_length && !none ? r->length : HTTP_SIZE_UNKNOWN, pull, p);
}

/* Heads of what has come; those before the answer itself are passed over. */
static void look_for_head(struct proxy *p)
{
    struct http_response *r = malloc(sizeof(*r));
    const char *why = "";
    char text[160];
    ssize_t n;

    if (!r) {
        fail(p, 503, "unavailable", "cannot be heard: out of memory");
        return;
    }
    do {
        n = http_parse_response(p->in + p->in_at, p->in_n, r, &why);
        if (n > 0) {
            p->in_at += (size_t)n;
            p->in_n -= (size_t)n;
        }
    } while (n > 0 && r->status < 200 && r->status != 101);
    if (n > 0 && r->status == 101 && !(r->websocket && p->upgrades)) {
        fail(p, 502, "port_bad_answer", "answered with an upgrade that was not asked for");
    } else if (n > 0) {
        begin_answer(p, r);
    } else if (n < 0) {
        snprintf(text, sizeof(text), "gives an answer that is not proper HTTP: %s", why);
        fail(p, 502, "port_bad_answer", text);
    }
    free(r);
}

static void read_head(struct proxy *p)
{
    if (p->in_at > 0)
        memmove(p->in, p->in + p->in_at, p->in_n);
    p->in_at = 0;
    ssize_t n = recv(p->fd, p->in + p->in_n, HTTP_MAX_HEAD - p->in_n, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        fail(p, 502, "port_bad_answer", "closed the connection without an answer");
        return;
    }
    p->in_n += (size_t)n;
    look_for_head(p);
}

static void ready(struct watch *watch, uint32_t what)
{
    struct proxy *p = container_of(watch, struct proxy, watch);

    if (what & (EPOLLOUT | EPOLLERR))
        push(p);
    if (p->fd >= 0 && p->wants_in && (what & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        if (!p->answered) {
            read_head(p);
        } else {
            p->wants_in = false; /* until a pull is in vain again */
            if (p->call->x)
                http_wake(p->call->x);
        }
    }
    arm(p);
}

static void ring(struct timer *timer)
{
    struct proxy *p = container_of(timer, struct proxy, timer);

    /* While the client has yet to send there is nothing to answer. */
    if (!p->whole && p->fd >= 0 && p->out_at == p->out.n)
        ignore(timer_set(p->call->front->events, timer, now_ms() + HEAD_MS));
    else
        fail(p, 504, "port_timeout", "gives no answer");
}

/* --- connecting --- */

/* From inside, so it may be anything: what we do with it suits connections of TCP only. */
static bool is_connection(int fd)
{
    int domain = 0;
    int type = 0;
    socklen_t size = sizeof(int);

    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;
}

/* What the file server says against it, which is JSON already. */
static void more(void *owner)
{
    struct proxy *p = owner;
    char bytes[1024];
    ssize_t n;

    while ((n = files_stream_pull(p->connecting, bytes, sizeof(bytes))) > 0)
        buf_add(&p->refusal, bytes, (size_t)n);
    if (n == -EAGAIN)
        return;
    if (n < 0 || buf_done(&p->refusal) < 0) {
        fail(p, 502, "port_unreachable", "cannot be reached");
        return;
    }
    stop(p);
    p->answered = true;
    call_reply(p->call, p->refused, "application/json", NULL, p->refusal.p, p->refusal.n);
}

static void connected(void *owner, const struct files_head *head)
{
    struct proxy *p = owner;

    p->refused = (int)head->status;
    if (head->status >= 400 && head->status <= 599) {
        more(p);
        return;
    }
    p->fd = files_take_fd(p->connecting);
    files_free(p->connecting);
    p->connecting = NULL;
    p->in = malloc(HTTP_MAX_HEAD);
    if (p->refused != 200 || !is_connection(p->fd) || !p->in) {
        fail(p, 502, "port_unreachable", "cannot be reached");
        return;
    }
    p->wants_in = true;
    push(p);
    arm(p);
}

static void failed(void *owner, const struct err *err)
{
    struct proxy *p = owner;

    stop(p);
    p->answered = true;
    call_fail(p->call, err);
}

static bool still_may(void *owner)
{
    struct proxy *p = owner;

    if (!planned_goes_on(p->call, &p->wanted.plan)) {
        fail(p, 502, "port_closed", "has ended with its plan");
        return false;
    }
    if (call_still_may(p->call))
        return true;
    stop(p);
    p->answered = true;
    call_no_more(p->call);
    return false;
}

static void room(void *owner)
{
    (void)owner; /* there is no body to send */
}

static const struct files_calls calls = {
    .answered = connected, .failed = failed, .still_may = still_may, .room = room, .more = more};

static bool has_room(const struct front *front, const char *workspace)
{
    size_t n = 0;

    for (const struct proxy *p = front->proxies; p; p = p->next)
        n += strcmp(p->workspace, workspace) == 0;
    return n < MOST_CONNECTIONS;
}

static struct proxy *new_proxy(struct call *call, const struct store_port *port)
{
    struct proxy *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->call = call;
    p->port = port->port;
    p->fd = -1;
    p->watch = (struct watch){.ready = ready, .fd = -1};
    p->timer.ring = ring;
    text_copy(p->workspace, sizeof(p->workspace), call->workspace.id);
    snprintf(p->host, sizeof(p->host), "localhost:%u", p->port);
    if (call->rest != http_request_of(call->x)->path)
        snprintf(p->prefix, sizeof(p->prefix), "/p/%s", call->params[0]);
    buf_init(&p->out, REQUEST_HEAD + 2UL * KEPT);
    buf_init(&p->refusal, ERROR_BODY);
    p->next = call->front->proxies;
    p->at = &call->front->proxies;
    if (p->next)
        p->next->at = &p->next;
    call->front->proxies = p;
    call->context = p;
    call->abandoned = left;
    return p;
}

static void begin(struct call *call, const struct store_port *port, const struct plan_request *plan,
                  bool keeps_authorization)
{
    static const char *const argv[] = {"port", NULL};
    const struct http_request *request = http_request_of(call->x);
    struct files_message m = {.op = FILES_CONNECT, .path = "/", .offset = port->port};
    struct proxy *p = new_proxy(call, port);
    char id[28];

    if (!p) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    if (!sandbox_request_plain(call, argv, &p->wanted))
        return;
    p->wanted.plan = *plan;
    p->wanted.message.plan = plan->id;
    if (p->wanted.message.spec.net == CARREL_NET_HOST) {
        call_error(call, 409, "unsupported", "the workspace now uses the host's network");
        return;
    }
    p->forward = (struct http_forward){.host = p->host,
                                       .prefix = p->prefix,
                                       .path = call->rest,
                                       .keeps_authorization = keeps_authorization};
    p->upgrades = http_wants_websocket(request);
    http_forward_request(&p->out, request, &p->forward);
    make_id('x', id);
    p->wanted.message.exec = id;
    const struct quota_request whose = sandbox_request_quota(call, &p->wanted);
    text_copy(p->sandbox, sizeof(p->sandbox), whose.workspace);
    p->connecting = files_stream_begin(call->front, &whose, &m, &p->wanted.message, &calls, p);
    call->piece = piece;
    call->whole = whole;
    if (p->out.failed || !p->connecting ||
        timer_set(call->front->events, &p->timer, now_ms() + HEAD_MS) < 0 ||
        files_start(p->connecting) < 0)
        fail(p, 503, "unavailable", "cannot be reached: out of memory");
}

/* --- who is it --- */

static bool is_token(const char *text, size_t n)
{
    return n == TOKEN && text[0] == 'p' &&
           strspn(text + 1, "abcdefghijklmnopqrstuvwxyz234567") >= TOKEN - 1;
}

bool port_takes(struct call *call)
{
    const struct http_request *request = http_request_of(call->x);
    const char *host = http_header(request, "host");
    const char *token = host;
    size_t n = host ? strcspn(host, ".") : 0;

    call->rest = request->path;
    if (!host || host[n] != '.' || !is_token(host, n)) {
        if (strncmp(request->path, "/p/", 3) != 0)
            return false;
        token = request->path + 3;
        n = strcspn(token, "/");
        call->rest = token + n;
    }
    call->params[0] = arena_copy(&call->arena, token, n);
    return call->params[0] != NULL;
}

/* Whether Authorization holds a key of ours, which is nobody's business inside. */
static bool has_own_key(struct call *call)
{
    static const char ours[] = "bearer ck_";
    const char *header = http_header(http_request_of(call->x), "authorization");

    return header && (strncasecmp(header, ours, sizeof(ours) - 1) == 0 || router_identify(call));
}

static bool not_found(struct call *call)
{
    call_error(call, 404, "not_found", "there is no port at this address; it may have been closed");
    return false;
}

/* By a key, or by the address alone. */
static bool admit(struct call *call, const struct store_port *port, bool *ret_keeps)
{
    if (strcmp(port->access, "key") == 0) {
        *ret_keeps = false;
        if (!router_identify(call)) {
            call_error(call, 401, "unauthorized",
                       "a valid key is needed: send 'Authorization: Bearer KEY'");
            return false;
        }
        call->planned = planned_is(&call->actor, &call->workspace);
        return ((call->actor.scopes & PORT_SCOPES) &&
                actor_may_see(&call->actor, call->workspace.owner, call->workspace.id)) ||
               not_found(call);
    }
    *ret_keeps = !has_own_key(call);
    call->actor = (struct actor){.name = "port"};
    text_copy(call->actor.owner, sizeof(call->actor.owner), call->workspace.owner);
    return true;
}

static bool find(struct call *call, struct store_port *ret)
{
    struct front *front = call->front;
    char hash[FRONT_HASH];
    struct err err;

    hash_hex(call->params[0], strlen(call->params[0]), hash);
    int found = is_token(call->params[0], strlen(call->params[0]))
                    ? store_port_by_hash(front->store, &call->arena, hash, ret, &err)
                    : 0;
    if (found > 0 && ports_allow(front, ret->access))
        found =
            store_workspace_get(front->store, &call->arena, ret->workspace, &call->workspace, &err);
    else if (found > 0)
        found = 0;
    if (found < 0)
        call_fail(call, &err);
    else if (found == 0 || call->workspace.deleted_ms)
        return not_found(call);
    return found > 0;
}

/* What the links of a page are relative to needs the slash. */
static void redirect(struct call *call)
{
    const char *query = http_request_of(call->x)->query;
    const char *headers = arena_printf(&call->arena, "Location: /p/%s/%s%s\r\n", call->params[0],
                                       *query ? "?" : "", query);

    if (headers && strlen(headers) < 256)
        call_reply(call, 308, NULL, headers, "", 0);
    else
        not_found(call);
}

static void port_proxy(struct call *call)
{
    struct plan_request plan = {.id = ""};
    struct store_port port;
    bool keeps;

    if (!find(call, &port) || !admit(call, &port, &keeps))
        return;
    if (!*call->rest) {
        redirect(call);
        return;
    }
    /* To where the commands run of who asks or, if that is not known or anywhere, who opened it. */
    if (planned_find_of(call, port.made_by, &plan) < 0)
        return;
    if (!front_is_awake(call->front, plan.is_plan ? plan.quota_name : call->workspace.id))
        call_error(call, 502, "port_closed",
                   "the workspace is asleep, so nothing listens on port %u; start the server by a "
                   "command",
                   port.port);
    else if (!has_room(call->front, call->workspace.id))
        call_error(call, 503, "unavailable", "%d connections to this workspace's ports are open",
                   MOST_CONNECTIONS);
    else if (live_charge(call, call->workspace.owner, false) &&
             (!http_wants_websocket(http_request_of(call->x)) || live_hold(call, HTTP_TUNNEL)))
        begin(call, &port, &plan, keeps);
}

void port_pass(struct call *call, unsigned port)
{
    const struct plan_request plan = {.id = ""};
    const struct store_port row = {
        .workspace = call->workspace.id, .port = port, .access = "token"};

    call->rest = http_request_of(call->x)->path;
    if (!has_room(call->front, call->workspace.id))
        call_error(call, 503, "unavailable", "%d connections to this workspace's ports are open",
                   MOST_CONNECTIONS);
    else if (!http_wants_websocket(http_request_of(call->x)) || live_hold(call, HTTP_TUNNEL))
        begin(call, &row, &plan, true);
}

const struct route port_route = {
    .path = "/p", .body = HTTP_BODY_STREAM, .flags = RAW, .handle = port_proxy};
