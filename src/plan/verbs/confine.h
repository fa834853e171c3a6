/* SPDX-License-Identifier: Apache-2.0 */
/* Takes from this process what carrying out a plan has no use for, before it reads anything. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum plan_confinement {
    PLAN_CONFINED,
    PLAN_CONFINED_LAYER, /* keeps the capabilities it was left, to read and write a layer's marks;
                            the tree is there to be read */
    PLAN_CONFINED_DIFF,  /* may start diff; the tree is there to be read */
    PLAN_CONFINED_FORK,  /* both of the next and of a layer's; also what the fork stands on */
    PLAN_CONFINED_MERGE, /* as the next, and other trees to be read */
    PLAN_CONFINED_COPY,  /* keeps the capability to read what its modes forbid; likewise */
};

/* Directories; -1: there is none. */
struct plan_within {
    int tree;
    int dir;
    int others[2];
};

/* No capabilities, no new privileges, no files but those below these, no network, no
 * programs, no system calls but those on a list. Landlock is left out where the kernel
 * has none, or one that cannot allow renames from one directory to another (before Linux 5.19):
 * `ret_within` is false then, and the answer is to say so in these words. */
int plan_confine(enum plan_confinement how, const struct plan_within *within, bool *ret_within,
                 struct err *err);
#define PLAN_NOT_WITHIN                                                                            \
    "this kernel has no Landlock that allows renames (Linux 5.19): the plan was carried out with " \
    "what its user may reach, not only the tree and the plan's directory"
