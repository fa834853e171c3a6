/* SPDX-License-Identifier: Apache-2.0 */
/* A written plan, read and not yet held against the tree (submit_read.c). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum submitted_kind {
    SUBMITTED_MOVE,
    SUBMITTED_DELETE,
    SUBMITTED_CREATE,
    SUBMITTED_WRITE, /* a file, there or not */
    SUBMITTED_MKDIR,
    SUBMITTED_SYMLINK,
    SUBMITTED_CHMOD,
    SUBMITTED_KIND_COUNT_,
};

struct submitted {
    enum submitted_kind kind;
    const char *path;   /* without a leading or trailing slash; of a move: where it goes */
    const char *source; /* of a move; maybe a pattern */
    const char *target; /* of a symlink */
    const char *content;
    size_t size;
    uint32_t mode;  /* permissions */
    bool into;      /* the path ended with a slash */
    bool recursive; /* of a delete */
};

struct submission {
    struct submitted *all;
    size_t count;
    char *validations; /* as the manifest has them, or NULL */
    json_t *json;      /* owns the texts that are not in the arena */
    struct arena arena;
};

/* Strict: what it does not know it refuses. On failure there is nothing to clear. */
int submission_read(struct submission *ret, const char *text, size_t n, struct err *err);
void submission_clear(struct submission *submission);
