/* SPDX-License-Identifier: Apache-2.0 */
/* How much a run may add to what it can write: its workspace (or the current directory) and every
 * writable mount, but not what is mounted below them. Three methods, told in the result:
 *
 *   image    the workspace lives in a file system image: the kernel keeps the limit (ENOSPC)
 *   quota    the workspace has a project quota that leaves no more than that: likewise (EDQUOT)
 *   polling  free space is looked at often, the tree is counted when it falls, and the run is
 *            ended: it can overshoot, by what it writes between two looks
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "carrel.h"

struct run;

struct disk_watch {
    struct disk_state *state; /* NULL: nothing is watched; a zeroed watch is an empty one */
};

/* Counts what is there. After the mount points are made and before the command is started: best
 * while pid 1 does its setup. Does nothing without a limit on bytes or files. With an image
 * run->workspace must be open in it. */
int disk_watch_begin(struct disk_watch *watch, const struct run *run, struct err *err);
/* Tells who pid 1 is: files that are deleted but open are found through it. */
void disk_watch_follow(struct disk_watch *watch, pid_t pid);
/* In how many ms to check; -1: never. */
int disk_watch_due_ms(const struct disk_watch *watch);
/* True: over the limit, end the run. Works a few ms at a time, whatever the tree looks like; some
 * tens of ms with hundreds of processes. */
bool disk_watch_check(struct disk_watch *watch);
/* After a check said so: what was exceeded, in words; else NULL. */
const char *disk_watch_why(const struct disk_watch *watch);
/* Image, quota: whether the command has filled it, so that its writes failed. Before the end. */
bool disk_watch_is_full(const struct disk_watch *watch);
/* When all processes are gone: fills added_bytes, overshoot_bytes and disk_method, and frees all.
 * `ret` may be NULL. */
void disk_watch_end(struct disk_watch *watch, struct carrel_result *ret);

/* A detached mount of the image of this workspace: `<workspace>.carrel-img`, beside it, made at
 * first use. As root only. *ret_tree is the caller's; the loop device and the lock on the image go
 * with the last user of the mount. */
int disk_image_open(const char *workspace, int workspace_fd, uint64_t bytes, int *ret_tree,
                    struct err *err);
