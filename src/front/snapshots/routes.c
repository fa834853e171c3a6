/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of a workspace. There is no row of them: what a directory of Carrel's own holds is what
 * there is, and it changes by one rename (plan/trees/kept.h). So no crash leaves the two apart. */
#include "front/snapshots/routes.h"

#include <string.h>

#include "base/text.h"
#include "front/core/record.h"
#include "front/snapshots/job.h"
#include "front/workspaces/trash.h"

#define SNAPSHOTS "/v1/workspaces/{ws}/snapshots"

const struct route snapshot_routes[] = {
    {HTTP_POST, SNAPSHOTS, WORKERS, BODY_SMALL, 0, snapshots_create, "", NOT_IN_PLAN},
    {HTTP_GET, SNAPSHOTS, READERS, 0, 0, snapshots_list, "", IN_PLAN},
    {HTTP_GET, SNAPSHOTS "/{name}", READERS, 0, 0, snapshots_get, "", IN_PLAN},
    {HTTP_DELETE, SNAPSHOTS "/{name}", OWNERS, 0, 0, snapshots_delete, "", NOT_IN_PLAN},
    {HTTP_POST, SNAPSHOTS "/{name}/restore", WORKERS, BODY_SMALL, 0, snapshots_restore, "",
     IN_PLAN},
    {HTTP_POST, "/v1/workspaces/{ws}/merge", WORKERS, BODY_FILES, 0, snapshots_merge, "", IN_PLAN},
    {HTTP_POST, "/v1/workspaces/{ws}/compare", WORKERS, BODY_SMALL, 0, snapshots_compare, "",
     IN_PLAN},
    ROUTES_END,
};

enum {
    NAME_MOST = 64,
};

/* As clients see it. */
static json_t *shown(const json_t *meta)
{
    json_t *object = json_deep_copy(meta);
    json_t *name = json_object_get(object, "name");

    json_object_set_new(object, "created",
                        time_json(json_integer_value(json_object_get(meta, "created_ms"))));
    json_object_del(object, "created_ms");
    if (json_string_length(name) == 0)
        json_object_set_new(object, "name", json_null());
    return object;
}

static void record(struct call *call, const char *operation, const char *result, json_t *details)
{
    struct front_record r = {.actor = call->actor.name,
                             .request = call->id,
                             .workspace = call->workspace.id,
                             .operation = operation,
                             .result = result};

    front_record(call->front, &r, details, NULL, NULL);
}

/* Begins with a record, which is on disk before anything is done. False: answered. */
static bool begin(struct call *call, const char *operation, json_t *details, call_heard *heard)
{
    unsigned pending = call->pending;

    call_record(call, call->workspace.id, operation, "ok", details, heard);
    if (call->pending != pending)
        return true;
    call_error(call, 503, "unavailable", "out of memory");
    return false;
}

/* --- making one --- */

struct wish {
    char id[28];
    const char *name;
};

static void made(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    json_t *object = shown(answer);

    json_object_set_new(object, "frozen_ms", json_integer((json_int_t)frozen_ms));
    front_announce(call->front, "snapshot.create", call->workspace.id, call->workspace.owner,
                   json_pack("{s:O}", "snapshot", json_object_get(answer, "id")));
    call_json(call, 201, object);
}

static void not_made(struct call *call)
{
    const struct wish *wish = call->context;

    record(call, "snapshot.create", "failed", json_pack("{s:s}", "snapshot", wish->id));
}

static void make(struct call *call, struct answer *answer)
{
    static const struct job_calls calls = {.done = made, .failed = not_made};
    const struct wish *wish = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    job_start(call,
              &(struct job_wish){.verb = PLAN_SNAPSHOT,
                                 .job = json_pack("{s:s, s:s, s:s}", "id", wish->id, "name",
                                                  wish->name, "actor", call->actor.name)},
              &calls);
}

static bool name_is_fine(const char *name)
{
    static const char known[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

    return strspn(name, known) == strlen(name) && *name != '.' && *name != '-' &&
           !(strlen(name) == 27 && *name == 's'); /* as our own ids */
}

void snapshots_create(struct call *call)
{
    static const char *const known[] = {"name", NULL};
    struct wish *wish = arena_alloc(&call->arena, sizeof(*wish));

    if (!wish) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    wish->name = "";
    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "name", NAME_MOST, &wish->name))
        return;
    if (!name_is_fine(wish->name)) {
        call_bad_field(call, "name",
                       "up to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit");
        return;
    }
    if (job_refused(call))
        return;
    make_id('s', wish->id);
    call->context = wish;
    (void)begin(
        call, "snapshot.create",
        json_pack("{s:s, s:s*}", "snapshot", wish->id, "name", *wish->name ? wish->name : NULL),
        make);
}

/* --- looking --- */

static void listed(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    json_t *list = json_array();
    json_t *meta;
    size_t i;

    (void)frozen_ms;
    json_array_foreach(json_object_get(answer, "snapshots"), i, meta)
    {
        json_array_append_new(list, shown(meta));
    }
    call_json(call, 200, json_pack("{s:o}", "snapshots", list));
}

void snapshots_list(struct call *call)
{
    static const struct job_calls calls = {.done = listed};

    if (!job_refused(call))
        job_start(call, &(struct job_wish){.verb = PLAN_SNAPSHOTS, .job = json_object()}, &calls);
}

static void found(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    (void)frozen_ms;
    call_json(call, 200, shown(json_object_get(answer, "snapshot")));
}

void snapshots_get(struct call *call)
{
    static const struct job_calls calls = {.done = found};

    if (!job_refused(call))
        job_start(call,
                  &(struct job_wish){.verb = PLAN_SNAPSHOTS,
                                     .job = json_pack("{s:s}", "find", call->params[1])},
                  &calls);
}

/* --- removing one --- */

/* Meanwhile no fork of the workspace is made. */
struct removal {
    struct change change;
    char id[28];
};

static void removed(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    struct removal *r = call->context;

    (void)answer;
    (void)frozen_ms;
    change_end(&r->change);
    front_announce(call->front, "snapshot.delete", call->workspace.id, call->workspace.owner,
                   json_pack("{s:s}", "snapshot", r->id));
    call_empty(call);
}

static void not_removed(struct call *call)
{
    struct removal *r = call->context;

    change_end(&r->change);
    record(call, "snapshot.delete", "failed", json_pack("{s:s}", "snapshot", r->id));
}

static void remove_it(struct call *call, struct answer *answer)
{
    static const struct job_calls calls = {.done = removed, .failed = not_removed};
    struct removal *r = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        change_end(&r->change);
        call_fail(call, &err);
        return;
    }
    job_start(
        call,
        &(struct job_wish){.verb = PLAN_SNAPSHOTS, .job = json_pack("{s:s}", "remove", r->id)},
        &calls);
}

struct looking_for {
    const char *id;
    bool found;
};

static void look_at(void *context, const char *snapshot)
{
    struct looking_for *l = context;

    l->found |= strcmp(snapshot, l->id) == 0;
}

/* Whether a merge may go on from it: answered. */
static bool refuse_merged(struct call *call, const char *id)
{
    struct store *store = call->front->store;
    struct looking_for l = {.id = id};
    struct err err;
    bool read =
        store_merge_tidy(store, call->workspace.id, &err) == 0 &&
        store_merge_snapshots(store, &call->arena, call->workspace.id, look_at, &l, &err) == 0;

    if (!read)
        call_fail(call, &err);
    else if (l.found)
        call_error(call, 409, "snapshot_in_use",
                   "a merge of the fork was made of it, and the next one begins from it");
    return !read || l.found;
}

/* Whether forks stand on it: answered. */
static bool refuse_used(struct call *call, const char *id)
{
    const char *names = NULL;
    struct err err;
    int n = store_workspace_forks(call->front->store, &call->arena, call->workspace.id, id, &names,
                                  &err);

    if (n < 0)
        call_fail(call, &err);
    if (n > 0)
        call_error(call, 409, "snapshot_in_use", "%d fork%s on it (%s); delete them for good first",
                   n, n == 1 ? " stands" : "s stand", names);
    return n != 0;
}

static void found_to_remove(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    struct removal *r = call->context;
    const char *id = json_string_value(json_object_get(json_object_get(answer, "snapshot"), "id"));

    (void)frozen_ms;
    text_copy(r->id, sizeof(r->id), id ? id : "");
    if (refuse_used(call, r->id) || refuse_merged(call, r->id) ||
        !begin(call, "snapshot.delete", json_pack("{s:s}", "snapshot", r->id), remove_it))
        change_end(&r->change);
}

static void not_found_to_remove(struct call *call)
{
    struct removal *r = call->context;

    change_end(&r->change);
}

void snapshots_delete(struct call *call)
{
    static const struct job_calls calls = {.done = found_to_remove, .failed = not_found_to_remove};
    struct removal *r = arena_alloc(&call->arena, sizeof(*r));

    if (job_refused(call))
        return;
    if (!r || !change_begin(&r->change, call->workspace.id)) {
        call_error(call, 409, "conflict", "another change of this workspace is under way");
        return;
    }
    call->context = r;
    job_start(call,
              &(struct job_wish){.verb = PLAN_SNAPSHOTS,
                                 .job = json_pack("{s:s}", "find", call->params[1])},
              &calls);
}
