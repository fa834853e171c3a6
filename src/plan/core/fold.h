/* SPDX-License-Identifier: Apache-2.0 */
/* Names without regard to the case of ASCII letters. Other letters have rules that depend on who
 * asks, and are left as they are. */
#pragma once

static inline unsigned char fold(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* As strcmp. */
static inline int fold_compare(const char *a, const char *b)
{
    while (*a && fold(*a) == fold(*b)) {
        a++;
        b++;
    }
    return fold(*a) - fold(*b);
}
