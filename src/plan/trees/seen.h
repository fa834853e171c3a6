/* SPDX-License-Identifier: Apache-2.0 */
/* What a snapshot has seen of the files of the live tree, and where its own copies of them are: by
 * that the next snapshot knows which files are still what they were. A file is found by its inode,
 * so what was only moved with its directory is found, too. Kept beside the snapshot, as a file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

struct seen_file {
    uint64_t dev;
    uint64_t ino;
    uint64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
    const char *path; /* of the copy, in the snapshot; NULL: the place is free */
};

struct seen {
    struct seen_file *at; /* a hash table, as large as a power of two */
    size_t room;
    size_t count;
    struct arena arena; /* of the paths */
};

void seen_init(struct seen *seen);
void seen_clear(struct seen *seen);
void seen_of(const struct stat *st, struct seen_file *ret);
/* The path is copied. -1 without memory. */
int seen_add(struct seen *seen, const struct seen_file *file);
/* By device and inode; NULL: there is none. */
const struct seen_file *seen_find(const struct seen *seen, uint64_t dev, uint64_t ino);
/* Whether it is what it was: size, both times. */
bool seen_is_same(const struct seen_file *a, const struct seen_file *b);

/* Writes a file of that name in `dir`, and waits until it is on disk. What changed at `settled_ns`
 * or later is left out: the clock of the file system is too coarse to tell a change that comes
 * right after it. */
int seen_save(const struct seen *seen, int dir, const char *name, int64_t settled_ns,
              struct err *err);
/* Strict: anything that seen_save would not have written is an error. */
int seen_load(struct seen *ret, int dir, const char *name, struct err *err);
/* The same of its bytes; they are borrowed for the call. */
int seen_parse(struct seen *ret, const char *bytes, size_t n, struct err *err);
