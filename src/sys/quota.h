/* SPDX-License-Identifier: Apache-2.0 */
/* Project quotas of ext4 and XFS, as they are: nothing here sets a limit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether this directory belongs to a project that everything made below inherits. If the project
 * has a limit, free space asked for here is the project's, not the disk's. */
bool quota_has_project(int dir);
/* Makes `to`, which is empty, part of that project; 0 also where `dir` is in none. Or -errno. */
int quota_join(int dir, int to);
/* How much more that project may take, where the kernel enforces it; UINT64_MAX: no bound of that
 * kind. 0 or -errno. Only root is told. */
int quota_left(int dir, uint64_t *ret_bytes, uint64_t *ret_files);
