/* SPDX-License-Identifier: Apache-2.0 */
/* Listening, and what the owner asks of an exchange. Whoever connects is accepted at once, and told
 * if there is no room (places.c): nobody waits in the kernel's queue behind those that are refused.
 */
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "http/connection.h"

enum {
    DEFAULT_CONNECTIONS = 16384,
    DEFAULT_HEAD_MS = 30000,
    DEFAULT_BODY_MS = 60000,
    DEFAULT_IDLE_MS = 120000,
    DEFAULT_STREAM_MS = 10000,
    ACCEPT_AT_ONCE = 2,    /* then requests have their turn, also beside a flood */
    ACCEPT_PAUSE_MS = 100, /* without descriptors or memory */
};

#define DEFAULT_BODY_BYTES (256ULL << 20)

static void resume(struct listener *l)
{
    if (!l->paused || l->server->draining)
        return;
    l->paused = false;
    timer_stop(l->server->events, &l->timer);
    if (events_change(l->server->events, &l->watch, EPOLLIN) < 0)
        l->paused = true; /* again at the next connection that ends */
}

void server_left(struct http_server *server)
{
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
    resume(container_of(timer, struct listener, timer));
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

/* Takes one connection; 0, or -errno: no more for now. */
static int accept_one(struct listener *l)
{
    struct http_server *server = l->server;
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(from);
    char peer[NETWORK_PEER + 8] = "@";
    scoped_fd int fd =
        accept4(l->fd, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0 && (errno == EAGAIN || errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                   errno == ENOMEM))
        return -errno;
    if (fd < 0)
        return 0; /* that client is gone, or the network was: on to the next */
    int64_t uid = peer_uid(l, fd);
    bool is_trusted = l->is_unix ? uid == 0 || (uid > 0 && uid == server->options.own_uid)
                                 : networks_have(&server->options.trusted, &from);
    if (l->is_unix)
        (void)snprintf(peer, sizeof(peer), "@uid:%lld", (long long)uid);
    else
        network_peer(&from, peer + 1);
    server->stats.accepted++;
    return connection_start(server, &fd,
                            &(struct arrival){.uid = uid, .peer = peer, .is_trusted = is_trusted});
}

int http_join(struct http_server *server, int *fd, int64_t peer_uid)
{
    const struct arrival from = {
        .uid = peer_uid, .peer = "@inner", .is_trusted = true, .is_inner = true};

    return connection_start(server, fd, &from);
}

int http_adopt(struct http_server *server, int *fd, const struct sockaddr_storage *from)
{
    char peer[NETWORK_PEER + 8] = "@";
    const struct arrival arrival = {.uid = -1,
                                    .peer = peer,
                                    .is_trusted = networks_have(&server->options.trusted, from),
                                    .by_tls = true};

    if (server->draining)
        return -ESHUTDOWN;
    network_peer(from, peer + 1);
    server->stats.accepted++;
    int r = connection_start(server, fd, &arrival);
    if (r < 0)
        places_evict_any(server);
    places_trim(server);
    return r;
}

static void on_accept(struct watch *watch, uint32_t what)
{
    struct listener *l = (struct listener *)watch;
    int r = 0;

    (void)what;
    for (int i = 0; i < ACCEPT_AT_ONCE && r == 0; i++)
        r = accept_one(l);
    if (r < 0 && r != -EAGAIN) {
        places_evict_any(l->server);
        pause_accepting(l);
    }
    places_trim(l->server);
}

static void on_later(struct timer *timer)
{
    struct http_server *server = container_of(timer, struct http_server, later);
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
    places_trim(server);
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
    o->max_unknown = o->max_unknown ? o->max_unknown : o->max_connections;
    o->owner_connections = o->owner_connections ? o->owner_connections : o->max_connections;
    o->owner_streams = o->owner_streams ? o->owner_streams : o->owner_connections;
    o->address_connections = o->address_connections ? o->address_connections : o->max_unknown;
    o->head_ms = o->head_ms ? o->head_ms : DEFAULT_HEAD_MS;
    o->body_ms = o->body_ms ? o->body_ms : DEFAULT_BODY_MS;
    o->idle_ms = o->idle_ms ? o->idle_ms : DEFAULT_IDLE_MS;
    o->stream_ms = o->stream_ms ? o->stream_ms : DEFAULT_STREAM_MS;
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
    for (struct connection *c; (c = places_any(server, true));)
        connection_close(c);
    return server->stats.connections == 0;
}

void http_close(struct http_server *server)
{
    if (!server)
        return;
    (void)http_drain(server);
    for (struct connection *c; (c = places_any(server, false));)
        connection_close(c);
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

bool http_is_answered(const struct exchange *x)
{
    return x->answered;
}

bool http_is_finished(const struct exchange *x)
{
    return x->answered && x->finished;
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
