/* SPDX-License-Identifier: Apache-2.0 */
/* Two texts that come from one are brought together, by lines: what only one of them has changed is
 * taken, what both have changed alike as well. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct lines_text {
    const char *bytes;
    size_t n;
};

enum {
    LINES_LARGEST = 4 << 20, /* bytes of a text; what is larger is no text to be merged */
    LINES_MOST_APART = 3000, /* lines that two of them may differ in */
};

/* Whether it can be taken for lines at all: no NUL, not too large. */
bool lines_is_text(const struct lines_text *text);
/* 1: `ret` has the merged text; 0: both have changed the same or neighbouring lines, or too much;
 * -1: no memory. */
int lines_merge(struct buf *ret, const struct lines_text *base, const struct lines_text *ours,
                const struct lines_text *theirs);
