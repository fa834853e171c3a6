/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/call.h"

/* By its name. False: answered, with 404 when there is none. */
bool template_find(struct call *call, const char *name, struct store_template *ret);
/* "NAME=value" of what it says for all on it, in the call's arena. False: answered. */
bool template_env(struct call *call, const char *id, const char *const **ret);
/* The sandbox of a workspace lives: starts what its template says. */
void template_start(struct front *front, const char *workspace);
/* {"id", "name"}, or null for "". */
json_t *template_brief(struct front *front, const char *id);
