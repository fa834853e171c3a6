/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/templates. Freezing is recorded before anything of it is done, and when it is over:
 *
 *   create   record, row (freezing), tree, row (ready) and the workspace's row gone, record
 *   delete   record, row (removing), files, row gone, record
 *
 * The row says what is to become of it: front/workspaces/templates.h. A name is taken by the
 * workspace that builds it, from its creation on, or else by the first that is frozen. */
#include "front/workspaces/template_routes.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/router.h"
#include "front/workspaces/builds.h"
#include "front/workspaces/routes.h"
#include "front/workspaces/template_start.h"
#include "front/workspaces/templates.h"
#include "front/workspaces/trash.h"
#include "protocol/broker.h"

enum {
    LONGEST_SPEC = 128 << 10,
    MOST_ENV = 1000,
    MOST_NAMED = 5, /* workspaces that are in the way */
    MINUTE_MS = 60 * 1000,
};

static json_t *template_json(const struct call *call, const struct store_template *t)
{
    const char *owner = call->actor.scopes & SCOPE_ADMIN ? NULL : call->actor.owner;
    bool is_limited = actor_is_limited(&call->actor); /* how many there are is not for it to know */
    uint64_t users = 0;
    struct err err;

    ignore(store_template_users(call->front->store, t->id, owner, &users, &err) == 0);
    json_t *spec = json_parsed(t->spec);
    if (owner) { /* how to use it is for all, what its environment holds is not */
        json_object_del(spec, "env");
        json_object_del(spec, "start");
        json_object_del(spec, "services");
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:o, s:o}", "id", t->id, "name", t->name,
                     "state", t->state, "spec", spec, "bytes", (json_int_t)t->bytes, "files",
                     (json_int_t)t->files, "created", time_json(t->created_ms), "workspaces",
                     is_limited ? json_null() : json_integer((json_int_t)users));
}

bool template_find(struct call *call, const char *name, struct store_template *ret)
{
    struct err err;
    int found = store_template_named(call->front->store, &call->arena, name, ret, &err);

    if (found == 1)
        return true;
    if (found < 0)
        call_fail(call, &err);
    else
        call_error(call, 404, "not_found", "there is no template '%.64s'", name);
    return false;
}

json_t *template_brief(struct front *front, const char *id)
{
    struct store_template t;
    struct arena arena;
    struct err err;
    json_t *brief = NULL;

    if (!id || !*id)
        return json_null();
    arena_init(&arena, 1UL << 20);
    if (store_template_get(front->store, &arena, id, &t, &err) == 1)
        brief = json_pack("{s:s, s:s}", "id", t.id, "name", t.name);
    arena_clear(&arena);
    return brief ? brief : json_pack("{s:s, s:n}", "id", id, "name");
}

/* --- whose name it is --- */

/* A build is given up with its workspace; one that does nothing any more is, here and now. */
static void refuse_building(struct call *call, const struct store_workspace *w)
{
    int64_t age_ms = wall_ms() - w->created_ms;

    if (build_is_abandoned(call->front, w)) {
        build_drop(call->front, w->id);
        call_error(call, 409, "conflict",
                   "the daemon is removing an abandoned build of the template '%s', in the "
                   "workspace '%s'; build again in a moment",
                   w->builds, w->id);
        return;
    }
    call_error(call, 409, "conflict",
               "the template '%s' is being built in the workspace '%s', for %jd min; wait for it, "
               "or, if that build was killed: carrel ws rm --purge %s",
               w->builds, w->id, (intmax_t)(age_ms / MINUTE_MS), w->id);
}

bool template_name_is_free(struct call *call, const char *name, const char *workspace)
{
    struct store_workspace w;
    struct store_template t;
    struct err err;
    int built = store_build_of(call->front->store, &call->arena, name, &w, &err);
    int frozen =
        built < 0 ? -1 : store_template_freezing(call->front->store, &call->arena, name, &t, &err);

    if (built < 0 || frozen < 0)
        call_fail(call, &err);
    else if (built && strcmp(w.id, workspace) != 0)
        refuse_building(call, &w);
    else if (frozen)
        call_error(call, 409, "conflict",
                   "the daemon is turning the workspace '%s' into the template '%s'; see GET "
                   "/v1/templates/%s, and try again when that has ended",
                   t.workspace, name, t.id);
    else
        return true;
    return false;
}

bool template_name_take(struct call *call, const char *name, struct change *change)
{
    /* No workspace has such an id. */
    const char *key = arena_printf(&call->arena, "template:%s", name);

    return key && change_begin(change, key);
}

void template_refuse_name(struct call *call, const char *name)
{
    call_error(call, 409, "conflict",
               "another build of the template '%s' has just begun; wait for it", name);
}

/* --- what it says --- */

static bool check_base(struct call *call, json_t *spec)
{
    const char *base = NULL;

    if (!field_text(call, spec, "base", PROTOCOL_ID, &base))
        return false;
    if (base && !protocol_id_is_valid(base)) {
        call_bad_field(call, "spec.base", "the name of a base, such as \"debian-12\"");
        return false;
    }
    return true;
}

static bool check_env(struct call *call, json_t *spec)
{
    json_t *env = NULL;
    const char *name;
    json_t *value;

    if (!field_object(call, spec, "env", &env))
        return false;
    if (json_object_size(env) > MOST_ENV) {
        call_bad_field(call, "spec.env", "at most 1000 variables");
        return false;
    }
    json_object_foreach(env, name, value)
    {
        const char *text = json_string_value(value);
        if (!text || strlen(text) != json_string_length(value) || !*name || strchr(name, '=')) {
            call_bad_field(call, "spec.env",
                           "an object of texts; names are not empty and have no '='");
            return false;
        }
    }
    return true;
}

static bool read_spec(struct call *call, const char **ret)
{
    json_t *spec = NULL;

    *ret = "{}";
    if (!field_object(call, call->body, "spec", &spec))
        return false;
    if (!spec)
        return true;
    if (!check_base(call, spec) || !check_env(call, spec) || !template_start_check(call, spec))
        return false;
    char *text = json_dumps(spec, JSON_COMPACT);
    *ret =
        text && strlen(text) <= LONGEST_SPEC ? arena_copy(&call->arena, text, strlen(text)) : NULL;
    free(text);
    if (!*ret)
        call_error(call, 413, "too_large", "the spec is larger than 128 KiB");
    return *ret != NULL;
}

/* --- create --- */

/* The context of its call. */
struct freezing {
    struct change change;
    struct change name;
    struct store_template row;
    char id[28];
    struct err failed;
};

static void end_change(struct call *call)
{
    struct freezing *f = call->context;

    change_end(&f->change);
    change_end(&f->name);
}

/* What is still under way ends the change itself. */
static void left(struct call *call)
{
    if (call->pending == 0)
        end_change(call);
}

static void fail(struct call *call, const struct err *err)
{
    end_change(call);
    call_fail(call, err);
}

static void record(struct call *call, const char *result, const char *error, call_heard *heard)
{
    const struct freezing *f = call->context;
    unsigned pending = call->pending;
    json_t *details = json_pack("{s:s, s:s, s:b}", "template", f->id, "name", f->row.name,
                                "share_cache", f->row.share_cache);

    if (error)
        json_object_set_new(details, "error", json_string(error));
    call_record(call, f->row.workspace, "template.create", result, details, heard);
    if (call->pending != pending)
        return;
    end_change(call); /* without memory for the question nobody hears the answer */
    call_error(call, 503, "unavailable", "out of memory");
}

static void recorded_failure(struct call *call, struct answer *answer)
{
    const struct freezing *f = call->context;

    (void)answer; /* if this cannot be recorded, the log of the broker says so */
    fail(call, &f->failed);
}

static void fail_recorded(struct call *call, const struct err *err)
{
    struct freezing *f = call->context;
    char text[512];

    f->failed = *err;
    record(call, "failed", err_text(err, text, sizeof(text)), recorded_failure);
}

static void recorded_end(struct call *call, struct answer *answer)
{
    struct freezing *f = call->context;
    struct store_template t;
    struct err err;

    (void)answer; /* it is done; if this cannot be recorded, the log of the broker says so */
    end_change(call);
    int found = store_template_get(call->front->store, &call->arena, f->id, &t, &err);
    if (found < 0)
        call_fail(call, &err);
    else if (found == 0)
        call_error(call, 409, "conflict", "another template of that name has just replaced it");
    else
        call_json(call, 201, template_json(call, &t));
    templates_sweep(call->front); /* whom it has replaced may go */
}

/* Neither done nor taken back: the sweep goes on, and whoever asked looks again. */
static void recorded_undecided(struct call *call, struct answer *answer)
{
    const struct freezing *f = call->context;

    (void)answer;
    end_change(call);
    call_json(call, 202, template_json(call, &f->row));
    templates_sweep(call->front);
}

static void settled(void *context, enum template_end end, const struct err *failed)
{
    struct call *call = context;
    const struct freezing *f = call->context;
    char text[512];

    if (end == TEMPLATE_READY) {
        front_announce(call->front, "workspace.delete", f->row.workspace, f->row.owner, NULL);
        record(call, "ok", NULL, recorded_end);
    } else if (end == TEMPLATE_UNDECIDED) {
        record(call, "undecided", err_text(failed, text, sizeof(text)), recorded_undecided);
    } else {
        fail_recorded(call, failed);
    }
    call_release(call);
}

static void begin(struct call *call, struct answer *answer)
{
    const struct freezing *f = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        fail(call, &err);
        return;
    }
    if (store_template_add(call->front->store, &f->row, &err) < 0) {
        fail_recorded(call, &err);
        return;
    }
    call->pending++;
    template_settle(call->front, &f->row, false, settled, call);
}

/* True: the workspace can be frozen, as far as is known here. */
static bool find_workspace(struct call *call, const char *id, struct store_workspace *w)
{
    struct err err;
    struct store_undecided waiting = {.plans = 0};
    int found = store_workspace_get(call->front->store, &call->arena, id, w, &err);

    if (found < 0 ||
        (found && store_plans_count_undecided(call->front->store, id, NULL, &waiting, &err) < 0))
        call_fail(call, &err);
    else if (found == 0)
        call_error(call, 404, "not_found", "there is no workspace '%s'", id);
    else if (w->deleted_ms)
        call_error(call, 409, "conflict", "the workspace '%s' is in the trash", id);
    else if (*w->base)
        call_error(call, 409, "is_a_fork",
                   "the workspace '%s' is a fork, and cannot become a template; copy its files "
                   "into an ordinary workspace first (carrel ws backup, carrel ws restore)",
                   w->id);
    else if (*w->template)
        call_error(call, 409, "conflict",
                   "the workspace '%s' is on a template itself; build the new one in a workspace "
                   "that is on none",
                   id);
    else if (waiting.plans > 0)
        call_error(call, 409, "conflict",
                   "the workspace '%s' has plans that are neither applied nor discarded", id);
    else
        return true;
    return false;
}

static bool builds_this(struct call *call, const struct store_workspace *w, const char *name)
{
    if (!*w->builds || strcmp(w->builds, name) == 0)
        return true;
    call_error(call, 409, "conflict", "the workspace '%s' builds the template '%s', not '%s'",
               w->id, w->builds, name);
    return false;
}

void templates_create(struct call *call)
{
    static const char *const known[] = {"name", "workspace", "spec", "share_cache", NULL};
    struct freezing *f = arena_alloc(&call->arena, sizeof(*f));
    struct store_workspace w;
    const char *name = NULL;
    const char *workspace = NULL;
    const char *spec;
    bool share_cache = false;

    if (!f) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "name", PROTOCOL_ID, &name) ||
        !field_text(call, call->body, "workspace", PROTOCOL_ID, &workspace) ||
        !field_flag(call, call->body, "share_cache", &share_cache) || !read_spec(call, &spec))
        return;
    if (!name || !protocol_id_is_valid(name)) {
        call_bad_field(call, "name",
                       "1 to 64 of letters, digits, '.', '_' and '-', a letter or digit first");
        return;
    }
    if (!workspace || !protocol_id_is_valid(workspace)) {
        call_bad_field(call, "workspace", "the id of the workspace that is to become a template");
        return;
    }
    if (!find_workspace(call, workspace, &w) || !builds_this(call, &w, name) ||
        !template_name_is_free(call, name, w.id))
        return;
    make_id('t', f->id);
    f->row = (struct store_template){.id = f->id,
                                     .name = name,
                                     .owner = w.owner,
                                     .spec = spec,
                                     .workspace = w.id,
                                     .state = "freezing",
                                     .share_cache = share_cache,
                                     .created_ms = wall_ms()};
    if (!change_begin(&f->change, w.id)) {
        call_error(call, 409, "conflict", "another change of this workspace is under way");
        return;
    }
    if (!template_name_take(call, name, &f->name)) {
        change_end(&f->change);
        template_refuse_name(call, name);
        return;
    }
    call->context = f;
    call->abandoned = left;
    record(call, "asked", NULL, begin);
}

/* --- look --- */

struct listing {
    struct call *call;
    json_t *list;
};

static bool list_one(void *context, const struct store_template *t)
{
    struct listing *listing = context;

    return json_array_append_new(listing->list, template_json(listing->call, t)) == 0;
}

void templates_list(struct call *call)
{
    struct listing listing = {.call = call};
    const char *cursor;
    uint64_t limit;
    struct err err;

    if (!call_limit(call, &limit) || !call_text(call, "cursor", &cursor))
        return;
    listing.list = json_array();
    if (store_templates(call->front->store, false, cursor, (size_t)limit, list_one, &listing,
                        &err) < 0) {
        json_decref(listing.list);
        call_fail(call, &err);
        return;
    }
    size_t n = json_array_size(listing.list);
    json_t *next = n && n == limit
                       ? json_incref(json_object_get(json_array_get(listing.list, n - 1), "name"))
                       : json_null();
    call_json(call, 200, json_pack("{s:o, s:o}", "templates", listing.list, "next", next));
}

/* Also by its id, in any state: whoever was answered 202 has only that. */
void templates_get(struct call *call)
{
    const char *name = call->params[0];
    struct store_template t;
    struct err err;
    bool by_id = protocol_template_id_is_valid(name) &&
                 store_template_get(call->front->store, &call->arena, name, &t, &err) == 1;

    if (by_id || template_find(call, name, &t))
        call_json(call, 200, template_json(call, &t));
}

/* --- delete --- */

/* The context of its call. */
struct deleting {
    struct change change;
    struct store_template row;
    uint64_t users; /* since it was asked */
    struct err failed;
};

static void left_delete(struct call *call)
{
    struct deleting *d = call->context;

    if (call->pending == 0)
        change_end(&d->change);
}

static void record_delete(struct call *call, const char *result, const char *error,
                          call_heard *heard)
{
    struct deleting *d = call->context;
    unsigned pending = call->pending;
    json_t *details = json_pack("{s:s, s:s}", "template", d->row.id, "name", d->row.name);

    if (error)
        json_object_set_new(details, "error", json_string(error));
    call_record(call, "", "template.delete", result, details, heard);
    if (call->pending != pending)
        return;
    change_end(&d->change);
    call_error(call, 503, "unavailable", "out of memory");
}

static void refuse_used(struct call *call, const struct store_template *t, uint64_t users)
{
    const char *names[MOST_NAMED];
    scoped_buf struct buf text;
    struct err err;

    buf_init(&text, 4096);
    int n =
        store_template_user_names(call->front->store, &call->arena, t->id, names, MOST_NAMED, &err);
    for (int i = 0; i < n; i++)
        buf_printf(&text, "%s%s", i ? ", " : "", names[i]);
    call_error(call, 409, "conflict",
               "%ju workspace%s the template '%s', in the trash or not (%s%s); purge them first",
               (uintmax_t)users, users == 1 ? " uses" : "s use", t->name,
               buf_done(&text) == 0 ? text.p : "", users > MOST_NAMED ? ", ..." : "");
}

static void recorded_not_deleted(struct call *call, struct answer *answer)
{
    struct deleting *d = call->context;

    (void)answer; /* if this cannot be recorded, the log of the broker says so */
    change_end(&d->change);
    if (d->users > 0)
        refuse_used(call, &d->row, d->users);
    else
        call_fail(call, &d->failed);
}

static void fail_delete(struct call *call, const struct err *err)
{
    struct deleting *d = call->context;
    char text[512];

    d->failed = *err;
    record_delete(call, "failed", err_text(err, text, sizeof(text)), recorded_not_deleted);
}

static void recorded_deleted(struct call *call, struct answer *answer)
{
    struct deleting *d = call->context;

    (void)answer;
    change_end(&d->change);
    call_empty(call);
}

static void files_removed(void *context, const struct err *failed)
{
    struct call *call = context;

    if (failed)
        fail_delete(call, failed); /* the sweep goes on, and records that it is done */
    else
        record_delete(call, "ok", NULL, recorded_deleted);
    call_release(call);
}

static void delete_asked(struct call *call, struct answer *answer)
{
    struct deleting *d = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        change_end(&d->change);
        call_fail(call, &err);
        return;
    }
    int marked = store_template_removing(call->front->store, d->row.id, &err);
    if (marked == 0 &&
        store_template_users(call->front->store, d->row.id, NULL, &d->users, &err) < 0)
        marked = -1;
    if (marked == 0 && d->users == 0)
        marked = err_set(&err, ERR_CONFLICT, 0,
                         "another request has just changed the template; try again");
    if (marked < 0) {
        fail_delete(call, &err);
    } else if (marked == 0) { /* since it was looked at */
        record_delete(call, "failed", "workspaces use it", recorded_not_deleted);
    } else {
        call->pending++;
        template_remove(call->front, d->row.id, files_removed, call);
    }
}

void templates_delete(struct call *call)
{
    struct deleting *d = arena_alloc(&call->arena, sizeof(*d));
    uint64_t users;
    struct err err;

    if (!d) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    if (!template_find(call, call->params[0], &d->row))
        return;
    if (store_template_users(call->front->store, d->row.id, NULL, &users, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    if (users > 0) {
        refuse_used(call, &d->row, users);
        return;
    }
    if (!change_begin(&d->change, d->row.id)) {
        call_error(call, 409, "conflict", "the template is being deleted already");
        return;
    }
    call->context = d;
    call->abandoned = left_delete;
    record_delete(call, "asked", NULL, delete_asked);
}
