/* SPDX-License-Identifier: Apache-2.0 */
/* One connection, from state to state (connection.h has the drawing).
 *
 * Who hung up? Over a Unix socket, and after a reset, the kernel says so (EPOLLHUP) in any state.
 * A TCP client that closed looks like one that only ended its sending side and still waits for the
 * answer, which is legal; so it is answered, and found out by the failing write. One that waits in
 * silence is found out by TCP keep-alive (server.c): a half-closed client confirms it, a closed one
 * resets. */
#include "http/connection.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "http/head.h"

void connection_deadline(struct connection *c, uint64_t ms)
{
    if (c->hurries && (ms == 0 || ms > GOING_MS))
        ms = GOING_MS; /* whatever it waits for */
    c->deadline = ms ? now_ms() + ms : UINT64_MAX;
    /* The timer is moved only forward in time, and otherwise when it rings: that is cheaper than
     * for every request. */
    if (ms && (c->timer.due_ms == 0 || c->timer.due_ms > c->deadline) &&
        timer_set(c->server->events, &c->timer, c->deadline) < 0)
        c->dead = true;
}

void connection_drop_input(struct connection *c, size_t n)
{
    c->in_at += n;
    c->in_n -= n;
    if (c->in_n == 0)
        c->in_at = 0;
}

static void free_input(struct connection *c)
{
    if (!c->server->spare)
        c->server->spare = c->in;
    else
        free(c->in);
    c->in = NULL;
    c->in_at = 0;
    c->in_n = 0;
}

static void free_exchange(struct connection *c, bool complete)
{
    struct exchange *x = c->x;

    if (!x)
        return;
    http_drop_body(x); /* while its account is there */
    c->server->calls.on_done(c->server->owner, x, complete);
    c->x = NULL;
    free(x);
}

void connection_close(struct connection *c)
{
    c->dead = true;
    c->busy = true;
    free_exchange(c, false);
    events_forget(c->server->events, &c->watch);
    timer_stop(c->server->events, &c->timer);
    scope_close(&c->fd);
    free_input(c);
    buf_clear(&c->out);
    places_leave(c);
    server_left(c->server);
    if (!c->pending) /* else who goes through that list frees it */
        free(c);
}

void connection_later(struct connection *c)
{
    struct http_server *server = c->server;

    if (c->busy || c->pending)
        return;
    c->pending = true;
    c->next_pending = server->pending;
    server->pending = c;
    /* Without memory for it, the next one that is set goes through the whole list. */
    ignore(timer_set(server->events, &server->later, 1));
}

/* Begins the exchange of a head that is whole. */
static void begin_exchange(struct connection *c, size_t length)
{
    const struct http_server *server = c->server;
    const char *why = NULL;
    struct exchange *x = malloc(sizeof(*x) + length);

    if (!x) {
        c->dead = true;
        return;
    }
    memset(x, 0, offsetof(struct exchange, request));
    memcpy(x->head, c->in + c->in_at, length);
    connection_drop_input(c, length);
    c->seen = 0;
    int refused = http_head_read(x->head, length, &x->request, &why);
    if (refused) {
        free(x);
        answer_refuse(c, -refused, "invalid_request", why);
        return;
    }
    x->connection = c;
    x->request.by_tls = c->by_tls;
    x->left = x->request.length;
    x->decoded = !x->request.has_body;
    x->body_done = x->decoded;
    c->x = x;
    c->state = STATE_BODY;
    connection_deadline(c, 0);
    int64_t bound = server->calls.on_head(server->owner, x);
    if (c->state == STATE_BODY)
        body_begin(x, bound);
}

static bool head_step(struct connection *c)
{
    const char *why = NULL;

    if (c->in_n == 0) {
        if (c->place != PLACE_IDLE)
            connection_deadline(c, c->server->options.idle_ms);
        c->dead = c->dead || c->server->draining;
        places_move(c, PLACE_IDLE);
        return false;
    }
    if (c->place == PLACE_IDLE)
        connection_deadline(c, c->server->options.head_ms);
    const char *bytes = c->in + c->in_at;
    size_t seen = c->seen;
    c->seen = c->in_n;
    /* Nothing can have ended without a line feed among the new bytes. */
    bool may_end = c->in_n >= HTTP_MAX_HEAD || memchr(bytes + seen, '\n', c->in_n - seen);
    ssize_t length = may_end ? http_head_end(bytes, c->in_n, &why) : 0;
    places_move(c, length == 0 ? PLACE_HEAD : PLACE_BUSY);
    if (length < 0)
        answer_refuse(c, (int)-length, "invalid_request", why);
    else if (length > 0)
        begin_exchange(c, (size_t)length);
    return length != 0;
}

/* Both ways of an upgraded connection end by themselves. */
static void finish_raw(struct connection *c, struct exchange *x)
{
    if (x->body_done) {
        free_exchange(c, true);
        c->dead = true;
    } else if (!x->half) {
        x->half = true;
        (void)shutdown(c->fd, SHUT_WR);
        connection_deadline(c, HALF_MS);
    }
}

/* The answer is out. */
static bool finish(struct connection *c)
{
    if (c->x && c->x->raw) {
        finish_raw(c, c->x);
        return false;
    }
    free_exchange(c, c->x && !c->x->refused);
    c->served = true;
    if (!c->close_after && !c->hurries) {
        c->state = STATE_HEAD;
        c->seen = 0;
        connection_deadline(c, c->server->options.head_ms);
        return true;
    }
    if (!c->linger_after) {
        c->dead = true;
        return false;
    }
    /* Closing with input unread would reset the connection, and the client might lose the answer.
     */
    (void)shutdown(c->fd, SHUT_WR);
    c->state = STATE_LINGER;
    connection_drop_input(c, c->in_n);
    connection_deadline(c, LINGER_MS);
    return false;
}

static bool step(struct connection *c)
{
    switch (c->state) {
    case STATE_HEAD:
        return head_step(c);
    case STATE_BODY:
        return body_step(c);
    case STATE_REPLY:
        return (body_goes_on(c) && body_step(c)) || (answer_step(c) && finish(c));
    case STATE_WAIT:
    case STATE_LINGER:
        break;
    }
    return false;
}

/* Nothing but its end is wanted; what comes is the next request's. */
static bool ends_with_client(const struct connection *c)
{
    return c->x && c->x->one_way && c->x->body_done &&
           (c->state == STATE_WAIT || c->state == STATE_REPLY);
}

static bool wants_input(const struct connection *c)
{
    if (ends_with_client(c))
        return !c->ended && c->in_n < HTTP_MAX_HEAD;
    switch (c->state) {
    case STATE_HEAD:
        return true;
    case STATE_BODY:
        return c->x && !c->x->paused;
    case STATE_REPLY: /* a client that still sends its body may read nothing before it is done */
        if (body_goes_on(c))
            return !c->x->paused;
        return c->x && !c->x->body_done && c->discard > 0;
    case STATE_LINGER:
        return true;
    case STATE_WAIT:
        break;
    }
    return false;
}

/* Watches for what is wanted. Input that nobody wants is unwatched only once it comes, so that the
 * usual exchange needs no call for it. */
static void rearm(struct connection *c)
{
    if (wants_input(c))
        c->muted = false;
    uint32_t wanted = (c->muted ? 0 : EPOLLIN) | (c->blocked ? EPOLLOUT : 0);
    if (wanted == c->armed)
        return;
    if (events_change(c->server->events, &c->watch, wanted) < 0)
        c->dead = true;
    c->armed = wanted;
}

/* There is no room for it: says so, or has its owner say it. Between two requests a client expects
 * its connection to end, and a proxy would take the words for an answer. */
static void tell_limit(struct connection *c)
{
    const struct http_server *server = c->server;

    c->told = true;
    c->hurries = true;
    connection_deadline(c, GOING_MS);
    if (c->x && !c->x->refused && server->calls.on_evict)
        server->calls.on_evict(server->owner, c->x, c->limit);
    else if (c->state == STATE_HEAD && !c->is_trusted && (!c->served || c->in_n > 0))
        answer_limit(c);
    else
        c->dead = true;
}

void connection_go_on(struct connection *c)
{
    bool more = true;

    c->busy = true;
    if (c->limit && !c->told && !c->dead)
        tell_limit(c);
    while (more && !c->dead)
        more = step(c);
    /* It sends no more, but more is needed. */
    if (c->ended && (c->state != STATE_REPLY || body_goes_on(c)) && wants_input(c))
        c->dead = true;
    if (c->ended && ends_with_client(c))
        c->dead = true;
    if (c->in && c->in_n == 0)
        free_input(c);
    if (!c->dead)
        rearm(c);
    c->busy = false;
    if (c->dead)
        connection_close(c);
}

/* What comes after an early answer. */
static void discard_input(struct connection *c)
{
    ssize_t n = recv(c->fd, c->server->scratch, STREAM_BYTES, MSG_DONTWAIT);
    size_t got = n > 0 ? (size_t)n : 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    c->discard = n <= 0 || got >= c->discard ? 0 : c->discard - got;
    if (c->state == STATE_LINGER && c->discard == 0)
        c->dead = true;
}

static void read_input(struct connection *c)
{
    if ((c->state == STATE_REPLY && !body_goes_on(c) && !ends_with_client(c)) ||
        c->state == STATE_LINGER) {
        discard_input(c);
        return;
    }
    if (!c->in) {
        c->in = c->server->spare ? c->server->spare : malloc(HTTP_MAX_HEAD);
        c->server->spare = NULL;
        if (!c->in) {
            c->dead = true;
            return;
        }
    }
    if (c->in_at > 0) {
        memmove(c->in, c->in + c->in_at, c->in_n);
        c->in_at = 0;
    }
    if (c->in_n == HTTP_MAX_HEAD)
        return; /* a body that may go on, but did not yet */
    ssize_t n = recv(c->fd, c->in + c->in_n, HTTP_MAX_HEAD - c->in_n, MSG_DONTWAIT);
    if (n > 0)
        c->in_n += (size_t)n;
    else if (n == 0)
        c->ended = true;
    else if (errno != EAGAIN && errno != EINTR)
        c->dead = true;
}

static void on_ready(struct watch *watch, uint32_t what)
{
    struct connection *c = (struct connection *)watch;
    bool reads = (what & EPOLLIN) && wants_input(c);

    /* What was sent before hanging up is read first. */
    if ((what & EPOLLERR) || ((what & EPOLLHUP) && !reads)) {
        c->dead = true;
    } else {
        if (what & EPOLLOUT) {
            c->blocked = false;
            if (c->out.n > 0)
                answer_send(c, NULL, 0);
        }
        if (reads)
            read_input(c);
        else if (what & EPOLLIN)
            c->muted = true;
    }
    connection_go_on(c);
}

static void on_ring(struct timer *timer)
{
    struct connection *c = container_of(timer, struct connection, timer);

    if (c->deadline == UINT64_MAX)
        return;
    if (now_ms() < c->deadline) {
        c->dead = timer_set(c->server->events, timer, c->deadline) < 0;
    } else if (c->state == STATE_HEAD && c->in_n > 0) {
        answer_refuse(c, 408, "invalid_request", "the head took too long");
    } else if (c->state == STATE_BODY) {
        answer_refuse(c, 408, "invalid_request", "the body took too long");
    } else {
        c->dead = true;
    }
    connection_go_on(c);
}

int connection_start(struct http_server *server, int *fd, const struct arrival *from)
{
    struct connection *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->watch = (struct watch){.ready = on_ready, .fd = -1};
    c->timer.ring = on_ring;
    c->server = server;
    c->fd = *fd;
    c->peer_uid = from->uid;
    c->is_inner = from->is_inner;
    c->by_tls = from->by_tls;
    c->armed = EPOLLIN;
    buf_init(&c->out, SIZE_MAX / 4);
    int r = events_watch(server->events, &c->watch, *fd, c->armed);
    if (r == 0)
        r = places_enter(c, from->peer, from->is_trusted);
    if (r < 0) {
        events_forget(server->events, &c->watch);
        free(c);
        return r;
    }
    (void)take_fd(fd);
    connection_deadline(c, server->options.head_ms);
    if (c->limit)
        connection_go_on(c);
    else if (c->dead)
        connection_close(c);
    return 0;
}
