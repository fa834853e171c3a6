/* SPDX-License-Identifier: Apache-2.0 */
/* Opening paths by descriptor. Every function returns a descriptor or -errno. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* "." or "..", which every directory lists. */
static inline bool path_is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* Below `dir`, following no symlink at all and leaving the tree by no means. With `same_mount`
 * also crossing no mount point. A race with a rename is retried a bounded number of times. */
int path_open_beneath(int dir, const char *path, int flags, int same_mount);
/* One name in `dir`, which is no link; also where openat2 is refused, as in a sandbox. -EXDEV with
 * `same_mount`: something is mounted on it. */
int path_open_name(int dir, const char *name, int flags, bool same_mount);
/* Whether both are on one mount: what is on one can be renamed to the other. */
bool path_same_mount(int one, int two);
/* An absolute path of the host with no symlink in it (as path_of_fd gives it). */
int path_open_canonical(const char *path, int flags);
/* The canonical path of an open descriptor; 0 or -errno. */
int path_of_fd(int fd, char *text, size_t size);

enum {
    PATH_SMALL_DIR = 1 << 20, /* st_size of one that is looked through while others wait */
};

/* 1 empty, 0 not, -errno. `dir` must be open for reading. One that has been large may still take
 * long to look through, and counts as not empty. */
int path_dir_is_empty(int dir);
/* Whether it is open on a file system that shows the kernel: proc, sysfs, cgroups. */
bool path_is_of_the_kernel(int fd);
/* The whole of a small file, NUL-terminated; bytes read or -errno (-EFBIG when it does not fit). */
ssize_t path_read_small(const char *path, char *text, size_t size);
/* Writes `text` to an existing file in one write; 0 or -errno. */
int path_write_text(int dir, const char *path, const char *text);
