/* SPDX-License-Identifier: Apache-2.0 */
/* Python and Node in a workspace: made when somebody asks for them, by one command inside. */
#pragma once

#include <stdbool.h>

#include "front/core/call.h"

/* "python" (true, false or a version) and "node" of the body of a creation. False: answered with
 * what is wrong. */
bool env_request_check(struct call *call);
/* Whether it asks for any. */
bool env_is_asked_for(const struct call *call);
/* Makes them in call->workspace, whose row is there. `done` is called once, unless the client has
 * gone while they are made: with the status and the object, which is the callee's, that would be
 * the answer; from 400 on they were refused, or could not even be begun. */
void env_create(struct call *call, void (*done)(struct call *call, int status, json_t *object));
