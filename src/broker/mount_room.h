/* SPDX-License-Identifier: Apache-2.0 */
/* A mount namespace in which mounts that others serve are attached, as kernels before 6.15 copy
 * only what is attached somewhere: one that nobody but us can enter, so that no path of the host
 * leads to a mount that may not answer. Nothing here asks who serves them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct mount_room {
    int ns; /* -1: not made yet */
    unsigned places;
};

struct room_place {
    unsigned number;
    int mount; /* -1: none */
};

int room_add(struct mount_room *room, int *mount, struct room_place *ret, struct err *err);
/* A detached copy, or -1. */
int room_copy(const struct mount_room *room, const struct room_place *place, bool writable,
              struct err *err);
void room_drop(const struct mount_room *room, struct room_place *place);

/* In the mount namespace of the process: instead of what is mounted at that name at the top, this
 * mount, consumed. In a thread that may be lost; ends with one byte to `report`, also consumed: 1,
 * it is there. */
int room_replace(int pidfd, const char *name, int mount, int report, struct err *err);
