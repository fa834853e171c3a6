/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 inside TLS that ends here: requests of a program inside, one after the other, and what
 * the server answers. Each request is decided about by the rules, and written anew from what was
 * understood of it; a secret takes its placeholder's place in the header that its rule names, there
 * alone. From answers secrets are taken out. Pure.
 *
 *   requests:  HEAD --> BODY --> WAIT (for the answer's end) --> HEAD …
 *   answers:   HEAD --1xx--> HEAD, --> a body of one of four kinds --> the next request may come
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "egress/mask.h"
#include "http/server.h"
#include "policy/network.h"

enum {
    INNER_ANSWER = 64 << 10, /* most of an answer's head */
    INNER_SHOWN = 200,       /* of a path, for the record */
    INNER_METHOD = 24,
    INNER_NAME = 256, /* longest name of a header of an answer */
};

enum inner_up_state {
    INNER_HEAD,
    INNER_BODY,
    INNER_WAIT,
    INNER_OVER, /* nothing more is let through */
};

enum inner_down_state {
    INNER_IDLE, /* nothing was asked */
    INNER_STATUS,
    INNER_LENGTH,
    INNER_CHUNKS,
    INNER_TO_END,
};

/* The value that a secret has now, or one that it had before (`before`), or NULL. */
typedef const char *inner_value(void *context, const char *secret, bool before);

struct inner {
    const char *name; /* of the host; borrowed */
    uint16_t port;
    /* As they are now; the caller's, who may change them between calls. */
    const struct network_rule *rules;
    size_t rule_count;
    inner_value *value;
    void *context;

    enum inner_up_state up;
    struct buf head;
    struct buf written; /* the same, while names in `head` are in small letters */
    bool chunked;
    uint64_t left;
    struct http_chunks chunks;
    bool is_closing; /* after this answer */
    bool has_answer; /* the answer to what is still being asked has ended */

    enum inner_down_state down;
    struct buf answer;
    uint64_t down_left;
    struct http_chunks down_chunks;
    struct mask mask;
    bool masks;

    /* The request, for the record. */
    char method[INNER_METHOD];
    char path[INNER_SHOWN];
    char rule[NETWORK_RULE];
    bool is_head;
    unsigned status; /* of its answer, 0: none yet */
    bool is_done;    /* set when it has ended; who has seen it clears it */

    const char *why; /* it was refused, or the answer was */
    const char *fix;
    bool is_servers; /* ... by what the server did */
};

void inner_begin(struct inner *inner, const char *name, uint16_t port, inner_value *value,
                 void *context);
/* Bytes from inside; what is to leave goes to `out`. How many were taken (the rest is of the next
 * request), or -1: refused, with why. */
ssize_t inner_up(struct inner *inner, const char *bytes, size_t n, struct buf *out);
/* ... from the server; what goes in is put into `out`. */
ssize_t inner_down(struct inner *inner, const char *bytes, size_t n, struct buf *out);
/* The server has ended the connection as TLS does it. 0, or -1: in the middle of something. */
int inner_down_end(struct inner *inner, struct buf *out);
/* What a program is told whose request was not let through. */
void inner_refusal(const struct inner *inner, struct buf *out);
void inner_clear(struct inner *inner);

/* inner_down.c */
void inner_expect(struct inner *inner);
/* The answer, or the request, has ended; if both have, the next request may come. */
void inner_advance(struct inner *inner);
