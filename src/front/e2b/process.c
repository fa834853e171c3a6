/* SPDX-License-Identifier: Apache-2.0 */
#include "front/e2b/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/live.h"
#include "front/e2b/sandbox.h"
#include "front/exec/follow.h"
#include "front/exec/routes.h"

enum {
    PIECE = 32768,
    FIRST_LINE = 32,
    KNOWN_MS = 30000, /* after its end */
    OUT_MOST = 1 << 20,
};

static struct process *processes;

/* --- streams --- */

struct process_stream {
    struct process_stream *next;
    struct call *call;
    struct process *process;
    struct spool_reader reader;
    uint64_t from; /* UINT64_MAX: with the process's first byte */
    bool reading;
    bool told_start;
    bool ended;
    bool is_late;
    struct buf out;
    size_t out_at;
    struct timer keepalive;
    uint64_t keepalive_ms;
    struct timer deadline;
};

static void wake_all(struct process *p)
{
    for (struct process_stream *s = p->streams; s; s = s->next) {
        if (s->call->x)
            http_wake(s->call->x);
    }
}

static json_t *event(json_t *what)
{
    return json_pack("{s:o}", "event", what);
}

/* What the sandbox's own end cuts off is no end of the command. */
static bool is_cut(const struct process *p)
{
    struct store_workspace w;
    struct lifetime l;
    struct arena arena;
    struct err err;

    arena_init(&arena, 1UL << 20);
    bool lives = store_workspace_get(p->front->store, &arena, p->workspace, &w, &err) == 1 &&
                 !w.deleted_ms && lifetime_of(&w, &arena, &l) && !l.paused;
    arena_clear(&arena);
    return !lives;
}

static void put_exit(struct buf *out, const json_t *result)
{
    static const char *const names[] = {
        [1] = "hangup", [2] = "interrupt",           [3] = "quit",         [6] = "aborted",
        [9] = "killed", [11] = "segmentation fault", [13] = "broken pipe", [15] = "terminated"};
    long long code = json_integer_value(json_object_get(result, "exit_code"));
    long long number = json_integer_value(json_object_get(result, "signal"));
    const char *reason = json_string_value(json_object_get(result, "reason"));
    const char *note = json_string_value(json_object_get(result, "note"));
    char status[96];

    if (number > 0) {
        const char *name = (size_t)number < sizeof(names) / sizeof(names[0]) ? names[number] : NULL;
        snprintf(status, sizeof(status), "signal: %s", name ? name : "killed");
    } else {
        snprintf(status, sizeof(status), "exit status %lld", code);
    }
    json_t *end = json_pack("{s:I, s:b, s:s}", "exitCode", (json_int_t)(number > 0 ? -1 : code),
                            "exited", number <= 0, "status", status);
    bool by_us = reason && strcmp(reason, "exit") != 0 && strcmp(reason, "signal") != 0;
    if (number > 0 || code != 0)
        json_object_set_new(
            end, "error",
            by_us ? json_sprintf("%s (%s%s%s)", status, reason, note ? ": " : "", note ? note : "")
                  : json_string(status));
    envelope_put(out, 0, event(json_pack("{s:o}", "end", end)));
}

/* False: the stream is to be cut. */
static bool put_end(struct process_stream *s)
{
    const struct process *p = s->process;
    const char *reason = json_string_value(json_object_get(p->result, "reason"));
    const char *note = json_string_value(json_object_get(p->result, "note"));

    s->ended = true;
    if (is_cut(p))
        return false;
    if (!p->pid) {
        bool cwd = note && strncmp(note, "working directory", 17) == 0;
        const char *at = json_string_value(json_object_get(p->config, "cwd"));
        char text[512];
        snprintf(text, sizeof(text), "cwd '%.300s' does not exist", at ? at : E2B_HOME);
        envelope_end(&s->out, cwd ? "invalid_argument" : "internal",
                     cwd    ? text
                     : note ? note
                            : "the command could not be started");
    } else if (reason && strcmp(reason, "timeout") == 0) {
        envelope_end(&s->out, "deadline_exceeded", "context deadline exceeded");
    } else {
        put_exit(&s->out, p->result);
        envelope_end(&s->out, NULL, NULL);
    }
    return true;
}

static void arm_keepalive(struct process_stream *s)
{
    ignore(timer_set(s->call->front->events, &s->keepalive, now_ms() + s->keepalive_ms));
}

static void begin_reading(struct process_stream *s)
{
    struct process *p = s->process;
    struct exec *exec = p->exec;

    if (s->reading || !exec || !exec->has_spool || !p->pid)
        return;
    uint64_t from = s->from == UINT64_MAX ? p->begins : s->from;
    if (from < exec->spool.first)
        from = exec->spool.first;
    s->reading = spool_reader_add(&exec->spool, &s->reader, from, true) == 0;
}

/* 0: there is nothing now. */
static ssize_t put_output(struct process_stream *s)
{
    static const char *const names[SPOOL_STREAM_COUNT_] = {"stdout", "stderr", "pty"};
    struct exec *exec = s->process->exec;
    scoped_buf struct buf text;
    char bytes[PIECE];
    enum spool_stream stream;

    buf_init(&text, 2UL * PIECE);
    begin_reading(s);
    if (!s->reading)
        return 0;
    uint64_t end = exec->drained ? exec->final : exec->spool.end;
    if (s->reader.at >= end)
        return 0;
    size_t most = end - s->reader.at < sizeof(bytes) ? (size_t)(end - s->reader.at) : sizeof(bytes);
    ssize_t n = spool_read(&exec->spool, &s->reader, bytes, most, &stream);
    if (n <= 0)
        return n;
    exec_moved_on(exec);
    bytes_add_base64(&text, bytes, (size_t)n);
    if (buf_done(&text) < 0)
        return -ENOMEM;
    envelope_put(&s->out, 0, event(json_pack("{s:{s:s}}", "data", names[stream], text.p)));
    arm_keepalive(s);
    return n;
}

/* Puts the next message into s->out. 0; -EAGAIN: there is none now; other: it is cut. */
static int next_message(struct process_stream *s)
{
    struct process *p = s->process;

    if (!s->told_start && p->pid) {
        s->told_start = true;
        envelope_put(&s->out, 0, event(json_pack("{s:{s:I}}", "start", "pid", (json_int_t)p->pid)));
        return 0;
    }
    if (s->is_late) {
        s->ended = true;
        envelope_end(&s->out, "deadline_exceeded", "context deadline exceeded");
        return 0;
    }
    ssize_t n = put_output(s);
    if (n != 0)
        return n < 0 ? (int)n : 0;
    if (!p->drained)
        return -EAGAIN;
    return put_end(s) ? 0 : -ECONNRESET;
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct process_stream *s = context;

    while (s->out_at == s->out.n) {
        if (s->ended)
            return 0;
        buf_clear(&s->out);
        buf_init(&s->out, OUT_MOST);
        s->out_at = 0;
        int r = next_message(s);
        if (r < 0)
            return r;
        if (buf_done(&s->out) < 0)
            return -ENOMEM;
    }
    size_t n = s->out.n - s->out_at < size ? s->out.n - s->out_at : size;
    memcpy(bytes, s->out.p + s->out_at, n);
    s->out_at += n;
    return (ssize_t)n;
}

static void ring_keepalive(struct timer *timer)
{
    struct process_stream *s = container_of(timer, struct process_stream, keepalive);

    if (!s->ended && s->told_start && s->out_at == s->out.n) {
        buf_clear(&s->out);
        buf_init(&s->out, OUT_MOST);
        s->out_at = 0;
        envelope_put(&s->out, 0, event(json_pack("{s:{}}", "keepalive")));
        if (s->call->x)
            http_wake(s->call->x);
    }
    arm_keepalive(s);
}

static void ring_deadline(struct timer *timer)
{
    struct process_stream *s = container_of(timer, struct process_stream, deadline);

    s->is_late = true;
    if (s->call->x)
        http_wake(s->call->x);
}

/* The sandbox is gone: its client sees that the stream was broken off, and asks why. */
static void cut(struct call *call, const struct ending *ending)
{
    (void)ending;
    if (call->x)
        http_cut(call->x);
}

void process_streams_cut(const char *workspace)
{
    for (struct process *p = processes; p; p = p->next) {
        struct process_stream *next;
        if (strcmp(p->workspace, workspace) != 0)
            continue;
        for (struct process_stream *s = p->streams; s; s = next) {
            next = s->next;
            cut(s->call, NULL);
        }
    }
}

static void let_go_if_over(struct process *p);

static void left(struct call *call)
{
    struct process_stream *s = call->context;
    struct process *p = s->process;
    struct events *events = call->front->events;

    call->context = NULL;
    timer_stop(events, &s->keepalive);
    timer_stop(events, &s->deadline);
    for (struct process_stream **at = &p->streams; *at; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    if (s->reading) {
        spool_reader_drop(&p->exec->spool, &s->reader);
        exec_moved_on(p->exec); /* nobody waits for this one any more */
    }
    buf_clear(&s->out);
    free(s);
    let_go_if_over(p);
}

static void follow(struct call *call, struct process *p, uint64_t from, uint64_t timeout_ms)
{
    struct process_stream *s = calloc(1, sizeof(*s));

    if (!s) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    s->call = call;
    s->process = p;
    s->from = from;
    s->keepalive_ms = rpc_keepalive(call);
    s->keepalive.ring = ring_keepalive;
    s->deadline.ring = ring_deadline;
    s->next = p->streams;
    p->streams = s;
    buf_init(&s->out, OUT_MOST);
    call->context = s;
    call->abandoned = left;
    call->refused = NULL;
    call->ending = cut;
    begin_reading(s);
    arm_keepalive(s);
    if (timeout_ms)
        ignore(timer_set(call->front->events, &s->deadline, now_ms() + timeout_ms));
    call_stream(call, 200, "application/connect+json", "Cache-Control: no-store\r\n", pull, s);
}

/* --- processes --- */

struct process *processes_first(void)
{
    return processes;
}

static void process_free(struct process *p)
{
    for (struct process **at = &processes; *at; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    timer_stop(p->front->events, &p->forget);
    json_decref(p->config);
    json_decref(p->result);
    free(p->tag);
    free(p);
}

static void forget(struct timer *timer)
{
    struct process *p = container_of(timer, struct process, forget);

    if (!p->exec && !p->streams)
        process_free(p);
    else
        ignore(timer_set(p->front->events, timer, now_ms() + KNOWN_MS));
}

/* What is left of its exec goes when nobody reads it. */
static void let_go_if_over(struct process *p)
{
    if (!p->drained || p->streams || !p->exec)
        return;
    struct exec *exec = p->exec;
    p->exec = NULL;
    exec_unfollow(exec, &p->follower);
}

/* The line with its pid, which is the first that it says. */
static void read_pid(struct process *p)
{
    struct exec *exec = p->exec;
    char line[FIRST_LINE + 1];
    enum spool_stream stream;

    if (p->pid || !exec->has_spool)
        return;
    if (!p->reading)
        p->reading = spool_reader_add(&exec->spool, &p->reader, 0, true) == 0;
    if (!p->reading)
        return;
    ssize_t n = spool_read(&exec->spool, &p->reader, line, FIRST_LINE, &stream);
    line[n > 0 ? n : 0] = '\0';
    char *end = strchr(line, '\n');
    if (!end) { /* not whole yet */
        spool_reader_drop(&exec->spool, &p->reader);
        p->reading = false;
        return;
    }
    p->pid = strtol(line, NULL, 10);
    p->begins = (uint64_t)(end + 1 - line);
    wake_all(p);
    for (struct process_stream *s = p->streams; s; s = s->next)
        begin_reading(s); /* before what it begins with is let go */
    spool_reader_drop(&exec->spool, &p->reader);
    p->reading = false;
    exec_moved_on(exec);
}

static void more(struct follower *follower)
{
    struct process *p = (struct process *)follower;

    read_pid(p);
    wake_all(p);
}

static void begun(struct follower *follower, const struct err *failed)
{
    (void)follower;
    (void)failed; /* only those that run are followed */
}

static void drained(struct follower *follower)
{
    struct process *p = (struct process *)follower;

    read_pid(p);
    p->drained = true;
    p->result = json_incref(p->exec->result_json);
    ignore(timer_set(p->front->events, &p->forget, now_ms() + KNOWN_MS));
    wake_all(p);
    let_go_if_over(p);
}

/* What Start was asked for, until it runs. */
struct starting {
    const char *config; /* JSON */
    const char *tag;
    bool has_input;
    bool has_terminal;
};

static void runs(struct call *call, struct exec *exec)
{
    struct starting *wanted = call->manner_data;
    struct process *p = calloc(1, sizeof(*p));

    if (!p) {
        exec_stop(exec, CARREL_ENDED_SIGNAL);
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    p->follower = (struct follower){.started = begun, .output = more, .drained = drained};
    p->front = call->front;
    p->exec = exec;
    text_copy(p->workspace, sizeof(p->workspace), exec->workspace);
    p->tag = wanted->tag ? strdup(wanted->tag) : NULL;
    p->config = json_parsed(wanted->config);
    p->has_input = wanted->has_input;
    p->has_terminal = wanted->has_terminal;
    p->forget.ring = forget;
    p->next = processes;
    processes = p;
    follow(call, p, UINT64_MAX, 0);
    exec_follow(exec, &p->follower);
    read_pid(p);
    if (exec->drained)
        drained(&p->follower);
}

static bool is_selected(const struct process *p, const char *workspace, const json_t *selector)
{
    const json_t *pid = json_object_get(selector, "pid");
    const char *tag = json_string_value(json_object_get(selector, "tag"));

    if (strcmp(p->workspace, workspace) != 0)
        return false;
    return pid ? p->pid && p->pid == json_integer_value(pid)
               : tag && p->tag && strcmp(p->tag, tag) == 0;
}

struct process *process_find(struct call *call, const json_t *selector)
{
    struct process *ended = NULL;

    for (struct process *p = processes; p; p = p->next) {
        if (!is_selected(p, call->workspace.id, selector))
            continue;
        if (!p->drained)
            return p;
        ended = ended ? ended : p;
    }
    return ended;
}

const char *process_missing(struct call *call, const json_t *selector)
{
    const json_t *pid = json_object_get(selector, "pid");
    const char *tag = json_string_value(json_object_get(selector, "tag"));
    const char *text =
        pid ? arena_printf(&call->arena, "process with pid %lld not found",
                           (long long)json_integer_value(pid))
            : arena_printf(&call->arena, "process with tag %.100s not found", tag ? tag : "");

    return text ? text : "process not found";
}

void process_connect(struct call *call)
{
    rpc_is_stream(call);
    json_t *message = rpc_message(call);
    if (!message)
        return;
    const json_t *selector = json_object_get(message, "process");
    struct process *p = process_find(call, selector);
    uint64_t from = p && p->exec && p->exec->has_spool ? p->exec->spool.end : UINT64_MAX;
    if (p && from < p->begins)
        from = UINT64_MAX;
    if (!p)
        rpc_end(call, "not_found", process_missing(call, selector));
    else if (live_hold(call, HTTP_OUTPUT))
        follow(call, p, from, rpc_timeout(call));
    json_decref(message);
}

/* --- start --- */

/* The shell says who it is, and becomes the command. */
static const char *const with_pid[] = {"/bin/sh", "-c", "echo $$; exec \"$@\"", "sh", NULL};
static const struct exec_manner manner = {.before = with_pid, .runs = runs};

static json_t *env_of(struct call *call, const json_t *config, const char *user)
{
    const char *home = strcmp(user, "root") == 0 ? "/root" : E2B_HOME;
    json_t *env = json_pack("{s:s, s:s, s:s, s:s}", "HOME", home, "USER", user, "LOGNAME", user,
                            "E2B_SANDBOX", "true");
    json_t *labels = json_parsed(call->workspace.labels);

    json_object_update(env, json_object_get(labels, E2B_LABEL "env"));
    json_object_update(env, json_object_get(config, "envs"));
    json_decref(labels);
    return env;
}

static json_t *argv_of(const json_t *config)
{
    json_t *argv = json_pack("[O?]", json_object_get(config, "cmd"));
    json_t *arg;
    size_t i;

    json_array_foreach(json_object_get(config, "args"), i, arg) json_array_append(argv, arg);
    return argv;
}

/* What our own route is asked for; NULL: answered. */
static json_t *native(struct call *call, const json_t *message, struct starting *wanted)
{
    const json_t *config = json_object_get(message, "process");
    const json_t *input = json_object_get(message, "stdin");
    const json_t *size = json_object_get(json_object_get(message, "pty"), "size");
    const char *cwd = json_string_value(json_object_get(config, "cwd"));
    const char *user = rpc_user(call);
    const char *at = user ? rpc_path(call, user, cwd ? cwd : "") : NULL;
    uint64_t timeout_ms = rpc_timeout(call);

    if (!at)
        return NULL;
    wanted->has_terminal = size != NULL;
    wanted->has_input = wanted->has_terminal || !json_is_false(input);
    json_t *body =
        json_pack("{s:o, s:s, s:o, s:b, s:b}", "argv", argv_of(config), "cwd", at, "env",
                  env_of(call, config, user), "stdin_open", wanted->has_input, "background", 1);
    if (strcmp(user, "root") == 0)
        json_object_set_new(body, "user", json_string(user));
    if (timeout_ms)
        json_object_set_new(body, "timeout_ms", json_integer((json_int_t)timeout_ms));
    if (size)
        json_object_set_new(body, "pty",
                            json_pack("{s:O?, s:O?}", "cols", json_object_get(size, "cols"), "rows",
                                      json_object_get(size, "rows")));
    return body;
}

void process_start(struct call *call)
{
    struct starting *wanted = arena_alloc(&call->arena, sizeof(*wanted));

    rpc_is_stream(call);
    json_t *message = rpc_message(call);
    if (!message)
        return;
    const char *tag = json_string_value(json_object_get(message, "tag"));
    json_t *config = json_object_get(message, "process");
    char *text = config ? json_dumps(config, JSON_COMPACT) : NULL;
    json_t *body = wanted && text ? native(call, message, wanted) : NULL;
    if (!wanted || (!text && !call->status)) {
        rpc_end(call, "invalid_argument", "the message has no \"process\"");
    } else if (body && live_hold(call, HTTP_OUTPUT)) {
        wanted->tag = tag ? arena_copy(&call->arena, tag, strlen(tag)) : NULL;
        wanted->config = arena_copy(&call->arena, text, strlen(text));
        call->manner = &manner;
        call->manner_data = wanted;
        json_decref(call->body);
        call->body = json_incref(body);
        execs_create(call);
    }
    json_decref(body);
    free(text);
    json_decref(message);
}
