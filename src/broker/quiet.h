/* SPDX-License-Identifier: Apache-2.0 */
/* Ends all that has the tree of a workspace, for a moment. */
#pragma once

#include "broker/broker.h"

void quiet_request(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Something has ended: who waited for that may be told. */
void quiet_look(struct broker *broker);
