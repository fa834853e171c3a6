/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/attach.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "front/core/live.h"
#include "front/exec/routes.h"
#include "http/forward.h"
#include "http/websocket.h"

enum {
    PING_MS = 30000,      /* so that no proxy between takes the silence for an end */
    AGAIN_MS = 20,        /* until input is offered once more to a command that reads slowly */
    INPUT_MOST = 1 << 20, /* waits before the client is made to */
    SIDE_MOST = 4096,     /* columns, rows */
};

struct attached {
    struct follower follower; /* first: they are the same thing */
    struct call *call;
    struct exec *exec;
    struct spool_reader reader;
    bool reading; /* the reader is in the list of the exec's spool */
    uint64_t from;
    bool is_own; /* the command's only client: attach_terminal */
    bool is_ready;
    struct websocket in;
    struct buf out; /* what we say ourselves, until it is pulled */
    size_t out_at;
    char pong[WEBSOCKET_CONTROL]; /* only the last Ping is answered, as the RFC allows */
    size_t pong_n;
    bool pong_due;
    bool closed; /* our Close is in `out`, or sent */
    int exec_signal;
    bool signalling; /* input waits until a signal is on record and on its way */
    struct timer ping;
    struct timer again;
};

/* --- to the client --- */

static void wake(struct attached *a)
{
    if (a->call->x)
        http_wake(a->call->x);
}

/* Takes the object. */
static void say(struct attached *a, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));

    json_decref(object);
    if (text)
        websocket_add(&a->out, WEBSOCKET_OP_TEXT, text, strlen(text));
    free(text);
    wake(a);
}

static void end_with(struct attached *a, enum websocket_code code, const char *why)
{
    if (a->closed)
        return;
    a->closed = true;
    websocket_add_close(&a->out, code, why);
    wake(a);
}

static void fail(struct attached *a, enum websocket_code close, const char *code, const char *why)
{
    if (!a->closed)
        say(a, json_pack("{s:s, s:s, s:s}", "type", "error", "code", code, "message", why));
    end_with(a, close, why);
}

static void say_exit(struct attached *a)
{
    json_t *result = a->exec->result_json;

    say(a,
        json_pack("{s:s, s:O?, s:s, s:O?}", "type", "exit", "code",
                  json_object_get(result, "exit_code"), "exec_id", a->exec->id, "result", result));
    end_with(a, WEBSOCKET_NORMAL, NULL);
}

/* A frame of output; 0: there is none now. */
static ssize_t pull_output(struct attached *a, char *bytes, size_t size)
{
    struct exec *exec = a->exec;
    uint64_t end = exec->drained ? exec->final : exec->has_spool ? exec->spool.end : 0;
    size_t most = size - WEBSOCKET_HEAD;
    char head[WEBSOCKET_HEAD];
    enum spool_stream stream;

    if (!a->reading || a->reader.at >= end)
        return 0;
    if (end - a->reader.at < most)
        most = (size_t)(end - a->reader.at);
    ssize_t n = spool_read(&exec->spool, &a->reader, bytes + WEBSOCKET_HEAD, most, &stream);
    if (n <= 0)
        return n;
    size_t head_n = websocket_head(WEBSOCKET_OP_BINARY, (size_t)n, head);
    memmove(bytes + head_n, bytes + WEBSOCKET_HEAD, (size_t)n);
    memcpy(bytes, head, head_n);
    exec_moved_on(exec);
    return n + (ssize_t)head_n;
}

static void say_ready(struct attached *a)
{
    if (!a->is_ready)
        say(a, json_pack("{s:s, s:s}", "type", "ready", "exec_id", a->exec->id));
    a->is_ready = true;
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct attached *a = context;

    if (!a->is_ready && (a->reading || a->exec->drained))
        say_ready(a);
    if (a->pong_due && !a->closed) {
        a->pong_due = false;
        websocket_add(&a->out, WEBSOCKET_OP_PONG, a->pong, a->pong_n);
    }
    if (a->out_at == a->out.n && !a->closed) {
        ssize_t n = pull_output(a, bytes, size);
        if (n > 0)
            return n;
        if (n < 0)
            fail(a, WEBSOCKET_OUR_FAULT, "internal", "the output could not be read back");
        else if (a->exec->drained)
            say_exit(a);
    }
    if (buf_done(&a->out) < 0)
        return -ENOMEM;
    size_t n = a->out.n - a->out_at < size ? a->out.n - a->out_at : size;
    if (n == 0)
        return a->closed ? 0 : -EAGAIN;
    memcpy(bytes, a->out.p + a->out_at, n);
    a->out_at += n;
    if (a->out_at == a->out.n) {
        buf_clear(&a->out);
        a->out_at = 0;
    }
    return (ssize_t)n;
}

/* Reads from the first byte on, once there is one. 0 or -errno. */
static int begin_reading(struct attached *a)
{
    if (a->reading || !a->exec->has_spool)
        return a->from && a->from != ATTACH_FROM_FIRST && !a->reading ? -EINVAL : 0;
    uint64_t from = a->from == ATTACH_FROM_FIRST ? a->exec->spool.first : a->from;
    int r = spool_reader_add(&a->exec->spool, &a->reader, from, true);
    a->reading = r == 0;
    return r;
}

static void more(struct follower *follower)
{
    struct attached *a = (struct attached *)follower;

    if (begin_reading(a) < 0)
        fail(a, WEBSOCKET_OUR_FAULT, "internal", "the output could not be read back");
    wake(a);
}

static void begun(struct follower *follower, const struct err *failed)
{
    (void)follower;
    (void)failed; /* only those that run are attached to */
}

static void ping(struct timer *timer)
{
    struct attached *a = container_of(timer, struct attached, ping);

    if (a->closed)
        return;
    if (a->out.n == 0) /* else there is no silence */
        websocket_add(&a->out, WEBSOCKET_OP_PING, NULL, 0);
    ignore(timer_set(a->call->front->events, timer, now_ms() + PING_MS));
    wake(a);
}

/* --- from the client --- */

static void go_on(struct attached *a)
{
    if (a->call->x)
        http_continue_body(a->call->x);
}

static void offer_again(struct timer *timer)
{
    go_on(container_of(timer, struct attached, again));
}

static void resize(struct attached *a, const json_t *object)
{
    json_int_t columns = json_integer_value(json_object_get(object, "cols"));
    json_int_t rows = json_integer_value(json_object_get(object, "rows"));

    if (columns < 1 || columns > SIDE_MOST || rows < 1 || rows > SIDE_MOST)
        fail(a, WEBSOCKET_NOT_ALLOWED, "invalid_request",
             "\"cols\" and \"rows\" are whole numbers from 1 to 4096");
    else if (exec_resize(a->exec, (unsigned)columns, (unsigned)rows) == -ENOTTY &&
             a->exec->state == EXEC_RUNNING)
        fail(a, WEBSOCKET_NOT_ALLOWED, "conflict", "the command has no terminal");
}

/* The command has it, or has ended: its end is told as usual. */
static void signalled(struct call *call, struct answer *answer)
{
    struct attached *a = call->context;

    (void)answer;
    if (!a)
        return;
    a->signalling = false;
    go_on(a);
}

static void send_signal(struct call *call, struct answer *answer)
{
    struct attached *a = call->context;
    struct err err;

    if (!a)
        return;
    if (answer_check(answer, &err) < 0) {
        a->signalling = false;
        fail(a, WEBSOCKET_OUR_FAULT, "internal", "the signal could not be recorded");
        go_on(a);
        return;
    }
    struct plain_message m = {.texts = {a->exec->id}, .number = (uint64_t)a->exec_signal};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, call_expect(call, signalled), &m);
    broker_send(call->front->channel, REQUEST_SIGNAL, &b);
}

static void signal_it(struct attached *a, const json_t *object)
{
    int number = exec_signal_number(json_object_get(object, "signal"));

    if (number < 0) {
        fail(a, WEBSOCKET_NOT_ALLOWED, "invalid_request",
             "\"signal\" is a name such as \"TERM\", or a number from 1 to 64");
        return;
    }
    a->signalling = true;
    a->exec_signal = number;
    call_record(a->call, a->exec->workspace, "exec.signal", "ok",
                json_pack("{s:s, s:i}", "exec", a->exec->id, "signal", number), send_signal);
}

static void control(struct attached *a, const char *text, size_t n)
{
    json_t *object = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(object, "type"));

    if (type && strcmp(type, "resize") == 0)
        resize(a, object);
    else if (type && strcmp(type, "signal") == 0)
        signal_it(a, object);
    else if (type && strcmp(type, "eof") == 0)
        exec_end_input(a->exec);
    else
        fail(a, WEBSOCKET_NOT_ALLOWED, "invalid_request",
             "a text is a JSON object of \"type\" resize, signal or eof");
    json_decref(object);
}

static void input(struct attached *a, const char *bytes, size_t n)
{
    int r = n ? exec_input(a->exec, bytes, n) : 0;

    if (r == -EAGAIN)
        fail(a, WEBSOCKET_OUR_FAULT, "disk_full", "there is no room for the input that waits");
    else if (r < 0 && a->exec->state == EXEC_RUNNING)
        fail(a, WEBSOCKET_NOT_ALLOWED, "conflict", "the command's input is closed");
}

static void hear(struct attached *a, const struct websocket_piece *piece)
{
    switch (piece->kind) {
    case WEBSOCKET_BYTES:
        input(a, piece->bytes, piece->n);
        break;
    case WEBSOCKET_WORDS:
        control(a, piece->bytes, piece->n);
        break;
    case WEBSOCKET_PING:
        memcpy(a->pong, piece->bytes, piece->n);
        a->pong_n = piece->n;
        a->pong_due = true;
        wake(a);
        break;
    case WEBSOCKET_CLOSE:
        end_with(a, piece->code, NULL);
        break;
    case WEBSOCKET_BROKEN:
        end_with(a, piece->code, piece->why);
        break;
    case WEBSOCKET_NOTHING:
    case WEBSOCKET_PONG:
        break;
    }
}

/* Whether input can be taken; else it is asked for again later. */
static bool has_room(struct attached *a)
{
    if (a->signalling)
        return false;
    if (a->exec->input < 0 || backlog_left(&a->exec->backlog) < INPUT_MOST)
        return true;
    ignore(timer_set(a->call->front->events, &a->again, now_ms() + AGAIN_MS));
    return false;
}

static size_t piece(struct call *call, const char *bytes, size_t n)
{
    struct attached *a = call->context;
    char plain[HTTP_MAX_HEAD];
    size_t taken = 0;

    while (a && !a->closed && taken < n && has_room(a)) {
        struct websocket_piece piece;
        size_t most = n - taken < sizeof(plain) ? n - taken : sizeof(plain);
        taken += websocket_read(&a->in, bytes + taken, most, plain, &piece);
        hear(a, &piece);
    }
    return a && !a->closed ? taken : n; /* after a Close nothing is of interest */
}

/* It sends no more, also without a Close. */
static void whole(struct call *call)
{
    struct attached *a = call->context;

    if (a)
        end_with(a, WEBSOCKET_NORMAL, NULL);
}

/* --- beginning and end --- */

static void last_word(struct call *call, const struct ending *ending)
{
    struct attached *a = call->context;

    if (ending->ends_commands && !a->exec->drained)
        return; /* the end of the command is what there is to say */
    fail(a, ending->status == 401 ? WEBSOCKET_NOT_ALLOWED : WEBSOCKET_GOING_AWAY, ending->code,
         ending->message);
}

static void left(struct call *call)
{
    struct attached *a = call->context;
    struct front *front = call->front;
    struct exec *exec = a->exec;

    timer_stop(front->events, &a->ping);
    timer_stop(front->events, &a->again);
    if (a->reading)
        spool_reader_drop(&exec->spool, &a->reader);
    websocket_clear(&a->in);
    buf_clear(&a->out);
    call->context = NULL;
    exec_left(exec, a->is_own);
    exec_moved_on(exec); /* nobody waits for this one any more */
    exec_unfollow(exec, &a->follower);
    free(a);
}

bool attach_is_asked(struct call *call)
{
    const struct http_request *request = http_request_of(call->x);
    char accept[WEBSOCKET_ACCEPT];

    if (http_wants_websocket(request) && websocket_accept(request, accept))
        return true;
    call->allow = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    call_error(call, 426, "upgrade_required",
               "this route is a WebSocket; connect with a WebSocket client (version 13)");
    return false;
}

static void refuse(struct attached *a, int r)
{
    struct call *call = a->call;
    struct err err;

    if (r == -EINVAL) {
        call_bad_field(call, "from", "at most the length of the output so far");
    } else if (r == -ESPIPE) {
        call_error(call, 410, "gone", "output so far back is no longer kept; leave \"from\" out");
    } else {
        err_set(&err, ERR_IO, -r, "read the output");
        call_fail(call, &err);
    }
}

static void upgrade(struct attached *a)
{
    struct call *call = a->call;
    char accept[WEBSOCKET_ACCEPT];
    char headers[192];

    if (!websocket_accept(http_request_of(call->x), accept)) {
        call_error(call, 500, "internal", "the handshake cannot be answered");
        return;
    }
    call->piece = piece;
    call->whole = whole;
    call->ending = last_word;
    if (!a->is_own)
        say_ready(a);
    ignore(timer_set(call->front->events, &a->ping, now_ms() + PING_MS));
    snprintf(headers, sizeof(headers),
             "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
             "X-Request-Id: %s\r\nX-Exec-Id: %s\r\n",
             accept, call->id, a->exec->id);
    call_answered(call, 101);
    http_upgrade(call->x, headers, pull, a);
}

static void start(struct call *call, struct exec *exec, uint64_t from, bool is_own)
{
    struct attached *a = calloc(1, sizeof(*a));

    if (!a) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    *a = (struct attached){.follower = {.started = begun, .output = more, .drained = more},
                           .call = call,
                           .exec = exec,
                           .from = from,
                           .is_own = is_own,
                           .ping = {.ring = ping},
                           .again = {.ring = offer_again}};
    buf_init(&a->out, 1UL << 20);
    call->context = a;
    call->abandoned = left;
    exec_follow(exec, &a->follower);
    int r = begin_reading(a);
    if (r < 0)
        refuse(a, r);
    else if (live_hold(call, is_own ? HTTP_TUNNEL : HTTP_OUTPUT))
        upgrade(a);
}

void attach_start(struct call *call, struct exec *exec, uint64_t from)
{
    start(call, exec, from, false);
}

void attach_terminal(struct call *call, struct exec *exec)
{
    start(call, exec, ATTACH_FROM_FIRST, true);
}
