/* SPDX-License-Identifier: Apache-2.0 */
/* A command in plan mode: what it writes becomes a plan. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "front/core/record.h"
#include "front/exec/exec.h"
#include "front/plans/routes.h"
#include "protocol/broker.h"

bool plan_locks_base(struct call *call)
{
    struct plan_policy policy;
    struct store_plan row;
    struct err err;

    if (strcmp(call->workspace.policy, "{}") == 0) /* as most are */
        return false;
    if (!plan_policy_of(&call->workspace, &call->arena, &policy, NULL, &err)) {
        call_fail(call, &err);
        return true;
    }
    if (policy.base != PLAN_BASE_LOCKED)
        return false;
    int found =
        store_plan_undecided(call->front->store, &call->arena, call->workspace.id, &row, &err);
    if (found < 0)
        call_fail(call, &err);
    if (found <= 0)
        return found < 0;
    call_error(call, 409, "plan_open",
               "the policy locks the workspace while a plan is waiting; apply, reject or discard "
               "plan %s first",
               row.id);
    return true;
}

/* Commands that write to its tree. */
static bool has_direct_execs(const struct front *front, const char *workspace)
{
    for (size_t i = 0; i < FRONT_SLOTS; i++) {
        for (const struct exec *exec = front->execs[i]; exec; exec = exec->next) {
            if (exec->state != EXEC_ENDED && !*exec->plan &&
                strcmp(exec->workspace, workspace) == 0)
                return true;
        }
    }
    return false;
}

/* Where the tree must not change under a plan, nobody may be at work in it. */
static bool base_is_quiet(struct call *call)
{
    struct plan_policy policy;
    struct err err;

    if (strcmp(call->workspace.policy, "{}") == 0)
        return true;
    if (!plan_policy_of(&call->workspace, &call->arena, &policy, NULL, &err)) {
        call_fail(call, &err);
        return false;
    }
    if (policy.base != PLAN_BASE_LOCKED || !has_direct_execs(call->front, call->workspace.id))
        return true;
    call_error(call, 409, "workspace_busy",
               "the policy locks the workspace while a plan is open, but commands are running in "
               "it; end them first");
    return false;
}

static bool add(struct call *call, const struct plan_request *w, const char *exec_id, json_t *shown)
{
    json_t *details = shown ? json_pack("{s:O}", "command", shown) : json_object();
    struct store_plan row = {.id = w->id,
                             .workspace = call->workspace.id,
                             .owner = call->workspace.owner,
                             .state = PLAN_OPEN,
                             .origin = "run",
                             .key = call->actor.key,
                             .actor = call->actor.name,
                             .principal = call->actor.owner,
                             .exec_id = exec_id,
                             .keep_open = w->keep_open,
                             .shared = w->shared,
                             .created_ms = wall_ms(),
                             .updated_ms = wall_ms(),
                             .details = plan_details_text(&call->arena, details)};
    struct front_record r = {.actor = call->actor.name,
                             .request = call->id,
                             .workspace = call->workspace.id,
                             .operation = "plan.open",
                             .result = "ok"};
    struct err err = {.code = ERR_LIMIT};

    json_decref(details);
    if (!row.details || store_plan_add(call->front->store, &row, &err) < 0) {
        call_fail(call, &err);
        return false;
    }
    /* On disk before the record of the command's start, which nothing is told without. */
    front_record(call->front, &r, json_pack("{s:s, s:s}", "plan", w->id, "exec", exec_id), NULL,
                 NULL);
    front_announce(call->front, "plan.open", row.workspace, row.owner,
                   json_pack("{s:s}", "plan", w->id));
    return true;
}

/* Nothing of its row changes with each command: who ran which is on record. */
static bool go_on_shared(struct call *call, const struct plan_request *w)
{
    if (!plan_is_busy(call->front, w->id))
        return true;
    call_error(
        call, 409, "conflict",
        "plan %s, which has the changes of this key, is being closed; try again to open a new plan",
        w->id);
    return false;
}

/* An open one goes on; who continues it is known from the record of the command. */
static bool go_on(struct call *call, const struct plan_request *w, const char *exec_id)
{
    struct store_plan row;
    struct err err;
    int found = store_plan_get(call->front->store, &call->arena, w->id, &row, &err);

    if (found < 0) {
        call_fail(call, &err);
        return false;
    }
    if (found == 0 || strcmp(row.workspace, call->workspace.id) != 0 ||
        !actor_may_see_plan(&call->actor, row.key)) {
        call_error(call, 404, "plan_not_found", "there is no plan '%s' in this workspace", w->id);
        return false;
    }
    if (!plan_state_allows(row.state, PLAN_ACT_CONTINUE) || plan_is_busy(call->front, row.id)) {
        call_error(call, 409, "conflict", "the plan is no longer open");
        return false;
    }
    row.exec_id = exec_id;
    row.keep_open = w->keep_open;
    row.updated_ms = wall_ms();
    /* Whoever continues a plan is its author, too: none of them may approve it. */
    if (strcmp(row.key, call->actor.key) != 0) {
        call_error(call, 403, "forbidden", "only the key that opened a plan can go on with it");
        return false;
    }
    if (store_plan_change(call->front->store, &row, PLAN_OPEN, &err) == 0)
        return true;
    call_fail(call, &err);
    return false;
}

bool plan_request_begin(struct call *call, const struct plan_request *w, const char *exec_id,
                        json_t *shown)
{
    if (w->shared && !w->is_new)
        return go_on_shared(call, w);
    if (!base_is_quiet(call))
        return false;
    return w->is_new ? !plan_no_room(call) && add(call, w, exec_id, shown)
                     : go_on(call, w, exec_id);
}

static void plan_request_fail(struct call *call, const struct plan_request *w)
{
    struct err err;

    struct front_record r = {.actor = call->actor.name,
                             .request = call->id,
                             .workspace = call->workspace.id,
                             .operation = "plan.discard",
                             .result = "not started"};

    if (!w->is_plan || !w->is_new || w->shared) /* others may be in that by now */
        return;
    front_record(call->front, &r, json_pack("{s:s}", "plan", w->id), NULL, NULL);
    (void)store_plan_remove(call->front->store, w->id, &err); /* the next start finds it */
    plan_drop_files(call->front, call->workspace.bucket, call->workspace.id, w->id);
}

static bool begin_exec(struct call *call, const struct plan_request *w, const char *exec_id,
                       json_t *shown)
{
    return w->is_plan ? plan_request_begin(call, w, exec_id, shown) : !plan_locks_base(call);
}

const struct exec_mode plan_exec_mode = {
    .read = plan_request_read,
    .begin = begin_exec,
    .failed = plan_request_fail,
    .settled = plan_exec_settled,
};
