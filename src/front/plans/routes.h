/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/plans: routes.c, the decisions of people about them: plan_decide.c. */
#pragma once

#include "front/core/router.h"
#include "front/exec/mode.h"
#include "front/plans/make.h"

extern const struct route plan_routes[];

void plans_list_all(struct call *call);
void plans_submit(struct call *call);
void plans_list(struct call *call);
void plans_get(struct call *call);
void plans_diff(struct call *call);
void plans_discard(struct call *call);
void plans_close(struct call *call);
void plans_verify(struct call *call);
void plans_approve(struct call *call);
void plans_reject(struct call *call);
void plans_apply(struct call *call);
void plans_undo(struct call *call);
void plans_cancel(struct call *call);

json_t *plan_json(const struct front *front, const struct store_plan *row);
/* For lists: without what may be long. */
json_t *plan_short_json(const struct front *front, const struct store_plan *row);

/* The plan of this workspace that the path names; false: answered with 404. */
bool plan_find(struct call *call, struct store_plan *ret);
/* The call waits for what is done with the plan of params[1], and is answered with that plan and
 * `status` then. False: answered. */
bool plan_wait_for(struct call *call, int status, struct plan_asked *ret);
/* Answers with the plan as it is now. */
void plan_answer(struct call *call, int status);

/* Runs the body's "check" in the planned view. The call is kept; `then` is called when the row says
 * how it went. Otherwise the call is answered. */
typedef void plan_checked(struct call *call);
void plan_check(struct call *call, const struct store_plan *row, plan_checked *then);

/* What the commands of front/exec ask of this room. */
extern const struct exec_mode plan_exec_mode;
/* Of its body. */
bool plan_request_read(struct call *call, struct plan_request *ret);
/* Its row, before its command is asked for. False: answered. */
bool plan_request_begin(struct call *call, const struct plan_request *wanted, const char *exec_id,
                        json_t *shown);
/* Whether the workspace's policy keeps its tree as it is because a plan is open: answered. */
bool plan_locks_base(struct call *call);
/* Too many plans of the workspace wait: answered. */
bool plan_no_room(struct call *call);
