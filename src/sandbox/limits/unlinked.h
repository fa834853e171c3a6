/* SPDX-License-Identifier: Apache-2.0 */
/* Files that take up space and have no name: deleted while open, or made without one. A walk of the
 * tree cannot meet them; the processes that hold them can be asked. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct tally;

/* Processes of our own, which keep no such files and cannot be looked into; others below may. */
struct unlinked_ours {
    pid_t pids[256]; /* the first is pid 1 */
    size_t count;
};

/* Adds those on the given devices that pid 1 or a process below it has open. Where processes keep
 * files in a way that cannot be looked into, the tally is told that something is hidden. */
void unlinked_add(struct tally *t, const struct unlinked_ours *ours, const dev_t *devices,
                  size_t device_count);
