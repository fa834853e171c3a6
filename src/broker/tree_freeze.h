/* SPDX-License-Identifier: Apache-2.0 */
/* All that could write to a workspace's tree stands still for a moment, and then goes on. */
#pragma once

#include "broker/broker.h"

/* For whoever has the workspace's lock. 0: nothing writes any more; 1: not yet, to be asked again;
 * -1: this host cannot, and nothing is frozen. */
int tree_freeze(struct broker *broker, const char *workspace);
/* Whether there is anything that could. */
bool tree_has_writers(const struct broker *broker, const char *workspace);
void tree_thaw(struct broker *broker, const char *workspace);
