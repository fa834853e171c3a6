/* SPDX-License-Identifier: Apache-2.0 */
/* What goes back to the client: one JSON object, or events, the last of which has the result. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "front/core/live.h"
#include "front/mcp/mcp.h"

enum {
    OUT_MOST = 96 << 20, /* of one answer with what waits before it */
    PING_MS = 15000,
};

#define VERSION "0.1.0"

json_t *mcp_server_info(void)
{
    return json_pack("{s:s, s:s, s:s}", "name", "carrel", "title", "Carrel", "version", VERSION);
}

json_t *mcp_text(const char *bytes, size_t n)
{
    json_t *text = json_stringn(n ? bytes : "", n);
    scoped_buf struct buf b = {.n = 0};
    uint32_t code;

    if (text)
        return text;
    buf_init(&b, n * 3 + 1);
    for (size_t i = 0; i < n;) {
        size_t one = utf8_next(bytes + i, n - i, &code);
        if (one > 0)
            buf_add(&b, bytes + i, one);
        else
            buf_str(&b, "\xef\xbf\xbd");
        i += one > 0 ? one : 1;
    }
    return buf_done(&b) == 0 ? json_stringn(b.p, b.n) : NULL;
}

/* --- a stream --- */

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct mcp_ask *ask = context;
    size_t n = ask->out.n - ask->out_at;

    if (ask->out.failed)
        return -EPIPE;
    if (n == 0)
        return ask->over ? 0 : -EAGAIN;
    n = n < size ? n : size;
    memcpy(bytes, ask->out.p + ask->out_at, n);
    ask->out_at += n;
    if (ask->out_at == ask->out.n) {
        buf_clear(&ask->out);
        buf_init(&ask->out, OUT_MOST);
        ask->out_at = 0;
        mcp_run_go_on(ask);
    }
    return (ssize_t)n;
}

bool mcp_is_behind(const struct mcp_ask *ask)
{
    return ask->out.n - ask->out_at > MCP_BEHIND;
}

static void ping(struct timer *timer)
{
    struct mcp_ask *ask = container_of(timer, struct mcp_ask, ping);

    ignore(timer_set(ask->front->events, timer, now_ms() + PING_MS));
    if (!mcp_is_behind(ask))
        buf_str(&ask->out, ": ping\n\n");
    if (ask->call->x)
        http_wake(ask->call->x);
}

/* A word as one of those of a list with commas, whatever its parameters. */
static bool accepts(const struct call *call, const char *type)
{
    const char *accept = http_header(http_request_of(call->x), "accept");

    return accept && strstr(accept, type);
}

bool mcp_stream(struct mcp_ask *ask)
{
    struct call *call = ask->call;

    if (!accepts(call, "text/event-stream"))
        return true;
    if (!live_hold(call, ask->tool ? HTTP_OUTPUT : HTTP_NEWS)) {
        ask->over = true;
        return false;
    }
    ask->streams = true;
    buf_init(&ask->out, OUT_MOST);
    ask->ping.ring = ping;
    ignore(timer_set(call->front->events, &ask->ping, now_ms() + PING_MS));
    call_stream(call, 200, "text/event-stream",
                "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n", pull, ask);
    return true;
}

static void put_event(struct mcp_ask *ask, const json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(15));

    if (text) {
        buf_str(&ask->out, "event: message\ndata: ");
        buf_str(&ask->out, text);
        buf_str(&ask->out, "\n\n");
    } else {
        ask->out.failed = true;
    }
    free(text);
    if (ask->call->x)
        http_wake(ask->call->x);
}

void mcp_send(struct mcp_ask *ask, json_t *message)
{
    if (ask->streams && !ask->over)
        put_event(ask, message);
    json_decref(message);
}

void mcp_notify(struct mcp_ask *ask, const char *method, json_t *params)
{
    mcp_send(ask,
             json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

void mcp_progress(struct mcp_ask *ask, uint64_t progress, const char *message, size_t n)
{
    if (!ask->token || !ask->streams)
        return;
    json_t *params =
        json_pack("{s:O, s:I}", "progressToken", ask->token, "progress", (json_int_t)progress);
    if (n > 0)
        json_object_set_new(params, "message", mcp_text(message, n));
    mcp_notify(ask, "notifications/progress", params);
}

/* --- the end --- */

/* Takes the message. */
static void finish(struct mcp_ask *ask, int status, json_t *message, const char *headers)
{
    if (ask->over) {
        json_decref(message);
        return;
    }
    if (ask->streams) {
        put_event(ask, message);
        json_decref(message);
        ask->over = true;
        timer_stop(ask->front->events, &ask->ping);
        return;
    }
    ask->over = true;
    char *text = json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(message);
    if (text)
        call_reply(ask->call, status, "application/json", headers, text, strlen(text));
    else
        call_error(ask->call, 503, "unavailable", "out of memory");
    free(text);
}

void mcp_result_with(struct mcp_ask *ask, json_t *result, const char *headers)
{
    if (ask->modern) {
        json_t *meta = json_object_get(result, "_meta");
        if (!meta) {
            meta = json_object();
            json_object_set_new(result, "_meta", meta);
        }
        json_object_set_new(meta, MCP_META "serverInfo", mcp_server_info());
        if (!json_object_get(result, "resultType"))
            json_object_set_new(result, "resultType", json_string("complete"));
    }
    finish(ask, 200,
           json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", ask->id, "result", result),
           headers);
}

void mcp_result(struct mcp_ask *ask, json_t *result)
{
    mcp_result_with(ask, result, NULL);
}

void mcp_error(struct mcp_ask *ask, int status, int code, json_t *data, const char *format, ...)
{
    char message[512];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof(message) ? (size_t)n : sizeof(message) - 1;
    json_t *error = json_pack("{s:i, s:o}", "code", code, "message", mcp_text(message, size));
    if (data)
        json_object_set_new(error, "data", data);
    json_t *id = ask->id ? json_deep_copy(ask->id) : json_null();
    finish(ask, status, json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id, "error", error),
           NULL);
}

void mcp_silence(struct mcp_ask *ask)
{
    if (ask->over)
        return;
    ask->over = true;
    timer_stop(ask->front->events, &ask->ping);
    if (ask->streams && ask->call->x)
        http_wake(ask->call->x);
    else if (!ask->streams)
        call_reply(ask->call, 202, NULL, NULL, "", 0);
}
