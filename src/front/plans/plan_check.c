/* SPDX-License-Identifier: Apache-2.0 */
/* A command of the user's own that judges a plan: it runs in the planned view, on a copy of the
 * plan's layer that goes with it, and how it ends becomes a finding.
 *
 *   copy asked for [--> layer made of it] --> command --> copy dropped, row says how it went
 *                                                     --> plan_verify
 *
 * A written plan has content and no layer: there carrel-plan makes one of the copy. */
#include "front/plans/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "front/core/quota.h"
#include "front/exec/exec.h"
#include "front/exec/request.h"
#include "json/encode.h"

enum {
    MOST_ARGS = 256,
    TAIL = 2000, /* of its output that is kept */
    CHECK_MS = 10 * 60 * 1000,
    MOST_FAILED = 8, /* different ones of a plan */
    SHA_BYTES = 32,
};

struct checking {
    struct follower follower; /* first: they are the same thing */
    struct call *call;
    struct exec *exec;
    struct exec_request wanted;
    json_t *argv;
    char copy[PLAN_ID];
    char hash[2 * SHA_BYTES + 1]; /* of a written plan, whose view is yet to be made; else "" */
    plan_checked *then;
    struct owner_use *at_work; /* while the layer is copied */
};

static void drop(struct checking *c)
{
    plan_drop_files(c->call->front, c->call->workspace.bucket, c->call->workspace.id, c->copy);
    json_decref(c->wanted.shown);
    json_decref(c->argv);
}

static void fail(struct checking *c, const struct err *err)
{
    struct call *call = c->call;

    drop(c);
    free(c);
    call_fail(call, err);
    call_release(call);
}

/* The end of what it has printed, both streams as they came. */
static void read_tail(struct exec *exec, struct buf *b)
{
    struct spool_reader reader;
    enum spool_stream stream;
    char bytes[TAIL];
    ssize_t n = 1;
    uint64_t from = exec->final > TAIL ? exec->final - TAIL : 0;

    if (!exec->has_spool)
        return;
    if (from < exec->spool.first)
        from = exec->spool.first;
    if (spool_reader_add(&exec->spool, &reader, from, false) < 0)
        return;
    while (n > 0 && reader.at < exec->final) {
        n = spool_read(&exec->spool, &reader, bytes, sizeof(bytes), &stream);
        if (n > 0)
            buf_add(b, bytes, (size_t)n);
    }
    spool_reader_drop(&exec->spool, &reader);
}

/* One that has failed refuses the plan until the same one passes: another that passes says nothing
 * of it. */
static int keep_failed(json_t *details, json_t *check, struct err *err)
{
    bool passed = json_integer_value(json_object_get(check, "exit_code")) == 0 &&
                  !json_is_true(json_object_get(check, "timed_out"));
    json_t *failed = json_object_get(details, "failed_checks");
    size_t at = 0;

    if (!failed) {
        failed = json_array();
        json_object_set_new(details, "failed_checks", failed);
    }
    while (at < json_array_size(failed) &&
           !json_equal(json_object_get(json_array_get(failed, at), "argv"),
                       json_object_get(check, "argv")))
        at++;
    if (at < json_array_size(failed))
        json_array_remove(failed, at);
    if (!passed && json_array_size(failed) >= MOST_FAILED)
        return err_set(err, ERR_LIMIT, 0,
                       "%d other checks of the plan have failed already; let those pass first",
                       MOST_FAILED);
    return passed || json_array_append(failed, check) == 0
               ? 0
               : err_set(err, ERR_LIMIT, ENOMEM, "store the result of the check");
}

/* Into the row: every verification from now on knows of it. */
static int keep(struct checking *c, const struct exec *exec, const struct buf *output,
                struct err *err)
{
    struct call *call = c->call;
    struct store_plan row;

    int found = store_plan_get(call->front->store, &call->arena, call->params[1], &row, err);
    if (found != 1)
        return found < 0 ? -1 : err_set(err, ERR_NOT_FOUND, 0, "the plan has just been discarded");
    json_t *details = plan_details(&row);
    json_t *check =
        json_pack("{s:O, s:s, s:i, s:b, s:I}", "argv", c->argv, "exec_id", exec->id, "exit_code",
                  exec->result.exit_code, "timed_out", exec->result.reason == CARREL_ENDED_TIMEOUT,
                  "at_ms", (json_int_t)wall_ms());
    encode_bytes(check, "output", output->p ? output->p : "", output->n);
    json_object_set_new(details, "check", check);
    if (keep_failed(details, check, err) < 0) {
        json_decref(details);
        return -1;
    }
    row.details = plan_details_text(&call->arena, details);
    json_decref(details);
    return row.details ? store_plan_change(call->front->store, &row, row.state, err)
                       : err_set(err, ERR_LIMIT, ENOMEM, "keep how the check went");
}

static void drained(struct follower *follower)
{
    struct checking *c = (struct checking *)follower;
    struct call *call = c->call;
    struct exec *exec = c->exec;
    plan_checked *then = c->then;
    scoped_buf struct buf said;
    struct err err;

    buf_init(&said, 4UL * TAIL);
    read_tail(exec, &said);
    int r = buf_done(&said) < 0 ? err_set(&err, ERR_LIMIT, ENOMEM, "read the output of the check")
                                : keep(c, exec, &said, &err);
    exec_unfollow(exec, &c->follower);
    if (r < 0) {
        fail(c, &err);
        return;
    }
    drop(c);
    free(c);
    then(call);
    call_release(call);
}

static void output(struct follower *follower)
{
    (void)follower; /* its end is read at the end */
}

static void started(struct follower *follower, const struct err *failed)
{
    struct checking *c = (struct checking *)follower;

    if (failed) /* the exec is freed by whoever tells */
        fail(c, failed);
    else if (exec_keep_row(c->exec, c->call->actor.name, c->wanted.shown) < 0)
        exec_stop(c->exec, CARREL_ENDED_SIGNAL); /* its end is told all the same */
}

static void heard(void *context, struct answer *answer)
{
    struct exec *exec = context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        struct front *front = exec->front;
        exec_start_failed(exec, &err);
        execs_next(front);
    } else {
        exec_answered(exec, answer);
    }
}

static bool may_start(struct checking *c, struct err *err)
{
    const struct quota_request wanted = sandbox_request_quota(c->call, &c->wanted.sandbox);
    struct quota_answer quota;

    quota_check(c->call->front, &wanted, &quota);
    if (quota.wait == QUOTA_NOTHING)
        return true;
    err_set(err, ERR_LIMIT, 0, "%s", quota.why);
    return false;
}

static void start(struct checking *c)
{
    struct call *call = c->call;
    struct exec_message *m = &c->wanted.sandbox.message;
    const struct quota_request quota = sandbox_request_quota(call, &c->wanted.sandbox);
    struct err err;
    struct buf b;
    char id[PLAN_ID];

    make_id('x', id);
    m->exec = id;
    m->plan = c->copy;
    m->quiet = true;
    if (!m->timeout_ms || m->timeout_ms > CHECK_MS)
        m->timeout_ms = CHECK_MS;
    if (!may_start(c, &err)) {
        fail(c, &err);
        return;
    }
    c->exec = exec_new(call->front, id, call->workspace.id, call->workspace.owner);
    uint64_t tag = c->exec && quota_use_ask(&c->exec->quota, &quota) == 0
                       ? broker_expect(call->front->channel, heard, c->exec)
                       : 0;
    buf_init(&b, 4000000);
    protocol_pack_exec(&b, tag, m);
    if (!tag || buf_done(&b) < 0) {
        buf_clear(&b);
        if (tag)
            broker_settle(call->front->channel, tag);
        if (c->exec)
            exec_free(c->exec);
        err_set(&err, ERR_LIMIT, ENOMEM, "start the check");
        fail(c, &err);
        return;
    }
    c->follower = (struct follower){.started = started, .output = output, .drained = drained};
    exec_follow(c->exec, &c->follower);
    broker_send(call->front->channel, REQUEST_EXEC, &b);
}

static void view_failed(void *owner, const struct err *err)
{
    fail(owner, err);
}

static void view_ended(void *owner, const struct plan_end *end)
{
    struct checking *c = owner;
    struct err err;

    if (end->status == 0) {
        start(c);
        return;
    }
    json_t *answer = plan_end_json(end);
    const json_t *error = json_object_get(answer, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    bool changed = plan_answer_said(error) == SAID_PLAN_CONFLICT;
    err_set(&err, changed ? ERR_CONFLICT : ERR_IO, 0, "%.300s",
            message ? message : "the planned view could not be made");
    json_decref(answer);
    fail(c, &err);
}

static void make_view(struct checking *c)
{
    static const struct plan_process_calls calls = {.failed = view_failed, .ended = view_ended};
    const struct call *call = c->call;
    struct plan_message m = {.bucket = call->workspace.bucket,
                             .workspace = call->workspace.id,
                             .plan = c->copy,
                             .actor = call->actor.name,
                             .request = call->id,
                             .owner = call->workspace.owner,
                             .verb = PLAN_VIEW};
    char *text = strdup(c->hash);
    struct err err;

    if (plan_process_start(call->front, &m, text, strlen(c->hash), &calls, c))
        return;
    err_set(&err, ERR_LIMIT, ENOMEM, "make the planned view");
    fail(c, &err);
}

static void copied(struct call *call, struct answer *answer)
{
    struct checking *c = call->context;
    struct err err;

    call->context = NULL;
    owner_use_end_chore(call->front, c->at_work);
    if (answer_check(answer, &err) < 0)
        fail(c, &err);
    else if (*c->hash)
        make_view(c);
    else
        start(c);
}

/* In the call's arena; NULL: answered. */
static const char *const *read_argv(struct call *call, const json_t *list)
{
    size_t n = json_array_size(list);
    const char **argv = arena_alloc(&call->arena, (n + 1) * sizeof(*argv));
    bool good = argv && n > 0 && n <= MOST_ARGS;

    for (size_t i = 0; good && i < n; i++) {
        const json_t *one = json_array_get(list, i);
        argv[i] = json_string_value(one);
        good = argv[i] && strlen(argv[i]) == json_string_length(one);
    }
    if (!good)
        call_bad_field(call, "check", "a list of texts, the program first");
    return good ? argv : NULL;
}

void plan_check(struct call *call, const struct store_plan *row, plan_checked *then)
{
    json_t *list = json_object_get(call->body, "check");
    const char *const *argv = read_argv(call, list);
    struct checking *c = argv ? calloc(1, sizeof(*c)) : NULL;
    struct plain_message m = {.texts = {call->workspace.bucket, call->workspace.id, row->id}};
    struct buf b;

    if (!argv)
        return;
    if (!c || !exec_request_own(call, argv, &c->wanted)) {
        if (!c)
            call_error(call, 503, "unavailable", "out of memory");
        free(c);
        return;
    }
    c->at_work = owner_use_begin_chore(call->front, call->workspace.owner);
    if (!c->at_work) {
        json_decref(c->wanted.shown);
        free(c);
        call_chores(call);
        return;
    }
    c->call = call;
    c->then = then;
    c->argv = json_incref(list);
    if (strcmp(row->origin, "run") != 0)
        snprintf(c->hash, sizeof(c->hash), "%s", row->hash);
    c->wanted.sandbox.plan.is_plan = true;
    make_id('p', c->copy);
    snprintf(c->wanted.sandbox.plan.quota_name, sizeof(c->wanted.sandbox.plan.quota_name),
             "plan:%s", c->copy);
    m.texts[3] = c->copy;
    call->context = c;
    call->pending++; /* until the check has ended */
    buf_init(&b, 4096);
    protocol_pack_plain(&b, call_expect(call, copied), &m);
    broker_send(call->front->channel, REQUEST_PLAN_VIEW, &b);
}
