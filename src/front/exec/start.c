/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/exec: asks the broker for a command, and answers in one of three ways: the
 * whole result when it is over, a stream, or at once. */
#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "front/core/call.h"
#include "front/core/live.h"
#include "front/core/quota.h"
#include "front/core/record.h"
#include "front/core/router.h"
#include "front/exec/exec.h"
#include "front/exec/follow.h"
#include "front/exec/mode.h"
#include "front/exec/request.h"
#include "front/exec/routes.h"
#include "front/exec/start.h"
#include "plan/core/state.h"
#include "json/result.h"

enum {
    ANSWER_OUTPUT = 1 << 20, /* of a plain answer; all of it is to be had from …/output */
    MESSAGE_MAX = 4000000,   /* of the broker's protocol */
};

struct exec_waiting {
    struct follower follower;  /* first: they are the same thing */
    struct exec_waiting *next; /* in the queue */
    struct call *call;
    struct exec *exec;
    bool waiting; /* for the start: row and input come first, whether the client is there or not */
    bool ended;   /* meanwhile the client was answered that it may not: the command ends, too */
    struct owner_use *tenant;                 /* in the queue: whose place it takes */
    struct quota_answer answer;               /* ... and what it waits for */
    const char *const *argv;                  /* of execs_own */
    const struct exec_background *background; /* of execs_background; NULL: it is none */
    struct exec_script script;                /* of execs_script */
    struct exec_request wanted;
};

struct exec *exec_of_call(const struct call *call)
{
    const struct exec_waiting *waiting = call->context;

    return waiting && !waiting->waiting ? waiting->exec : NULL;
}

static json_t *running_json(const struct exec *exec)
{
    return json_pack("{s:s, s:s, s:s}", "exec_id", exec->id, "workspace", exec->workspace, "state",
                     exec->settled ? "ended" : "running");
}

/* Both streams as they are in the spool, apart, as far as one answer goes. *ret_cut: there is more.
 */
static int collect(struct exec *exec, struct buf *out, struct buf *err, bool *ret_cut)
{
    struct spool_reader reader;
    char bytes[32768];
    enum spool_stream stream;
    uint64_t left = ANSWER_OUTPUT;
    ssize_t n = 1;

    *ret_cut = false;
    if (!exec->has_spool)
        return 0;
    int r = spool_reader_add(&exec->spool, &reader, exec->spool.first, false);
    if (r < 0)
        return r;
    while (n > 0 && left > 0 && reader.at < exec->final) {
        size_t most = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
        if (most > exec->final - reader.at)
            most = (size_t)(exec->final - reader.at);
        n = spool_read(&exec->spool, &reader, bytes, most, &stream);
        if (n > 0) {
            buf_add(stream == SPOOL_ERR ? err : out, bytes, (size_t)n);
            left -= (uint64_t)n;
        }
    }
    *ret_cut = reader.at < exec->final || exec->spool.first > 0;
    spool_reader_drop(&exec->spool, &reader);
    return n > 0 ? 0 : -EIO;
}

static json_t *whole_result(struct exec *exec)
{
    scoped_buf struct buf out;
    scoped_buf struct buf err;
    bool cut;

    buf_init(&out, 2UL * ANSWER_OUTPUT);
    buf_init(&err, 2UL * ANSWER_OUTPUT);
    if (collect(exec, &out, &err, &cut) < 0 || buf_done(&out) < 0 || buf_done(&err) < 0)
        return NULL;
    struct carrel_result result = exec->result;
    result.truncated = cut || exec->over_output;
    result.out = out.p;
    result.out_size = out.n;
    result.err = err.p;
    result.err_size = err.n;
    json_t *object = result_json(&result, true);
    /* The denials were encoded when they came. */
    json_object_set(object, "denials", json_object_get(exec->result_json, "denials"));
    if (json_object_get(exec->result_json, "plan"))
        json_object_set(object, "plan", json_object_get(exec->result_json, "plan"));
    json_object_set_new(object, "exec_id", json_string(exec->id));
    return object;
}

/* The call is about to be answered or to end: the exec goes on by itself. */
static void let_go(struct exec_waiting *waiting)
{
    struct exec *exec = waiting->exec;

    waiting->exec = NULL;
    waiting->call->context = NULL;
    waiting->call->abandoned = NULL;
    json_decref(waiting->wanted.shown);
    waiting->wanted.shown = NULL;
    if (exec)
        exec_unfollow(exec, &waiting->follower);
}

static void plain_drained(struct follower *follower)
{
    struct exec_waiting *waiting = (struct exec_waiting *)follower;
    struct call *call = waiting->call;
    int unrecorded = waiting->exec->unrecorded;
    json_t *object = unrecorded ? NULL : whole_result(waiting->exec);
    struct err err;

    let_go(waiting);
    if (unrecorded) {
        err_set(&err, ERR_IO, unrecorded,
                "the start could not be recorded in the audit, so the command was ended");
        call_fail(call, &err);
    } else if (object && waiting->script.over) {
        waiting->script.over(call, object, waiting->script.context);
    } else if (object) {
        call_json(call, 200, object);
    } else {
        call_error(call, 500, "internal", "the output could not be read back");
    }
}

static void no_output(struct follower *follower)
{
    (void)follower; /* it is collected at the end */
}

/* Its input, then its row, if its id will be told: one without a row may lack input, see take_exec
 * in resume.c. */
static int feed(struct exec_waiting *waiting, struct err *err)
{
    struct exec_request *wanted = &waiting->wanted;

    if (wanted->input)
        ignore(exec_input(waiting->exec, wanted->input, wanted->input_n)); /* it may not want it */
    if (wanted->sandbox.message.input && !wanted->input_open)
        exec_end_input(waiting->exec);
    return wanted->background || wanted->streamed ? exec_write_row(waiting->exec, err) : 0;
}

static void follow(struct exec_waiting *waiting)
{
    struct call *call = waiting->call;
    struct exec *exec = waiting->exec;
    struct follow_request request = {.format = waiting->wanted.format,
                                     .to_the_end = true,
                                     .holds = true,
                                     .only = waiting->wanted.own ? SPOOL_OUT : -1,
                                     .whole = waiting->wanted.own,
                                     .announce =
                                         waiting->wanted.format != FOLLOW_RAW && !call->manner};

    let_go(waiting);
    follow_start(call, exec, exec->id, NULL, &request);
}

static void answer_started(struct exec_waiting *waiting)
{
    struct call *call = waiting->call;
    struct exec *exec = waiting->exec;

    if (waiting->ended) {
        exec_stop(exec, CARREL_ENDED_SIGNAL);
        let_go(waiting);
    } else if (!call->x) {
        if (waiting->wanted.then)
            exec_end_input(exec); /* nobody is left to give it any */
        exec_left(exec, call->manner ? call->manner->ends_with_client
                                     : waiting->wanted.own && !waiting->wanted.then);
        let_go(waiting);
    } else if (call->manner && call->manner->runs) {
        let_go(waiting);
        call->manner->runs(call, exec);
    } else if (waiting->wanted.background) {
        json_t *object = running_json(exec);
        if (waiting->wanted.sandbox.plan.is_plan)
            json_object_set_new(object, "plan",
                                json_pack("{s:s, s:s}", "id", waiting->wanted.sandbox.plan.id,
                                          "state", plan_state_name(PLAN_OPEN)));
        let_go(waiting);
        call_json(call, 202, object);
    } else if (waiting->wanted.streamed) {
        follow(waiting);
    } else if (waiting->wanted.then) {
        waiting->wanted.then(call);
    }
}

static void exec_started(struct follower *follower, const struct err *failed)
{
    struct exec_waiting *waiting = (struct exec_waiting *)follower;
    struct call *call = waiting->call;
    struct exec *exec = waiting->exec;
    struct err err;

    waiting->waiting = false;
    call->ending = NULL;
    if (failed) {
        waiting->exec = NULL; /* freed by whoever tells */
        call->front->exec_mode->failed(call, &waiting->wanted.sandbox.plan);
        let_go(waiting);
        call_fail(call, failed);
    } else if (exec_keep_row(exec, call->actor.name, waiting->wanted.shown) < 0) {
        exec_stop(exec, CARREL_ENDED_SIGNAL);
        let_go(waiting);
        call_error(call, 503, "unavailable", "out of memory");
    } else if (feed(waiting, &err) < 0) {
        let_go(waiting);
        call_fail(call, &err);
    } else {
        call_drop_body(call);
        call->front->count.execs_started++;
        if (call->front->listeners)
            front_announce(call->front, "exec.start", exec->workspace, exec->owner,
                           json_pack("{s:s}", "exec_id", exec->id));
        answer_started(waiting);
    }
    call_release(call);
}

/* Its key was revoked, say, while the broker was asked: an error means that nothing runs. */
static void end_before_start(struct call *call, const struct ending *ending)
{
    struct exec_waiting *waiting = call->context;

    waiting->ended = true;
    call_end_plainly(call, ending);
}

/* A client that leaves does not end its command. */
static void client_left(struct call *call)
{
    struct exec_waiting *waiting = call->context;

    if (waiting && !waiting->waiting)
        let_go(waiting);
}

static void heard_start(void *context, struct answer *answer)
{
    struct exec *exec = context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        struct front *front = exec->front;
        exec_start_failed(exec, &err);
        execs_next(front); /* it has taken nobody's place */
    } else {
        exec_answered(exec, answer);
    }
}

static bool may_start(struct call *call)
{
    if (!call->workspace.deleted_ms)
        return true;
    call_error(call, 409, "conflict", "the workspace is in the trash; undelete it first");
    return false;
}

/* Whether the broker would take it: it reads the same bytes with the same rules, and ends a front
 * whose message it does not understand. */
static bool is_agreed(const struct buf *b, struct arena *arena)
{
    char *copy = arena_alloc(arena, b->n);
    struct exec_message unused;
    uint64_t tag;

    if (!copy)
        return false;
    memcpy(copy, b->p, b->n);
    return protocol_unpack_exec(copy, b->n, arena, &tag, &unused);
}

/* Nothing of it has reached the broker. */
static void drop_request(struct call *call, struct exec_waiting *waiting)
{
    json_decref(waiting->wanted.shown);
    waiting->wanted.shown = NULL;
    call->context = NULL;
    call->abandoned = NULL;
}

static void give_up(struct call *call, struct exec_waiting *waiting)
{
    drop_request(call, waiting);
    call->front->exec_mode->failed(call, &waiting->wanted.sandbox.plan);
    call_error(call, 400, "invalid_request",
               "command, environment, mounts or working directory are larger than a command may "
               "have (32768 arguments, 4096 variables, paths of 4095 bytes, 4 MB in all)");
}

/* Asks the broker; the follower's functions hear how it goes. */
static void ask(struct call *call, struct exec_waiting *waiting)
{
    struct front *front = call->front;
    char id[28];
    struct buf b;

    make_id('x', id);
    const struct plan_request *plan = &waiting->wanted.sandbox.plan;
    bool writes = plan->is_plan || !waiting->wanted.own || waiting->wanted.then;
    if (writes && !front->exec_mode->begin(call, plan, id, waiting->wanted.shown)) {
        drop_request(call, waiting);
        return;
    }
    waiting->wanted.sandbox.message.exec = id;
    waiting->wanted.sandbox.message.quiet =
        !waiting->wanted.background && !waiting->wanted.streamed && !waiting->wanted.then;
    buf_init(&b, MESSAGE_MAX);
    struct exec *exec = exec_new(front, id, call->workspace.id, call->workspace.owner);
    const struct quota_request wanted =
        sandbox_request_quota(waiting->call, &waiting->wanted.sandbox);
    uint64_t tag = exec && quota_use_ask(&exec->quota, &wanted) == 0
                       ? broker_expect(front->channel, heard_start, exec)
                       : 0;
    protocol_pack_exec(&b, tag, &waiting->wanted.sandbox.message);
    if (!tag || buf_done(&b) < 0 || !is_agreed(&b, &call->arena)) {
        buf_clear(&b);
        if (tag)
            broker_settle(front->channel, tag);
        if (exec)
            exec_free(exec);
        give_up(call, waiting);
        return;
    }
    exec->most_output = waiting->wanted.sandbox.output_bytes;
    if (waiting->wanted.sandbox.plan.is_plan)
        exec_hold(exec, waiting->wanted.sandbox.plan.id, waiting->wanted.sandbox.plan.keep_open);
    waiting->exec = exec;
    waiting->waiting = true;
    call->pending++;
    call->context = waiting;
    call->abandoned = client_left;
    call->ending = end_before_start;
    exec_follow(exec, &waiting->follower);
    broker_send(front->channel, REQUEST_EXEC, &b);
}

/* --- the queue ---
 *
 * Who finds no room waits, if the settings have a place for that, until something ends. Looked
 * through in order: one that waits for its own owner's end holds up nobody; behind one that waits
 * for the host's, none that needs the same goes before. */

/* Whether it has to wait, by itself or behind others; `end`: those from there on are behind it. */
static bool must_wait(struct exec_waiting *waiting, const struct exec_waiting *end)
{
    const struct front *front = waiting->call->front;
    const struct quota_request wanted =
        sandbox_request_quota(waiting->call, &waiting->wanted.sandbox);

    quota_check(front, &wanted, &waiting->answer);
    if (waiting->answer.wait != QUOTA_NOTHING)
        return true;
    bool sandbox = quota_wants_sandbox(front, &wanted);
    for (const struct exec_waiting *a = front->queue; a && a != end; a = a->next) {
        if (a->answer.wait == QUOTA_EXEC || (a->answer.wait == QUOTA_SANDBOX && sandbox)) {
            waiting->answer = a->answer;
            return true;
        }
    }
    return false;
}

/* Its turn has come, or it waits no longer. */
static void leave_queue(struct exec_waiting *waiting)
{
    struct call *call = waiting->call;
    struct front *front = call->front;

    call->context = NULL;
    call->abandoned = NULL;
    json_decref(waiting->wanted.shown);
    waiting->wanted.shown = NULL;
    for (struct exec_waiting **at = &front->queue; waiting->tenant && *at; at = &(*at)->next) {
        if (*at == waiting) {
            *at = waiting->next;
            front->queued--;
            waiting->tenant->waiting--;
            break;
        }
    }
    if (waiting->tenant)
        owner_use_drop(front, waiting->tenant);
    waiting->tenant = NULL;
}

static void left_while_waiting(struct call *call)
{
    leave_queue(call->context);
}

/* What nobody has asked for, nobody is told of: it is on record. */
static void forgo(struct call *call, const char *why)
{
    front_record(call->front,
                 &(struct front_record){.actor = call->actor.name,
                                        .request = call->id,
                                        .workspace = call->workspace.id,
                                        .operation = "template.start",
                                        .result = "refused"},
                 json_pack("{s:s, s:s}", "template", call->workspace.template, "error", why), NULL,
                 NULL);
    router_free(call);
}

static void refuse(struct exec_waiting *waiting)
{
    struct call *call = waiting->call;

    leave_queue(waiting);
    if (waiting->background)
        forgo(call, waiting->answer.why);
    else
        call_quota(call, waiting->answer.setting, "%s", waiting->answer.why);
}

/* Whether there is a place in the queue for one of theirs. Whoever has at least two more there
 * gives one up, the last: nobody keeps the others out. */
static bool has_place(struct front *front, const struct owner_use *tenant)
{
    struct exec_waiting *last = NULL;

    if (front->queued < front->settings->queue)
        return true;
    for (struct exec_waiting *a = front->queue; a; a = a->next) {
        if (!last || a->tenant->waiting >= last->tenant->waiting)
            last = a;
    }
    if (!last || last->tenant->waiting < tenant->waiting + 2)
        return false;
    refuse(last);
    return true;
}

static void enqueue(struct exec_waiting *waiting)
{
    struct front *front = waiting->call->front;
    struct exec_waiting **at = &front->queue;

    while (*at)
        at = &(*at)->next;
    *at = waiting;
    front->queued++;
    waiting->tenant->waiting++;
    waiting->call->abandoned = left_while_waiting;
}

static void wait_or_refuse(struct exec_waiting *waiting)
{
    struct call *call = waiting->call;
    struct front *front = call->front;

    call->context = waiting;
    /* What is part of another call does not wait: meanwhile its workspace could become another. */
    if (front->settings->queue && waiting->answer.wait != QUOTA_NEVER && !waiting->script.over)
        waiting->tenant = owner_use_use(front, call->workspace.owner);
    if (waiting->tenant && has_place(front, waiting->tenant))
        enqueue(waiting);
    else
        refuse(waiting);
}

static void start_or_wait(struct exec_waiting *waiting)
{
    const struct front *front = waiting->call->front;

    if (must_wait(waiting, front->in_turn ? front->queue : NULL))
        wait_or_refuse(waiting);
    else
        ask(waiting->call, waiting);
}

/* Its turn has come: if its sandbox lives no longer, the next one's start begins anew. */
static void start_again(struct call *call, const struct exec_background *what)
{
    const char *owner = call->workspace.owner;
    int64_t created_ms = call->workspace.created_ms;
    struct err err;

    if (store_workspace_get(call->front->store, &call->arena, call->workspace.id, &call->workspace,
                            &err) == 1 &&
        call->workspace.created_ms == created_ms && strcmp(call->workspace.owner, owner) == 0 &&
        front_is_awake(call->front, call->workspace.id))
        execs_background(call, what);
    else
        router_free(call);
}

void execs_next(struct front *front)
{
    size_t left = front->queued; /* one whose policy has changed may be at the end again */
    struct exec_waiting *next;

    for (struct exec_waiting *waiting = front->queue; waiting && left > 0; waiting = next, left--) {
        struct call *call = waiting->call;
        next = waiting->next;
        if (must_wait(waiting, waiting)) {
            if (waiting->answer.wait == QUOTA_EXEC)
                break; /* so do all behind it */
            continue;
        }
        leave_queue(waiting);
        front->in_turn = true;
        if (waiting->background) {
            start_again(call, waiting->background);
            continue;
        }
        if (!router_recheck(call))
            continue; /* read again: policy, key and workspace of now */
        if (waiting->argv)
            execs_own(call, waiting->argv, waiting->wanted.then);
        else
            execs_create(call);
    }
    front->in_turn = false;
}

void execs_create(struct call *call)
{
    struct exec_waiting *waiting = arena_alloc(&call->arena, sizeof(*waiting));

    if (!waiting) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (!may_start(call) || !exec_request_read(call, &waiting->wanted))
        return;
    waiting->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    waiting->call = call;
    start_or_wait(waiting);
}

void execs_own(struct call *call, const char *const *argv, void (*then)(struct call *))
{
    struct exec_waiting *waiting = arena_alloc(&call->arena, sizeof(*waiting));

    if (!waiting) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (!may_start(call) || !exec_request_own(call, argv, &waiting->wanted))
        return;
    waiting->wanted.format = FOLLOW_RAW;
    waiting->wanted.own = true;
    waiting->wanted.then = then;
    waiting->wanted.streamed = !then;
    waiting->wanted.sandbox.message.input = waiting->wanted.input_open = then != NULL;
    waiting->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    waiting->argv = argv;
    waiting->call = call;
    start_or_wait(waiting);
}

void execs_background(struct call *call, const struct exec_background *what)
{
    struct exec_waiting *waiting = arena_alloc(&call->arena, sizeof(*waiting));

    if (!waiting || call->workspace.deleted_ms ||
        !exec_request_own(call, what->argv, &waiting->wanted)) {
        router_free(call);
        return;
    }
    if (what->env)
        waiting->wanted.sandbox.message.env = what->env;
    json_object_set_new(waiting->wanted.shown, "command", json_string(what->shown));
    waiting->wanted.streamed = false;
    waiting->wanted.background = true;
    waiting->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    waiting->call = call;
    waiting->background = what;
    if (must_wait(waiting, call->front->in_turn ? call->front->queue : NULL)) {
        wait_or_refuse(waiting);
        return;
    }
    ask(call, waiting);
    if (call->pending == 0)
        router_free(call); /* it could not be asked for */
}

void execs_script(struct call *call, const struct exec_script *script)
{
    struct exec_waiting *waiting = arena_alloc(&call->arena, sizeof(*waiting));

    if (!waiting) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (call_is_replanned(call)) { /* it is not the first of this call */
        call_no_more(call);
        return;
    }
    if (!may_start(call) || !exec_request_own(call, script->argv, &waiting->wanted))
        return;
    uint64_t *timeout_ms = &waiting->wanted.sandbox.message.timeout_ms;
    if (!*timeout_ms || *timeout_ms > script->timeout_ms)
        *timeout_ms = script->timeout_ms;
    json_object_set_new(waiting->wanted.shown, "command", json_string(script->shown));
    waiting->wanted.streamed = false;
    waiting->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    waiting->script = *script;
    waiting->call = call;
    start_or_wait(waiting);
}
