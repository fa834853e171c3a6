/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the processes below one, for limits that no cgroup keeps and for usage that nobody will be
 * told of: of processes that are killed together with their pid 1. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_count {
    size_t tasks;     /* processes and threads, with the first */
    uint64_t user_ms; /* processor time so far, also of those they have waited for */
    uint64_t system_ms;
    uint64_t rss_bytes;      /* of all of them; what they share counts for each */
    uint64_t peak_rss_bytes; /* of the largest of them */
    uint64_t written_bytes;  /* handed to the disk, also by those they have waited for */
};

/* Walks /proc from `first` down and stops when there are more than `most`. What comes and goes
 * meanwhile may be missed. 0 or -errno. */
int process_count_take(pid_t first, size_t most, struct process_count *ret);

/* Whether the kernel has begun to take it down, or is about to; before anybody can wait for it, and
 * for the first process of a namespace before the others there are killed. False: or not known. */
bool process_count_is_dying(pid_t pid);

/* Whose child it is; 0: nobody knows. */
pid_t process_count_parent(pid_t pid);
