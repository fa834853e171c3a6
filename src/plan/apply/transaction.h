/* SPDX-License-Identifier: Apache-2.0 */
/* Carries steps out on the tree, one after the other, and takes them back: after a failure at
 * once, after a crash in the next recovery. Taking back can be repeated, also after a crash in it.
 */
#pragma once

#include "plan/core/journal.h"
#include "plan/core/reach.h"

struct transaction {
    struct reach tree;
    struct reach dir;
    uint64_t dev; /* the tree's */
    const struct plan *plan;
    const struct steps *steps;
    /* For each operation, what OUT and EXCHANGE must find. */
    const struct plan_identity *expected;
    int progress;    /* JSON lines; -1: none */
    uint32_t failed; /* the operation whose step failed, or STEP_NO_OPERATION */
    size_t kept;     /* objects found where ours should be, and put aside while taking back */
    size_t lost;     /* objects that could not be put back where they were: they stay in slots */
};

/* `tree` and `dir` are borrowed. */
int transaction_init(struct transaction *t, int tree, int dir, const struct plan *plan,
                     const struct steps *steps, struct err *err);
void transaction_clear(struct transaction *t);

/* All of them. On failure ret_done says how many were begun; none is taken back. */
int transaction_run(struct transaction *t, size_t *ret_begun, struct err *err);
/* The first `count` steps, backwards, as far as they were done; then the directories' times. */
int transaction_back(struct transaction *t, size_t count,
                     const struct journal_directory *directories, size_t directory_count,
                     struct err *err);
/* All of the tree's file system is on disk. */
int transaction_sync(const struct transaction *t, struct err *err);
