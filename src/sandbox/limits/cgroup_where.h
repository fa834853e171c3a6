/* SPDX-License-Identifier: Apache-2.0 */
/* Which limits cgroups can keep for this process, and where its groups would go. Makes nothing. */
#pragma once

#include <stdbool.h>

enum cgroup_limit {
    CGROUP_MEMORY,
    CGROUP_PIDS,
    CGROUP_CPU,
    CGROUP_IO,
    CGROUP_LIMIT_COUNT_,
};

/* How this process could keep one limit on this host. */
struct cgroup_offer {
    int version;     /* 1 or 2; 0: not at all, and then: */
    const char *why; /* what is in the way */
    const char *fix; /* what to do about it */
};

/* The words of each limit: the option that asks for it, and the kernel's controllers. */
extern const struct cgroup_kind {
    const char *option;
    const char *v1;
    const char *v2;
} cgroup_kinds[CGROUP_LIMIT_COUNT_];

/* v2: where this process goes to make room for children. */
#define CGROUP_MAIN "carrel-main"

static inline unsigned cgroup_bit(enum cgroup_limit which)
{
    return 1U << which;
}

/* Asks what is possible for each limit; makes nothing. */
void cgroup_ask(struct cgroup_offer ret[CGROUP_LIMIT_COUNT_]);

/* Whether cgroup_make would keep a limit on processes; otherwise it is not asked to, and
 * RLIMIT_NPROC does (confinement.c decides, once). */
bool cgroup_can_hold_pids(void);
void cgroup_ask_one(enum cgroup_limit which, struct cgroup_offer *ret);

/* Whether nobody but this process is in the group; `also_empty`: or nobody at all. */
bool cgroup_is_alone(int group, bool also_empty);
/* What a buffered write costs is known only together with whose memory it went through. */
unsigned cgroup_with_companions(unsigned wanted);
/* The directory that a group for this limit goes into on v1, or -errno. */
int cgroup_choose_v1(enum cgroup_limit which);
/* The group of this process and those above it, in order of preference, until one can take
 * children with these controllers (bit per limit); for tests, which bring directories of their own.
 * Returns the directory or -errno; *ret_move: this process has to leave it first. */
struct cgroup_spot;
int cgroup_choose_parent(const struct cgroup_spot *spot, unsigned wanted, bool *ret_move);
