/* SPDX-License-Identifier: Apache-2.0 */
/* A walk through a tree that others may be changing: by descriptor, following no link, in any depth
 * with a fixed number of descriptors. Each directory is opened from the one above it by its name
 * alone. On the way back up, a directory that had to be closed is opened again, as ".." or by the
 * names from the top, and must be the one it was.
 *
 *   tree_walk_begin --> tree_walk_next ... --> tree_walk_end
 *                        |    ^   tree_walk_skip, tree_walk_again
 *                        '----'
 *
 * Without TREE_SORTED only system calls: it may run in a child of a process with threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    TREE_ONE_MOUNT = 1 << 0, /* -EXDEV for a directory that something is mounted on */
    TREE_STAT = 1 << 1,      /* `st` is wanted */
    TREE_SORTED = 1 << 2,    /* the names of a directory in the order of their bytes */
    TREE_POST = 1 << 3,      /* a directory once more, when all in it is done; -ESTALE when it is
                                elsewhere by then */
    TREE_EMPTYING = 1 << 4,  /* what was given is removed by the next call: a directory that had to
                                be closed is read from its beginning */

    TREE_HELD = 12,     /* directories that are open at once */
    TREE_MOST_FDS = 16, /* of a walk, with what is open for a moment and the top */
};

struct tree_entry {
    int dir;          /* the directory it is in; this and the texts until the next call */
    const char *name; /* in it */
    const char *path; /* from the top */
    unsigned depth;   /* 1: directly in the top */
    bool is_dir;
    bool after;     /* the second time, of TREE_POST; then with `st` */
    struct stat st; /* with TREE_STAT */
};

/* Memory that grows by system calls alone. */
struct tree_room {
    char *at;
    size_t size;
    size_t n; /* in use */
};

/* Its parts are tree_walk.c's; nothing of it is on the heap. */
struct tree_walk {
    int top;
    unsigned flags;
    bool enter; /* the directory given last, with the next call */
    int below;  /* what was left last, while the directory above it is not open; -1 */
    size_t depth;

    struct tree_held {
        int fd; /* -1: none */
        size_t level;
        long filled;
        long at;
    } held[TREE_HELD];
    struct tree_room levels;
    struct tree_room path;
    struct tree_room names;  /* of TREE_SORTED */
    struct tree_room pieces; /* what was read of each directory that is open */
};

/* Begins with what is in the directory `top`, open for reading and borrowed, with its offset, until
 * the end. 0 or -errno; both times tree_walk_end may follow. */
int tree_walk_begin(struct tree_walk *w, int top, unsigned flags);
/* 1: *ret is the next entry, a directory before what is in it; 0: there is no more. -errno: *ret
 * names a directory that could not be opened, read or found again (-ESTALE: it, or one above it,
 * was moved away), or what could not be looked at; the next call goes on behind it. What has gone
 * since its name was read is passed over, but for a directory, which is -ENOENT. */
int tree_walk_next(struct tree_walk *w, struct tree_entry *ret);
/* Not into the directory that was just given. */
void tree_walk_skip(struct tree_walk *w);
/* Into the directory that was just given, though it could not be opened or was left already. */
void tree_walk_again(struct tree_walk *w);
void tree_walk_end(struct tree_walk *w);
