/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a plan: what may be done in each, and what becomes of it by each event. One table
 * decides for the daemon's rows and for plans of a plain directory; ARCHITECTURE.md draws it. The
 * words are for JSON and SQL alone.
 *
 *   While a plan is "applying" or "undoing" its tree is being changed, and the state is written
 * before that begins. Who finds it there after a crash has carrel-plan take back what was half done
 * and asks the plan's journal how many operations are in the tree: with any the plan is applied,
 * without it is undone, or what it was before. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum plan_state {
    PLAN_NONE, /* not made yet; or no state that can be read */
    PLAN_OPEN, /* commands write into it */
    PLAN_CLOSED,
    PLAN_PENDING, /* waits for a person */
    PLAN_APPROVED,
    PLAN_REJECTED,
    PLAN_EXPIRED, /* nobody decided in time */
    PLAN_QUEUED,  /* is applied when its turn comes */
    PLAN_APPLYING,
    PLAN_APPLIED, /* all of it, or some */
    PLAN_UNDOING,
    PLAN_UNDONE,
    PLAN_STALE,  /* its base has changed */
    PLAN_FAILED, /* the queue has given it up */
    PLAN_DISCARDED,
    PLAN_STATE_COUNT_,
};

enum plan_action {
    PLAN_ACT_CONTINUE, /* another command writes into it, or it is closed */
    PLAN_ACT_LOOK,     /* it is verified, or its operations and differences are shown */
    PLAN_ACT_DECIDE,   /* it is approved or rejected, or its time ends */
    PLAN_ACT_APPLY,
    PLAN_ACT_ENQUEUE,
    PLAN_ACT_CANCEL,
    PLAN_ACT_UNDO,
    PLAN_ACT_DISCARD,
    PLAN_ACT_SETTLE, /* its journal says what an interrupted change has come to */
    PLAN_ACTION_COUNT_,
};

enum plan_event {
    PLAN_EVENT_MADE, /* it is whole */
    PLAN_EVENT_HELD, /* it needs an approval, by the policy as it is now */
    PLAN_EVENT_APPROVED,
    PLAN_EVENT_REJECTED,
    PLAN_EVENT_EXPIRED,
    PLAN_EVENT_QUEUED,
    PLAN_EVENT_APPLY, /* the tree is about to be changed */
    PLAN_EVENT_APPLIED,
    PLAN_EVENT_UNDO,       /* about to be changed back */
    PLAN_EVENT_UNDONE,     /* as much as was asked for */
    PLAN_EVENT_NOT_UNDONE, /* nothing was taken back */
    /* It was not applied, or was interrupted; by what it was before. */
    PLAN_EVENT_SETTLED_CLOSED,
    PLAN_EVENT_SETTLED_APPROVED,
    PLAN_EVENT_SETTLED_QUEUED, /* and is tried again */
    PLAN_EVENT_OUTDATED,       /* its base has changed */
    PLAN_EVENT_GIVEN_UP,
    PLAN_EVENT_DISCARDED,
    PLAN_EVENT_COUNT_,
};

bool plan_state_allows(enum plan_state state, enum plan_action action);
/* PLAN_NONE: that cannot happen in this state. `in_force`: how many operations are in the tree, by
 * the journal; 0 where nobody has asked it. */
enum plan_state plan_state_after(enum plan_state state, enum plan_event event, uint64_t in_force);

/* "none" for PLAN_NONE. */
const char *plan_state_name(enum plan_state state);
/* PLAN_NONE for NULL and for other words. */
enum plan_state plan_state_from_name(const char *name);
