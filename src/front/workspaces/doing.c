/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/doing.h"

#include <string.h>

void doing_end(struct call *call)
{
    struct doing *doing = call->context;

    change_end(&doing->change);
    change_end(&doing->name);
    change_end(&doing->parent);
    owner_use_end_chore(doing->front, doing->at_work);
    doing->at_work = NULL;
}

bool doing_begin_chore(struct call *call, struct doing *doing)
{
    doing->front = call->front;
    doing->at_work = owner_use_begin_chore(call->front, call->workspace.owner);
    if (doing->at_work)
        return true;
    doing_end(call);
    call_chores(call);
    return false;
}

void doing_left(struct call *call)
{
    if (call->pending == 0)
        doing_end(call);
}

struct doing *doing_begin(struct call *call, const char *workspace, const char *operation)
{
    struct doing *doing = arena_alloc(&call->arena, sizeof(*doing));

    if (!doing) {
        call_error(call, 413, "too_large", "the request is too large");
        return NULL;
    }
    doing->operation = operation;
    if (!change_begin(&doing->change, workspace)) {
        call_error(call, 409, "conflict", "another change of this workspace is under way");
        return NULL;
    }
    call->context = doing;
    call->abandoned = doing_left;
    return doing;
}

void doing_fail(struct call *call, const struct err *err)
{
    doing_end(call);
    call_fail(call, err);
}

void doing_check_asked(struct call *call, unsigned pending)
{
    if (call->pending != pending)
        return;
    sweep_look_again();
    doing_end(call);
    call_error(call, 503, "unavailable", "out of memory");
}

void doing_record(struct call *call, const char *result, json_t *details, call_heard *heard)
{
    const struct doing *doing = call->context;
    unsigned pending = call->pending;

    call_record(call, call->workspace.id, doing->operation, result, details, heard);
    doing_check_asked(call, pending);
}

void doing_ask_tree(struct call *call, uint32_t kind, call_heard *heard)
{
    const struct store_workspace *w = &call->workspace;
    unsigned pending = call->pending;

    call_ask(call, kind, w->bucket, w->id, *w->trash ? w->trash : NULL, heard);
    doing_check_asked(call, pending);
}

static void recorded_failure(struct call *call, struct answer *answer)
{
    struct doing *doing = call->context;

    (void)answer; /* if this cannot be recorded, the log of the broker says so */
    if (!doing->refusal) {
        doing_fail(call, &doing->failed);
        return;
    }
    doing_end(call);
    call_reply(call, doing->status, "application/json", NULL, doing->refusal,
               strlen(doing->refusal));
}

void doing_fail_recorded(struct call *call, const struct err *err)
{
    struct doing *doing = call->context;
    char text[512];

    doing->failed = *err;
    sweep_look_again();
    doing_record(call, "failed", json_pack("{s:s}", "error", err_text(err, text, sizeof(text))),
                 recorded_failure);
}
