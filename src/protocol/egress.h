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
    EGRESS_PORTS = 32,          /* most TCP ports that its rules name */
    EGRESS_TEXT = 320,          /* longest host, rule, reason */
    EGRESS_NEWS = 2048,         /* longest news */
};

/* Inside: names have addresses in 198.18.0.0/15, and the name server is the first of them. */
#define EGRESS_NETWORK    0xc6120000U /* 198.18.0.0 */
#define EGRESS_PREFIX     15
#define EGRESS_NAMESERVER "198.18.0.1"

enum egress_order_kind {
    /* id, name, rules, connections, bytes_per_hour; + DNS over UDP, DNS over TCP (listening), then
     * a listening socket for each port. Serves that sandbox from now on. */
    EGRESS_ADD = 1,
    /* id, rules, connections, bytes_per_hour: from now on; open connections that the rules no
     * longer allow end */
    EGRESS_CHANGE,
    EGRESS_DROP, /* id: the sandbox has ended; EGRESS_DROPPED follows the last word about it */
    EGRESS_ORDER_COUNT_,
};

struct egress_order {
    uint64_t kind;
    uint64_t id;              /* the sender's, of a sandbox; never used again */
    const char *name;         /* of the sandbox, for the log */
    const char *const *rules; /* lines of policy/network.h */
    uint64_t connections;     /* most at a time; 0: the default */
    uint64_t bytes_per_hour;  /* both ways together; 0: no bound */
};

enum egress_news_kind {
    EGRESS_READY = 1, /* id 0: once, when it has confined itself */
    EGRESS_OPENED,    /* a connection stands: host, port, rule */
    EGRESS_CLOSED,    /* ... and has ended: + up, down, ms, why */
    EGRESS_REFUSED,   /* host, port (0: the name itself), rule ("": none), why, fix; count: so often
                         since told last */
    EGRESS_DROPPED,
    EGRESS_NEWS_COUNT_,
};

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
    uint64_t ms;
    uint64_t count;
};

void egress_pack_order(struct buf *b, const struct egress_order *order);
/* Points into the message, the list is in `arena`; false for anything that is not exactly one sane
 * message. */
bool egress_unpack_order(char *bytes, size_t n, struct arena *arena, struct egress_order *ret);
void egress_pack_news(struct buf *b, const struct egress_news *news);
bool egress_unpack_news(char *bytes, size_t n, struct egress_news *ret);
