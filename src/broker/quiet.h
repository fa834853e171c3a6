/* SPDX-License-Identifier: Apache-2.0 */
/* Ends all sandboxes that show the tree of a workspace, once. */
#pragma once

#include "broker/broker.h"

void quiet_request(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* To be called when a sandbox has ended: answers the requests that waited for it. */
void quiet_look(struct broker *broker);
