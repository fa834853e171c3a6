/* SPDX-License-Identifier: Apache-2.0 */
#include "front/snapshots/versions.h"

#include <string.h>

#include "front/core/record.h"
#include "front/snapshots/job.h"

bool version_workspace(struct call *call, const char *field, const char *id,
                       struct store_workspace *ret)
{
    const struct store_workspace *own = &call->workspace;
    struct err err;

    if (!id || !protocol_id_is_valid(id)) {
        call_bad_field(call, field, "the id of a workspace");
        return false;
    }
    int found = store_workspace_get(call->front->store, &call->arena, id, ret, &err);
    if (found < 0) {
        call_fail(call, &err);
        return false;
    }
    if (found == 0 || !actor_may_see(&call->actor, ret->owner, ret->id) ||
        strcmp(ret->owner, own->owner) != 0 || strcmp(ret->bucket, own->bucket) != 0) {
        call_error(call, 404, "not_found", "there is no workspace '%s' of this owner", id);
        return false;
    }
    if (ret->deleted_ms)
        call_error(call, 409, "conflict", "the workspace '%s' is in the trash", id);
    return ret->deleted_ms == 0;
}

static void add_kept(void *context, const char *snapshot)
{
    json_array_append_new(context, json_string(snapshot));
}

/* What a drop has to leave. */
static int list_kept(struct call *call, const char *workspace, json_t *kept, struct err *err)
{
    struct store *store = call->front->store;

    if (store_merge_tidy(store, workspace, err) < 0 ||
        store_merge_snapshots(store, &call->arena, workspace, add_kept, kept, err) < 0)
        return -1;
    return store_workspace_bases(store, &call->arena, workspace, add_kept, kept, err);
}

static void start(struct call *call, const struct version_wish *wish, struct job_calls *calls,
                  json_t *kept)
{
    struct front_record r = {.actor = call->actor.name,
                             .request = call->id,
                             .workspace = wish->of->id,
                             .operation = "snapshot.create",
                             .result = "ok"};
    char id[28];

    make_id('s', id);
    *calls = (struct job_calls){.done = wish->then, .failed = wish->failed};
    front_record(call->front, &r, json_pack("{s:s, s:s}", "snapshot", id, "why", wish->why), NULL,
                 NULL);
    job_start(call,
              &(struct job_wish){.of = wish->of,
                                 .verb = PLAN_SNAPSHOT,
                                 .job = json_pack("{s:s, s:s, s:s, s:{s:i, s:o}}", "id", id,
                                                  "actor", call->actor.name, "why", wish->why,
                                                  "drop", "most", 0, "kept", kept)},
              calls);
}

void version_take(struct call *call, const struct version_wish *wish)
{
    struct job_calls *calls = arena_alloc(&call->arena, sizeof(*calls));
    json_t *kept = json_array();
    struct err err;

    if (!calls || !kept) {
        json_decref(kept);
        wish->failed(call);
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (!change_begin(wish->change, wish->of->id)) {
        json_decref(kept);
        wish->failed(call);
        call_error(call, 409, "conflict", "another change of the workspace '%s' is under way",
                   wish->of->id);
        return;
    }
    if (list_kept(call, wish->of->id, kept, &err) < 0) {
        json_decref(kept);
        wish->failed(call);
        call_fail(call, &err);
        return;
    }
    start(call, wish, calls, kept);
}
