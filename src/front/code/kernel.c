/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "front/code/code.h"
#include "front/code/line.h"

enum {
    PATIENCE_MS = 5000, /* for an interrupted run to end */
    TARGET = 256,
    REFUSAL = 65536,
};

static void give_next(struct code_context *c);

/* --- asking our own routes --- */

static void target_of(const struct code_context *c, char target[TARGET], const char *rest)
{
    snprintf(target, TARGET, "/v1/workspaces/%s/exec/%s%s", c->workspace, c->exec_id, rest);
}

/* Eight digits say how long it is. Added to `to`. */
static void frame(struct buf *to, const char *text)
{
    buf_printf(to, "%08zu", strlen(text));
    buf_str(to, text);
}

/* Whether a request to another route could be begun; what it sends stays in c->message. */
static bool ask(struct code_context *c, struct inner **at, const char *target, const char *type,
                void (*done)(void *, int, const struct buf *))
{
    const struct inner_request request = {.method = HTTP_POST,
                                          .target = target,
                                          .type = type,
                                          .bytes = c->message,
                                          .n = strlen(c->message),
                                          .most = REFUSAL,
                                          .done = done,
                                          .context = c};

    *at = inner_start(c->front, &c->who, &request);
    return *at != NULL;
}

static json_t *error_of(const char *code, const char *message)
{
    return json_pack("{s:{s:s, s:s}}", "error", "code", code, "message", message);
}

/* --- its end --- */

/* The kernel that there was is no more. Who was under way with it hears why, the next one of the
 * queue begins another. */
static void gone(struct code_context *c, const char *why)
{
    struct code_run *run = c->first;
    bool was_starting = c->state == KERNEL_STARTING;

    timer_stop(c->front->events, &c->patience);
    inner_drop(c->inner);
    inner_drop(c->input);
    c->inner = c->input = NULL;
    c->state = KERNEL_NONE;
    c->exec_id[0] = '\0';
    c->why[0] = '\0';
    c->unwanted = false;
    buf_clear(&c->line);
    buf_init(&c->line, CODE_LINE);
    if (run && was_starting) {
        run_refuse(c, 500, error_of("kernel_failed", why));
    } else if (run_is(run, c->runs)) {
        run_tell_error(run, "UnexpectedEndOfExecution", why);
        run_end(c);
    }
    if (c->first)
        kernel_go_on(c);
    else
        code_settle(c);
}

/* Its command is being started, and cannot be ended yet. */
static void disown(struct code_context *c, const char *why)
{
    c->unwanted = true;
    while (c->first)
        run_refuse(c, 409, error_of("conflict", why));
}

void kernel_end(struct code_context *c, const char *why)
{
    if (c->state == KERNEL_STARTING && !*c->exec_id) {
        disown(c, why);
        return;
    }
    if (*c->exec_id)
        c->front->end_exec(c->front, c->workspace, c->exec_id);
    if (c->state != KERNEL_NONE)
        gone(c, why);
}

static void lost_patience(struct timer *timer)
{
    struct code_context *c = container_of(timer, struct code_context, patience);

    kernel_end(c, "the code did not end when it was interrupted, and its kernel was ended; the "
                  "next code begins in a new one");
}

void kernel_interrupt(struct code_context *c)
{
    static const char body[] = "{\"signal\":\"INT\"}";
    char target[TARGET];

    if (c->state != KERNEL_READY || c->patience.due_ms)
        return;
    target_of(c, target, "/signal");
    (void)inner_start(c->front, &c->who,
                      &(struct inner_request){
                          .method = HTTP_POST, .target = target, .bytes = body, .n = strlen(body)});
    c->patience.ring = lost_patience;
    if (timer_set(c->front->events, &c->patience, now_ms() + PATIENCE_MS) < 0)
        lost_patience(&c->patience);
}

/* --- what it says --- */

static void take_end(struct code_context *c)
{
    timer_stop(c->front->events, &c->patience);
    run_end(c);
    give_next(c);
}

static bool take_line(struct code_context *c, const char *bytes, size_t n)
{
    uint64_t number = 0;
    json_t *line = NULL;
    enum code_line kind = code_line_read(bytes, n, &number, &line);
    struct code_run *run = run_is(c->first, number) ? c->first : NULL;

    if (kind == LINE_BAD) {
        kernel_end(c, "the kernel said what no kernel says, and was ended");
        return false;
    }
    if (kind == LINE_FAILED && c->state == KERNEL_STARTING) {
        snprintf(c->why, sizeof(c->why), "%.300s",
                 json_string_value(json_object_get(line, "text")));
    } else if (kind == LINE_READY && c->state == KERNEL_STARTING) {
        c->state = KERNEL_READY;
        run_begin_all(c);
        give_next(c);
    } else if (kind == LINE_END && run) {
        take_end(c);
    } else if (run && kind >= LINE_COUNT) {
        if (kind == LINE_OUTPUT)
            json_object_set_new(line, "timestamp", time_json(wall_ms()));
        run_tell(run, json_incref(line));
    }
    json_decref(line);
    return true;
}

/* 1: there is more to take; 0: no whole line; -1: it was ended. */
static int take_some(struct code_context *c, const char *bytes, size_t n, size_t *taken)
{
    const struct inner *mine = c->inner;
    const char *end = memchr(bytes, '\n', n);
    size_t one = end ? (size_t)(end - bytes) + 1 : n;

    buf_add(&c->line, bytes, one);
    *taken += one;
    if (!end && !c->line.failed)
        return 0;
    if (buf_done(&c->line) < 0) {
        kernel_end(c, "a line of the kernel was too long, and it was ended");
        return -1;
    }
    if (!take_line(c, c->line.p, c->line.n - 1) || c->inner != mine)
        return -1;
    c->line.n = 0;
    return 1;
}

/* Whole lines; one that is too long is no kernel's. */
static size_t piece(void *context, const char *bytes, size_t n)
{
    struct code_context *c = context;
    size_t taken = 0;
    int r = 1;

    c->busy++;
    while (r > 0 && taken < n && !c->paused) {
        c->paused = c->first && run_is_behind(c->first);
        if (!c->paused)
            r = take_some(c, bytes + taken, n - taken, &taken);
    }
    c->busy--;
    if (r < 0) {
        code_settle(c);
        return n;
    }
    return taken;
}

void kernel_continue(struct code_context *c)
{
    if (!c->paused || !c->inner)
        return;
    c->paused = false;
    inner_continue(c->inner);
}

/* --- how it ended --- */

static void heard_end(void *context, int status, const struct buf *body)
{
    struct code_context *c = context;
    json_t *row = status == 200 ? json_loadb(body->p, body->n, 0, NULL) : NULL;
    const json_t *result = json_object_get(row, "result");
    const char *reason = json_string_value(json_object_get(result, "reason"));
    int code = (int)json_integer_value(json_object_get(result, "exit_code"));
    char why[sizeof(c->why)];

    c->ending = NULL;
    if (*c->why)
        snprintf(why, sizeof(why), "%s", c->why);
    else if (code == 127 && c->state == KERNEL_STARTING)
        snprintf(why, sizeof(why), "this workspace has no %s, which %s needs",
                 code_program(c->language)->missing, code_program(c->language)->name);
    else
        snprintf(why, sizeof(why),
                 "the kernel has ended (%.40s, exit code %d); the next code begins in a new one",
                 reason ? reason : "it is not known why", code);
    json_decref(row);
    if (!*c->why && c->heard)
        ignore(run_again(c->first, c->runs));
    gone(c, why);
}

static void output_ended(void *context, int status, const struct buf *body)
{
    struct code_context *c = context;
    char target[TARGET];

    (void)body;
    c->inner = NULL;
    c->heard = status == 200;
    target_of(c, target, "");
    const struct inner_request request = {
        .method = HTTP_GET, .target = target, .most = REFUSAL, .done = heard_end, .context = c};
    c->front->end_exec(c->front, c->workspace, c->exec_id); /* if it only was not heard any more */
    c->ending = inner_start(c->front, &c->who, &request);
    if (!c->ending)
        gone(c, "the kernel has ended");
}

/* --- its beginning --- */

static void fail(struct code_context *c, int status, json_t *object)
{
    c->state = KERNEL_NONE;
    c->unwanted = false;
    while (c->first)
        run_refuse(c, status, json_incref(object));
    json_decref(object);
    code_settle(c);
}

static void started(void *context, int status, const struct buf *body)
{
    struct code_context *c = context;
    json_t *object = body->n && !body->failed ? json_loadb(body->p, body->n, 0, NULL) : NULL;
    const char *id = json_string_value(json_object_get(object, "id"));
    char target[TARGET];

    c->inner = NULL;
    id = id ? id : json_string_value(json_object_get(object, "exec_id"));
    if (status >= 300 || !id) {
        fail(c, status >= 400 ? status : 503,
             object ? json_incref(object)
                    : error_of("unavailable", "the kernel could not be started; try again"));
        json_decref(object);
        return;
    }
    snprintf(c->exec_id, sizeof(c->exec_id), "%s", id);
    json_decref(object);
    if (c->unwanted) {
        kernel_end(c, "the context was restarted");
        return;
    }
    target_of(c, target, "/output?follow=1&format=raw&stream=stdout");
    const struct inner_request request = {.method = HTTP_GET,
                                          .target = target,
                                          .most = REFUSAL,
                                          .piece = piece,
                                          .done = output_ended,
                                          .context = c};
    c->inner = inner_start(c->front, &c->who, &request);
    if (!c->inner)
        kernel_end(c, "the daemon has no room for this now; try again");
}

/* Program and first message come with the request. */
static char *start_message(const struct code_context *c)
{
    const struct code_program *program = code_program(c->language);
    json_t *first = json_pack("{s:s, s:s}", "language", program->name, "cwd", c->cwd);
    char *text = json_dumps(first, JSON_COMPACT);
    json_t *argv = json_array();
    scoped_buf struct buf input;

    buf_init(&input, CODE_MOST);
    frame(&input, program->program);
    frame(&input, text ? text : "");
    for (size_t i = 0; program->argv[i]; i++)
        json_array_append_new(argv, json_string(program->argv[i]));
    json_t *body = json_pack("{s:o, s:b, s:b, s:s}", "argv", argv, "stdin_open", 1, "background", 1,
                             "stdin", buf_done(&input) == 0 ? input.p : "");
    if (c->env)
        json_object_set(body, "env", c->env);
    char *message = text ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    json_decref(first);
    free(text);
    return message;
}

static void start(struct code_context *c)
{
    char target[TARGET];

    snprintf(target, sizeof(target), "/v1/workspaces/%s/exec", c->workspace);
    free(c->message);
    c->message = start_message(c);
    c->state = KERNEL_STARTING;
    c->paused = false;
    if (!c->message || !ask(c, &c->inner, target, NULL, started))
        fail(c, 503, error_of("unavailable", "the daemon has no room for this now; try again"));
}

/* --- its runs --- */

static void sent(void *context, int status, const struct buf *body)
{
    struct code_context *c = context;

    (void)body;
    c->input = NULL;
    if (status < 200 || status > 299)
        kernel_end(c, "the kernel takes no code any more; the next code begins in a new one");
    else
        give_next(c);
}

/* False: it could not be sent, which is told. */
static bool give(struct code_context *c, struct code_run *run)
{
    char target[TARGET];
    struct buf framed;
    char *text = run_message(run, ++c->runs);

    buf_init(&framed, CODE_MOST + 64);
    if (text)
        frame(&framed, text);
    bool whole = text && buf_done(&framed) == 0;
    free(text);
    free(c->message);
    c->message = whole ? framed.p : NULL;
    if (!whole)
        buf_clear(&framed);
    target_of(c, target, "/stdin");
    if (c->message && ask(c, &c->input, target, "application/octet-stream", sent))
        return true;
    run_tell_error(run, "KernelError", "the code is too long, or there is no room for it");
    run_end(c);
    return false;
}

static void give_next(struct code_context *c)
{
    while (c->state == KERNEL_READY && !c->input && c->first && !run_is(c->first, c->runs)) {
        if (give(c, c->first))
            return;
    }
}

void kernel_go_on(struct code_context *c)
{
    if (c->state == KERNEL_NONE && c->first && !c->inner && !c->ending)
        start(c);
    else
        give_next(c);
}
