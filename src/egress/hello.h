/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of a TLS connection, as both sides say it in the clear: every ClientHello, however
 * it is cut into records and pieces, names the one server that is allowed, and before that has
 * answered nothing else is sent that could be another. Pure.
 *
 *   HELLO --ClientHello--> ANSWER --ServerHello--> DONE
 *     ^--HelloRetryRequest---/                          */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    HELLO_MOST = 32 << 10, /* of one hello */
    HELLO_RAW = 48 << 10,  /* ... with the heads of its records */
    HELLO_RECORD = 5,      /* head of a record */
    HELLO_SERVER = 38,     /* of a ServerHello: up to its random number */
};

enum hello_state {
    HELLO_HELLO,  /* the client's comes */
    HELLO_ANSWER, /* the server's is waited for */
    HELLO_DONE,
};

struct hello {
    enum hello_state state;
    const char *name;
    bool refuse_ech;
    bool early;    /* it said that data follow at once */
    bool retried;  /* the server has asked for another hello */
    bool is_other; /* the server speaks something else */
    uint64_t seen; /* bytes from inside */
    uint64_t cleared;
    unsigned char head[HELLO_RECORD];
    unsigned head_n;
    size_t left; /* of the record */
    size_t raw;  /* of the hello that comes, with the heads */
    struct buf message;
    unsigned char down_head[HELLO_RECORD];
    unsigned down_head_n;
    size_t down_left;
    unsigned char answer[HELLO_SERVER];
    unsigned answer_n;
    size_t answer_left; /* of a message that has been read */
    const char *why;
    const char *fix;
};

void hello_begin(struct hello *hello, const char *name, bool refuse_ech);
/* 0, or -1: refused, with why. hello->cleared bytes of all may leave, when it is DONE all. */
int hello_up(struct hello *hello, const unsigned char *bytes, size_t n);
void hello_down(struct hello *hello, const unsigned char *bytes, size_t n);
void hello_clear(struct hello *hello);
