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

struct run_view;

/* Why a run was ended, or what it had exceeded when it was over. */
enum disk_end {
    DISK_KEPT,
    DISK_BYTES,
    DISK_FILES,
    DISK_TOO_FAST, /* the disk filled faster than could be counted */
    DISK_HIDDEN,   /* ... or where it cannot be counted */
    DISK_HOST_FULL,
    DISK_FULL, /* image, quota: the command has filled it, so that its writes failed */
};

struct disk_watch {
    struct disk_state *state; /* NULL: nothing is watched; a zeroed watch is an empty one */
};

/* Counts what is there. After the mount points are made and before the command is started: best
 * while pid 1 does its setup. Does nothing without a limit on bytes or files. With an image
 * run->workspace must be open in it. */
int disk_watch_begin(struct disk_watch *watch, const struct run_view *run, struct err *err);
/* Tells who pid 1 is: files that are deleted but open are found through it. */
void disk_watch_follow(struct disk_watch *watch, pid_t pid);
/* In how many ms to check; -1: never. */
int disk_watch_due_ms(const struct disk_watch *watch);
/* True: over the limit, end the run. Works a few ms at a time, whatever the tree looks like; some
 * tens of ms with hundreds of processes. */
bool disk_watch_check(struct disk_watch *watch);
/* Another process of ours below pid 1, until the next disk_watch_follow. */
void disk_watch_trust(struct disk_watch *watch, pid_t pid);
/* Whether a command runs. Without one nothing is ended: what is there beyond the limit by then
 * stays and may be deleted, and commands may not add to it. */
void disk_watch_idle(struct disk_watch *watch, bool idle);
/* Has the trees counted soon, for disk_watch_left. */
void disk_watch_ask(struct disk_watch *watch);
/* Such a count is asked for or under way. */
bool disk_watch_is_asked(const struct disk_watch *watch);
/* Bytes that might be added when the trees were counted last (UINT64_MAX while another count is
 * asked for), and how often they have been; false: there is no limit, or the kernel keeps it. */
bool disk_watch_left(const struct disk_watch *watch, uint64_t *ret_bytes, uint64_t *ret_counts);
/* When all processes are gone: fills added_bytes, overshoot_bytes and disk_method, and frees all.
 * `ret` may be NULL. */
enum disk_end disk_watch_end(struct disk_watch *watch, struct carrel_result *ret);
/* How many files may be added: asked for, or as many as a limit on bytes allows; UINT64_MAX: any.
 */
uint64_t disk_most_files(const struct carrel_limits *limits);
