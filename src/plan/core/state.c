/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/state.h"

#include <stddef.h>
#include <string.h>

#define MAY(action) (1U << PLAN_ACT_##action)
#define ON(event)   [PLAN_EVENT_##event]

/* What is not written here is not allowed, and cannot happen. */
static const struct {
    const char *name;
    unsigned allows;
    enum plan_state after[PLAN_EVENT_COUNT_]; /* with nothing in force */
} states[] = {
    [PLAN_NONE] = {"none", 0, {ON(MADE) = PLAN_CLOSED, ON(HELD) = PLAN_PENDING}},
    [PLAN_OPEN] = {"open",
                   MAY(CONTINUE) | MAY(DISCARD),
                   {ON(MADE) = PLAN_CLOSED, ON(HELD) = PLAN_PENDING,
                    ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_CLOSED] = {"closed",
                     MAY(LOOK) | MAY(APPLY) | MAY(ENQUEUE) | MAY(DISCARD),
                     {ON(HELD) = PLAN_PENDING, ON(QUEUED) = PLAN_QUEUED, ON(APPLY) = PLAN_APPLYING,
                      ON(SETTLED_CLOSED) = PLAN_CLOSED, ON(OUTDATED) = PLAN_STALE,
                      ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_PENDING] = {"pending",
                      MAY(LOOK) | MAY(DECIDE) | MAY(DISCARD),
                      {ON(APPROVED) = PLAN_APPROVED, ON(REJECTED) = PLAN_REJECTED,
                       ON(EXPIRED) = PLAN_EXPIRED, ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_APPROVED] = {"approved",
                       MAY(LOOK) | MAY(APPLY) | MAY(ENQUEUE) | MAY(DISCARD),
                       {ON(QUEUED) = PLAN_QUEUED, ON(APPLY) = PLAN_APPLYING,
                        ON(SETTLED_APPROVED) = PLAN_APPROVED, ON(OUTDATED) = PLAN_STALE,
                        ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_REJECTED] = {"rejected", MAY(LOOK) | MAY(DISCARD), {ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_EXPIRED] = {"expired", MAY(LOOK) | MAY(DISCARD), {ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_QUEUED] = {"queued",
                     MAY(LOOK) | MAY(APPLY) | MAY(CANCEL) | MAY(DISCARD),
                     {ON(HELD) = PLAN_PENDING, ON(APPLY) = PLAN_APPLYING,
                      ON(SETTLED_CLOSED) = PLAN_CLOSED, ON(SETTLED_APPROVED) = PLAN_APPROVED,
                      ON(SETTLED_QUEUED) = PLAN_QUEUED, ON(OUTDATED) = PLAN_STALE,
                      ON(GIVEN_UP) = PLAN_FAILED, ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_APPLYING] = {"applying",
                       MAY(LOOK) | MAY(SETTLE),
                       {ON(APPLIED) = PLAN_APPLIED, ON(SETTLED_CLOSED) = PLAN_CLOSED,
                        ON(SETTLED_APPROVED) = PLAN_APPROVED, ON(SETTLED_QUEUED) = PLAN_QUEUED,
                        ON(OUTDATED) = PLAN_STALE, ON(GIVEN_UP) = PLAN_FAILED}},
    [PLAN_APPLIED] = {"applied",
                      MAY(LOOK) | MAY(UNDO) | MAY(DISCARD),
                      {ON(UNDO) = PLAN_UNDOING, ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_UNDOING] = {"undoing",
                      MAY(LOOK) | MAY(SETTLE),
                      {ON(UNDONE) = PLAN_UNDONE, ON(NOT_UNDONE) = PLAN_APPLIED,
                       ON(SETTLED_CLOSED) = PLAN_UNDONE, ON(SETTLED_APPROVED) = PLAN_UNDONE,
                       ON(SETTLED_QUEUED) = PLAN_UNDONE, ON(GIVEN_UP) = PLAN_FAILED}},
    [PLAN_UNDONE] = {"undone", MAY(LOOK) | MAY(DISCARD), {ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_STALE] = {"stale", MAY(LOOK) | MAY(DISCARD), {ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_FAILED] = {"failed", MAY(LOOK) | MAY(DISCARD), {ON(DISCARDED) = PLAN_DISCARDED}},
    [PLAN_DISCARDED] = {"discarded", 0, {PLAN_NONE}},
};

_Static_assert(sizeof(states) / sizeof(states[0]) == PLAN_STATE_COUNT_, "a row for each state");

bool plan_state_allows(enum plan_state state, enum plan_action action)
{
    return states[state].allows & 1U << action;
}

enum plan_state plan_state_after(enum plan_state state, enum plan_event event, uint64_t in_force)
{
    enum plan_state next = states[state].after[event];

    return next != PLAN_NONE && in_force > 0 ? PLAN_APPLIED : next;
}

const char *plan_state_name(enum plan_state state)
{
    return states[state].name;
}

enum plan_state plan_state_from_name(const char *name)
{
    for (size_t i = 0; name && i < PLAN_STATE_COUNT_; i++) {
        if (strcmp(name, states[i].name) == 0)
            return (enum plan_state)i;
    }
    return PLAN_NONE;
}
