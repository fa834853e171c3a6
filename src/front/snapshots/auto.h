/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots that nobody asks for at that moment: before a plan is applied, and now and then while a
 * workspace changes, as its policy says. */
#pragma once

#include "front/core/front.h"

/* front->keep_version. */
void auto_keep(struct front *front, const struct version_asked *asked);
/* For front->tree_changed. */
void auto_changed(struct front *front, const char *workspace);
/* Starts the timer. */
void auto_begin(struct front *front);
