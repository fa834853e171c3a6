/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/follow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/live.h"
#include "json/encode.h"

enum {
    PIECE = 32768,
    CUT = 4, /* most bytes of a character */
    PING_MS = 15000,
};

static const char *const stream_names[SPOOL_STREAM_COUNT_] = {"stdout", "stderr", "pty"};

struct following {
    struct follower follower; /* first: they are the same thing */
    struct call *call;
    struct exec *exec;    /* NULL: it ended before */
    struct spool spool;   /* ... and this is what it left */
    struct spool *source; /* exec's or ours; NULL: nothing was ever written */
    struct spool_reader reader;
    bool reading; /* the reader is in the source's list */
    struct follow_request request;
    char exec_id[28];
    json_t *result; /* of one that ended before */
    bool started;   /* the "start" event is out */
    bool ended;     /* the "end" event is out */
    size_t denied;  /* so many "denial" events are out */
    struct buf out; /* what is being sent */
    size_t out_at;

    struct cut {
        char bytes[CUT];
        size_t n;
    } cut[SPOOL_STREAM_COUNT_]; /* of a foreign reader's */
    struct timer ping;
    bool ping_due;
    json_t *last_word; /* instead of what is left */
};

bool follow_format_of(const char *text, enum follow_format *ret)
{
    static const struct {
        const char *text;
        enum follow_format format;
    } table[] = {{"ndjson", FOLLOW_NDJSON},
                 {"sse", FOLLOW_SSE},
                 {"raw", FOLLOW_RAW},
                 {"application/x-ndjson", FOLLOW_NDJSON},
                 {"text/event-stream", FOLLOW_SSE},
                 {"application/octet-stream", FOLLOW_RAW}};

    for (size_t i = 0; text && i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(text, table[i].text) == 0) {
            *ret = table[i].format;
            return true;
        }
    }
    return false;
}

/* One event in the client's format; takes the object. */
static void put_event(struct following *f, const char *type, uint64_t offset, json_t *object)
{
    if (f->request.format == FOLLOW_RAW) {
        json_decref(object);
        return;
    }
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(object);
    if (!text) {
        f->out.failed = true;
        return;
    }
    if (f->request.format == FOLLOW_SSE)
        buf_printf(&f->out, "event: %s\nid: %ju\ndata: ", type, (uintmax_t)offset);
    buf_str(&f->out, text);
    buf_str(&f->out, f->request.format == FOLLOW_SSE ? "\n\n" : "\n");
    free(text);
}

static json_t *event(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

static uint64_t end_of(const struct following *f)
{
    if (f->exec && f->exec->drained)
        return f->exec->final;
    return f->source ? f->source->end : 0;
}

/* How much of the bytes is whole characters; one that the end of the piece has cut goes with the
 * next, if that is already there. */
static size_t whole(const char *bytes, size_t n)
{
    size_t cut = utf8_cut(bytes, n);

    return n > cut ? n - cut : n;
}

/* In another protocol's words. Its readers take each event for text by itself, so the beginning of
 * a character waits for the rest of it. Before `bytes` there is room for one. */
static void put_foreign(struct following *f, enum spool_stream stream, char *bytes, size_t n)
{
    struct cut *cut = &f->cut[stream];

    bytes -= cut->n;
    n += cut->n;
    memcpy(bytes, cut->bytes, cut->n);
    cut->n = utf8_cut(bytes, n);
    n -= cut->n;
    memcpy(cut->bytes, bytes + n, cut->n);
    if (n)
        f->call->manner->output(&f->out, stream, bytes, n);
}

/* The end of the output may be the beginning of a character. */
static void end_foreign(struct following *f, const json_t *result)
{
    for (unsigned i = 0; i < SPOOL_STREAM_COUNT_; i++) {
        if (f->cut[i].n)
            f->call->manner->output(&f->out, (enum spool_stream)i, f->cut[i].bytes, f->cut[i].n);
    }
    f->call->manner->end(&f->out, result);
}

static bool is_over(const struct following *f)
{
    return !f->exec || f->exec->drained || !f->request.to_the_end;
}

static ssize_t read_piece(struct following *f, char *bytes, size_t size,
                          enum spool_stream *ret_stream)
{
    uint64_t end = end_of(f);

    if (!f->source || f->reader.at >= end)
        return 0;
    if (end - f->reader.at < size)
        size = (size_t)(end - f->reader.at);
    uint64_t at = f->reader.at;
    ssize_t n = spool_read(f->source, &f->reader, bytes, size, ret_stream);
    if (n > 0 && !f->exec && !spool_keeps(f->source, at))
        return -ESPIPE; /* an owner's newer output took its place: these were zeroes */
    if (n > 0 && f->request.format != FOLLOW_RAW && !f->call->manner) {
        size_t keep = whole(bytes, (size_t)n);
        f->reader.at -= (uint64_t)n - keep; /* the rest comes with what follows */
        n = (ssize_t)keep;
    }
    if (n > 0 && f->exec)
        exec_moved_on(f->exec);
    return n;
}

static void put_end(struct following *f)
{
    json_t *result = f->exec ? f->exec->result_json : f->result;

    f->ended = true;
    if (!f->request.to_the_end && f->exec && !f->exec->drained)
        return; /* it runs on; this was what there is */
    if (f->call->manner) {
        end_foreign(f, result);
        return;
    }
    json_t *object = event("end");
    json_object_set_new(object, "exec_id", json_string(f->exec_id));
    if (result)
        json_object_update(object, result);
    put_event(f, "end", end_of(f), object);
}

/* One that is not out yet, of a command that runs. */
static bool put_denial(struct following *f)
{
    if (!f->exec || f->call->manner || f->request.only >= 0 ||
        f->denied >= json_array_size(f->exec->denied))
        return false;
    put_event(f, "denial", f->reader.at, json_incref(json_array_get(f->exec->denied, f->denied++)));
    return true;
}

/* Puts the next event into f->out. 0; -EAGAIN: there is none now; other -errno. */
static int next_event(struct following *f)
{
    char room[CUT + PIECE];
    char *bytes = room + CUT;
    enum spool_stream stream = SPOOL_OUT;

    if (!f->started) {
        f->started = true;
        json_t *object = event("start");
        json_object_set_new(object, "exec_id", json_string(f->exec_id));
        if (f->exec && *f->exec->plan)
            json_object_set_new(object, "plan", json_string(f->exec->plan));
        if (f->request.announce)
            put_event(f, "start", f->reader.at, object);
        else
            json_decref(object);
        return 0;
    }
    if (f->last_word) {
        if (f->call->manner)
            f->call->manner->error(&f->out, json_object_get(f->last_word, "error"));
        else
            put_event(f, "error", f->reader.at, json_incref(f->last_word));
        f->ended = true;
        return 0;
    }
    if (put_denial(f))
        return 0;
    uint64_t at = f->reader.at;
    ssize_t n = read_piece(f, bytes, PIECE, &stream);
    if (n < 0)
        return (int)n;
    if (n == 0 && is_over(f)) {
        put_end(f);
        return 0;
    }
    if (n == 0 && f->ping_due) {
        f->ping_due = false;
        buf_str(&f->out, ": ping\n\n");
        return 0;
    }
    if (n == 0)
        return -EAGAIN;
    if (f->request.only >= 0 && f->request.only != (int)stream)
        return 0;
    if (f->call->manner) {
        put_foreign(f, stream, bytes, (size_t)n);
        return 0;
    }
    json_t *object = event(stream_names[stream]);
    json_object_set_new(object, "offset", json_integer((json_int_t)at));
    encode_bytes(object, "data", bytes, (size_t)n);
    put_event(f, stream_names[stream], f->reader.at, object);
    return 0;
}

static ssize_t pull_events(void *context, char *bytes, size_t size)
{
    struct following *f = context;

    while (f->out_at == f->out.n) {
        if (f->ended)
            return 0;
        buf_clear(&f->out);
        buf_init(&f->out, 4UL << 20);
        f->out_at = 0;
        int r = next_event(f);
        if (r < 0)
            return r;
        if (buf_done(&f->out) < 0)
            return -ENOMEM;
    }
    size_t n = f->out.n - f->out_at < size ? f->out.n - f->out_at : size;
    memcpy(bytes, f->out.p + f->out_at, n);
    f->out_at += n;
    return (ssize_t)n;
}

static ssize_t pull_raw(void *context, char *bytes, size_t size)
{
    struct following *f = context;
    enum spool_stream stream = SPOOL_OUT;
    ssize_t n;

    do
        n = read_piece(f, bytes, size, &stream);
    while (n > 0 && f->request.only >= 0 && f->request.only != (int)stream);
    if (n == 0 && !is_over(f))
        return -EAGAIN;
    if (n == 0 && f->request.whole && f->exec && f->exec->result.exit_code != 0)
        return -EIO;
    return n;
}

static void more(struct follower *follower)
{
    struct following *f = (struct following *)follower;

    if (!f->reading && f->exec->has_spool) { /* the first byte has made it */
        f->source = &f->exec->spool;
        f->reading =
            spool_reader_add(f->source, &f->reader, f->request.from, f->request.holds) == 0;
    }
    if (f->call->x)
        http_wake(f->call->x);
}

static void begun(struct follower *follower, const struct err *failed)
{
    (void)follower;
    (void)failed; /* only those that run are followed */
}

static void ring(struct timer *timer)
{
    struct following *f = container_of(timer, struct following, ping);

    f->ping_due = f->request.format == FOLLOW_SSE;
    ignore(timer_set(f->call->front->events, timer, now_ms() + PING_MS));
    if (f->call->x)
        http_wake(f->call->x);
}

static void say_last(struct call *call, const struct ending *ending)
{
    struct following *f = call->context;

    if (ending->ends_commands && f->exec && !f->exec->drained)
        return; /* the end of the command is what there is to say */
    char *line = ending_line(ending);
    json_decref(f->last_word);
    f->last_word = line ? json_loads(line, 0, NULL) : NULL;
    free(line);
    if (f->last_word && f->request.format != FOLLOW_RAW)
        http_wake(call->x);
    else
        http_cut(call->x);
}

static void abandoned(struct call *call)
{
    struct following *f = call->context;
    struct exec *exec = f->exec;

    if (exec)
        exec_left(exec, f->request.whole || (call->manner && call->manner->ends_with_client));
    timer_stop(call->front->events, &f->ping);
    if (f->reading)
        spool_reader_drop(f->source, &f->reader);
    if (!exec)
        spool_close(&f->spool);
    buf_clear(&f->out);
    json_decref(f->result);
    json_decref(f->last_word);
    if (exec) {
        exec_moved_on(exec); /* nobody waits for this one any more */
        exec_unfollow(exec, &f->follower);
    }
    free(f);
}

static int open_source(struct following *f)
{
    struct front *front = f->call->front;
    uint64_t from = f->request.from;

    if (f->exec) {
        f->source = f->exec->has_spool ? &f->exec->spool : NULL;
    } else {
        int r = spool_open(&f->spool, front->spools, f->exec_id, front->settings->spool_bytes);
        if (r < 0 && r != -ENOENT)
            return r;
        f->source = r == 0 ? &f->spool : NULL;
    }
    f->reader.at = from;
    if (!f->source)
        return from ? -EINVAL : 0;
    int r = spool_reader_add(f->source, &f->reader, from, f->request.holds);
    f->reading = r == 0;
    return r;
}

static void refuse(struct following *f, int r)
{
    struct call *call = f->call;

    if (r == -ESPIPE) {
        json_t *error = json_pack(
            "{s:s, s:s, s:{s:I}}", "code", "gone", "message",
            "output so far back is no longer kept; the first that is has the offset in details",
            "details", "first", (json_int_t)f->source->first);
        call_json(call, 410, json_pack("{s:o}", "error", error));
    } else if (r == -EINVAL) {
        call_bad_field(call, "from", "at most the length of the output so far");
    } else {
        struct err err;
        err_set(&err, ERR_IO, -r, "read the output");
        call_fail(call, &err);
    }
}

void follow_start(struct call *call, struct exec *exec, const char *exec_id, json_t *result,
                  const struct follow_request *request)
{
    static const char *const types[] = {[FOLLOW_NDJSON] = "application/x-ndjson",
                                        [FOLLOW_SSE] = "text/event-stream",
                                        [FOLLOW_RAW] = "application/octet-stream"};
    struct following *f = calloc(1, sizeof(*f));
    char headers[96];

    if (!f) {
        json_decref(result);
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    *f = (struct following){.follower = {.started = begun, .output = more, .drained = more},
                            .call = call,
                            .exec = exec,
                            .spool = {.out = -1, .turns = -1},
                            .request = *request,
                            .result = result,
                            .ping = {.ring = ring}};
    text_copy(f->exec_id, sizeof(f->exec_id), exec_id);
    buf_init(&f->out, 4096);
    call->context = f;
    call->abandoned = abandoned;
    if (exec)
        exec_follow(exec, &f->follower);
    int r = open_source(f);
    if (r < 0) {
        refuse(f, r);
        return;
    }
    call->ending = say_last;
    ignore(timer_set(call->front->events, &f->ping, now_ms() + PING_MS));
    snprintf(headers, sizeof(headers), "X-Exec-Id: %s\r\nCache-Control: no-store\r\n", exec_id);
    call_stream(call, 200, types[request->format], headers,
                request->format == FOLLOW_RAW ? pull_raw : pull_events, f);
}
