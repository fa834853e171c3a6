/* SPDX-License-Identifier: Apache-2.0 */
/* `.srt-settings.json`, the settings of another sandbox, read as a policy: what it denies is denied
 * here, with its order of precedence, or refused in words. What it allows beyond the workspace is
 * mounted, where it is there. Paths that do not begin with / or ~ are of the workspace.
 *
 *   network     deniedDomains win over allowedDomains; names without a port: 80 and 443
 *   filesystem  denyWrite wins over allowWrite; allowRead over denyRead, unless that is more exact
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "policy/policy.h"

bool srt_is(const json_t *root);
/* `workspace`: the directory, or NULL: there is none yet. 0, or -1 with *err set. */
int srt_read(struct policy *ret, struct arena *arena, const json_t *root, const char *workspace,
             struct err *err);
