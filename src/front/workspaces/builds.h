/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces in which templates are built. Whoever builds deletes its workspace when that fails;
 * what is left by one that was killed goes to the trash, and its template's name is free again. */
#pragma once

#include <stdbool.h>

#include "front/core/front.h"

/* Once, when the broker has told what lives: all that there are were begun by somebody who lost us.
 */
void builds_begin(struct front *front);
/* Goes on with those that could not be dropped yet. */
void builds_sweep(struct front *front);
/* Nothing has been done in it for a while: it sleeps, and its last command ended long ago. */
bool build_is_abandoned(struct front *front, const struct store_workspace *w);
void build_drop(struct front *front, const char *workspace);
