/* SPDX-License-Identifier: Apache-2.0 */
/* process.Process: what is said to commands that run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "front/e2b/input.h"
#include "front/e2b/process.h"

enum {
    AGAIN_MS = 20, /* the command has yet to read what it has */
};

/* One that can be acted on. NULL: answered. */
static struct process *find(struct call *call)
{
    const json_t *selector = json_object_get(call->body, "process");
    struct process *p = process_find(call, selector);

    if (p && !p->drained)
        return p;
    rpc_error(call, 404, "not_found", process_missing(call, selector));
    return NULL;
}

void process_list(struct call *call)
{
    json_t *list = json_array();

    rpc_is_unary(call);
    for (const struct process *p = processes_first(); p; p = p->next) {
        if (p->drained || !p->pid || strcmp(p->workspace, call->workspace.id) != 0)
            continue;
        json_t *config = json_pack("{s:s, s:[], s:{}}", "cmd", "", "args", "envs");
        json_object_update(config, p->config);
        json_array_append_new(list, json_pack("{s:o, s:I, s:s*}", "config", config, "pid",
                                              (json_int_t)p->pid, "tag", p->tag));
    }
    call_json(call, 200, json_pack("{s:o}", "processes", list));
}

/* The bytes of {"stdin": …} or {"pty": …} into the process. 0; -EAGAIN: later; else why not is in
 * `ret_why`. */
static int put(struct process *p, const json_t *input, struct buf *bytes, const char **ret_why)
{
    const char *plain = json_string_value(json_object_get(input, "stdin"));
    const char *typed = json_string_value(json_object_get(input, "pty"));
    const char *text = p->has_terminal ? typed : plain;

    *ret_why = p->has_terminal ? "the input is not for a terminal" : "the process has no terminal";
    if (!text)
        return -EINVAL;
    *ret_why = "stdin is not enabled or is closed";
    if (!p->has_input || !p->exec)
        return -EPIPE;
    *ret_why = "the input is not base64, or larger than 4 MiB";
    if (bytes_add_decoded(bytes, text, strlen(text)) < 0 || buf_done(bytes) < 0)
        return -EINVAL;
    *ret_why = "stdin is not enabled or is closed";
    int r = bytes->n ? exec_input(p->exec, bytes->p, bytes->n) : 0;
    if (r == -EAGAIN)
        *ret_why = "the process does not read its input";
    return r;
}

void process_send_input(struct call *call)
{
    scoped_buf struct buf bytes;
    const char *why;

    buf_init(&bytes, EXEC_INPUT_MAX);
    rpc_is_unary(call);
    struct process *p = find(call);
    if (!p)
        return;
    int r = put(p, json_object_get(call->body, "input"), &bytes, &why);
    if (r == -EAGAIN)
        rpc_error(call, 429, "resource_exhausted", why);
    else if (r < 0)
        rpc_error(call, 500, "internal", why);
    else
        rpc_done(call);
}

void process_close_input(struct call *call)
{
    rpc_is_unary(call);
    struct process *p = find(call);
    if (!p)
        return;
    if (p->has_terminal) {
        rpc_error(call, 500, "unknown", "the input of a terminal is not closed; send Ctrl+D");
        return;
    }
    if (p->exec)
        exec_end_input(p->exec);
    rpc_done(call);
}

void process_update(struct call *call)
{
    const json_t *size = json_object_get(json_object_get(call->body, "pty"), "size");
    json_int_t columns = json_integer_value(json_object_get(size, "cols"));
    json_int_t rows = json_integer_value(json_object_get(size, "rows"));

    rpc_is_unary(call);
    struct process *p = find(call);
    if (!p)
        return;
    bool fits = columns > 0 && columns <= 4096 && rows > 0 && rows <= 4096;
    if (size && !fits)
        rpc_error(call, 400, "invalid_argument", "cols and rows are numbers from 1 to 4096");
    else if (size && (!p->exec || exec_resize(p->exec, (unsigned)columns, (unsigned)rows) < 0))
        rpc_error(call, 500, "internal", "the process has no terminal");
    else
        rpc_done(call);
}

static void signalled(struct e2b *e, int status, json_t *object)
{
    if (status == 409 || status == 404)
        rpc_error(e->call, 404, "not_found",
                  process_missing(e->call, json_object_get(e->call->body, "process")));
    else if (status >= 400)
        e2b_refuse(e, status, object);
    else
        rpc_done(e->call);
}

void process_signal(struct call *call)
{
    const json_t *value = json_object_get(call->body, "signal");
    const char *word = json_string_value(value);
    json_int_t number = json_integer_value(value);
    bool kills = number == 9 || (word && strcmp(word, "SIGNAL_SIGKILL") == 0);
    bool ends = number == 15 || (word && strcmp(word, "SIGNAL_SIGTERM") == 0);

    rpc_is_unary(call);
    struct process *p = find(call);
    if (!p)
        return;
    if (!kills && !ends) {
        rpc_error(call, 501, "unimplemented", "signals are SIGNAL_SIGTERM and SIGNAL_SIGKILL");
        return;
    }
    struct e2b *e = e2b_begin(call, NULL);
    if (e)
        e2b_ask(e, HTTP_POST, json_pack("{s:s}", "signal", kills ? "KILL" : "TERM"), signalled,
                "/v1/workspaces/%s/exec/%s/signal", call->workspace.id, p->exec->id);
}

/* --- a stream of input, as it comes --- */

struct feeding {
    struct call *call;
    struct buf in; /* the envelope that is coming */
    char exec[28]; /* whose; "": not said yet */
    bool is_due;   /* the envelope is whole, and the command has no room for it */
    struct timer again;
    bool ended;
};

static struct process *fed(struct feeding *f)
{
    for (struct process *p = processes_first(); p; p = p->next) {
        if (p->exec && !p->drained && strcmp(p->exec->id, f->exec) == 0)
            return p;
    }
    return NULL;
}

static void stop(struct feeding *f, const char *code, const char *why)
{
    if (!f->ended)
        rpc_end(f->call, code, why);
    f->ended = true;
}

/* False: it has to come again. */
static bool take(struct feeding *f, const json_t *message)
{
    const json_t *start = json_object_get(message, "start");
    const json_t *data = json_object_get(message, "data");
    scoped_buf struct buf bytes;
    const char *why = "";

    buf_init(&bytes, EXEC_INPUT_MAX);
    if (start) {
        const json_t *selector = json_object_get(start, "process");
        const struct process *p = process_find(f->call, selector);
        if (p && p->exec && !p->drained)
            memcpy(f->exec, p->exec->id, sizeof(f->exec));
        else
            stop(f, "not_found", process_missing(f->call, selector));
        return true;
    }
    if (!data)
        return true; /* a keepalive */
    struct process *p = fed(f);
    int r = p ? put(p, json_object_get(data, "input"), &bytes, &why) : -ESRCH;
    if (r == -EAGAIN)
        return false;
    if (r == -ESRCH)
        stop(f, "not_found", "the process has ended, or was not named");
    else if (r < 0)
        stop(f, "internal", why);
    return true;
}

static void offer_again(struct timer *timer)
{
    struct feeding *f = container_of(timer, struct feeding, again);

    if (f->call->x)
        http_continue_body(f->call->x);
}

/* What of the bytes is more of the envelope that is coming: its head says how much. */
static size_t wanted_of(const struct feeding *f, size_t n)
{
    const unsigned char *b = (const unsigned char *)f->in.p;

    if (f->in.n < ENVELOPE_HEAD)
        return n < ENVELOPE_HEAD - f->in.n ? n : ENVELOPE_HEAD - f->in.n;
    size_t size = ENVELOPE_HEAD +
                  ((size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | (size_t)b[4]);
    size_t left = size > f->in.n ? size - f->in.n : 0;
    return n < left ? n : left;
}

/* True: the envelope is dealt with, or is yet to come. */
static bool digest(struct feeding *f)
{
    const char *json = NULL;
    size_t json_n = 0;
    ssize_t n = envelope_next(f->in.p, f->in.n, &json, &json_n);

    if (n < 0) {
        stop(f, "invalid_argument", "the body is no row of messages of Connect in JSON");
        return true;
    }
    if (n == 0)
        return true;
    json_t *message = json_loadb(json, json_n, 0, NULL);
    bool taken = true;
    if (json_is_object(message))
        taken = take(f, message);
    else
        stop(f, "invalid_argument", "a message is not an object");
    json_decref(message);
    if (taken)
        f->in.n = 0;
    return taken;
}

static size_t piece(struct call *call, const char *bytes, size_t n)
{
    struct feeding *f = call->context;
    size_t at = 0;

    while (f && !f->ended && at < n) {
        if (f->is_due || f->in.n >= ENVELOPE_HEAD)
            f->is_due = !digest(f);
        if (f->is_due) {
            ignore(timer_set(call->front->events, &f->again, now_ms() + AGAIN_MS));
            return at;
        }
        size_t some = wanted_of(f, n - at);
        buf_add(&f->in, bytes + at, some);
        at += some;
        if (buf_done(&f->in) < 0)
            stop(f, "resource_exhausted", "a message is larger than 4 MiB");
        else if (f->in.n >= ENVELOPE_HEAD)
            f->is_due = !digest(f);
        if (some == 0 && !f->is_due)
            stop(f, "invalid_argument", "the body is no row of messages of Connect in JSON");
    }
    return n;
}

static void whole(struct call *call)
{
    struct feeding *f = call->context;
    scoped_buf struct buf b;

    buf_init(&b, 256);
    if (!f || f->ended)
        return;
    f->ended = true;
    envelope_put(&b, 0, json_object());
    envelope_end(&b, NULL, NULL);
    if (buf_done(&b) == 0)
        call_reply(call, 200, "application/connect+json", NULL, b.p, b.n);
    else
        call_error(call, 503, "unavailable", "out of memory");
}

static void left(struct call *call)
{
    struct feeding *f = call->context;

    call->context = NULL;
    call->piece = NULL;
    call->whole = NULL;
    timer_stop(call->front->events, &f->again);
    buf_clear(&f->in);
    free(f);
}

void process_stream_input(struct call *call)
{
    struct feeding *f = calloc(1, sizeof(*f));

    rpc_is_stream(call);
    if (!f) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    f->call = call;
    f->again.ring = offer_again;
    buf_init(&f->in, ENVELOPE_MOST + ENVELOPE_HEAD + 1UL);
    call->context = f;
    call->abandoned = left;
    call->piece = piece;
    call->whole = whole;
}
