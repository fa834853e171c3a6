/* SPDX-License-Identifier: Apache-2.0 */
/* Takes secrets out of a stream of bytes: each of their bytes becomes '*', so that nothing gets
 * another length. What could be the beginning of one is held back until it is known. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum {
    MASK_WORDS = 64,     /* at most, with what is made of them */
    MASK_WORD = 6 << 10, /* longest */
    MASK_BEGINNING = 8,  /* so many bytes of one at the end of all are taken out, too */
};

struct mask {
    char *words[MASK_WORDS]; /* copies, wiped at the end */
    size_t lengths[MASK_WORDS];
    size_t count;
    struct buf held; /* as it came */
    struct buf done; /* ... and with what was found taken out */
};

/* `mask` is zeroed before. */
void mask_begin(struct mask *mask);
/* False: there is no room for it, and nothing may be let through. One that is too short to be
 * a secret, or is there already, is passed over. */
bool mask_add(struct mask *mask, const char *word, size_t n);
/* What can go on goes to `out`; `last`: nothing follows. */
void mask_bytes(struct mask *mask, const char *bytes, size_t n, bool last, struct buf *out);
/* All at once, in place. */
void mask_whole(const struct mask *mask, char *bytes, size_t n);
void mask_clear(struct mask *mask);
