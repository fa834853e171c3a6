/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a client: whatever the pieces they come in, the same messages come out, the same bytes
 * are taken and the same rules are found broken. No text that is passed on is anything but UTF-8,
 * no control frame is longer than it may be, and after a Close nothing is read. What a server would
 * answer with is a frame by the same rules. */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "http/websocket.h"

enum {
    MAX = 1 << 17,
    LOG = MAX * 4,
};

struct outcome {
    char said[LOG]; /* every message: its kind, code and bytes */
    size_t n;
    size_t taken;
    enum websocket_kind last;
};

static void note(struct outcome *o, const struct websocket_piece *p)
{
    char head[4] = {(char)p->kind, (char)(p->code >> 8), (char)p->code, (char)p->last};

    MUST(o->n + sizeof(head) + p->n <= LOG);
    if (p->kind != WEBSOCKET_BYTES) {
        memcpy(o->said + o->n, head, sizeof(head));
        o->n += sizeof(head);
    }
    if (p->n)
        memcpy(o->said + o->n, p->bytes, p->n);
    o->n += p->n;
    if (p->kind == WEBSOCKET_BYTES && p->last)
        o->said[o->n++] = '.';
}

static void must_make_sense(const struct websocket_piece *p)
{
    scoped_buf struct buf answer;
    size_t n = p->why ? strlen(p->why) : 0;

    buf_init(&answer, 256);
    MUST((p->kind == WEBSOCKET_BROKEN) == (p->why != NULL) && n <= WEBSOCKET_CONTROL - 2);
    if (p->kind == WEBSOCKET_PING || p->kind == WEBSOCKET_PONG)
        MUST(p->n <= WEBSOCKET_CONTROL);
    if (p->kind == WEBSOCKET_WORDS) {
        MUST(p->n <= WEBSOCKET_TEXT);
        MUST(memchr(p->bytes, 0, p->n) || bytes_are_utf8(p->bytes, p->n));
    }
    if (p->kind != WEBSOCKET_CLOSE && p->kind != WEBSOCKET_BROKEN)
        return;
    websocket_add_close(&answer, p->code, p->why);
    MUST(buf_done(&answer) == 0 && answer.n >= 2 && (unsigned char)answer.p[0] == 0x88);
    MUST((size_t)answer.p[1] == answer.n - 2 && answer.n - 2 <= WEBSOCKET_CONTROL);
}

static void read_all(const uint8_t *data, size_t size, size_t piece, struct outcome *ret)
{
    struct websocket w = {0};
    struct websocket_piece p;
    char *plain = malloc(piece);
    size_t at = 0;

    MUST(plain);
    ret->n = ret->taken = 0;
    ret->last = WEBSOCKET_NOTHING;
    while (at < size) {
        size_t n = size - at < piece ? size - at : piece;
        char *copy = malloc(n); /* to see any step over it */
        MUST(copy);
        memcpy(copy, data + at, n);
        for (size_t done = 0; done < n;) {
            size_t taken = websocket_read(&w, copy + done, n - done, plain, &p);
            MUST(taken <= n - done && (taken > 0 || w.closed));
            if (w.closed && taken == 0) {
                MUST(p.kind == WEBSOCKET_NOTHING);
                at = size;
                break;
            }
            done += taken;
            ret->taken += taken;
            must_make_sense(&p);
            if (p.kind != WEBSOCKET_NOTHING) {
                note(ret, &p);
                ret->last = p.kind;
            }
        }
        at += n;
        free(copy);
    }
    MUST((ret->last == WEBSOCKET_CLOSE || ret->last == WEBSOCKET_BROKEN) == w.closed);
    websocket_clear(&w);
    free(plain);
}

static void shake_hands(const uint8_t *data, size_t size)
{
    char key[64] = "";
    char accept[WEBSOCKET_ACCEPT];
    struct http_request request = {.header_count = 2};

    memcpy(key, data, size < sizeof(key) - 1 ? size : sizeof(key) - 1);
    request.headers[0] = (struct http_header){"sec-websocket-key", key};
    request.headers[1] = (struct http_header){"sec-websocket-version", "13"};
    if (websocket_accept(&request, accept))
        MUST(strlen(key) == 24 && strlen(accept) == WEBSOCKET_ACCEPT - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outcome whole;
    static struct outcome bytes;
    static struct outcome pieces;

    if (size > MAX)
        return 0;
    shake_hands(data, size);
    read_all(data, size, MAX, &whole);
    read_all(data, size, 1, &bytes);
    read_all(data, size, size ? 2 + data[0] % 16 : 2, &pieces);
    MUST(whole.taken == bytes.taken && whole.taken == pieces.taken);
    MUST(whole.n == bytes.n && memcmp(whole.said, bytes.said, whole.n) == 0);
    MUST(whole.n == pieces.n && memcmp(whole.said, pieces.said, whole.n) == 0);
    return 0;
}
