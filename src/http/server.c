/* SPDX-License-Identifier: Apache-2.0 */
/* Listening, the lists of connections, and what the owner asks of an exchange. When there are as
 * many connections as allowed, the one that has kept its place waiting the longest makes room: one
 * that is idle, else one with half a head (both for a second at least), else one whose client has
 * neither sent of its body nor read of its reply for some seconds. Requests that are being handled
 * and streams never do. Until there is room, clients wait in the kernel's queue. */
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "http/connection.h"

enum {
    DEFAULT_CONNECTIONS = 16384,
    DEFAULT_HEAD_MS = 30000,
    DEFAULT_BODY_MS = 60000,
    DEFAULT_IDLE_MS = 120000,
    ACCEPT_AT_ONCE = 64,
    ACCEPT_PAUSE_MS = 100, /* without descriptors, memory or room */
    EVICT_MS = 1000,       /* a request may be on its way to one that is idle for less */
    STUCK_PART = 12,       /* of body_ms: in the middle of a body or a reply a network may pause */
};

#define DEFAULT_BODY_BYTES (256ULL << 20)

static void unlink_from(struct connections *list, struct connection *c)
{
    *(c->previous ? &c->previous->next : &list->first) = c->next;
    *(c->next ? &c->next->previous : &list->last) = c->previous;
    c->next = NULL;
    c->previous = NULL;
}

static bool is_listed(const struct connections *list, const struct connection *c)
{
    return c->previous || list->first == c;
}

void server_move(struct connection *c, enum place place)
{
    struct http_server *server = c->server;
    struct connections *from = &server->places[c->place];
    struct connections *to = &server->places[place];

    if (is_listed(from, c)) {
        if (c->place == place)
            return;
        unlink_from(from, c);
    } else {
        server->stats.connections++;
    }
    c->place = place;
    c->since = place == PLACE_BUSY ? 0 : now_ms();
    c->previous = to->last;
    *(to->last ? &to->last->next : &to->first) = c;
    to->last = c;
}

static void resume(struct listener *l)
{
    if (!l->paused || l->server->draining)
        return;
    l->paused = false;
    timer_stop(l->server->events, &l->timer);
    if (events_change(l->server->events, &l->watch, EPOLLIN) < 0)
        l->paused = true; /* again at the next connection that ends */
}

void server_left(struct connection *c)
{
    struct http_server *server = c->server;

    unlink_from(&server->places[c->place], c);
    server->stats.connections--;
    for (struct listener *l = server->listeners; l; l = l->next)
        resume(l);
}

/* For a moment, or until a connection ends. */
static void pause_accepting(struct listener *l)
{
    l->paused = true;
    ignore(events_change(l->server->events, &l->watch, 0)); /* it would be asked again at once */
    ignore(timer_set(l->server->events, &l->timer, now_ms() + ACCEPT_PAUSE_MS)); /* or then */
}

static void on_resume(struct timer *timer)
{
    resume((struct listener *)(void *)((char *)timer - offsetof(struct listener, timer)));
}

static void evict(struct connection *c)
{
    c->server->stats.evicted++;
    connection_close(c);
}

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

/* The one that has been stuck the longest, if for long enough; of those in a body only, or of all.
 */
static struct connection *most_stuck(const struct http_server *server, bool with_body)
{
    struct connection *found = NULL;
    uint64_t longest = 0;
    uint64_t now = now_ms();

    for (struct connection *c = server->places[PLACE_BUSY].first; c; c = c->next) {
        bool lingers = c->state == STATE_LINGER;
        uint64_t stuck = stuck_ms(c, now);
        if (stuck < (lingers ? EVICT_MS : server->options.body_ms / STUCK_PART) ||
            stuck <= longest || (with_body && (!c->x || !c->x->counted || c->state != STATE_BODY)))
            continue;
        found = c;
        longest = stuck;
    }
    return found;
}

static bool make_room(struct http_server *server)
{
    uint64_t now = now_ms();

    for (enum place place = PLACE_IDLE; place <= PLACE_HEAD; place++) {
        struct connection *c = server->places[place].first;
        if (c && now - c->since >= EVICT_MS) {
            evict(c);
            return true;
        }
    }
    struct connection *c = most_stuck(server, false);
    if (c)
        evict(c);
    return c != NULL;
}

/* Some places are kept for the Unix socket: strangers cannot take them. */
static bool has_room(struct http_server *server, bool is_unix)
{
    unsigned most = server->options.max_connections;

    return server->stats.connections < most - (is_unix ? 0 : most / 16) || make_room(server);
}

bool server_take_body(struct http_server *server, const struct connection *asking, size_t n)
{
    while (server->stats.body_bytes + n > server->options.body_bytes) {
        struct connection *c = most_stuck(server, true);
        if (!c || c == asking)
            return false;
        evict(c);
    }
    server->stats.body_bytes += n;
    return true;
}

/* The uid of a peer on a Unix socket. */
static int64_t peer_uid(const struct listener *l, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (!l->is_unix || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -1;
    return (int64_t)peer.uid;
}

static void on_accept(struct watch *watch, uint32_t what)
{
    struct listener *l = (struct listener *)watch;

    (void)what;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        if (!has_room(l->server, l->is_unix)) {
            pause_accepting(l);
            return;
        }
        scoped_fd int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            if (make_room(l->server))
                continue;
            pause_accepting(l);
            return;
        }
        if (fd < 0)
            continue; /* that client is gone, or the network was: on to the next */
        l->server->stats.accepted++;
        if (connection_start(l->server, &fd, peer_uid(l, fd)) < 0) {
            pause_accepting(l);
            return;
        }
    }
}

static void on_later(struct timer *timer)
{
    struct http_server *server =
        (struct http_server *)(void *)((char *)timer - offsetof(struct http_server, later));
    struct connection *c = server->pending;

    server->pending = NULL;
    while (c) {
        struct connection *next = c->next_pending;
        c->pending = false;
        if (c->fd < 0)
            free(c);
        else
            connection_go_on(c);
        c = next;
    }
}

int http_open(struct http_server **ret, struct events *events, const struct http_calls *calls,
              void *owner, const struct http_options *options)
{
    struct http_server *server = calloc(1, sizeof(*server));
    char *scratch = malloc(STREAM_BYTES);

    if (!server || !scratch) {
        free(server);
        free(scratch);
        return -ENOMEM;
    }
    *server = (struct http_server){
        .events = events,
        .calls = *calls,
        .owner = owner,
        .later.ring = on_later,
        .scratch = scratch,
    };
    struct http_options *o = &server->options;
    if (options)
        *o = *options;
    o->max_connections = o->max_connections ? o->max_connections : DEFAULT_CONNECTIONS;
    o->head_ms = o->head_ms ? o->head_ms : DEFAULT_HEAD_MS;
    o->body_ms = o->body_ms ? o->body_ms : DEFAULT_BODY_MS;
    o->idle_ms = o->idle_ms ? o->idle_ms : DEFAULT_IDLE_MS;
    o->body_bytes = o->body_bytes ? o->body_bytes : DEFAULT_BODY_BYTES;
    *ret = server;
    return 0;
}

static int set_option(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

/* Connections get these from the socket that they came in by. Keep-alive finds clients that went
 * away while they wait (connection.c). */
static int set_tcp_options(int fd)
{
    int r = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);

    r = r < 0 ? r : set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    r = r < 0 ? r : set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    r = r < 0 ? r : set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 20);
    return r < 0 ? r : set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

int http_listen(struct http_server *server, int fd)
{
    int domain = 0;
    socklen_t size = sizeof(domain);
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0)
        return -errno;
    int r = domain == AF_UNIX ? 0 : set_tcp_options(fd);
    if (r < 0)
        return r;
    struct listener *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    *l = (struct listener){
        .watch = {.ready = on_accept, .fd = -1},
        .timer.ring = on_resume,
        .server = server,
        .fd = fd,
        .is_unix = domain == AF_UNIX,
    };
    r = events_watch(server->events, &l->watch, fd, EPOLLIN);
    if (r < 0) {
        free(l);
        return r;
    }
    l->next = server->listeners;
    server->listeners = l;
    return 0;
}

bool http_drain(struct http_server *server)
{
    server->draining = true;
    for (struct listener *l = server->listeners; l; l = l->next) {
        events_forget(server->events, &l->watch);
        timer_stop(server->events, &l->timer);
    }
    while (server->places[PLACE_IDLE].first)
        connection_close(server->places[PLACE_IDLE].first);
    return server->stats.connections == 0;
}

void http_close(struct http_server *server)
{
    if (!server)
        return;
    (void)http_drain(server);
    for (size_t i = 0; i < PLACE_COUNT_; i++) {
        while (server->places[i].first)
            connection_close(server->places[i].first);
    }
    timer_stop(server->events, &server->later);
    for (struct connection *c = server->pending; c;) {
        struct connection *next = c->next_pending;
        free(c);
        c = next;
    }
    while (server->listeners) {
        struct listener *next = server->listeners->next;
        free(server->listeners);
        server->listeners = next;
    }
    free(server->spare);
    free(server->scratch);
    free(server);
}

void http_stats(const struct http_server *server, struct http_stats *ret)
{
    *ret = server->stats;
}

const struct http_request *http_request_of(const struct exchange *x)
{
    return &x->request;
}

int64_t http_peer_uid(const struct exchange *x)
{
    return x->connection->peer_uid;
}

void http_set_data(struct exchange *x, void *data)
{
    x->data = data;
}

void *http_data(const struct exchange *x)
{
    return x->data;
}
