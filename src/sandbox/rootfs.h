/* SPDX-License-Identifier: Apache-2.0 */
/* What rootfs.c and system.c, which write the mount operations together, use of each other. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "sandbox/setup.h"

struct layer;
struct run;

/* Flags of a mount whose files belong to those inside. */
uint64_t rootfs_data_attrs(void);
/* The next operation. NULL when the setup is full; who adds many looks once, at the end. */
struct op *rootfs_add(struct run *run, enum op_kind kind, const char *source, const char *target);
int rootfs_full(struct err *err);
struct op *rootfs_add_file(struct run *run, const char *target, const char *content);
struct op *rootfs_add_dir(struct run *run, const char *target, uint32_t flags);
/* An empty file system of that size, the user's inside. */
struct op *rootfs_add_tmpfs(struct run *run, const char *target, uint64_t bytes, uint32_t mode);
/* Binds a path of the host's own. */
int rootfs_add_bind(struct run *run, const char *path, const char *target, uint64_t attrs,
                    uint32_t flags, struct err *err);
/* Binds a tree somebody else may be writing to: exactly the one that `fd` is open on, whatever its
 * name leads to by now. `fd` is borrowed. `layer`: is put over it; or NULL. */
int rootfs_add_opened(struct run *run, int fd, const char *name, const struct op *as,
                      struct layer *layer, struct err *err);
