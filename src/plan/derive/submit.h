/* SPDX-License-Identifier: Apache-2.0 */
/* A written plan, read and not yet held against the tree (submit_read.c). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum wish_kind {
    WISH_MOVE,
    WISH_DELETE,
    WISH_CREATE,
    WISH_WRITE, /* a file, there or not */
    WISH_MKDIR,
    WISH_SYMLINK,
    WISH_CHMOD,
    WISH_KIND_COUNT_,
};

struct wish {
    enum wish_kind kind;
    const char *path;   /* without a leading or trailing slash; of a move: where it goes */
    const char *source; /* of a move; maybe a pattern */
    const char *target; /* of a symlink */
    const char *content;
    size_t size;
    uint32_t mode;  /* permissions */
    bool into;      /* the path ended with a slash */
    bool recursive; /* of a delete */
};

struct wishes {
    struct wish *all;
    size_t count;
    char *validations; /* as the manifest has them, or NULL */
    json_t *json;      /* owns the texts that are not in the arena */
    struct arena arena;
};

/* Strict: what it does not know it refuses. On failure there is nothing to clear. */
int wishes_read(struct wishes *ret, const char *text, size_t n, struct err *err);
void wishes_clear(struct wishes *wishes);
