/* SPDX-License-Identifier: Apache-2.0 */
/* WebSocket frames: what is taken, what is refused and with which code, and what is sent. The
 * codes are those of RFC 6455, 7.4.1. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "http/websocket.h"

static struct websocket w;
static char plain[1 << 18];
static char data[1 << 18]; /* binary so far */
static size_t data_n;
static struct websocket_piece last; /* the last one that is no data */

static void begin(void)
{
    websocket_clear(&w);
    memset(&w, 0, sizeof(w));
    data_n = 0;
    last = (struct websocket_piece){.kind = WEBSOCKET_NOTHING};
}

/* Reads so many bytes at a time; how many were taken. */
static size_t hear(const char *bytes, size_t n, size_t step)
{
    struct websocket_piece piece;
    size_t at = 0;

    while (at < n) {
        size_t some = n - at < step ? n - at : step;
        size_t taken = websocket_read(&w, bytes + at, some, plain, &piece);
        at += taken;
        if (piece.kind == WEBSOCKET_BYTES) {
            memcpy(data + data_n, piece.bytes, piece.n);
            data_n += piece.n;
        } else if (piece.kind != WEBSOCKET_NOTHING) {
            last = piece;
        }
        if (taken == 0)
            break;
    }
    return at;
}

/* A masked frame; its length. */
static size_t frame(char *out, unsigned first, const void *payload, size_t n)
{
    static const unsigned char mask[4] = {1, 2, 3, 4};
    size_t at = websocket_head((enum websocket_opcode)(first & 15U), n, out);

    out[0] = (char)first;
    out[1] = (char)(out[1] | 0x80);
    memcpy(out + at, mask, 4);
    at += 4;
    for (size_t i = 0; i < n; i++)
        out[at + i] = (char)(((const unsigned char *)payload)[i] ^ mask[i % 4]);
    return at + n;
}

static const struct http_request *asking(const char *key, const char *version)
{
    static struct http_request request;

    request.header_count = 0;
    if (key)
        request.headers[request.header_count++] = (struct http_header){"sec-websocket-key", key};
    if (version)
        request.headers[request.header_count++] =
            (struct http_header){"sec-websocket-version", version};
    return &request;
}

TEST(the_handshake_is_that_of_the_rfc)
{
    char accept[WEBSOCKET_ACCEPT];

    CHECK(websocket_accept(asking("dGhlIHNhbXBsZSBub25jZQ==", "13"), accept));
    CHECK(strcmp(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") == 0);
    CHECK(!websocket_accept(asking("dGhlIHNhbXBsZSBub25jZQ==", "8"), accept));
    CHECK(!websocket_accept(asking("dGhlIHNhbXBsZSBub25jZQ==", NULL), accept));
    CHECK(!websocket_accept(asking(NULL, "13"), accept));
    CHECK(!websocket_accept(asking("dGhlIHNhbXBsZSBub25jZSE=", "13"), accept)); /* 17 bytes */
    CHECK(!websocket_accept(asking("dGhlIHNhbXBsZSBub25jZQ=", "13"), accept));
    CHECK(!websocket_accept(asking("dGhlIHNhbXBsZSBub25j!!==", "13"), accept));
    return 0;
}

TEST(frames_of_every_length_come_as_they_were_sent)
{
    static const size_t sizes[] = {0, 1, 125, 126, 127, 65535, 65536, 100000};
    static char sent[100000];
    static char bytes[100016];

    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (char)(i * 31);
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        for (size_t step = 1; step <= sizeof(bytes); step = step * 300 + 1) {
            begin();
            size_t n = frame(bytes, 0x82, sent, sizes[i]);
            CHECK(hear(bytes, n, step) == n && last.kind == WEBSOCKET_NOTHING);
            CHECK(data_n == sizes[i] && memcmp(data, sent, data_n) == 0);
        }
    }
    return 0;
}

TEST(a_message_in_fragments_lets_control_frames_between)
{
    char bytes[256];
    size_t n;

    begin();
    n = frame(bytes, 0x01, "{\"a\":", 5);
    n += frame(bytes + n, 0x89, "ping", 4);
    CHECK(hear(bytes, n, 3) == n && last.kind == WEBSOCKET_PING);
    CHECK(last.n == 4 && memcmp(last.bytes, "ping", 4) == 0);
    n = frame(bytes, 0x00, "\xc3", 1); /* half a character */
    n += frame(bytes + n, 0x80, "\xa4}", 2);
    CHECK(hear(bytes, n, 1) == n && last.kind == WEBSOCKET_WORDS);
    CHECK(last.n == 8 && memcmp(last.bytes, "{\"a\":\xc3\xa4}", 8) == 0);
    n = frame(bytes, 0x81, "", 0);
    CHECK(hear(bytes, n, 9) == n && last.kind == WEBSOCKET_WORDS && last.n == 0);
    n = frame(bytes, 0x81, "a\0b", 3); /* NUL is a character */
    CHECK(hear(bytes, n, 9) == n && last.kind == WEBSOCKET_WORDS && last.n == 3);
    n = frame(bytes, 0x8a, "", 0);
    CHECK(hear(bytes, n, 9) == n && last.kind == WEBSOCKET_PONG);
    begin();
    return 0;
}

static int is_refused(const char *bytes, size_t n, enum websocket_code code)
{
    for (size_t step = 1; step < 20; step += 9) {
        begin();
        size_t taken = hear(bytes, n, step);
        CHECK(last.kind == WEBSOCKET_BROKEN && last.code == code && taken <= n);
        CHECK(strlen(last.why) <= WEBSOCKET_CONTROL - 2);
        CHECK(hear("\x82\x80\1\2\3\4", 6, 6) == 0); /* nothing more is read */
    }
    return 0;
}

TEST(what_breaks_the_rules_is_refused_with_its_code)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t n;
        enum websocket_code code;
    } table[] = {

#define ROW(name, bytes, code) {name, bytes, sizeof(bytes) - 1, code}
        ROW("not masked", "\x82\x01x", WEBSOCKET_PROTOCOL_ERROR),
        ROW("compressed", "\xc2\x81\0\0\0\0x", WEBSOCKET_PROTOCOL_ERROR),
        ROW("reserved bit", "\x92\x81\0\0\0\0x", WEBSOCKET_PROTOCOL_ERROR),
        ROW("reserved opcode", "\x83\x81\0\0\0\0x", WEBSOCKET_PROTOCOL_ERROR),
        ROW("reserved control", "\x8b\x80\0\0\0\0", WEBSOCKET_PROTOCOL_ERROR),
        ROW("nothing to continue", "\x80\x81\0\0\0\0x", WEBSOCKET_PROTOCOL_ERROR),
        ROW("begun twice", "\x02\x81\0\0\0\0x\x81\x81\0\0\0\0x", WEBSOCKET_PROTOCOL_ERROR),
        ROW("cut ping", "\x09\x80\0\0\0\0", WEBSOCKET_PROTOCOL_ERROR),
        ROW("long ping", "\x89\xfe\0\x7e", WEBSOCKET_PROTOCOL_ERROR),
        ROW("16 bits for 125", "\x82\xfe\0\x7d\0\0\0\0", WEBSOCKET_PROTOCOL_ERROR),
        ROW("64 bits for 65535", "\x82\xff\0\0\0\0\0\0\xff\xff\0\0\0\0", WEBSOCKET_PROTOCOL_ERROR),
        ROW("64 bits with a sign", "\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close of one byte", "\x88\x81\0\0\0\0\3", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close with 999", "\x88\x82\0\0\0\0\x03\xe7", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close with 1004", "\x88\x82\0\0\0\0\x03\xec", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close with 1006", "\x88\x82\0\0\0\0\x03\xee", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close with 1015", "\x88\x82\0\0\0\0\x03\xf7", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close with 2999", "\x88\x82\0\0\0\0\x0b\xb7", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close with 5000", "\x88\x82\0\0\0\0\x13\x88", WEBSOCKET_PROTOCOL_ERROR),
        ROW("close without UTF-8", "\x88\x83\0\0\0\0\x03\xe8\xff", WEBSOCKET_NOT_UTF8),
        ROW("no UTF-8", "\x81\x82\0\0\0\0\xc3\x28", WEBSOCKET_NOT_UTF8),
        ROW("half a character", "\x81\x81\0\0\0\0\xc3", WEBSOCKET_NOT_UTF8),
        ROW("a surrogate", "\x81\x83\0\0\0\0\xed\xa0\x80", WEBSOCKET_NOT_UTF8),
        ROW("an overlong one", "\x81\x82\0\0\0\0\xc0\xaf", WEBSOCKET_NOT_UTF8),
        ROW("too long", "\x81\xff\0\0\0\0\0\1\0\1\0\0\0\0", WEBSOCKET_TOO_LARGE),
    };

    for (size_t i = 0; i < LENGTH(table); i++)
        CHECK_FOR(table[i].name, is_refused(table[i].bytes, table[i].n, table[i].code) == 0);
    begin();
    return 0;
}

TEST(a_text_has_its_bound_also_in_fragments)
{
    static char bytes[WEBSOCKET_TEXT + 64];
    static char text[WEBSOCKET_TEXT];
    size_t n;

    memset(text, 'x', sizeof(text));
    begin();
    n = frame(bytes, 0x81, text, sizeof(text));
    CHECK(hear(bytes, n, n) == n && last.kind == WEBSOCKET_WORDS && last.n == WEBSOCKET_TEXT);
    begin();
    n = frame(bytes, 0x01, text, sizeof(text));
    n += frame(bytes + n, 0x80, "y", 1);
    hear(bytes, n, n);
    CHECK(last.kind == WEBSOCKET_BROKEN && last.code == WEBSOCKET_TOO_LARGE);
    begin();
    return 0;
}

TEST(a_close_is_the_end)
{
    char bytes[64];
    size_t n;

    begin();
    n = frame(bytes, 0x88, "\x0f\xa0so long", 9); /* 4000 */
    size_t all = n + frame(bytes + n, 0x82, "more", 4);
    CHECK(hear(bytes, all, all) == n && data_n == 0);
    CHECK(last.kind == WEBSOCKET_CLOSE && last.code == 4000 && last.n == 7);
    CHECK(memcmp(last.bytes, "so long", 7) == 0);
    begin();
    n = frame(bytes, 0x88, "", 0);
    CHECK(hear(bytes, n, 1) == n && last.kind == WEBSOCKET_CLOSE && last.code == WEBSOCKET_NO_CODE);
    begin();
    return 0;
}

TEST(what_is_sent_is_whole_and_not_masked)
{
    static char large[70000];
    char why[200];
    scoped_buf struct buf out;

    buf_init(&out, 1 << 20);
    websocket_add(&out, WEBSOCKET_OP_TEXT, "hi", 2);
    CHECK(out.n == 4 && memcmp(out.p, "\x81\x02hi", 4) == 0);
    buf_clear(&out);
    websocket_add(&out, WEBSOCKET_OP_BINARY, large, 126);
    CHECK(out.n == 130 && memcmp(out.p, "\x82\x7e\0\x7e", 4) == 0);
    buf_clear(&out);
    websocket_add(&out, WEBSOCKET_OP_BINARY, large, sizeof(large));
    CHECK(out.n == 70010 && memcmp(out.p, "\x82\x7f\0\0\0\0\0\1\x11\x70", 10) == 0);
    buf_clear(&out);
    websocket_add_close(&out, WEBSOCKET_NO_CODE, NULL);
    CHECK(out.n == 2 && memcmp(out.p, "\x88\0", 2) == 0);
    buf_clear(&out);
    memset(why, 'x', 122);
    /* A character that would be cut goes as a whole. */
    memcpy(why + 122, "\xc3\xa4\xc3\xa4", 5);
    websocket_add_close(&out, WEBSOCKET_NORMAL, why);
    CHECK(out.n == 2 + 2 + 122 && memcmp(out.p, "\x88\x7c\x03\xe8", 4) == 0);
    return 0;
}
