/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/workspaces: empty, on a template, a fork, or from its copy in a store. */
#include "front/workspaces/routes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "front/plans/planned.h"
#include "front/stores/job.h"
#include "front/stores/mirror.h"
#include "front/workspaces/doing.h"
#include "front/workspaces/env.h"
#include "front/workspaces/lifetime.h"
#include "front/workspaces/request.h"
#include "front/workspaces/template_routes.h"
#include "front/workspaces/trash.h"
#include "protocol/broker.h"

static void is_gone_again(void *context, const struct err *failed)
{
    struct call *call = context;
    const struct doing *doing = call->context;

    (void)failed; /* the sweep tries again */
    doing_fail_recorded(call, &doing->failed);
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
    call->abandoned = doing_left;
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
    doing_end(call);
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
 * says that it is to go. False: answered. */
static bool add_row_on_its_way_out(struct call *call)
{
    struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    struct err err;

    w->deleted_ms = doing->was_deleted_ms = -w->created_ms;
    w->trash = arena_printf(&call->arena, "%jd", (intmax_t)w->created_ms);
    if (!w->trash)
        err_set(&err, ERR_LIMIT, ENOMEM, "make the workspace");
    if (w->trash && store_workspace_add(call->front->store, w, &err) == 0)
        return true;
    doing_fail_recorded(call, &err);
    return false;
}

static void fill(struct call *call)
{
    const struct store_workspace *w = &call->workspace;
    unsigned pending = call->pending;

    if (!add_row_on_its_way_out(call))
        return;
    if (*w->base)
        ask_fork(call);
    else
        call_ask(call, REQUEST_TREE_FILL, w->bucket, w->id, w->template, files_are_there);
    doing_check_asked(call, pending);
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

static void hydrate(struct call *call)
{
    static const struct store_calls calls = {.ended = is_hydrated};
    struct doing *doing = call->context;
    struct store_workspace *w = &call->workspace;
    struct store_job job = {
        .store = doing->from_store, .verb = "hydrate", .bucket = w->bucket, .workspace = w->id};
    struct err err;

    if (!add_row_on_its_way_out(call))
        return;
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
        doing_fail_recorded(call, &err);
    else
        answer_created(call);
}

static void make_tree(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        doing_fail(call, &err);
    else
        doing_ask_tree(call, REQUEST_TREE_MAKE, finish_create);
}

/* Until it is there, neither the workspace nor the snapshot goes. False: answered. */
static bool take_parent(struct call *call, struct doing *doing)
{
    const char *base = call->workspace.base;
    const char *of = arena_copy(&call->arena, base, strcspn(base, "/"));

    if (of && change_begin(&doing->parent, of))
        return true;
    doing_end(call);
    call_error(call, 409, "conflict", "another change of the workspace '%s' is under way",
               of ? of : "");
    return false;
}

/* NULL: answered. The name, and the place among what is copied, are taken before anything is. */
static struct doing *begin_create(struct call *call)
{
    const struct store_workspace *w = &call->workspace;
    struct doing *doing = doing_begin(call, w->id, "workspace.create");

    if (!doing)
        return NULL;
    if (*w->builds && !template_name_take(call, w->builds, &doing->name)) {
        doing_end(call);
        template_refuse_name(call, w->builds);
        return NULL;
    }
    if (*w->base)
        return take_parent(call, doing) ? doing : NULL;
    return !*w->template || doing_begin_chore(call, doing) ? doing : NULL;
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
        doing_record(call, "ok",
                     json_pack("{s:s, s:s, s:s, s:s, s:s*, s:o, s:o}", "owner", w->owner, "bucket",
                               w->bucket, "template", w->template, "builds", w->builds, "fork",
                               *w->base ? w->base : NULL, "policy", json_parsed(w->policy), "links",
                               json_parsed(w->links)),
                     make_tree);
    }
}
