/* SPDX-License-Identifier: Apache-2.0 */
/* What a request says of a workspace: each answers itself and returns false when that is wrong. */
#pragma once

#include "front/core/call.h"

/* All that it is made with; what is not said stays as it was. */
bool workspace_read(struct call *call, struct store_workspace *ret);
/* The body's policy, as text; absent leaves *ret. */
bool workspace_read_policy(struct call *call, const char *template, const char **ret);
/* Policy, labels and links. */
bool workspace_read_settings(struct call *call, struct store_workspace *ret);
