/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces. What a change is, and where one may break off: doing.h. */
#include "front/workspaces/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "front/core/live.h"
#include "front/network/routes.h"
#include "front/plans/planned.h"
#include "front/stores/mirror.h"
#include "front/workspaces/doing.h"
#include "front/workspaces/lifetime.h"
#include "front/workspaces/request.h"
#include "front/workspaces/template_routes.h"
#include "front/workspaces/trash.h"
#include "protocol/broker.h"

#define ENV          "/v1/workspaces/{ws}/env"
#define SLEEP_WHY    "does not put it to sleep; close the plan, which ends what runs in it"
#define ENV_LOOK_WHY "does not start Carrel's own commands in it; look by a command"
#define ENV_WHY                                                                                    \
    "does not make environments in it; its owner's key does, or make one by a command, in the "    \
    "plan"

static void system_reset(struct call *call);

const struct route workspace_routes[] = {
    {HTTP_POST, "/v1/keys", KEYMAKERS, BODY_SMALL, 0, keys_create, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/keys", OWNERS, 0, 0, keys_list, "limit cursor", NOT_IN_PLAN},
    {HTTP_DELETE, "/v1/keys/{key}", OWNERS, 0, 0, keys_revoke, "", NOT_IN_PLAN},
    {HTTP_POST, "/v1/workspaces", WORKERS, BODY_SMALL, 0, workspaces_create, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/workspaces", READERS, 0, 0, workspaces_list, "limit cursor owner deleted",
     NOT_IN_PLAN},
    {HTTP_GET, "/v1/workspaces/{ws}", READERS, 0, 0, workspaces_get, "", IN_PLAN},
    {HTTP_PATCH, "/v1/workspaces/{ws}", OWNERS, BODY_SMALL, 0, workspaces_update, "", NOT_IN_PLAN},
    {HTTP_DELETE, "/v1/workspaces/{ws}", OWNERS, 0, 0, workspaces_delete, "purge", NOT_IN_PLAN},
    {HTTP_POST, "/v1/workspaces/{ws}/undelete", OWNERS, BODY_SMALL, RAW, workspaces_undelete, "",
     NOT_IN_PLAN},
    {HTTP_POST, "/v1/workspaces/{ws}/sleep", WORKERS, BODY_SMALL, RAW, workspaces_sleep, "memory",
     SLEEP_WHY},
    {HTTP_POST, "/v1/workspaces/{ws}/reset-system", OWNERS, BODY_SMALL, RAW, system_reset, "",
     NOT_IN_PLAN},
    {HTTP_GET, "/v1/workspaces/{ws}/usage", READERS, 0, 0, workspaces_usage, "", IN_PLAN},
    {HTTP_POST, "/v1/workspaces/{ws}/sync", WORKERS, BODY_SMALL, 0, mirror_sync, "", IN_PLAN},
    {HTTP_POST, "/v1/adopt", SCOPE_ADMIN, BODY_SMALL, 0, workspaces_adopt, "", NOT_IN_PLAN},
    {HTTP_POST, "/v1/templates", SCOPE_ADMIN, BODY_SMALL, 0, templates_create, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/templates", READERS, 0, 0, templates_list, "limit cursor", NOT_IN_PLAN},
    {HTTP_GET, "/v1/templates/{name}", READERS, 0, 0, templates_get, "", NOT_IN_PLAN},
    {HTTP_DELETE, "/v1/templates/{name}", SCOPE_ADMIN, 0, 0, templates_delete, "", NOT_IN_PLAN},
    {HTTP_GET, ENV, READERS, 0, 0, env_get, "", ENV_LOOK_WHY},
    {HTTP_POST, ENV "/python", WORKERS, BODY_SMALL, 0, env_make_python, "", ENV_WHY},
    {HTTP_POST, ENV "/node", WORKERS, BODY_SMALL, 0, env_make_node, "", ENV_WHY},
    ROUTES_END,
};

static void was_reset(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        call_json(call, 200, workspace_json(call, &call->workspace));
}

static void reset(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        call_ask(call, REQUEST_SYSTEM_RESET, call->workspace.bucket, call->workspace.id, NULL,
                 was_reset);
}

static void system_reset(struct call *call)
{
    call_record(call, call->workspace.id, "workspace.reset_system", "ok", NULL, reset);
}

static json_t *fork_json(const struct store_workspace *w)
{
    const char *slash = strchr(w->base, '/');

    return slash ? json_pack("{s:s%, s:s}", "workspace", w->base, (size_t)(slash - w->base),
                             "snapshot", slash + 1)
                 : json_null();
}

json_t *workspace_json(const struct call *call, const struct store_workspace *w)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:o, s:s*, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I}", "id", w->id,
        "owner", w->owner, "bucket", w->bucket, "template",
        template_brief(call->front, w->template), "builds", *w->builds ? w->builds : NULL, "fork",
        fork_json(w), "policy", json_parsed(w->policy), "links", json_parsed(w->links), "labels",
        json_parsed(w->labels), "created", time_json(w->created_ms), "updated",
        time_json(w->updated_ms), "deleted", time_json(llabs(w->deleted_ms)), "state",
        front_state(call->front, w->id), "execs", (json_int_t)front_execs_in(call->front, w->id));

    json_object_set_new(object, "lifetime", lifetime_json(call, w));
    json_t *store = mirror_json(call->front, w);
    if (store)
        json_object_set_new(object, "store", store);

    if (call->actor.scopes & SCOPE_ADMIN)
        json_object_set_new(
            object, "path",
            json_sprintf("%s/%s/threads/%s", call->front->settings->state, w->bucket, w->id));
    return object;
}

struct listing {
    struct call *call;
    json_t *list;
};

static bool list_one(void *context, const struct store_workspace *w)
{
    struct listing *listing = context;

    return json_array_append_new(listing->list, workspace_json(listing->call, w)) == 0;
}

void workspaces_list(struct call *call)
{
    struct listing listing = {.call = call};
    const char *cursor;
    const char *owner;
    uint64_t limit;
    uint64_t deleted;
    struct err err;

    if (!call_limit(call, &limit) || !call_number(call, "deleted", 1, 0, &deleted) ||
        !call_text(call, "cursor", &cursor) || !call_text(call, "owner", &owner))
        return;
    struct store_whose whose = {.owner = owner};
    if (!(call->actor.scopes & SCOPE_ADMIN))
        whose = (struct store_whose){.owner = call->actor.owner, .ids = call->actor.workspaces};
    listing.list = json_array();
    if (store_workspaces(call->front->store, &whose, deleted == 1, cursor, (size_t)limit, list_one,
                         &listing, &err) < 0) {
        json_decref(listing.list);
        call_fail(call, &err);
        return;
    }
    size_t n = json_array_size(listing.list);
    json_t *next = n && n == limit
                       ? json_incref(json_object_get(json_array_get(listing.list, n - 1), "id"))
                       : json_null();
    call_json(call, 200, json_pack("{s:o, s:o}", "workspaces", listing.list, "next", next));
}

void workspaces_get(struct call *call)
{
    call_json(call, 200, workspace_json(call, &call->workspace));
}

/* The row as it is now: others may have changed it since the request began. */
static bool refresh(struct call *call)
{
    struct err err;
    int found = store_workspace_get(call->front->store, &call->arena, call->params[0],
                                    &call->workspace, &err);

    if (found == 1 && actor_may_see(&call->actor, call->workspace.owner, call->workspace.id))
        return true;
    if (found < 0)
        call_fail(call, &err);
    else
        call_error(call, 404, "not_found", "there is no workspace '%s'", call->params[0]);
    return false;
}

static bool refuse_deleted(struct call *call)
{
    if (!call->workspace.deleted_ms)
        return false;
    if (call->workspace.deleted_ms < 0)
        call_error(call, 409, "conflict", "the workspace is being removed for good");
    else
        call_error(call, 409, "conflict", "the workspace is in the trash; undelete it first");
    return true;
}

/* Whether its tree is the workspace's or a template's already is not known yet. */
static bool refuse_freezing(struct call *call)
{
    const char *id = call->workspace.id;
    struct store_template t;
    struct err err;
    int found = store_template_frozen(call->front->store, &call->arena, id, &t, &err);

    if (found < 0)
        call_fail(call, &err);
    else if (found > 0)
        call_error(call, 409, "conflict",
                   "the daemon could not confirm that workspace '%s' became template '%s'; check "
                   "with GET /v1/templates/%s, then delete the workspace or the template",
                   id, t.name, t.id);
    return found != 0;
}

/* The row is written, and the workspace is the answer. */
static void answer_updated(struct call *call)
{
    struct store_workspace *w = &call->workspace;
    const struct doing *doing = call->context;

    doing_end(call);
    lifetimes_look(call->front);
    if (doing->wakes)
        lifetime_wake(call, w);
    mirror_set(call->front, w);
    front_announce(call->front, "workspace.update", w->id, w->owner, NULL);
    call_json(call, 200, workspace_json(call, w));
}

/* Rules of the network hold for what lives, too; where they could not be told, its next command
 * finds that the policy is another. */
static void is_told(struct call *call, struct answer *answer)
{
    (void)answer;
    answer_updated(call);
}

static void is_entered(struct call *call, const struct err *failed)
{
    if (failed)
        doing_fail(call, failed);
    else
        answer_updated(call);
}

static void finish_update(struct call *call, struct answer *answer)
{
    const struct doing *doing = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0)
        doing_fail(call, &err);
    else if (store_workspace_update(call->front->store, &call->workspace, &err) < 0)
        doing_fail_recorded(call, &err);
    else if (planned_workspace(&call->workspace) && !doing->was_planned)
        planned_enter(call, false, is_entered);
    else if (planned_workspace(&call->workspace) && doing->is_redrawn)
        planned_enter(call, true, is_entered);
    else if (!doing->is_redrawn || !network_tell(call, is_told))
        answer_updated(call);
}

static void record_update(struct call *call)
{
    struct store_workspace *w = &call->workspace;

    w->updated_ms = wall_ms();
    doing_record(
        call, "ok",
        json_pack("{s:o, s:o}", "policy", json_parsed(w->policy), "links", json_parsed(w->links)),
        finish_update);
}

/* With new links the tree is looked at: some may have to appear elsewhere. */
static void found_links(struct call *call, const struct err *failed)
{
    const struct doing *doing = call->context;
    json_t *links = json_parsed(call->workspace.links);

    if (failed) {
        doing_fail(call, failed);
    } else {
        links_place(links, doing->look.found);
        call->workspace.links = json_compact(&call->arena, links);
        record_update(call);
    }
    json_decref(links);
}

void workspaces_update(struct call *call)
{
    static const char *const known[] = {"policy", "links", "labels", "lifetime", "store", NULL};
    struct store_workspace *w = &call->workspace;
    bool policy = json_object_get(call->body, "policy") != NULL;
    json_t *links = json_object_get(call->body, "links");
    const char *operation = policy ? "policy.set" : "workspace.update";

    if (!refresh(call))
        return;
    bool was_planned = planned_workspace(w);
    if (refuse_deleted(call) || !fields_known(call, call->body, known) ||
        !workspace_read_settings(call, w))
        return;
    struct doing *doing = doing_begin(call, w->id, operation);
    if (!doing)
        return;
    doing->was_planned = was_planned;
    doing->wakes = json_object_get(call->body, "lifetime") != NULL;
    doing->is_redrawn = policy || json_is_object(links);
    if (!json_is_object(links)) {
        record_update(call);
        return;
    }
    doing->look.bucket = w->bucket;
    doing->look.workspace = w->id;
    doing->look.done = found_links;
    if (!links_read(&call->arena, links, doing->look.links)) {
        doing_end(call);
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    unsigned pending = call->pending;
    links_look(call, &doing->look);
    doing_check_asked(call, pending);
}

static void finish_delete(void *context, const struct err *failed)
{
    struct call *call = context;

    if (failed) {
        doing_fail_recorded(call, failed);
    } else {
        doing_end(call);
        call_empty(call);
    }
    call_release(call);
}

/* From here on the row says what becomes of it, whatever happens to us. */
static void write_deleted(struct call *call, struct answer *answer)
{
    const struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        doing_fail(call, &err);
        return;
    }
    if (store_workspace_move(call->front->store, w, doing->was_deleted_ms, &err) < 0) {
        doing_fail_recorded(call, &err);
        return;
    }
    mirror_drop(call->front, w->id);
    if (!doing->was_deleted_ms)
        front_announce(call->front, "workspace.delete", w->id, w->owner, NULL);
    live_end_workspace(call->front, w->id, call);
    call->pending++;
    sweep_move(call->front, w, finish_delete, call);
}

/* What forks stand on is with it. */
static bool refuse_forked(struct call *call)
{
    const char *names = NULL;
    struct err err;
    int n = store_workspace_forks(call->front->store, &call->arena, call->workspace.id, "", &names,
                                  &err);

    if (n < 0)
        call_fail(call, &err);
    if (n > 0)
        call_error(call, 409, "snapshot_in_use",
                   "%d fork%s on snapshots of the workspace (%s); delete them for good first", n,
                   n == 1 ? " stands" : "s stand", names);
    return n != 0;
}

/* Into the trash, or for good: by ?purge=1, also from the trash, or where there is none. */
void workspaces_delete(struct call *call)
{
    struct store_workspace *w = &call->workspace;
    uint64_t purge;

    if (!call_number(call, "purge", 1, 0, &purge) || !refresh(call) ||
        (!purge && refuse_deleted(call)) || refuse_freezing(call) || refuse_forked(call))
        return;
    bool for_good = purge || call->front->settings->trash_ms == 0;
    const char *operation = for_good ? "workspace.purge" : "workspace.delete";
    int64_t now = wall_ms();
    const char *stamp = arena_printf(&call->arena, "%jd", (intmax_t)now);
    if (!stamp) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    struct doing *doing = doing_begin(call, w->id, operation);
    if (!doing || (for_good && !doing_begin_chore(call, doing)))
        return;
    doing->was_deleted_ms = w->deleted_ms;
    if (!w->deleted_ms) {
        w->deleted_ms = now;
        w->trash = stamp;
    }
    if (for_good)
        w->deleted_ms = -llabs(w->deleted_ms);
    w->updated_ms = now;
    doing_record(call, "ok", NULL, write_deleted);
}

static void finish_undelete(struct call *call, struct answer *answer)
{
    const struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    struct err err;

    w->deleted_ms = 0;
    w->trash = "";
    w->updated_ms = wall_ms();
    if (answer_check(answer, &err) < 0 ||
        store_workspace_move(call->front->store, w, doing->was_deleted_ms, &err) < 0)
        doing_fail_recorded(call, &err);
    else
        answer_updated(call);
}

static void take_back(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        doing_fail(call, &err);
    else
        doing_ask_tree(call, REQUEST_TREE_BACK, finish_undelete);
}

void workspaces_undelete(struct call *call)
{
    struct store_workspace *w = &call->workspace;

    if (!refresh(call))
        return;
    if (!w->deleted_ms) {
        call_error(call, 409, "conflict", "the workspace is not in the trash");
        return;
    }
    if (w->deleted_ms < 0) {
        (void)refuse_deleted(call);
        return;
    }
    struct doing *doing = doing_begin(call, w->id, "workspace.undelete");
    if (!doing)
        return;
    doing->was_deleted_ms = w->deleted_ms;
    doing_record(call, "ok", NULL, take_back);
}

static void slept(struct call *call, struct answer *answer)
{
    (void)answer; /* one that was asleep is what was asked for */
    call_json(call, 200, workspace_json(call, &call->workspace));
}

static void end_sandbox(struct call *call)
{
    call_ask(call, REQUEST_SLEEP, call->workspace.id, "put to sleep", NULL, slept);
}

/* What cannot stand still ends: the answer's state says which it is. */
static void frozen(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        end_sandbox(call);
    else
        slept(call, answer);
}

static void freeze(struct call *call)
{
    const struct plain_message m = {.texts = {call->workspace.id}, .number = 1};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, call_expect(call, frozen), &m);
    broker_send(call->front->channel, REQUEST_FREEZE, &b);
}

static void put_to_sleep(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else if (call->context)
        freeze(call);
    else
        end_sandbox(call);
}

void workspaces_sleep(struct call *call)
{
    static char keeps_memory;
    uint64_t memory;

    if (!call_number(call, "memory", 1, 0, &memory))
        return;
    call->context = memory ? &keeps_memory : NULL;
    call_record(call, call->workspace.id, "workspace.sleep", "ok",
                memory ? json_pack("{s:b}", "memory", 1) : NULL, put_to_sleep);
}
