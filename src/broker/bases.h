/* SPDX-License-Identifier: Apache-2.0 */
/* Systems of workspaces: bases, as `carrel base build` has made them, and a layer for each
 * workspace.
 *
 *   DIR/.carrel/bases/NAME.N/root                           the base, of which the highest N is
 * used DIR/BUCKET/.carrel/workspaces/ID/env/system/upper,work  what the workspace has changed of it
 *   DIR/BUCKET/.carrel/workspaces/ID/env/system/base        NAME.N, since the first of that
 *   DIR/.carrel/templates/ID/system/upper,base              of a template, likewise: seen over the
 * base by all that stand on the template */
#pragma once

#include "broker/sandbox_spec.h"

/* Puts the workspace's system into the spec. */
int base_add(struct broker *broker, struct sandbox_spec *to, const struct exec_message *m,
             struct err *err);
/* -1 where the workspace has changed its system: `why` that is in the way. */
int base_refuse_changed(const struct broker *broker, const char *bucket, const char *workspace,
                        const char *why, struct err *err);
/* Of a workspace that is asleep: removes what it has changed of its system, which stands on the
 * newest base from then on. What an interrupted reset leaves, the next sandbox has removed. */
void base_reset(struct broker *broker, uint64_t tag, const struct plain_message *m);
