/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces. A change is: what it does on disk, its record, its row, in this order: a row
 * without a tree or a record never exists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/links.h"
#include "broker/protocol.h"
#include "policy/policy.h"

enum {
    PAGE_DEFAULT = 100,
    PAGE_MAX = 1000,
};

static json_t *parsed(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);

    return object ? object : json_object();
}

static json_t *workspace_json(const struct call *call, const struct store_workspace *w)
{
    json_t *object = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I}", "id",
                               w->id, "owner", w->owner, "bucket", w->bucket, "policy",
                               parsed(w->policy), "links", parsed(w->links), "labels",
                               parsed(w->labels), "created", time_json(w->created_ms), "updated",
                               time_json(w->updated_ms), "deleted", time_json(w->deleted_ms),
                               "state", front_is_awake(call->front, w->id) ? "awake" : "asleep",
                               "execs", (json_int_t)front_jobs_in(call->front, w->id));

    if (call->actor.scopes & SCOPE_ADMIN)
        json_object_set_new(
            object, "path",
            json_sprintf("%s/%s/threads/%s", call->front->settings->state, w->bucket, w->id));
    return object;
}

static char *compact(struct call *call, const json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    char *copy = arena_copy(&call->arena, text ? text : "{}", text ? strlen(text) : 2);

    free(text);
    return copy;
}

/* A policy is kept as it was given, once it has been understood in full. */
static bool read_policy(struct call *call, const char **ret)
{
    struct policy *policy = arena_alloc(&call->arena, sizeof(*policy));
    json_t *object = NULL;
    struct err err;

    if (!field_object(call, call->body, "policy", &object))
        return false;
    if (!object)
        return true;
    char *text = compact(call, object);
    if (!policy || !text) {
        call_error(call, 413, "too_large", "the policy is too large");
        return false;
    }
    if (policy_parse(policy, &call->arena, text, strlen(text), &err) < 0) {
        call_fail(call, &err);
        return false;
    }
    if (policy->level == CARREL_LEVEL_DIR) {
        call_bad_field(call, "policy.level", "\"ns\": the daemon keeps sandboxes of that level");
        return false;
    }
    *ret = text;
    return true;
}

static bool read_labels(struct call *call, const char **ret)
{
    json_t *object = NULL;

    if (!field_object(call, call->body, "labels", &object))
        return false;
    if (object)
        *ret = compact(call, object);
    return true;
}

static bool read_settings(struct call *call, struct store_workspace *w)
{
    json_t *links = NULL;

    if (!read_policy(call, &w->policy) || !read_labels(call, &w->labels) ||
        !field_object(call, call->body, "links", &links))
        return false;
    if (!links)
        return true;
    if (!links_check(call, links, w->owner))
        return false;
    w->links = compact(call, links);
    return true;
}

static void finish_create(struct call *call, struct answer *answer)
{
    struct store_workspace *w = &call->workspace;
    struct err err;

    if (answer_check(answer, &err) < 0 || store_workspace_add(call->front->store, w, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    front_announce(call->front, "workspace.create", w->id, w->owner, NULL);
    call_json(call, 201, workspace_json(call, w));
}

static void record_create(struct call *call, struct answer *answer)
{
    struct store_workspace *w = &call->workspace;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    call_record(call, w->id, "workspace.create", "ok",
                json_pack("{s:s, s:s, s:o, s:o}", "owner", w->owner, "bucket", w->bucket, "policy",
                          parsed(w->policy), "links", parsed(w->links)),
                finish_create);
}

static bool read_identity(struct call *call, struct store_workspace *w)
{
    const char *id = NULL;
    const char *owner = call->actor.owner;

    if (!field_text(call, call->body, "id", PROTOCOL_ID, &id) ||
        !field_text(call, call->body, "owner", PROTOCOL_ID, &owner))
        return false;
    if (id && !protocol_id_is_valid(id)) {
        call_bad_field(call, "id",
                       "1 to 64 of letters, digits, '.', '_' and '-', a letter or digit first");
        return false;
    }
    if (!protocol_id_is_valid(owner)) {
        call_bad_field(call, "owner", "1 to 64 of letters, digits, '.', '_' and '-'");
        return false;
    }
    if (!actor_may_see(&call->actor, owner)) {
        call_error(call, 403, "forbidden", "only an administrator makes workspaces for others");
        return false;
    }
    char made[28];
    make_id('w', made);
    w->id = id ? id : arena_copy(&call->arena, made, strlen(made));
    w->owner = arena_copy(&call->arena, owner, strlen(owner));
    return w->id && w->owner;
}

/* True: there is room for one more of this owner. */
static bool within_quota(struct call *call, const char *owner)
{
    uint64_t most = call->front->settings->owner_workspaces;
    uint64_t count;
    struct err err;

    if (most == 0)
        return true;
    if (store_count_workspaces(call->front->store, owner, &count, &err) < 0) {
        call_fail(call, &err);
        return false;
    }
    if (count < most)
        return true;
    call_quota(call, "owner_workspaces", "'%s' has %ju workspaces, which is the quota", owner,
               (uintmax_t)count);
    return false;
}

void workspaces_create(struct call *call)
{
    static const char *const known[] = {"id", "owner", "policy", "links", "labels", NULL};
    struct store_workspace *w = &call->workspace;
    struct store_workspace other;
    struct err err;

    *w = (struct store_workspace){.bucket = call->front->settings->bucket,
                                  .policy = "{}",
                                  .links = "{}",
                                  .labels = "{}",
                                  .trash = "",
                                  .created_ms = wall_ms()};
    w->updated_ms = w->created_ms;
    if (!fields_known(call, call->body, known) || !read_identity(call, w) ||
        !read_settings(call, w) || !within_quota(call, w->owner))
        return;
    int found = store_workspace_get(call->front->store, &call->arena, w->id, &other, &err);
    if (found < 0)
        call_fail(call, &err);
    else if (found > 0)
        call_error(call, 409, "conflict", "the id '%s' is taken", w->id);
    else
        call_ask(call, REQUEST_TREE_MAKE, w->bucket, w->id, NULL, record_create);
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

    if (!call_number(call, "limit", PAGE_MAX, PAGE_DEFAULT, &limit) ||
        !call_number(call, "deleted", 1, 0, &deleted) || !call_text(call, "cursor", &cursor) ||
        !call_text(call, "owner", &owner))
        return;
    if (!(call->actor.scopes & SCOPE_ADMIN))
        owner = call->actor.owner;
    listing.list = json_array();
    if (store_workspaces(call->front->store, owner, deleted == 1, cursor, (size_t)limit, list_one,
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

static bool refuse_deleted(struct call *call)
{
    if (!call->workspace.deleted_ms)
        return false;
    call_error(call, 409, "conflict", "the workspace is in the trash; undelete it first");
    return true;
}

/* The row is written, and the workspace is the answer. */
static void finish_update(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0 ||
        store_workspace_update(call->front->store, &call->workspace, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    front_announce(call->front, "workspace.update", call->workspace.id, call->workspace.owner,
                   NULL);
    call_json(call, 200, workspace_json(call, &call->workspace));
}

void workspaces_update(struct call *call)
{
    static const char *const known[] = {"policy", "links", "labels", NULL};
    struct store_workspace *w = &call->workspace;
    bool policy = json_object_get(call->body, "policy") != NULL;

    if (refuse_deleted(call) || !fields_known(call, call->body, known) || !read_settings(call, w))
        return;
    w->updated_ms = wall_ms();
    call_record(call, w->id, policy ? "policy.set" : "workspace.update", "ok",
                json_pack("{s:o, s:o}", "policy", parsed(w->policy), "links", parsed(w->links)),
                finish_update);
}

static void finish_purge(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0 ||
        store_workspace_remove(call->front->store, call->workspace.id, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    call_empty(call);
}

static void finish_delete(struct call *call, struct answer *answer)
{
    struct store_workspace *w = &call->workspace;
    struct err err;

    if (answer_check(answer, &err) < 0 || store_workspace_update(call->front->store, w, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    front_announce(call->front, "workspace.delete", w->id, w->owner, NULL);
    if (call->context || call->front->settings->trash_ms == 0)
        call_ask(call, REQUEST_TREE_PURGE, w->bucket, w->id, w->trash, finish_purge);
    else
        call_empty(call);
}

static void record_delete(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    call_record(call, call->workspace.id, call->context ? "workspace.purge" : "workspace.delete",
                "ok", NULL, finish_delete);
}

static void trash_tree(struct call *call, struct answer *answer)
{
    struct store_workspace *w = &call->workspace;

    (void)answer; /* it was asleep already, or is now */
    call_ask(call, REQUEST_TREE_TRASH, w->bucket, w->id, w->trash, record_delete);
}

void workspaces_delete(struct call *call)
{
    struct store_workspace *w = &call->workspace;
    uint64_t purge;

    if (!call_number(call, "purge", 1, 0, &purge))
        return;
    call->context = purge ? call : NULL; /* not NULL: for good */
    if (w->deleted_ms && purge) {
        call_record(call, w->id, "workspace.purge", "ok", NULL, finish_delete);
        return;
    }
    if (refuse_deleted(call))
        return;
    w->deleted_ms = w->updated_ms = wall_ms();
    w->trash = arena_printf(&call->arena, "%jd", (intmax_t)w->deleted_ms);
    call_ask(call, REQUEST_SLEEP, w->id, "workspace deleted", NULL, trash_tree);
}

static void record_undelete(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    call->workspace.deleted_ms = 0;
    call->workspace.trash = "";
    call->workspace.updated_ms = wall_ms();
    call_record(call, call->workspace.id, "workspace.undelete", "ok", NULL, finish_update);
}

void workspaces_undelete(struct call *call)
{
    struct store_workspace *w = &call->workspace;

    if (!w->deleted_ms)
        call_error(call, 409, "conflict", "the workspace is not in the trash");
    else
        call_ask(call, REQUEST_TREE_BACK, w->bucket, w->id, w->trash, record_undelete);
}

static void slept(struct call *call, struct answer *answer)
{
    (void)answer; /* one that was asleep is what was asked for */
    call_json(call, 200, workspace_json(call, &call->workspace));
}

void workspaces_sleep(struct call *call)
{
    call_ask(call, REQUEST_SLEEP, call->workspace.id, "put to sleep", NULL, slept);
}
