/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a plan as a tree that a person can read. Pure: JSON in, text out. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum change_kind {
    CHANGE_MKDIR,
    CHANGE_CREATE,
    CHANGE_WRITE,
    CHANGE_SYMLINK,
    CHANGE_MOVE,
    CHANGE_DELETE,
    CHANGE_CHMOD,
    CHANGE_KIND_COUNT_,
};

/* One operation. Names are bytes. */
struct change {
    enum change_kind kind;
    const char *path;
    const char *from; /* NULL: nowhere else */
    const char *target;
    const char *link;
    const char *attributes; /* their names, as they are shown; NULL: none */
    uint32_t mode;
    uint32_t base_mode; /* 0: nothing was there */
    uint64_t size;
    uint64_t base_size;
    uint64_t entries; /* below a deleted directory */
    uint64_t bytes;
    bool directory;
    bool symlink;
    bool copied;
};

struct changes {
    struct change *items; /* by path, what is below a directory right behind it */
    size_t count;
    size_t of_kind[CHANGE_KIND_COUNT_];
    uint64_t bytes; /* of content that is new */
    struct arena arena;
};

/* Reads a list of operations as the interface gives it. */
int changes_read(struct changes *ret, const json_t *operations, struct err *err);
void changes_clear(struct changes *changes);
/* In about so many lines, the rest counted; SIZE_MAX: all of them. */
void changes_print(const struct changes *changes, struct buf *b, size_t lines, bool colours);
/* "3 changes: 2 moved, 1 deleted; 12K of new content" */
void changes_print_summary(const struct changes *changes, struct buf *b);
/* "1,234,567" */
void changes_print_number(struct buf *b, uint64_t number);
