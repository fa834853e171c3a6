/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of carrel-egress share. boxes.c has the sandboxes it serves, questions.c answers
 * their name lookups, connection.c makes one connection of two, dial.c finds and reaches the other
 * end, relay.c carries, who.c finds out whose it is, news.c tells.
 *
 *   accepted --name and port decided--> DIALLING --dial_begin--> OPEN --both sides ended--> closed
 *                 \-refused: reset          \-failed: reset        \-looked at and refused: reset
 *
 * 1. A connection is freed last of all by the function that the loop, or an order, called.
 * 2. What is dialled is an address that was looked at, of a name that a rule allows at that
 *    port, at the moment it is dialled. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/events.h"
#include "base/seal.h"
#include "egress/look.h"
#include "egress/names.h"
#include "egress/relay.h"
#include "policy/network.h"
#include "protocol/egress.h"

enum {
    PRIVATE_MOST = 64,
    OWN_PORTS_MOST = 16,
    CONNECTIONS_DEFAULT = 256,
    CONNECTIONS_MOST = 8192, /* of one sandbox, whatever it is given */
    ASKING_MOST = 16,        /* connections for questions, of one sandbox */
    REFUSALS_KEPT = 8,
    REFUSALS_TOLD = 32, /* one by one in a second */
};

struct options {
    const char *nameservers;                   /* NULL: the host's */
    struct network_rule private[PRIVATE_MOST]; /* hosts that may have private addresses */
    size_t private_count;
    uint16_t own_ports[OWN_PORTS_MOST];
    size_t own_port_count;
    bool inspects;  /* TLS ends here where a rule says so */
    int trust_fd;   /* further authorities; -1: none */
    int secrets_fd; /* the key that secrets are sealed for; -1: they come as they are */
};

struct egress {
    struct options options;
    struct events *events;
    struct watch talk;
    struct box *boxes;
    struct dialer *dialer;
    struct pipes *pipes;
    struct news *news;
    uint64_t last_connection; /* number */
    size_t connections;       /* all */
    size_t most;
    struct tls *tls;  /* NULL: no TLS ends here */
    size_t inspected; /* connections whose TLS does */
    struct secret *secrets;
    size_t secret_count;
    unsigned char secret_key[SEAL_KEY];
    bool has_secret_key;
};

/* One listening socket of a sandbox. */
struct port {
    struct watch watch; /* first */
    struct timer timer; /* accepting pauses */
    struct box *box;
    int fd;
    uint16_t port; /* that it listens at */
    bool is_udp;
    void (*take)(struct port *port, int *fd);
};

struct refusal {
    char host[EGRESS_TEXT + 1];
    char rule[EGRESS_TEXT + 1];
    char fix[EGRESS_TEXT + 1];
    const char *why; /* one of few, compared by where it is */
    uint64_t group;
    uint64_t at_ms; /* the last time */
    uint16_t port;
    uint64_t told_ms;
    uint64_t count; /* since then */
};

struct box {
    struct egress *egress;
    struct box *next;
    uint64_t id;
    struct network_rule *rules;
    size_t rule_count;
    size_t most; /* connections */
    size_t count;
    uint64_t bytes_per_hour;
    uint64_t hour;       /* which one it is */
    uint64_t hour_bytes; /* of it, by all of the workspace */
    uint64_t untold_bytes;
    struct names names;
    char *owner;                 /* whose secrets its rules name */
    struct authority *authority; /* NULL: no TLS of it ends here */
    struct leaf *leaves;
    size_t inspected; /* connections */
    struct port udp;
    struct port tcp;
    int diag; /* -1: the kernel does not tell */
    uint32_t questions;
    uint64_t base_group; /* of the sandbox itself; 0: it does not tell */
    struct asking *asking;
    size_t asking_count;
    struct port ports[EGRESS_PORTS];
    size_t port_count;
    struct connection *connections;
    struct exchange *exchanges; /* of UDP */
    size_t pipes;               /* of the pool that it has */
    size_t flows;               /* that keep bytes */
    struct refusal *refusals;   /* the last ones, or NULL */
    uint64_t told_ms;           /* the second in which so many were told */
    unsigned told;
    uint64_t untold;
};

struct end {
    struct watch watch; /* first */
    struct connection *connection;
    int fd;
    uint32_t armed;
};

/* One direction. What was read and not yet written is in `bytes`, or in the pipe. */
struct flow {
    struct end *from;
    struct end *to;
    unsigned char *bytes; /* FLOW_BYTES, or NULL */
    size_t at;
    size_t n;
    struct pipe *pipe; /* of the pool, or NULL */
    size_t piped;      /* in it */
    uint64_t count;    /* that have been read */
    uint64_t sent;     /* ... and written */
    bool ended;        /* no more comes */
    bool told;         /* and the other side knows */
    bool blocked;      /* the other side takes no more */
};

struct connection {
    struct box *box;
    struct connection *next;
    struct connection *previous;
    uint64_t number;
    uint64_t group;
    const char *host; /* in the names of the box */
    uint16_t port;
    char *rule; /* the line that allowed it */
    uint64_t since_ms;
    struct timer timer;
    struct dial *dial; /* NULL: there is nothing to wait for */
    struct end inside;
    struct end outside;
    struct flow up;
    struct flow down;
    struct look look;
    bool is_open;
    bool is_inspected;           /* by its rule */
    struct inspected *inspected; /* then, once it is open */
    uint64_t due_ms;             /* what it waits for then */
    bool is_opaque;              /* by its rule */
    bool refuses_ech;
    bool is_waiting;   /* for the rest of what is looked at: the timer runs */
    uint64_t waits_at; /* byte of what comes from inside */
};

/* boxes.c: an order, with its descriptors, which are consumed. */
void boxes_hear(struct egress *egress, const struct egress_order *order, int *fds, size_t count);
/* False: the sandbox has used up what it may send and receive; *ret_left says how much is left. */
bool box_has_bytes(struct box *box, size_t *ret_left);
void box_spend(struct box *box, size_t n);
/* What has not been told of that. */
void box_tell_spent(struct box *box);

/* Accepts from now on; 0 or -errno. */
int port_listen(struct port *port, void (*take)(struct port *port, int *fd));
void port_close(struct port *port);

/* questions.c */
int questions_open(struct box *box, struct err *err);
void questions_close(struct box *box);

/* who.c: the control group (or EGRESS_…) of the socket inside. */
void who_begin(struct box *box);
uint64_t who_asks(struct box *box, int protocol, const struct sockaddr_storage *peer,
                  const struct sockaddr_storage *here);
uint64_t who_connects(struct box *box, int fd);

/* connection.c: takes the socket. */
void connection_accept(struct box *box, int *fd, uint16_t port);
/* One that is open: moves what can be moved now. It may be gone afterwards. */
void connection_step(struct connection *c);
/* Ends those that the rules do not allow any more; or all. */
void connections_check(struct box *box);
void connections_end(struct box *box, const char *why);

/* udp.c: at a socket of that kind, from now on; the two as for connections. */
int udp_listen(struct port *port);
void udp_check(struct box *box);
void udp_end(struct box *box, const char *why);

/* dial.c */
struct dial_answer {
    int fd;          /* the receiver's; -1: none */
    const char *why; /* then */
    const char *fix;
};

typedef void dial_done(void *context, const struct dial_answer *answer);

int dialer_open(struct egress *egress, struct err *err);
/* Calls back once, later, unless it is cancelled before. NULL: there is no memory. */
struct dial *dial_begin(struct egress *egress, const char *name, uint32_t port, dial_done *done,
                        void *context);
void dial_cancel(struct dial *dial);

/* relay.c */
int pipes_open(struct egress *egress, struct err *err);

/* Moves what can be moved now, up to a bound. */
enum relay flow_step(struct connection *c, struct flow *flow);
/* What to wait for at that end. */
uint32_t flow_wants(const struct connection *c, const struct end *end);
void flow_clear(struct connection *c, struct flow *flow);

/* news.c */
int news_open(struct egress *egress, struct err *err);
void news_tell(struct egress *egress, const struct egress_news *news);

struct refused {
    uint64_t group; /* who_asks */
    const char *host;
    uint16_t port;    /* 0: the name itself */
    const char *rule; /* "": none */
    const char *why;  /* one of few, compared by where it is */
    const char *fix;
};

void news_refuse(struct box *box, const struct refused *refused);
/* What is still to be told of it. */
void news_flush(struct box *box);
/* Nobody has listened for too long: nothing new is begun. */
bool news_are_stuck(const struct egress *egress);
void news_go_on(struct egress *egress);

/* confine.c */
int egress_confine(struct err *err);
