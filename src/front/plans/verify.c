/* SPDX-License-Identifier: Apache-2.0 */
/* A plan against the policy of its workspace and the tree as it is now. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "front/plans/work.h"

enum {
    LARGEST_KEPT = 512 << 10, /* of the findings, in the row */
};

struct verifying {
    void (*then)(struct plan_work *work, const char *verdict);
    const char *verdict;
};

static void record_findings(struct plan_work *w, const json_t *findings)
{
    const json_t *one;
    size_t at;

    json_array_foreach(findings, at, one)
    {
        if (at == PLAN_FINDINGS)
            break;
        const char *severity = json_string_value(json_object_get(one, "severity"));
        work_record(w, "plan.finding", severity ? severity : "refuse", json_deep_copy(one), NULL);
    }
}

json_t *plan_shortened(const json_t *list)
{
    json_t *first = json_array();
    size_t size = 0;
    json_t *one;
    size_t at;

    json_array_foreach(list, at, one)
    {
        char *text = json_dumps(one, JSON_COMPACT);
        size += text ? strlen(text) : LARGEST_KEPT;
        free(text);
        if (at == PLAN_FINDINGS || size > LARGEST_KEPT)
            break;
        json_array_append(first, one);
    }
    return first;
}

/* Whether all that is refused is so because the base is not what the plan was made of: by the
 * counts, as only the first findings are told. */
static bool is_stale(const json_t *answer)
{
    json_int_t refused = json_integer_value(json_object_get(answer, "refused"));

    return refused > 0 && json_integer_value(json_object_get(answer, "changed")) == refused;
}

/* The user's own checks, run before: one that has failed, and did not pass since, is a finding like
 * others. How many there are. */
static json_int_t add_checks(const json_t *failed, json_t *findings)
{
    const json_t *check;
    size_t at;

    json_array_foreach(failed, at, check)
    {
        json_int_t status = json_integer_value(json_object_get(check, "exit_code"));
        const char *output = json_string_value(json_object_get(check, "output"));
        const char *how = json_is_true(json_object_get(check, "timed_out")) ? ", out of time" : "";
        json_array_insert_new(
            findings, at,
            json_pack("{s:s, s:s, s:o, s:s}", "rule", "check", "severity", "refuse", "message",
                      json_sprintf("the check ended with %d%s: %s", (int)status, how,
                                   output ? output : "(no text)"),
                      "remedy",
                      "mend what the check complains about, and let the same check pass"));
    }
    return (json_int_t)json_array_size(failed);
}

static const char *verdict_of(const json_t *answer)
{
    const char *verdict = json_string_value(json_object_get(answer, "verdict"));

    if (verdict && strcmp(verdict, "clean") == 0)
        return "clean";
    return verdict && strcmp(verdict, "review") == 0 ? "review" : "refused";
}

static void recorded(void *context, const struct err *failed)
{
    struct plan_work *w = context;
    struct verifying *v = w->verifying;
    void (*then)(struct plan_work *, const char *) = v->then;
    const char *verdict = v->verdict;

    free(v);
    w->verifying = NULL;
    if (failed)
        work_fail(w, failed);
    else
        then(w, verdict);
}

static void give_up(struct plan_work *w)
{
    free(w->verifying);
    w->verifying = NULL;
}

static void failed_to_begin(void *owner, const struct err *err)
{
    give_up(owner);
    work_fail(owner, err);
}

static void verified(void *owner, const struct plan_end *end)
{
    struct plan_work *w = owner;
    json_t *answer = plan_end_json(end);
    json_t *findings = json_object_get(answer, "findings");
    struct err err;

    w->process = NULL;
    if (end->status != 0 || !answer || !json_is_array(findings)) {
        give_up(w);
        work_fail_answer(w, end, answer);
        return;
    }
    struct verifying *v = w->verifying;
    w->verifying = NULL; /* if the row is gone, so is the work */
    if (!work_read_row(w)) {
        free(v);
        json_decref(answer);
        return;
    }
    w->verifying = v;
    json_int_t reviewed = json_integer_value(json_object_get(answer, "reviewed"));
    json_int_t n = json_integer_value(json_object_get(answer, "refused")) + reviewed;
    json_t *details = plan_details(&w->row);
    /* Beside the verdict: what is refused says nothing of the rest, which may be applied alone. */
    w->needs_review = reviewed > 0;
    w->is_stale = is_stale(answer);
    json_int_t failed = add_checks(json_object_get(details, "failed_checks"), findings);
    v->verdict = failed ? "refused" : verdict_of(answer);
    w->is_stale = w->is_stale && !failed;
    n += failed;
    json_object_set_new(details, "verdict", json_string(v->verdict));
    json_object_set_new(details, "findings", plan_shortened(findings));
    json_object_set_new(details, "findings_count", json_integer(n));
    json_object_set_new(details, "verified_ms", json_integer(wall_ms()));
    if (!work_keep(w, details, &err)) {
        json_decref(answer);
        give_up(w);
        work_fail(w, &err);
        return;
    }
    w->front->count.plans_refused += strcmp(v->verdict, "refused") == 0;
    record_findings(w, findings);
    json_t *told = json_pack("{s:s, s:I}", "hash", w->row.hash, "findings", n);
    json_decref(answer);
    work_record(w, "plan.verify", v->verdict, told, recorded);
}

void work_verify(struct plan_work *w, void (*then)(struct plan_work *work, const char *verdict))
{
    static const struct plan_process_calls calls = {.failed = failed_to_begin, .ended = verified};
    struct plan_policy policy;
    json_t *rules = NULL;
    struct err err;

    if (!work_policy(w, &policy, &rules, &err)) {
        work_fail(w, &err);
        return;
    }
    w->verifying = calloc(1, sizeof(*w->verifying));
    if (!w->verifying) {
        json_decref(rules);
        work_end(w, 503, "unavailable", NULL, "out of memory");
        return;
    }
    w->verifying->then = then;
    (void)work_start(w, PLAN_VERIFY, json_pack("{s:o, s:s}", "policy", rules, "hash", w->row.hash),
                     &calls);
}

static void tell(struct plan_work *w, const char *verdict)
{
    (void)verdict; /* it is in the row */
    work_announce(w, "plan.verify");
    work_end(w, 200, NULL, NULL, "%s", "");
}

void plan_verify(struct front *front, const struct plan_asked *asked)
{
    struct plan_work *w = work_begin(front, asked);

    if (!w || !work_read_row(w))
        return;
    if (!*w->row.hash)
        work_end(w, 409, "plan_open", NULL, "the plan is open; close it first");
    else if (!plan_state_allows(w->row.state, PLAN_ACT_LOOK))
        work_end(w, 409, "conflict", NULL, "the plan was discarded");
    else
        work_verify(w, tell);
}
