/* SPDX-License-Identifier: Apache-2.0 */
/* Processes by descriptor, and closing many descriptors: calls not every C library has. */
#pragma once

#include <fcntl.h>
#include <linux/capability.h>
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

/* A change of ids puts capabilities away; those still permitted can be taken out again. 0 or -1. */
static inline int process_raise_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];

    if (syscall(SYS_capget, &head, sets) < 0)
        return -1;
    sets[0].effective = sets[0].permitted;
    sets[1].effective = sets[1].permitted;
    return (int)syscall(SYS_capset, &head, sets);
}

/* The same file at a descriptor that dup2 in a child will not overwrite; `fd` is consumed. */
static inline int process_high_fd(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);

    if (fd >= 0)
        (void)close(fd);
    return high;
}

enum {
    CLOSE_NOW = 0,
    CLOSE_AT_EXEC = 4 /* CLOSE_RANGE_CLOEXEC */
};

static inline int process_close_from(unsigned first, unsigned when)
{
    return (int)syscall(SYS_close_range, first, ~0U, when);
}
