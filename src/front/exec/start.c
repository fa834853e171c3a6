/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/exec: asks the broker for a command, and answers in one of three ways: the
 * whole result when it is over, a stream, or at once. */
#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "front/core/call.h"
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

struct asking {
    struct follower follower; /* first: they are the same thing */
    struct asking *next;      /* in the queue */
    struct call *call;
    struct job *job;
    bool waiting; /* for the start: row and input come first, whether the client is there or not */
    struct tenant *tenant;      /* in the queue: whose place it takes */
    struct quota_answer answer; /* ... and what it waits for */
    const char *const *argv;    /* of execs_own and execs_background */
    bool of_nobody;             /* the latter */
    struct exec_script script;  /* of execs_script */
    struct exec_wish wish;
};

struct job *execs_job_of(const struct call *call)
{
    const struct asking *asking = call->context;

    return asking && !asking->waiting ? asking->job : NULL;
}

static json_t *running_json(const struct job *job)
{
    return json_pack("{s:s, s:s, s:s}", "exec_id", job->id, "workspace", job->workspace, "state",
                     job->settled ? "ended" : "running");
}

/* Both streams as they are in the spool, apart, as far as one answer goes. *ret_cut: there is more.
 */
static int collect(struct job *job, struct buf *out, struct buf *err, bool *ret_cut)
{
    struct spool_reader reader;
    char bytes[32768];
    enum spool_stream stream;
    uint64_t left = ANSWER_OUTPUT;
    ssize_t n = 1;

    *ret_cut = false;
    if (!job->has_spool)
        return 0;
    int r = spool_reader_add(&job->spool, &reader, job->spool.first, false);
    if (r < 0)
        return r;
    while (n > 0 && left > 0 && reader.at < job->final) {
        size_t most = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
        if (most > job->final - reader.at)
            most = (size_t)(job->final - reader.at);
        n = spool_read(&job->spool, &reader, bytes, most, &stream);
        if (n > 0) {
            buf_add(stream == SPOOL_ERR ? err : out, bytes, (size_t)n);
            left -= (uint64_t)n;
        }
    }
    *ret_cut = reader.at < job->final || job->spool.first > 0;
    spool_reader_drop(&job->spool, &reader);
    return n > 0 ? 0 : -EIO;
}

static json_t *whole_result(struct job *job)
{
    scoped_buf struct buf out;
    scoped_buf struct buf err;
    bool cut;

    buf_init(&out, 2UL * ANSWER_OUTPUT);
    buf_init(&err, 2UL * ANSWER_OUTPUT);
    if (collect(job, &out, &err, &cut) < 0 || buf_done(&out) < 0 || buf_done(&err) < 0)
        return NULL;
    struct carrel_result result = job->result;
    result.truncated = cut || job->over_output;
    result.out = out.p;
    result.out_size = out.n;
    result.err = err.p;
    result.err_size = err.n;
    json_t *object = result_json(&result, true);
    /* The denials were encoded when they came. */
    json_object_set(object, "denials", json_object_get(job->result_json, "denials"));
    if (json_object_get(job->result_json, "plan"))
        json_object_set(object, "plan", json_object_get(job->result_json, "plan"));
    json_object_set_new(object, "exec_id", json_string(job->id));
    return object;
}

/* The call is about to be answered or to end: the job goes on by itself. */
static void let_go(struct asking *asking)
{
    struct job *job = asking->job;

    asking->job = NULL;
    asking->call->context = NULL;
    asking->call->abandoned = NULL;
    json_decref(asking->wish.shown);
    asking->wish.shown = NULL;
    if (job)
        job_unfollow(job, &asking->follower);
}

static void plain_drained(struct follower *follower)
{
    struct asking *asking = (struct asking *)follower;
    struct call *call = asking->call;
    int unrecorded = asking->job->unrecorded;
    json_t *object = unrecorded ? NULL : whole_result(asking->job);
    struct err err;

    let_go(asking);
    if (unrecorded) {
        err_set(&err, ERR_IO, unrecorded,
                "the start could not be recorded in the audit, so the command was ended");
        call_fail(call, &err);
    } else if (object && asking->script.over) {
        asking->script.over(call, object, asking->script.context);
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
static int feed(struct asking *asking, struct err *err)
{
    struct exec_wish *wish = &asking->wish;

    if (wish->input)
        ignore(job_input(asking->job, wish->input, wish->input_n)); /* it may not want it */
    if (wish->sandbox.message.input && !wish->input_open)
        job_end_input(asking->job);
    return wish->background || wish->streamed ? job_write_row(asking->job, err) : 0;
}

static void follow(struct asking *asking)
{
    struct call *call = asking->call;
    struct job *job = asking->job;
    struct follow_request request = {.format = asking->wish.format,
                                     .to_the_end = true,
                                     .holds = true,
                                     .only = asking->wish.own ? SPOOL_OUT : -1,
                                     .whole = asking->wish.own,
                                     .announce =
                                         asking->wish.format != FOLLOW_RAW && !call->manner};

    let_go(asking);
    follow_start(call, job, job->id, NULL, &request);
}

static void answer_started(struct asking *asking)
{
    struct call *call = asking->call;
    struct job *job = asking->job;

    if (!call->x) {
        if (asking->wish.then)
            job_end_input(job); /* nobody is left to give it any */
        job_left(job, call->manner ? call->manner->ends_with_client
                                   : asking->wish.own && !asking->wish.then);
        let_go(asking);
    } else if (call->manner && call->manner->runs) {
        let_go(asking);
        call->manner->runs(call, job);
    } else if (asking->wish.background) {
        json_t *object = running_json(job);
        if (asking->wish.sandbox.plan.is_plan)
            json_object_set_new(object, "plan",
                                json_pack("{s:s, s:s}", "id", asking->wish.sandbox.plan.id, "state",
                                          plan_state_name(PLAN_OPEN)));
        let_go(asking);
        call_json(call, 202, object);
    } else if (asking->wish.streamed) {
        follow(asking);
    } else if (asking->wish.then) {
        asking->wish.then(call);
    }
}

static void exec_started(struct follower *follower, const struct err *failed)
{
    struct asking *asking = (struct asking *)follower;
    struct call *call = asking->call;
    struct job *job = asking->job;
    struct err err;

    asking->waiting = false;
    if (failed) {
        asking->job = NULL; /* freed by whoever tells */
        call->front->exec_mode->failed(call, &asking->wish.sandbox.plan);
        let_go(asking);
        call_fail(call, failed);
    } else if (job_keep_row(job, call->actor.name, asking->wish.shown) < 0) {
        job_kill(job, CARREL_ENDED_SIGNAL);
        let_go(asking);
        call_error(call, 503, "unavailable", "out of memory");
    } else if (feed(asking, &err) < 0) {
        let_go(asking);
        call_fail(call, &err);
    } else {
        call_drop_body(call);
        call->front->count.execs_started++;
        if (call->front->listeners)
            front_announce(call->front, "exec.start", job->workspace, job->owner,
                           json_pack("{s:s}", "exec_id", job->id));
        answer_started(asking);
    }
    call_release(call);
}

/* A client that leaves does not end its command. */
static void client_left(struct call *call)
{
    struct asking *asking = call->context;

    if (asking && !asking->waiting)
        let_go(asking);
}

static void heard_start(void *context, struct answer *answer)
{
    struct job *job = context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        struct front *front = job->front;
        job_fail(job, &err);
        execs_next(front); /* it has taken nobody's place */
    } else {
        job_answered(job, answer);
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
static void drop_wish(struct call *call, struct asking *asking)
{
    json_decref(asking->wish.shown);
    asking->wish.shown = NULL;
    call->context = NULL;
    call->abandoned = NULL;
}

static void give_up(struct call *call, struct asking *asking)
{
    drop_wish(call, asking);
    call->front->exec_mode->failed(call, &asking->wish.sandbox.plan);
    call_error(call, 400, "invalid_request",
               "command, environment, mounts or working directory are larger than a command may "
               "have (32768 arguments, 4096 variables, paths of 4095 bytes, 4 MB in all)");
}

/* Asks the broker; the follower's functions hear how it goes. */
static void ask(struct call *call, struct asking *asking)
{
    struct front *front = call->front;
    char id[28];
    struct buf b;

    make_id('x', id);
    const struct plan_wish *plan = &asking->wish.sandbox.plan;
    bool writes = plan->is_plan || !asking->wish.own || asking->wish.then;
    if (writes && !front->exec_mode->begin(call, plan, id, asking->wish.shown)) {
        drop_wish(call, asking);
        return;
    }
    asking->wish.sandbox.message.exec = id;
    asking->wish.sandbox.message.quiet =
        !asking->wish.background && !asking->wish.streamed && !asking->wish.then;
    buf_init(&b, MESSAGE_MAX);
    struct job *job = job_new(front, id, call->workspace.id, call->workspace.owner);
    const struct quota_wish wish = boundary_quota(asking->call, &asking->wish.sandbox);
    uint64_t tag = job && quota_use_ask(&job->quota, &wish) == 0
                       ? link_expect(front->link, heard_start, job)
                       : 0;
    protocol_pack_exec(&b, tag, &asking->wish.sandbox.message);
    if (!tag || buf_done(&b) < 0 || !is_agreed(&b, &call->arena)) {
        buf_clear(&b);
        if (tag)
            link_settle(front->link, tag);
        if (job)
            job_free(job);
        give_up(call, asking);
        return;
    }
    job->most_output = asking->wish.sandbox.output_bytes;
    if (asking->wish.sandbox.plan.is_plan)
        job_hold(job, asking->wish.sandbox.plan.id, asking->wish.sandbox.plan.keep_open);
    asking->job = job;
    asking->waiting = true;
    call->pending++;
    call->context = asking;
    call->abandoned = client_left;
    job_follow(job, &asking->follower);
    link_send(front->link, REQUEST_EXEC, &b);
}

/* --- the queue ---
 *
 * Who finds no room waits, if the settings have a place for that, until something ends. Looked
 * through in order: one that waits for its own owner's end holds up nobody; behind one that waits
 * for the host's, none that needs the same goes before. */

/* Whether it has to wait, by itself or behind others; `end`: those from there on are behind it. */
static bool must_wait(struct asking *asking, const struct asking *end)
{
    const struct front *front = asking->call->front;
    const struct quota_wish wish = boundary_quota(asking->call, &asking->wish.sandbox);

    quota_check(front, &wish, &asking->answer);
    if (asking->answer.wait != QUOTA_NOTHING)
        return true;
    bool sandbox = quota_wants_sandbox(front, &wish);
    for (const struct asking *a = front->queue; a && a != end; a = a->next) {
        if (a->answer.wait == QUOTA_EXEC || (a->answer.wait == QUOTA_SANDBOX && sandbox)) {
            asking->answer = a->answer;
            return true;
        }
    }
    return false;
}

/* Its turn has come, or it waits no longer. */
static void leave_queue(struct asking *asking)
{
    struct call *call = asking->call;
    struct front *front = call->front;

    call->context = NULL;
    call->abandoned = NULL;
    json_decref(asking->wish.shown);
    asking->wish.shown = NULL;
    for (struct asking **at = &front->queue; asking->tenant && *at; at = &(*at)->next) {
        if (*at == asking) {
            *at = asking->next;
            front->queued--;
            asking->tenant->waiting--;
            break;
        }
    }
    if (asking->tenant)
        tenant_drop(front, asking->tenant);
    asking->tenant = NULL;
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

static void refuse(struct asking *asking)
{
    struct call *call = asking->call;

    leave_queue(asking);
    if (asking->of_nobody)
        forgo(call, asking->answer.why);
    else
        call_quota(call, asking->answer.setting, "%s", asking->answer.why);
}

/* Whether there is a place in the queue for one of theirs. Whoever has at least two more there
 * gives one up, the last: nobody keeps the others out. */
static bool has_place(struct front *front, const struct tenant *tenant)
{
    struct asking *last = NULL;

    if (front->queued < front->settings->queue)
        return true;
    for (struct asking *a = front->queue; a; a = a->next) {
        if (!last || a->tenant->waiting >= last->tenant->waiting)
            last = a;
    }
    if (!last || last->tenant->waiting < tenant->waiting + 2)
        return false;
    refuse(last);
    return true;
}

static void enqueue(struct asking *asking)
{
    struct front *front = asking->call->front;
    struct asking **at = &front->queue;

    while (*at)
        at = &(*at)->next;
    *at = asking;
    front->queued++;
    asking->tenant->waiting++;
    asking->call->abandoned = left_while_waiting;
}

static void wait_or_refuse(struct asking *asking)
{
    struct call *call = asking->call;
    struct front *front = call->front;

    call->context = asking;
    /* What is part of another call does not wait: meanwhile its workspace could become another. */
    if (front->settings->queue && asking->answer.wait != QUOTA_NEVER && !asking->script.over)
        asking->tenant = tenant_use(front, call->workspace.owner);
    if (asking->tenant && has_place(front, asking->tenant))
        enqueue(asking);
    else
        refuse(asking);
}

static void start_or_wait(struct asking *asking)
{
    const struct front *front = asking->call->front;

    if (must_wait(asking, front->in_turn ? front->queue : NULL))
        wait_or_refuse(asking);
    else
        ask(asking->call, asking);
}

/* Its turn has come: if its sandbox lives no longer, the next one's start begins anew. */
static void start_again(struct call *call, const char *const *argv)
{
    const char *owner = call->workspace.owner;
    int64_t created_ms = call->workspace.created_ms;
    struct err err;

    if (store_workspace_get(call->front->store, &call->arena, call->workspace.id, &call->workspace,
                            &err) == 1 &&
        call->workspace.created_ms == created_ms && strcmp(call->workspace.owner, owner) == 0 &&
        front_is_awake(call->front, call->workspace.id))
        execs_background(call, argv);
    else
        router_free(call);
}

void execs_next(struct front *front)
{
    size_t left = front->queued; /* one whose policy has changed may be at the end again */
    struct asking *next;

    for (struct asking *asking = front->queue; asking && left > 0; asking = next, left--) {
        struct call *call = asking->call;
        next = asking->next;
        if (must_wait(asking, asking)) {
            if (asking->answer.wait == QUOTA_EXEC)
                break; /* so do all behind it */
            continue;
        }
        leave_queue(asking);
        front->in_turn = true;
        if (asking->of_nobody) {
            start_again(call, asking->argv);
            continue;
        }
        if (!router_recheck(call))
            continue; /* read again: policy, key and workspace of now */
        if (asking->argv)
            execs_own(call, asking->argv, asking->wish.then);
        else
            execs_create(call);
    }
    front->in_turn = false;
}

void execs_create(struct call *call)
{
    struct asking *asking = arena_alloc(&call->arena, sizeof(*asking));

    if (!asking) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (!may_start(call) || !exec_wish_read(call, &asking->wish))
        return;
    asking->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    asking->call = call;
    start_or_wait(asking);
}

void execs_own(struct call *call, const char *const *argv, void (*then)(struct call *))
{
    struct asking *asking = arena_alloc(&call->arena, sizeof(*asking));

    if (!asking) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (!may_start(call) || !exec_wish_own(call, argv, &asking->wish))
        return;
    asking->wish.format = FOLLOW_RAW;
    asking->wish.own = true;
    asking->wish.then = then;
    asking->wish.streamed = !then;
    asking->wish.sandbox.message.input = asking->wish.input_open = then != NULL;
    asking->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    asking->argv = argv;
    asking->call = call;
    start_or_wait(asking);
}

void execs_background(struct call *call, const char *const *argv)
{
    struct asking *asking = arena_alloc(&call->arena, sizeof(*asking));

    if (!asking || call->workspace.deleted_ms || !exec_wish_own(call, argv, &asking->wish)) {
        router_free(call);
        return;
    }
    json_object_set_new(asking->wish.shown, "command", json_string(argv[2]));
    asking->wish.streamed = false;
    asking->wish.background = true;
    asking->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    asking->call = call;
    asking->argv = argv;
    asking->of_nobody = true;
    if (must_wait(asking, call->front->in_turn ? call->front->queue : NULL)) {
        wait_or_refuse(asking);
        return;
    }
    ask(call, asking);
    if (call->pending == 0)
        router_free(call); /* it could not be asked for */
}

void execs_script(struct call *call, const struct exec_script *script)
{
    struct asking *asking = arena_alloc(&call->arena, sizeof(*asking));

    if (!asking) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (call_is_replanned(call)) { /* it is not the first of this call */
        call_no_more(call);
        return;
    }
    if (!may_start(call) || !exec_wish_own(call, script->argv, &asking->wish))
        return;
    uint64_t *timeout_ms = &asking->wish.sandbox.message.timeout_ms;
    if (!*timeout_ms || *timeout_ms > script->timeout_ms)
        *timeout_ms = script->timeout_ms;
    json_object_set_new(asking->wish.shown, "command", json_string(script->shown));
    asking->wish.streamed = false;
    asking->follower =
        (struct follower){.started = exec_started, .output = no_output, .drained = plain_drained};
    asking->script = *script;
    asking->call = call;
    start_or_wait(asking);
}
