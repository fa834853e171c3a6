/* SPDX-License-Identifier: Apache-2.0 */
/* Between a client and a server behind us, pure: the answer of that server is read as strictly as
 * requests are (head.c), and what goes on to either side is written anew from what was understood;
 * no byte of a head is passed on as it came. What concerns one connection only stays behind, as
 * does what would speak for more than the one server: who forwarded (which we say ourselves),
 * cookies for other names or paths, rules for the whole address. */
#pragma once

#include "base/buf.h"
#include "http/server.h"

struct http_response {
    int status; /* 100 to 599 */
    struct http_header headers[HTTP_MAX_HEADERS];
    size_t header_count;
    bool is_1_0;
    bool chunked;
    bool has_length;
    uint64_t length;
    bool websocket; /* 101, and to that */
};

/* response.c: as http_parse_head; <0: it is refused, whatever the number. */
ssize_t http_parse_response(char *bytes, size_t n, struct http_response *ret, const char **ret_why);

struct http_forward {
    const char *host;   /* as the server behind us knows itself: "localhost:8000" */
    const char *prefix; /* of the path, which it does not see: "/p/…"; "": none */
    const char *path;   /* without that, as it came; begins with / */
    bool keeps_authorization;
};

/* Whether a request asks to become a WebSocket, in a way that can be. */
bool http_wants_websocket(const struct http_request *request);
/* The whole head of the request. */
void http_forward_request(struct buf *out, const struct http_request *request,
                          const struct http_forward *f);
/* Headers of the answer, as whole lines, without those that tell its length. */
void http_forward_response(struct buf *out, const struct http_response *response,
                           const struct http_forward *f);
