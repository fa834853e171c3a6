/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel interface constants newer than the headers of Debian 12. Whether the running kernel has
 * them is always asked of the kernel, never of a version number. */
#pragma once

/* Linux 5.19; the headers of Debian 12 have it, older ones do not. */
#define CARREL_SECCOMP_WAIT_KILLABLE_RECV (1U << 5)

#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdint.h>

/* Landlock ABI 6 (Linux 6.12): a ruleset with scopes. */
struct carrel_landlock_ruleset {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
    uint64_t scoped;
};

#define CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define CARREL_LANDLOCK_SCOPE_SIGNAL               (1ULL << 1)
#define CARREL_LANDLOCK_ABI_SCOPES                 6

/* Linux 6.6: whoever answers a notification is switched to at once, on the same cpu. */
#define CARREL_SECCOMP_NOTIF_SET_FLAGS    SECCOMP_IOW(4, uint64_t)
#define CARREL_SECCOMP_NOTIF_SYNC_WAKE_UP (1ULL << 0)

/* Linux 6.7, Landlock ABI 4. */
#define CARREL_LANDLOCK_ACCESS_NET_CONNECT_TCP (1ULL << 1)

/* Linux 6.9: pidfd_open of a thread. */
#define CARREL_PIDFD_THREAD O_EXCL

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
