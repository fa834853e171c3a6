/* SPDX-License-Identifier: Apache-2.0 */
/* The first message to a file server, from the broker: which sandbox it belongs to. Descriptors:
 * pid 1's pidfd, a memory that both see, an eventfd by which the broker is asked to count, and,
 * where there are such, the lease of its uids and the hidden directory. Answered by one int: 0 or
 * an errno. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JOIN_SOCKET = 3, /* where it is heard */
    JOIN_MOST_FILTER = 1024,
    JOIN_MEMORY = 1 << 30 /* bytes, of the server; searches by others have their own */
};

struct files_join {
    uint64_t namespaces; /* CLONE_NEW* */
    uint32_t uid;
    uint32_t gid;
    uint32_t filter_length;
    uint32_t has_lease;
    uint32_t has_hidden;
    uint32_t sweeps; /* nobody else writes to the hidden directory: what lies there is left over */
    uint64_t filter[JOIN_MOST_FILTER]; /* struct sock_filter */
};

#define FILES_UNBOUNDED     UINT64_MAX
#define FILES_BEING_COUNTED (UINT64_MAX - 1)

/* In the memory: whether a sandbox is idle is the broker's question; how much may be added, by the
 * limit on its disk, its answer. */
struct files_activity {
    _Atomic uint64_t begun; /* calls */
    _Atomic uint64_t ended;
    _Atomic uint64_t left;   /* bytes that might be added when the broker counted last */
    _Atomic uint64_t counts; /* how often it has */
};

struct files_joined {
    int hidden; /* -1: none */
    bool sweeps;
    struct files_activity *activity;
    int wake;
};

/* files/join.c: takes the place of a message; on success this process sees what the commands of the
 * sandbox see, and has no more rights than they. 0 or -errno. */
int files_join(int socket, struct files_joined *ret);
/* files/core/room.c: before the first call, and after each. */
void files_room_begin(struct files_activity *activity, int fd);
void files_room_end_call(void);
/* 0 or -errno. */
int files_bound_memory(size_t bytes);
