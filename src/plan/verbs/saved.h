/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs that make a plan share. */
#pragma once

#include <jansson.h>

#include "plan/core/plan.h"
#include "plan/core/verbs.h"

/* Writes the manifest under that name into the plan's directory, and tells about the plan. */
int verb_save_plan(const struct verb_call *call, const struct plan *plan, const char *name,
                   json_t *ret_answer, struct err *err);
