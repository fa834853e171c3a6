/* SPDX-License-Identifier: Apache-2.0 */
/* What the body of an exec request says of plans. */
#include <stdio.h>
#include <string.h>

#include "front/plans/planned.h"
#include "protocol/broker.h"

/* The plan, if one is named, is the one that all of it goes into anyway. */
static bool read_shared(struct call *call, struct plan_request *w, const char *mode)
{
    const char *id = NULL;
    bool keep_open;

    if (mode && strcmp(mode, "plan") != 0) {
        call_error(call, 403, "forbidden",
                   "an agent's key runs commands in this workspace in its plan only, as the policy "
                   "says \"writes\": \"plan\"; leave \"mode\" out");
        return false;
    }
    if (!field_text(call, call->body, "plan", PLAN_ID, &id) ||
        !field_flag(call, call->body, "keep_open", &keep_open) ||
        planned_find(call, PLANNED_BEGINS, w) < 0)
        return false;
    if (!id || strcmp(id, w->id) == 0)
        return true;
    call_error(call, 409, "conflict",
               "an agent's key runs commands in this workspace in its open plan only, and '%s' is "
               "not that one; leave \"plan\" out",
               id);
    return false;
}

static bool read_id(struct call *call, struct plan_request *w)
{
    const char *id = NULL;
    char made[PLAN_ID];

    if (!field_text(call, call->body, "plan", PLAN_ID, &id) ||
        !field_flag(call, call->body, "keep_open", &w->keep_open))
        return false;
    if (!w->is_plan && (id || w->keep_open)) {
        call_bad_field(call, "mode", "\"plan\" where \"plan\" or \"keep_open\" is given");
        return false;
    }
    if (id && !protocol_plan_id_is_valid(id)) {
        call_error(call, 404, "plan_not_found", "there is no such plan in this workspace");
        return false;
    }
    w->is_new = !id;
    if (w->is_plan && !id) {
        make_id('p', made);
        id = made;
    }
    w->id = id ? arena_copy(&call->arena, id, strlen(id)) : "";
    snprintf(w->quota_name, sizeof(w->quota_name), "plan:%s", w->id ? w->id : "");
    return w->id != NULL;
}

bool plan_request_read(struct call *call, struct plan_request *ret)
{
    const char *mode = NULL;

    *ret = (struct plan_request){.id = ""};
    if (!field_text(call, call->body, "mode", 16, &mode))
        return false;
    if (mode && strcmp(mode, "plan") != 0 && strcmp(mode, "direct") != 0) {
        call_bad_field(call, "mode", "\"plan\" or \"direct\"");
        return false;
    }
    if (call->planned)
        return read_shared(call, ret, mode);
    ret->is_plan = mode && strcmp(mode, "plan") == 0;
    return read_id(call, ret);
}
