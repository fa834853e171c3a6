/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/planned.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "front/core/router.h"
#include "policy/policy.h"

bool planned_workspace(const struct store_workspace *w)
{
    struct arena arena;
    struct err err;

    if (strcmp(w->policy, "{}") == 0) /* as most are */
        return false;
    arena_init(&arena, 1UL << 20);
    struct policy *policy = arena_alloc(&arena, sizeof(*policy));
    bool planned = !policy ||
                   policy_parse(policy, &arena, w->policy, strlen(w->policy), &err) < 0 ||
                   policy->writes == POLICY_WRITES_PLAN;
    arena_clear(&arena);
    return planned;
}

bool planned_is(const struct actor *actor, const struct store_workspace *w)
{
    return actor_is_agent(actor) && planned_workspace(w);
}

bool planned_admits(struct call *call)
{
    const char *why = call->route->planned ? call->route->planned : NOT_IN_PLAN;

    if (!call->planned || strcmp(why, IN_PLAN) == 0)
        return true;
    call_error(call, 403, "forbidden",
               "the policy of this workspace says \"writes\": \"plan\", so an agent's key %s", why);
    return false;
}

/* Typing into somebody's shell in the tree itself would be a way around. */
bool planned_admits_exec(struct call *call, const struct store_exec *row)
{
    if (!call->planned)
        return true;
    json_t *shown = json_loads(row->command, 0, NULL);
    bool own =
        json_is_string(json_object_get(shown, "plan")) && strcmp(row->actor, call->actor.name) == 0;
    json_decref(shown);
    if (!own)
        call_error(call, 403, "forbidden",
                   "the policy of this workspace says \"writes\": \"plan\", so an agent's key acts "
                   "only on commands that it runs in its own plan");
    return own;
}
