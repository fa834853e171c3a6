/* SPDX-License-Identifier: Apache-2.0 */
/* Files of workspaces that sleep, without a sandbox. What lies in the tree itself, with no link and
 * no mount on the way, is the same seen from outside: a sleeping reader, a process whose root is
 * the tree and who may change nothing, reads it as the tree's owner. Whatever it cannot answer well
 * it passes on (FILES_ELSEWHERE), and the workspace is woken for that: so it never answers anything
 * else than the sandbox's own file server would, if that could be had.
 *
 *   broker --a job--> one of those that wait --(enters the tree)--> calls, until none come
 *                                                                   or the leash is pulled
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct files_message;

/* A job. Descriptors with it: the tree, the socket that calls come by, and the leash: a byte on it,
 * or its end, ends the sleeping reader at once, whatever it is doing; the other end hears when it
 * has gone. */
struct asleep_job {
    uint32_t uid; /* of the tree's owner */
    uint32_t gid;
    uint32_t has_ids; /* 0: the daemon's user is the owner, and has no other ids to give */
};

enum {
    ASLEEP_FDS = 3
};

/* Keeps sleeping readers waiting for jobs on that socket, while any can be made. Returns -errno. */
int files_asleep(int jobs);
/* Whether this can be answered from the tree alone. */
bool files_asleep_can(const struct files_message *m);
