/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-plan, the program that works on one plan of one tree: one job, one answer. Other than the
 * broker's it does not die with us: what it has begun it finishes, and has `dir` locked till then
 * if we had (plan_lock_layer). */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Runs a verb of it on `tree` and the plan's directory; all that it prints is added to `ret`, which
 * must have room for it. An error that it tells becomes *err. */
int plan_tool(int tree, int dir, const char *verb, const char *job, struct buf *ret,
              struct err *err);
/* The same where the answer is one object. */
int plan_tool_answer(int tree, int dir, const char *verb, const char *job, json_t **ret,
                     struct err *err);
/* How many operations are in the tree, by an answer that says so. */
uint64_t plan_in_force(const json_t *answer);
/* As root the tool is the tree's owner: what it works with must be that one's. */
int plan_own(int tree, int dir, struct err *err);
