/* SPDX-License-Identifier: Apache-2.0 */
/* What became of each operation, and the answer that says it. */
#pragma once

#include <jansson.h>

#include "plan/core/plan.h"

struct outcome {
    const struct plan *plan;
    uint32_t *why;         /* the operation for which it was left out */
    const char **messages; /* of those that failed */
    bool *not_chosen;
    struct arena arena;
};

int outcome_init(struct outcome *outcome, const struct plan *plan, struct err *err);
void outcome_clear(struct outcome *outcome);
void outcome_fail(struct outcome *outcome, size_t operation, const struct err *why);
void outcome_not_chosen(struct outcome *outcome, size_t operation);

enum {
    OUTCOMES_TOLD =
        200, /* of a plan of any size: whoever reads the answer has other things to do */
};

/* "applied", "failed", "left_out" and "not_chosen" (how many), and "operations": the first
 * OUTCOMES_TOLD of those that were left out, then, with `all`, of the others; "operations_untold":
 * how many more. */
int outcome_tell(const struct outcome *outcome, const char *in_force, bool all, json_t *answer,
                 struct err *err);
/* {"index", "path", "outcome", "message"}; NULL without memory. */
json_t *outcome_entry(const struct plan *plan, size_t operation, const char *outcome,
                      const char *message);
