/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "front/core/call.h"
#include "front/workspaces/trash.h"

/* By its name. False: answered, with 404 when there is none. */
bool template_find(struct call *call, const char *name, struct store_template *ret);
/* Whether no other workspace than this one becomes the template of that name. False: answered. */
bool template_name_is_free(struct call *call, const char *name, const char *workspace);
/* Reserves the template name until change_end. Returns false if it is reserved already. */
bool template_name_take(struct call *call, const char *name, struct change *change);
/* ... which is answered so. */
void template_refuse_name(struct call *call, const char *name);
/* {"id", "name"}, or null for "". */
json_t *template_brief(struct front *front, const char *id);
