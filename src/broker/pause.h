/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox that stands still with all that it has in memory, until it is asked for.
 *
 *   awake --pause_request(1)--> stopping --(all stand still)--> frozen
 *   frozen --pause_request(0), a command, its end--> awake */
#pragma once

#include "broker/broker.h"

/* Number 1: it is to stand still. ANSWER_OK when it does; ANSWER_ERROR: there is none, or this host
 * cannot, and it goes on. 0: it is to go on; ANSWER_OK. */
void pause_request(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* It goes on, if it stood still or was about to. */
void pause_end(struct sandbox *sandbox);
/* EVENT_SANDBOX_FROZEN, if it stands still. */
void pause_tell(const struct sandbox *sandbox);
