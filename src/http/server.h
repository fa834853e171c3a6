/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 over any listening stream socket, in one thread, on base/events.h. Strict: what two
 * parsers could read in two ways is refused and the connection closed (bare LF, NUL and other
 * control characters, obs-fold, space before a colon, Transfer-Encoding with Content-Length, either
 * of them twice, Host missing or twice, chunk extensions with anything odd, encodings other than
 * chunked). Bounded: head 16 KiB and 64 headers, 30 s for a head, 60 s between pieces of a body,
 * 120 s for an idle connection, limits on connections, of all and of each client (places.c), and
 * one on all collected bodies together. A connection over a limit is answered in words and closed.
 * Pipelined requests are served one after the other. Every refusal is a JSON error where the head
 * was readable enough to answer.
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
#include "base/network.h"

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
    HTTP_OTHER, /* one that no resource has */
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
    bool by_tls;     /* the client's side of it is encrypted */
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
/* A path, decoded once: %2F is a slash, and what is ".." or empty then, the caller has to see.
 * `path` has room for a byte more than the encoded one. False: it is malformed. */
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

/* Which limit on connections has been reached. */
enum http_limit {
    HTTP_ROOM, /* none */
    HTTP_MAX_CONNECTIONS,
    HTTP_OWNER_CONNECTIONS,
    HTTP_OWNER_STREAMS,
    HTTP_ADDRESS_CONNECTIONS,
    HTTP_LIMIT_COUNT_,
};

/* Answers that last, in the order in which they are ended where there is no room: first those of
 * which a client loses nothing that it cannot ask for again. */
enum http_stream_kind {
    HTTP_NEWS,   /* events, the record as it grows */
    HTTP_WATCH,  /* changes of files */
    HTTP_OUTPUT, /* of a command, which can be read again from any offset */
    HTTP_TUNNEL, /* not HTTP any more */
};

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
    /* The connection has to go, so that others have room: answer, or end the answer, now. What is
     * not said within a second is not said. May be NULL. */
    void (*on_evict)(void *owner, struct exchange *x, enum http_limit limit);
};

/* Connections: each of these numbers is at least 1. */
struct http_options {
    unsigned max_connections;     /* of all owners together */
    unsigned max_unknown;         /* whose owner is not known yet; 0: as many again */
    unsigned owner_connections;   /* of one owner; 0: no less than all */
    unsigned owner_streams;       /* ... that last; 0: likewise */
    unsigned address_connections; /* unknown ones of one address; 0: no less than all of these */
    struct networks trusted;      /* proxies: not counted by address */
    int64_t own_uid;              /* besides root: not counted either, with places of its own */
    uint64_t head_ms;             /* 0: the default, for each of these */
    uint64_t body_ms;
    uint64_t idle_ms;
    uint64_t
        stream_ms; /* what lasts has lasted at least so long before it makes room for another */
    uint64_t body_bytes; /* of all bodies that are being collected, or were and are still kept */
};

/* 0 or -errno. */
int http_open(struct http_server **ret, struct events *events, const struct http_calls *calls,
              void *owner, const struct http_options *options);
/* Takes connections of a listening socket, which is borrowed. */
int http_listen(struct http_server *server, int fd);
/* Takes one end of a pair that the owner itself has made, to ask its own routes what a client of it
 * asks for, with what that client's peer was (http_peer_uid). It counts among others of its kind,
 * of the same owner, by the same numbers, and never against the client's own connections. Consumed
 * on success; 0 or -errno. */
int http_join(struct http_server *server, int *fd, int64_t peer_uid);
/* Takes a connection whose other end is with a process of ours that ends TLS, and speaks for a
 * client at that address. Consumed on success; 0 or -errno. */
int http_adopt(struct http_server *server, int *fd, const struct sockaddr_storage *from);
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
/* From here on the connection counts for `who`, by `key`, the name of one of its keys, until it is
 * charged to another. `unbounded`: by no number of its own, only by what all may have together. A
 * limit: there is no room, and the connection ends with the answer that the caller gives now. */
enum http_limit http_charge(struct exchange *x, const char *who, const char *key, bool unbounded);
/* The answer will last, and count for its owner as such. A limit: it must not begin. */
enum http_limit http_hold(struct exchange *x, enum http_stream_kind kind);
/* The name of its setting, and what to say: a sentence. */
const char *http_limit_setting(enum http_limit limit);
const char *http_limit_advice(enum http_limit limit);
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
/* Whether an answer was given, or begun. */
bool http_is_answered(const struct exchange *x);
/* ... and there is nothing more to pull. */
bool http_is_finished(const struct exchange *x);
/* What is left of the answer, and to be pulled, has a second; then the connection is closed. */
void http_hurry(struct exchange *x);
/* A client that ends its sending side before it has its answer has left: as if it had closed. */
void http_end_with_client(struct exchange *x);
/* Ends the connection, so that the client sees that this was not all. */
void http_cut(struct exchange *x);
void http_wake(struct exchange *x);
/* The words of a status. */
const char *http_status_text(int status);

struct http_stats {
    uint64_t connections; /* now */
    uint64_t streams;     /* ... of these, answers that last */
    uint64_t accepted;
    uint64_t refused;     /* heads that were malformed, too large or too slow */
    uint64_t evicted;     /* connections that were closed to make room for others */
    uint64_t turned_away; /* ... that found no room */
    uint64_t body_bytes;  /* collected and kept, now */
};

void http_stats(const struct http_server *server, struct http_stats *ret);
