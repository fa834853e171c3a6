/* SPDX-License-Identifier: Apache-2.0 */
/* Processes by descriptor, and closing many descriptors: calls not every C library has. */
#pragma once

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0 or -1 with errno set. */
static inline int process_kill(int pidfd)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

/* What any change of this process's ids resets, though it may be the caller's own setting. */
struct process_marks {
    int death_signal;
    int dumpable;
};

static inline void process_keep_marks(struct process_marks *marks)
{
    marks->death_signal = 0;
    (void)prctl(PR_GET_PDEATHSIG, &marks->death_signal, 0, 0, 0);
    marks->dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
}

static inline void process_restore_marks(const struct process_marks *marks)
{
    if (marks->death_signal)
        (void)prctl(PR_SET_PDEATHSIG, marks->death_signal, 0, 0, 0);
    if (marks->dumpable == 0 || marks->dumpable == 1)
        (void)prctl(PR_SET_DUMPABLE, marks->dumpable, 0, 0, 0);
}

enum {
    CLOSE_NOW = 0,
    CLOSE_AT_EXEC = 4 /* CLOSE_RANGE_CLOEXEC */
};

static inline int process_close_from(unsigned first, unsigned when)
{
    return (int)syscall(SYS_close_range, first, ~0U, when);
}
