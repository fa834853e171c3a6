/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 over any listening stream socket, in one thread, on base/events.h. Strict: what two
 * parsers could read in two ways is refused and the connection closed (bare LF, NUL and other
 * control characters, obs-fold, space before a colon, Transfer-Encoding with Content-Length, either
 * of them twice, Host missing or twice, chunk extensions with anything odd, encodings other than
 * chunked). Bounded: head 16 KiB and 64 headers, 30 s for a head, 60 s between pieces of a body,
 * 120 s for an idle connection, a limit on connections, and one on all collected bodies together.
 * When places run out, who keeps one waiting makes room (server.c). Pipelined requests are served
 * one after the other. Every refusal is a JSON error where the head was readable enough to answer.
 *
 *   accepted --head--> on_head --body--> on_request --http_reply | http_stream--> on_done
 *   The client hangs up at any point: on_done(…, false), once, and the exchange is gone. (One that
 *   only ended its sending side, as TCP allows, is still answered.)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/events.h"

struct http_server;
struct exchange;

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_METHOD_COUNT_,
};

enum {
    HTTP_MAX_HEADERS = 64,
    HTTP_MAX_HEAD = 16384,
    HTTP_MAX_TARGET = 13312, /* the longest path a file can have, each byte of it encoded */
};

struct http_header {
    const char *name; /* lower case */
    const char *value;
};

struct http_request {
    enum http_method method;
    const char *path;  /* as it came, still encoded, without the query; begins with / */
    const char *query; /* after the ?, as it came; "" */
    struct http_header headers[HTTP_MAX_HEADERS];
    size_t header_count;
    bool is_1_0; /* of HTTP/1.0: knows no chunks */
    bool has_body;
    bool chunked;
    uint64_t length; /* of the body, unless chunked */
    bool keep_alive;
    bool expects_continue;
};

/* head.c, pure: reads one whole head, up to and with its empty line. `bytes` is changed and then
 * pointed into. >0: its length; 0: not whole yet; <0: -(HTTP status) to refuse it with, and
 * *ret_why a short sentence. */
ssize_t http_parse_head(char *bytes, size_t n, struct http_request *ret, const char **ret_why);
/* The first header of that name (lower case), or NULL. */
const char *http_header(const struct http_request *request, const char *name);
/* Decodes %XX in place of one path segment or query value; false for bad digits or a NUL. */
bool http_decode(char *text);
/* A path, each part of it decoded by itself, once: a slash or a NUL in a name cannot be. `path` has
 * room for a byte more than the encoded one. False: it is malformed. */
bool http_decode_path(const char *encoded, char *path);
/* The value of a query parameter, decoded, in `text`; 1 found, 0 not, -1 malformed, too long for
 * `size`, or there more than once. */
int http_query(const char *query, const char *name, char *text, size_t size);
/* The first parameter whose name is none of those in `known`, a space between two; NULL: there is
 * none. */
const char *http_query_other(const char *query, const char *known, size_t *ret_n);

#define HTTP_RANGE_MOST ((uint64_t)INT64_MAX)

struct http_range {
    uint64_t from; /* HTTP_RANGE_MOST: so many from the end as `to` says */
    uint64_t to;   /* before this one; HTTP_RANGE_MOST: to the end */
};

/* range.c, pure: "bytes=A-B", "bytes=A-", "bytes=-N", one of them. False: something else, which is
 * ignored, as HTTP allows. */
bool http_read_range(const char *text, struct http_range *ret);

/* chunked.c, pure: decodes a chunked body piece by piece, in place. */
struct http_chunks {
    uint64_t left;
    unsigned state;
    unsigned digits;
    unsigned line;
};

/* Takes up to n bytes, leaves the decoded ones at the front (*ret_data of them) and returns how
 * many were taken; *ret_done at the end of the body (bytes after it are not taken). <0: malformed.
 */
ssize_t http_chunks_decode(struct http_chunks *c, char *bytes, size_t n, size_t *ret_data,
                           bool *ret_done);

#define HTTP_BODY_STREAM INT64_MAX

struct http_calls {
    /* The head is there. Returns how many bytes of body to collect at most (more is refused with
     * 413), or HTTP_BODY_STREAM: pieces go to on_body. It may also answer at once. */
    int64_t (*on_head)(void *owner, struct exchange *x);
    /* Only with HTTP_BODY_STREAM. Returns how many bytes it took; fewer pauses the body until
     * http_continue_body. */
    size_t (*on_body)(void *owner, struct exchange *x, const char *bytes, size_t n);
    /* The whole request is there. Answer now or later. */
    void (*on_request)(void *owner, struct exchange *x);
    /* The exchange is over and about to be freed: answered in full by its owner, or not. Also for
     * requests that never reached on_request. Never called from within another of these calls or
     * one of the functions below, http_close apart. */
    void (*on_done)(void *owner, struct exchange *x, bool complete);
    /* May be NULL. Headers, as whole lines, for an answer that the server gives by itself; `x` is
     * NULL where no head could be read. */
    void (*on_refusal)(void *owner, struct exchange *x, char *headers, size_t size);
};

struct http_options {
    unsigned max_connections;
    uint64_t head_ms; /* 0: the default, for each of these */
    uint64_t body_ms;
    uint64_t idle_ms;
    uint64_t body_bytes; /* of all bodies that are being collected, or were and are still kept */
};

/* 0 or -errno. */
int http_open(struct http_server **ret, struct events *events, const struct http_calls *calls,
              void *owner, const struct http_options *options);
/* Takes connections of a listening socket, which is borrowed. */
int http_listen(struct http_server *server, int fd);
/* Accepts no more; live exchanges go on. True when none is left. */
bool http_drain(struct http_server *server);
/* Not from within one of the calls. */
void http_close(struct http_server *server);

const struct http_request *http_request_of(const struct exchange *x);
/* The collected body; NUL-terminated besides. */
const char *http_body(const struct exchange *x, size_t *ret_n);
/* Where its bytes are counted, too, which must be there until on_done, and until http_free_taken.
 * Several bodies of one account have a part of what all may have together; one alone has all it
 * needs. */
void http_set_account(struct exchange *x, uint64_t *account);
/* It is not needed any more: gives its memory back before the exchange ends. */
void http_drop_body(struct exchange *x);

/* Takes it out of the exchange, which may end before it. It goes on to count for what all of them
 * may have together: its bytes until http_free_taken, and then what was made of them, as if they
 * were still there, until the exchange ends or http_drop_body (x NULL: it has ended). */
struct http_taken {
    struct buf bytes;
    size_t counted;
    uint64_t *account;
};

void http_take_body(struct exchange *x, struct http_taken *ret);
void http_free_taken(struct http_server *server, struct exchange *x, struct http_taken *taken);
/* Of the peer of a Unix socket; -1 over TCP. */
int64_t http_peer_uid(const struct exchange *x);
/* What the owner keeps with it. */
void http_set_data(struct exchange *x, void *data);
void *http_data(const struct exchange *x);
/* More body may come (after on_body took less than it was given). */
void http_continue_body(struct exchange *x);

/* Answers. `headers` are whole lines "Name: value\r\n", or NULL. Both may be called once, from any
 * of the calls or later. The bytes of http_reply are copied. */
void http_reply(struct exchange *x, int status, const char *type, const char *headers,
                const char *body, size_t n);

/* Pulled whenever the client can take more (size is at least 16 KiB): >0 bytes written to `bytes`;
 * 0: the end; -EAGAIN: nothing now, http_wake when there is; other negative: the connection is cut,
 * so that the client sees that this was not all. */
typedef ssize_t http_pull(void *context, char *bytes, size_t size);
void http_stream(struct exchange *x, int status, const char *type, const char *headers,
                 http_pull *pull, void *context);
/* The same with a Content-Length: exactly `size` bytes are pulled before its end. */
#define HTTP_SIZE_UNKNOWN UINT64_MAX

struct http_streamed {
    int status;
    const char *type;    /* or NULL */
    const char *headers; /* likewise */
    uint64_t size;
    http_pull *pull;
    void *context;
};

void http_stream_sized(struct exchange *x, const struct http_streamed *s);
/* As http_stream_sized, without a type; the body of the request goes on to be read while the answer
 * goes out: on_body and on_request are still called. (Otherwise what has not come by then is
 * dropped.) */
void http_stream_duplex(struct exchange *x, int status, const char *headers, uint64_t size,
                        http_pull *pull, void *context);
/* 101: from here on the connection is not HTTP. What the client sends goes to on_body, its end to
 * on_request; what is pulled goes to the client, and the end of that ends our sending side. It is
 * over when both have ended. Only for a request of HTTP/1.1 without a body. */
void http_upgrade(struct exchange *x, const char *headers, http_pull *pull, void *context);
/* Ends the connection, so that the client sees that this was not all. */
void http_cut(struct exchange *x);
void http_wake(struct exchange *x);
/* The words of a status. */
const char *http_status_text(int status);

struct http_stats {
    uint64_t connections; /* now */
    uint64_t accepted;
    uint64_t refused;    /* heads that were malformed, too large or too slow */
    uint64_t evicted;    /* connections that were closed to make room for others */
    uint64_t body_bytes; /* collected and kept, now */
};

void http_stats(const struct http_server *server, struct http_stats *ret);
