/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "front/code/code.h"
#include "front/core/live.h"

enum {
    SILENCE_MS = 5000, /* then a word that it is still there */
};

/* Its client may leave while it runs; then it is interrupted, and gone when it has ended. */
struct code_run {
    struct code_run *next;
    struct call *call;            /* NULL: the client has left */
    struct code_context *context; /* NULL: it has ended */
    struct buf out;
    size_t at;
    json_t *message;
    uint64_t number; /* 0: it has not begun */
    uint64_t timeout_ms;
    struct timer silence;
    struct timer deadline;
    bool streams;
    bool over; /* its client was told of another end than its own */
    bool late;
    bool told; /* its kernel has said something of it */
    bool again;
};

static void free_run(struct code_run *run)
{
    json_decref(run->message);
    buf_clear(&run->out);
    free(run);
}

/* Of one that neither client nor kernel has any more. */
static void settle(struct code_run *run)
{
    if (!run->call && !run->context)
        free_run(run);
}

static void wake(struct code_run *run)
{
    if (run->call && run->streams && run->call->x)
        http_wake(run->call->x);
}

/* --- to the client --- */

static void listen_for_silence(struct code_run *run)
{
    ignore(timer_set(run->context->front->events, &run->silence, now_ms() + SILENCE_MS));
}

static void add_line(struct code_run *run, const json_t *line)
{
    /* In ASCII, so that a piece of the stream is text wherever it ends. */
    char *text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);

    if (run->call && text && !run->over) {
        buf_str(&run->out, text);
        buf_str(&run->out, "\n");
    }
    free(text);
    wake(run);
}

static void still_here(struct timer *timer)
{
    struct code_run *run = container_of(timer, struct code_run, silence);
    json_t *line = json_pack("{s:s}", "type", "keepalive");

    add_line(run, line);
    json_decref(line);
    listen_for_silence(run);
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct code_run *run = context;
    size_t n = run->out.n - run->at;

    if (run->out.failed)
        return -EIO;
    n = n < size ? n : size;
    if (n == 0 && run->over && (run->call->route->flags & FOREIGN))
        return -ECONNABORTED; /* their clients look for no last word */
    if (n == 0)
        return run->context && !run->over ? -EAGAIN : 0;
    memcpy(bytes, run->out.p + run->at, n);
    run->at += n;
    if (run->at == run->out.n) {
        buf_clear(&run->out);
        buf_init(&run->out, CODE_AHEAD + 3UL * CODE_LINE);
        run->at = 0;
    }
    if (run->context && run->context->first == run && !run_is_behind(run))
        kernel_continue(run->context);
    return (ssize_t)n;
}

bool run_is_behind(const struct code_run *run)
{
    return run->call && run->out.n - run->at > CODE_AHEAD;
}

bool run_is(const struct code_run *run, uint64_t number)
{
    return run && run->number && run->number == number;
}

void run_tell(struct code_run *run, json_t *line)
{
    run->told = true;
    add_line(run, line);
    json_decref(line);
    listen_for_silence(run);
}

void run_tell_error(struct code_run *run, const char *name, const char *value)
{
    run_tell(run, json_pack("{s:s, s:s, s:s, s:s}", "type", "error", "name", name, "value", value,
                            "traceback", value));
}

void run_begin(struct code_run *run)
{
    if (!run->call || run->streams)
        return;
    run->streams = true;
    listen_for_silence(run);
    call_stream(run->call, 200, "application/x-ndjson", NULL, pull, run);
}

void run_begin_all(struct code_context *context)
{
    for (struct code_run *run = context->first; run; run = run->next)
        run_begin(run);
}

/* --- its way --- */

static void leave_queue(struct code_run *run)
{
    struct code_context *c = run->context;

    for (struct code_run **at = &c->first; *at; at = &(*at)->next) {
        if (*at != run)
            continue;
        *at = run->next;
        break;
    }
    timer_stop(c->front->events, &run->silence);
    timer_stop(c->front->events, &run->deadline);
    run->context = NULL;
}

void run_end(struct code_context *context)
{
    struct code_run *run = context->first;
    json_t *line = json_pack("{s:s}", "type", "end_of_execution");

    if (run->late)
        run_tell_error(run, "TimeoutError", "the code was interrupted: it had no more time");
    add_line(run, line);
    json_decref(line);
    leave_queue(run);
    wake(run);
    settle(run);
}

void run_refuse(struct code_context *context, int status, json_t *object)
{
    struct code_run *run = context->first;
    struct call *call = run->call;

    if (run->streams) {
        const json_t *error = json_object_get(object, "error");
        const char *message = json_string_value(json_object_get(error, "message"));
        run_tell_error(run, "KernelError", message ? message : "the kernel could not be started");
        json_decref(object);
        run_end(context);
        return;
    }
    leave_queue(run);
    run->call = NULL;
    settle(run);
    if (!call) {
        json_decref(object);
        return;
    }
    call->context = NULL;
    call->abandoned = NULL;
    call->ending = NULL;
    call_json(call, status, object);
}

char *run_message(struct code_run *run, uint64_t number)
{
    char *text = NULL;

    run->number = number;
    json_object_set_new(run->message, "run", json_integer((json_int_t)number));
    text = json_dumps(run->message, JSON_COMPACT);
    if (run->timeout_ms)
        ignore(timer_set(run->context->front->events, &run->deadline, now_ms() + run->timeout_ms));
    return text;
}

bool run_again(struct code_run *run, uint64_t number)
{
    if (!run_is(run, number) || run->told || run->again)
        return false;
    timer_stop(run->context->front->events, &run->deadline);
    run->again = true;
    run->number = 0;
    return true;
}

/* The client has gone, or has heard all. */
static void left(struct call *call)
{
    struct code_run *run = call->context;
    struct code_context *c = run->context;

    call->context = NULL;
    call->abandoned = NULL;
    run->call = NULL;
    if (c && run->number) {
        kernel_continue(c);
        kernel_interrupt(c);
    } else if (c) {
        leave_queue(run);
        settle(run);
    } else {
        settle(run);
    }
}

/* Its key was revoked, its workspace deleted, or its place is needed. */
static void ended_early(struct call *call, const struct ending *ending)
{
    struct code_run *run = call->context;

    if (!run || !run->streams) {
        call_answer_ending(call, ending);
        return;
    }
    char *line = ending_line(ending);
    if (line && !run->over) {
        buf_str(&run->out, line);
        buf_str(&run->out, "\n");
    }
    free(line);
    run->over = true;
    if (run->context && run->number)
        kernel_interrupt(run->context);
    wake(run);
}

static void too_late(struct timer *timer)
{
    struct code_run *run = container_of(timer, struct code_run, deadline);

    run->late = true;
    kernel_interrupt(run->context);
}

static json_t *message_of(const struct code_request *request)
{
    json_t *message = json_pack("{s:s}", "code", request->code);

    if (request->env)
        json_object_set(message, "env", (json_t *)(uintptr_t)request->env);
    return message;
}

static size_t queue_length(const struct code_context *c)
{
    size_t n = 0;

    for (const struct code_run *run = c->first; run; run = run->next)
        n++;
    return n;
}

static bool ask_as(struct call *call, struct inner_asker *ret)
{
    if (!call->actor.secret)
        return inner_asker_of(call, ret);
    *ret = (struct inner_asker){.uid = http_peer_uid(call->x)};
    int n =
        snprintf(ret->authorization, sizeof(ret->authorization), "Bearer %s", call->actor.secret);
    return n > 0 && (size_t)n < sizeof(ret->authorization);
}

void code_run(struct call *call, struct code_context *context, const struct code_request *request)
{
    struct code_run **last = &context->first;
    struct code_run *run;

    if (queue_length(context) >= CODE_QUEUE) {
        call_error(call, 429, "too_many", "%d runs wait for this context already", CODE_QUEUE);
        return;
    }
    if (!live_hold(call, HTTP_OUTPUT))
        return;
    run = calloc(1, sizeof(*run));
    if (!run || !ask_as(call, &context->who)) {
        free(run);
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    *run = (struct code_run){.call = call,
                             .context = context,
                             .message = message_of(request),
                             .timeout_ms = request->timeout_ms,
                             .silence.ring = still_here,
                             .deadline.ring = too_late};
    buf_init(&run->out, CODE_AHEAD + 3UL * CODE_LINE);
    while (*last)
        last = &(*last)->next;
    *last = run;
    call->context = run;
    call->abandoned = left;
    call->ending = ended_early;
    call_drop_body(call);
    /* Where there is a kernel, nothing can be wrong that has a status of its own. */
    if (context->state == KERNEL_READY)
        run_begin(run);
    kernel_go_on(context);
}
