/* SPDX-License-Identifier: Apache-2.0 */
/* The network by name in a policy. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "carrel.h"

struct policy;

/* Puts the policy's rules, whose sets are expanded, under those of the spec, which may only narrow
 * them. */
int network_policy_apply(const struct policy *policy, struct arena *arena, struct carrel_spec *spec,
                         struct err *err);
