/* SPDX-License-Identifier: Apache-2.0 */
/* Who the sandbox is on the host.
 *
 * As root every run leases a range of 65536 uids that nobody else has; the workspace's files keep
 * their owner through an idmapped mount. An ordinary user maps to itself. The lease is a byte-range
 * lock: it ends with the last process that holds the descriptor, however that process ends. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Above the range that systemd gives to containers, below 2^31. */
#define IDENTITY_LEASE_FIRST 0x70000000U
#define IDENTITY_LEASE_SIZE  0x10000U
#define IDENTITY_LEASE_COUNT 4095U
#define IDENTITY_LEASE_END   (IDENTITY_LEASE_FIRST + IDENTITY_LEASE_SIZE * IDENTITY_LEASE_COUNT)

enum {
    IDENTITY_MAX_OWNERS = 16
};

struct idle;

struct identity {
    bool range;
    unsigned base; /* first uid and gid of the range */
    int lease_fd;
    uid_t inside_uid; /* the user inside */
    gid_t inside_gid;
    uid_t direct_uid; /* without idmapped mounts: the user inside is this one outside */
    gid_t direct_gid;
    bool direct;

    struct {
        uid_t uid;
        gid_t gid;
        bool of_layer;
        int userns;
    } owners[IDENTITY_MAX_OWNERS];

    unsigned owner_count;
    struct idle *ended; /* processes that held a map open, killed and not waited for yet */
};

void identity_init(struct identity *id);
void identity_clear(struct identity *id);
/* Drops the id maps made so far. */
void identity_forget_owners(struct identity *id);
/* Waits for the processes that making maps has taken: when nobody waits for what comes next. */
void identity_settle(struct identity *id);
int identity_lease(struct identity *id, struct err *err);
/* A user namespace that makes files of `uid`:`gid` on disk the inner user's; borrowed. */
int identity_idmap(struct identity *id, uid_t uid, gid_t gid, int *ret_userns, struct err *err);
/* The same for layers of an overlay, whose kernel part also asks for the owners of what it copies:
 * all other ids but leased ones stand for themselves. */
int identity_layer_idmap(struct identity *id, uid_t uid, gid_t gid, int *ret_userns,
                         struct err *err);
/* One such map, as text: `disk` is shown as `shown`. */
void identity_layer_map(unsigned disk, unsigned shown, char *text, size_t size);

/* Who the user inside is on the host, where a range is leased. */
static inline uid_t identity_outside_uid(const struct identity *id)
{
    return id->direct ? id->direct_uid : id->base + id->inside_uid;
}

static inline gid_t identity_outside_gid(const struct identity *id)
{
    return id->direct ? id->direct_gid : id->base + id->inside_gid;
}

/* Writes the maps of the new process. */
int identity_write_maps(const struct identity *id, pid_t pid, struct err *err);
