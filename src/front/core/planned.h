/* SPDX-License-Identifier: Apache-2.0 */
/* Agents' keys in workspaces whose policy says "writes": "plan". All that such a key changes goes
 * into one plan, which its first command or change begins and which stays open until somebody
 * closes it: commands run in that plan's sandbox, calls on files ask the file server of that, and
 * ports lead into it. Each key has its own, as a plan has one author. The workspace's own sandbox
 * and tree such a key reaches only to read. */
#pragma once

#include "front/core/call.h"

/* Whether what agents change in this workspace goes into plans; so, too, if its policy cannot be
 * read. */
bool planned_workspace(const struct store_workspace *w);
/* Whether this actor is one of those. */
bool planned_is(const struct actor *actor, const struct store_workspace *w);
/* Whether such a call is one that touches nothing outside of the plan; else answered. */
bool planned_admits(struct call *call);
/* Likewise a command that is to be written to, signalled, ended. */
bool planned_admits_exec(struct call *call, const struct store_exec *row);
