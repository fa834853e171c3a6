/* SPDX-License-Identifier: Apache-2.0 */
/* A layer over a tree: what a run changes goes to a directory of its own, and the tree stays as it
 * is, to the byte.
 *
 *   LAYER/upper   what was changed, as overlayfs keeps it     LAYER/work   overlayfs' own
 *
 * spec->plan is such a directory for the tenant's tree, and a mount can have one (its `layer`).
 *
 * As root the engine mounts it, in the host's user namespace, so that only root of the host can
 * write the marks that lead to other places of the tree; pid 1 gets the finished mount. Otherwise
 * pid 1 mounts it (src/init/mounts.c). On disk all of it belongs to the owner of the tenant's tree,
 * whoever the tree below belongs to.
 *
 * One sandbox at a time has a layer: the engine holds a lock on the directory. For a plan the
 * kernel also refuses a second mount for as long as the first is there, which can be a moment
 * longer; for others it does not, so that the next sandbox need not wait for the kernel to tidy up
 * after the last. A layer that is only shown is not locked, and can be one that another sandbox
 * writes to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct run;
struct layer;
struct op;

/* Opens and locks the directory `name` as a layer over the tree `lower`, and makes its parts where
 * they are missing; a dry run looks at nothing. `flags`: OP_PLAN; OP_SHOWN: neither locks nor
 * makes, and where there is nothing to show *ret is NULL. */
int overlay_open(struct run *run, const char *name, int lower, uint32_t flags, struct layer **ret,
                 struct err *err);
/* What was changed of the tree in the layer `name` of another is seen between the two. */
int overlay_see_through(const struct run *run, struct layer *layer, const char *name,
                        struct err *err);
/* The operation that binds the tree becomes one that puts the layer over it. */
int overlay_describe(struct run *run, struct layer *layer, struct op *op, struct err *err);
/* A place for a mount that the tree does not have is made in the plan's layer. */
int overlay_make_point(struct run *run, const char *path, bool is_directory, struct err *err);
/* As root: mounts all of them, in the place of the trees that go to pid 1. Decides how ids are
 * mapped, so before the frame is sent. When it turns out later that they cannot be mapped, they are
 * mounted again. */
int overlay_mount(struct run *run, struct err *err);
/* When it stands, and a disk limit has looked at it: only the lock is kept, and what a plan needs.
 */
void overlay_started(struct run *run);
/* When nobody runs in it any more: a plan's places for mounts are taken back where they are empty,
 * and the engine lets go of all layers. */
void overlay_leave(struct run *run);
/* ... only that. */
void overlay_clear(struct run *run);

/* The same as overlay_leave, and waits until the kernel has let go of the plan's too: what
 * processes had open can take a moment longer than they. */
int overlay_end(struct run *run, struct err *err);

/* 0: nothing has the plan's layer mounted any more, so that it can no longer change. ERR_CONFLICT
 * when that is not so within `wait_ms`; with 0 it is asked once. */
int overlay_settle(const char *plan, unsigned wait_ms, struct err *err);
/* Whether layers carry the marks of root (trusted.overlay.*) rather than user.overlay.*. */
bool overlay_is_privileged(void);
