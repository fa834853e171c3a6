/* SPDX-License-Identifier: Apache-2.0 */
/* What this host offers, found by asking the kernel. Passed about as a value, so that tests can
 * lie. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct host {
    uid_t uid;
    gid_t gid;
    bool can_lease;   /* root over the whole uid space: ranges and idmapped mounts */
    bool can_notify;  /* refused system calls can be told of */
    int landlock_abi; /* 0: none */
    unsigned cpus;
    uint64_t memory_bytes;
};

void host_ask(struct host *ret);
/* What to do about a user namespace refused with this errno: one command, or a sentence. */
const char *host_userns_remedy(int os_errno);
