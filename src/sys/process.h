/* SPDX-License-Identifier: Apache-2.0 */
/* Processes by descriptor, and closing many descriptors: calls not every C library has. */
#pragma once

#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0 or -1 with errno set. */
static inline int process_kill(int pidfd)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

enum {
    CLOSE_NOW = 0,
    CLOSE_AT_EXEC = 4 /* CLOSE_RANGE_CLOEXEC */
};

static inline int process_close_from(unsigned first, unsigned when)
{
    return (int)syscall(SYS_close_range, first, ~0U, when);
}
