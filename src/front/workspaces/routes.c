/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces. Every change is recorded before anything of it is done; a record of one that then
 * fails is followed by another that says so. A front may die at any instant:
 *
 *   create    record, tree, row     a tree without a row may be left; who creates that id takes it
 *   ... on a template   record, tree, row that is on its way out, files, row that is not
 *   delete    record, row, tree     the row says where the tree belongs: the sweep moves it there
 *   undelete  record, tree, row     likewise, which is back into the trash
 *   purge     record, row, tree, row gone     the sweep goes on with what is on its way out
 *
 * So no row is without its tree, in the threads or in the trash. Of a workspace there is one change
 * at a time; it is finished also when its client has gone. */
#include "front/workspaces/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "front/core/call.h"
#include "front/core/live.h"
#include "front/core/quota.h"
#include "front/network/routes.h"
#include "front/plans/planned.h"
#include "front/stores/job.h"
#include "front/stores/mirror.h"
#include "front/workspaces/env.h"
#include "front/workspaces/find_links.h"
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
    {HTTP_POST, "/v1/workspaces/{ws}/sleep", WORKERS, BODY_SMALL, RAW, workspaces_sleep, "",
     SLEEP_WHY},
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

/* A change that is under way: the context of its call. */
struct doing {
    struct change change;
    struct change name;        /* of the template that it builds */
    struct change parent;      /* of the workspace that it is a fork of */
    struct front *front;       /* while a tree of it is copied or removed: */
    struct owner_use *at_work; /* ... one of whose trees that is */
    const char *operation;     /* as in its record */
    int64_t was_deleted_ms;
    bool was_planned; /* before an update, */
    bool is_redrawn;  /* which changes what is mounted in it */
    struct links_look look;
    struct err failed;
    int status; /* with `refusal`, the answer that `failed` stands for */
    const char *refusal;
    const char *from_store; /* that its files come from; NULL: it begins empty */
};

static json_t *fork_json(const struct store_workspace *w)
{
    const char *slash = strchr(w->base, '/');

    return slash ? json_pack("{s:s%, s:s}", "workspace", w->base, (size_t)(slash - w->base),
                             "snapshot", slash + 1)
                 : json_null();
}

static json_t *workspace_json(const struct call *call, const struct store_workspace *w)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:o, s:s*, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I}", "id", w->id,
        "owner", w->owner, "bucket", w->bucket, "template",
        template_brief(call->front, w->template), "builds", *w->builds ? w->builds : NULL, "fork",
        fork_json(w), "policy", json_parsed(w->policy), "links", json_parsed(w->links), "labels",
        json_parsed(w->labels), "created", time_json(w->created_ms), "updated",
        time_json(w->updated_ms), "deleted", time_json(llabs(w->deleted_ms)), "state",
        front_is_awake(call->front, w->id) ? "awake" : "asleep", "execs",
        (json_int_t)front_execs_in(call->front, w->id));

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

static void end_change(struct call *call)
{
    struct doing *doing = call->context;

    change_end(&doing->change);
    change_end(&doing->name);
    change_end(&doing->parent);
    owner_use_end_chore(doing->front, doing->at_work);
    doing->at_work = NULL;
}

/* A whole tree is copied or removed for its owner: so many at a time. False: answered. */
static bool begin_chore(struct call *call, struct doing *doing)
{
    doing->front = call->front;
    doing->at_work = owner_use_begin_chore(call->front, call->workspace.owner);
    if (doing->at_work)
        return true;
    end_change(call);
    call_chores(call);
    return false;
}

/* Answered, or the client has gone. What is still under way ends the change itself. */
static void left(struct call *call)
{
    if (call->pending == 0)
        end_change(call);
}

/* NULL: answered. From here on every answer is given after the change has ended. */
static struct doing *begin_change(struct call *call, const char *workspace, const char *operation)
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
    call->abandoned = left;
    return doing;
}

/* Before anything was changed. */
static void fail(struct call *call, const struct err *err)
{
    end_change(call);
    call_fail(call, err);
}

/* Without memory for the question nobody hears the answer. */
static void check_asked(struct call *call, unsigned pending)
{
    if (call->pending != pending)
        return;
    sweep_look_again();
    end_change(call);
    call_error(call, 503, "unavailable", "out of memory");
}

static void record(struct call *call, const char *result, json_t *details, call_heard *heard)
{
    const struct doing *doing = call->context;
    unsigned pending = call->pending;

    call_record(call, call->workspace.id, doing->operation, result, details, heard);
    check_asked(call, pending);
}

static void ask_tree(struct call *call, uint32_t kind, call_heard *heard)
{
    const struct store_workspace *w = &call->workspace;
    unsigned pending = call->pending;

    call_ask(call, kind, w->bucket, w->id, *w->trash ? w->trash : NULL, heard);
    check_asked(call, pending);
}

static void recorded_failure(struct call *call, struct answer *answer)
{
    struct doing *doing = call->context;

    (void)answer; /* if this cannot be recorded, the log of the broker says so */
    if (!doing->refusal) {
        fail(call, &doing->failed);
        return;
    }
    end_change(call);
    call_reply(call, doing->status, "application/json", NULL, doing->refusal,
               strlen(doing->refusal));
}

/* After its record, which said that it was done. */
static void fail_recorded(struct call *call, const struct err *err)
{
    struct doing *doing = call->context;
    char text[512];

    doing->failed = *err;
    sweep_look_again();
    record(call, "failed", json_pack("{s:s}", "error", err_text(err, text, sizeof(text))),
           recorded_failure);
}

/* --- create --- */

static void is_gone_again(void *context, const struct err *failed)
{
    struct call *call = context;
    const struct doing *doing = call->context;

    (void)failed; /* the sweep tries again */
    fail_recorded(call, &doing->failed);
    call_release(call);
}

/* There is a row, on its way out. */
static void take_away(struct call *call, const struct err *err)
{
    struct doing *doing = call->context;

    doing->failed = *err;
    call->pending++;
    sweep_move(call->front, &call->workspace, is_gone_again, call);
}

/* It may have been purged meanwhile, and its id be somebody else's. */
static bool is_still_there(struct call *call)
{
    const struct store_workspace *w = &call->workspace;
    struct store_workspace now;
    struct err err;

    return store_workspace_get(call->front->store, &call->arena, w->id, &now, &err) == 1 &&
           now.created_ms == w->created_ms && strcmp(now.owner, w->owner) == 0;
}

/* What it was refused with is the answer, when it is gone. False: it is not on its way out. */
static bool begin_taking_back(struct call *call, int status, const json_t *object)
{
    struct store_workspace *w = &call->workspace;
    struct doing *doing = arena_alloc(&call->arena, sizeof(*doing));
    const char *refusal = json_compact(&call->arena, object);
    const char *message =
        json_string_value(json_object_get(json_object_get(object, "error"), "message"));
    struct err err;

    w->trash = arena_printf(&call->arena, "%jd", (intmax_t)wall_ms());
    if (!doing || !refusal || !w->trash || !is_still_there(call) ||
        !change_begin(&doing->change, w->id))
        return false; /* or another change of it is under way, and will say what becomes of it */
    w->deleted_ms = -wall_ms();
    if (store_workspace_move(call->front->store, w, 0, &err) < 0) {
        change_end(&doing->change);
        return false;
    }
    doing->operation = "workspace.create";
    doing->status = status;
    doing->refusal = refusal;
    err_set(&doing->failed, ERR_INVALID, 0, "%s", message ? message : "it was refused");
    call->context = doing;
    call->abandoned = left;
    return true;
}

/* Environments that it was to begin with could not be made: as if it had never been. */
static void environments_made(struct call *call, int status, json_t *object)
{
    struct store_workspace *w = &call->workspace;

    if (status < 400) {
        json_decref(object);
        call_json(call, 201, workspace_json(call, w));
    } else if (begin_taking_back(call, status, object)) {
        const struct doing *doing = call->context;
        json_decref(object);
        front_announce(call->front, "workspace.delete", w->id, w->owner, NULL);
        take_away(call, &doing->failed);
    } else {
        call_json(call, status, object);
    }
}

static void created(struct call *call, const struct err *failed)
{
    struct store_workspace *w = &call->workspace;

    (void)failed; /* there is nothing of before */
    end_change(call);
    lifetimes_look(call->front);
    mirror_set(call->front, w);
    front_announce(call->front, "workspace.create", w->id, w->owner, NULL);
    if (!env_is_asked_for(call)) {
        call_json(call, 201, workspace_json(call, w));
        return;
    }
    call->context = NULL;
    call->abandoned = NULL;
    env_create(call, environments_made);
}

static void answer_created(struct call *call)
{
    if (planned_workspace(&call->workspace))
        planned_enter(call, true, created);
    else
        created(call, NULL);
}

static void files_are_there(struct call *call, struct answer *answer)
{
    const struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    struct store_workspace live = *w;
    struct err err;

    live.deleted_ms = 0;
    live.trash = "";
    if (answer_check(answer, &err) < 0 ||
        store_workspace_move(call->front->store, &live, doing->was_deleted_ms, &err) < 0) {
        take_away(call, &err);
        return;
    }
    *w = live;
    answer_created(call);
}

static void ask_fork(struct call *call)
{
    const struct store_workspace *w = &call->workspace;
    const char *snapshot = strchr(w->base, '/') + 1;
    const char *of = arena_copy(&call->arena, w->base, (size_t)(snapshot - 1 - w->base));
    struct plain_message m = {.texts = {w->bucket, w->id, of ? of : "", snapshot}};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, call_expect(call, files_are_there), &m);
    broker_send(call->front->channel, REQUEST_FORK, &b);
}

/* Half filled it must not be left behind, nor taken for somebody's: until it has its files its row
 * says that it is to go. */
static void fill(struct call *call)
{
    struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    unsigned pending = call->pending;
    struct err err;

    w->deleted_ms = doing->was_deleted_ms = -w->created_ms;
    w->trash = arena_printf(&call->arena, "%jd", (intmax_t)w->created_ms);
    if (!w->trash)
        err_set(&err, ERR_LIMIT, ENOMEM, "make the workspace");
    if (!w->trash || store_workspace_add(call->front->store, w, &err) < 0) {
        fail_recorded(call, &err);
        return;
    }
    if (*w->base)
        ask_fork(call);
    else
        call_ask(call, REQUEST_TREE_FILL, w->bucket, w->id, w->template, files_are_there);
    check_asked(call, pending);
}

/* --- ... from its copy in a store --- */

static void is_hydrated(void *owner, const struct store_end *end)
{
    struct call *call = owner;
    struct doing *doing = call->context;
    struct answer whole = {.kind = ANSWER_OK};
    struct err err;

    if (end->done) {
        files_are_there(call, &whole);
    } else {
        doing->status = end->status;
        json_t *refusal =
            json_pack("{s:{s:s, s:s}}", "error", "code", end->code, "message", end->message);
        doing->refusal = json_compact(&call->arena, refusal);
        json_decref(refusal);
        err_set(&err, ERR_IO, 0, "%s", end->message);
        take_away(call, &err);
    }
    call_release(call);
}

/* As with a template: until it is whole its row says that it is to go. */
static void hydrate(struct call *call)
{
    static const struct store_calls calls = {.ended = is_hydrated};
    struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    struct store_job job = {
        .store = doing->from_store, .verb = "hydrate", .bucket = w->bucket, .workspace = w->id};
    struct err err;

    w->deleted_ms = doing->was_deleted_ms = -w->created_ms;
    w->trash = arena_printf(&call->arena, "%jd", (intmax_t)w->created_ms);
    if (!w->trash)
        err_set(&err, ERR_LIMIT, ENOMEM, "make the workspace");
    if (!w->trash || store_workspace_add(call->front->store, w, &err) < 0) {
        fail_recorded(call, &err);
        return;
    }
    call->pending++;
    if (store_work_start(call->front, &job, &calls, call))
        return;
    err_set(&err, ERR_LIMIT, ENOMEM, "bring the files from the store");
    take_away(call, &err);
    call_release(call);
}

/* Its copy may be anybody's, and only who owns the host sees all of them. False: answered. */
static bool read_from_store(struct call *call, const char **ret)
{
    const char *store = NULL;

    if (!field_text(call, call->body, "from_store", PROTOCOL_ID, &store))
        return false;
    if (!store)
        return true;
    if (!protocol_id_is_valid(store) || !json_object_get(call->body, "id") ||
        json_object_get(call->body, "template") || env_is_asked_for(call)) {
        call_bad_field(call, "from_store",
                       "the name of a store, with the \"id\" of a workspace in it, and without a "
                       "template or environments");
        return false;
    }
    if (!(call->actor.scopes & SCOPE_ADMIN)) {
        call_error(call, 403, "forbidden", "only an administrator brings workspaces from a store");
        return false;
    }
    *ret = arena_copy(&call->arena, store, strlen(store));
    if (!*ret)
        call_error(call, 413, "too_large", "the request is too large");
    return *ret != NULL;
}

static void finish_create(struct call *call, struct answer *answer)
{
    const struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    struct err err;

    int r = answer_check(answer, &err);
    if (r == 0 && doing->from_store) {
        hydrate(call);
        return;
    }
    if (r == 0 && (*w->template || *w->base)) {
        fill(call);
        return;
    }
    if (r < 0 || store_workspace_add(call->front->store, w, &err) < 0)
        fail_recorded(call, &err);
    else
        answer_created(call);
}

static void make_tree(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        fail(call, &err);
    else
        ask_tree(call, REQUEST_TREE_MAKE, finish_create);
}

/* Until it is there, neither the workspace nor the snapshot goes. False: answered. */
static bool take_parent(struct call *call, struct doing *doing)
{
    const char *base = call->workspace.base;
    const char *of = arena_copy(&call->arena, base, strcspn(base, "/"));

    if (of && change_begin(&doing->parent, of))
        return true;
    end_change(call);
    call_error(call, 409, "conflict", "another change of the workspace '%s' is under way",
               of ? of : "");
    return false;
}

/* NULL: answered. The name, and the place among what is copied, are taken before anything is. */
static struct doing *begin_create(struct call *call)
{
    const struct store_workspace *w = &call->workspace;
    struct doing *doing = begin_change(call, w->id, "workspace.create");

    if (!doing)
        return NULL;
    if (*w->builds && !template_name_take(call, w->builds, &doing->name)) {
        end_change(call);
        template_refuse_name(call, w->builds);
        return NULL;
    }
    if (*w->base)
        return take_parent(call, doing) ? doing : NULL;
    return !*w->template || begin_chore(call, doing) ? doing : NULL;
}

/* Environments are made in the tree itself. False: answered. */
static bool may_begin_with(struct call *call)
{
    if (!env_is_asked_for(call) || !planned_is(&call->actor, &call->workspace))
        return true;
    call_error(
        call, 403, "forbidden",
        "the policy of this key's workspaces says \"writes\": \"plan\", so it makes none with "
        "an environment; leave \"python\" and \"node\" out, or have the key made with a "
        "template that has one");
    return false;
}

void workspaces_create(struct call *call)
{
    static const char *const known[] = {"id",       "owner",      "policy", "links", "labels",
                                        "template", "builds",     "python", "node",  "lifetime",
                                        "store",    "from_store", "fork",   NULL};
    struct store_workspace *w = &call->workspace;
    const char *from_store = NULL;
    struct store_workspace other;
    struct doing *doing;
    struct err err;

    *w = (struct store_workspace){.bucket = call->front->settings->bucket,
                                  .policy = "{}",
                                  .links = "{}",
                                  .labels = "{}",
                                  .trash = "",
                                  .template = "",
                                  .builds = "",
                                  .store = "",
                                  .lifetime = "",
                                  .token = "",
                                  .base = "",
                                  .created_ms = wall_ms()};
    w->updated_ms = w->created_ms;
    if (!fields_known(call, call->body, known) || !workspace_read(call, w) ||
        !env_request_check(call) || !may_begin_with(call) || !read_from_store(call, &from_store))
        return;
    int found = store_workspace_get(call->front->store, &call->arena, w->id, &other, &err);
    if (found < 0)
        call_fail(call, &err);
    else if (found > 0)
        call_error(call, 409, "conflict", "the id '%s' is taken", w->id);
    else if ((doing = begin_create(call))) {
        doing->from_store = from_store;
        record(call, "ok",
               json_pack("{s:s, s:s, s:s, s:s, s:s*, s:o, s:o}", "owner", w->owner, "bucket",
                         w->bucket, "template", w->template, "builds", w->builds, "fork",
                         *w->base ? w->base : NULL, "policy", json_parsed(w->policy), "links",
                         json_parsed(w->links)),
               make_tree);
    }
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

    end_change(call);
    lifetimes_look(call->front);
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
        fail(call, failed);
    else
        answer_updated(call);
}

static void finish_update(struct call *call, struct answer *answer)
{
    const struct doing *doing = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0)
        fail(call, &err);
    else if (store_workspace_update(call->front->store, &call->workspace, &err) < 0)
        fail_recorded(call, &err);
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
    record(
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
        fail(call, failed);
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
    struct doing *doing = begin_change(call, w->id, operation);
    if (!doing)
        return;
    doing->was_planned = was_planned;
    doing->is_redrawn = policy || json_is_object(links);
    if (!json_is_object(links)) {
        record_update(call);
        return;
    }
    doing->look.bucket = w->bucket;
    doing->look.workspace = w->id;
    doing->look.done = found_links;
    if (!links_read(&call->arena, links, doing->look.links)) {
        end_change(call);
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    unsigned pending = call->pending;
    links_look(call, &doing->look);
    check_asked(call, pending);
}

static void finish_delete(void *context, const struct err *failed)
{
    struct call *call = context;

    if (failed) {
        fail_recorded(call, failed);
    } else {
        end_change(call);
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
        fail(call, &err);
        return;
    }
    if (store_workspace_move(call->front->store, w, doing->was_deleted_ms, &err) < 0) {
        fail_recorded(call, &err);
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
    struct doing *doing = begin_change(call, w->id, operation);
    if (!doing || (for_good && !begin_chore(call, doing)))
        return;
    doing->was_deleted_ms = w->deleted_ms;
    if (!w->deleted_ms) {
        w->deleted_ms = now;
        w->trash = stamp;
    }
    if (for_good)
        w->deleted_ms = -llabs(w->deleted_ms);
    w->updated_ms = now;
    record(call, "ok", NULL, write_deleted);
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
        fail_recorded(call, &err);
    else
        answer_updated(call);
}

static void take_back(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        fail(call, &err);
    else
        ask_tree(call, REQUEST_TREE_BACK, finish_undelete);
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
    struct doing *doing = begin_change(call, w->id, "workspace.undelete");
    if (!doing)
        return;
    doing->was_deleted_ms = w->deleted_ms;
    record(call, "ok", NULL, take_back);
}

static void slept(struct call *call, struct answer *answer)
{
    (void)answer; /* one that was asleep is what was asked for */
    call_json(call, 200, workspace_json(call, &call->workspace));
}

static void put_to_sleep(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        call_ask(call, REQUEST_SLEEP, call->workspace.id, "put to sleep", NULL, slept);
}

void workspaces_sleep(struct call *call)
{
    call_record(call, call->workspace.id, "workspace.sleep", "ok", NULL, put_to_sleep);
}
