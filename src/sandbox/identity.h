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

/* Whose files systems of workspaces are, on disk (system.h): the range above all leases. */
#define IDENTITY_SYSTEM_FIRST IDENTITY_LEASE_END

enum {
    IDENTITY_MAX_OWNERS = 16
};

/* What an id map is for. */
enum identity_map {
    IDENTITY_MAP_OWNER,  /* one owner's files are the inner user's */
    IDENTITY_MAP_LAYER,  /* ... of layers of an overlay */
    IDENTITY_MAP_SYSTEM, /* the range of systems is that of the sandbox, id by id */
    IDENTITY_MAP_TREE,   /* ... but for the inner user, who is the owner of the files */
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
    uid_t sub_uid; /* without a lease, for a system: the first of 65536 ids of the caller's; or 0 */
    gid_t sub_gid;

    struct {
        uid_t uid;
        gid_t gid;
        enum identity_map kind;
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
/* The ids that /etc/subuid and /etc/subgid give to the caller. */
int identity_find_subids(struct identity *id, uid_t caller, struct err *err);
/* A user namespace that makes files of `uid`:`gid` on disk the inner user's; borrowed. That for
 * layers also has to map the owners of what the kernel copies: all other ids but leased ones stand
 * for themselves. */
int identity_idmap(struct identity *id, enum identity_map kind, uid_t uid, gid_t gid,
                   int *ret_userns, struct err *err);
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

/* This process, which has one thread, goes on in a user namespace with its subordinate ids: it then
 * reaches what systems of workspaces have made. 0, or -1 with *err set. */
int identity_enter_subids(struct err *err);
/* Writes the maps of the new process. */
int identity_write_maps(const struct identity *id, pid_t pid, struct err *err);
