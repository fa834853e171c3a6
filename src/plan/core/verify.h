/* SPDX-License-Identifier: Apache-2.0 */
/* Judges a plan. Pure: the same plan, policy and facts have the same findings, in the same order,
 * and nothing is looked at on the way. An operation that no rule has judged is refused. */
#pragma once

#include <stdint.h>

#include "plan/core/facts.h"

enum plan_severity {
    PLAN_REVIEW, /* a person has to look at it */
    PLAN_REFUSE,
};

enum {
    PLAN_MESSAGE = 480
};

struct plan_finding {
    ssize_t operation; /* PLAN_NOBODY: of the plan as a whole */
    const char *path;  /* NULL: of none */
    const char *rule;
    enum plan_severity severity;
    char message[PLAN_MESSAGE];
    const char *remedy;
};

/* Takes the findings one by one; counts them. */
struct plan_findings {
    size_t refused;
    size_t reviewed;
    void (*take)(void *context, const struct plan_finding *finding); /* NULL: counting is enough */
    void *context;
};

void plan_find_fault(struct plan_findings *findings, const struct plan_finding *finding);

/* -1 only when it could not be judged at all: no memory, a pattern of the policy that is none. */
int plan_judge(struct plan_findings *findings, const struct plan_index *index,
               const struct plan_policy *policy, const struct plan_facts *facts, struct err *err);

/* "clean", "review" or "refused". */
const char *plan_verdict(const struct plan_findings *findings);

extern const char *const plan_severity_names[2];
