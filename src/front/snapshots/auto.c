/* SPDX-License-Identifier: Apache-2.0 */
/* Which workspaces have changed is known in memory alone: a front that begins anew hears of the
 * next change. At each turn of the timer those that are due are looked at; a snapshot in which
 * nothing has changed is not kept, and of each kind the last ones alone are. */
#include "front/snapshots/auto.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "front/core/record.h"
#include "front/plans/process.h"
#include "front/snapshots/versions.h"
#include "policy/policy.h"

enum {
    TURN_MS = 1000,
    LATER_MS = 60000,     /* whether the policy has come to want them */
    MOST_CHANGED = 10000, /* workspaces that are remembered */
    SLOTS = 256,
};

/* --- one snapshot --- */

struct keeping {
    struct front *front;
    struct change change;
    struct store_workspace w;
    struct arena arena;
    char id[28];
    char why[16];
    char actor[FRONT_ID + 8];
    char request[28];
    void (*then)(void *context, const struct err *failed);
    void *context;
};

static void end(struct keeping *k, const struct err *failed)
{
    void (*then)(void *context, const struct err *failed) = k->then;
    void *context = k->context;

    change_end(&k->change);
    arena_clear(&k->arena);
    free(k);
    if (then)
        then(context, failed);
}

static void record(const struct keeping *k, const char *operation)
{
    struct front_record r = {.actor = k->actor,
                             .request = k->request,
                             .workspace = k->w.id,
                             .operation = operation,
                             .result = "ok"};

    front_record(k->front, &r, json_pack("{s:s, s:s}", "snapshot", k->id, "why", k->why), NULL,
                 NULL);
}

static void failed(void *owner, const struct err *err)
{
    end(owner, err);
}

static void ended(void *owner, const struct plan_end *how)
{
    json_t *answer = plan_end_json(how);
    const char *message =
        json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
    struct err err;

    if (json_is_true(json_object_get(answer, "unchanged")))
        record(owner, "snapshot.delete"); /* as nothing has changed since the one before it */
    if (how->status != 0)
        err_set(&err, ERR_CONFLICT, 0, "make a snapshot: %s",
                message ? message : "carrel-plan ended without an answer");
    end(owner, how->status != 0 ? &err : NULL);
    json_decref(answer);
}

static void add_kept(void *context, const char *snapshot)
{
    json_array_append_new(context, json_string(snapshot));
}

static char *make_job(struct keeping *k, const char *actor, struct err *err)
{
    struct policy policy;
    struct store *store = k->front->store;
    json_t *kept = json_array();
    char *text = NULL;

    if (policy_parse(&policy, &k->arena, k->w.policy, strlen(k->w.policy), err) == 0 &&
        store_workspace_bases(store, &k->arena, k->w.id, add_kept, kept, err) == 0) {
        uint64_t most = policy.snapshots_keep ? policy.snapshots_keep : SNAPSHOTS_KEEP;
        json_t *job =
            json_pack("{s:s, s:s, s:s, s:b, s:{s:I, s:O}}", "id", k->id, "actor", actor, "why",
                      k->why, "changed", true, "drop", "most", (json_int_t)most, "kept", kept);
        text = json_dumps(job, JSON_COMPACT);
        json_decref(job);
        if (!text)
            err_set(err, ERR_LIMIT, ENOMEM, "make a snapshot");
    }
    json_decref(kept);
    return text;
}

/* False: `err` says why not. */
static bool begin(struct keeping *k, const struct version_asked *asked, struct err *err)
{
    static const struct plan_process_calls calls = {.failed = failed, .ended = ended};
    char job[28];
    int found = store_workspace_get(k->front->store, &k->arena, asked->workspace, &k->w, err);

    if (found == 0 || (found == 1 && k->w.deleted_ms))
        err_set(err, ERR_NOT_FOUND, 0, "the workspace '%s' is not there", asked->workspace);
    if (found != 1 || k->w.deleted_ms)
        return false;
    if (!change_begin(&k->change, k->w.id)) {
        err_set(err, ERR_CONFLICT, 0, "another change of the workspace '%s' is under way", k->w.id);
        return false;
    }
    make_id('s', k->id);
    make_id('p', job);
    char *text = make_job(k, asked->actor, err);
    struct plan_message m = {.bucket = k->w.bucket,
                             .workspace = k->w.id,
                             .plan = job,
                             .actor = asked->actor,
                             .request = asked->request,
                             .owner = k->w.owner,
                             .verb = PLAN_SNAPSHOT};
    if (!text)
        return false;
    record(k, "snapshot.create");
    if (plan_process_start(k->front, &m, text, strlen(text), &calls, k))
        return true;
    err_set(err, ERR_LIMIT, ENOMEM, "make a snapshot");
    return false;
}

void auto_keep(struct front *front, const struct version_asked *asked)
{
    struct keeping *k = calloc(1, sizeof(*k));
    struct err err;

    if (!k) {
        err_set(&err, ERR_LIMIT, ENOMEM, "make a snapshot");
        asked->then(asked->context, &err);
        return;
    }
    *k = (struct keeping){.front = front, .then = asked->then, .context = asked->context};
    arena_init(&k->arena, 8UL << 20);
    text_copy(k->why, sizeof(k->why), asked->why);
    text_copy(k->actor, sizeof(k->actor), asked->actor);
    text_copy(k->request, sizeof(k->request), asked->request);
    if (!begin(k, asked, &err))
        end(k, &err);
}

/* --- now and then --- */

struct changed {
    struct changed *next;
    char id[FRONT_ID];
    uint64_t due_ms; /* when it is looked at next */
    bool is_wanted;  /* its policy says so */
    bool is_dirty;
};

static struct {
    struct front *front;
    struct timer timer;
    struct changed *slots[SLOTS];
    size_t count;
    bool is_at_work;
} turn;

void auto_changed(struct front *front, const char *workspace)
{
    struct changed **slot = &turn.slots[hash_text(workspace) % SLOTS];
    struct changed *c = *slot;

    (void)front;
    while (c && strcmp(c->id, workspace) != 0)
        c = c->next;
    if (!c && turn.count < MOST_CHANGED && (c = calloc(1, sizeof(*c)))) {
        text_copy(c->id, sizeof(c->id), workspace);
        c->next = *slot;
        *slot = c;
        turn.count++;
    }
    if (c)
        c->is_dirty = true;
}

/* How often its policy wants one; 0: never, or it is not there. */
static uint64_t every_ms(const char *workspace)
{
    struct store_workspace w;
    struct policy *policy;
    struct arena arena;
    struct err err;
    uint64_t ms = 0;

    arena_init(&arena, 8UL << 20);
    policy = arena_alloc(&arena, sizeof(*policy));
    if (policy && store_workspace_get(turn.front->store, &arena, workspace, &w, &err) == 1 &&
        !w.deleted_ms && policy_parse(policy, &arena, w.policy, strlen(w.policy), &err) == 0)
        ms = policy->snapshots_every_ms;
    arena_clear(&arena);
    return ms;
}

static void taken(void *context, const struct err *failed)
{
    char text[512];

    (void)context;
    turn.is_at_work = false;
    if (failed)
        log_warning("snapshot_failed", "error", err_text(failed, text, sizeof(text)), NULL);
}

static void take(struct changed *c)
{
    c->is_dirty = false;
    turn.is_at_work = true;
    auto_keep(
        turn.front,
        &(struct version_asked){
            .workspace = c->id, .why = "every", .actor = "front", .request = "", .then = taken});
}

/* It has changed, and may be due. One at a time: others wait for the next turn. */
static void look_at(struct changed *c)
{
    uint64_t every = every_ms(c->id);

    if (every > 0 && c->is_wanted && turn.is_at_work)
        return;
    if (every > 0 && c->is_wanted)
        take(c);
    c->is_wanted = every > 0; /* the first one comes that long after the first change */
    c->due_ms = now_ms() + (every > 0 ? every : LATER_MS);
}

static void look(struct timer *timer)
{
    ignore(timer_set(turn.front->events, timer, now_ms() + TURN_MS) == 0);
    for (size_t i = 0; i < SLOTS; i++) {
        struct changed **at = &turn.slots[i];
        while (*at) {
            struct changed *c = *at;
            bool is_due = now_ms() >= c->due_ms;
            if (is_due && !c->is_dirty) {
                *at = c->next;
                turn.count--;
                free(c);
                continue;
            }
            if (is_due)
                look_at(c);
            at = &c->next;
        }
    }
}

void auto_begin(struct front *front)
{
    turn.front = front;
    turn.timer.ring = look;
    ignore(timer_set(front->events, &turn.timer, now_ms() + TURN_MS) == 0);
}
