/* SPDX-License-Identifier: Apache-2.0 */
/* A workspace comes to have its agents' writes planned. What they have begun in its tree ends, and
 * with that all that runs beside it and could have been got at from there. Then it is woken once,
 * as its owner's doing: what its sandbox adds to the tree, the empty directories where things are
 * mounted, is there before an agent that only reads wakes it. */
#include "front/core/quota.h"
#include "front/exec/request.h"
#include "front/plans/planned.h"
#include "protocol/broker.h"

enum {
    MESSAGE_BYTES = 4000000, /* of the broker's protocol */
};

struct entering {
    planned_entered *then;
    void *context; /* the call's, meanwhile ours */
    struct sandbox_use *awake;
};

static void finish(struct call *call, const struct err *failed)
{
    const struct entering *e = call->context;

    call->context = e->context;
    e->then(call, failed);
}

static void woken(struct call *call, struct answer *answer)
{
    const struct entering *e = call->context;

    (void)answer; /* one that cannot be woken is told to who needs it */
    quota_woken(call->front, e->awake);
    finish(call, NULL);
}

/* Who asks is not told of it here: what is wrong with a policy a command is told. */
static void ignore_refusal(struct call *call, int status, json_t *object)
{
    (void)call;
    (void)status;
    json_decref(object);
}

/* NULL: it is not to be woken. */
static struct sandbox_use *ask(struct call *call)
{
    static const char *const argv[] = {"files", NULL};
    void (*refused)(struct call *, int, json_t *) = call->refused;
    struct quota_answer quota;
    struct sandbox_request wanted;
    struct buf b;
    char id[28];

    call->refused = ignore_refusal;
    bool may = sandbox_request_plain(call, argv, &wanted);
    call->refused = refused;
    if (!may)
        return NULL;
    make_id('x', id);
    wanted.message.exec = id;
    struct quota_request whose = sandbox_request_quota(call, &wanted);
    whose.starts_nothing = true;
    quota_check_sandbox(call->front, &whose, &quota);
    struct sandbox_use *awake =
        quota.wait == QUOTA_NOTHING ? quota_wake(call->front, &whose) : NULL;
    uint64_t tag = awake ? call_expect(call, woken) : 0;
    if (awake && !tag)
        quota_woken(call->front, awake);
    if (!tag)
        return NULL;
    buf_init(&b, MESSAGE_BYTES);
    protocol_pack_exec(&b, tag, &wanted.message);
    broker_send(call->front->channel, REQUEST_FILES, &b);
    return awake;
}

static void wake(struct call *call)
{
    struct entering *e = call->context;

    e->awake = ask(call);
    if (!e->awake)
        finish(call, NULL);
}

static void is_quiet(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        finish(call, &err);
    else
        wake(call);
}

void planned_enter(struct call *call, bool was_so, planned_entered *then)
{
    struct entering *e = arena_alloc(&call->arena, sizeof(*e));
    unsigned pending = call->pending;
    struct err err;

    err_set(&err, ERR_LIMIT, 0, "out of memory");
    if (!e) {
        then(call, &err);
        return;
    }
    *e = (struct entering){.then = then, .context = call->context};
    call->context = e;
    if (was_so) {
        wake(call);
        return;
    }
    call->front->switches++;
    call_ask(call, REQUEST_TREE_QUIET, call->workspace.id, PLANNED_WHY, NULL, is_quiet);
    if (call->pending == pending)
        finish(call, &err);
}
