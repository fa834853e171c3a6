/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces, /v1/keys, /v1/templates, /v1/adopt, and environments in workspaces. */
#pragma once

#include <jansson.h>

#include "front/core/router.h"

extern const struct route workspace_routes[];

/* A workspace as answers have it. */
json_t *workspace_json(const struct call *call, const struct store_workspace *w);

void keys_create(struct call *call);
void keys_list(struct call *call);
void keys_revoke(struct call *call);
void workspaces_create(struct call *call);
void workspaces_list(struct call *call);
void workspaces_get(struct call *call);
void workspaces_update(struct call *call);
void workspaces_delete(struct call *call);
void workspaces_undelete(struct call *call);
void workspaces_sleep(struct call *call);
void workspaces_usage(struct call *call);
void workspaces_adopt(struct call *call);
void templates_create(struct call *call);
void templates_list(struct call *call);
void templates_get(struct call *call);
void templates_delete(struct call *call);
void env_get(struct call *call);
void env_make_python(struct call *call);
void env_make_node(struct call *call);
