/* SPDX-License-Identifier: Apache-2.0 */
/* How plans come to be, and go. */
#include "front/plans/make.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "front/exec/exec.h"
#include "front/plans/work.h"

/* --- made --- */

/* What carrel-plan says of a plan that is whole, into its row. */
static json_t *take_answer(struct plan_work *w, const json_t *answer)
{
    static const char *const kept[] = {"counts", "copied_bytes", "flaws", "flaw_count"};
    const char *hash = json_string_value(json_object_get(answer, "hash"));
    json_t *details = plan_details(&w->row);

    w->row.hash = arena_copy(&w->arena, hash ? hash : "", hash ? strlen(hash) : 0);
    w->row.operations = json_integer_value(json_object_get(answer, "operations"));
    w->row.bytes = json_integer_value(json_object_get(answer, "bytes"));
    const json_t *disk = json_object_get(answer, "disk_bytes");
    w->row.disk_bytes = disk ? json_integer_value(disk) : w->row.bytes;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        json_t *value = json_object_get(answer, kept[i]);
        if (value)
            json_object_set(details, kept[i], value);
    }
    return details;
}

static json_t *made_json(const struct plan_work *w, const json_t *details)
{
    json_t *object =
        json_pack("{s:s, s:I}", "hash", w->row.hash, "operations", (json_int_t)w->row.operations);
    json_t *counts = json_object_get(details, "counts");

    if (counts)
        json_object_set(object, "counts", counts);
    return object;
}

/* Whether a person is to look at it; until when: into the row. False: the policy is not read. */
static bool read_approval(struct plan_work *w, enum plan_event *ret, struct err *err)
{
    struct plan_policy policy;

    if (!work_policy(w, &policy, NULL, err))
        return false;
    *ret = policy.approval == PLAN_APPROVAL_NONE ? PLAN_EVENT_MADE : PLAN_EVENT_HELD;
    uint64_t expires = policy.expires_ms ? policy.expires_ms : PLAN_POLICY_EXPIRES_MS;
    if (*ret == PLAN_EVENT_HELD)
        w->row.due_ms = wall_ms() + (int64_t)expires;
    return true;
}

static void made(void *context, const struct err *failed)
{
    struct plan_work *w = context;

    if (failed)
        work_fail(w, failed);
    else
        work_end(w, 200, NULL, NULL, "%s", "");
}

/* The record first; the row is written meanwhile. */
static void finish(struct plan_work *w, const char *operation, const json_t *details)
{
    work_announce(w, operation);
    w->front->count.plans_made++;
    work_record(w, operation, "ok", made_json(w, details), made);
}

static void could_not_begin(void *owner, const struct err *err)
{
    work_fail(owner, err);
}

static void closed(void *owner, const struct plan_end *end)
{
    struct plan_work *w = owner;
    json_t *answer = plan_end_json(end);
    enum plan_event event;
    struct err err;

    w->process = NULL;
    if (end->status != 0 || !answer) {
        work_fail_answer(w, end, answer);
        return;
    }
    if (!work_read_row(w)) {
        json_decref(answer);
        return;
    }
    json_t *details = take_answer(w, answer);
    json_decref(answer);
    if (read_approval(w, &event, &err) && work_change(w, event, 0, json_incref(details), &err))
        finish(w, "plan.close", details);
    else
        work_fail(w, &err);
    json_decref(details);
}

void plan_close(struct front *front, const struct plan_asked *asked)
{
    static const struct plan_process_calls calls = {.failed = could_not_begin, .ended = closed};
    struct plan_work *w = work_begin(front, asked);

    if (!w || !work_read_row(w))
        return;
    if (!plan_state_allows(w->row.state, PLAN_ACT_CONTINUE))
        work_end(w, 409, "conflict", NULL, "the plan is no longer open");
    else
        (void)work_start(w, PLAN_DERIVE, json_string("close"), &calls);
}

/* --- submitted --- */

static bool is_room(uint64_t all, uint64_t own, uint64_t most)
{
    return all < most || own < most / PLAN_SHARE;
}

int plan_has_room(struct front *front, const char *workspace, const char *key,
                  const struct plan_policy *policy, struct err *err)
{
    uint64_t most = policy->waiting_bytes ? policy->waiting_bytes : PLAN_POLICY_WAITING_BYTES;
    struct store_undecided all;
    struct store_undecided own;

    if (store_plans_count_undecided(front->store, workspace, NULL, &all, err) < 0 ||
        store_plans_count_undecided(front->store, workspace, key, &own, err) < 0)
        return -1;
    return is_room(all.plans, own.plans, PLAN_UNDECIDED) && is_room(all.bytes, own.bytes, most);
}

/* It is understood: into the store, unless others were quicker. */
static bool add_row(struct plan_work *w, const json_t *details, struct err *err)
{
    enum plan_event event;

    if (!read_approval(w, &event, err))
        return false;
    w->row.state = plan_state_after(PLAN_NONE, event, 0);
    w->row.details = plan_details_text(&w->arena, details);
    if (!w->row.details) {
        err_set(err, ERR_LIMIT, ENOMEM, "store the state of the plan");
        return false;
    }
    return store_plan_add(w->front->store, &w->row, err) == 0; /* or the workspace has gone */
}

/* The first of the paths that wait for a decision. */
static const char *name_conflicts(const json_t *conflicts, char *ret, size_t size)
{
    const json_t *one;
    size_t named = 0;
    size_t at;

    ret[0] = '\0';
    json_array_foreach(conflicts, at, one)
    {
        const char *path = json_string_value(json_object_get(one, "path"));
        size_t n = strlen(ret);
        if (!json_is_null(json_object_get(one, "taken")) || !path || named == 5 ||
            n + strlen(path) + 3 > size)
            continue;
        snprintf(ret + n, size - n, "%s%s", named++ ? ", " : "", path);
    }
    return ret;
}

/* Nothing came of it: the answer says why. True: it has ended so. */
static bool came_to_nothing(struct plan_work *w, json_t *answer)
{
    json_int_t undecided = json_integer_value(json_object_get(answer, "undecided"));
    bool is_empty = json_integer_value(json_object_get(answer, "operations")) == 0;
    json_t *details = NULL;
    char names[240];

    if (!w->merge || (undecided == 0 && !is_empty))
        return false;
    plan_drop_files(w->front, w->bucket, w->workspace, w->plan);
    if (undecided > 0)
        details = json_pack("{s:O, s:O}", "conflicts", json_object_get(answer, "conflicts"),
                            "undecided", json_object_get(answer, "undecided"));
    (void)name_conflicts(json_object_get(answer, "conflicts"), names, sizeof(names));
    json_decref(answer);
    if (undecided > 0)
        work_end(w, 409, "merge_conflict", details,
                 "%lld path%s changed in both in different ways (%s); say which side is taken, "
                 "\"ours\" or \"theirs\"",
                 (long long)undecided, undecided == 1 ? " was" : "s were", names);
    else
        work_end(w, 409, "no_changes", NULL, "the workspace '%s' has all of that already",
                 w->workspace);
    return true;
}

/* How a merge came about, for those who look at the plan. */
static bool keep_merge(struct plan_work *w, json_t *details, const json_t *answer, struct err *err)
{
    static const char *const kept[] = {"conflicts", "conflict_count", "merged"};
    const char *fork = json_string_value(json_object_get(w->merge, "fork"));
    const char *snapshot = json_string_value(json_object_get(w->merge, "snapshot"));

    if (!w->merge)
        return true;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        json_object_set(w->merge, kept[i], json_object_get(answer, kept[i]));
    json_object_set_new(w->merge, "conflicts",
                        plan_shortened(json_object_get(w->merge, "conflicts")));
    json_object_set(details, "merge", w->merge);
    if (!fork)
        return true;
    const struct store_merge merge = {
        .plan = w->plan, .fork = fork, .into = w->workspace, .snapshot = snapshot};
    return store_merge_add(w->front->store, &merge, err) == 0;
}

static void submitted(void *owner, const struct plan_end *end)
{
    struct plan_work *w = owner;
    json_t *answer = plan_end_json(end);
    struct plan_policy policy;
    struct err err;

    w->process = NULL;
    if (end->status != 0 || !answer) {
        plan_drop_files(w->front, w->bucket, w->workspace, w->plan);
        work_fail_answer(w, end, answer);
        return;
    }
    if (came_to_nothing(w, answer))
        return;
    json_t *details = take_answer(w, answer);
    bool kept = keep_merge(w, details, answer, &err);
    json_decref(answer);
    int room = kept && work_policy(w, &policy, NULL, &err)
                   ? plan_has_room(w->front, w->workspace, w->row.key, &policy, &err)
                   : -1;
    if (room == 1 && add_row(w, details, &err)) {
        finish(w, w->merge ? "plan.merge" : "plan.submit", details);
        json_decref(details);
        return;
    }
    plan_drop_files(w->front, w->bucket, w->workspace, w->plan);
    if (room == 0)
        work_end(w, 413, "plan_limit", NULL, "%s", PLAN_NO_ROOM);
    else
        work_fail(w, &err);
    json_decref(details);
}

static const char *copy(struct plan_work *w, const char *text)
{
    const char *made_copy = arena_copy(&w->arena, text ? text : "", text ? strlen(text) : 0);

    return made_copy ? made_copy : "";
}

void plan_submit(struct front *front, const struct plan_asked *asked, const struct store_plan *row,
                 const struct plan_source *source)
{
    static const struct plan_process_calls calls = {.failed = could_not_begin, .ended = submitted};
    struct plan_work *w = work_begin(front, asked);

    if (!w) {
        free(source->text);
        json_decref(source->merge);
        return;
    }
    w->merge = source->merge;
    text_copy(w->workspace, sizeof(w->workspace), row->workspace);
    text_copy(w->bucket, sizeof(w->bucket), source->bucket);
    text_copy(w->base, sizeof(w->base), source->base ? source->base : "");
    text_copy(w->theirs, sizeof(w->theirs), source->theirs ? source->theirs : "");
    w->row = *row;
    w->row.id = w->plan;
    w->row.workspace = w->workspace;
    w->row.owner = copy(w, row->owner);
    w->row.key = copy(w, row->key);
    w->row.actor = copy(w, row->actor);
    w->row.principal = copy(w, row->principal);
    w->row.details = "{}";
    w->row.exec_id = w->row.hash = "";
    (void)work_start_text(w, source->verb, source->text, source->n, &calls);
}

/* --- given up --- */

enum {
    DROP_AGAIN_MS = 100,
    DROP_TRIES = 100,
};

/* A directory that goes; what runs in it is ended first. */
struct dropping {
    struct front *front;
    struct timer timer;
    unsigned tries;
    char bucket[FRONT_ID];
    char workspace[FRONT_ID];
    char plan[PLAN_ID];
};

static void ask_to_drop(struct timer *timer);

static void dropped(void *context, struct answer *answer)
{
    struct dropping *d = context;
    struct err err;
    uint64_t tag;
    char text[512];

    bool failed =
        answer->kind == ANSWER_ERROR && protocol_unpack_error(answer->bytes, answer->n, &tag, &err);
    if (failed && err.code == ERR_CONFLICT && ++d->tries < DROP_TRIES) {
        d->timer.ring = ask_to_drop;
        if (timer_set(d->front->events, &d->timer, now_ms() + DROP_AGAIN_MS) == 0)
            return;
    }
    if (failed) /* the next start finds it */
        log_warning("plan_left", "plan", d->plan, "error", err_text(&err, text, sizeof(text)),
                    NULL);
    free(d);
}

static void ask_to_drop(struct timer *timer)
{
    struct dropping *d = container_of(timer, struct dropping, timer);
    struct plain_message m = {.texts = {d->bucket, d->workspace, d->plan}};
    uint64_t tag = broker_expect(d->front->channel, dropped, d);
    struct buf b;

    if (!tag) {
        free(d);
        return;
    }
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &m);
    broker_send(d->front->channel, REQUEST_PLAN_DROP, &b);
}

void plan_drop_files(struct front *front, const char *bucket, const char *workspace,
                     const char *plan)
{
    struct dropping *d = calloc(1, sizeof(*d));

    if (!d)
        return;
    d->front = front;
    text_copy(d->bucket, sizeof(d->bucket), bucket);
    text_copy(d->workspace, sizeof(d->workspace), workspace);
    text_copy(d->plan, sizeof(d->plan), plan);
    ask_to_drop(&d->timer);
}

static void discarded(void *context, const struct err *failed)
{
    struct plan_work *w = context;
    struct err err;

    if (failed) {
        work_fail(w, failed);
        return;
    }
    w->row.due_ms = 0;
    w->row.disk_bytes = 0;
    if (!work_change(w, PLAN_EVENT_DISCARDED, 0, NULL, &err)) {
        work_fail(w, &err);
        return;
    }
    work_announce(w, "plan.discard");
    plan_drop_files(w->front, w->bucket, w->workspace, w->plan);
    plans_trim(w->front, w->workspace);
    work_end(w, 200, NULL, NULL, "%s", "");
}

void plan_discard(struct front *front, const struct plan_asked *asked)
{
    struct plan_work *w = work_begin(front, asked);

    if (!w || !work_read_row(w))
        return;
    if (plan_state_allows(w->row.state, PLAN_ACT_DISCARD))
        work_record(w, "plan.discard", "ok",
                    json_pack("{s:s}", "state", plan_state_name(w->row.state)), discarded);
    else
        work_end(w, 409, "conflict", NULL, "%s",
                 w->row.state == PLAN_DISCARDED ? "the plan was discarded already"
                                                : "the plan is being carried out");
}

/* --- with a command --- */

static void set_plan(struct exec *exec, const struct plan_outcome *outcome)
{
    struct store_plan row;
    struct arena arena;
    struct err err;

    arena_init(&arena, 8UL << 20);
    if (store_plan_get(exec->front->store, &arena, exec->plan, &row, &err) == 1) {
        json_t *details = plan_details(&row);
        json_t *object = json_pack("{s:s, s:s}", "id", row.id, "state", plan_state_name(row.state));
        if (*row.hash) {
            json_t *copied = json_object_get(details, "copied_bytes");
            json_object_set_new(object, "hash", json_string(row.hash));
            json_object_set_new(object, "operations", json_integer(row.operations));
            json_object_set(object, "copied_bytes", copied ? copied : json_null());
        }
        if (outcome && outcome->code)
            json_object_set_new(
                object, "error",
                json_pack("{s:s, s:s}", "code", outcome->code, "message", outcome->message));
        json_object_set_new(exec->result_json, "plan", object);
        json_decref(details);
    }
    arena_clear(&arena);
}

struct ending {
    struct front *front;
    char exec_id[PLAN_ID];
};

static void exec_closed(void *context, const struct plan_outcome *outcome)
{
    struct ending *ending = context;
    struct exec *exec = exec_find(ending->front, ending->exec_id);

    free(ending);
    if (!exec)
        return;
    set_plan(exec, outcome->status == 200 ? NULL : outcome);
    exec_let_go(exec);
}

void plan_exec_settled(struct exec *exec)
{
    struct ending *ending = exec->plan_stays_open ? NULL : calloc(1, sizeof(*ending));

    if (!ending) {
        set_plan(exec, NULL);
        exec_let_go(exec);
        return;
    }
    ending->front = exec->front;
    memcpy(ending->exec_id, exec->id, sizeof(ending->exec_id));
    plan_close(exec->front, &(struct plan_asked){.plan = exec->plan,
                                                 .actor = exec->row_actor,
                                                 .request = "",
                                                 .done = exec_closed,
                                                 .context = ending});
}
