/* SPDX-License-Identifier: Apache-2.0 */
/* The control group of a keeper and of all its commands start: for ending them whole, whatever they
 * do, and for limits of a single command. To make a group, to move a process into it and to remove
 * it can wait for the kernel for tens of milliseconds, so a thread of its own does that, in the
 * order asked for; what is called here never waits, but for the last groups_close.
 *
 *   group_make --> moving --> in --group_drop--> removed by the thread
 *                        \--> failed ------------^
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/limits/cgroup.h"

enum group_state {
    GROUP_QUEUED,
    GROUP_MOVING,
    GROUP_IN,
    GROUP_FAILED, /* this host has none to give, or not these limits: see the error */
};

/* Where the groups of one sandbox go, and who is told. */
struct group_home {
    const struct cgroup *sandbox; /* the group of all of it, where there is one */
    int tell;                     /* an eventfd, written to when a state has changed */
    bool known;                   /* the rest is the thread's: where that is has been found out */
    int parent;                   /* -1: nowhere */
    bool freezer;                 /* of v1; otherwise of v2 */
    struct group *end;            /* the last job of all */
};

struct group;

/* Begins a home, and the thread with the first of them. */
int groups_open(struct group_home *home, const struct cgroup *sandbox, int tell, struct err *err);
/* When all its groups, which have been dropped, are removed, forgets the home and calls `last` in
 * the thread. With the last home the thread ends, and this waits for it. */
void groups_close(struct group_home *home, void (*last)(void *argument), void *argument);

/* Has a group made and the process put into it, with limits of its own where they are not NULL.
 * NULL: out of memory. */
struct group *group_make(struct group_home *home, pid_t pid, int pidfd,
                         const struct carrel_limits *limits);
/* With all that it has started by now, and all of it standing still: to be thawed. */
struct group *group_make_late(struct group_home *home, pid_t pid, int pidfd);
/* `err` is set where it has failed. */
enum group_state group_state(const struct group *group, struct err *err);
/* Ends the wait for one that nobody works at yet, and drops it. False: it is too late for that. */
bool group_cancel(struct group *group);
/* Removed, and freed, by the thread. Everybody in it must have been killed. */
void group_drop(struct group *group);

/* Whether it can end what is in it; one that only holds limits cannot. */
bool group_can_kill(const struct group *group);
/* The kernel's number of it, which sockets that are made in it bear; 0: of v1, whose they do not.
 */
uint64_t group_number(const struct group *group);
/* How many are in it; SIZE_MAX: nobody knows. */
size_t group_count(const struct group *group);
/* Kills all in it once, with the keeper. True: nobody is in it any more. */
bool group_kill(struct group *group);
/* All in it stand still: 0; 1: not yet, to be asked again; -ENOTSUP: this host cannot. */
int group_freeze(struct group *group);
void group_thaw(struct group *group);
/* group_tree.c: the process and all below it come into the frozen group `dir`, of the group `home`.
 * 0, or -errno. */
int group_take_tree(int dir, int home, pid_t keeper);
/* To poll for POLLIN: its own memory limit has been reached; or -1. */
int group_oom_fd(const struct group *group);
/* Whether the kernel killed anything in it for its own memory limit. */
bool group_ran_out_of_memory(const struct group *group);
