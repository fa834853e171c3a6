/* SPDX-License-Identifier: Apache-2.0 */
/* A chunked body, decoded in place, whatever the pieces it comes in:
 *
 *   SIZE -> [EXTENSION] -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE …
 *                             \-(size 0)-> LINE -> [NAME -> VALUE -> VALUE_LF -> LINE …] -> LAST_LF
 * -> DONE
 *
 * Extensions and trailers are read past and dropped, within bounds. A size has no sign, no 0x, no
 * blanks around it; every line ends in CR LF. */
#include "http/head.h"

#include <errno.h>
#include <string.h>

enum {
    MAX_DIGITS = 15,
    MAX_EXTENSION = 256, /* of one chunk */
    MAX_TRAILERS = 4096, /* of all of them */
};

enum state {
    SIZE, /* the first, since a decoder begins zeroed */
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    LINE,
    NAME,
    VALUE,
    VALUE_LF,
    LAST_LF,
    DONE,
};

/* Goes to `next` if c is what has to come now. */
static bool expect(struct http_chunks *c, char is, char must, enum state next)
{
    c->state = next;
    return is == must;
}

static bool take_size(struct http_chunks *c, char byte)
{
    int digit = http_hex_digit(byte);

    if (digit >= 0) {
        c->left = c->left << 4 | (unsigned)digit;
        return ++c->digits <= MAX_DIGITS;
    }
    if (c->digits == 0)
        return false;
    c->line = 0;
    return expect(c, byte, byte == ';' ? ';' : '\r', byte == ';' ? EXTENSION : SIZE_LF);
}

/* Names, = and values, quoted or not, without blanks: more has no use, and nobody sends it. */
static bool take_extension(struct http_chunks *c, char byte)
{
    if (byte == '\r')
        return expect(c, byte, '\r', SIZE_LF);
    return ++c->line <= MAX_EXTENSION &&
           (http_is_token((unsigned char)byte) || byte == '=' || byte == ';' || byte == '"');
}

static bool take_trailer(struct http_chunks *c, char byte)
{
    unsigned char u = (unsigned char)byte;

    if (++c->line > MAX_TRAILERS)
        return false;
    if (c->state == VALUE) {
        if (byte == '\r')
            c->state = VALUE_LF;
        return byte == '\r' || byte == '\t' || (u >= ' ' && u != 0x7f);
    }
    if (c->state == LINE && byte == '\r')
        return expect(c, byte, '\r', LAST_LF);
    if (c->state == NAME && byte == ':')
        return expect(c, byte, ':', VALUE);
    c->state = NAME;
    return http_is_token(u);
}

/* Everything but data. */
static bool take(struct http_chunks *c, char byte)
{
    switch ((enum state)c->state) {
    case SIZE:
        return take_size(c, byte);
    case EXTENSION:
        return take_extension(c, byte);
    case SIZE_LF:
        c->digits = 0;
        c->line = 0;
        return expect(c, byte, '\n', c->left ? DATA : LINE);
    case DATA_CR:
        return expect(c, byte, '\r', DATA_LF);
    case DATA_LF:
        return expect(c, byte, '\n', SIZE);
    case LINE:
    case NAME:
    case VALUE:
        return take_trailer(c, byte);
    case VALUE_LF:
        return expect(c, byte, '\n', LINE);
    case LAST_LF:
        return expect(c, byte, '\n', DONE);
    case DATA:
    case DONE:
        break;
    }
    return false;
}

ssize_t http_chunks_decode(struct http_chunks *c, char *bytes, size_t n, size_t *ret_data,
                           bool *ret_done)
{
    size_t data = 0;
    size_t at = 0;

    while (at < n && c->state != DONE) {
        if (c->state != DATA) {
            if (!take(c, bytes[at++]))
                return -EBADMSG;
            continue;
        }
        size_t piece = n - at < c->left ? n - at : (size_t)c->left;
        memmove(bytes + data, bytes + at, piece);
        data += piece;
        at += piece;
        c->left -= piece;
        if (c->left == 0)
            c->state = DATA_CR;
    }
    *ret_data = data;
    *ret_done = c->state == DONE;
    return (ssize_t)at;
}
