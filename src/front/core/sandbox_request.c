/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/sandbox_request.h"

#include <string.h>

#include "front/core/links.h"
#include "policy/policy.h"

static const char *const *mounts_of(struct call *call, const struct policy *policy)
{
    const char **list = arena_alloc(&call->arena, (3 * policy->mount_count + 1) * sizeof(*list));

    for (size_t i = 0; list && i < policy->mount_count; i++) {
        const struct carrel_mount *mount = &policy->mounts[i];
        list[3 * i] = mount->source;
        list[3 * i + 1] = mount->target ? mount->target : mount->source;
        list[3 * i + 2] = mount->writable ? "rw" : "ro";
    }
    return list;
}

static const char *const *stores_of(struct call *call, const struct policy *policy)
{
    const char **list = arena_alloc(&call->arena, (3 * policy->store_count + 1) * sizeof(*list));

    for (size_t i = 0; list && i < policy->store_count; i++) {
        list[3 * i] = policy->stores[i].store;
        list[3 * i + 1] = policy->stores[i].at;
        list[3 * i + 2] = policy->stores[i].writable ? "rw" : "ro";
    }
    return list;
}

/* Its system is the workspace's, whose commands are root's only where the policy has one, too. */
static bool take_base(struct call *call, const json_t *spec, struct policy *policy)
{
    const char *base = json_string_value(json_object_get(spec, "base"));

    if (!base || policy->base)
        return true;
    policy->base = arena_copy(&call->arena, base, strlen(base));
    policy->no_root = true;
    return policy->base != NULL;
}

/* What the template says for all that stand on it: "NAME=value", and its base. False: answered. */
static bool take_template(struct call *call, const char *id, struct policy *policy,
                          const char *const **ret)
{
    struct store_template t;
    const char *name;
    json_t *value;
    struct err err;
    size_t n = 0;
    int found = store_template_get(call->front->store, &call->arena, id, &t, &err);

    if (found < 1) {
        if (found == 0)
            err_set(&err, ERR_IO, 0, "the template of the workspace is gone");
        call_fail(call, &err);
        return false;
    }
    json_t *spec = json_parsed(t.spec);
    json_t *env = json_object_get(spec, "env");
    const char **list = arena_alloc(&call->arena, (json_object_size(env) + 1) * sizeof(*list));
    json_object_foreach(env, name, value)
    {
        char *text =
            list ? arena_printf(&call->arena, "%s=%s", name, json_string_value(value)) : NULL;
        if (text)
            list[n++] = text;
    }
    bool whole = list && n == json_object_size(env) && take_base(call, spec, policy);
    json_decref(spec);
    if (!whole)
        call_error(call, 413, "too_large", "the template's environment is too large");
    *ret = list;
    return whole;
}

/* In a system of the workspace's own a command may be root's, where the policy does not forbid it.
 * The sandbox is the user's all the same. False: answered. */
static bool choose_user(struct call *call, const struct policy *policy, struct carrel_spec *spec,
                        struct exec_message *m)
{
    if (!policy->base)
        return true;
    m->root = spec->user == CARREL_USER_ROOT ||
              (spec->user == CARREL_USER_DEFAULT && policy->user == CARREL_USER_ROOT);
    if (m->root && policy->no_root) {
        call_error(
            call, 403, "forbidden",
            "the workspace's policy says that no command is root's (\"root\": false in "
            "\"system\"), or has no \"system\", which a template's base alone does not allow");
        return false;
    }
    spec->user = CARREL_USER_USER;
    return true;
}

bool sandbox_request_make(struct call *call, struct carrel_spec *spec,
                          struct sandbox_request *wanted)
{
    struct policy *policy = arena_alloc(&call->arena, sizeof(*policy));
    struct exec_message *m = &wanted->message;
    struct carrel_limits own = spec->limits;
    struct err err;

    if (!policy) {
        call_error(call, 413, "too_large", "the request is too large");
        return false;
    }
    spec->env = m->env;
    if (policy_parse(policy, &call->arena, call->workspace.policy, strlen(call->workspace.policy),
                     &err) < 0) {
        call_fail(call, &err);
        return false;
    }
    const char *const *env = NULL;
    if (*call->workspace.template && !take_template(call, call->workspace.template, policy, &env))
        return false;
    if (!choose_user(call, policy, spec, m))
        return false;
    if (policy_apply(policy, &call->arena, spec, &err) < 0) {
        call_fail(call, &err);
        return false;
    }
    bool as_root =
        policy->user == CARREL_USER_ROOT && !policy->base; /* decided when the sandbox is made */
    if (as_root && spec->user == CARREL_USER_USER) {
        call_bad_field(call, "user", "\"root\" here, as the workspace's policy says");
        return false;
    }
    m->env = spec->env;
    m->timeout_ms = spec->timeout_ms;
    m->limits = own;
    wanted->output_bytes = spec->output_bytes;
    m->spec = (struct spec_message){.level = CARREL_LEVEL_NS,
                                    .net = policy->net,
                                    .owner = call->workspace.owner,
                                    .net_rules = spec->net_rules,
                                    .net_connections = policy->net_connections,
                                    .net_bytes_per_hour = policy->net_bytes_per_hour,
                                    .user = policy->base ? CARREL_USER_USER : policy->user,
                                    .limits = policy->limits,
                                    .tmp_bytes = policy->tmp_bytes,
                                    .tmp_exec = policy->tmp_exec,
                                    .mounts = mounts_of(call, policy),
                                    .stores = stores_of(call, policy)};
    m->spec.base = policy->base ? policy->base : "";
    m->spec.no_sudo = policy->no_root || policy->no_sudo;
    m->spec.template = call->workspace.template;
    m->spec.env = env;
    if (!links_apply(call, &m->spec))
        return false;
    m->bucket = call->workspace.bucket;
    m->workspace = call->workspace.id;
    m->actor = call->actor.name;
    m->request = call->id;
    m->plan = "";
    return true;
}

bool sandbox_request_plain(struct call *call, const char *const *argv, struct sandbox_request *ret)
{
    struct carrel_spec spec = {0};

    *ret = (struct sandbox_request){.message = {.cwd = "/", .argv = argv}};
    ret->message.env = arena_alloc(&call->arena, sizeof(char *));
    return sandbox_request_make(call, &spec, ret);
}

struct quota_request sandbox_request_quota(const struct call *call,
                                           const struct sandbox_request *wanted)
{
    const struct exec_message *m = &wanted->message;

    /* The sandbox of a plan is another one than the workspace's. */
    const char *name = wanted->plan.is_plan ? wanted->plan.quota_name : m->workspace;

    return (struct quota_request){.workspace = name,
                                  .owner = call->workspace.owner,
                                  .memory_bytes = m->spec.limits.memory_bytes,
                                  .pids = m->spec.limits.pids,
                                  .starts_nothing = call->planned && !wanted->plan.is_plan};
}
