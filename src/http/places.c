/* SPDX-License-Identifier: Apache-2.0 */
/* Who has a place. A connection counts for the address (or, over a Unix socket, the user) that it
 * comes from until a key says whose it is, and then for that owner: reading, idle, lingering or
 * half closed, until it is closed. Both kinds have places of their own, so that connections without
 * a key cannot take those of owners.
 *
 * Where an account is at its limit, one of its own connections makes room: the one that has been
 * idle, or has sent half a head, the longest, else one whose client has neither sent of its body
 * nor read of its reply for some seconds; those of owners for a second at least, so that no request
 * is on its way. A stream beyond its limit takes the place of the oldest one that has lasted for 10
 * s, in the order of enum http_stream_kind. Else the key that has more than half of its owner's
 * gives one up to another of that owner's keys, or the new one is refused.
 *
 * Where all places are taken, the account with the most connections gives one up, for one that has
 * fewer: also a stream, and at last a request that is being handled. So no owner, and no number of
 * them, keeps another out. Without a key a client that does not read its answer gives up its place,
 * also within one address: who has not said who it is waits for nobody, and holds nobody up.
 *
 * What has to go is counted no longer, and has a second to hear why. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "http/connection.h"

enum {
    EVICT_MS = 1000, /* a request may be on its way to one that is idle for less */
    STUCK_PART = 12, /* of body_ms: in the middle of a body or a reply a network may pause */
    RESERVE = 16,    /* one of so many places is for the daemon's own user over the Unix socket */
    MOST_GOING = 256,
    GREED_MS = 100, /* how long it is taken for granted who has the most */
};

/* --- lists and accounts --- */

static void unlink_from(struct connections *list, struct connection *c)
{
    *(c->previous ? &c->previous->next : &list->first) = c->next;
    *(c->next ? &c->next->previous : &list->last) = c->previous;
    c->next = NULL;
    c->previous = NULL;
}

static void append(struct connections *list, struct connection *c)
{
    c->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = c;
    list->last = c;
}

static bool is_stream(enum place place)
{
    return place >= PLACE_NEWS && place <= PLACE_TUNNEL;
}

static struct account **slot_of(struct http_server *server, const char *name)
{
    return &server->accounts[hash_text(name) % ACCOUNT_SLOTS];
}

static struct account *use_account(struct http_server *server, const char *name, bool is_peer)
{
    struct account **slot = slot_of(server, name);
    struct account *a = *slot;

    while (a && strcmp(a->name, name) != 0)
        a = a->next;
    if (a)
        return a;
    a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    snprintf(a->name, sizeof(a->name), "%s", name);
    a->is_peer = is_peer;
    a->next = *slot;
    *slot = a;
    return a;
}

static void drop_if_empty(struct http_server *server, struct account *a)
{
    struct account **at = slot_of(server, a->name);

    if (a->count > 0 || a->kept)
        return;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    free(a);
}

static void take_in(struct account *a, struct connection *c)
{
    struct http_server *server = c->server;

    append(&a->places[c->place], c);
    c->account = a;
    a->count++;
    a->streams += is_stream(c->place);
    server->stats.streams += is_stream(c->place);
    (*(a->is_peer ? &server->unknown : &server->known))++;
}

/* The account stays, empty or not. */
static void take_out(struct connection *c)
{
    struct http_server *server = c->server;
    struct account *a = c->account;

    unlink_from(&a->places[c->place], c);
    c->account = NULL;
    a->count--;
    a->streams -= is_stream(c->place);
    server->stats.streams -= is_stream(c->place);
    (*(a->is_peer ? &server->unknown : &server->known))--;
}

void places_move(struct connection *c, enum place place)
{
    struct account *a = c->account;

    if (!a || c->place == place)
        return; /* it is going, or there already */
    take_out(c);
    c->place = place;
    c->since = place == PLACE_BUSY ? 0 : now_ms();
    take_in(a, c);
}

void places_leave(struct connection *c)
{
    struct http_server *server = c->server;
    struct account *a = c->account;

    if (a) {
        take_out(c);
        drop_if_empty(server, a);
    } else {
        unlink_from(&server->going, c);
        server->going_count--;
    }
    server->stats.connections--;
}

struct connection *places_any(const struct http_server *server, bool idle_only)
{
    for (size_t i = 0; i < ACCOUNT_SLOTS; i++) {
        for (const struct account *a = server->accounts[i]; a; a = a->next) {
            for (enum place place = PLACE_IDLE; place < (idle_only ? PLACE_HEAD : PLACE_COUNT_);
                 place++) {
                if (a->places[place].first)
                    return a->places[place].first;
            }
        }
    }
    return idle_only ? NULL : server->going.first;
}

/* --- who has to go --- */

/* For how long its client has neither sent nor read what it should: its deadline was set when it
 * last did. 0: it is not its turn. */
static uint64_t stuck_ms(const struct connection *c, uint64_t now)
{
    uint64_t allowed = 0;

    if (c->deadline == UINT64_MAX || c->busy)
        return 0;
    if (c->state == STATE_BODY)
        allowed = c->server->options.body_ms;
    else if (c->state == STATE_REPLY && c->blocked && !(c->x && c->x->pull))
        allowed = STALLED_MS;
    else if (c->state == STATE_LINGER)
        allowed = LINGER_MS;
    return now + allowed > c->deadline ? now + allowed - c->deadline : 0;
}

struct search {
    struct connection *found;
    uint64_t longest;
    uint64_t now;
    bool with_body; /* of those only that are in the middle of one */
};

/* The one of an account that has been stuck the longest, if for long enough. */
static void search_stuck(const struct account *a, struct search *search)
{
    for (struct connection *c = a->places[PLACE_BUSY].first; c; c = c->next) {
        bool lingers = c->state == STATE_LINGER;
        uint64_t stuck = stuck_ms(c, search->now);
        uint64_t least = !lingers     ? c->server->options.body_ms / STUCK_PART
                         : a->is_peer ? 0
                                      : EVICT_MS;
        if (stuck < least || stuck <= search->longest ||
            (search->with_body && (!c->x || !c->x->counted || c->state != STATE_BODY)))
            continue;
        search->found = c;
        search->longest = stuck;
    }
}

static struct connection *stuck_of(const struct account *a)
{
    struct search search = {.now = now_ms()};

    search_stuck(a, &search);
    return search.found;
}

static struct connection *oldest(const struct account *a, enum place place, uint64_t least_ms)
{
    struct connection *c = a->places[place].first;

    return c && now_ms() - c->since >= least_ms ? c : NULL;
}

/* What holds a place for nothing. */
static struct connection *unused_of(const struct account *a)
{
    uint64_t least_ms = a->is_peer ? 0 : EVICT_MS;
    struct connection *idle = oldest(a, PLACE_IDLE, least_ms);
    struct connection *head = oldest(a, PLACE_HEAD, least_ms);

    /* Who has just come, and is about to send its head, is idle for a moment. */
    if (idle && head)
        return idle->since <= head->since ? idle : head;
    return idle ? idle : head ? head : stuck_of(a);
}

/* Anything, what is missed the least first. */
static struct connection *any_of(const struct account *a)
{
    struct connection *c = oldest(a, PLACE_IDLE, 0);

    c = c ? c : oldest(a, PLACE_HEAD, 0);
    c = c ? c : stuck_of(a);
    for (enum place place = PLACE_NEWS; !c && place < PLACE_COUNT_; place++)
        c = a->places[place].first;
    return c;
}

/* Streams that are asked for again and again do not end each other: hence the time. */
static struct connection *stream_of(const struct account *a, uint64_t least_ms)
{
    struct connection *c = NULL;

    for (enum place place = PLACE_NEWS; !c && place <= PLACE_OUTPUT; place++)
        c = oldest(a, place, least_ms);
    return c;
}

static size_t count_of(const struct account *a, enum place from, enum place to, const char *key)
{
    size_t n = 0;

    for (enum place place = from; place <= to; place++) {
        for (const struct connection *c = a->places[place].first; c; c = c->next)
            n += !key || strcmp(c->key, key) == 0;
    }
    return n;
}

/* The key that has more than half of what is in these places; "": none has. */
static const char *greedy_key(const struct account *a, enum place from, enum place to)
{
    const char *most = "";
    size_t votes = 0;

    for (enum place place = from; place <= to; place++) {
        for (const struct connection *c = a->places[place].first; c; c = c->next) {
            most = votes == 0 ? c->key : most;
            votes += strcmp(c->key, most) == 0 ? 1 : (size_t)-1;
        }
    }
    /* If there is such a one it is left over, but so may be another. */
    return count_of(a, from, to, most) * 2 > count_of(a, from, to, NULL) ? most : "";
}

/* That key gives the first of what it has up to any other: an agent does not keep out who approves
 * what it does. Whoever is refused is so for a moment, and costs no further search. */
static struct connection *of_greedy_key(struct account *a, bool streams, const char *asking)
{
    enum place from = streams ? PLACE_NEWS : PLACE_IDLE;
    enum place to = streams ? PLACE_TUNNEL : PLACE_BUSY;
    struct greed *greed = &a->greed[streams];
    uint64_t now = now_ms();

    if (now - greed->since >= GREED_MS) {
        (void)snprintf(greed->key, sizeof(greed->key), "%s", greedy_key(a, from, to));
        greed->since = now;
    }
    if (!*greed->key || strcmp(greed->key, asking) == 0)
        return NULL;
    greed->since = 0; /* it will have one less */
    for (enum place place = from; place <= to; place++) {
        for (struct connection *c = a->places[place].first; c; c = c->next) {
            if (strcmp(c->key, greed->key) == 0)
                return c;
        }
    }
    return NULL;
}

static struct account *largest(const struct http_server *server, bool of_peers)
{
    struct account *found = NULL;

    for (size_t i = 0; i < ACCOUNT_SLOTS; i++) {
        for (struct account *a = server->accounts[i]; a; a = a->next) {
            if (a->is_peer == of_peers && (!found || a->count > found->count))
                found = a;
        }
    }
    return found;
}

/* Counted no longer; the rest is done later, with no callback of the owner on the stack. */
static void let_go(struct connection *c, enum http_limit limit)
{
    struct http_server *server = c->server;
    struct account *a = c->account;

    take_out(c);
    drop_if_empty(server, a);
    c->limit = limit;
    append(&server->going, c);
    server->going_count++;
}

/* False: there was none. */
static bool evict(struct connection *c, enum http_limit limit)
{
    if (!c)
        return false;
    c->server->stats.evicted++;
    let_go(c, limit);
    connection_later(c);
    return true;
}

void places_evict_any(struct http_server *server)
{
    struct account *a = largest(server, true);

    if (!a || !evict(unused_of(a), HTTP_MAX_CONNECTIONS)) {
        a = largest(server, false);
        if (a)
            (void)evict(unused_of(a), HTTP_MAX_CONNECTIONS);
    }
}

void places_trim(struct http_server *server)
{
    while (server->going_count > MOST_GOING)
        connection_close(server->going.first);
}

bool places_take_body(struct http_server *server, const struct connection *asking, size_t n)
{
    while (server->stats.body_bytes + n > server->options.body_bytes) {
        struct search search = {.now = now_ms(), .with_body = true};
        for (size_t i = 0; i < ACCOUNT_SLOTS; i++) {
            for (const struct account *a = server->accounts[i]; a; a = a->next)
                search_stuck(a, &search);
        }
        if (!search.found || search.found == asking)
            return false;
        server->stats.evicted++;
        connection_close(search.found);
    }
    server->stats.body_bytes += n;
    return true;
}

/* --- who may come --- */

static unsigned without_reserve(unsigned most, bool is_own)
{
    return is_own ? most : most - most / RESERVE;
}

static bool is_own(const struct connection *c)
{
    return c->peer_uid == 0 || (c->peer_uid > 0 && c->peer_uid == c->server->options.own_uid);
}

/* The oldest that has more to say than its client reads. */
static struct connection *unread_of(const struct account *a)
{
    for (struct connection *c = a->places[PLACE_BUSY].first; c; c = c->next) {
        if (c->state == STATE_REPLY && c->blocked && !c->busy)
            return c;
    }
    return NULL;
}

/* Without a key nothing is asked for that could not be asked for again: a client that reads a long
 * answer slowly, or only a little of it now and then, holds no place against one that comes. */
static bool evict_of(const struct account *peer, enum http_limit limit)
{
    return evict(unused_of(peer), limit) || evict(unread_of(peer), limit);
}

static enum http_limit room_for_peer(const struct connection *c, const struct account *a)
{
    struct http_server *server = c->server;
    const struct http_options *o = &server->options;

    if (!c->is_trusted && a->count >= o->address_connections &&
        !evict_of(a, HTTP_ADDRESS_CONNECTIONS))
        return HTTP_ADDRESS_CONNECTIONS;
    if (server->unknown < without_reserve(o->max_unknown, is_own(c)))
        return HTTP_ROOM;
    const struct account *most = largest(server, true);
    return most && evict_of(most, HTTP_MAX_CONNECTIONS) ? HTTP_ROOM : HTTP_MAX_CONNECTIONS;
}

/* It goes without having had a place. */
static void turn_away(struct connection *c, enum http_limit limit)
{
    struct http_server *server = c->server;

    c->limit = limit;
    append(&server->going, c);
    server->going_count++;
    server->stats.turned_away++;
}

int places_enter(struct connection *c, const char *peer, bool is_trusted)
{
    struct http_server *server = c->server;
    struct account *a = use_account(server, peer, true);

    if (!a)
        return -ENOMEM;
    c->is_trusted = is_trusted;
    c->since = now_ms();
    a->kept = true;
    enum http_limit limit = room_for_peer(c, a);
    a->kept = false;
    server->stats.connections++;
    if (limit == HTTP_ROOM)
        take_in(a, c);
    else
        turn_away(c, limit);
    drop_if_empty(server, a);
    return 0;
}

static enum http_limit room_for_owner(const struct connection *c, struct account *a)
{
    struct http_server *server = c->server;
    const struct http_options *o = &server->options;

    if (!a->unbounded && a->count >= o->owner_connections &&
        !evict(unused_of(a), HTTP_OWNER_CONNECTIONS) &&
        !evict(of_greedy_key(a, false, c->key), HTTP_OWNER_CONNECTIONS))
        return HTTP_OWNER_CONNECTIONS;
    if (server->known < without_reserve(o->max_connections, is_own(c)))
        return HTTP_ROOM;
    const struct account *most = largest(server, false);
    bool gives = most && most != a && most->count > a->count + 1;
    return evict(gives ? any_of(most) : unused_of(a), HTTP_MAX_CONNECTIONS) ? HTTP_ROOM
                                                                            : HTTP_MAX_CONNECTIONS;
}

enum http_limit http_charge(struct exchange *x, const char *who, const char *key, bool unbounded)
{
    struct connection *c = x->connection;
    struct http_server *server = c->server;
    struct account *from = c->account;
    char name[sizeof(from->name)];

    (void)snprintf(name, sizeof(name), "%s%s", c->is_inner ? "=" : "", who);
    (void)snprintf(c->key, sizeof(c->key), "%s", key);
    if (!from || strcmp(from->name, name) == 0)
        return HTTP_ROOM;
    struct account *a = use_account(server, name, false);
    enum http_limit limit = HTTP_MAX_CONNECTIONS;
    take_out(c); /* it is not among those that have to go */
    from->kept = true;
    if (a) {
        a->unbounded = unbounded;
        a->kept = true;
        limit = room_for_owner(c, a);
        a->kept = false;
    }
    from->kept = false;
    c->told = c->hurries = limit != HTTP_ROOM; /* the owner answers now */
    if (limit == HTTP_ROOM)
        take_in(a, c);
    else
        turn_away(c, limit);
    if (a)
        drop_if_empty(server, a);
    drop_if_empty(server, from);
    return limit;
}

enum http_limit http_hold(struct exchange *x, enum http_stream_kind kind)
{
    struct connection *c = x->connection;
    struct account *a = c->account;

    if (!a)
        return HTTP_ROOM; /* it is going: the answer will not last */
    const struct http_options *o = &c->server->options;
    if (!a->unbounded && a->streams >= o->owner_streams &&
        !evict(stream_of(a, o->stream_ms), HTTP_OWNER_STREAMS) &&
        !evict(of_greedy_key(a, true, c->key), HTTP_OWNER_STREAMS))
        return HTTP_OWNER_STREAMS;
    places_move(c, PLACE_NEWS + kind);
    return HTTP_ROOM;
}

/* --- in words --- */

static const struct {
    const char *setting;
    const char *advice;
} limits[HTTP_LIMIT_COUNT_] = {
    [HTTP_ROOM] = {"", ""},
    [HTTP_MAX_CONNECTIONS] = {"max_connections",
                              "the daemon has no room for another connection (max_connections); "
                              "close some, or try again"},
    [HTTP_OWNER_CONNECTIONS] = {"owner_connections",
                                "this owner has as many connections open as one may have "
                                "(owner_connections); close some, or use one for several requests"},
    [HTTP_OWNER_STREAMS] = {"owner_streams",
                            "this owner follows as many streams as one may (owner_streams); end "
                            "some, or follow all workspaces in one stream"},
    [HTTP_ADDRESS_CONNECTIONS] =
        {"address_connections", "too many connections without a key are open from this address "
                                "(address_connections); send a request with a key, or close some"},
};

const char *http_limit_setting(enum http_limit limit)
{
    return limits[limit].setting;
}

const char *http_limit_advice(enum http_limit limit)
{
    return limits[limit].advice;
}
