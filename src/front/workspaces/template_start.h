/* SPDX-License-Identifier: Apache-2.0 */
/* What a template has started in each sandbox of the workspaces on it: a line for the shell, and
 * services, which are started again when they end (service.sh). Each is a command of its own, by
 * the actor "template" or "service.NAME"; it ends with the sandbox, and survives the front. */
#pragma once

#include "front/core/call.h"

/* "start" and "services" of a spec. False: answered. */
bool template_start_check(struct call *call, json_t *spec);
/* Whether it says that something is to be started. */
bool template_starts(struct call *call, const char *id);
/* The sandbox of a workspace lives. */
void template_start(struct front *front, const char *workspace);
