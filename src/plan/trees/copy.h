/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of single files and directories, with what they carry: data (shared where the file system
 * can, holes stay holes), mode, times, user.* attributes. Opened by descriptor, following nothing.
 * Each returns 0 or -errno. */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

/* A regular file `name` in `from` becomes the new `path` below `to`. -ESTALE: it is not the one
 * that `st` is of, or it changed meanwhile. */
int copy_file(int from, const char *name, const struct stat *st, int to, const char *path);
int copy_symlink(int from, const char *name, const struct stat *st, int to, const char *path);
/* What a directory carries, onto one that is there. */
int copy_directory(int from, const char *name, const struct stat *st, int to, const char *path);
