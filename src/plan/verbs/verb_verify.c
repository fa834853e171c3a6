/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-plan verify: {"policy":{...}, "hash":"...", "from":0, "limit":1000}; of many findings one
 * window is told at a time, the counts are of all. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "plan/core/findings.h"
#include "plan/core/journal.h"
#include "plan/core/validations.h"
#include "plan/core/verbs.h"
#include "policy/policy.h"

enum {
    MOST_TOLD = 10000,
    TOLD = 1000,
    MOST_POLICY = 4 << 20,
};

struct window {
    const struct plan *plan;
    json_t *findings;
    size_t seen;
    size_t changed; /* refused because the base is not what the plan was made of */
    size_t from;
    size_t limit;
    bool failed;
};

static bool is_of_change(const struct plan_finding *finding)
{
    static const char *const rules[] = {"stale", "parent", "occupied"};

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (finding->severity == PLAN_REFUSE && strcmp(finding->rule, rules[i]) == 0)
            return true;
    }
    return false;
}

static void keep(void *context, const struct plan_finding *finding)
{
    struct window *w = context;

    w->changed += is_of_change(finding);
    if (w->seen++ < w->from || json_array_size(w->findings) >= w->limit)
        return;
    json_t *object = plan_finding_json(w->plan, finding);
    w->failed = w->failed || !object || json_array_append_new(w->findings, object) < 0;
}

static int read_policy(struct policy *ret, struct arena *arena, const json_t *object,
                       struct err *err)
{
    *ret = (struct policy){0};
    if (!object)
        return 0;
    char *text = json_dumps(object, JSON_COMPACT);
    int r = text ? policy_parse(ret, arena, text, strlen(text), err)
                 : err_set(err, ERR_INVALID, 0, "\"policy\" must be an object");
    free(text);
    return r;
}

static int load(struct plan *plan, int dir, const char *wanted, unsigned char hash[PLAN_HASH],
                char *ret_hash, struct err *err)
{
    if (plan_load(plan, dir, "manifest", hash, err) < 0)
        return -1;
    bytes_to_hex(hash, PLAN_HASH, ret_hash);
    if (!wanted || strcmp(wanted, ret_hash) == 0)
        return 0;
    return err_set(err, ERR_CONFLICT, 0, "the plan's hash is %s, not the one that was named",
                   ret_hash);
}

/* `ctimes`: an apply that was taken back has changed no more than these. */
static int judge_with(const struct verb_call *call, const struct plan *plan,
                      const struct plan_policy *policy, const int64_t *ctimes,
                      struct plan_findings *findings, struct err *err)
{
    scoped_index struct plan_index index = {0};
    scoped_facts struct plan_facts facts = {0};
    const struct plan_sources from = {.tree = call->tree, .dir = call->dir, .ctimes = ctimes};

    if (plan_index_make(&index, plan, err) < 0 ||
        plan_facts_gather(&facts, &index, policy, &from, err) < 0 ||
        plan_judge(findings, &index, policy, &facts, err) < 0)
        return -1;
    return validations_run(findings, &index, &facts, call->tree, plan->validations, err);
}

static int judge(const struct verb_call *call, const struct plan *plan,
                 const unsigned char hash[PLAN_HASH], const struct plan_policy *policy,
                 struct plan_findings *findings, struct err *err)
{
    struct journal journal;
    int r = journal_open(&journal, call->dir, hash, plan->count, err);

    if (r == 0)
        r = judge_with(call, plan, policy, journal.ctimes, findings, err);
    journal_clear(&journal);
    return r;
}

static int answer_with(json_t *answer, const struct plan_findings *findings, const struct window *w,
                       const char *hash, struct err *err)
{
    size_t told = w->from + json_array_size(w->findings);
    int r = w->failed ? -1 : 0;

    r |= json_object_set_new(answer, "verdict", json_string(plan_verdict(findings)));
    r |= json_object_set_new(answer, "hash", json_string(hash));
    r |= json_object_set_new(answer, "operations", json_integer((json_int_t)w->plan->count));
    r |= json_object_set_new(answer, "refused", json_integer((json_int_t)findings->refused));
    r |= json_object_set_new(answer, "changed", json_integer((json_int_t)w->changed));
    r |= json_object_set_new(answer, "reviewed", json_integer((json_int_t)findings->reviewed));
    r |= json_object_set(answer, "findings", w->findings);
    if (told < w->seen)
        r |= json_object_set_new(answer, "next", json_integer((json_int_t)told));
    return r == 0 ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "answer");
}

static int verify(const struct verb_call *call, struct policy *policy, struct arena *arena,
                  struct window *w, json_t *answer, struct err *err)
{
    struct plan_findings findings = {.take = keep, .context = w};
    json_t *object = NULL;
    const char *wanted = NULL;
    json_int_t from = 0;
    json_int_t limit = TOLD;
    unsigned char digest[PLAN_HASH];
    char hash[2 * PLAN_HASH + 1];
    struct plan plan;

    if (verb_read(call, err, "{s?o, s?s, s?I, s?I}", "policy", &object, "hash", &wanted, "from",
                  &from, "limit", &limit) < 0)
        return -1;
    if (from < 0 || limit < 0 || limit > MOST_TOLD)
        return err_set(err, ERR_INVALID, 0, "\"limit\" must be at most %d", MOST_TOLD);
    w->from = (size_t)from;
    w->limit = (size_t)limit;
    w->plan = &plan;
    plan_init(&plan);
    int r = read_policy(policy, arena, object, err);
    if (r == 0)
        r = load(&plan, call->dir, wanted, digest, hash, err);
    if (r == 0)
        r = judge(call, &plan, digest, &policy->plan, &findings, err);
    if (r == 0)
        r = answer_with(answer, &findings, w, hash, err);
    plan_clear(&plan);
    w->plan = NULL;
    return r;
}

int verb_verify(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct policy *policy = malloc(sizeof(*policy));
    struct window window = {.findings = json_array()};
    struct arena arena;

    arena_init(&arena, MOST_POLICY);
    int r = policy && window.findings ? verify(call, policy, &arena, &window, answer, err)
                                      : err_set(err, ERR_LIMIT, ENOMEM, "begin");
    json_decref(window.findings);
    arena_clear(&arena);
    free(policy);
    return r;
}
