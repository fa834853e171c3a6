/* SPDX-License-Identifier: Apache-2.0 */
/* Where clients that speak TLS come in: carrel-tls sends one end of a pair for each. */
#pragma once

#include "front/core/front.h"

/* Whether that descriptor, which the broker has handed over, is the door. */
bool door_is(int fd);
/* Takes clients from it; 0 or -errno. */
int door_open(struct front *front, int fd);
