/* SPDX-License-Identifier: Apache-2.0 */
/* clone3 with a function for the child: no C library here has one, and only clone3 starts a process
 * in a cgroup (Linux 5.7), where a move would wait for the kernel's RCU. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct clone_request {
    uint64_t flags; /* CLONE_*, with CLONE_PIDFD and without a signal: SIGCHLD is implied */
    int cgroup;     /* directory of the v2 group */
    char *stack;
    size_t stack_size;
    int (*function)(void *);
    void *argument;
};

/* The child's pid, or -errno. */
pid_t clone_into_cgroup(const struct clone_request *request, int *ret_pidfd);
