/* SPDX-License-Identifier: Apache-2.0 */
/* Forgets what is older than it is to be kept: ended commands with their output, the trash. */
#pragma once

#include "front/front.h"

void sweep_begin(struct front *front);
