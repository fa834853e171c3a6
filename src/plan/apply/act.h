/* SPDX-License-Identifier: Apache-2.0 */
/* A plan and its journal, open to be carried out, undone or recovered; and the one way in which the
 * tree goes from one set of operations to another. */
#pragma once

#include "plan/apply/transaction.h"
#include "plan/core/journal.h"
#include "plan/core/layout.h"

struct act {
    int tree; /* both borrowed */
    int dir;
    uint64_t dev;
    struct plan plan;
    unsigned char hash[PLAN_HASH];
    struct layout layout;
    struct journal journal;
};

/* `hash`: the one asked for in hex, or NULL for whatever the manifest has. */
int act_open(struct act *act, int tree, int dir, const char *hash, struct err *err);
void act_clear(struct act *act);

struct act_outcome {
    uint32_t failed; /* the operation at fault, or STEP_NO_OPERATION */
    size_t steps;
    size_t kept;
    size_t lost;
};

struct act_change {
    const char *target;                   /* the set that is to be in force */
    struct steps *steps;                  /* to there, as compiled */
    const struct plan_identity *expected; /* what they find, for each operation */
    int progress;                         /* steps are told there; -1: nowhere */
};

/* From what is in force to the target. All of it, or on failure none. */
int act_commit(struct act *act, const struct act_change *change, struct act_outcome *outcome,
               struct err *err);
/* Takes back what a crash has left half done, then removes what nobody needs. Can be repeated. */
int act_recover(struct act *act, struct act_outcome *outcome, bool *ret_taken_back,
                struct err *err);
