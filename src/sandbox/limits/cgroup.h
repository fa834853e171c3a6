/* SPDX-License-Identifier: Apache-2.0 */
/* The control groups of one run: made for the limits that were asked for and no others, removed
 * with the run. What is on v2 shares one group, which pid 1 is cloned into; for the rest there is
 * one group in each v1 hierarchy, and pid 1 is moved there before it runs anything of the tenant's.
 *
 *   empty --cgroup_make--> made --cgroup_cloned, cgroup_attach--> in use --cgroup_clear--> empty
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "carrel.h"
#include "sandbox/limits/cgroup_where.h"

/* A group and the directory it is in; -1: none. */
struct cgroup_place {
    int parent;
    int dir;
    char name[48];
};

struct cgroup {
    unsigned wanted;  /* bit per enum cgroup_limit */
    unsigned unified; /* those of them on v2 */
    struct cgroup_place v2;
    struct cgroup_place v1[CGROUP_LIMIT_COUNT_];
    bool nest;              /* asked for: on v2 pid 1 goes one down, so that groups with limits of
                               their own can be made beside it */
    int inner;              /* ... where it is then; -1: in the group itself */
    bool cloned;            /* pid 1 began its life in the v2 group */
    int oom_event;          /* v1: an eventfd; -1: none */
    uint64_t memory_v1;     /* the limit, where v1 keeps it; 0: not */
    uint64_t tcp_v1;        /* what of it is set aside for network sockets */
    dev_t io_disk;          /* v2: whose io is bounded; 0: none's */
    uint64_t fork_failures; /* last seen */
    uint64_t most_tasks;    /* last seen, where the kernel keeps no peak */
};

void cgroup_init(struct cgroup *cgroup);
/* Makes the groups these limits need (none: leaves it empty) and writes the limits. `workspace_fd`
 * says which device io is about. A limit that cannot be kept is an error that names it and the fix.
 * On failure nothing is left. */
int cgroup_make(struct cgroup *cgroup, const struct carrel_limits *limits, int workspace_fd,
                struct err *err);
/* The same below the groups of a sandbox, and within their limits; not for io. */
int cgroup_make_below(struct cgroup *cgroup, const struct cgroup *above,
                      const struct carrel_limits *limits, struct err *err);
/* Whether v2 could keep such a limit below that sandbox's group. */
bool cgroup_can_nest(const struct cgroup *above, enum cgroup_limit which);
/* The v2 directory for clone3's CLONE_INTO_CGROUP; -1: use cgroup_attach. The kernel asks whether
 * the caller's effective user may write there, so it is EACCES while that is a leased uid; then
 * cgroup_attach does it as well. */
int cgroup_clone_fd(const struct cgroup *cgroup);
/* Tells that pid 1 was cloned into it. */
void cgroup_cloned(struct cgroup *cgroup);
/* Puts the process into every group it is not in yet. It must not have run anything of the
 * tenant's. Nothing to do for an empty one. */
int cgroup_attach(struct cgroup *cgroup, pid_t pid, struct err *err);

/* An engine that was killed leaves its groups, empty: takes those away that are in this directory,
 * and what they have below them. */
void cgroup_sweep(int parent);
/* Changes the limit on processes, where it holds one, to `pids` with so many more of Carrel's own
 * beside pid 1. */
void cgroup_set_pids(const struct cgroup *cgroup, uint64_t pids, uint64_t own);

/* To poll for POLLIN: memory ran out; or -1. */
int cgroup_oom_fd(const struct cgroup *cgroup);
/* Takes the event, so that the next one can be polled for. */
void cgroup_take_oom_event(const struct cgroup *cgroup);
/* Whether somebody has to look every now and then, as no descriptor tells. */
bool cgroup_needs_looks(const struct cgroup *cgroup);
/* Whether the kernel killed anything in here for lack of memory. */
bool cgroup_ran_out_of_memory(const struct cgroup *cgroup);
/* v1: whether it is beyond its memory with what the kernel counts apart and bounds only softly, the
 * buffers of network sockets. */
bool cgroup_is_beyond_memory(const struct cgroup *cgroup);
/* Whether it holds the limit on processes; RLIMIT_NPROC does otherwise. */
bool cgroup_holds_pids(const struct cgroup *cgroup);
/* How many forks have failed at the limit since the last call. */
uint64_t cgroup_new_fork_failures(struct cgroup *cgroup);
/* Fills what it knows, and leaves the rest: memory, processes, cpu times and written bytes. */
void cgroup_usage(const struct cgroup *cgroup, struct carrel_usage *usage);
/* Ends everything inside, whoever started it. */
void cgroup_kill(const struct cgroup *cgroup);
/* Kills, waits a moment for the last to go, removes the groups. Safe at any point after init. */
void cgroup_clear(struct cgroup *cgroup);
