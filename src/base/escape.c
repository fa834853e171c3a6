/* SPDX-License-Identifier: Apache-2.0 */
#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

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
        size_t length = utf8_next(at, n, &c);
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
