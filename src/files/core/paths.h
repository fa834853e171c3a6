/* SPDX-License-Identifier: Apache-2.0 */
/* Names in directories. What changes a tree acts on a directory that is held open and one name in
 * it, so that nothing can be put in the way between looking and doing. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/names.h"
#include "files/core/call.h"

struct dir_entry {
    int dir; /* open for reading where that is allowed, else O_PATH */
    char name[256];
};

/* The directory above the last part of a path, found as the kernel does, and that part. `parents`:
 * directories that are missing are made, and synced with `sync`. -EBUSY for "/". 0 or -errno. */
int place_open(const char *path, bool parents, bool sync, struct dir_entry *ret);
void place_close(struct dir_entry *place);
#define scoped_place __attribute__((cleanup(place_close)))
/* Goes on to where symbolic links under that name lead. 0: *ret is what is there, 1: there is
 * nothing, -errno. */
int place_follow(struct dir_entry *place, struct stat *ret);
/* Returns -EBUSY for Carrel's own top-level names (usr, etc, …), also when reached through a
 * symlink. */
int place_check_reserved(const struct dir_entry *place);

/* Whether the directory is the root itself. */
bool files_is_root(int dir);
/* A name that Carrel provides, at the top. */
bool files_is_reserved_name(const char *name);
/* The first name of the rest of a path, which goes on behind it. 0 or -ENAMETOOLONG. */
int files_next_name(const char **rest, char name[256]);
/* A name nobody guesses, for what is not whole yet; they all begin like this. */
#define FILES_TEMP        CARREL_UNFINISHED
#define FILES_TEMP_LENGTH (sizeof(FILES_TEMP) - 1 + 32)
void files_temp_name(char name[48]);
/* Where to make it: the hidden directory if one can rename from there, else `dir` itself. */
int files_temp_dir(const struct files_call *call, int dir);
/* A directory's entries reach the disk. 0 or -errno. */
int files_sync_dir(int dir);
int files_write_all(int fd, const void *bytes, size_t n);

enum {
    FILES_BLOCK = 4096 /* what a new file or directory takes, whatever is in it */
};

/* room.c: whether that much may be added to the workspace: 0 or -EDQUOT. `fd`: the file, or -1. */
int files_room_take(int fd, uint64_t n);
/* As mkdirat, with what a directory takes. */
int files_mkdirat(int at, const char *name, mode_t mode);
/* What a link holds: its length, or -errno. Ends with NUL. */
ssize_t files_read_link(int dir, const char *name, char target[FILES_PATH]);
/* An entry as the whole answer, with the etag in its head. */
void answer_entry(struct files_call *call, unsigned status, const char *path, const struct stat *st,
                  const char *target);
int64_t files_mtime_ms(const struct stat *st);
/* A file of /proc, which has content and says that it is empty. */
bool files_is_sizeless(int fd, const struct stat *st);
/* Whether an If-Match or If-None-Match (an etag, or "*") means this file. */
bool files_etag_is(const char *etag, const struct stat *st);

/* sweep.c: unfinished things in the hidden directory, as names with a NUL behind each, and their
 * removal. */
void files_sweep_find(int hidden, struct buf *ret);
void files_sweep(int hidden, struct buf *names);

/* remove.c: what is under that name, with all below it. 0 or -errno. */
int files_remove_tree(int dir, const char *name);
/* copy.c: what is under one name comes to another, whole or not at all, as RECURSIVE and REPLACE of
 * the call say. 0 or -errno. */
int files_copy_to(struct files_call *call, const struct dir_entry *from,
                  const struct dir_entry *to);
