/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan brings along, made ready to be renamed into the tree. */
#pragma once

#include "plan/core/reach.h"

/* The content at upper/PATH is what the manifest says, nobody has it open for writing, and it has
 * no marks and rights but those that the plan gives it. `content`: the final path under which it
 * is staged. */
int stage_prove(struct reach *dir, const struct plan_operation *operation, const char *content,
                struct err *err);
/* The directory, symlink or further name that the operation makes, at slots/N. */
int stage_make(struct reach *dir, const struct plan *plan, size_t operation, struct err *err);
/* Takes that away again, if it is there: its inode, or 0. */
uint64_t stage_unmake(struct reach *dir, const struct plan *plan, size_t operation);
