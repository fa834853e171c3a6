/* SPDX-License-Identifier: Apache-2.0 */
#include "front/plans/planned.h"

#include <stdio.h>
#include <string.h>

static void use(struct plan_request *w, const char *id, bool is_new)
{
    *w = (struct plan_request){
        .is_plan = true, .keep_open = true, .is_new = is_new, .shared = true, .id = id};
    snprintf(w->quota_name, sizeof(w->quota_name), "plan:%s", id);
}

/* 1, 0; -1: answered. */
static int look_for(struct call *call, const char *key, struct plan_request *ret)
{
    struct store_plan row;
    struct err err;
    int found =
        store_plan_shared(call->front->store, &call->arena, call->workspace.id, key, &row, &err);

    if (found < 0)
        call_fail(call, &err);
    if (found > 0)
        use(ret, row.id, false);
    return found;
}

int planned_find(struct call *call, enum planned_need need, struct plan_request *ret)
{
    char made[PLAN_ID];
    int found = look_for(call, call->actor.key, ret);

    if (found != 0 || need == PLANNED_READS)
        return found;
    make_id('p', made);
    const char *id = arena_copy(&call->arena, made, strlen(made));
    if (!id) {
        call_error(call, 413, "too_large", "the request is too large");
        return -1;
    }
    use(ret, id, true);
    return 1;
}

bool planned_goes_on(struct call *call, const struct plan_request *w)
{
    struct store_plan row;
    struct arena arena;
    struct err err;

    if (!w->is_plan)
        return true;
    arena_init(&arena, 8UL << 20);
    bool open = !plan_is_busy(call->front, w->id) &&
                store_plan_get(call->front->store, &arena, w->id, &row, &err) == 1 &&
                plan_state_allows(row.state, PLAN_ACT_CONTINUE);
    arena_clear(&arena);
    return open;
}

int planned_find_of(struct call *call, const char *actor, struct plan_request *ret)
{
    static const char prefix[] = "key:";
    const char *key = call->actor.key;
    struct store_key row;
    struct err err;

    if (!call->planned) {
        bool is_key = strncmp(actor, prefix, sizeof(prefix) - 1) == 0;
        key = actor + sizeof(prefix) - 1;
        int known = is_key ? store_key_get(call->front->store, &call->arena, key, &row, &err) : 0;
        if (known < 0) {
            call_fail(call, &err);
            return -1;
        }
        if (known == 0 || !planned_is(&(struct actor){.scopes = row.scopes}, &call->workspace))
            return 0;
    }
    int found = look_for(call, key, ret);
    if (found == 0)
        call_error(call, 502, "port_closed",
                   "an agent's server runs in an open plan, and this key has none; start the "
                   "server by a command");
    return found > 0 ? 1 : -1;
}
