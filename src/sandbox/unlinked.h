/* SPDX-License-Identifier: Apache-2.0 */
/* Files that take up space and have no name: deleted while open, or made without one. A walk of the
 * tree cannot meet them; the processes that hold them can be asked. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct tally;

/* Adds those on the given devices that `pid` or a process below it has open. Where processes keep
 * files in a way that cannot be looked into, the tally is told that something is hidden. */
void unlinked_add(struct tally *t, pid_t pid, const dev_t *devices, size_t device_count);
