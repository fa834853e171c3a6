/* SPDX-License-Identifier: Apache-2.0 */
/* Agents' keys in workspaces whose policy says "writes": "plan". All that such a key changes goes
 * into one plan, which its first command or change begins and which stays open until somebody
 * closes it: commands run in that plan's sandbox, calls on files ask the file server of that, and
 * ports lead into it. Each key has its own, as a plan has one author. The workspace's own sandbox
 * and tree such a key reaches only to read. */
#pragma once

#include "front/plans/routes.h"

/* Whether what agents change in this workspace goes into plans; so, too, if its policy cannot be
 * read. */
bool planned_workspace(const struct store_workspace *w);
/* Whether this actor is one of those. */
bool planned_is(const struct actor *actor, const struct store_workspace *w);
/* Whether such a call is one that touches nothing outside of the plan; else answered. */
bool planned_admits(struct call *call);
/* Likewise a command that is to be written to, signalled, ended. */
bool planned_admits_exec(struct call *call, const struct store_exec *row);
/* Likewise a plan: that it is its own, and may be undone. */
bool planned_admits_plan(struct call *call, const struct store_plan *row);

/* The workspace of the call has come to be one of those, or, with `was_so`, is still and mounts
 * other things: `then` is told when nothing of before can write to its tree any more, or what went
 * wrong. The row is written. */
typedef void planned_entered(struct call *call, const struct err *failed);
void planned_enter(struct call *call, bool was_so, planned_entered *then);
#define PLANNED_WHY "the workspace's policy has come to say \"writes\": \"plan\""

enum planned_need {
    PLANNED_READS,
    PLANNED_BEGINS, /* the id of a new one, if there is none; plan_wish_begin adds its row */
};

/* The open plan of the call's key. 1, 0: there is none, and none is needed; -1: answered. */
int planned_find(struct call *call, enum planned_need need, struct plan_wish *ret);
/* Whether the plan that a call goes into is still open, as it is closed meanwhile: then not. */
bool planned_goes_on(struct call *call, const struct plan_wish *w);
/* The same as planned_find for what leads to where `actor` ("key:k...") works: 1, 0: to the
 * workspace's own sandbox; -1: nowhere, or answered. */
int planned_find_of(struct call *call, const char *actor, struct plan_wish *ret);
