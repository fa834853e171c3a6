/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls on the files of a workspace that sleeps need not wake it: see
 * protocol/files_asleep.h. */
#pragma once

#include <stdbool.h>

struct exec_message;
struct files_message;

/* Reads something that is in the tree itself, as far as names tell: nothing is mounted there when
 * the workspace is awake. */
bool asleep_may_answer(const struct files_message *m, const struct exec_message *wake);
