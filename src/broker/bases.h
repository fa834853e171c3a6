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
int base_add(const struct broker *broker, struct sandbox_spec *to, const struct exec_message *m,
             struct err *err);
