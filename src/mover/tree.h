/* SPDX-License-Identifier: Apache-2.0 */
/* A tree as a list that is sorted by its paths' bytes: what it is now, or what of it is in a store.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mover/mover.h"

enum entry_kind {
    ENTRY_FILE = 'f',
    ENTRY_LINK = 'l',
    ENTRY_DIR = 'd',
};

struct entry {
    const char *path; /* bytes as they are, from the top */
    enum entry_kind kind;
    bool closed; /* its owner may not read it: it is not sent, and what is in the store stays */
    bool dirty;  /* of what is in the store: it may be another by now, or not there */
    uint32_t mode;
    uint64_t size;
    uint64_t links; /* hard ones */
    uint64_t ino;
    int64_t mtime_ns;
    int64_t ctime_ns;
};

struct tree {
    struct arena paths;
    struct entry *entries;
    size_t count;
    size_t room;
    size_t skipped; /* sockets, pipes, devices: no store holds them */
    size_t closed;  /* directories, or files, that their owner may not read */
    bool blind;     /* of a directory it is not known what is in it: nothing is removed */
    bool moving;    /* ... and the next scan will see it */
};

void tree_init(struct tree *tree);
void tree_clear(struct tree *tree);
/* The path is copied. -1: no memory. */
int tree_add(struct tree *tree, const struct entry *entry);
void tree_sort(struct tree *tree);
/* NULL: it has none of that path. */
struct entry *tree_find(const struct tree *tree, const char *path);
/* Whether one is as the other, as far as can be told without reading it. */
bool entry_is_as(const struct entry *a, const struct entry *b);

/* --- names.c */
/* Whether the path can be the name of an object as it is. */
bool name_is_plain(const char *path);
/* The object that holds it, below the path of the store; in `arena`. */
const char *name_of_object(const struct mover *m, struct arena *arena, const struct entry *entry);
/* Whether a pattern takes it out. */
bool name_is_excluded(const struct mover *m, const char *path, const char *name);

/* --- listing.c */
/* Names that a tree can have, as bytes; and as the name of an object. */
bool raw_name_is_good(const char *path);
bool listing_name_is_good(const char *path);
/* What rclone lists as JSON, with what a tree can have of it; the rest is counted. */
int listing_take(const json_t *list, struct tree *ret, size_t *ret_refused, struct err *err);

/* --- scan.c */
int scan_tree(const struct mover *m, struct tree *ret, struct err *err);
/* What is there of it now. 1; 0: nothing, or something else; -1 with errno. */
int scan_look(int top, const char *path, struct entry *ret);

/* --- index.c */
struct index {
    struct tree tree;
    char manifest[65]; /* SHA-256 of the one that is in the store; "": none */
};

int index_load(const struct mover *m, struct index *ret, struct err *err);
int index_save(const struct mover *m, const struct index *index, struct err *err);
/* These may be in the store from now on, whatever happens to us: those on their way there, and
 * those that are to be removed, which an earlier intent may have been the last to name. */
int index_intend(const struct mover *m, const struct entry *const *up, size_t up_count,
                 const struct entry *const *down, size_t down_count, struct err *err);

/* --- manifest.c */
/* What plain objects cannot hold of the tree, as JSON. */
int manifest_write(const struct mover *m, const struct tree *tree, struct buf *ret,
                   struct err *err);
