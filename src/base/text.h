/* SPDX-License-Identifier: Apache-2.0 */
/* Texts in arrays of a fixed size. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* As much of `from` as there is room for, and a NUL; `size` is not 0. False: it was too long. */
static inline bool text_copy(char *to, size_t size, const char *from)
{
    if (memccpy(to, from, '\0', size))
        return true;
    to[size - 1] = '\0';
    return false;
}
