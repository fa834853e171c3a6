/* SPDX-License-Identifier: Apache-2.0 */
#include "http/websocket.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/bytes.h"

enum {
    FIN = 0x80,
    RESERVED = 0x70,
    OPCODE = 0x0f,
    MASKED = 0x80,
    LENGTH = 0x7f,
    LENGTH_16 = 126, /* two bytes follow with the length */
    LENGTH_64 = 127, /* ... eight */
    MASK = 4,
    SHA1 = 20,
};

/* --- the handshake --- */

bool websocket_accept(const struct http_request *request, char ret[WEBSOCKET_ACCEPT])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* of the RFC, 1.3 */
    const char *key = http_header(request, "sec-websocket-key");
    const char *version = http_header(request, "sec-websocket-version");
    unsigned char digest[SHA1];
    char nonce[18];
    char both[24 + sizeof(guid)];
    scoped_buf struct buf text;

    buf_init(&text, WEBSOCKET_ACCEPT);
    if (!key || !version || strcmp(version, "13") != 0 || strlen(key) != 24 ||
        bytes_from_base64(key, 24, nonce) != 16)
        return false;
    memcpy(both, key, 24);
    memcpy(both + 24, guid, sizeof(guid));
    if (EVP_Digest(both, 24 + sizeof(guid) - 1, digest, NULL, EVP_sha1(), NULL) != 1)
        return false;
    bytes_add_base64(&text, digest, sizeof(digest));
    if (buf_done(&text) < 0 || text.n != WEBSOCKET_ACCEPT - 1)
        return false;
    memcpy(ret, text.p, WEBSOCKET_ACCEPT);
    return true;
}

/* --- frames in --- */

static void broken(struct websocket *w, struct websocket_piece *ret, enum websocket_code code,
                   const char *why)
{
    w->closed = true;
    *ret = (struct websocket_piece){.kind = WEBSOCKET_BROKEN, .code = code, .why = why};
}

static enum websocket_opcode opcode_of(const struct websocket *w)
{
    return (enum websocket_opcode)(w->head[0] & OPCODE);
}

static bool is_control(const struct websocket *w)
{
    return opcode_of(w) >= WEBSOCKET_OP_CLOSE;
}

static bool ends_message(const struct websocket *w)
{
    return w->head[0] & FIN;
}

static size_t length_bytes(const struct websocket *w)
{
    unsigned length = w->head[1] & LENGTH;

    return length == LENGTH_64 ? 8 : length == LENGTH_16 ? 2 : 0;
}

/* How long the head is, as far as that is known. */
static size_t head_size(const struct websocket *w)
{
    return w->head_n < 2 ? 2 : 2 + length_bytes(w) + MASK;
}

/* The length in its shortest form; false: it is written in another, or too large for any frame. */
static bool read_length(struct websocket *w)
{
    size_t n = length_bytes(w);
    uint64_t length = 0;

    for (size_t i = 0; i < n; i++)
        length = length << 8 | w->head[2 + i];
    w->left = n ? length : w->head[1] & LENGTH;
    return n == 0 || (n == 2 ? length >= LENGTH_16 : length > 0xffff && length <= INT64_MAX);
}

/* What is wrong with the first two bytes of a head; NULL: nothing. */
static const char *judge_start(const struct websocket *w)
{
    enum websocket_opcode opcode = opcode_of(w);
    bool goes_on = w->message != WEBSOCKET_OP_CONTINUATION;

    if (w->head[0] & RESERVED)
        return "a reserved bit is set, and no extension was agreed on";
    if (!(w->head[1] & MASKED))
        return "a frame of a client has to be masked";
    if ((opcode > WEBSOCKET_OP_BINARY && opcode < WEBSOCKET_OP_CLOSE) || opcode > WEBSOCKET_OP_PONG)
        return "the opcode is a reserved one";
    if (is_control(w))
        return !ends_message(w)                            ? "a control frame has to be whole"
               : (w->head[1] & LENGTH) > WEBSOCKET_CONTROL ? "a control frame has 125 bytes at most"
                                                           : NULL;
    if (opcode == WEBSOCKET_OP_CONTINUATION && !goes_on)
        return "there is no message that this frame continues";
    if (opcode != WEBSOCKET_OP_CONTINUATION && goes_on)
        return "the message before this frame has not ended";
    return NULL;
}

static void begin_frame(struct websocket *w, struct websocket_piece *ret)
{
    enum websocket_opcode opcode = opcode_of(w);

    if (!read_length(w)) {
        broken(w, ret, WEBSOCKET_PROTOCOL_ERROR, "the length is not in its shortest form");
        return;
    }
    w->in_frame = true;
    w->at = 0;
    w->control_n = 0;
    if (opcode == WEBSOCKET_OP_TEXT || opcode == WEBSOCKET_OP_BINARY)
        w->message = opcode;
    if (opcode == WEBSOCKET_OP_TEXT) {
        buf_clear(&w->text);
        buf_init(&w->text, WEBSOCKET_TEXT);
    }
    if (!is_control(w) && w->message == WEBSOCKET_OP_TEXT && w->left > WEBSOCKET_TEXT - w->text.n)
        broken(w, ret, WEBSOCKET_TOO_LARGE, "a text may have 65536 bytes");
}

static size_t read_head(struct websocket *w, const char *bytes, size_t n,
                        struct websocket_piece *ret)
{
    size_t taken = 0;

    while (taken < n && w->head_n < head_size(w)) {
        w->head[w->head_n++] = (unsigned char)bytes[taken++];
        const char *why = w->head_n == 2 ? judge_start(w) : NULL;
        if (why) {
            broken(w, ret, WEBSOCKET_PROTOCOL_ERROR, why);
            return taken;
        }
    }
    if (w->head_n == head_size(w))
        begin_frame(w, ret);
    return taken;
}

/* NUL is a character like any other here. */
static bool is_utf8(const char *bytes, size_t n)
{
    while (n > 0) {
        size_t part = strnlen(bytes, n);
        if (!bytes_are_utf8(bytes, part))
            return false;
        part += part < n;
        bytes += part;
        n -= part;
    }
    return true;
}

/* Those of the RFC and of its registry, and those that are for applications. */
static bool may_be_sent(unsigned code)
{
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

static void take_close(struct websocket *w, struct websocket_piece *ret)
{
    unsigned code = WEBSOCKET_NO_CODE;

    if (w->control_n >= 2)
        code = (unsigned)(unsigned char)w->control[0] << 8 | (unsigned char)w->control[1];
    if (w->control_n == 1 || (w->control_n >= 2 && !may_be_sent(code))) {
        broken(w, ret, WEBSOCKET_PROTOCOL_ERROR, "a Close with no code that may be sent");
        return;
    }
    size_t n = w->control_n < 2 ? 0 : w->control_n - 2;
    if (!is_utf8(w->control + 2, n)) {
        broken(w, ret, WEBSOCKET_NOT_UTF8, "the reason of a Close is not UTF-8");
        return;
    }
    w->closed = true;
    *ret = (struct websocket_piece){.kind = WEBSOCKET_CLOSE,
                                    .bytes = w->control + 2,
                                    .n = n,
                                    .code = (enum websocket_code)code};
}

static void take_text(struct websocket *w, struct websocket_piece *ret)
{
    if (buf_done(&w->text) < 0)
        broken(w, ret, WEBSOCKET_OUR_FAULT, "out of memory");
    else if (!is_utf8(w->text.p, w->text.n))
        broken(w, ret, WEBSOCKET_NOT_UTF8, "a text is not UTF-8");
    else
        *ret = (struct websocket_piece){
            .kind = WEBSOCKET_WORDS, .bytes = w->text.p, .n = w->text.n, .last = true};
}

/* The payload is there. `part`: bytes of it that were just unmasked. */
static void end_frame(struct websocket *w, const char *part, size_t n, struct websocket_piece *ret)
{
    enum websocket_opcode opcode = opcode_of(w);
    bool is_text = w->message == WEBSOCKET_OP_TEXT;

    w->in_frame = false;
    w->head_n = 0;
    if (opcode == WEBSOCKET_OP_CLOSE) {
        take_close(w, ret);
    } else if (is_control(w)) {
        *ret = (struct websocket_piece){.kind = opcode == WEBSOCKET_OP_PING ? WEBSOCKET_PING
                                                                            : WEBSOCKET_PONG,
                                        .bytes = w->control,
                                        .n = w->control_n};
    } else {
        if (ends_message(w))
            w->message = WEBSOCKET_OP_CONTINUATION;
        if (!is_text)
            *ret = (struct websocket_piece){
                .kind = WEBSOCKET_BYTES, .bytes = part, .n = n, .last = ends_message(w)};
        else if (ends_message(w))
            take_text(w, ret);
    }
}

static size_t read_payload(struct websocket *w, const char *bytes, size_t n, char *plain,
                           struct websocket_piece *ret)
{
    const unsigned char *mask = w->head + 2 + length_bytes(w);
    size_t taken = w->left < n ? (size_t)w->left : n;

    for (size_t i = 0; i < taken; i++)
        plain[i] = (char)((unsigned char)bytes[i] ^ mask[(w->at + i) % MASK]);
    w->at += taken;
    w->left -= taken;
    if (is_control(w)) {
        memcpy(w->control + w->control_n, plain, taken);
        w->control_n += taken;
    } else if (w->message == WEBSOCKET_OP_TEXT) {
        buf_add(&w->text, plain, taken);
    } else if (w->left > 0 && taken > 0) {
        *ret = (struct websocket_piece){.kind = WEBSOCKET_BYTES, .bytes = plain, .n = taken};
    }
    if (w->left == 0)
        end_frame(w, plain, taken, ret);
    return taken;
}

size_t websocket_read(struct websocket *w, const char *bytes, size_t n, char *plain,
                      struct websocket_piece *ret)
{
    size_t taken = 0;

    *ret = (struct websocket_piece){.kind = WEBSOCKET_NOTHING};
    while (!w->closed && ret->kind == WEBSOCKET_NOTHING && (taken < n || w->in_frame)) {
        if (!w->in_frame)
            taken += read_head(w, bytes + taken, n - taken, ret);
        if (!w->in_frame || w->closed)
            continue;
        if (w->left > 0 && taken == n)
            break;
        taken += read_payload(w, bytes + taken, n - taken, plain, ret);
    }
    return taken;
}

void websocket_clear(struct websocket *w)
{
    buf_clear(&w->text);
    w->closed = true;
}

/* --- frames out --- */

size_t websocket_head(enum websocket_opcode opcode, size_t n, char ret[WEBSOCKET_HEAD])
{
    size_t length = n < LENGTH_16 ? 0 : n <= 0xffff ? 2 : 8;

    ret[0] = (char)(FIN | opcode);
    ret[1] = (char)(length == 0 ? n : length == 2 ? LENGTH_16 : LENGTH_64);
    for (size_t i = 0; i < length; i++)
        ret[2 + i] = (char)(n >> 8 * (length - 1 - i));
    return 2 + length;
}

void websocket_add(struct buf *out, enum websocket_opcode opcode, const void *bytes, size_t n)
{
    char head[WEBSOCKET_HEAD];

    buf_add(out, head, websocket_head(opcode, n, head));
    if (n)
        buf_add(out, bytes, n);
}

void websocket_add_close(struct buf *out, enum websocket_code code, const char *why)
{
    char payload[WEBSOCKET_CONTROL] = {(char)(code >> 8), (char)code};
    size_t n = why ? strnlen(why, sizeof(payload) - 2) : 0;

    if (code == WEBSOCKET_NO_CODE) {
        websocket_add(out, WEBSOCKET_OP_CLOSE, NULL, 0);
        return;
    }
    while (n > 0 && ((unsigned char)why[n] & 0xc0) == 0x80)
        n--; /* no character is cut in two */
    if (n)
        memcpy(payload + 2, why, n);
    websocket_add(out, WEBSOCKET_OP_CLOSE, payload, 2 + n);
}
