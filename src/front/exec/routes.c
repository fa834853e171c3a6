/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/exec/{id}: looks at commands that were started, and acts on those that run.
 */
#include "front/exec/routes.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "front/core/live.h"
#include "front/core/planned.h"
#include "front/exec/attach.h"
#include "front/exec/exec.h"
#include "front/exec/follow.h"
#include "protocol/broker.h"

#define EXEC "/v1/workspaces/{ws}/exec"

const struct route exec_routes[] = {
    {HTTP_GET, "/v1/workspaces/{ws}/backup", OWNERS, 0, NO_HEAD, workspaces_backup, "",
     NOT_IN_PLAN},
    {HTTP_POST, "/v1/workspaces/{ws}/restore", OWNERS, HTTP_BODY_STREAM, RAW, workspaces_restore,
     "", NOT_IN_PLAN},
    {HTTP_POST, EXEC, WORKERS, BODY_EXEC, 0, execs_create, "", IN_PLAN},
    {HTTP_GET, EXEC, READERS, 0, 0, execs_list, "limit cursor state", IN_PLAN},
    {HTTP_GET, EXEC "/{exec}", READERS, 0, 0, execs_get, "", IN_PLAN},
    {HTTP_GET, EXEC "/{exec}/output", READERS, 0, 0, execs_output, "from follow format stream",
     IN_PLAN},
    {HTTP_POST, EXEC "/{exec}/stdin", WORKERS, BODY_INPUT, RAW, execs_stdin, "eof", IN_PLAN},
    {HTTP_POST, EXEC "/{exec}/signal", WORKERS, BODY_SMALL, 0, execs_signal, "", IN_PLAN},
    {HTTP_POST, EXEC "/{exec}/resize", WORKERS, BODY_SMALL, 0, execs_resize, "", IN_PLAN},
    {HTTP_POST, EXEC "/{exec}/kill", WORKERS, BODY_SMALL, RAW, execs_kill, "", IN_PLAN},
    {HTTP_GET, EXEC "/{exec}/attach", WORKERS, HTTP_BODY_STREAM, RAW | NO_HEAD, execs_attach,
     "from", IN_PLAN},
    ROUTES_END,
};

/* The command the path names, in memory or only in its row; false: answered with 404. */
static bool find(struct call *call, struct exec **ret_exec, struct store_exec *ret_row)
{
    struct err err;

    exec_write_rows(call->front);
    *ret_exec = exec_find(call->front, call->params[1]);
    if (*ret_exec && strcmp((*ret_exec)->workspace, call->workspace.id) != 0)
        *ret_exec = NULL;
    int found = store_exec_get(call->front->store, &call->arena, call->params[1], ret_row, &err);
    if (found < 0) {
        call_fail(call, &err);
        return false;
    }
    if (found == 1 && strcmp(ret_row->workspace, call->workspace.id) == 0)
        return true;
    call_error(call, 404, "not_found", "there is no command '%s' in this workspace",
               call->params[1]);
    return false;
}

static json_t *exec_json(struct front *front, const struct store_exec *row)
{
    const struct exec *exec = exec_find(front, row->id);
    json_t *object = json_loads(row->command, 0, NULL);

    if (!object)
        object = json_object();
    bool runs = exec ? !exec->settled : strcmp(row->state, "running") == 0;
    json_object_set_new(object, "exec_id", json_string(row->id));
    json_object_set_new(object, "workspace", json_string(row->workspace));
    json_object_set_new(object, "state", json_string(runs ? "running" : "ended"));
    json_object_set_new(object, "actor", json_string(row->actor));
    json_object_set_new(object, "started", time_json(row->started_ms));
    json_object_set_new(object, "ended", time_json(row->ended_ms));
    if (exec && exec->has_spool) {
        json_object_set_new(object, "output_bytes", json_integer((json_int_t)exec->spool.end));
        json_object_set_new(object, "output_first", json_integer((json_int_t)exec->spool.first));
    }
    json_t *result = *row->result ? json_loads(row->result, 0, NULL) : NULL;
    json_object_set_new(object, "result", result ? result : json_null());
    return object;
}

struct listing {
    struct front *front;
    json_t *list;
};

static bool list_one(void *context, const struct store_exec *row)
{
    struct listing *listing = context;

    return json_array_append_new(listing->list, exec_json(listing->front, row)) == 0;
}

void execs_list(struct call *call)
{
    struct listing listing = {.front = call->front};
    const char *cursor;
    const char *state;
    uint64_t limit;
    struct err err;

    if (!call_limit(call, &limit) || !call_text(call, "cursor", &cursor) ||
        !call_text(call, "state", &state))
        return;
    exec_write_rows(call->front);
    listing.list = json_array();
    if (store_execs(call->front->store, call->workspace.id, state, cursor, (size_t)limit, list_one,
                    &listing, &err) < 0) {
        json_decref(listing.list);
        call_fail(call, &err);
        return;
    }
    size_t n = json_array_size(listing.list);
    json_t *next =
        n && n == limit
            ? json_incref(json_object_get(json_array_get(listing.list, n - 1), "exec_id"))
            : json_null();
    call_json(call, 200, json_pack("{s:o, s:o}", "execs", listing.list, "next", next));
}

void execs_get(struct call *call)
{
    struct store_exec row;
    struct exec *exec;

    if (find(call, &exec, &row))
        call_json(call, 200, exec_json(call->front, &row));
}

void execs_output(struct call *call)
{
    struct follow_request request = {.format = FOLLOW_NDJSON, .only = -1};
    struct store_exec row;
    struct exec *exec;
    const char *format;
    const char *only;
    uint64_t follow_it;

    if (!call_number(call, "from", INT64_MAX, 0, &request.from) ||
        !call_number(call, "follow", 1, 0, &follow_it) || !call_text(call, "format", &format) ||
        !call_text(call, "stream", &only) || !find(call, &exec, &row))
        return;
    if (format && !follow_format_of(format, &request.format)) {
        call_bad_field(call, "format", "\"ndjson\", \"sse\" or \"raw\"");
        return;
    }
    if (!format)
        (void)follow_format_of(http_header(http_request_of(call->x), "accept"), &request.format);
    if (only) {
        request.only = strcmp(only, "stdout") == 0   ? SPOOL_OUT
                       : strcmp(only, "stderr") == 0 ? SPOOL_ERR
                                                     : -2;
        if (request.only == -2) {
            call_bad_field(call, "stream", "\"stdout\" or \"stderr\"");
            return;
        }
    }
    request.to_the_end = request.holds = follow_it == 1;
    if (follow_it && exec && !live_hold(call, HTTP_OUTPUT))
        return;
    json_t *result = exec || !*row.result ? NULL : json_loads(row.result, 0, NULL);
    follow_start(call, exec, call->params[1], result, &request);
}

/* For what only makes sense while it runs. */
static struct exec *find_running(struct call *call)
{
    struct store_exec row;
    struct exec *exec;

    if (!find(call, &exec, &row) || !planned_admits_exec(call, &row))
        return NULL;
    if (exec && (exec->state == EXEC_RUNNING || !exec->gone))
        return exec;
    call_error(call, 409, "conflict", "the command has ended");
    return NULL;
}

void execs_stdin(struct call *call)
{
    uint64_t eof;
    size_t n;

    if (!call_number(call, "eof", 1, 0, &eof))
        return;
    struct exec *exec = find_running(call);
    if (!exec)
        return;
    const char *bytes = http_body(call->x, &n);
    int r = n ? exec_input(exec, bytes, n) : 0;
    if (r == -EAGAIN) {
        call_error(call, 429, "too_many", "the command does not read its input; try again later");
        return;
    }
    if (r < 0) {
        call_error(call, 409, "conflict", "the command's input is closed");
        return;
    }
    if (eof)
        exec_end_input(exec);
    call_empty(call);
}

int exec_signal_number(const json_t *value)
{
    static const struct {
        const char *name;
        int number;
    } table[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},  {"KILL", SIGKILL},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM},  {"CONT", SIGCONT},
                 {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}};

    const char *name = json_string_value(value);

    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        return number >= 1 && number <= 64 ? (int)number : -1;
    }
    if (name && strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; name && i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(name, table[i].name) == 0)
            return table[i].number;
    }
    return -1;
}

static void ask_with_number(struct call *call, uint32_t kind, uint64_t number)
{
    struct plain_message m = {.texts = {call->params[1]}, .number = number};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, call_expect(call, call_heard_empty), &m);
    broker_send(call->front->channel, kind, &b);
}

static void send_signal(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        ask_with_number(call, REQUEST_SIGNAL,
                        (uint64_t)exec_signal_number(json_object_get(call->body, "signal")));
}

void execs_signal(struct call *call)
{
    static const char *const known[] = {"signal", NULL};

    if (!fields_known(call, call->body, known))
        return;
    int number = exec_signal_number(json_object_get(call->body, "signal"));
    if (number < 0) {
        call_bad_field(call, "signal", "a name such as \"TERM\", or a number from 1 to 64");
        return;
    }
    struct exec *exec = find_running(call);
    if (exec)
        call_record(call, exec->workspace, "exec.signal", "ok",
                    json_pack("{s:s, s:i}", "exec", exec->id, "signal", number), send_signal);
}

static void send_kill(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        ask_with_number(call, REQUEST_KILL, CARREL_ENDED_SIGNAL);
}

void execs_kill(struct call *call)
{
    struct exec *exec = find_running(call);

    if (exec)
        call_record(call, exec->workspace, "exec.kill", "ok", json_pack("{s:s}", "exec", exec->id),
                    send_kill);
}

void execs_resize(struct call *call)
{
    static const char *const known[] = {"cols", "rows", NULL};
    uint64_t columns = 80;
    uint64_t rows = 24;

    if (!fields_known(call, call->body, known) ||
        !field_number(call, call->body, "cols", 1, 4096, &columns) ||
        !field_number(call, call->body, "rows", 1, 4096, &rows))
        return;
    struct exec *exec = find_running(call);
    if (!exec)
        return;
    int r = exec_resize(exec, (unsigned)columns, (unsigned)rows);
    if (r == -ENOTTY)
        call_error(call, 409, "conflict", "the command has no terminal");
    else if (r < 0)
        call_error(call, 500, "internal", "the terminal cannot have that size");
    else
        call_empty(call);
}

void execs_attach(struct call *call)
{
    uint64_t from;
    struct exec *exec = find_running(call);

    if (exec && attach_is_asked(call) &&
        call_number(call, "from", INT64_MAX, ATTACH_FROM_FIRST, &from))
        attach_start(call, exec, from);
}
