/* SPDX-License-Identifier: Apache-2.0 */
/* The file system of control groups: which hierarchy has a controller, where this process is in it,
 * and the files of a group by descriptor. Everything returns 0 (or a value) or -errno. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Where this process is in one hierarchy. */
struct cgroup_spot {
    char path[PATH_MAX]; /* its group, as a directory */
    size_t mount_length; /* how much of it is the mount point */
};

/* Looks up `controller` ("" is the v2 hierarchy) in the texts of /proc/self/mountinfo and
 * /proc/self/cgroup. -ENOENT: no such hierarchy, or not in sight. */
int cgroup_locate(const char *mountinfo, const char *own, const char *controller,
                  struct cgroup_spot *ret);
/* The same for this process, here and now. */
int cgroup_find(const char *controller, struct cgroup_spot *ret);

/* The whole of a group's file, NUL-terminated and cut at `size`. */
ssize_t cgroup_read(int group, const char *file, char *text, size_t size);
int cgroup_write(int group, const char *file, const char *text);
/* The number in a file that holds nothing else, or after `key` in one with lines of "key value". */
int cgroup_number(int group, const char *file, const char *key, uint64_t *ret);
/* Whether a list of words, as in cgroup.controllers, has this one. */
bool cgroup_lists(int group, const char *file, const char *word);
