/* SPDX-License-Identifier: Apache-2.0 */
/* A layer over the tenant's tree: what a run changes goes to spec->plan, and the tree stays as it
 * is, to the byte.
 *
 *   PLAN/upper   what was changed, as overlayfs keeps it     PLAN/work   overlayfs' own
 *
 * As root the engine mounts it, in the host's user namespace, so that only root of the host can
 * write the marks that lead to other places of the tree; pid 1 gets the finished mount. Otherwise
 * pid 1 mounts it (src/init/mounts.c). On disk all of it belongs to the tree's owner.
 *
 * One sandbox at a time has a layer: the engine holds a lock on the directory, and the kernel
 * refuses a second mount for as long as the first is there. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct run;
struct op;

/* Opens and locks the directory, and makes its parts where they are missing; a dry run looks at
 * nothing. */
int overlay_open(struct run *run, struct err *err);
/* The operation that binds the tree becomes one that puts the layer over it. */
int overlay_describe(struct run *run, struct op *op, struct err *err);
/* A place for a mount that the tree does not have is made in the layer. */
int overlay_make_point(struct run *run, const char *path, bool is_directory, struct err *err);
/* As root: mounts it, in the place of the tree that goes to pid 1. Decides how ids are mapped, so
 * before the frame is sent. */
int overlay_mount(struct run *run, struct err *err);
/* When nobody runs in it any more: the places for mounts are taken back where they are empty, and
 * the engine lets go of it. */
void overlay_leave(struct run *run);

/* The same, and waits until the kernel has let go of it too: what processes had open can take a
 * moment longer than they. */
int overlay_end(struct run *run, struct err *err);

/* 0: nothing has the layer mounted any more, so that it can no longer change. ERR_CONFLICT when
 * that is not so within `wait_ms`; with 0 it is asked once. */
int overlay_settle(const char *plan, unsigned wait_ms, struct err *err);
/* Whether layers carry the marks of root (trusted.overlay.*) rather than user.overlay.*. */
bool overlay_is_privileged(void);
