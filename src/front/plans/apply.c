/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are carried out, and taken back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "front/plans/work.h"

enum {
    FIRST_PAUSE_MS = 500,
    LONGEST_PAUSE_MS = 60000,
    SETTLE_MS = 5000, /* a row that says "applying" and is not worked on is looked at */
};

static bool is_approved(const json_t *details)
{
    return json_object_get(json_object_get(details, "approval"), "by") != NULL;
}

/* It is again what it was before it was asked to be applied. */
static enum plan_event back(const json_t *details)
{
    return is_approved(details) ? PLAN_EVENT_SETTLED_APPROVED : PLAN_EVENT_SETTLED_CLOSED;
}

static bool is_one_of(const char *state, const char *const *states)
{
    while (*states && strcmp(*states, state) != 0)
        states++;
    return *states != NULL;
}

static void heard_steps(void *owner, uint64_t count)
{
    struct plan_work *w = owner;

    w->front->count.plan_steps += count > w->steps ? count - w->steps : 0;
    w->steps = count;
}

/* Sets a member of one of the objects in the details: "apply", "undo". */
static void note(json_t *details, const char *what, const char *name, json_t *value)
{
    json_t *object = json_object_get(details, what);

    if (!object) {
        object = json_object();
        json_object_set_new(details, what, object);
    }
    json_object_set_new(object, name, value);
}

/* --- an end --- */

/* Chooses what a failed apply means for the plan: queued again, stale, failed, or the state before.
 */
static enum plan_event event_of(const struct plan_work *w, const json_t *details, const char *code)
{
    static const char *const passing[] = {"workspace_busy", "disk_full",   "io_error",
                                          "quota_exceeded", "unavailable", NULL};

    if (w->from_queue && is_one_of(code, passing) && w->row.attempts < PLAN_TRIES && !w->cancelled)
        return PLAN_EVENT_SETTLED_QUEUED;
    if (strcmp(code, "plan_conflict") == 0 || strcmp(code, "plan_stale") == 0)
        return PLAN_EVENT_OUTDATED;
    if (w->from_queue && !w->cancelled)
        return PLAN_EVENT_GIVEN_UP;
    return back(details);
}

static int64_t pause_ms(int64_t attempts)
{
    int64_t ms = FIRST_PAUSE_MS;

    for (int64_t i = 1; i < attempts && ms < LONGEST_PAUSE_MS; i++)
        ms *= 2;
    return ms < LONGEST_PAUSE_MS ? ms : LONGEST_PAUSE_MS;
}

/* Writes down what the outcome means for the row, then tells as the caller would. The row is
 * "applying", or "queued" or whatever it was when nothing had been begun. */
static void not_applied(struct plan_work *w, const char *code, const char *message)
{
    json_t *details = plan_details(&w->row);
    enum plan_event event = event_of(w, details, code);
    bool again = event == PLAN_EVENT_SETTLED_QUEUED;
    struct err err;

    note(details, "apply", "error", json_pack("{s:s, s:s}", "code", code, "message", message));
    w->row.due_ms = again ? wall_ms() + pause_ms(w->row.attempts) : 0;
    w->front->count.plans_stale += event == PLAN_EVENT_OUTDATED;
    if (!work_change(w, event, 0, details, &err))
        log_warning("plan_row", "plan", w->plan, "error", err.msg, NULL);
    work_announce(w, "plan.apply");
}

static void fail_apply(void *owner, const struct err *err)
{
    struct plan_work *w = owner;
    char text[512];
    bool busy = err->code == ERR_CONFLICT && err->os_errno == EBUSY;

    w->process = NULL;
    not_applied(w, busy ? "workspace_busy" : "io_error", err_text(err, text, sizeof(text)));
    work_fail(w, err);
}

static void fail_answer(struct plan_work *w, const struct plan_end *end, json_t *answer)
{
    const json_t *error = json_object_get(answer, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));

    not_applied(w, code ? code : "io_error", message ? message : end->why);
    /* Its own word for a base that has changed since. */
    if (code && strcmp(code, "plan_conflict") == 0)
        json_object_set_new(json_object_get(answer, "error"), "code", json_string("plan_stale"));
    work_fail_answer(w, end, answer);
}

/* What became of it is asked of its journal, once the broker has seen to that. */
static void look_soon(struct plan_work *w)
{
    struct err err;

    w->row.due_ms = wall_ms() + FIRST_PAUSE_MS;
    if (!work_keep(w, NULL, &err))
        log_warning("plan_row", "plan", w->plan, "error", err.msg, NULL);
}

/* --- what an end that was not good means --- */

/* It failed, or nobody can read what it said: its journal knows whether the tree was changed. The
 * broker answers once it has dealt with what was left. Takes the answer; the caller is told when
 * that is known. */
static void ask_journal(struct plan_work *w, const struct plan_end *end, json_t *answer,
                        const struct plan_process_calls *calls)
{
    w->failure = answer;
    snprintf(w->failure_why, sizeof(w->failure_why), "%s", end->why);
    if (end->status != PLAN_KILLED) {
        w->asks_journal = true;
        (void)work_start(w, PLAN_JOURNAL, json_object(), calls);
        return;
    }
    look_soon(w); /* what it has done is being dealt with, which may take its time */
    work_end(w, 500, "io_error", NULL, "it was ended (%s); what it had begun is being settled",
             *end->why ? end->why : "killed");
}

static json_t *take_failure(struct plan_work *w)
{
    json_t *answer = w->failure;

    w->failure = NULL;
    return answer;
}

/* Not now: the row says that it is not known, and it is asked again. */
static void not_told(struct plan_work *w)
{
    struct plan_end end = {.status = 1, .why = w->failure_why, .fd = -1};

    look_soon(w);
    work_fail_answer(w, &end, take_failure(w));
}

static void journal_failed(void *owner, const struct err *err)
{
    struct plan_work *w = owner;

    (void)err; /* what is told went wrong first */
    w->process = NULL;
    not_told(w);
}

static uint64_t in_force_of(const json_t *answer)
{
    json_int_t n = json_integer_value(json_object_get(answer, "in_force"));

    return n > 0 ? (uint64_t)n : 0;
}

/* How many operations are in the tree. False: told that it is not known. */
static bool read_in_force(struct plan_work *w, const struct plan_end *end, uint64_t *ret)
{
    json_t *answer = plan_end_json(end);
    bool known = end->status == 0 && answer;

    *ret = in_force_of(answer);
    json_decref(answer);
    w->process = NULL;
    if (!known)
        not_told(w);
    return known;
}

/* The journal says that it was done after all. */
static void was_done(struct plan_work *w, const char *what, enum plan_event event)
{
    json_t *details = plan_details(&w->row);
    struct err err;

    note(details, what, "interrupted", json_true());
    w->row.due_ms = 0;
    if (!work_change(w, event, 0, details, &err)) {
        work_fail(w, &err);
        return;
    }
    work_announce(w, what[0] == 'a' ? "plan.apply" : "plan.undo");
    work_end(w, 200, NULL, NULL, "%s", "");
}

/* How it went, beside what was asked for. */
static void take_answer(json_t *object, json_t *answer)
{
    json_object_set_new(answer, "operations",
                        plan_shortened(json_object_get(answer, "operations")));
    json_object_update(object, answer);
    json_object_del(object, "error");
    json_object_set_new(object, "ended_ms", json_integer(wall_ms()));
}

/* --- apply --- */

static void asked_of_apply(void *owner, const struct plan_end *end)
{
    struct plan_work *w = owner;
    struct plan_end first = {.status = 1, .why = w->failure_why, .fd = -1};
    uint64_t in_force;

    if (!read_in_force(w, end, &in_force))
        return;
    if (in_force > 0)
        was_done(w, "apply", PLAN_EVENT_APPLIED);
    else
        fail_answer(w, &first, take_failure(w));
}

static void applied(void *owner, const struct plan_end *end)
{
    static const struct plan_process_calls asking = {.failed = journal_failed,
                                                     .ended = asked_of_apply};
    struct plan_work *w = owner;
    json_t *answer = plan_end_json(end);
    struct err err;

    w->process = NULL;
    if (end->status != 0 || !answer) {
        ask_journal(w, end, answer, &asking);
        return;
    }
    json_t *details = plan_details(&w->row);
    take_answer(json_object_get(details, "apply"), answer);
    const json_t *disk = json_object_get(answer, "disk_bytes");
    if (disk)
        w->row.disk_bytes = json_integer_value(disk);
    json_decref(answer);
    w->row.due_ms = 0;
    if (!work_change(w, PLAN_EVENT_APPLIED, 0, details, &err)) {
        work_fail(w, &err);
        return;
    }
    w->front->count.plans_applied++;
    work_announce(w, "plan.apply");
    plans_trim(w->front, w->workspace);
    work_end(w, 200, NULL, NULL, "%s", "");
}

static void was_cancelled(struct plan_work *w)
{
    not_applied(w, "cancelled", "it was taken out of the queue");
    work_end(w, 409, "conflict", NULL, "it was taken out of the queue");
}

/* The record is on disk: from here on the row says so. */
static void begin_apply(void *context, const struct err *failed)
{
    static const struct plan_process_calls calls = {
        .failed = fail_apply, .steps = heard_steps, .ended = applied};
    struct plan_work *w = context;
    struct err err;

    if (failed) {
        not_applied(w, "io_error", failed->msg);
        work_fail(w, failed);
        return;
    }
    if (w->cancelled) {
        was_cancelled(w);
        return;
    }
    json_t *details = plan_details(&w->row);
    json_t *job = json_pack("{s:s, s:O}", "hash", w->row.hash, "keep_going",
                            json_object_get(w->options, "keep_going"));
    json_t *some = json_object_get(json_object_get(details, "approval"), "operations");
    if (json_is_array(some))
        json_object_set(job, "operations", some);
    json_object_set(details, "apply", w->options);
    w->row.due_ms = wall_ms() + SETTLE_MS; /* if how it ends cannot be written down */
    w->row.attempts++;
    if (!work_change(w, PLAN_EVENT_APPLY, 0, details, &err)) {
        json_decref(job);
        work_fail(w, &err);
        return;
    }
    (void)work_start(w, PLAN_APPLY, job, &calls);
}

/* An approval is of a whole: what is left out of it makes something that nobody has approved.
 * Answered. */
static bool refuse_parts(struct plan_work *w)
{
    static const char why[] =
        "the plan was approved as a whole and can only be applied as a whole: leave keep_going "
        "out; if files have changed since, make a new plan";

    if (w->from_queue)
        not_applied(w, "approval_refused", why);
    work_end(w, 403, "approval_refused", NULL, "%s", why);
    return false;
}

/* Whether it has the approval that it needs, by the policy as it is now: one that was tightened
 * since the plan was made holds for it, too. Answered otherwise. */
static bool is_allowed(struct plan_work *w)
{
    json_t *details = plan_details(&w->row);
    bool approved = is_approved(details);
    struct plan_policy policy;
    struct err err;

    json_decref(details);
    if (approved && json_is_true(json_object_get(w->options, "keep_going")))
        return refuse_parts(w);
    if (!work_policy(w, &policy, NULL, &err)) {
        work_fail(w, &err);
        return false;
    }
    if (approved || (policy.approval == PLAN_APPROVAL_NONE && !w->needs_review))
        return true;
    w->row.due_ms =
        wall_ms() + (int64_t)(policy.expires_ms ? policy.expires_ms : PLAN_POLICY_EXPIRES_MS);
    if (!work_change(w, PLAN_EVENT_HELD, 0, NULL, &err))
        work_fail(w, &err);
    else
        work_end(
            w, 403, "approval_required", NULL, "%s",
            w->needs_review
                ? "the plan has findings that a person must review first; it waits for an approval"
                : "the policy wants an approval; the plan waits for one");
    return false;
}

static void is_kept(void *context, const struct err *failed)
{
    struct plan_work *w = context;

    if (failed) {
        fail_apply(w, failed);
        return;
    }
    work_record(w, "plan.apply", "asked",
                json_pack("{s:s, s:I, s:O}", "hash", w->row.hash, "operations",
                          (json_int_t)w->row.operations, "keep_going",
                          json_object_get(w->options, "keep_going")),
                begin_apply);
}

/* A snapshot first, where the policy wants one. */
static void keep_version(struct plan_work *w)
{
    struct plan_policy policy;
    struct err err;

    if (!work_policy(w, &policy, NULL, &err))
        fail_apply(w, &err);
    else if (!policy.snapshot)
        is_kept(w, NULL);
    else
        w->front->keep_version(w->front, &(struct version_asked){.workspace = w->workspace,
                                                                 .why = "apply",
                                                                 .actor = w->actor,
                                                                 .request = w->request,
                                                                 .then = is_kept,
                                                                 .context = w});
}

static void verified(struct plan_work *w, const char *verdict)
{
    bool keep_going = json_is_true(json_object_get(w->options, "keep_going"));

    if (w->cancelled) {
        was_cancelled(w);
        return;
    }
    /* With keep_going what has changed since is left out by who applies it. */
    if (strcmp(verdict, "refused") == 0 && !(keep_going && w->is_stale)) {
        json_t *details = plan_details(&w->row);
        json_t *findings = json_incref(json_object_get(details, "findings"));
        json_t *why = json_pack("{s:o, s:O}", "findings", findings, "findings_count",
                                json_object_get(details, "findings_count"));
        json_decref(details);
        const char *code = w->is_stale ? "plan_stale" : "plan_refused";
        if (w->from_queue || w->is_stale)
            not_applied(w, code, "the verification refuses it");
        work_end(w, w->is_stale ? 409 : 422, code, why, "%s",
                 w->is_stale ? "files that the plan was made from have changed; make a new plan"
                             : "the plan does not pass the verification; its findings say why");
        return;
    }
    if (is_allowed(w))
        keep_version(w);
}

struct refusal {
    int status;
    const char *code;
    const char *message;
};

/* Whether its state lets it be applied, or put into the queue; answered otherwise. */
static bool may_apply(struct plan_work *w, enum plan_action action)
{
    static const struct refusal refusals[PLAN_STATE_COUNT_] = {
        [PLAN_OPEN] = {409, "plan_open", "the plan is open; close it first"},
        [PLAN_PENDING] = {403, "approval_required", "the plan waits for an approval"},
        [PLAN_QUEUED] = {409, "conflict", "the plan is in the queue already"},
        [PLAN_STALE] = {409, "plan_stale",
                        "what the plan was made of has changed since; make it anew"},
    };
    const struct refusal *refusal = &refusals[w->row.state];

    if (plan_state_allows(w->row.state, action))
        return true;
    if (refusal->code)
        work_end(w, refusal->status, refusal->code, NULL, "%s", refusal->message);
    else
        work_end(w, 409, "conflict", NULL, "the plan is %s", plan_state_name(w->row.state));
    return false;
}

static json_t *make_options(const struct plan_work *w, bool keep_going, bool later)
{
    return json_pack("{s:b, s:b, s:s, s:I}", "keep_going", keep_going, "async", later, "by",
                     w->actor, "asked_ms", (json_int_t)wall_ms());
}

void plan_apply(struct front *front, const struct plan_asked *asked, bool keep_going)
{
    struct plan_work *w = work_begin(front, asked);

    if (!w || !work_read_row(w) || !may_apply(w, PLAN_ACT_APPLY))
        return;
    w->from_queue = w->row.state == PLAN_QUEUED;
    w->options = make_options(w, keep_going, w->from_queue);
    work_verify(w, verified);
}

/* --- the queue --- */

static void enqueue(void *context, const struct err *failed)
{
    struct plan_work *w = context;
    json_t *details = plan_details(&w->row);
    struct err err;

    if (failed) {
        json_decref(details);
        work_fail(w, failed);
        return;
    }
    json_object_set(details, "apply", w->options);
    w->row.due_ms = wall_ms();
    w->row.attempts = 0;
    if (!work_change(w, PLAN_EVENT_QUEUED, 0, details, &err)) {
        work_fail(w, &err);
        return;
    }
    work_announce(w, "plan.apply");
    work_end(w, 202, NULL, NULL, "%s", "");
}

void plan_enqueue(struct front *front, const struct plan_asked *asked, bool keep_going)
{
    struct plan_work *w = work_begin(front, asked);

    if (!w || !work_read_row(w) || !may_apply(w, PLAN_ACT_ENQUEUE))
        return;
    w->options = make_options(w, keep_going, true);
    if (!is_allowed(w))
        return;
    work_record(w, "plan.apply", "queued", json_pack("{s:s}", "hash", w->row.hash), enqueue);
}

static void cancelled(void *context, const struct err *failed)
{
    struct plan_work *w = context;
    json_t *details = plan_details(&w->row);
    struct err err;

    w->row.due_ms = 0;
    enum plan_event event = back(details);
    json_object_del(details, "apply");
    if (failed) {
        json_decref(details);
        work_fail(w, failed);
    } else if (!work_change(w, event, 0, details, &err)) {
        work_fail(w, &err);
    } else {
        work_end(w, 200, NULL, NULL, "%s", "");
    }
}

/* It has its turn. Before it has begun it does not; afterwards it is finished, and whoever wanted
 * it out of the queue is told which. */
static void cancel_at_work(struct plan_work *w, const struct plan_asked *asked)
{
    struct plan_outcome begun = {
        .status = 409,
        .code = "conflict",
        .message = "the plan is being applied, and is not stopped; undo takes it back afterwards"};

    if (w->steps > 0 && !w->verifying) {
        asked->done(asked->context, &begun);
        return;
    }
    w->cancelled = true;
    w->canceller.done = asked->done;
    w->canceller.context = asked->context;
    text_copy(w->canceller.actor, sizeof(w->canceller.actor), asked->actor);
    text_copy(w->canceller.request, sizeof(w->canceller.request), asked->request);
    if (w->process && !w->verifying && !w->asks_journal)
        plan_process_cancel(w->process);
}

void plan_cancel(struct front *front, const struct plan_asked *asked)
{
    struct plan_work *other = work_find(front, asked->plan);

    if (other && other->from_queue && asked->done && !other->canceller.done) {
        cancel_at_work(other, asked);
        return;
    }
    struct plan_work *w = work_begin(front, asked);
    if (!w || !work_read_row(w))
        return;
    if (!plan_state_allows(w->row.state, PLAN_ACT_CANCEL))
        work_end(w, 409, "conflict", NULL, "the plan is not in the queue");
    else
        work_record(w, "plan.apply", "cancelled", json_pack("{s:s}", "hash", w->row.hash),
                    cancelled);
}

/* --- undo --- */

static void not_undone(struct plan_work *w, const char *code, const char *message)
{
    json_t *details = plan_details(&w->row);
    struct err err;

    note(details, "undo", "error", json_pack("{s:s, s:s}", "code", code, "message", message));
    w->row.due_ms = 0;
    if (!work_change(w, PLAN_EVENT_NOT_UNDONE, 0, details, &err))
        log_warning("plan_row", "plan", w->plan, "error", err.msg, NULL);
}

static void fail_undo(void *owner, const struct err *err)
{
    struct plan_work *w = owner;
    char text[512];

    w->process = NULL;
    not_undone(w, "io_error", err_text(err, text, sizeof(text)));
    work_fail(w, err);
}

static void asked_of_undo(void *owner, const struct plan_end *end)
{
    struct plan_work *w = owner;
    struct plan_end first = {.status = 1, .why = w->failure_why, .fd = -1};
    uint64_t in_force;

    if (!read_in_force(w, end, &in_force))
        return;
    if (in_force == 0) {
        was_done(w, "undo", PLAN_EVENT_UNDONE);
        return;
    }
    json_t *answer = take_failure(w);
    const json_t *error = json_object_get(answer, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    not_undone(w, code ? code : "io_error", message ? message : first.why);
    work_fail_answer(w, &first, answer);
}

static void undone(void *owner, const struct plan_end *end)
{
    static const struct plan_process_calls asking = {.failed = journal_failed,
                                                     .ended = asked_of_undo};
    struct plan_work *w = owner;
    json_t *answer = plan_end_json(end);
    struct err err;

    w->process = NULL;
    if (end->status != 0 || !answer) {
        ask_journal(w, end, answer, &asking);
        return;
    }
    json_t *details = plan_details(&w->row);
    take_answer(json_object_get(details, "undo"), answer);
    uint64_t in_force = in_force_of(answer);
    json_decref(answer);
    w->row.due_ms = 0;
    if (!work_change(w, PLAN_EVENT_UNDONE, in_force, details, &err)) {
        work_fail(w, &err);
        return;
    }
    w->front->count.plans_undone++;
    work_announce(w, "plan.undo");
    work_end(w, 200, NULL, NULL, "%s", "");
}

static void begin_undo(void *context, const struct err *failed)
{
    static const struct plan_process_calls calls = {
        .failed = fail_undo, .steps = heard_steps, .ended = undone};
    struct plan_work *w = context;
    struct err err;

    if (failed) {
        work_fail(w, failed);
        return;
    }
    json_t *details = plan_details(&w->row);
    json_object_set_new(details, "undo",
                        json_pack("{s:s, s:I}", "by", w->actor, "asked_ms", (json_int_t)wall_ms()));
    w->row.due_ms = wall_ms() + SETTLE_MS;
    if (!work_change(w, PLAN_EVENT_UNDO, 0, details, &err)) {
        work_fail(w, &err);
        return;
    }
    (void)work_start(w, PLAN_UNDO, json_incref(w->options), &calls);
}

void plan_undo(struct front *front, const struct plan_asked *asked, json_t *paths, bool force)
{
    struct plan_work *w = work_begin(front, asked);
    json_t *options = json_pack("{s:b}", "force", force);

    if (paths)
        json_object_set_new(options, "paths", paths);
    if (!w || !work_read_row(w)) {
        json_decref(options);
        return;
    }
    w->options = options;
    if (!plan_state_allows(w->row.state, PLAN_ACT_UNDO))
        work_end(w, 409, "conflict", NULL, "the plan is %s, not applied",
                 plan_state_name(w->row.state));
    else if (w->row.dropped)
        work_end(w, 410, "gone", NULL,
                 "what is needed to undo the plan is no longer kept (policy plan.history)");
    else
        work_record(w, "plan.undo", "asked",
                    json_pack("{s:s, s:O}", "hash", w->row.hash, "what", options), begin_undo);
}

/* --- what was interrupted --- */

static void settled(void *owner, const struct plan_end *end)
{
    struct plan_work *w = owner;
    json_t *answer = plan_end_json(end);
    json_t *details = plan_details(&w->row);
    bool async = json_is_true(json_object_get(json_object_get(details, "apply"), "async"));
    enum plan_event event = async ? PLAN_EVENT_SETTLED_QUEUED : back(details);
    struct err err;

    w->process = NULL;
    if (end->status != 0 || !answer) {
        json_decref(details);
        work_fail_answer(w, end, answer);
        return;
    }
    uint64_t in_force = in_force_of(answer);
    json_decref(answer);
    note(details, w->row.state == PLAN_UNDOING ? "undo" : "apply", "interrupted", json_true());
    bool again = plan_state_after(w->row.state, event, in_force) == PLAN_QUEUED;
    w->row.due_ms = again ? wall_ms() : 0;
    if (!work_change(w, event, in_force, details, &err)) {
        work_fail(w, &err);
        return;
    }
    work_announce(w, "plan.recover");
    work_end(w, 200, NULL, NULL, "%s", "");
}

static void not_settled(void *owner, const struct err *err)
{
    struct plan_work *w = owner;

    w->process = NULL;
    if (err->code == ERR_NOT_FOUND) { /* its directory was moved away: the tree stays as it is */
        json_t *details = plan_details(&w->row);
        struct err failed;

        note(details, "apply", "message", json_string(err->msg));
        w->row.due_ms = 0;
        if (!work_change(w, PLAN_EVENT_GIVEN_UP, 0, details, &failed)) {
            work_fail(w, &failed);
            return;
        }
    }
    work_fail(w, err);
}

void plan_settle(struct front *front, const struct plan_asked *asked)
{
    static const struct plan_process_calls calls = {.failed = not_settled, .ended = settled};
    struct plan_work *w = work_begin(front, asked);

    if (!w || !work_read_row(w))
        return;
    if (plan_state_allows(w->row.state, PLAN_ACT_SETTLE))
        (void)work_start(w, PLAN_JOURNAL, json_object(), &calls);
    else
        work_end(w, 200, NULL, NULL, "%s", "");
}
