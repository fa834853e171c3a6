/* SPDX-License-Identifier: Apache-2.0 */
/* One carrel-mover, started. As root it is a user of its own in a mount namespace of its own, in
 * which /tmp is a file system with what it is shown and nothing else. It has no right that an
 * ordinary user lacks, and is killed with us. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MOVER_TREE        "/tmp/tree"
#define MOVER_STATE       "/tmp/state"
#define MOVER_PROGRAMS    "/tmp/bin"         /* the program itself, as fusermount and fusermount3 */
#define MOVER_CONNECTIONS "/tmp/connections" /* the kernel's, of FUSE */

enum {
    MOVER_PASSED = 4, /* most, and the first of them */
};

/* Descriptors are borrowed; -1: none. */
struct mover_start {
    int program;
    int conf;                 /* its 3: the store's configuration */
    int report;               /* its 1: where it tells */
    int tree;                 /* mounts, at MOVER_TREE */
    int state;                /* ... and MOVER_STATE */
    int passed[MOVER_PASSED]; /* its 4 and on */
    size_t passed_count;      /* 0: it serves no mount, and is shown nothing for that */
    const char *const *argv;  /* ends with NULL */
    uid_t uid;
};

/* Its process id, or -1 with errno set. */
pid_t mover_fork(const struct mover_start *start);
