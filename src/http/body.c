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

bool body_goes_on(const struct connection *c)
{
    return c->x && !c->x->body_done && (c->state == STATE_BODY || c->x->duplex);
}

/* Makes plain bytes of what has come; false for a malformed body. */
static bool decode(struct connection *c, struct exchange *x)
{
    if (x->raw) {
        x->plain = c->in_n;
        x->decoded = c->ended;
        return true;
    }
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

void http_set_account(struct exchange *x, uint64_t *account)
{
    x->account = account;
}

/* Who sends many large ones, however slowly, leaves the others theirs. */
static bool is_affordable(const struct exchange *x, size_t more)
{
    uint64_t most = x->connection->server->options.body_bytes / ACCOUNT_PART;

    return !x->account || *x->account == x->counted || *x->account + more <= most;
}

static bool count(struct exchange *x, size_t counted)
{
    struct connection *c = x->connection;
    size_t more = counted - x->counted;

    if (counted <= x->counted)
        return true;
    if (!is_affordable(x, more) || !places_take_body(c->server, c, more))
        return false;
    if (x->account)
        *x->account += more;
    x->counted = counted;
    return true;
}

static void uncount(struct http_server *server, uint64_t *account, size_t counted)
{
    server->stats.body_bytes -= counted;
    if (account && counted)
        *account -= counted;
}

/* Never waits for room: all might wait for each other. False: there is none. */
static bool collect(struct exchange *x, const char *bytes)
{
    size_t counted = x->body.n + x->plain > SMALL_BODY ? x->body.n + x->plain : 0;

    if (!count(x, counted))
        return false;
    buf_add(&x->body, bytes, x->plain);
    return !x->body.failed;
}

void http_drop_body(struct exchange *x)
{
    buf_clear(&x->body);
    uncount(x->connection->server, x->account, x->counted);
    x->counted = 0;
}

void http_take_body(struct exchange *x, struct http_taken *ret)
{
    *ret = (struct http_taken){.bytes = x->body, .counted = x->counted, .account = x->account};
    buf_init(&x->body, 0);
    x->counted = 0;
}

void http_free_taken(struct http_server *server, struct exchange *x, struct http_taken *taken)
{
    buf_clear(&taken->bytes);
    if (x)
        x->counted = taken->counted;
    else
        uncount(server, taken->account, taken->counted);
    taken->counted = 0;
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
    } else if (!collect(x, bytes)) {
        answer_refuse(c, 503, "unavailable",
                      "no room for the body beside those that are kept already; try again when "
                      "they are done");
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
    if (x->plain == 0 && (had || x->raw) && !x->decoded && !decode(c, x)) {
        if (x->answered)
            c->dead = true; /* there is no second answer */
        else
            answer_refuse(c, 400, "invalid_request", "the chunks of the body are malformed");
        return true;
    }
    if (x->plain > 0) {
        x->paused = true; /* unless the owner says otherwise before it returns */
        bool all = deliver(c, x);
        x->paused = x->paused && !all;
        if (!body_goes_on(c))
            return true;
        /* Both ways at once take the time they take. */
        if (c->state == STATE_BODY)
            connection_deadline(c, x->paused ? 0 : c->server->options.body_ms);
        else if (x->half)
            connection_deadline(c, HALF_MS);
        if (x->paused)
            return false;
    }
    if (x->plain > 0 || !x->decoded)
        return had;
    x->body_done = true;
    if (c->state == STATE_BODY) {
        c->state = STATE_WAIT;
        connection_deadline(c, 0);
    } else if (x->raw) {
        connection_deadline(c, HALF_MS);
    }
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
