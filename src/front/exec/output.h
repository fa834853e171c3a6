/* SPDX-License-Identifier: Apache-2.0 */
/* How much output is kept on disk, of one owner and in all, where the settings bound it. Beyond the
 * bound the oldest of commands that are over is forgotten; when there is none left, commands that
 * go on writing keep less of what they wrote before, and no others are started
 * (front/core/quota.h). Besides, whatever the settings: output does not take the disk space that
 * disk_floor keeps. */
#pragma once

#include <stdbool.h>

#include "front/core/front.h"

struct exec;

/* Counts what is there from before. */
void output_begin(struct front *front);
/* False: the disk is as full as it may be, and this one has had its share. */
bool output_may_grow(struct exec *exec);
/* Its spool has. */
void output_grew(struct exec *exec);
/* The exec is freed, and leaves its spool behind. */
void output_leave(struct exec *exec);
/* The spool of a command is removed. */
void output_removed(struct front *front, const char *exec_id);
