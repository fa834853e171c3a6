/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching names in a hostile tree and in the plan's directory: each parent is opened beneath its
 * top, following no symlink and crossing no mount, and what is done there is done by descriptor.
 * Functions return 0 or -errno. */
#pragma once

#include <sys/stat.h>

#include "plan/core/plan.h"

/* The last parent is kept open: neighbours are many. Forget it when a directory has been renamed.
 */
struct reach {
    int top; /* borrowed */
    int parent;
    char path[PLAN_MAX_PATH + 8]; /* of `parent` */
};

void reach_init(struct reach *reach, int top);
void reach_forget(struct reach *reach);
/* A descriptor that stays the reach's own; `ret_name` points into `path`. */
int reach_parent(struct reach *reach, const char *path, const char **ret_name);
int reach_stat(struct reach *reach, const char *path, struct stat *st);
/* O_PATH of the object itself, also a symlink; the caller's. */
int reach_open(struct reach *reach, const char *path, int flags);

int reach_rename(struct reach *from, const char *old, struct reach *to, const char *new,
                 unsigned flags);
int reach_remove(struct reach *reach, const char *path); /* one thing; a directory if empty */
/* By descriptor, O_PATH too: on the object that was looked at, whatever its name means by now. */
int reach_chmod(int fd, uint32_t mode);
int reach_set_mtime(int fd, int64_t mtime_ns);

/* Whether it is what was noted. The device is not compared with the one noted, which is another
 * after a reboot or when an image is mounted again, but with `dev`, the tree's. `ctime_ns`: what
 * our own steps made of it, accepted too; 0: none; -1, also as the one noted: any. */
bool reach_is_same(const struct plan_identity *noted, const struct stat *st, uint64_t dev,
                   int64_t ctime_ns);
