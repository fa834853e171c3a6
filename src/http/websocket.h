/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of a WebSocket (RFC 6455), pure: the handshake, frames in, frames out. No
 * extension is agreed on, so a compressed frame is refused. What a client sends in a text is
 * collected, up to WEBSOCKET_TEXT bytes; binary data is passed on as it comes.
 *
 *   open --a frame that breaks the rules, a text too long, a Close--> closed: nothing more is read
 */
#pragma once

#include "base/buf.h"
#include "http/server.h"

enum {
    WEBSOCKET_HEAD = 10,     /* longest head of a frame that a server sends */
    WEBSOCKET_CONTROL = 125, /* most bytes in a control frame */
    WEBSOCKET_TEXT = 65536,  /* longest text that is taken */
    WEBSOCKET_ACCEPT = 29,
};

enum websocket_opcode {
    WEBSOCKET_OP_CONTINUATION = 0,
    WEBSOCKET_OP_TEXT = 1,
    WEBSOCKET_OP_BINARY = 2,
    WEBSOCKET_OP_CLOSE = 8,
    WEBSOCKET_OP_PING = 9,
    WEBSOCKET_OP_PONG = 10,
};

enum websocket_code {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_GOING_AWAY = 1001,
    WEBSOCKET_PROTOCOL_ERROR = 1002,
    WEBSOCKET_NO_CODE = 1005, /* a Close without one; never sent */
    WEBSOCKET_NOT_UTF8 = 1007,
    WEBSOCKET_NOT_ALLOWED = 1008,
    WEBSOCKET_TOO_LARGE = 1009,
    WEBSOCKET_OUR_FAULT = 1011,
};

enum websocket_kind {
    WEBSOCKET_NOTHING, /* more has to come */
    WEBSOCKET_BYTES,   /* of a binary message: a part of it */
    WEBSOCKET_WORDS,   /* a whole text, in UTF-8 */
    WEBSOCKET_PING,    /* to be answered with a Pong of the same bytes */
    WEBSOCKET_PONG,
    WEBSOCKET_CLOSE,  /* the client's, with `code`: to be answered with one */
    WEBSOCKET_BROKEN, /* close with `code`, and with `why` as the reason */
};

struct websocket_piece {
    enum websocket_kind kind;
    const char *bytes; /* until the next read */
    size_t n;
    bool last; /* of BYTES: the message ends here */
    enum websocket_code code;
    const char *why; /* of BROKEN: short enough for a Close */
};

/* All zero: open, nothing read. */
struct websocket {
    unsigned char head[14];
    size_t head_n;
    uint64_t left; /* of the frame's payload */
    uint64_t at;   /* in it, for the mask */
    bool in_frame;
    bool closed;
    enum websocket_opcode message; /* the one that goes on; CONTINUATION: none */
    struct buf text;
    char control[WEBSOCKET_CONTROL];
    size_t control_n;
};

/* What Sec-WebSocket-Accept says to a request; false: its key or version is none of RFC 6455. */
bool websocket_accept(const struct http_request *request, char ret[WEBSOCKET_ACCEPT]);
/* Takes bytes up to the end of the next piece; how many. `plain` has room for n bytes, in which
 * BYTES are unmasked. Nothing is taken once it is closed. */
size_t websocket_read(struct websocket *w, const char *bytes, size_t n, char *plain,
                      struct websocket_piece *ret);
void websocket_clear(struct websocket *w);
/* The head of a whole, unmasked frame of n bytes; its length. */
size_t websocket_head(enum websocket_opcode opcode, size_t n, char ret[WEBSOCKET_HEAD]);
/* A whole frame, added. A control frame keeps to WEBSOCKET_CONTROL. */
void websocket_add(struct buf *out, enum websocket_opcode opcode, const void *bytes, size_t n);
/* A Close; WEBSOCKET_NO_CODE is sent without code and reason. A reason too long is cut. */
void websocket_add_close(struct buf *out, enum websocket_code code, const char *why);
