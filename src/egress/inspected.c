/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/inspected.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/egress.h"

enum {
    PIECE = 16 << 10,     /* read at a time */
    HELD = 64 << 10,      /* then no more is read for that side */
    OUT_MOST = 512 << 10, /* what becomes of the pieces until then always fits */
    TURN_BYTES = 1 << 20,
    SHAKE_MS = 15000, /* until TLS stands, and for a request's head */
    IDLE_MS = 300000, /* no request */
    LAST_MS = 3000,   /* for what is said last to be read */
    DRAIN = 1 << 20,  /* read and dropped meanwhile, at most */
};

enum phase {
    PHASE_SHAKING,
    PHASE_HEAD,
    PHASE_IDLE,
    PHASE_ASKING, /* may last */
    PHASE_LAST,
};

struct side {
    SSL *ssl;
    bool is_up;
    bool ended;
    bool blocked;   /* no more can be written now */
    bool has_asked; /* a handshake waits for room to write */
    struct buf out; /* what is to be written there, from `at` */
    size_t at;
};

struct inspected {
    struct side inside;
    struct side outside;
    struct inner inner;
    struct buf ahead;   /* from inside, not looked at yet: of the next request */
    const char *broken; /* why there is no server */
    bool is_last;       /* nothing comes after what is to be written inside */
    bool is_closing;    /* ... which has been written */
    size_t drained;
    enum phase phase;
    uint64_t asked_ms;
    struct timer again;
    struct connection *connection;
};

static void turn_again(struct timer *timer)
{
    struct inspected *t = container_of(timer, struct inspected, again);

    connection_step(t->connection);
}

struct inspected *inspected_begin(struct connection *c)
{
    struct inspected *t = calloc(1, sizeof(*t));
    struct box *box = c->box;

    if (!t)
        return NULL;
    t->connection = c;
    t->again.ring = turn_again;
    inner_begin(&t->inner, c->host, c->port, secrets_value, box);
    buf_init(&t->inside.out, OUT_MOST);
    buf_init(&t->outside.out, OUT_MOST);
    buf_init(&t->ahead, PIECE);
    t->inside.ssl = tls_inside(box->egress, box, c->host, c->inside.fd);
    t->outside.ssl = tls_outside(box->egress, c->host, c->outside.fd);
    t->phase = PHASE_IDLE; /* another than it is */
    c->inspected = t;
    if (t->inside.ssl && t->outside.ssl)
        return t;
    inspected_end(c);
    return NULL;
}

/* What was in it may have been a secret. */
static void wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_clear(b);
}

void inspected_end(struct connection *c)
{
    struct inspected *t = c->inspected;

    if (!t)
        return;
    timer_stop(c->box->egress->events, &t->again);
    SSL_free(t->inside.ssl);
    SSL_free(t->outside.ssl);
    wipe(&t->inside.out);
    wipe(&t->outside.out);
    wipe(&t->ahead);
    inner_clear(&t->inner);
    free(t);
    c->inspected = NULL;
}

/* --- one side --- */

/* 1: it has gone on, 0: not now, -1: it has failed. */
static int outcome(struct side *s, int r)
{
    if (r > 0)
        return 1;
    switch (SSL_get_error(s->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        s->blocked = true;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        s->ended = true;
        return 0;
    default:
        return -1;
    }
}

static int shake(struct side *s, bool *moved)
{
    ERR_clear_error();
    s->blocked = false;
    int r = outcome(s, SSL_do_handshake(s->ssl));
    s->has_asked = s->blocked;
    if (r > 0) {
        s->is_up = true;
        *moved = true;
    }
    return r;
}

static int write_out(struct side *s, struct flow *flow, bool *moved)
{
    s->blocked = false;
    while (s->at < s->out.n) {
        ERR_clear_error();
        int n = SSL_write(s->ssl, s->out.p + s->at, (int)(s->out.n - s->at));
        int r = outcome(s, n);
        if (r <= 0)
            return r;
        s->at += (size_t)n;
        flow->sent += (size_t)n;
        *moved = true;
    }
    if (s->out.p)
        wipe(&s->out);
    s->at = 0;
    return 0;
}

/* >0: so many bytes; 0: none now; -1: it has failed; -2: the sandbox has used up its bytes. */
static int read_some(struct connection *c, struct side *s, struct flow *flow, char *piece,
                     size_t room)
{
    size_t left;

    if (!box_has_bytes(c->box, &left))
        return -2;
    ERR_clear_error();
    int n = SSL_read(s->ssl, piece, (int)(room < left ? room : left));
    int r = outcome(s, n);
    if (r <= 0)
        return r;
    flow->count += (uint64_t)n;
    box_spend(c->box, (size_t)n);
    return n;
}

/* --- between --- */

static void tell_request(struct connection *c)
{
    struct inspected *t = c->inspected;
    char what[EGRESS_TEXT];

    snprintf(what, sizeof(what), "%s %s", t->inner.method, t->inner.path);
    news_tell(c->box->egress, &(struct egress_news){.kind = EGRESS_REQUEST,
                                                    .id = c->box->id,
                                                    .connection = c->number,
                                                    .host = c->host,
                                                    .port = c->port,
                                                    .rule = t->inner.rule,
                                                    .why = what,
                                                    .fix = "",
                                                    .count = t->inner.status,
                                                    .ms = now_ms() - t->asked_ms,
                                                    .group = c->group});
}

/* What is told inside instead of an answer; nothing more is taken from there. */
static void refuse_inside(struct connection *c)
{
    struct inspected *t = c->inspected;

    news_refuse(c->box, &(struct refused){.group = c->group,
                                          .host = c->host,
                                          .port = c->port,
                                          .rule = *t->inner.rule ? t->inner.rule : c->rule,
                                          .why = t->inner.why,
                                          .fix = t->inner.fix});
    if (t->inner.status == 0) /* else a part of an answer has gone in by now */
        inner_refusal(&t->inner, &t->inside.out);
    t->is_last = true;
}

static void break_outside(struct connection *c, const char *why)
{
    struct inspected *t = c->inspected;

    t->broken = why;
    t->inner.up = INNER_OVER;
    t->inner.why = why;
    t->inner.fix = "";
    t->inner.is_servers = true;
    refuse_inside(c);
}

static bool reads_inside(const struct inspected *t)
{
    return t->inside.is_up && !t->inside.ended && !t->is_last && !t->broken &&
           (t->inner.up == INNER_HEAD || t->inner.up == INNER_BODY) &&
           t->outside.out.n - t->outside.at < HELD;
}

static bool reads_outside(const struct inspected *t)
{
    return t->outside.is_up && !t->outside.ended && !t->is_last && !t->broken &&
           t->inside.out.n - t->inside.at < HELD;
}

static void take_ahead(struct connection *c)
{
    struct inspected *t = c->inspected;
    enum inner_up_state was = t->inner.up;

    t->inner.rules = c->box->rules;
    t->inner.rule_count = c->box->rule_count;
    ssize_t n = inner_up(&t->inner, t->ahead.p, t->ahead.n, &t->outside.out);
    if (was == INNER_HEAD && t->inner.up != INNER_HEAD)
        t->asked_ms = now_ms();
    if (n < 0) {
        wipe(&t->ahead);
        refuse_inside(c);
        return;
    }
    memmove(t->ahead.p, t->ahead.p + n, t->ahead.n - (size_t)n);
    t->ahead.n -= (size_t)n;
    if (t->ahead.n == 0)
        buf_clear(&t->ahead);
}

static enum relay from_inside(struct connection *c, bool *moved)
{
    static char piece[PIECE];
    struct inspected *t = c->inspected;

    if (!reads_inside(t))
        return RELAY_FINE;
    if (t->ahead.n == 0) {
        int n = read_some(c, &t->inside, &c->up, piece, sizeof(piece));
        if (n < 0)
            return n == -2 ? RELAY_SPENT : RELAY_INSIDE;
        if (n == 0 && t->inside.ended)
            return t->inner.up == INNER_HEAD && t->inner.head.n == 0 ? RELAY_OVER : RELAY_INSIDE;
        if (n == 0)
            return RELAY_FINE;
        buf_add(&t->ahead, piece, (size_t)n);
        explicit_bzero(piece, (size_t)n);
        if (buf_done(&t->ahead) < 0)
            return RELAY_INSIDE;
    }
    *moved = true;
    take_ahead(c);
    return RELAY_FINE;
}

/* After the server has said something, or has ended. */
static void look_at_answer(struct connection *c, bool failed)
{
    struct inspected *t = c->inspected;

    if (t->inner.is_done) {
        t->inner.is_done = false;
        tell_request(c);
    }
    if (failed) {
        tell_request(c);
        refuse_inside(c);
    } else if (t->inner.up == INNER_OVER) {
        t->is_last = true;
    }
}

static enum relay from_outside(struct connection *c, bool *moved)
{
    static char piece[PIECE];
    struct inspected *t = c->inspected;

    if (!reads_outside(t))
        return RELAY_FINE;
    int n = read_some(c, &t->outside, &c->down, piece, sizeof(piece));
    if (n == -2)
        return RELAY_SPENT;
    if (n == 0 && !t->outside.ended)
        return RELAY_FINE;
    if (t->inner.down == INNER_IDLE && n <= 0)
        return RELAY_OVER; /* it keeps the connection no longer */
    if (n < 0)
        return RELAY_OUTSIDE;
    *moved = true;
    int r = 0;
    if (n > 0) {
        r = inner_down(&t->inner, piece, (size_t)n, &t->inside.out) < 0 ? -1 : 0;
        explicit_bzero(piece, (size_t)n);
    } else {
        r = inner_down_end(&t->inner, &t->inside.out);
    }
    look_at_answer(c, r < 0);
    return RELAY_FINE;
}

/* --- the end --- */

/* Until the program has read what it was told: what it still sends would cut that off. */
static enum relay close_inside(struct connection *c)
{
    static char dropped[PIECE];
    struct inspected *t = c->inspected;

    if (!t->is_closing) {
        t->is_closing = true;
        (void)SSL_shutdown(t->inside.ssl);
        ERR_clear_error();
        (void)shutdown(c->inside.fd, SHUT_WR);
    }
    while (t->drained < DRAIN) {
        ssize_t n = recv(c->inside.fd, dropped, sizeof(dropped), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return RELAY_FINE;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        t->drained += (size_t)n;
    }
    return RELAY_OVER;
}

/* What it waits for now. */
static enum phase phase_of(const struct inspected *t)
{
    if (t->is_last)
        return PHASE_LAST;
    if (!t->inside.is_up || !t->outside.is_up)
        return PHASE_SHAKING;
    if (t->inner.up != INNER_HEAD)
        return PHASE_ASKING;
    return t->inner.head.n > 0 ? PHASE_HEAD : PHASE_IDLE;
}

static enum relay shake_hands(struct connection *c, bool *moved)
{
    struct inspected *t = c->inspected;

    if (!t->outside.is_up && !t->broken && shake(&t->outside, moved) < 0)
        break_outside(c, tls_why_outside(t->outside.ssl));
    if (!t->inside.is_up && shake(&t->inside, moved) < 0) {
        c->look.why = tls_why_inside(t->inside.ssl, &c->look.fix);
        return RELAY_REFUSED;
    }
    return RELAY_FINE;
}

static enum relay step(struct connection *c, bool *moved)
{
    struct inspected *t = c->inspected;
    enum relay r = shake_hands(c, moved);

    if (r == RELAY_FINE)
        r = from_inside(c, moved);
    if (r == RELAY_FINE && t->outside.is_up && !t->is_last &&
        write_out(&t->outside, &c->up, moved) < 0)
        r = RELAY_OUTSIDE;
    if (r == RELAY_FINE)
        r = from_outside(c, moved);
    if (r == RELAY_FINE && t->inside.is_up && !t->is_closing &&
        write_out(&t->inside, &c->down, moved) < 0)
        r = RELAY_INSIDE;
    if (r == RELAY_FINE && t->is_last && t->inside.is_up && t->inside.out.n == 0)
        r = close_inside(c);
    return r;
}

enum relay inspected_step(struct connection *c)
{
    struct inspected *t = c->inspected;
    uint64_t begun = c->up.count + c->down.count;
    bool moved = true;
    enum relay r = RELAY_FINE;

    while (r == RELAY_FINE && moved && c->up.count + c->down.count - begun < TURN_BYTES) {
        moved = false;
        r = step(c, &moved);
    }
    /* What OpenSSL has read already is told by nobody. */
    if (r == RELAY_FINE && moved)
        (void)timer_set(c->box->egress->events, &t->again, now_ms());
    return r;
}

uint32_t inspected_wants(const struct connection *c, const struct end *end)
{
    const struct inspected *t = c->inspected;
    bool is_inside = end == &c->inside;
    const struct side *s = is_inside ? &t->inside : &t->outside;

    if (!is_inside && (t->broken || t->is_last))
        return 0;
    if (t->is_closing)
        return EPOLLIN;
    uint32_t wants = s->blocked || s->has_asked ? EPOLLOUT : 0U;
    if (!s->is_up)
        return wants ? wants : EPOLLIN;
    if (is_inside ? reads_inside(t) : reads_outside(t))
        wants |= EPOLLIN;
    return wants ? wants : is_inside ? EPOLLRDHUP : 0U;
}

uint64_t inspected_due(struct connection *c)
{
    static const uint64_t most[] = {[PHASE_SHAKING] = SHAKE_MS,
                                    [PHASE_HEAD] = SHAKE_MS,
                                    [PHASE_IDLE] = IDLE_MS,
                                    [PHASE_LAST] = LAST_MS};
    struct inspected *t = c->inspected;
    enum phase phase = phase_of(t);

    if (phase != t->phase)
        c->due_ms = phase == PHASE_ASKING ? 0 : now_ms() + most[phase];
    t->phase = phase;
    return c->due_ms;
}

bool inspected_late(struct connection *c, const char **ret_why)
{
    switch (c->inspected->phase) {
    case PHASE_SHAKING:
        *ret_why = "TLS did not come about in time";
        return true;
    case PHASE_HEAD:
        *ret_why = "the head of its request did not come to its end in time";
        return true;
    case PHASE_IDLE:
    case PHASE_ASKING:
    case PHASE_LAST:
        break;
    }
    return false;
}
