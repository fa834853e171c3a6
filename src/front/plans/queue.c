/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of plans by themselves: those in the queue are applied, one of a workspace at a
 * time; those that nobody has decided about in time expire; those that a front before this one was
 * at are settled; what the policy does not keep is forgotten. All of it is in the rows, so that the
 * next front goes on with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/pack.h"
#include "base/text.h"
#include "front/exec/exec.h"
#include "front/plans/work.h"

enum {
    EVERY_MS = 500,
    AGAIN_MS = 2000, /* what could not be done now */
    MOST_DUE = 64,   /* in one turn */
    TRIM_MS = 600000,
    HISTORY_KEEP = 100, /* where the policy does not say */
    HISTORY_DAYS = 30,
    ROWS_KEPT = 1000, /* of a workspace's plans whose files are gone */
    ROWS_DAYS = 90,
};

#define DAY_MS (86400LL * 1000)

static uint64_t trimmed_ms;

/* --- one that is due --- */

struct due {
    char plan[PLAN_ID];
    char workspace[FRONT_ID];
    enum plan_state state;
    char actor[FRONT_ID + 8];
    bool keep_going;
};

struct due_list {
    const struct front *front;
    struct due items[MOST_DUE];
    size_t n;
};

static bool collect(void *context, const struct store_plan *row)
{
    struct due_list *list = context;
    struct due *due = &list->items[list->n];

    /* One of a workspace at a time, and no more of an owner than may be worked on; those that wait
     * for it take no place of others. */
    if (work_find_in(list->front, row->workspace) ||
        (row->state != PLAN_PENDING &&
         plan_processes_of(list->front, row->owner) >= PLAN_PROCESSES_OWN))
        return true;
    json_t *details = plan_details(row);
    const json_t *apply = json_object_get(details, "apply");
    const char *by = json_string_value(json_object_get(apply, "by"));

    *due = (struct due){.state = row->state,
                        .keep_going = json_is_true(json_object_get(apply, "keep_going"))};
    text_copy(due->plan, sizeof(due->plan), row->id);
    text_copy(due->workspace, sizeof(due->workspace), row->workspace);
    text_copy(due->actor, sizeof(due->actor), by ? by : row->actor);
    json_decref(details);
    return ++list->n < MOST_DUE;
}

struct trying {
    struct front *front;
    char plan[PLAN_ID];
    enum plan_state was;
};

/* Where it is as it was the next try is later; one in the queue is not tried for ever. */
static void tried(void *context, const struct plan_outcome *outcome)
{
    struct trying *t = context;
    struct front *front = t->front;
    struct store_plan row;
    struct arena arena;
    struct err err;

    arena_init(&arena, 8UL << 20);
    if (store_plan_get(front->store, &arena, t->plan, &row, &err) == 1 && row.state == t->was &&
        row.due_ms && row.due_ms <= wall_ms()) {
        row.due_ms = wall_ms() + AGAIN_MS;
        if (t->was == PLAN_QUEUED && ++row.attempts > PLAN_TRIES) {
            row.state = plan_state_after(t->was, PLAN_EVENT_GIVEN_UP, 0);
            row.due_ms = 0;
        }
        log_warning("plan_waits", "plan", t->plan, "state", plan_state_name(row.state), "why",
                    outcome->message, NULL);
        ignore(store_plan_change(front->store, &row, t->was, &err) == 0); /* then the next turn */
    }
    arena_clear(&arena);
    free(t);
}

/* --- expiry --- */

static void expired(void *context, const struct err *failed)
{
    struct plan_work *w = context;
    struct err err;

    if (failed) {
        work_fail(w, failed);
        return;
    }
    w->row.due_ms = 0;
    if (!work_change(w, PLAN_EVENT_EXPIRED, 0, NULL, &err)) {
        work_fail(w, &err);
        return;
    }
    work_announce(w, "plan.expire");
    work_end(w, 200, NULL, NULL, "%s", "");
}

static void expire(struct front *front, const struct plan_asked *asked)
{
    struct plan_work *w = work_begin(front, asked);

    if (!w || !work_read_row(w))
        return;
    if (plan_state_allows(w->row.state, PLAN_ACT_DECIDE))
        work_record(w, "plan.expire", "rejected", json_pack("{s:s}", "hash", w->row.hash), expired);
    else
        work_end(w, 200, NULL, NULL, "%s", "");
}

static void begin(struct front *front, const struct due *due)
{
    struct trying *t = calloc(1, sizeof(*t));
    struct plan_asked asked = {
        .plan = due->plan, .actor = due->actor, .request = "", .done = tried, .context = t};

    if (!t)
        return;
    *t = (struct trying){.front = front, .was = due->state};
    memcpy(t->plan, due->plan, sizeof(t->plan));
    if (due->state == PLAN_QUEUED) {
        plan_apply(front, &asked, due->keep_going);
    } else if (due->state == PLAN_PENDING) {
        asked.actor = "front";
        expire(front, &asked);
    } else {
        plan_settle(front, &asked);
    }
}

static void look(struct front *front)
{
    static struct due_list list;
    struct err err;

    list.n = 0;
    list.front = front;
    if (store_plans_due(front->store, wall_ms(), collect, &list, &err) < 0)
        return;
    for (size_t i = 0; i < list.n; i++)
        begin(front, &list.items[i]);
}

/* --- history --- */

struct trimming {
    struct front *front;
    const struct store_workspace *workspace;
    const struct plan_policy *policy;
    uint64_t count;
    uint64_t bytes;
};

static void forget(struct trimming *t, const struct store_plan *row)
{
    struct err err;

    if (store_plan_drop(t->front->store, row->id, &err) == 0)
        plan_drop_files(t->front, t->workspace->bucket, row->workspace, row->id);
}

static bool trim_one(void *context, const struct store_plan *row)
{
    struct trimming *t = context;
    const struct plan_policy *p = t->policy;

    t->count++;
    t->bytes += (uint64_t)row->disk_bytes;
    uint64_t days = p->history_days ? p->history_days : HISTORY_DAYS;
    if (plan_is_busy(t->front, row->id))
        return true; /* it has just become one of them */
    if (t->count > (p->history_keep ? p->history_keep : HISTORY_KEEP) ||
        (p->history_bytes && t->bytes > p->history_bytes) ||
        row->updated_ms < wall_ms() - (int64_t)days * DAY_MS)
        forget(t, row);
    return true;
}

void plans_trim(struct front *front, const char *workspace)
{
    struct store_workspace w;
    struct plan_policy policy;
    struct arena arena;
    struct err err;

    arena_init(&arena, 8UL << 20);
    if (store_workspace_get(front->store, &arena, workspace, &w, &err) == 1 && !w.deleted_ms &&
        plan_policy_of(&w, &arena, &policy, NULL, &err)) {
        struct trimming t = {.front = front, .workspace = &w, .policy = &policy};
        ignore(store_plans_over(front->store, workspace, trim_one, &t, &err));
        ignore(store_plans_forget(front->store, workspace, ROWS_KEPT,
                                  wall_ms() - ROWS_DAYS * DAY_MS, &err));
    }
    arena_clear(&arena);
}

static bool trim_workspace(void *context, const struct store_workspace *w)
{
    plans_trim(context, w->id);
    return true;
}

/* --- the timer --- */

static void tick(struct timer *timer)
{
    struct front *front = container_of(timer, struct front, plan_timer);
    struct err err;

    ignore(timer_set(front->events, timer, now_ms() + EVERY_MS) == 0); /* it had its place */
    look(front);
    if (now_ms() < trimmed_ms + TRIM_MS)
        return;
    trimmed_ms = now_ms();
    ignore(
        store_workspaces(front->store, NULL, false, NULL, SIZE_MAX, trim_workspace, front, &err));
}

void plans_wake(struct front *front)
{
    if (front->plan_timer.ring)
        ignore(timer_set(front->events, &front->plan_timer, now_ms()) == 0);
}

/* --- what a front before this one has left --- */

static bool make_due(void *context, const struct store_plan *row)
{
    struct front *front = context;
    struct store_plan changed = *row;
    struct err err;

    changed.due_ms = wall_ms();
    ignore(store_plan_change(front->store, &changed, row->state, &err) == 0);
    return true;
}

static bool was_cut_off(const struct store_exec *row)
{
    json_t *result = json_loads(row->result, 0, NULL);
    const char *reason = json_string_value(json_object_get(result, "reason"));
    bool is = reason && strcmp(reason, "broker_ended") == 0;

    json_decref(result);
    return is;
}

/* A command that ended while nobody was there closes its plan now; one that was ended by the
 * broker's death has not done what it was to do, and its plan stays open. */
static bool ended_by_itself(struct front *front, const char *exec_id)
{
    struct store_exec row;
    struct arena arena;
    struct err err;

    arena_init(&arena, 8UL << 20);
    bool ended = store_exec_get(front->store, &arena, exec_id, &row, &err) == 1 &&
                 strcmp(row.state, "ended") == 0 && !was_cut_off(&row);
    arena_clear(&arena);
    return ended;
}

static bool look_at_open(void *context, const struct store_plan *row)
{
    struct front *front = context;
    struct exec *exec = exec_find(front, row->exec_id);

    if (exec && !exec->drained)
        exec_hold(exec, row->id, row->keep_open);
    if (exec && exec->settled)
        plan_exec_settled(exec);
    else if (!exec && !row->keep_open && ended_by_itself(front, row->exec_id))
        plan_close(front,
                   &(struct plan_asked){.plan = row->id, .actor = row->actor, .request = ""});
    return true;
}

/* Directories that no row names: of a request that was not finished. */
static void drop_unknown(void *context, struct answer *answer)
{
    struct front *front = context;
    struct unpack u = {.at = answer->bytes, .end = answer->bytes + answer->n};
    struct arena names_arena;

    if (answer->kind != ANSWER_NAMES)
        return;
    arena_init(&names_arena, 2UL << 20);
    (void)unpack_u64(&u); /* the tag */
    const char **names = unpack_list(&u, &names_arena, PROTOCOL_NAMES);
    for (; names && *names; names++) {
        const char *slash = strchr(*names, '/');
        struct store_plan row;
        struct arena arena;
        struct err err;
        char workspace[FRONT_ID] = "";
        if (!slash || slash - *names >= FRONT_ID || plan_is_busy(front, slash + 1))
            continue;
        memcpy(workspace, *names, (size_t)(slash - *names));
        arena_init(&arena, 8UL << 20);
        if (store_plan_get(front->store, &arena, slash + 1, &row, &err) == 0)
            plan_drop_files(front, front->settings->bucket, workspace, slash + 1);
        arena_clear(&arena);
    }
    arena_clear(&names_arena);
}

static void ask_for_unknown(struct front *front)
{
    uint64_t tag = broker_expect(front->channel, drop_unknown, front);
    struct buf b;

    if (!tag)
        return;
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &(struct plain_message){.texts = {front->settings->bucket}});
    broker_send(front->channel, REQUEST_PLAN_SCAN, &b);
}

void plans_resume(struct front *front)
{
    struct err err;

    for (enum plan_state state = PLAN_NONE; state < PLAN_STATE_COUNT_; state++) {
        if (plan_state_allows(state, PLAN_ACT_SETTLE))
            ignore(store_plans(front->store, NULL, plan_state_name(state), NULL, SIZE_MAX, make_due,
                               front, &err));
    }
    ignore(store_plans(front->store, NULL, plan_state_name(PLAN_OPEN), NULL, SIZE_MAX, look_at_open,
                       front, &err));
    ask_for_unknown(front);
    trimmed_ms = now_ms();
    front->plan_timer.ring = tick;
    plans_wake(front);
}
