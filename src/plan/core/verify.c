/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/core/fold.h"
#include "plan/core/rules.h"
#include "policy/units.h"

/* Applying moves what is there already: it takes names and a journal, no content. */
enum {
    SPACE_FOR_ONE = 4096,
    SPACE_AT_LEAST = 1 << 20,
    FILES_AT_LEAST = 16,
};

const char *const plan_severity_names[2] = {[PLAN_REVIEW] = "review", [PLAN_REFUSE] = "refuse"};

const char *plan_verdict(const struct plan_findings *findings)
{
    return findings->refused ? "refused" : findings->reviewed ? "review" : "clean";
}

void plan_find_fault(struct plan_findings *findings, const struct plan_finding *finding)
{
    *(finding->severity == PLAN_REFUSE ? &findings->refused : &findings->reviewed) += 1;
    if (findings->take)
        findings->take(findings->context, finding);
}

/* --- pairs of operations --- */

static void mark_rivals(struct judge *judge, const struct plan_order *order)
{
    for (size_t i = 1; i < order->count; i++) {
        if (strcmp(order->name[i - 1], order->name[i]) != 0)
            continue;
        judge->rival[order->at[i]] = (int32_t)order->at[i - 1];
        judge->rival[order->at[i - 1]] = (int32_t)order->at[i];
    }
}

static int compare_folded(const void *a, const void *b, void *plan)
{
    const struct plan_operation *operations = ((const struct plan *)plan)->operations;

    return fold_compare(operations[*(const uint32_t *)a].path,
                        operations[*(const uint32_t *)b].path);
}

static void mark_twins(struct judge *judge, uint32_t *order, size_t n)
{
    struct plan shallow = *judge->plan; /* qsort_r wants it without const */
    const struct plan_operation *operations = shallow.operations;

    qsort_r(order, n, sizeof(*order), compare_folded, &shallow);
    for (size_t i = 1; i < n; i++) {
        const char *before = operations[order[i - 1]].path;
        const char *path = operations[order[i]].path;
        if (fold_compare(before, path) != 0 || strcmp(before, path) == 0)
            continue;
        judge->twin[order[i]] = (int32_t)order[i - 1];
        judge->twin[order[i - 1]] = (int32_t)order[i];
    }
}

static int find_pairs(struct judge *judge, struct err *err)
{
    const struct plan_order *after = &judge->index->after;
    size_t count = judge->plan->count;
    uint32_t *order = calloc(count + 1, sizeof(*order));

    judge->rival = calloc(count + 1, sizeof(*judge->rival));
    judge->twin = calloc(count + 1, sizeof(*judge->twin));
    if (!order || !judge->rival || !judge->twin) {
        free(order);
        return err_set(err, ERR_LIMIT, ENOMEM, "compare the operations");
    }
    for (size_t i = 0; i < count; i++)
        judge->rival[i] = judge->twin[i] = PLAN_NOBODY;
    mark_rivals(judge, after);
    mark_rivals(judge, &judge->index->before);
    if (after->count > 0)
        memcpy(order, after->at, after->count * sizeof(*order));
    mark_twins(judge, order, after->count);
    free(order);
    return 0;
}

/* --- one operation --- */

/* False: the policy wants nothing said. */
static bool severity_of(const struct rule *rule, const struct plan_policy *policy,
                        enum plan_severity *ret)
{
    *ret = rule->severity;
    if (rule->care == RULE_FIXED)
        return true;
    enum plan_care care = *(const enum plan_care *)((const char *)policy + rule->care);
    if (care == PLAN_CARE_REFUSE || care == PLAN_CARE_REVIEW)
        *ret = care == PLAN_CARE_REFUSE ? PLAN_REFUSE : PLAN_REVIEW;
    return care != PLAN_CARE_ALLOW;
}

static void judge_one(const struct judge *judge, size_t number, struct plan_findings *findings)
{
    const struct plan_operation *operation = &judge->plan->operations[number];
    struct plan_finding finding = {.operation = (ssize_t)number, .path = operation->path};
    bool known = number < judge->facts->count && (unsigned)operation->kind < PLAN_KIND_COUNT_ &&
                 operation->path;
    size_t passed = 0;

    struct hearing hearing = {.judge = judge,
                              .number = number,
                              .operation = operation,
                              .fact = known ? &judge->facts->at[number] : NULL,
                              .message = finding.message};
    for (size_t i = 0; known && i < plan_rule_count; i++) {
        const struct rule *rule = &plan_rules[i];
        if (!(rule->kinds & 1U << operation->kind) ||
            !severity_of(rule, judge->policy, &finding.severity))
            continue;
        passed++;
        if (!rule->fires(&hearing))
            continue;
        finding.rule = rule->name;
        finding.remedy = rule->remedy;
        plan_find_fault(findings, &finding);
    }
    if (passed > 0)
        return;
    finding.rule = "unjudged";
    finding.severity = PLAN_REFUSE;
    finding.remedy = "leave it out";
    (void)hearing_say(&hearing, "no rule knows this operation");
    plan_find_fault(findings, &finding);
}

/* --- the plan as a whole --- */

static struct plan_finding of_the_whole(const char *rule, const char *remedy)
{
    return (struct plan_finding){
        .operation = PLAN_NOBODY, .rule = rule, .severity = PLAN_REFUSE, .remedy = remedy};
}

static void judge_flaws(const struct plan *plan, struct plan_findings *findings)
{
    for (size_t i = 0; i < plan->flaw_count; i++) {
        const struct plan_flaw *flaw = &plan->flaws[i];
        struct plan_finding f = of_the_whole("flaw", "take it away and make the plan again");
        f.path = flaw->path;
        snprintf(f.message, sizeof(f.message), "%s", plan_flaw_words[flaw->kind]);
        plan_find_fault(findings, &f);
    }
}

static void judge_sizes(const struct judge *judge, struct plan_findings *findings)
{
    const struct plan_policy *policy = judge->policy;
    char much[UNITS_TEXT];
    char most[UNITS_TEXT];

    if (policy->max_operations && judge->plan->count > policy->max_operations) {
        struct plan_finding f = of_the_whole(
            "max_operations",
            "do it in smaller plans, or have \"max_operations\" in the policy's \"plan\" raised");
        snprintf(f.message, sizeof(f.message), "the plan has %zu operations, and may have %s",
                 judge->plan->count, units_text(UNITS_COUNT, policy->max_operations, most));
        plan_find_fault(findings, &f);
    }
    if (policy->max_bytes && judge->plan->bytes > policy->max_bytes) {
        struct plan_finding f = of_the_whole(
            "max_bytes",
            "do it in smaller plans, or have \"max_bytes\" in the policy's \"plan\" raised");
        snprintf(f.message, sizeof(f.message), "the plan carries %s, and may carry %s",
                 units_text(UNITS_SIZE, judge->plan->bytes, much),
                 units_text(UNITS_SIZE, policy->max_bytes, most));
        plan_find_fault(findings, &f);
    }
}

static void judge_host(const struct judge *judge, struct plan_findings *findings)
{
    const struct plan_facts *facts = judge->facts;
    enum plan_care twins = judge->policy->case_twins;

    if (judge->plan->count > 0 &&
        (facts->free_bytes < SPACE_AT_LEAST + SPACE_FOR_ONE * (uint64_t)judge->plan->count ||
         facts->free_files < FILES_AT_LEAST)) {
        struct plan_finding f = of_the_whole("space", "make room on the file system of the tree");
        snprintf(f.message, sizeof(f.message), "there is too little free space to apply it");
        plan_find_fault(findings, &f);
    }
    if (facts->twins_unknown && twins != PLAN_CARE_ALLOW) {
        struct plan_finding f =
            of_the_whole("case_twins", "look for them, or set \"case_twins\" to \"allow\"");
        f.severity = twins == PLAN_CARE_REVIEW ? PLAN_REVIEW : PLAN_REFUSE;
        snprintf(f.message, sizeof(f.message),
                 "there are too many names to look for some that differ in case only");
        plan_find_fault(findings, &f);
    }
}

int plan_judge(struct plan_findings *findings, const struct plan_index *index,
               const struct plan_policy *policy, const struct plan_facts *facts, struct err *err)
{
    struct judge judge = {.plan = index->plan, .index = index, .policy = policy, .facts = facts};
    int r = patterns_make(&judge.allow, &policy->allow, err);

    if (r == 0)
        r = patterns_make(&judge.protect, &policy->protect, err);
    if (r == 0)
        r = find_pairs(&judge, err);
    if (r == 0) {
        judge_flaws(judge.plan, findings);
        judge_sizes(&judge, findings);
        judge_host(&judge, findings);
        for (size_t i = 0; i < judge.plan->count; i++)
            judge_one(&judge, i, findings);
    }
    free(judge.rival);
    free(judge.twin);
    patterns_clear(&judge.allow);
    patterns_clear(&judge.protect);
    return r;
}
