/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker, or carrel run, and carrel-egress say to each other, over a socket that keeps
 * messages apart; bodies are written with base/pack.h. The sockets that come with a sandbox were
 * made by its pid 1 in its network, which nobody inside can reach otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    EGRESS_SOCKET = 3,
    EGRESS_MESSAGE = 128 << 10, /* longest */
    EGRESS_RULES = 256,         /* most rules of a sandbox */
    EGRESS_PORTS = 32,          /* most ports that its rules name, of TCP and of UDP */
    EGRESS_TEXT = 320,          /* longest host, rule, reason */
    EGRESS_NEWS = 2048,         /* longest news */
    EGRESS_SOCKETS = 3,         /* that come before those of the ports */
    EGRESS_VALUE = 20 << 10,    /* longest value of a secret, sealed */
    EGRESS_PLACES = 512,        /* longest list of ports with other numbers inside */
};

/* Inside: names have addresses in 198.18.0.0/15, and the name server is the first of them. */
#define EGRESS_NETWORK    0xc6120000U /* 198.18.0.0 */
#define EGRESS_PREFIX     15
#define EGRESS_NAMESERVER "198.18.0.1"

/* Hours are those of the clock that nobody sets, the same for both. */
#define EGRESS_HOUR_MS 3600000

enum egress_order_kind {
    /* id, name, owner, authority, places, rules, connections, bytes_per_hour; + DNS over UDP, DNS
     * over TCP (listening), one to ask the kernel about its sockets (or, where it does not answer,
     * of another kind), then a listening socket for each port, of UDP one that is bound. Serves
     * that sandbox from now on. */
    EGRESS_ADD = 1,
    /* id, rules, connections, bytes_per_hour: from now on; open connections that the rules no
     * longer allow end */
    EGRESS_CHANGE,
    /* id, bytes_per_hour: so many of this hour's have been used already, by others of the workspace
     */
    EGRESS_SPEND,
    EGRESS_DROP,   /* id: the sandbox has ended; EGRESS_DROPPED follows the last word about it */
    EGRESS_SECRET, /* owner, secret, value; id 0: from now on, for the next request */
    EGRESS_ORDER_COUNT_,
};

struct egress_order {
    uint64_t kind;
    uint64_t id;              /* the sender's, of a sandbox; never used again */
    const char *name;         /* of the sandbox, for the log */
    const char *const *rules; /* lines of policy/network.h */
    uint64_t connections;     /* most at a time; 0: the default */
    uint64_t bytes_per_hour;  /* both ways together; 0: no bound */
    const char *owner;        /* whose secrets its rules name */
    const char *authority;    /* the private key that came with what is trusted inside; "": none */
    const char *places; /* "512=8080,…": port 512 of a socket stands for 8080; "": none does */
    const char *secret; /* name */
    const char *value;  /* sealed, if the process has a key; "": it is none any more */
};

enum egress_news_kind {
    EGRESS_READY = 1, /* id 0: once, when it has confined itself */
    EGRESS_OPENED,    /* a connection stands: host, port, rule */
    EGRESS_CLOSED,    /* ... and has ended: + up, down, ms, why */
    EGRESS_REFUSED,   /* host, port (0: the name itself), rule ("": none), why, fix; count: so often
                         since told last */
    EGRESS_SPENT,     /* up: bytes since this was told last; where there is a bound */
    EGRESS_DROPPED,
    EGRESS_REQUEST, /* of a connection whose TLS ends here: host, port, rule; why: method and path,
                       count: status of the answer, 0: there was none; ms */
    EGRESS_NEWS_COUNT_,
};

/* In place of a control group. */
#define EGRESS_NOBODY    0          /* it is not known */
#define EGRESS_UNGROUPED UINT64_MAX /* that of the sandbox itself */

struct egress_news {
    uint64_t kind;
    uint64_t id;
    uint64_t connection; /* the same number in OPENED and CLOSED */
    const char *host;    /* a checked name; or printable text, where it is none */
    uint64_t port;
    const char *rule; /* the line that decided */
    const char *why;  /* REFUSED: "no rule allows it"; CLOSED: "" or what went wrong */
    const char *fix;  /* what to do if it should be allowed */
    uint64_t up;      /* bytes from inside to outside */
    uint64_t down;
    uint64_t ms; /* CLOSED: it lasted; otherwise: so long ago it was asked for, about */
    uint64_t count;
    uint64_t group; /* control group (of v2) in which the socket inside was made */
};

void egress_pack_order(struct buf *b, const struct egress_order *order);
/* Points into the message, the list is in `arena`; false for anything that is not exactly one sane
 * message. */
bool egress_unpack_order(char *bytes, size_t n, struct arena *arena, struct egress_order *ret);
void egress_pack_news(struct buf *b, const struct egress_news *news);
bool egress_unpack_news(char *bytes, size_t n, struct egress_news *ret);
