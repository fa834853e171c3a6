/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the server share: server.c accepts, connection.c moves a connection from state
 * to state, body.c reads bodies, answer.c writes.
 *
 *   HEAD --step_head--> BODY --body_step--> WAIT --http_reply, http_stream--> REPLY --finish-->
 * HEAD
 *     \-refuse-> REPLY <-----answered early----/            finish --> LINGER (or closed)
 *
 * INV-1  Nothing is freed but at the end of connection_go_on, with no callback of the owner on the
 *        stack: http_reply, http_stream, http_wake and http_continue_body mark the connection and
 *        the loop goes on with it later (at the end of the same turn).
 * INV-2  on_done is called exactly once for each exchange for which on_head was called.
 * INV-3  An idle connection has neither buffers nor an exchange. */
#pragma once

#include <sys/uio.h>

#include "base/buf.h"
#include "http/server.h"

enum {
    /* Pulled before they are sent; framed, they fit in one segment of the loopback: what is beyond
     * it would be sent, received and acknowledged as a segment of its own. */
    STREAM_BYTES = 65440,
    STREAM_PIECE = 16384,    /* a pull is offered at least that much room */
    DISCARD_BYTES = 1 << 20, /* read and dropped after an early answer */
    LINGER_MS = 2000,
    STALLED_MS = 600000, /* a client that reads nothing of its reply */
    HALF_MS = 300000,    /* an upgraded connection of which one side has ended, and nothing moves */
    ACCOUNT_PART = 4,    /* of all collected bodies, for several of one account */
    SMALL_BODY = 16384,  /* bodies up to this size are not counted: so many places, so much */
};

enum connection_state {
    STATE_HEAD,
    STATE_BODY,
    STATE_WAIT, /* for the owner's answer */
    STATE_REPLY,
    STATE_LINGER, /* all is said; the client may still be sending */
};

/* Which list of the server's it is in: who holds a place for nothing is found without a search. */
enum place {
    PLACE_IDLE, /* between requests */
    PLACE_HEAD, /* a part of a head has come */
    PLACE_BUSY, /* a request is being read, handled or answered */
    PLACE_COUNT_,
};

struct connection {
    struct watch watch; /* first */
    struct timer timer; /* rings early or in time; `deadline` counts */
    uint64_t deadline;  /* UINT64_MAX: none */
    uint64_t since;     /* when it came to its place */
    struct http_server *server;
    struct connection *next;
    struct connection *previous;
    struct connection *next_pending;
    struct exchange *x;
    int fd;
    uint32_t armed; /* what the watch waits for */
    int64_t peer_uid;
    char *in; /* HTTP_MAX_HEAD bytes, or NULL */
    size_t in_at;
    size_t in_n;
    size_t seen;    /* of a head: no line feed up to here */
    size_t discard; /* how much more is read and dropped */
    struct buf out; /* what the socket did not take yet */
    size_t out_at;
    enum connection_state state;
    enum place place;
    bool blocked;      /* the socket takes no more */
    bool ended;        /* the client sends no more */
    bool muted;        /* input came that nobody wants now */
    bool close_after;  /* the answer */
    bool linger_after; /* … and read what the client still sends */
    bool busy;         /* its events are being handled */
    bool pending;      /* in the list of those to go on with */
    bool dead;
};

struct exchange {
    struct connection *connection;
    void *data;
    struct http_chunks chunks;
    uint64_t left;  /* of a body with a length */
    size_t plain;   /* decoded bytes at the front of the input that nobody took yet */
    uint64_t bound; /* for collecting */
    struct buf body;
    size_t counted;    /* of it, in the sum of all */
    uint64_t *account; /* ... and in that of who pays for it, or NULL */
    bool streams_body;
    bool duplex; /* the body goes on to be read while the answer goes out */
    bool raw;    /* ... and neither is HTTP any more */
    bool half;   /* ... and our sending side has ended */
    bool paused;
    bool decoded;   /* the end of the body was seen */
    bool body_done; /* … and all of it taken */
    bool answered;
    bool refused;  /* answered by the server, not by its owner */
    bool finished; /* nothing is left to pull */
    bool woken;
    bool chunked;
    http_pull *pull;
    void *context;
    struct http_request request;
    char head[];
};

struct listener {
    struct watch watch; /* first */
    struct timer timer; /* accepting pauses */
    struct http_server *server;
    struct listener *next;
    int fd;
    bool is_unix;
    bool paused;
};

struct connections {
    struct connection *first;
    struct connection *last;
};

struct http_server {
    struct events *events;
    struct http_calls calls;
    void *owner;
    struct http_options options;
    struct http_stats stats;
    struct listener *listeners;
    struct connections places[PLACE_COUNT_]; /* the longest there first */
    struct connection *pending;
    struct timer later; /* rings when there are pending ones */
    char *spare;        /* one input buffer kept for the next */
    char *scratch;      /* what is pulled, and what is dropped */
    time_t date_second;
    char date[40];
    bool draining;
};

/* server.c */
void server_move(struct connection *c, enum place place);
/* Whether so many bytes more may be collected; counted if so. One that has stopped half way makes
 * room: it is closed, `asking` never. */
bool server_take_body(struct http_server *server, const struct connection *asking, size_t n);
/* Takes it out of the lists; room for another. */
void server_left(struct connection *c);

/* connection.c */
int connection_start(struct http_server *server, int *fd, int64_t peer_uid);
/* Ends an exchange as not complete, closes and frees. */
void connection_close(struct connection *c);
/* Does what can be done now; c may be gone afterwards. */
void connection_go_on(struct connection *c);
/* The same, but not now. */
void connection_later(struct connection *c);
void connection_deadline(struct connection *c, uint64_t ms); /* 0: none */
void connection_drop_input(struct connection *c, size_t n);

/* body.c: decodes and delivers what is there; whether that was anything. */
bool body_step(struct connection *c);
/* Whether the body is still wanted, answered or not. */
bool body_goes_on(const struct connection *c);
/* Begins once on_head has said what it takes. */
void body_begin(struct exchange *x, int64_t bound);

/* answer.c */
void answer_refuse(struct connection *c, int status, const char *code, const char *why);
/* Sends what is queued and the parts; queues the rest. */
void answer_send(struct connection *c, struct iovec *parts, size_t n);
/* Pulls and sends; whether the answer is out as a whole. */
bool answer_step(struct connection *c);
