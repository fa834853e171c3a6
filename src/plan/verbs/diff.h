/* SPDX-License-Identifier: Apache-2.0 */
/* Two texts, compared by diff(1): a child that has nothing but the two, and little time. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
    DIFF_LARGEST = 4 << 20, /* of either side */
};

struct diff_side {
    const char *label; /* one line */
    const char *bytes;
    size_t n;
};

/* Adds "--- old\n+++ new\n@@ ..." to `b`; nothing when they are the same. Where one side has no
 * bytes there is nothing to compare, and no child. */
int diff_texts(struct buf *b, const struct diff_side *old, const struct diff_side *new,
               struct err *err);
