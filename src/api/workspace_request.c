/* SPDX-License-Identifier: Apache-2.0 */
#include "api/workspace_request.h"

#include <string.h>

#include "api/links.h"
#include "api/templates.h"
#include "broker/protocol.h"
#include "policy/policy.h"

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

bool workspace_read_settings(struct call *call, struct store_workspace *w)
{
    json_t *links = NULL;

    if (!read_policy(call, &w->policy) || !read_labels(call, &w->labels) ||
        !field_object(call, call->body, "links", &links))
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
    if (!actor_may_see(&call->actor, owner)) {
        call_error(call, 403, "forbidden", "only an administrator makes workspaces for others");
        return false;
    }
    char made[28];
    make_id('w', made);
    const char *chosen = id ? id : made;
    w->id = arena_copy(&call->arena, chosen, strlen(chosen)); /* the body goes before the end */
    w->owner = arena_copy(&call->arena, owner, strlen(owner));
    if (w->id && w->owner)
        return true;
    call_error(call, 413, "too_large", "the request is too large");
    return false;
}

/* By name; what is kept is which one that was. */
static bool read_template(struct call *call, const char **ret)
{
    struct store_template found;
    const char *name = NULL;

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

bool workspace_read(struct call *call, struct store_workspace *ret)
{
    return read_identity(call, ret) && workspace_read_settings(call, ret) &&
           read_template(call, &ret->template) && within_quota(call, ret->owner) &&
           read_builds(call, ret);
}
