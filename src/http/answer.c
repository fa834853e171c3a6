/* SPDX-License-Identifier: Apache-2.0 */
/* From answers to bytes. A reply goes out in one call, head and body together, and what the socket
 * does not take is copied and sent as it drains. A stream is pulled only when everything pulled
 * before has gone out: at most STREAM_BYTES of it are ever held. */
#include "http/connection.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

enum {
    FRAME = 6,       /* "ffff\r\n" */
    MAX_ROUNDS = 16, /* of pulling for one client before the others have their turn */
};

static const char *date(struct http_server *server)
{
    time_t now = time(NULL);
    struct tm parts;

    if (now != server->date_second && gmtime_r(&now, &parts)) {
        server->date_second = now;
        (void)strftime(server->date, sizeof(server->date), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    }
    return server->date;
}

static void queue(struct connection *c, const void *bytes, size_t n)
{
    if (n > 0) /* else it would take memory for nothing */
        buf_add(&c->out, bytes, n);
    if (c->out.failed)
        c->dead = true;
}

/* Counts `sent` bytes off the parts and queues the others. */
static void queue_rest(struct connection *c, const struct iovec *parts, size_t n, size_t sent)
{
    for (size_t i = 0; i < n; i++) {
        size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len;
        sent -= skip;
        queue(c, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
    }
}

void answer_send(struct connection *c, struct iovec *parts, size_t n)
{
    struct iovec all[6] = {{.iov_base = c->out.p, .iov_len = c->out.n - c->out_at}};
    struct msghdr message = {.msg_iov = all, .msg_iovlen = n + 1};
    ssize_t sent;

    if (c->dead)
        return;
    if (c->out_at)
        all[0].iov_base = c->out.p + c->out_at;
    if (n)
        memcpy(all + 1, parts, n * sizeof(*parts));
    do
        sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN) {
        c->dead = true;
        return;
    }
    size_t done = sent < 0 ? 0 : (size_t)sent;
    size_t old = done < all[0].iov_len ? done : all[0].iov_len;
    c->out_at += old;
    if (c->out_at == c->out.n) {
        buf_clear(&c->out);
        c->out_at = 0;
    }
    queue_rest(c, parts, n, done - old);
    c->blocked = c->out.n > 0;
    if (c->state != STATE_REPLY)
        return;
    /* A stream may have nothing to say for a long time, and its reader may take its time too. */
    if (c->x && c->x->raw)
        connection_deadline(c, c->x->body_done || c->x->half ? HALF_MS : 0);
    else if (!c->blocked || (c->x && c->x->pull))
        connection_deadline(c, 0);
    else if (done > 0 || c->deadline == UINT64_MAX)
        connection_deadline(c, STALLED_MS);
}

static const char *connection_header(const struct connection *c)
{
    if (c->close_after)
        return "Connection: close\r\n";
    return c->x && c->x->request.is_1_0 ? "Connection: keep-alive\r\n" : "";
}

/* Up to the headers of the owner. */
static size_t write_head(struct connection *c, char *text, size_t size, int status,
                         const char *type)
{
    int n = snprintf(text, size, "HTTP/1.1 %d %s\r\nDate: %s\r\n%s%s%s%s", status,
                     http_status_text(status), date(c->server), connection_header(c),
                     type ? "Content-Type: " : "", type ? type : "", type ? "\r\n" : "");

    if (n < 0 || (size_t)n >= size) {
        c->dead = true; /* a content type of hundreds of bytes: a mistake of ours */
        return 0;
    }
    return (size_t)n;
}

static bool has_no_body(int status)
{
    return status == 204 || status == 304;
}

static struct iovec part(const char *text, size_t n)
{
    /* sendmsg only reads what it is given. */
    return (struct iovec){.iov_base = (void *)(uintptr_t)text, .iov_len = n};
}

static void send_reply(struct connection *c, int status, const char *type, const char *headers,
                       struct iovec body)
{
    char head[640];
    char length[48] = "\r\n";
    bool silent = has_no_body(status);

    size_t head_n = write_head(c, head, sizeof(head), status, silent ? NULL : type);
    if (!silent)
        (void)snprintf(length, sizeof(length), "Content-Length: %zu\r\n\r\n", body.iov_len);
    if (silent || (c->x && c->x->request.method == HTTP_HEAD))
        body.iov_len = 0;
    struct iovec parts[] = {
        part(head, head_n),
        part(headers ? headers : "", headers ? strlen(headers) : 0),
        part(length, strlen(length)),
        body,
    };
    c->state = STATE_REPLY;
    connection_deadline(c, 0);
    answer_send(c, parts, sizeof(parts) / sizeof(parts[0]));
}

/* A small body that has come already need not end the connection. */
static void skip_body(struct connection *c, struct exchange *x)
{
    if (!x->body_done && !x->request.chunked && x->plain == 0 && x->left <= c->in_n) {
        connection_drop_input(c, (size_t)x->left);
        x->left = 0;
        x->body_done = true;
    }
}

/* Whether an answer can be given now; decides what becomes of the connection after it. */
static bool begin_answer(struct connection *c, struct exchange *x)
{
    if (x->answered || c->dead)
        return false;
    x->answered = true;
    if (!x->duplex)
        skip_body(c, x);
    c->close_after = !x->request.keep_alive || !x->body_done || c->server->draining || c->limit;
    /* Who asked for the end of the connection sends nothing more; others may. */
    c->linger_after = !x->body_done || x->request.keep_alive;
    c->discard = DISCARD_BYTES;
    return true;
}

void http_reply(struct exchange *x, int status, const char *type, const char *headers,
                const char *body, size_t n)
{
    struct connection *c = x->connection;

    if (!begin_answer(c, x))
        return;
    x->finished = true;
    send_reply(c, status, type, headers, part(n ? body : "", n));
    connection_later(c);
}

void answer_refuse(struct connection *c, int status, const char *code, const char *why)
{
    static const char again[] = "Retry-After: 1\r\n";
    const struct http_server *server = c->server;
    char headers[160];
    char details[64] = "";
    char body[512];

    if (c->limit)
        (void)snprintf(details, sizeof(details), ",\"details\":{\"reason\":\"%s\"}",
                       http_limit_setting(c->limit));
    int n = snprintf(body, sizeof(body), "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"%s}}\n",
                     code, why, details);
    if (!c->x) {
        c->server->stats.refused += !c->limit;
    } else {
        c->x->answered = true;
        c->x->refused = true;
        c->x->finished = true;
    }
    c->close_after = true;
    c->linger_after = true;
    c->discard = DISCARD_BYTES;
    size_t at = status == 503 || status == 429 ? strlen(again) : 0;
    memcpy(headers, again, at);
    headers[at] = '\0';
    if (server->calls.on_refusal)
        server->calls.on_refusal(server->owner, c->x, headers + at, sizeof(headers) - at);
    send_reply(c, status, "application/json", headers, part(body, n < 0 ? 0 : (size_t)n));
}

void answer_limit(struct connection *c)
{
    bool of_all = c->limit == HTTP_MAX_CONNECTIONS;

    answer_refuse(c, of_all ? 503 : 429, of_all ? "unavailable" : "quota_exceeded",
                  http_limit_advice(c->limit));
}

void http_stream(struct exchange *x, int status, const char *type, const char *headers,
                 http_pull *pull, void *context)
{
    http_stream_sized(x, &(struct http_streamed){.status = status,
                                                 .type = type,
                                                 .headers = headers,
                                                 .size = HTTP_SIZE_UNKNOWN,
                                                 .pull = pull,
                                                 .context = context});
}

void http_stream_sized(struct exchange *x, const struct http_streamed *s)
{
    struct connection *c = x->connection;
    char text[640];

    if (!begin_answer(c, x))
        return;
    bool sized = s->size != HTTP_SIZE_UNKNOWN;
    x->chunked = !sized && !x->request.is_1_0 && !has_no_body(s->status);
    c->close_after = c->close_after || (x->request.is_1_0 && !sized);
    x->finished = x->request.method == HTTP_HEAD || has_no_body(s->status);
    x->pull = s->pull;
    x->context = s->context;
    /* It leaves with the first bytes pulled, or without if there are none yet. */
    size_t n = write_head(c, text, sizeof(text), s->status, s->type);
    queue(c, text, n);
    if (s->headers)
        queue(c, s->headers, strlen(s->headers));
    (void)snprintf(text, sizeof(text), "Content-Length: %llu\r\n\r\n", (unsigned long long)s->size);
    const char *end = sized ? text : x->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
    queue(c, end, strlen(end));
    connection_deadline(c, 0);
    c->state = STATE_REPLY;
    connection_later(c);
}

void http_stream_duplex(struct exchange *x, int status, const char *headers, uint64_t size,
                        http_pull *pull, void *context)
{
    x->duplex = !x->answered;
    x->streams_body = true; /* also when on_head has not returned yet */
    http_stream_sized(
        x,
        &(struct http_streamed){
            .status = status, .headers = headers, .size = size, .pull = pull, .context = context});
}

void http_upgrade(struct exchange *x, const char *headers, http_pull *pull, void *context)
{
    struct connection *c = x->connection;
    char text[640];

    x->duplex = !x->answered;
    if (!begin_answer(c, x))
        return;
    x->raw = true;
    x->streams_body = true;
    x->decoded = false;
    x->body_done = false;
    x->pull = pull;
    x->context = context;
    c->close_after = false; /* which is not for this head to say */
    queue(c, text, write_head(c, text, sizeof(text), 101, NULL));
    queue(c, headers, strlen(headers));
    queue(c, "\r\n", 2);
    connection_deadline(c, 0);
    c->state = STATE_REPLY;
    connection_later(c);
}

/* Without its last chunk the client knows; where there are none, a reset tells it. */
static void cut(struct connection *c, const struct exchange *x)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    if (!x->chunked)
        (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    c->dead = true;
}

void http_cut(struct exchange *x)
{
    cut(x->connection, x);
    connection_later(x->connection);
}

void http_end_with_client(struct exchange *x)
{
    x->one_way = true;
    x->connection->muted = false;
    connection_later(x->connection); /* it may have ended already */
}

void http_hurry(struct exchange *x)
{
    struct connection *c = x->connection;

    c->hurries = true;
    connection_deadline(c, GOING_MS);
}

void http_wake(struct exchange *x)
{
    x->woken = true;
    if (x->pull)
        connection_later(x->connection);
}

/* One pull into `at`, with its frame around it. >0: bytes to send; 0: nothing now. */
static size_t pull_one(struct connection *c, struct exchange *x, char *at, size_t room)
{
    size_t frame = x->chunked ? FRAME : 0;
    ssize_t n = x->pull(x->context, at + frame, room - frame - 2);

    if (n == -EAGAIN)
        return 0;
    if (n == 0)
        x->finished = true;
    if (n < 0) {
        cut(c, x);
        return 0;
    }
    if (!x->chunked)
        return (size_t)n;
    if (n == 0) {
        static const char last[5] = {'0', '\r', '\n', '\r', '\n'};
        memcpy(at, last, sizeof(last));
        return sizeof(last);
    }
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 4; i++)
        at[i] = digits[(size_t)n >> (12 - 4 * i) & 15];
    at[4] = '\r';
    at[5] = '\n';
    at[FRAME + n] = '\r';
    at[FRAME + n + 1] = '\n';
    return FRAME + (size_t)n + 2;
}

/* Fills the scratch buffer as far as there is something, and sends it. Whether there may be more.
 */
static bool pull_some(struct connection *c, struct exchange *x)
{
    char *bytes = c->server->scratch;
    size_t n = 0;
    size_t one = 1;

    while (one > 0 && !x->finished && !c->dead && STREAM_BYTES - n >= STREAM_PIECE + 32) {
        x->woken = false;
        one = pull_one(c, x, bytes + n, STREAM_BYTES - n - FRAME);
        n += one;
    }
    if (n > 0 || c->out.n > 0) {
        /* What was pulled before it had to be cut is still the client's. */
        bool cut = c->dead;
        struct iovec part_of_stream = part(bytes, n);
        c->dead = false;
        answer_send(c, &part_of_stream, 1);
        c->dead = c->dead || cut;
    }
    return (one > 0 || x->woken) && !x->finished;
}

bool answer_step(struct connection *c)
{
    struct exchange *x = c->x;

    if (c->blocked || c->dead)
        return false;
    if (x && x->pull) {
        int rounds = 0;
        bool more = true;
        while (more && !c->blocked && !c->dead && rounds++ < MAX_ROUNDS)
            more = pull_some(c, x);
        /* The socket can take more, so the loop comes back with that at once. */
        c->blocked = c->blocked || (more && !c->dead);
    }
    return !c->dead && !c->blocked && (!x || x->finished);
}
