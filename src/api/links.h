/* SPDX-License-Identifier: Apache-2.0 */
/* What of other places appears in a workspace: skills, and the ticket's workspace. */
#pragma once

#include "api/call.h"
#include "broker/protocol.h"

/* Checks a "links" object for a workspace of this owner; answers 400 or 404 itself. */
bool links_check(struct call *call, json_t *links, const char *owner);
/* Puts the links of the call's workspace into the message; texts are the arena's. False: one leads
 * nowhere, answered with 409. */
bool links_apply(struct call *call, struct boundary_message *boundary);
