/* SPDX-License-Identifier: Apache-2.0 */
/* Ends sandboxes in which nothing happens. */
#pragma once

#include "broker/broker.h"

/* Looks again and again until it ends it. */
void idle_watch(struct sandbox *sandbox);
