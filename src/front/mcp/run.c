/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: run to their end with their output as progress, or looked at while they go on. The
 * answer of the route is a line for each piece (exec/follow.h). A command whose client wants it no
 * more is ended by another request, which nobody waits for; so a run may outlive its ask:
 *
 *   begun --"start"--> known by its id --"end"--> told
 *     \--left: stays until the id is known--> killed            */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "front/mcp/mcp.h"

enum {
    LINE_MOST = 1 << 20,
    HEAD_MOST = 96 << 10, /* of output, the first and the last of it */
    TAIL_MOST = 96 << 10,
    REFUSAL_MOST = 65536,
    READ_DEFAULT = 65536,
    READ_MOST = HEAD_MOST,
    WAIT_MOST_MS = 300000,
    SETTLE_MS = 150, /* after the first output, for what comes with it */
};

struct mcp_run {
    struct mcp_ask *ask; /* NULL: it has left */
    struct front *front;
    struct inner_asker who;
    struct inner *inner;
    char workspace[FRONT_ID];
    char exec_id[28];
    bool kills;   /* as soon as its id is known */
    bool is_ours; /* ... without asking for it with the client's key */
    bool reads;   /* it looks at a command of before, up to `most` bytes */
    struct buf line;
    struct buf head;
    struct buf tail;
    uint64_t bytes; /* of output, in all */
    uint64_t most;
    uint64_t next; /* offset behind what was read */
    json_t *end;
    json_t *error;
    struct timer wait;
    bool settles;
    bool paused;
};

static void drop(struct mcp_run *run)
{
    if (run->ask)
        run->ask->run = NULL;
    timer_stop(run->front->events, &run->wait);
    inner_drop(run->inner);
    buf_clear(&run->line);
    buf_clear(&run->head);
    buf_clear(&run->tail);
    json_decref(run->end);
    json_decref(run->error);
    free(run);
}

/* Whoever asks for it does not wait for how it goes. */
static void kill_it(const struct mcp_run *run)
{
    char target[200];

    if (run->is_ours) {
        run->front->end_exec(run->front, run->workspace, run->exec_id);
        return;
    }
    snprintf(target, sizeof(target), "/v1/workspaces/%s/exec/%s/kill", run->workspace,
             run->exec_id);
    (void)inner_start(run->front, &run->who,
                      &(struct inner_request){.method = HTTP_POST, .target = target});
}

void mcp_run_leave(struct mcp_ask *ask, bool kill)
{
    struct mcp_run *run = ask->run;

    if (!run)
        return;
    ask->run = NULL;
    run->ask = NULL;
    if (run->reads || !kill) {
        drop(run);
    } else if (*run->exec_id) {
        kill_it(run);
        drop(run);
    } else {
        run->kills = true;
        if (run->paused && run->inner)
            inner_continue(run->inner);
    }
}

/* Its key may be valid no longer, and its owner have no room for a request more. */
void mcp_run_end(struct mcp_ask *ask)
{
    if (ask->run)
        ask->run->is_ours = true;
    mcp_run_leave(ask, true);
}

void mcp_run_go_on(struct mcp_ask *ask)
{
    struct mcp_run *run = ask->run;

    if (run && run->paused && run->inner) {
        run->paused = false;
        inner_continue(run->inner);
    }
}

/* --- output --- */

/* The first and the last of it; between them something may be missing. */
static void keep(struct mcp_run *run, const char *bytes, size_t n)
{
    size_t room = run->head.n < HEAD_MOST ? HEAD_MOST - run->head.n : 0;
    size_t first = run->tail.n ? 0 : n < room ? n : room;

    run->bytes += n;
    buf_add(&run->head, bytes, first);
    buf_add(&run->tail, bytes + first, n - first);
    if (run->tail.n > 2UL * TAIL_MOST) {
        memmove(run->tail.p, run->tail.p + run->tail.n - TAIL_MOST, TAIL_MOST);
        run->tail.n = TAIL_MOST;
    }
}

/* All that is kept, as one text, with a word where something is missing. */
static json_t *output_of(struct mcp_run *run, bool *ret_cut)
{
    scoped_buf struct buf b = {.n = 0};
    size_t tail = run->tail.n < TAIL_MOST ? run->tail.n : TAIL_MOST;
    uint64_t missing = run->bytes - run->head.n - tail;

    buf_init(&b, HEAD_MOST + TAIL_MOST + 128);
    buf_add(&b, run->head.n ? run->head.p : "", run->head.n);
    if (missing)
        buf_printf(&b, "\n[... %ju bytes are left out here ...]\n", (uintmax_t)missing);
    buf_add(&b, tail ? run->tail.p + run->tail.n - tail : "", tail);
    *ret_cut = missing > 0;
    return buf_done(&b) == 0 ? mcp_text(b.p, b.n) : json_string("");
}

/* Text, or base64 where it is none. */
static void take_output(struct mcp_run *run, const json_t *event)
{
    const json_t *data = json_object_get(event, "data");
    const json_t *encoded = json_object_get(event, "data_b64");
    const char *bytes = json_string_value(data);
    size_t n = json_string_length(data);
    scoped_buf struct buf plain = {.n = 0};

    buf_init(&plain, LINE_MOST);
    if (encoded &&
        bytes_add_decoded(&plain, json_string_value(encoded), json_string_length(encoded)) == 0) {
        bytes = plain.p;
        n = plain.n;
    }
    if (!bytes || n == 0)
        return;
    if (run->reads && run->bytes + n > run->most)
        n = (size_t)(run->most - run->bytes);
    keep(run, bytes, n);
    run->next = (uint64_t)json_integer_value(json_object_get(event, "offset")) + n;
    if (run->ask && !run->reads)
        mcp_progress(run->ask, run->bytes, bytes, n);
}

static void take_event(struct mcp_run *run, json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const char *id = json_string_value(json_object_get(event, "exec_id"));

    if (!type)
        return;
    if (strcmp(type, "start") == 0 && id) {
        snprintf(run->exec_id, sizeof(run->exec_id), "%s", id);
    } else if (strcmp(type, "end") == 0) {
        json_decref(run->end);
        run->end = json_incref(event);
    } else if (strcmp(type, "error") == 0) {
        json_decref(run->error);
        run->error = json_incref(json_object_get(event, "error"));
    } else if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0 ||
               strcmp(type, "pty") == 0) {
        take_output(run, event);
    }
}

static void take_line(struct mcp_run *run)
{
    json_t *event = buf_done(&run->line) == 0
                        ? json_loadb(run->line.p, run->line.n, JSON_ALLOW_NUL, NULL)
                        : NULL;

    if (event)
        take_event(run, event);
    json_decref(event);
    buf_clear(&run->line);
    buf_init(&run->line, LINE_MOST);
}

/* --- what is told --- */

static json_t *member(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);

    return value ? json_incref(value) : json_null();
}

static void tell_result(struct mcp_run *run)
{
    struct mcp_ask *ask = run->ask;
    bool cut = false;
    json_t *output = output_of(run, &cut);
    json_t *plan = json_object_get(run->end, "plan");
    const char *reason = json_string_value(json_object_get(run->end, "reason"));
    scoped_buf struct buf text = {.n = 0};

    buf_init(&text, HEAD_MOST + TAIL_MOST + 8192);
    buf_add(&text, json_string_value(output), json_string_length(output));
    if (text.n > 0 && text.p[text.n - 1] != '\n')
        buf_str(&text, "\n");
    buf_printf(&text, "[exit code %d%s%s]",
               (int)json_integer_value(json_object_get(run->end, "exit_code")),
               reason && strcmp(reason, "exit") != 0 ? ", ended by: " : "",
               reason && strcmp(reason, "exit") != 0 ? reason : "");
    if (plan)
        buf_printf(&text, "\n[plan %s, %s]", json_string_value(json_object_get(plan, "id")),
                   json_string_value(json_object_get(plan, "state")));
    json_t *structured =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "exec_id", run->exec_id, "exit_code",
                  member(run->end, "exit_code"), "reason", member(run->end, "reason"), "timed_out",
                  member(run->end, "timed_out"), "duration_ms", member(run->end, "duration_ms"),
                  "signal", member(run->end, "signal"), "output", output, "truncated",
                  cut || json_is_true(json_object_get(run->end, "truncated")));
    if (plan)
        json_object_set(structured, "plan", plan);
    mcp_tool_result(ask, buf_done(&text) == 0 ? mcp_text(text.p, text.n) : NULL, structured);
}

static void tell_read(struct mcp_run *run)
{
    bool cut = false;
    json_t *output = output_of(run, &cut);
    json_t *structured =
        json_pack("{s:s, s:o, s:I, s:s, s:o}", "process_id", run->exec_id, "output", output,
                  "next_offset", (json_int_t)run->next, "state", run->end ? "ended" : "running",
                  "exit_code", member(run->end, "exit_code"));
    scoped_buf struct buf text = {.n = 0};

    buf_init(&text, HEAD_MOST + 256);
    buf_add(&text, json_string_value(output), json_string_length(output));
    if (text.n > 0 && text.p[text.n - 1] != '\n')
        buf_str(&text, "\n");
    if (run->end)
        buf_printf(&text, "[ended, exit code %d",
                   (int)json_integer_value(json_object_get(run->end, "exit_code")));
    else
        buf_str(&text, "[running");
    buf_printf(&text, ", next_offset %ju]", (uintmax_t)run->next);
    mcp_tool_result(run->ask, buf_done(&text) == 0 ? mcp_text(text.p, text.n) : NULL, structured);
}

static void tell(struct mcp_run *run)
{
    struct mcp_ask *ask = run->ask;
    const char *why = json_string_value(json_object_get(run->error, "message"));

    if (!ask)
        return;
    if (run->error)
        mcp_tool_failed(ask, "%s", why ? why : "the daemon broke off");
    else if (run->reads)
        tell_read(run);
    else if (run->end)
        tell_result(run);
    else
        mcp_tool_failed(ask,
                        "the daemon broke off before command %s had ended; read_process tells "
                        "how it goes on",
                        run->exec_id);
}

/* --- from the route --- */

static bool has_enough(const struct mcp_run *run)
{
    return run->reads && run->bytes >= run->most;
}

static size_t piece(void *context, const char *bytes, size_t n)
{
    struct mcp_run *run = context;
    size_t taken = 0;

    while (taken < n && !has_enough(run)) {
        if (run->ask && mcp_is_behind(run->ask)) {
            run->paused = true;
            return taken;
        }
        const char *end = memchr(bytes + taken, '\n', n - taken);
        size_t one = end ? (size_t)(end - bytes) + 1 - taken : n - taken;
        buf_add(&run->line, bytes + taken, one);
        taken += one;
        if (end)
            take_line(run);
        if (run->kills && *run->exec_id) {
            kill_it(run);
            drop(run);
            return n;
        }
    }
    if (has_enough(run)) {
        tell(run);
        drop(run);
        return n;
    }
    if (run->reads && run->bytes > 0 && !run->settles) {
        run->settles = true;
        if (run->wait.due_ms == 0 || run->wait.due_ms > now_ms() + SETTLE_MS)
            ignore(timer_set(run->front->events, &run->wait, now_ms() + SETTLE_MS));
    }
    return n;
}

static void done(void *context, int status, const struct buf *body)
{
    struct mcp_run *run = context;
    const struct mcp_heard heard = {
        .status = status, .bytes = body->n ? body->p : "", .n = body->n};

    run->inner = NULL;
    if (run->ask && status >= 400)
        mcp_tool_refused(run->ask, &heard);
    else
        tell(run);
    drop(run);
}

static void waited(struct timer *timer)
{
    struct mcp_run *run = container_of(timer, struct mcp_run, wait);

    tell(run);
    drop(run);
}

static bool start(struct mcp_ask *ask, const struct inner_request *request, uint64_t most,
                  bool reads)
{
    struct mcp_run *run = calloc(1, sizeof(*run));
    struct inner_request own = *request;

    if (!run) {
        mcp_error(ask, 503, MCP_INTERNAL, NULL, "out of memory");
        return false;
    }
    *run = (struct mcp_run){.ask = ask,
                            .front = ask->front,
                            .who = ask->who,
                            .reads = reads,
                            .most = most,
                            .wait.ring = waited};
    snprintf(run->workspace, sizeof(run->workspace), "%s",
             json_string_value(json_object_get(ask->args, "workspace")));
    buf_init(&run->line, LINE_MOST);
    buf_init(&run->head, HEAD_MOST);
    buf_init(&run->tail, 3UL * TAIL_MOST + LINE_MOST);
    own.accept = "application/x-ndjson";
    own.most = REFUSAL_MOST;
    own.piece = piece;
    own.done = done;
    own.context = run;
    ask->run = run;
    run->inner = inner_start(ask->front, &ask->who, &own);
    if (run->inner)
        return true;
    drop(run);
    mcp_error(ask, 503, MCP_INTERNAL, NULL,
              "the daemon has no room for this request now; try again");
    return false;
}

void mcp_execute(struct mcp_ask *ask)
{
    static const char *const same[] = {"command", "cwd",  "env",      "timeout_ms",
                                       "stdin",   "plan", "keep_open"};
    bool plans = strncmp(json_string_value(json_object_get(ask->params, "name")), "plan", 4) == 0;
    json_t *body = json_pack("{s:s}", "stream", "ndjson");

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        json_t *value = json_object_get(ask->args, same[i]);
        if (value)
            json_object_set(body, same[i], value);
    }
    if (plans && !json_object_get(ask->args, "plan"))
        json_object_set_new(body, "mode", json_string("plan"));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    const char *kept = text ? arena_copy(&ask->call->arena, text, strlen(text)) : NULL;
    free(text);
    if (!kept) {
        mcp_error(ask, 413, MCP_BAD_PARAMS, NULL, "the command is too large");
        return;
    }
    if (!mcp_stream(ask))
        return;
    const struct inner_request request = {
        .method = HTTP_POST, .target = ask->target, .bytes = kept, .n = strlen(kept)};
    if (start(ask, &request, 0, false) && ask->modern)
        http_end_with_client(ask->call->x);
}

static uint64_t number(const struct mcp_ask *ask, const char *name, uint64_t otherwise)
{
    const json_t *value = json_object_get(ask->args, name);

    return json_is_integer(value) ? (uint64_t)json_integer_value(value) : otherwise;
}

void mcp_read_process(struct mcp_ask *ask)
{
    uint64_t offset = number(ask, "offset", 0);
    uint64_t wait_ms = number(ask, "wait_ms", 0);
    uint64_t most = number(ask, "limit", READ_DEFAULT);
    scoped_buf struct buf target = {.n = 0};

    buf_init(&target, HTTP_MAX_TARGET);
    buf_printf(&target, "%s?format=ndjson&from=%ju%s", ask->target, (uintmax_t)offset,
               wait_ms ? "&follow=1" : "");
    if (buf_done(&target) < 0) {
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "read_process: an argument is too long");
        return;
    }
    if (wait_ms > 0 && !mcp_stream(ask))
        return;
    const struct inner_request request = {.method = HTTP_GET, .target = target.p};
    if (!start(ask, &request, most < READ_MOST ? most : READ_MOST, true))
        return;
    ask->run->next = offset;
    snprintf(ask->run->exec_id, sizeof(ask->run->exec_id), "%s",
             json_string_value(json_object_get(ask->args, "process_id")));
    if (wait_ms > 0)
        ignore(timer_set(ask->front->events, &ask->run->wait,
                         now_ms() + (wait_ms < WAIT_MOST_MS ? wait_ms : WAIT_MOST_MS)));
}
