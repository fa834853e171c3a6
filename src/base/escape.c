/* SPDX-License-Identifier: Apache-2.0 */
#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads one character of UTF-8; returns its length, or 0 when there is none. */
static size_t character(const unsigned char *c, size_t n, uint32_t *ret)
{
    size_t length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    uint32_t value = c[0];

    if (length == 0 || length > n || c[0] > 0xf4)
        return 0;
    if (length > 1)
        value &= 0x7fU >> length;
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (c[i] & 0x3f);
    }
    if ((length == 3 && (value < 0x800 || (value >= 0xd800 && value < 0xe000))) ||
        (length == 4 && (value < 0x10000 || value > 0x10ffff)))
        return 0;
    *ret = value;
    return length;
}

/* Characters that nobody sees and that change how the rest is shown. */
static bool misleads(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
           (c >= 0xe0000 && c <= 0xe0fff);
}

void text_escape(struct buf *b, const char *bytes, size_t n)
{
    const unsigned char *at = (const unsigned char *)bytes;
    uint32_t c = 0;

    while (n > 0) {
        size_t length = character(at, n, &c);
        if (length == 0 || (length == 1 && misleads(c)))
            buf_printf(b, "\\x%02x", at[0]);
        else if (misleads(c))
            buf_printf(b, "\\u{%x}", (unsigned)c);
        else
            buf_add(b, at, length);
        length += length == 0;
        at += length;
        n -= length;
    }
}
