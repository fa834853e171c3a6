/* SPDX-License-Identifier: Apache-2.0 */
/* Which known name a misspelt one is close to. Pure. */
#pragma once

#include <stddef.h>

enum {
    NEAR_HINT = 64
};

/* "; did you mean 'NAME'?" with the name that is nearest to the `n` bytes of `word`, or "" where
 * none is near. A table of `count` rows of `size` bytes, each beginning with its name, a
 * `const char *`. Returns `hint`. */
const char *near_hint(char hint[NEAR_HINT], const char *word, size_t n, const void *rows,
                      size_t count, size_t size);
