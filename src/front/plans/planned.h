/* SPDX-License-Identifier: Apache-2.0 */
/* The plan that all goes into which an agent's key changes in a workspace of planned writes
 * (core/planned.h). */
#pragma once

#include "front/core/planned.h"
#include "front/plans/routes.h"

/* The workspace of the call has come to be one of those, or, with `was_so`, is still and mounts
 * other things: `then` is told when nothing of before can write to its tree any more, or what went
 * wrong. The row is written. */
typedef void planned_entered(struct call *call, const struct err *failed);
void planned_enter(struct call *call, bool was_so, planned_entered *then);
#define PLANNED_WHY "the workspace's policy has come to say \"writes\": \"plan\""

enum planned_need {
    PLANNED_READS,
    PLANNED_BEGINS, /* the id of a new one, if there is none; plan_request_begin adds its row */
};

/* The open plan of the call's key. 1, 0: there is none, and none is needed; -1: answered. */
int planned_find(struct call *call, enum planned_need need, struct plan_request *ret);
/* Whether the plan that a call goes into is still open. */
bool planned_goes_on(struct call *call, const struct plan_request *w);
/* The same as planned_find for what leads to where `actor` ("key:k...") works: 1, 0: to the
 * workspace's own sandbox; -1: nowhere, or answered. */
int planned_find_of(struct call *call, const char *actor, struct plan_request *ret);
