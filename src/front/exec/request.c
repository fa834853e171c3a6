/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "front/exec/mode.h"
#include "policy/policy.h"

enum {
    MAX_ARGS = 32768,
    MAX_ENV = 4000,  /* and those of the policy */
    MAX_SIDE = 4096, /* columns, rows */
};

#define MAX_TIMEOUT_MS (1000ULL * 86400 * 365)

static bool out_of_memory(struct call *call)
{
    call_error(call, 413, "too_large", "the request is too large");
    return false;
}

static bool read_argv(struct call *call, const json_t *list, struct exec_message *m)
{
    size_t n = json_array_size(list);
    json_t *item;
    size_t at;

    if (!json_is_array(list) || n == 0 || n > MAX_ARGS) {
        call_bad_field(call, "argv", "a list of texts, the program first");
        return false;
    }
    const char **argv = arena_alloc(&call->arena, (n + 1) * sizeof(*argv));
    if (!argv)
        return out_of_memory(call);
    json_array_foreach(list, at, item)
    {
        argv[at] = json_string_value(item);
        if (!argv[at] || strlen(argv[at]) != json_string_length(item)) {
            call_bad_field(call, "argv", "a list of texts without NUL");
            return false;
        }
    }
    m->argv = argv;
    return true;
}

/* "command": a line for the shell, or "argv": a program and its arguments. */
static bool read_command(struct call *call, struct exec_message *m)
{
    const json_t *list = json_object_get(call->body, "argv");
    const char *line = NULL;

    if (!field_text(call, call->body, "command", 2UL << 20, &line))
        return false;
    if (!line == !list) {
        call_error(call, 400, "invalid_request",
                   "give either \"command\" (a line for the shell) or \"argv\" (a list)");
        return false;
    }
    if (list)
        return read_argv(call, list, m);
    const char **argv = arena_alloc(&call->arena, 4 * sizeof(*argv));
    if (!argv)
        return out_of_memory(call);
    argv[0] = "bash";
    argv[1] = "-c";
    argv[2] = line;
    m->argv = argv;
    return true;
}

static bool read_env(struct call *call, struct exec_message *m)
{
    json_t *object = NULL;
    const char *name;
    json_t *value;
    size_t n = 0;

    if (!field_object(call, call->body, "env", &object))
        return false;
    const char **env = arena_alloc(&call->arena, (json_object_size(object) + 1) * sizeof(*env));
    if (!env || json_object_size(object) > MAX_ENV)
        return out_of_memory(call);
    json_object_foreach(object, name, value)
    {
        const char *text = json_string_value(value);
        if (!text || strlen(text) != json_string_length(value) || !*name || strchr(name, '=')) {
            call_bad_field(call, "env", "an object of texts; names are not empty and have no '='");
            return false;
        }
        env[n] = arena_printf(&call->arena, "%s=%s", name, text);
        if (!env[n++])
            return out_of_memory(call);
    }
    m->env = env;
    return true;
}

static bool read_terminal(struct call *call, struct exec_message *m)
{
    static const char *const known[] = {"cols", "rows", NULL};
    json_t *object = NULL;

    m->columns = 80;
    m->rows = 24;
    if (!field_object(call, call->body, "pty", &object))
        return false;
    m->tty = object != NULL;
    return !object || (fields_known(call, object, known) &&
                       field_number(call, object, "cols", 1, MAX_SIDE, &m->columns) &&
                       field_number(call, object, "rows", 1, MAX_SIDE, &m->rows));
}

static bool decode_base64(struct call *call, const char *text, struct exec_request *wanted)
{
    size_t n = strlen(text);
    char *bytes = arena_alloc(&call->arena, n / 4 * 3 + 1);
    ssize_t got = bytes ? bytes_from_base64(text, n, bytes) : -1;

    if (got < 0) {
        call_bad_field(call, "stdin_b64", "base64, with its padding");
        return false;
    }
    wanted->input = bytes;
    wanted->input_n = (size_t)got;
    return true;
}

static bool read_input(struct call *call, struct exec_request *wanted)
{
    const json_t *text = json_object_get(call->body, "stdin");
    const char *encoded = NULL;

    if (!field_text(call, call->body, "stdin_b64", 16UL << 20, &encoded) ||
        !field_flag(call, call->body, "stdin_open", &wanted->input_open))
        return false;
    if (text && !json_is_null(text)) {
        wanted->input = json_string_value(text);
        wanted->input_n = json_string_length(text);
        if (!wanted->input || encoded) {
            call_bad_field(call, "stdin", "a text (or give stdin_b64)");
            return false;
        }
    }
    if (encoded && !decode_base64(call, encoded, wanted))
        return false;
    if (wanted->input_n > 4UL << 20) {
        call_bad_field(call, "stdin", "at most 4 MiB; post more to …/stdin");
        return false;
    }
    wanted->sandbox.message.input = wanted->input || wanted->input_open;
    return true;
}

/* How the answer shall come. */
static bool read_answer(struct call *call, struct exec_request *wanted)
{
    const json_t *stream = json_object_get(call->body, "stream");
    const char *accept = http_header(http_request_of(call->x), "accept");

    if (!field_flag(call, call->body, "background", &wanted->background))
        return false;
    wanted->format = FOLLOW_NDJSON;
    if (json_is_true(stream)) {
        wanted->streamed = true;
        (void)follow_format_of(accept, &wanted->format); /* ndjson otherwise */
    } else if (json_is_string(stream)) {
        wanted->streamed = follow_format_of(json_string_value(stream), &wanted->format);
        if (!wanted->streamed) {
            call_bad_field(call, "stream", "true, false, \"ndjson\", \"sse\" or \"raw\"");
            return false;
        }
    } else if (stream && !json_is_false(stream) && !json_is_null(stream)) {
        call_bad_field(call, "stream", "true, false, \"ndjson\", \"sse\" or \"raw\"");
        return false;
    } else if (accept && strcmp(accept, "text/event-stream") == 0) {
        wanted->streamed = true;
        wanted->format = FOLLOW_SSE;
    }
    return true;
}

static bool read_user(struct call *call, struct carrel_spec *spec)
{
    const char *user = NULL;

    if (!field_text(call, call->body, "user", 16, &user))
        return false;
    if (!user)
        return true;
    if (strcmp(user, "user") != 0 && strcmp(user, "root") != 0) {
        call_bad_field(call, "user", "\"user\" or \"root\"");
        return false;
    }
    spec->user = strcmp(user, "root") == 0 ? CARREL_USER_ROOT : CARREL_USER_USER;
    return true;
}

/* Limits are written as in a policy. */
static bool read_limits(struct call *call, struct carrel_spec *spec)
{
    json_t *object = NULL;
    struct err err;

    if (!field_number(call, call->body, "timeout_ms", 1, MAX_TIMEOUT_MS, &spec->timeout_ms) ||
        !field_object(call, call->body, "limits", &object))
        return false;
    if (!object)
        return true;
    struct policy *asked = arena_alloc(&call->arena, sizeof(*asked));
    json_t *whole = json_pack("{s:O}", "limits", object);
    char *text = json_dumps(whole, JSON_COMPACT);
    json_decref(whole);
    int r = asked && text ? policy_parse(asked, &call->arena, text, strlen(text), &err)
                          : err_set(&err, ERR_LIMIT, 0, "out of memory");
    free(text);
    if (r < 0) {
        call_fail(call, &err);
        return false;
    }
    spec->limits = asked->limits;
    spec->output_bytes = asked->output_bytes;
    if (asked->limits.disk_bytes || asked->limits.disk_files || asked->limits.io_bytes) {
        call_bad_field(call, "limits", "memory, pids, cpu or output; the rest is the policy's");
        return false;
    }
    return true;
}

/* What another protocol puts before each of its commands. */
static bool put_before(struct call *call, struct exec_message *m)
{
    const char *const *before = call->manner ? call->manner->before : NULL;
    size_t first = 0;
    size_t n = 0;

    while (before && before[first])
        first++;
    while (m->argv[n])
        n++;
    const char **argv = arena_alloc(&call->arena, (first + n + 1) * sizeof(*argv));
    if (!argv)
        return out_of_memory(call);
    if (first)
        memcpy(argv, before, first * sizeof(*argv));
    memcpy(argv + first, m->argv, n * sizeof(*argv));
    m->argv = argv;
    return true;
}

bool exec_request_read(struct call *call, struct exec_request *ret)
{
    static const char *const known[] = {
        "command",    "argv", "cwd",        "env",       "stdin", "stdin_b64",
        "stdin_open", "user", "timeout_ms", "limits",    "pty",   "stream",
        "background", "mode", "plan",       "keep_open", NULL};
    struct carrel_spec spec = {0};

    *ret = (struct exec_request){.sandbox.message.cwd = "/"};
    if (!fields_known(call, call->body, known) || !read_command(call, &ret->sandbox.message) ||
        (call->manner && !put_before(call, &ret->sandbox.message)) ||
        !field_text(call, call->body, "cwd", 4096, &ret->sandbox.message.cwd) ||
        !read_env(call, &ret->sandbox.message) || !read_terminal(call, &ret->sandbox.message) ||
        !read_input(call, ret) || !read_answer(call, ret) || !read_user(call, &spec) ||
        !read_limits(call, &spec) || !call->front->exec_mode->read(call, &ret->sandbox.plan) ||
        !sandbox_request_make(call, &spec, &ret->sandbox))
        return false;
    ret->sandbox.message.plan = ret->sandbox.plan.id;
    ret->shown = json_object();
    static const char *const kept[] = {"command",    "argv",       "cwd", "pty",
                                       "background", "timeout_ms", "mode"};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        json_t *value = json_object_get(call->body, kept[i]);
        if (value && !json_is_null(value))
            json_object_set(ret->shown, kept[i], value);
    }
    if (ret->sandbox.plan.is_plan)
        json_object_set_new(ret->shown, "plan", json_string(ret->sandbox.plan.id));
    return true;
}

bool exec_request_own(struct call *call, const char *const *argv, struct exec_request *ret)
{
    *ret = (struct exec_request){.streamed = true};
    if (!sandbox_request_plain(call, argv, &ret->sandbox))
        return false;
    ret->shown = json_pack("{s:s}", "command", argv[0]);
    return true;
}
