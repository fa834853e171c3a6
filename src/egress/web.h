/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of HTTP/1 from inside, one after the other on a connection, each for the host that the
 * connection was made for. The bytes leave as they came. Pure.
 *
 *   HEAD --> BODY --> HEAD …
 *     \--Upgrade: websocket--> AGREEING --101--> FREE */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "http/server.h"

enum {
    WEB_STATUS = 12 /* "HTTP/1.1 101" */
};

enum web_state {
    WEB_HEAD,
    WEB_BODY,
    WEB_AGREEING, /* the answer to the first request decides */
    WEB_FREE,
};

struct web {
    enum web_state state;
    const char *name;
    uint16_t port;
    uint64_t seen;
    uint64_t cleared;
    struct buf head;
    bool had_one; /* request */
    bool chunked;
    uint64_t left; /* of a body with a length */
    struct http_chunks chunks;
    unsigned preface_n; /* bytes of HTTP/2's that the body may begin with */
    char status[WEB_STATUS];
    unsigned status_n;
    bool has_line; /* of an answer that is not the last: something is in its line */
    bool in_fields;
    const char *why;
    const char *fix;
};

/* Whether a Host field is NAME or NAME:PORT of the connection. */
bool web_is_host(const char *name, uint16_t port, const char *text);
void web_begin(struct web *web, const char *name, uint16_t port);
/* 0, or -1: refused, with why. */
int web_up(struct web *web, const unsigned char *bytes, size_t n);
void web_down(struct web *web, const unsigned char *bytes, size_t n);
void web_clear(struct web *web);
