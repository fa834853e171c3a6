/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the server share: server.c accepts, places.c decides who has a place,
 * connection.c moves a connection from state to state, body.c reads bodies, answer.c writes.
 *
 *   HEAD --head_step--> BODY --body_step--> WAIT --http_reply, http_stream--> REPLY --> HEAD
 *     \-refuse-> REPLY <-----answered early----/            finish --> LINGER (or closed)
 *
 * 1. Nothing is freed but at the end of connection_go_on, with no callback of the owner on the
 *    stack: http_reply, http_stream, http_wake and http_continue_body mark the connection and
 *    the loop goes on with it later (at the end of the same turn).
 * 2. on_done is called exactly once for each exchange for which on_head was called.
 * 3. An idle connection has neither buffers nor an exchange. */
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
    GOING_MS = 1000,     /* to say that there is no room, or the last of an answer */
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

/* Which list of its account's it is in, in the order in which they have to go. */
enum place {
    PLACE_IDLE,   /* between requests */
    PLACE_HEAD,   /* a part of a head has come */
    PLACE_NEWS,   /* from here on streams: enum http_stream_kind */
    PLACE_WATCH,  /* ... */
    PLACE_OUTPUT, /* ... */
    PLACE_TUNNEL, /* ... to here */
    PLACE_BUSY,   /* a request is being read, handled or answered */
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
    struct account *account; /* whose it is; NULL: it is going */
    char key[32];            /* by which of its owner's keys */
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
    enum http_limit limit; /* it is going, because of this one */
    bool told;             /* ... and its client knows */
    bool hurries;          /* what is left to say has a second */
    bool by_tls;           /* it came by http_adopt */
    bool is_inner;         /* its other end is the owner's own: http_join */
    bool is_trusted;       /* its peer is a proxy, or the daemon's own user */
    bool served;           /* it has had an answer */
    bool blocked;          /* the socket takes no more */
    bool ended;            /* the client sends no more */
    bool muted;            /* input came that nobody wants now */
    bool close_after;      /* the answer */
    bool linger_after;     /* … and read what the client still sends */
    bool busy;             /* its events are being handled */
    bool pending;          /* in the list of those to go on with */
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
    bool one_way;  /* the end of the client's sending side is the end: http_end_with_client */
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
    struct connection *first; /* the longest there */
    struct connection *last;
};

/* Which key had more than half of its owner's connections, or streams; "": none. */
struct greed {
    uint64_t since;
    char key[32];
};

/* Whose connections they are: "alice", an owner, or "@192.0.2.7", an address, or "@uid:1000", as
 * long as no key has said more. There as long as it has any. */
struct account {
    struct account *next; /* in its slot */
    struct connections places[PLACE_COUNT_];
    unsigned count;
    unsigned streams;
    bool is_peer;
    bool unbounded;
    bool kept; /* also without any */
    struct greed greed[2];
    char name[80];
};

enum {
    ACCOUNT_SLOTS = 1024,
};

struct http_server {
    struct events *events;
    struct http_calls calls;
    void *owner;
    struct http_options options;
    struct http_stats stats;
    struct listener *listeners;
    struct account *accounts[ACCOUNT_SLOTS];
    unsigned known; /* connections of owners */
    unsigned unknown;
    struct connections going; /* being closed; counted in no account */
    unsigned going_count;
    struct connection *pending;
    struct timer later; /* rings when there are pending ones */
    char *spare;        /* one input buffer kept for the next */
    char *scratch;      /* what is pulled, and what is dropped */
    time_t date_second;
    char date[40];
    bool draining;
};

/* places.c */
void places_move(struct connection *c, enum place place);
/* Counts a new connection for its peer; without room it is going, and c->limit says why. 0 or
 * -ENOMEM. */
int places_enter(struct connection *c, const char *peer, bool is_trusted);
void places_leave(struct connection *c);
/* Closes the longest of those that are going, if there are too many. */
void places_trim(struct http_server *server);
/* One of those there, or of all; NULL: none. */
struct connection *places_any(const struct http_server *server, bool idle_only);
/* A descriptor is missing: closes some connection, of whatever account. */
void places_evict_any(struct http_server *server);
/* Whether so many bytes more may be collected; counted if so. One that has stopped half way makes
 * room: it is closed, `asking` never. */
bool places_take_body(struct http_server *server, const struct connection *asking, size_t n);

/* server.c: a connection has ended. */
void server_left(struct http_server *server);

/* connection.c */
struct arrival {
    int64_t uid;
    const char *peer; /* the name of its account until a key says more */
    bool is_trusted;
    bool is_inner;
    bool by_tls;
};

int connection_start(struct http_server *server, int *fd, const struct arrival *from);
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
/* That there is no room: c->limit. */
void answer_limit(struct connection *c);
/* Sends what is queued and the parts; queues the rest. */
void answer_send(struct connection *c, struct iovec *parts, size_t n);
/* Pulls and sends; whether the answer is out as a whole. */
bool answer_step(struct connection *c);
