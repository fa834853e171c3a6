/* SPDX-License-Identifier: Apache-2.0 */
/* From the bytes of a body to its owner: collected up to a bound, or handed over piece by piece.
 * Decoded bytes that the owner did not take stay in front of those that are not decoded yet. */
#include "http/connection.h"

#include <string.h>

void body_begin(struct exchange *x, int64_t bound)
{
    struct connection *c = x->connection;
    static char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec part = {.iov_base = go_on, .iov_len = sizeof(go_on) - 1};

    x->streams_body = bound == HTTP_BODY_STREAM;
    x->bound = bound > 0 ? (uint64_t)bound : 0;
    if (!x->streams_body && x->left > x->bound) {
        answer_refuse(c, 413, "too_large", "the body is larger than this request may have");
        return;
    }
    buf_init(&x->body, (size_t)x->bound);
    if (x->request.expects_continue && !x->body_done && c->in_n == 0)
        answer_send(c, &part, 1);
    connection_deadline(c, c->server->options.body_ms);
}

/* Makes plain bytes of what has come; false for a malformed body. */
static bool decode(struct connection *c, struct exchange *x)
{
    if (!x->request.chunked) {
        x->plain = c->in_n < x->left ? c->in_n : (size_t)x->left;
        x->left -= x->plain;
        x->decoded = x->left == 0;
        return true;
    }
    char *bytes = c->in + c->in_at;
    size_t data = 0;
    ssize_t taken = http_chunks_decode(&x->chunks, bytes, c->in_n, &data, &x->decoded);
    if (taken < 0)
        return false;
    /* Up to where the rest begins, so that both are one piece again. */
    size_t gap = (size_t)taken - data;
    memmove(bytes + gap, bytes, data);
    connection_drop_input(c, gap);
    x->plain = data;
    return true;
}

/* Whether all was taken. */
static bool deliver(struct connection *c, struct exchange *x)
{
    const char *bytes = c->in + c->in_at;
    size_t taken = x->plain;

    if (x->streams_body) {
        const struct http_server *server = c->server;
        taken = server->calls.on_body(server->owner, x, bytes, x->plain);
        taken = taken < x->plain ? taken : x->plain;
    } else if (x->plain > x->bound - x->body.n) {
        answer_refuse(c, 413, "too_large", "the body is larger than this request may have");
    } else {
        buf_add(&x->body, bytes, x->plain);
        if (x->body.failed)
            answer_refuse(c, 503, "unavailable", "no memory for the body");
    }
    connection_drop_input(c, taken);
    x->plain -= taken;
    return x->plain == 0;
}

bool body_step(struct connection *c)
{
    struct exchange *x = c->x;
    bool had = c->in_n > 0;

    if (x->paused)
        return false;
    if (x->plain == 0 && had && !x->decoded && !decode(c, x)) {
        answer_refuse(c, 400, "invalid_request", "the chunks of the body are malformed");
        return true;
    }
    if (x->plain > 0) {
        x->paused = true; /* unless the owner says otherwise before it returns */
        bool all = deliver(c, x);
        x->paused = x->paused && !all;
        if (c->state != STATE_BODY)
            return true;
        connection_deadline(c, x->paused ? 0 : c->server->options.body_ms);
        if (x->paused)
            return false;
    }
    if (x->plain > 0 || !x->decoded)
        return had;
    x->body_done = true;
    c->state = STATE_WAIT;
    connection_deadline(c, 0);
    c->server->calls.on_request(c->server->owner, x);
    return true;
}

void http_continue_body(struct exchange *x)
{
    struct connection *c = x->connection;

    if (!x->paused)
        return;
    x->paused = false;
    if (c->state == STATE_BODY)
        connection_deadline(c, c->server->options.body_ms);
    connection_later(c);
}

const char *http_body(const struct exchange *x, size_t *ret_n)
{
    if (ret_n)
        *ret_n = x->body.n;
    return x->body.p ? x->body.p : "";
}
