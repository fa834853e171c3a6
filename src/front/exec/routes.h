/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/exec, and the commands of Carrel's own that pack and unpack a workspace. */
#pragma once

#include "front/core/router.h"

extern const struct route exec_routes[];

void workspaces_backup(struct call *call);
void workspaces_restore(struct call *call);
void execs_create(struct call *call);
void execs_list(struct call *call);
void execs_get(struct call *call);
void execs_output(struct call *call);
void execs_stdin(struct call *call);
void execs_signal(struct call *call);
void execs_resize(struct call *call);
void execs_kill(struct call *call);
void execs_attach(struct call *call);
/* The number of a signal, given by its name or number; -1: none. */
int exec_signal_number(const json_t *value);
