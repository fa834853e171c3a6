/* SPDX-License-Identifier: Apache-2.0 */
#include "front/plans/work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/answers.h"
#include "base/clock.h"
#include "base/text.h"
#include "front/core/call.h"
#include "policy/policy.h"

#define ARENA_BYTES (16UL << 20)

struct plan_work *work_find(const struct front *front, const char *plan)
{
    struct plan_work *w = front->plan_works;

    while (w && strcmp(w->plan, plan) != 0)
        w = w->next;
    return w;
}

struct plan_work *work_find_in(const struct front *front, const char *workspace)
{
    struct plan_work *w = front->plan_works;

    while (w && strcmp(w->workspace, workspace) != 0)
        w = w->next;
    return w;
}

bool plan_is_busy(const struct front *front, const char *plan)
{
    return work_find(front, plan) != NULL;
}

uint64_t plan_steps_done(const struct front *front, const char *plan)
{
    const struct plan_work *w = work_find(front, plan);

    return w ? w->steps : 0;
}

static void free_work(struct plan_work *w)
{
    struct plan_work **at = &w->front->plan_works;

    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
    free(w->verifying);
    json_decref(w->options);
    json_decref(w->merge);
    json_decref(w->failure);
    arena_clear(&w->arena);
    free(w);
}

/* It was at work when somebody wanted it out of the queue. */
static void tell_canceller(struct front *front, const struct plan_canceller *c, const char *plan,
                           enum plan_state state)
{
    struct plan_outcome outcome = {.status = 200, .message = ""};

    if (state == PLAN_QUEUED) { /* it came to nothing, and would be tried again */
        plan_cancel(front, &(struct plan_asked){.plan = plan,
                                                .actor = c->actor,
                                                .request = c->request,
                                                .done = c->done,
                                                .context = c->context});
        return;
    }
    if (state == PLAN_APPLIED || state == PLAN_APPLYING)
        outcome = (struct plan_outcome){
            .status = 409,
            .code = "conflict",
            .message =
                "the plan was being applied already, and is not stopped; undo takes it back"};
    c->done(c->context, &outcome);
}

void work_end(struct plan_work *w, int status, const char *code, json_t *details,
              const char *format, ...)
{
    struct plan_outcome outcome = {.status = status, .code = code, .details = details};
    struct front *front = w->front;
    plan_done *done = w->done;
    void *context = w->context;
    struct plan_canceller canceller = w->canceller;
    enum plan_state state = w->row.state;
    char plan[PLAN_ID];
    va_list args;

    va_start(args, format);
    vsnprintf(outcome.message, sizeof(outcome.message), format, args);
    va_end(args);
    memcpy(plan, w->plan, sizeof(plan));
    free_work(w);
    if (done)
        done(context, &outcome);
    json_decref(details);
    if (canceller.done)
        tell_canceller(front, &canceller, plan, state);
    plans_wake(front); /* another one of the workspace may have waited for this */
}

void work_fail(struct plan_work *w, const struct err *err)
{
    char text[512];
    enum err_said said = failure_said(err, text, sizeof(text));
    const struct err_answer *answer =
        err_answer(said == SAID_INVALID_REQUEST ? SAID_PLAN_INVALID : said);

    work_end(w, answer->status, answer->code, NULL, "%s", text);
}

void work_fail_answer(struct plan_work *w, const struct plan_end *end, json_t *answer)
{
    const json_t *error = json_object_get(answer, "error");
    enum err_said said = plan_answer_said(error);
    const char *message = json_string_value(json_object_get(error, "message"));
    json_t *details = json_incref(json_object_get(error, "details"));
    char text[400];

    snprintf(text, sizeof(text), "%s",
             message                              ? message
             : strcmp(end->why, "timeout") == 0   ? "it took too long and was ended"
             : strcmp(end->why, "cancelled") == 0 ? "it was cancelled"
                                                  : "carrel-plan ended without an answer");
    json_decref(answer);
    work_end(w, err_answer(said)->status, err_answer(said)->code, details, "%s", text);
}

static bool find_row(struct plan_work *w, struct err *err)
{
    struct store_workspace workspace;

    int found = store_plan_get(w->front->store, &w->arena, w->plan, &w->row, err);
    if (found == 1)
        found = store_workspace_get(w->front->store, &w->arena, w->row.workspace, &workspace, err);
    if (found == 0)
        err_set(err, ERR_NOT_FOUND, 0, "there is no plan '%s'", w->plan);
    if (found != 1)
        return false;
    if (workspace.deleted_ms) {
        err_set(err, ERR_CONFLICT, 0, "the workspace is in the trash; undelete it first");
        return false;
    }
    text_copy(w->workspace, sizeof(w->workspace), workspace.id);
    text_copy(w->bucket, sizeof(w->bucket), workspace.bucket);
    return true;
}

bool work_read_row(struct plan_work *w)
{
    struct err err;

    arena_clear(&w->arena);
    arena_init(&w->arena, ARENA_BYTES);
    if (find_row(w, &err))
        return true;
    work_fail(w, &err);
    return false;
}

struct plan_work *work_begin(struct front *front, const struct plan_asked *asked)
{
    struct plan_work *w = calloc(1, sizeof(*w));
    struct plan_outcome outcome = {
        .status = 503, .code = "unavailable", .message = "out of memory"};

    if (w && work_find(front, asked->plan)) {
        free(w);
        w = NULL;
        outcome = (struct plan_outcome){
            .status = 409,
            .code = "conflict",
            .message = "the plan is being worked on; wait until that has finished"};
    }
    if (!w) {
        if (asked->done)
            asked->done(asked->context, &outcome);
        return NULL;
    }
    w->front = front;
    text_copy(w->plan, sizeof(w->plan), asked->plan);
    text_copy(w->actor, sizeof(w->actor), asked->actor);
    text_copy(w->request, sizeof(w->request), asked->request);
    w->done = asked->done;
    w->context = asked->context;
    arena_init(&w->arena, ARENA_BYTES);
    w->next = front->plan_works;
    front->plan_works = w;
    return w;
}

json_t *plan_details(const struct store_plan *row)
{
    /* What a check has printed is any text: one that is not understood would lose how it ended. */
    json_t *object = json_loads(row->details, JSON_ALLOW_NUL, NULL);

    return object ? object : json_object();
}

const char *plan_details_text(struct arena *arena, const json_t *details)
{
    char *text = json_dumps(details, JSON_COMPACT);
    const char *copy = text ? arena_copy(arena, text, strlen(text)) : NULL;

    free(text);
    return copy;
}

static bool write_row(struct plan_work *w, enum plan_state state, json_t *details, struct err *err)
{
    struct store_plan row = w->row;

    row.state = state;
    row.updated_ms = wall_ms();
    if (details)
        row.details = plan_details_text(&w->arena, details);
    json_decref(details);
    if (!row.details) {
        err_set(err, ERR_LIMIT, ENOMEM, "store the state of the plan");
        return false;
    }
    if (store_plan_change(w->front->store, &row, w->row.state, err) < 0)
        return false;
    w->row = row;
    return true;
}

bool work_keep(struct plan_work *w, json_t *details, struct err *err)
{
    return write_row(w, w->row.state, details, err);
}

bool work_change(struct plan_work *w, enum plan_event event, uint64_t in_force, json_t *details,
                 struct err *err)
{
    enum plan_state next = plan_state_after(w->row.state, event, in_force);

    if (next != PLAN_NONE)
        return write_row(w, next, details, err);
    json_decref(details);
    err_set(err, ERR_CONFLICT, 0, "the plan is %s", plan_state_name(w->row.state));
    return false;
}

bool work_start_text(struct plan_work *w, enum plan_verb verb, char *text, size_t n,
                     const struct plan_process_calls *calls)
{
    struct plan_message m = {.bucket = w->bucket,
                             .workspace = w->workspace,
                             .plan = w->plan,
                             .actor = w->actor,
                             .request = w->request,
                             .base = w->base,
                             .theirs = w->theirs,
                             .owner = w->row.owner,
                             .verb = verb};

    w->process = plan_process_start(w->front, &m, text, n, calls, w);
    if (w->process)
        return true;
    work_end(w, 503, "unavailable", NULL, "out of memory");
    return false;
}

bool work_start(struct plan_work *w, enum plan_verb verb, json_t *job,
                const struct plan_process_calls *calls)
{
    char *text =
        json_is_string(job) ? strdup(json_string_value(job)) : json_dumps(job, JSON_COMPACT);

    json_decref(job);
    w->steps = 0;
    return work_start_text(w, verb, text, text ? strlen(text) : 0, calls);
}

void work_record(struct plan_work *w, const char *operation, const char *result, json_t *details,
                 front_recorded *heard)
{
    struct front_record r = {.actor = w->actor,
                             .request = w->request,
                             .workspace = w->workspace,
                             .operation = operation,
                             .result = result};

    json_object_set_new(details, "plan", json_string(w->plan));
    front_record(w->front, &r, details, heard, heard ? w : NULL);
}

void work_announce(const struct plan_work *w, const char *what)
{
    front_announce(w->front, what, w->workspace, w->row.owner ? w->row.owner : "",
                   json_pack("{s:s, s:s, s:s}", "plan", w->plan, "state",
                             plan_state_name(w->row.state), "hash",
                             w->row.hash ? w->row.hash : ""));
}

bool plan_policy_of(const struct store_workspace *w, struct arena *arena, struct plan_policy *ret,
                    json_t **ret_json, struct err *err)
{
    struct policy *policy = arena_alloc(arena, sizeof(*policy));

    if (!policy) {
        err_set(err, ERR_LIMIT, ENOMEM, "read the policy");
        return false;
    }
    if (policy_parse(policy, arena, w->policy, strlen(w->policy), err) < 0)
        return false;
    *ret = policy->plan;
    if (ret_json) {
        json_t *whole = json_loads(w->policy, 0, NULL);
        *ret_json = whole ? whole : json_object();
    }
    return true;
}

bool work_policy(struct plan_work *w, struct plan_policy *ret, json_t **ret_rules, struct err *err)
{
    struct store_workspace workspace;
    int found = store_workspace_get(w->front->store, &w->arena, w->workspace, &workspace, err);

    if (found == 0)
        err_set(err, ERR_NOT_FOUND, 0, "there is no workspace '%s'", w->workspace);
    return found == 1 && plan_policy_of(&workspace, &w->arena, ret, ret_rules, err);
}
