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
    PLAN_CONFINED_COPY,  /* keeps the capability to read what its modes forbid; likewise */
};

/* No capabilities, no new privileges, no files but those below `tree` (may be -1) and `dir`, no
 * network, no programs, no system calls but those on a list. Landlock is left out where the kernel
 * has none, or one that cannot allow renames from one directory to another (before Linux 5.19):
 * `ret_within` is false then, and the answer is to say so in these words. */
int plan_confine(enum plan_confinement how, int tree, int dir, bool *ret_within, struct err *err);
#define PLAN_NOT_WITHIN                                                                            \
    "this kernel has no Landlock that allows renames (Linux 5.19): the plan was carried out with " \
    "what its user may reach, not only the tree and the plan's directory"
