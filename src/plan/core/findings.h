/* SPDX-License-Identifier: Apache-2.0 */
/* What verify, show and diff have in common: findings as JSON, and which plan is meant. */
#pragma once

#include <jansson.h>

#include "plan/core/verify.h"

/* NULL: no memory. */
json_t *plan_finding_json(const struct plan *plan, const struct plan_finding *finding);
/* "NAME" as text, or "NAME_b64" where it is no UTF-8. */
int plan_json_bytes(json_t *object, const char *name, const char *bytes);
/* The closed plan, or what was last read off an open one. */
int plan_load_any(struct plan *ret, int dir, unsigned char hash[PLAN_HASH], struct err *err);
