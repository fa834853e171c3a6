/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <stdint.h>
#include <string.h>

#include "base/buf.h"

static const char hex_digits[] = "0123456789abcdef";
static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t utf8_next(const void *bytes, size_t n, uint32_t *ret_code)
{
    const unsigned char *c = bytes;

    if (n == 0)
        return 0;
    size_t length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    uint32_t code = length > 1 ? c[0] & (0x7fU >> length) : c[0];

    if (length == 0 || length > n || c[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (c[i] & 0x3fU);
    }
    /* Too long for what they say, halves of pairs, beyond the last. */
    if ((length == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (length == 4 && (code < 0x10000 || code > 0x10ffff)))
        return 0;
    *ret_code = code;
    return length;
}

size_t utf8_cut(const void *bytes, size_t n)
{
    const unsigned char *c = bytes;
    size_t tail = 0;

    while (tail < 3 && tail < n && (c[n - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == n)
        return 0;
    unsigned char first = c[n - 1 - tail];
    size_t wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    return wanted > tail + 1 ? tail + 1 : 0;
}

bool bytes_are_utf8(const void *bytes, size_t n)
{
    const unsigned char *c = bytes;
    uint32_t code;

    for (size_t i = 0; i < n;) {
        size_t step = c[i] == 0 ? 0 : c[i] < 0x80 ? 1 : utf8_next(c + i, n - i, &code);
        if (step == 0)
            return false;
        i += step;
    }
    return true;
}

void bytes_add_json(struct buf *b, const void *bytes, size_t n)
{
    const unsigned char *c = bytes;
    size_t plain = 0;

    buf_str(b, "\"");
    for (size_t i = 0; i < n; i++) {
        if (c[i] >= ' ' && c[i] != '"' && c[i] != '\\' && c[i] != 0x7f)
            continue;
        buf_add(b, c + plain, i - plain);
        plain = i + 1;
        if (c[i] == '\n')
            buf_str(b, "\\n");
        else
            buf_add(b, (char[6]){'\\', 'u', '0', '0', hex_digits[c[i] >> 4], hex_digits[c[i] & 15]},
                    6);
    }
    buf_add(b, c + plain, n - plain);
    buf_str(b, "\"");
}

void bytes_add_base64(struct buf *b, const void *bytes, size_t n)
{
    const unsigned char *c = bytes;

    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = (uint32_t)c[i] << 16 | (i + 1 < n ? (uint32_t)c[i + 1] << 8 : 0) |
                         (i + 2 < n ? c[i + 2] : 0U);
        char four[4] = {base64_digits[three >> 18], base64_digits[three >> 12 & 63],
                        i + 1 < n ? base64_digits[three >> 6 & 63] : '=',
                        i + 2 < n ? base64_digits[three & 63] : '='};
        buf_add(b, four, 4);
    }
}

static int base64_value(char digit)
{
    if (digit >= 'A' && digit <= 'Z')
        return digit - 'A';
    if (digit >= 'a' && digit <= 'z')
        return digit - 'a' + 26;
    if (digit >= '0' && digit <= '9')
        return digit - '0' + 52;
    return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

ssize_t bytes_from_base64(const char *text, size_t n, void *ret)
{
    unsigned char *out = ret;
    size_t made = 0;

    if (n % 4 != 0)
        return -1;
    for (size_t i = 0; i < n; i += 4) {
        bool last = i + 4 == n;
        size_t pads = !last || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        uint32_t three = 0;
        for (size_t d = 0; d < 4; d++) {
            int value = d < 4 - pads ? base64_value(text[i + d]) : 0;
            if (value < 0)
                return -1;
            three = three << 6 | (uint32_t)value;
        }
        /* Bits that no byte has could say the same in another way. */
        if ((pads == 1 && (three & 0xff)) || (pads == 2 && (three & 0xffff)))
            return -1;
        for (size_t d = 0; d < 3 - pads; d++)
            out[made++] = (unsigned char)(three >> (16 - 8 * d));
    }
    return (ssize_t)made;
}

int bytes_add_decoded(struct buf *b, const char *text, size_t n)
{
    char *room = buf_room(b, n / 4 * 3);
    ssize_t made = room ? bytes_from_base64(text, n, room) : -1;

    if (made < 0)
        return -1;
    b->n += (size_t)made;
    return 0;
}

void bytes_to_hex(const void *bytes, size_t n, char *ret)
{
    const unsigned char *c = bytes;

    for (size_t i = 0; i < n; i++) {
        *ret++ = hex_digits[c[i] >> 4];
        *ret++ = hex_digits[c[i] & 15];
    }
    *ret = '\0';
}

bool bytes_from_hex(const char *text, size_t n, void *ret)
{
    unsigned char *out = ret;

    for (size_t i = 0; i < 2 * n; i++) {
        const char *at = text[i] ? strchr(hex_digits, text[i]) : NULL;
        if (!at)
            return false;
        unsigned value = (unsigned)(at - hex_digits);
        out[i / 2] = (unsigned char)(i % 2 ? out[i / 2] | value : value << 4);
    }
    return true;
}

bool bytes_are_hex(const char *text, size_t digits)
{
    return strspn(text, hex_digits) == digits && text[digits] == '\0';
}
