/* SPDX-License-Identifier: Apache-2.0 */
/* What another version of a tree has changed since a common one is brought into the tree as it is
 * now: as a plan on it, whose content lies in the plan's directory. Without a common version the
 * tree becomes that other version. */
#pragma once

#include <jansson.h>

#include "plan/core/plan.h"
#include "plan/trees/version.h"

enum merge_side {
    MERGE_UNDECIDED,
    MERGE_OURS,
    MERGE_THEIRS,
};

struct merge_wish {
    const struct version *base; /* NULL: there is none */
    const struct version *ours; /* the tree as it is now */
    const struct version *theirs;
    int dir;                /* the plan's */
    enum merge_side prefer; /* of what both have changed */
    const json_t *decided;  /* ... by path: "ours", "theirs"; or NULL */
};

struct merge_outcome {
    struct plan plan;
    json_t *conflicts; /* the first of them: path, what it is about, which side was taken */
    size_t conflict_count;
    size_t undecided; /* not 0: there is no plan */
    size_t merged;    /* files that have lines of both */
};

int merge_plan(struct merge_outcome *ret, const struct merge_wish *wish, struct err *err);
void merge_clear(struct merge_outcome *outcome);
