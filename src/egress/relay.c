/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from one socket to the other. What goes on for long is moved in the kernel, through pipes
 * of which there are few: one is held only while something is in it. The rest is copied. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/egress.h"

enum {
    FLOW_BYTES = LOOK_HELD, /* read at a time, and, while they are looked at, kept */
    FLOWS_KEPT = 4096,      /* that keep some, at most */
    FLOWS_KEPT_OF_ONE = FLOWS_KEPT / 4,
    TURN_BYTES = 1 << 20,  /* then others have their turn */
    LONG_FLOW = 128 << 10, /* worth a pipe */
    PIPE_BYTES = 1 << 20,
    PIPE_LEAST = 256 << 10, /* a smaller one is no better than copying */
    PIPES_MOST = 48,
    PIPES_OF_ONE = PIPES_MOST / 2, /* sandbox, which need not read */
};

struct pipe {
    struct pipe *next;
    int ends[2];
};

struct pipes {
    struct pipe *free;
    size_t made;
    size_t most;
    size_t flows; /* that keep bytes */
    unsigned char shown[FLOW_BYTES];
};

int pipes_open(struct egress *e, struct err *err)
{
    e->pipes = calloc(1, sizeof(*e->pipes));
    if (!e->pipes)
        return err_set(err, ERR_LIMIT, ENOMEM, "open the pipes");
    e->pipes->most = PIPES_MOST;
    return 0;
}

static struct pipe *pipe_make(struct pipes *pool)
{
    struct pipe *p = pool->made < pool->most ? malloc(sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    if (pipe2(p->ends, O_CLOEXEC | O_NONBLOCK) == 0) {
        if (fcntl(p->ends[1], F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_LEAST) {
            pool->made++;
            return p;
        }
        scope_close(&p->ends[0]);
        scope_close(&p->ends[1]);
    }
    pool->most = pool->made; /* a user has so many and no more */
    free(p);
    return NULL;
}

static struct pipe *pipe_take(struct box *box)
{
    struct pipes *pool = box->egress->pipes;
    struct pipe *p = pool->free;

    if (box->pipes == PIPES_OF_ONE)
        return NULL;
    if (p)
        pool->free = p->next;
    else
        p = pipe_make(pool);
    box->pipes += p != NULL;
    return p;
}

/* One with something left in it is of no more use. */
static void pipe_give(struct box *box, struct pipe *p, bool is_empty)
{
    struct pipes *pool = box->egress->pipes;

    box->pipes--;
    if (is_empty) {
        p->next = pool->free;
        pool->free = p;
        return;
    }
    scope_close(&p->ends[0]);
    scope_close(&p->ends[1]);
    free(p);
    pool->made--;
}

static bool bytes_take(const struct connection *c, struct flow *f)
{
    struct pipes *pool = c->box->egress->pipes;

    if (f->bytes)
        return true;
    if (pool->flows == FLOWS_KEPT || c->box->flows == FLOWS_KEPT_OF_ONE ||
        !(f->bytes = malloc(FLOW_BYTES)))
        return false;
    pool->flows++;
    c->box->flows++;
    return true;
}

static void bytes_free(const struct connection *c, struct flow *f)
{
    if (f->bytes) {
        c->box->egress->pipes->flows--;
        c->box->flows--;
    }
    free(f->bytes);
    f->bytes = NULL;
    f->at = f->n = 0;
}

void flow_clear(struct connection *c, struct flow *f)
{
    if (f->pipe)
        pipe_give(c->box, f->pipe, f->piped == 0);
    f->pipe = NULL;
    f->piped = 0;
    bytes_free(c, f);
}

static bool is_up(const struct connection *c, const struct flow *f)
{
    return f == &c->up;
}

/* How many of the bytes that wait may leave. */
static size_t clear_to_send(const struct connection *c, const struct flow *f)
{
    size_t waiting = f->n - f->at;

    if (!is_up(c, f) || c->look.cleared - f->sent >= waiting)
        return waiting;
    return (size_t)(c->look.cleared - f->sent);
}

static enum relay failed(const struct connection *c, const struct end *end)
{
    return end == &c->inside ? RELAY_INSIDE : RELAY_OUTSIDE;
}

static enum relay refused(struct connection *c, const char *why)
{
    c->look.why = why;
    c->look.fix = "";
    return RELAY_REFUSED;
}

static enum relay drain_pipe(struct connection *c, struct flow *f)
{
    while (f->piped > 0) {
        ssize_t n = splice(f->pipe->ends[0], NULL, f->to->fd, NULL, f->piped, SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        f->blocked = n < 0 && errno == EAGAIN;
        if (f->blocked)
            return RELAY_FINE;
        if (n <= 0)
            return failed(c, f->to);
        f->piped -= (size_t)n;
        f->sent += (size_t)n;
    }
    if (f->pipe)
        pipe_give(c->box, f->pipe, true);
    f->pipe = NULL;
    return RELAY_FINE;
}

static enum relay drain(struct connection *c, struct flow *f)
{
    size_t clear;

    f->blocked = false;
    if (f->pipe)
        return drain_pipe(c, f);
    while ((clear = clear_to_send(c, f)) > 0) {
        ssize_t n = send(f->to->fd, f->bytes + f->at, clear, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        f->blocked = n < 0 && errno == EAGAIN;
        if (f->blocked)
            return RELAY_FINE;
        if (n < 0)
            return failed(c, f->to);
        f->at += (size_t)n;
        f->sent += (size_t)n;
    }
    if (f->at == f->n)
        bytes_free(c, f);
    return RELAY_FINE;
}

/* Whether the bytes need not be looked at. */
static bool is_free(const struct connection *c, const struct flow *f)
{
    return f->n == 0 && (is_up(c, f) ? c->look.state == LOOK_FREE : !look_wants_down(&c->look));
}

/* What a read of either kind means; *ret_n: how many, 0 for none now. */
static enum relay take(struct connection *c, struct flow *f, ssize_t n, size_t *ret_n)
{
    *ret_n = n > 0 ? (size_t)n : 0;
    if (n == 0)
        f->ended = true;
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return failed(c, f->from);
    f->count += *ret_n;
    box_spend(c->box, *ret_n);
    return RELAY_FINE;
}

static enum relay fill_pipe(struct connection *c, struct flow *f, size_t most, size_t *ret_n)
{
    ssize_t n = splice(f->from->fd, NULL, f->pipe->ends[1], NULL,
                       most < PIPE_BYTES ? most : PIPE_BYTES, SPLICE_F_NONBLOCK);
    enum relay r = take(c, f, n, ret_n);

    f->piped = *ret_n;
    if (f->piped == 0) {
        pipe_give(c->box, f->pipe, true);
        f->pipe = NULL;
    }
    return r;
}

static enum relay fill_bytes(struct connection *c, struct flow *f, size_t most, size_t *ret_n)
{
    *ret_n = 0;
    if (!bytes_take(c, f))
        return refused(c, "too many connections wait for what was sent first to be taken");
    if (f->at > 0) {
        memmove(f->bytes, f->bytes + f->at, f->n - f->at);
        f->n -= f->at;
        f->at = 0;
    }
    size_t room = FLOW_BYTES - f->n;
    if (room == 0) /* more than anything that is looked at can be */
        return refused(c, "what was sent first is longer than it can be");
    ssize_t n = recv(f->from->fd, f->bytes + f->n, room < most ? room : most, MSG_DONTWAIT);
    enum relay r = take(c, f, n, ret_n);
    unsigned char *fresh = f->bytes + f->n;
    f->n += *ret_n;
    if (r == RELAY_FINE && *ret_n > 0 && is_up(c, f) && look_up(&c->look, fresh, *ret_n) < 0)
        return RELAY_REFUSED;
    if (*ret_n > 0 && !is_up(c, f))
        look_down(&c->look, fresh, *ret_n);
    return r;
}

/* What the other side does not take stays where it is: nothing is kept here. */
static enum relay pass_on(struct connection *c, struct flow *f, size_t most, size_t *ret_n)
{
    unsigned char *shown = c->box->egress->pipes->shown;
    size_t room = most < FLOW_BYTES ? most : FLOW_BYTES;
    ssize_t n = recv(f->from->fd, shown, room, MSG_PEEK | MSG_DONTWAIT);
    ssize_t sent = n > 0 ? send(f->to->fd, shown, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

    *ret_n = 0;
    if (n <= 0)
        return take(c, f, n, ret_n);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return failed(c, f->to);
    f->blocked = sent < n;
    if (sent <= 0)
        return RELAY_FINE;
    f->sent += (size_t)sent;
    n = recv(f->from->fd, NULL, (size_t)sent, MSG_TRUNC | MSG_DONTWAIT);
    return n == sent ? take(c, f, n, ret_n) : failed(c, f->from);
}

static enum relay fill(struct connection *c, struct flow *f, size_t *ret_n)
{
    size_t most;

    *ret_n = 0;
    if (!box_has_bytes(c->box, &most))
        return RELAY_SPENT;
    if (!is_free(c, f))
        return fill_bytes(c, f, most, ret_n);
    if (f->count >= LONG_FLOW)
        f->pipe = pipe_take(c->box);
    return f->pipe ? fill_pipe(c, f, most, ret_n) : pass_on(c, f, most, ret_n);
}

enum relay flow_step(struct connection *c, struct flow *f)
{
    size_t turn = 0;
    size_t n = 0;

    do {
        enum relay r = drain(c, f);
        if (r == RELAY_FINE && !f->blocked && !f->ended)
            r = fill(c, f, &n);
        if (r != RELAY_FINE)
            return r;
        turn += n;
    } while (n > 0 && !f->blocked && !f->ended && turn < TURN_BYTES);
    enum relay r = f->blocked ? RELAY_FINE : drain(c, f);
    if (r != RELAY_FINE)
        return r;
    if (f->ended && !f->told && f->at == f->n && f->piped == 0) {
        f->told = true;
        (void)shutdown(f->to->fd, SHUT_WR);
    }
    if (f->ended && f->at < f->n && clear_to_send(c, f) == 0)
        return refused(c, "what was sent first did not come to its end");
    return RELAY_FINE;
}

uint32_t flow_wants(const struct connection *c, const struct end *end)
{
    const struct flow *from = end == &c->inside ? &c->up : &c->down;
    const struct flow *to = end == &c->inside ? &c->down : &c->up;

    return (!from->ended && !from->blocked ? EPOLLIN : 0U) | (to->blocked ? EPOLLOUT : 0U);
}
