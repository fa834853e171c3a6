/* SPDX-License-Identifier: Apache-2.0 */
/* People decide about plans: approve, reject. A plan's author is the key that made it. An agent's
 * plan is approved by its owner's keys that are a person's; a person's by one that has been given
 * that scope, and was not made by the author. No agent ever decides. What is approved is a hash. */
#include "base/clock.h"
#include "front/plans/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_COMMENT = 4000,
    LONGEST_LINE = 32, /* keys that made each other */
};

/* --- whose key is whose --- */

/* The key that made this one; false: there is none, or the operator did. */
static bool parent_of(struct call *call, const char *key, char ret[28])
{
    struct store_key row;
    struct arena arena;
    struct err err;

    arena_init(&arena, 64UL << 10);
    bool found = *key && store_key_get(call->front->store, &arena, key, &row, &err) == 1 &&
                 *row.made_by && strlen(row.made_by) < 28;
    if (found)
        snprintf(ret, 28, "%s", row.made_by);
    arena_clear(&arena);
    return found;
}

/* Whether `key` is this one, or was made by it, or by one that it made. */
static bool descends_from(struct call *call, const char *key, const char *ancestor)
{
    char at[28];
    char above[28];

    snprintf(at, sizeof(at), "%s", key);
    for (unsigned i = 0; i < LONGEST_LINE; i++) {
        if (strcmp(at, ancestor) == 0)
            return true;
        if (!parent_of(call, at, above))
            return false;
        memcpy(at, above, sizeof(at));
    }
    return true; /* nobody makes keys like that */
}

/* NULL: this key decides about plans; else why not. */
static const char *no_judge(const struct actor *a)
{
    if (actor_is_agent(a))
        return "an agent's key decides about no plan; use one with the scope 'owner' or 'approve'";
    if (!(a->scopes & (SCOPE_ADMIN | SCOPE_OWNER | SCOPE_USER | SCOPE_APPROVE)))
        return "this key lacks the scope 'owner' or 'approve'";
    return NULL;
}

static bool is_agents(struct call *call, const char *key)
{
    struct store_key row;
    struct arena arena;
    struct err err;

    arena_init(&arena, 1UL << 20);
    bool is = *key && store_key_get(call->front->store, &arena, key, &row, &err) == 1 &&
              (row.scopes & SCOPE_AGENT);
    arena_clear(&arena);
    return is;
}

/* NULL: it may; else why not. */
static const char *why_not(struct call *call, const struct store_plan *row, const char *hash)
{
    const struct actor *a = &call->actor;
    const char *why = no_judge(a);

    if (why)
        return why;
    if (!plan_state_allows(row->state, PLAN_ACT_DECIDE))
        return "the plan does not wait for an approval";
    if (row->due_ms && row->due_ms <= wall_ms())
        return "the time to decide is over";
    if (!hash || strcmp(hash, row->hash) != 0)
        return "the approval names another hash than this plan's";
    if (!*a->key)
        return "an approval is given with a key of its own; make one with the scope 'approve'";
    if (strcmp(a->key, row->key) == 0)
        return "the key that made the plan cannot approve it";
    if (*row->key && descends_from(call, a->key, row->key))
        return "the key was made by the one that made the plan";
    if (!(a->scopes & (SCOPE_ADMIN | SCOPE_OWNER | SCOPE_APPROVE)) && !is_agents(call, row->key))
        return "a plan of a person's key takes a key with the scope 'approve' or 'owner'";
    return NULL;
}

/* --- deciding --- */

struct decision {
    struct store_plan row;
    const char *comment;
    const char *hash;
    json_t *operations; /* borrowed from the body; NULL: all */
    bool approves;
};

static void record(struct call *call, const struct decision *d, const char *result,
                   call_heard *heard)
{
    json_t *details = json_pack("{s:s, s:s}", "plan", d->row.id, "hash", d->hash ? d->hash : "");

    json_object_set_new(details, "comment", json_string(d->comment));
    json_object_set_new(details, "principal", json_string(call->actor.owner));
    if (d->operations)
        json_object_set(details, "operations", d->operations);
    call_record(call, call->workspace.id, d->approves ? "plan.approve" : "plan.reject", result,
                details, heard);
}

static void refused(struct call *call, struct answer *answer)
{
    const char *why = call->context;

    (void)answer; /* it is refused, also when that cannot be recorded */
    call->context = NULL;
    call_error(call, 403, "approval_refused", "%s", why);
}

static void refuse(struct call *call, const struct decision *d, const char *why)
{
    call->context = (void *)(uintptr_t)why;
    record(call, d, "refused", refused);
}

/* On record; the row is changed only if it still waits. */
static void decided(struct call *call, struct answer *answer)
{
    struct decision *d = call->context;
    struct store_plan *row = &d->row;
    struct err err;

    call->context = NULL;
    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    json_t *details = plan_details(row);
    json_t *approval = json_pack("{s:s, s:s, s:s, s:s, s:I}", d->approves ? "by" : "rejected_by",
                                 call->actor.name, "principal", call->actor.owner, "comment",
                                 d->comment, "hash", row->hash, "at_ms", (json_int_t)wall_ms());
    if (d->operations)
        json_object_set(approval, "operations", d->operations);
    json_object_set_new(details, "approval", approval);
    row->details = plan_details_text(&call->arena, details);
    json_decref(details);
    enum plan_state was = row->state;
    row->state = plan_state_after(was, d->approves ? PLAN_EVENT_APPROVED : PLAN_EVENT_REJECTED, 0);
    row->due_ms = 0;
    row->updated_ms = wall_ms();
    if (!row->details || store_plan_change(call->front->store, row, was, &err) < 0) {
        call_error(call, 409, "conflict",
                   "someone else has just approved or rejected plan %s; read it again", row->id);
        return;
    }
    call->front->count.plans_refused += !d->approves;
    front_announce(call->front, d->approves ? "plan.approve" : "plan.reject", row->workspace,
                   row->owner,
                   json_pack("{s:s, s:s}", "plan", row->id, "state", plan_state_name(row->state)));
    call_json(call, 200, plan_json(call->front, row));
}

static bool read_operations(struct call *call, struct decision *d)
{
    json_t *list = json_object_get(call->body, "operations");
    json_int_t last = -1;
    const json_t *one;
    size_t at;

    if (!list || json_is_null(list))
        return true;
    bool good = json_is_array(list) && json_array_size(list) > 0;
    json_array_foreach(list, at, one)
    {
        json_int_t number = json_integer_value(one);
        good = good && json_is_integer(one) && number > last && number < d->row.operations;
        last = number;
    }
    if (!good)
        call_bad_field(call, "operations",
                       "a list of numbers of operations, from 0 on, in order, each once");
    d->operations = list;
    return good;
}

static struct decision *read_decision(struct call *call, bool approves)
{
    static const char *const known[] = {"hash", "comment", "operations", NULL};
    struct decision *d = arena_alloc(&call->arena, sizeof(*d));

    if (!d) {
        call_error(call, 503, "unavailable", "out of memory");
        return NULL;
    }
    d->approves = approves;
    d->comment = "";
    if (!fields_known(call, call->body, known) || !plan_find(call, &d->row) ||
        !field_text(call, call->body, "hash", 128, &d->hash) ||
        !field_text(call, call->body, "comment", LONGEST_COMMENT, &d->comment) ||
        !read_operations(call, d))
        return NULL;
    if (plan_is_busy(call->front, d->row.id)) {
        call_error(call, 409, "conflict",
                   "plan %s is being worked on; wait until that has finished", d->row.id);
        return NULL;
    }
    return d;
}

void plans_approve(struct call *call)
{
    struct decision *d = read_decision(call, true);

    if (!d)
        return;
    const char *why = why_not(call, &d->row, d->hash);
    if (why) {
        refuse(call, d, why);
        return;
    }
    call->context = d;
    record(call, d, "ok", decided);
}

/* To say no to a plan of one's own is no harm. */
void plans_reject(struct call *call)
{
    struct decision *d = read_decision(call, false);

    if (!d)
        return;
    const char *why = no_judge(&call->actor);
    if (why)
        refuse(call, d, why);
    else if (d->hash && strcmp(d->hash, d->row.hash) != 0)
        refuse(call, d, "the rejection names another hash than this plan's");
    else if (!plan_state_allows(d->row.state, PLAN_ACT_DECIDE))
        call_error(call, 409, "conflict", "the plan is not waiting for a decision");
    else {
        call->context = d;
        record(call, d, "ok", decided);
    }
}
