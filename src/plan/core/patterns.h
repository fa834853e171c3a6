/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of a policy, ready to be matched. One that matches a directory holds for everything in
 * it; names that begin with a dot are names like any other. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "policy/plan_policy.h"

struct glob;

struct patterns {
    struct glob *at[2 * PLAN_POLICY_PATTERNS]; /* each, and what lies below what it matches */
    size_t count;
};

int patterns_make(struct patterns *ret, const struct plan_patterns *texts, struct err *err);
void patterns_clear(struct patterns *patterns);
bool patterns_match(const struct patterns *patterns, const char *path);
/* Whether something below this directory could match. */
bool patterns_may_match_below(const struct patterns *patterns, const char *directory);

#define scoped_patterns __attribute__((cleanup(patterns_clear)))
