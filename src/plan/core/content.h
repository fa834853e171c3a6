/* SPDX-License-Identifier: Apache-2.0 */
/* What files hold: read, hashed and compared without trusting them. FIFOs and devices are never
 * opened. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/core/plan.h"

enum {
    CONTENT_LARGEST = 36 /* 2 to the power of this: more is not hashed */
};

/* Of holes in all files together that are hashed: they cost who made them nothing, and us time. */
#define CONTENT_HOLES (8ULL << 30)

/* A regular file for reading; a descriptor or -errno. -ESTALE: it is something else. */
int content_open(int root, const char *path);
/* The same of a file that is ours: a mode that forbids it is lifted meanwhile. */
int content_open_own(int root, const char *path);
/* Hashes what `fd` has from its beginning; -ESTALE when that is not `size` bytes, -EFBIG when it is
 * too large, or its holes are larger than `holes`, which are then fewer by them. */
int content_hash(int fd, uint64_t size, uint64_t *holes, unsigned char hash[PLAN_HASH]);
/* The target of a symlink into target[PLAN_MAX_PATH + 1]; its length or -errno. */
int content_target(int root, const char *path, char *target);
/* Whether the user.* attributes of both are the same; overlayfs' own are not looked at. 1, 0 or
 * -errno. */
int content_same_attributes(int root_a, const char *a, int root_b, const char *b);
/* The text of its attributes (attributes.h), of a file or directory that is ours: a mode that
 * forbids it is lifted meanwhile. 0 or -errno. */
int content_attributes(int root, const char *path, struct buf *b);
/* Takes off a staged file what must not come into a tree: the layer's marks, security.*, access
 * lists, and attributes of more than 4 KiB. 0 or -errno. */
int content_strip(int root, const char *path);
/* Puts the data of the base's file into a file of the layer that has none, and takes off the mark
 * that says so. 0 or -errno. */
int content_fill(int root, const char *path, int base_root, const char *base);
