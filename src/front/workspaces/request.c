/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/request.h"

#include <string.h>

#include "front/core/links.h"
#include "front/core/router.h"
#include "front/stores/mirror.h"
#include "front/workspaces/lifetime.h"
#include "front/workspaces/template_routes.h"
#include "front/workspaces/template_start.h"
#include "policy/policy.h"
#include "protocol/broker.h"

static bool had(const struct policy *old, const struct policy_store *store)
{
    for (size_t i = 0; old && i < old->store_count; i++) {
        const struct policy_store *other = &old->stores[i];
        if (strcmp(other->store, store->store) == 0 && (other->writable || !store->writable))
            return true;
    }
    return false;
}

/* Whose the files of a store are nobody knows but who set it up: others keep what they were given,
 * or give it up. False: answered. */
static bool may_mount(struct call *call, const struct policy *policy)
{
    struct policy *old = NULL;
    struct err unused;

    if ((call->actor.scopes & SCOPE_ADMIN) || policy->store_count == 0)
        return true;
    if (call->route->method == HTTP_PATCH && call->workspace.policy &&
        (old = arena_alloc(&call->arena, sizeof(*old))) &&
        policy_parse(old, &call->arena, call->workspace.policy, strlen(call->workspace.policy),
                     &unused) < 0)
        old = NULL;
    for (size_t i = 0; i < policy->store_count; i++) {
        if (had(old, &policy->stores[i]))
            continue;
        call_error(call, 403, "forbidden",
                   "only an administrator lets a workspace see the store '%s'",
                   policy->stores[i].store);
        return false;
    }
    return true;
}

/* A policy is kept as it was given, once it has been understood in full. */
bool workspace_read_policy(struct call *call, const char *template, const char **ret)
{
    struct policy *policy = arena_alloc(&call->arena, sizeof(*policy));
    json_t *object = NULL;
    struct err err;

    if (!field_object(call, call->body, "policy", &object))
        return false;
    if (!object)
        return true;
    char *text = json_compact(&call->arena, object);
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
    if (!may_mount(call, policy))
        return false;
    /* It would run on, or make one sandbox after the other by itself. */
    if (policy->tmp_exec && template_starts(call, template)) {
        call_bad_field(call, "policy.tmp", "\"sandbox\" on a template that starts a command");
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
        *ret = json_compact(&call->arena, object);
    return true;
}

/* What cannot be had of a workspace whose files lie in a layer over another's snapshot: plans, a
 * disk in an image, a copy in a store. NULL: nothing of that is asked for. */
static const char *beyond_fork(struct call *call, const struct store_workspace *w)
{
    struct policy *policy = arena_alloc(&call->arena, sizeof(*policy));
    const json_t *store = json_object_get(call->body, "store");
    struct err err;

    if ((store && !json_is_null(store)) || json_object_get(call->body, "from_store"))
        return "is not mirrored to a store";
    if (!policy || policy_parse(policy, &call->arena, w->policy, strlen(w->policy), &err) < 0)
        return "has no policy that can be read";
    if (policy->writes == POLICY_WRITES_PLAN)
        return "has no plans, as the policy's \"writes\": \"plan\" wants them";
    return policy->limits.disk_image ? "cannot have its disk in an image, as its policy wants"
                                     : NULL;
}

static bool check_fork(struct call *call, struct store_workspace *w)
{
    const char *what = *w->base ? beyond_fork(call, w) : NULL;

    if (what)
        call_error(call, 409, "is_a_fork",
                   "a fork %s; ask for it without that, or copy its files into an ordinary "
                   "workspace (carrel ws backup, carrel ws restore)",
                   what);
    else if (*w->base)
        w->store = ""; /* also where all others are mirrored */
    return !what;
}

bool workspace_read_settings(struct call *call, struct store_workspace *w)
{
    json_t *links = NULL;

    if (!workspace_read_policy(call, w->template, &w->policy) || !read_labels(call, &w->labels) ||
        !lifetime_read(call, w) || !mirror_read(call, &w->store) ||
        !field_object(call, call->body, "links", &links) || !check_fork(call, w))
        return false;
    if (!links)
        return true;
    if (!links_check(call, links, w->owner))
        return false;
    w->links = json_compact(&call->arena, links);
    return true;
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
    if (!actor_is_of(&call->actor, owner)) {
        call_error(call, 403, "forbidden", "only an administrator makes workspaces for others");
        return false;
    }
    char made[28];
    make_id('w', made);
    const char *chosen = id ? id : made;
    if (!actor_may_see(&call->actor, owner, chosen)) {
        call_error(call, 403, "forbidden",
                   "this key makes workspaces with these ids only: %.300s; give one as \"id\"",
                   call->actor.workspaces);
        return false;
    }
    w->id = arena_copy(&call->arena, chosen, strlen(chosen)); /* the body goes before the end */
    w->owner = arena_copy(&call->arena, owner, strlen(owner));
    if (w->id && w->owner)
        return true;
    call_error(call, 413, "too_large", "the request is too large");
    return false;
}

/* What an agent makes is made as its key says: nothing that a model fills in moves the boundary.
 * Links lead to other workspaces, which may have another policy. */
static bool keeps_to_key(struct call *call, const struct store_key *key)
{
    json_t *fixed = json_parsed(*key->policy ? key->policy : "{}");
    json_t *policy = NULL;
    const char *template = key->template;
    bool read = field_object(call, call->body, "policy", &policy) &&
                field_text(call, call->body, "template", PROTOCOL_ID, &template);
    const char *other = policy && !json_equal(policy, fixed)   ? "policy"
                        : strcmp(template, key->template) != 0 ? "template"
                        : json_object_get(call->body, "links") ? "links"
                        : json_object_get(call->body, "store") ? "store"
                                                               : NULL;

    json_decref(fixed);
    if (!read)
        return false;
    if (other)
        call_error(call, 403, "forbidden",
                   "an agent's key makes workspaces with the policy and the template that it was "
                   "made with, and without links: leave \"%s\" out",
                   other);
    return !other;
}

/* Of an agent's key, the policy and the name of the template. False: answered. */
static bool take_fixed(struct call *call, struct store_workspace *w, const char **ret_template)
{
    struct store_key key;
    struct err err;

    if (!actor_is_agent(&call->actor))
        return true;
    if (store_key_get(call->front->store, &call->arena, call->actor.key, &key, &err) != 1) {
        call_error(call, 401, "unauthorized", "the key is no longer valid");
        return false;
    }
    if (*key.policy)
        w->policy = key.policy;
    if (*key.template)
        *ret_template = key.template;
    return keeps_to_key(call, &key);
}

/* By name; what is kept is which one that was. */
static bool read_template(struct call *call, const char *name, const char **ret)
{
    struct store_template found;

    if (!field_text(call, call->body, "template", PROTOCOL_ID, &name))
        return false;
    if (name && !template_find(call, name, &found))
        return false;
    if (name)
        *ret = found.id;
    return true;
}

/* A name has one build at a time, whose workspace says so until it is the template, or deleted. */
static bool read_builds(struct call *call, struct store_workspace *w)
{
    const char *name = NULL;

    if (!field_text(call, call->body, "builds", PROTOCOL_ID, &name))
        return false;
    if (!name)
        return true;
    if (!protocol_id_is_valid(name)) {
        call_bad_field(call, "builds", "the name of the template that it is to become");
        return false;
    }
    if (!(call->actor.scopes & SCOPE_ADMIN)) {
        call_error(call, 403, "forbidden", "only an administrator makes templates");
        return false;
    }
    if (*w->template) {
        call_bad_field(call, "builds", "absent for a workspace that is on a template itself");
        return false;
    }
    w->builds = arena_copy(&call->arena, name, strlen(name)); /* the body goes before the end */
    if (w->builds)
        return template_name_is_free(call, name, w->id);
    call_error(call, 413, "too_large", "the request is too large");
    return false;
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

/* What a fork has of the workspace that it is of: its template, whose environments it shows, and,
 * if nothing else is said, its policy and links. False: answered. */
static bool take_after(struct call *call, const char *of, const char *snapshot,
                       struct store_workspace *w)
{
    struct store_workspace parent;
    struct err err;
    int found = store_workspace_get(call->front->store, &call->arena, of, &parent, &err);

    if (found < 0) {
        call_fail(call, &err);
        return false;
    }
    if (found == 0 || !actor_may_see(&call->actor, parent.owner, parent.id) ||
        strcmp(parent.owner, w->owner) != 0) {
        call_error(call, 404, "not_found", "there is no workspace '%s' of this owner", of);
        return false;
    }
    if (parent.deleted_ms) {
        call_error(call, 409, "conflict", "the workspace '%s' is in the trash", of);
        return false;
    }
    w->bucket = parent.bucket;
    w->template = parent.template;
    if (!actor_is_agent(&call->actor)) { /* of its key otherwise */
        w->policy = parent.policy;
        w->links = parent.links;
    }
    w->base = arena_printf(&call->arena, "%s/%s", parent.id, snapshot);
    if (!w->base)
        call_error(call, 413, "too_large", "the request is too large");
    return w->base != NULL;
}

static bool read_fork(struct call *call, struct store_workspace *w)
{
    static const char *const known[] = {"workspace", "snapshot", NULL};
    json_t *fork = NULL;
    const char *of = NULL;
    const char *snapshot = NULL;

    if (!field_object(call, call->body, "fork", &fork))
        return false;
    if (!fork)
        return true;
    if (!fields_known(call, fork, known) ||
        !field_text(call, fork, "workspace", PROTOCOL_ID, &of) ||
        !field_text(call, fork, "snapshot", PROTOCOL_ID, &snapshot))
        return false;
    if (!of || !protocol_id_is_valid(of)) {
        call_bad_field(call, "fork.workspace", "the id of the workspace that it is of");
        return false;
    }
    if (!snapshot || !protocol_snapshot_id_is_valid(snapshot)) {
        call_bad_field(call, "fork.snapshot", "the id of one of its snapshots, \"s...\"");
        return false;
    }
    if (json_object_get(call->body, "template") || json_object_get(call->body, "builds") ||
        json_object_get(call->body, "python") || json_object_get(call->body, "node")) {
        call_bad_field(call, "fork", "without template, builds, python and node");
        return false;
    }
    return take_after(call, of, snapshot, w);
}

bool workspace_read(struct call *call, struct store_workspace *ret)
{
    const char *template = NULL;

    return read_identity(call, ret) && take_fixed(call, ret, &template) && read_fork(call, ret) &&
           (*ret->base || read_template(call, template, &ret->template)) &&
           workspace_read_settings(call, ret) && within_quota(call, ret->owner) &&
           read_builds(call, ret);
}
