/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/inner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/events.h"
#include "base/fd.h"
#include "front/core/call.h"
#include "http/forward.h"
#include "http/head.h"

enum {
    HEAD_ROOM = 86016, /* of a request: a path, a key, and the rest */
    READ = 65536,
    MOST_DEFAULT = 1 << 20,
    FED = 262144, /* of a body that is fed, until it is sent */
};

struct inner {
    struct watch watch; /* first */
    struct front *front;
    struct inner_request request;
    int fd;
    struct buf out; /* the head */
    size_t out_at;
    size_t body_at; /* of request.bytes */
    char *in;       /* what has come and nobody has taken; READ bytes of room */
    size_t in_at;
    size_t in_n;
    size_t plain; /* of it, decoded */
    int status;   /* 0: its head has not come */
    bool chunked;
    bool has_length;
    uint64_t left; /* of an answer with a length */
    struct http_chunks chunks;
    bool ended;  /* all of the answer was seen */
    bool closed; /* the other side has ended */
    bool paused;
    bool full;    /* what is fed waits */
    bool fed;     /* all of it has come */
    bool busy;    /* one of its functions is being called */
    bool dropped; /* ... and it is to be freed after that */
    struct buf body;
};

static void ready(struct watch *watch, uint32_t what);

bool inner_asker_of(const struct call *call, struct inner_asker *ret)
{
    const char *header = http_header(http_request_of(call->x), "authorization");

    *ret = (struct inner_asker){.uid = http_peer_uid(call->x)};
    if (header && strlen(header) >= sizeof(ret->authorization))
        return false;
    if (header)
        memcpy(ret->authorization, header, strlen(header));
    return true;
}

/* --- the end --- */

static void release(struct inner *i)
{
    events_forget(i->front->events, &i->watch);
    scope_close(&i->fd);
    buf_clear(&i->out);
    buf_clear(&i->body);
    free(i->in);
    free(i);
}

void inner_drop(struct inner *i)
{
    if (!i)
        return;
    i->dropped = true;
    if (!i->busy)
        release(i);
}

static void finish(struct inner *i, int status)
{
    bool is_busy = i->busy;

    if (i->dropped)
        return;
    i->busy = true;
    if (i->request.done) {
        ignore(buf_done(&i->body));
        i->request.done(i->request.context, status, &i->body);
    }
    i->busy = is_busy;
    i->dropped = true;
}

/* What has ended within one of the functions of this file is freed at the end of it. */
static void settle(struct inner *i)
{
    if (i->dropped && !i->busy)
        release(i);
}

/* --- the request --- */

static void arm(struct inner *i)
{
    bool sends = i->out_at < i->out.n || i->body_at < i->request.n;
    uint32_t what = (sends ? EPOLLOUT : 0U) | (i->paused ? 0U : EPOLLIN);
    int r = 0;

    /* A hang-up would be told again and again. */
    if (!what || (i->paused && i->closed))
        events_forget(i->front->events, &i->watch);
    else if (i->watch.fd < 0)
        r = events_watch(i->front->events, &i->watch, i->fd, what);
    else
        r = events_change(i->front->events, &i->watch, what);
    if (r < 0)
        finish(i, 0);
}

/* Whether all was taken. Who answers early takes no more: its answer is read all the same. */
static bool send_some(struct inner *i, const char *bytes, size_t n, size_t *at)
{
    while (*at < n) {
        ssize_t sent = send(i->fd, bytes + *at, n - *at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            return false;
        *at = sent < 0 ? n : *at + (size_t)sent;
    }
    return true;
}

static void push(struct inner *i)
{
    if (!send_some(i, i->out.p, i->out.n, &i->out_at))
        return;
    buf_clear(&i->out);
    i->out_at = 0;
    if (i->full && i->request.room && !i->dropped) {
        i->full = false;
        i->request.room(i->request.context);
    }
    (void)send_some(i, i->request.bytes, i->request.n, &i->body_at);
}

static void write_head(struct inner *i, const struct inner_asker *who)
{
    const struct inner_request *r = &i->request;
    struct buf *b = &i->out;

    buf_printf(b, "%s %s HTTP/1.1\r\nHost: carrel\r\nConnection: close\r\n",
               http_method_name(r->method), r->target);
    if (*who->authorization)
        buf_printf(b, "Authorization: %s\r\n", who->authorization);
    if (r->accept)
        buf_printf(b, "Accept: %s\r\n", r->accept);
    if (r->feeds)
        buf_str(b, "Transfer-Encoding: chunked\r\n");
    else if (r->n > 0 || r->method == HTTP_POST || r->method == HTTP_PUT)
        buf_printf(b, "Content-Length: %zu\r\n", r->n);
    if (r->n > 0)
        buf_printf(b, "Content-Type: %s\r\n", r->type ? r->type : "application/json");
    buf_str(b, "\r\n");
}

struct inner *inner_start(struct front *front, const struct inner_asker *who,
                          const struct inner_request *request)
{
    struct inner *i = calloc(1, sizeof(*i));
    int pair[2];

    if (!i)
        return NULL;
    i->watch = (struct watch){.ready = ready, .fd = -1};
    i->front = front;
    i->request = *request;
    i->fd = -1;
    buf_init(&i->out, HEAD_ROOM + (request->feeds ? FED + 64UL : 0UL));
    buf_init(&i->body, request->most ? request->most : MOST_DEFAULT);
    write_head(i, who);
    i->request.target = i->request.type = i->request.accept = NULL; /* not ours to keep */
    if (buf_done(&i->out) < 0 || i->out.n > HEAD_ROOM ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        release(i);
        return NULL;
    }
    i->fd = pair[0];
    scoped_fd int theirs = pair[1];
    if (events_watch(front->events, &i->watch, i->fd, EPOLLIN | EPOLLOUT) < 0 ||
        http_join(front->http, &theirs, who->uid) < 0) {
        release(i);
        return NULL;
    }
    return i;
}

size_t inner_feed(struct inner *i, const char *bytes, size_t n)
{
    size_t waiting = i->out.n - i->out_at;

    if (i->dropped || n == 0)
        return n;
    if (waiting >= FED / 2) {
        i->full = true;
        return 0;
    }
    if (n > FED / 2)
        n = FED / 2;
    if (i->out_at > 0) {
        memmove(i->out.p, i->out.p + i->out_at, waiting);
        i->out.n = waiting;
        i->out_at = 0;
    }
    buf_printf(&i->out, "%zx\r\n", n);
    buf_add(&i->out, bytes, n);
    buf_str(&i->out, "\r\n");
    if (!i->busy) {
        i->busy = true; /* so that nothing is freed under the caller */
        push(i);
        if (!i->dropped)
            arm(i);
        i->busy = false;
    }
    return n;
}

void inner_feed_end(struct inner *i)
{
    if (i->dropped || i->fed)
        return;
    i->fed = true;
    buf_str(&i->out, "0\r\n\r\n");
    if (!i->busy)
        arm(i);
}

/* --- the answer --- */

static bool is_collected(const struct inner *i)
{
    return !i->request.piece || i->status >= 400;
}

/* Whether there is one, whole. */
static bool take_head(struct inner *i)
{
    struct http_response r;
    const char *why = NULL;
    ssize_t n = http_parse_response(i->in + i->in_at, i->in_n, &r, &why);

    if (n < 0)
        finish(i, 0);
    if (n <= 0)
        return false;
    i->in_at += (size_t)n;
    i->in_n -= (size_t)n;
    if (r.status < 200)
        return true; /* the next one is it */
    i->status = r.status;
    i->chunked = r.chunked;
    i->has_length = r.has_length;
    i->left = r.length;
    i->ended = r.status == 204 || r.status == 304 || (r.has_length && r.length == 0);
    const char *type = "";
    for (size_t k = 0; k < r.header_count; k++) {
        if (strcmp(r.headers[k].name, "content-type") == 0)
            type = r.headers[k].value;
    }
    if (i->request.head)
        i->request.head(i->request.context, i->status, type);
    return true;
}

/* Makes plain bytes of what has come; false if it is not an answer. */
static bool decode(struct inner *i)
{
    char *bytes = i->in + i->in_at;
    size_t data = 0;

    if (!i->chunked) {
        i->plain = i->has_length && i->left < i->in_n ? (size_t)i->left : i->in_n;
        i->left -= i->has_length ? i->plain : 0;
        i->ended = i->has_length && i->left == 0;
        return true;
    }
    ssize_t taken = http_chunks_decode(&i->chunks, bytes, i->in_n, &data, &i->ended);
    if (taken < 0)
        return false;
    size_t gap = (size_t)taken - data; /* up to where the rest begins */
    memmove(bytes + gap, bytes, data);
    i->in_at += gap;
    i->in_n -= gap;
    i->plain = data;
    return true;
}

/* Whether all that is plain was taken. */
static bool deliver(struct inner *i)
{
    size_t taken = i->plain;

    if (is_collected(i))
        buf_add(&i->body, i->in + i->in_at, i->plain);
    else {
        i->paused = true; /* unless it is told otherwise before that returns */
        taken = i->request.piece(i->request.context, i->in + i->in_at, i->plain);
        i->paused = i->paused && taken < i->plain;
    }
    i->in_at += taken;
    i->in_n -= taken;
    i->plain -= taken;
    return i->plain == 0;
}

/* What has come goes on to whom it is for. */
static void digest(struct inner *i)
{
    while (!i->dropped && i->in_n > 0 && !i->status) {
        if (!take_head(i))
            return;
    }
    while (!i->dropped && i->status && !i->paused) {
        size_t had = i->in_n;
        if (i->plain == 0 && (i->in_n == 0 || i->ended))
            return;
        if (i->plain == 0 && !decode(i)) {
            finish(i, 0);
            return;
        }
        if (i->plain > 0 && !deliver(i))
            continue; /* paused, or not any more */
        if (i->body.failed)
            finish(i, 0);
        else if (had == i->in_n)
            return;
    }
}

static void read_some(struct inner *i)
{
    if (!i->in)
        i->in = malloc(READ);
    if (!i->in) {
        finish(i, 0);
        return;
    }
    if (i->in_at > 0) {
        memmove(i->in, i->in + i->in_at, i->in_n);
        i->in_at = 0;
    }
    if (i->in_n == READ)
        return;
    ssize_t n = recv(i->fd, i->in + i->in_n, READ - i->in_n, MSG_DONTWAIT);
    if (n > 0)
        i->in_n += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        i->closed = true;
}

static void go_on(struct inner *i)
{
    digest(i);
    if (i->dropped || i->paused || i->plain > 0)
        return;
    if (i->ended)
        finish(i, i->status);
    else if (i->closed)
        finish(i, i->status && !i->chunked && !i->has_length ? i->status : 0);
}

static void ready(struct watch *watch, uint32_t what)
{
    struct inner *i = (struct inner *)watch;

    i->busy = true;
    if (what & EPOLLOUT)
        push(i);
    if (!i->dropped && !i->paused) {
        if (what & (EPOLLIN | EPOLLHUP | EPOLLERR))
            read_some(i);
        go_on(i);
    }
    if (!i->dropped)
        arm(i);
    i->busy = false;
    settle(i);
}

void inner_continue(struct inner *i)
{
    bool is_busy = i->busy;

    if (!i->paused)
        return;
    i->paused = false;
    if (is_busy)
        return; /* whoever calls goes on */
    /* What has come already is handed out at the next turn. */
    arm(i);
    if (!i->dropped && (i->in_n > 0 || i->ended || i->closed))
        ignore(events_change(i->front->events, &i->watch, EPOLLIN | EPOLLOUT));
    settle(i);
}
