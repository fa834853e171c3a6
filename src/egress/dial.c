/* SPDX-License-Identifier: Apache-2.0 */
/* From a name to a connection: its addresses are asked for now, all of them are looked at, and one
 * of those that were looked at is connected to. */
#include <ares.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/weak.h"
#include "egress/egress.h"

enum {
    ADDRESSES = 8, /* of one name that are tried */
    ADDRESS_MS = 5000,
    ASK_MS = 2500, /* one name server, the first time */
    ASK_TRIES = 2,
    LOOK_MS = 1000, /* at the host's settings, at most so often */
};

#define SETTINGS "/etc/resolv.conf"

/* A socket of the resolver's. */
struct asked {
    struct watch watch; /* first */
    struct dialer *dialer;
    struct asked *next;
};

/* Reads the host's settings once: when they have changed another takes its place, and this one goes
 * with the last answer that it waits for. */
struct dialer {
    struct egress *egress;
    ares_channel channel;
    struct asked *asked;
    struct timer timer;
    struct stat settings;
    uint64_t looked_ms; /* at them */
    size_t waiting;     /* names it is asked for */
    bool is_retired;
};

struct address {
    struct sockaddr_storage to;
    socklen_t n;
};

/* Belongs to who began it, until it is cancelled or has called back; while `is_asking` the resolver
 * holds it too. */
struct dial {
    struct watch watch; /* first */
    struct timer timer;
    struct egress *egress;
    struct dialer *dialer; /* while it is asking */
    dial_done *done;       /* NULL: cancelled */
    void *context;
    const char *name; /* the owner's */
    uint16_t port;
    int type; /* of the socket */
    bool is_asking;
    struct address addresses[ADDRESSES];
    size_t count;
    size_t at;
    int fd;
    const char *why; /* it has failed */
    const char *fix;
};

/* --- the resolver's sockets --- */

static void dialer_close(struct timer *timer)
{
    struct dialer *d = (struct dialer *)(void *)((char *)timer - offsetof(struct dialer, timer));

    ares_destroy(d->channel); /* which takes its sockets out of the loop */
    free(d);
}

static void set_ask_timer(struct dialer *d)
{
    struct timeval left;

    if (d->is_retired && d->waiting == 0) {
        d->timer.ring = dialer_close; /* not now: it may be at work */
        (void)timer_set(d->egress->events, &d->timer, now_ms());
        return;
    }
    if (!ares_timeout(d->channel, NULL, &left))
        timer_stop(d->egress->events, &d->timer);
    else
        (void)timer_set(d->egress->events, &d->timer,
                        now_ms() + (uint64_t)left.tv_sec * 1000 + (uint64_t)left.tv_usec / 1000 +
                            1);
}

static void asked_ready(struct watch *watch, uint32_t what)
{
    struct dialer *d = ((struct asked *)(void *)watch)->dialer;
    ares_socket_t fd = watch->fd;
    bool reads = what & (EPOLLIN | EPOLLERR | EPOLLHUP);
    bool writes = what & (EPOLLOUT | EPOLLERR | EPOLLHUP);

    /* The watch may be gone afterwards. */
    ares_process_fd(d->channel, reads ? fd : ARES_SOCKET_BAD, writes ? fd : ARES_SOCKET_BAD);
    set_ask_timer(d);
}

static void asked_long(struct timer *timer)
{
    struct dialer *d = (struct dialer *)(void *)((char *)timer - offsetof(struct dialer, timer));

    ares_process_fd(d->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    set_ask_timer(d);
}

static struct asked **find_asked(struct dialer *d, ares_socket_t fd)
{
    struct asked **at = &d->asked;

    while (*at && (*at)->watch.fd != fd)
        at = &(*at)->next;
    return at;
}

static void asked_changed(void *data, ares_socket_t fd, int reads, int writes)
{
    struct dialer *d = data;
    struct events *events = d->egress->events;
    uint32_t what = (reads ? EPOLLIN : 0U) | (writes ? EPOLLOUT : 0U);
    struct asked **at = find_asked(d, fd);
    struct asked *asked = *at;

    if (asked && what) {
        (void)events_change(events, &asked->watch, what);
    } else if (asked) {
        *at = asked->next;
        events_forget(events, &asked->watch);
        free(asked);
    } else if (what && (asked = calloc(1, sizeof(*asked)))) {
        *asked = (struct asked){.watch = {.ready = asked_ready, .fd = -1}, .dialer = d};
        if (events_watch(events, &asked->watch, fd, what) < 0) {
            free(asked); /* the answer is not heard, and the question times out */
            return;
        }
        asked->next = d->asked;
        d->asked = asked;
    }
}

int dialer_open(struct egress *e, struct err *err)
{
    struct dialer *d = calloc(1, sizeof(*d));
    char lookups[] = "fb";
    struct ares_options options = {.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
                                   .timeout = ASK_MS,
                                   .tries = ASK_TRIES,
                                   .ndomains = 0, /* a name is asked for as it is */
                                   .lookups = lookups,
                                   .sock_state_cb = asked_changed,
                                   .sock_state_cb_data = d};

    if (!d)
        return err_set(err, ERR_LIMIT, ENOMEM, "open the resolver");
    d->egress = e;
    d->timer.ring = asked_long;
    d->looked_ms = now_ms();
    (void)stat(SETTINGS, &d->settings);
    int r = ares_init_options(&d->channel, &options,
                              ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                                  ARES_OPT_DOMAINS | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB);
    if (r == ARES_SUCCESS && e->options.nameservers)
        r = ares_set_servers_ports_csv(d->channel, e->options.nameservers);
    if (r != ARES_SUCCESS) {
        free(d);
        return err_set(err, ERR_INVALID, 0, "open the resolver: %s", ares_strerror(r));
    }
    e->dialer = d;
    return 0;
}

/* Where the host has other name servers by now, those are asked. */
static void look_at_settings(struct egress *e)
{
    struct dialer *d = e->dialer;
    struct stat now = {.st_ino = 0};
    struct err err;
    char text[512];

    if (e->options.nameservers || now_ms() - d->looked_ms < LOOK_MS)
        return;
    d->looked_ms = now_ms();
    if (stat(SETTINGS, &now) < 0 ||
        (now.st_ino == d->settings.st_ino && now.st_dev == d->settings.st_dev &&
         now.st_size == d->settings.st_size && now.st_mtim.tv_sec == d->settings.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == d->settings.st_mtim.tv_nsec))
        return;
    if (dialer_open(e, &err) < 0) {
        log_warning("resolver_failed", "message", err_text(&err, text, sizeof(text)), NULL);
        return;
    }
    d->is_retired = true;
    set_ask_timer(d);
}

/* --- what may be dialled --- */

static bool is_private_allowed(const struct options *o, const char *name, uint16_t port)
{
    for (size_t i = 0; i < o->private_count; i++) {
        const struct network_rule *rule = &o->private[i];
        if (network_decide(rule, 1, name, rule->port ? port : 0))
            return true;
    }
    return false;
}

static bool is_own_port(const struct options *o, uint16_t port)
{
    for (size_t i = 0; i < o->own_port_count; i++) {
        if (o->own_ports[i] == port)
            return true;
    }
    return false;
}

static bool is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    struct sockaddr_in v4[2];
    struct sockaddr_in6 v6[2];

    if (a->ss_family != b->ss_family)
        return false;
    memcpy(&v4[0], a, sizeof(v4[0]));
    memcpy(&v4[1], b, sizeof(v4[1]));
    memcpy(&v6[0], a, sizeof(v6[0]));
    memcpy(&v6[1], b, sizeof(v6[1]));
    return a->ss_family == AF_INET
               ? v4[0].sin_addr.s_addr == v4[1].sin_addr.s_addr
               : memcmp(&v6[0].sin6_addr, &v6[1].sin6_addr, sizeof(v6[0].sin6_addr)) == 0;
}

/* Whether the address is one of this host's own: what is sent there would come from there. Nothing
 * is sent. */
static bool is_own_address(const struct address *a)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(from);
    scoped_fd int fd = socket(a->to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && connect(fd, (const struct sockaddr *)&a->to, a->n) == 0 &&
           getsockname(fd, (struct sockaddr *)&from, &n) == 0 && is_same_host(&a->to, &from);
}

/* False: d->why says why not. */
static bool may_dial(struct dial *d, const struct address *a)
{
    const struct options *o = &d->egress->options;
    enum network_place place = network_place_of(&a->to, a->n);

    d->fix = "";
    if (weak("net-addresses"))
        return true;
    if (place == NETWORK_METADATA) {
        d->why = "its address is one that hands out the credentials of this machine";
        return false;
    }
    if (place == NETWORK_PUBLIC && is_own_address(a))
        place = NETWORK_PRIVATE;
    if (place == NETWORK_PUBLIC)
        return true;
    if (is_own_port(o, d->port)) {
        d->why = "this port is Carrel's own";
        return false;
    }
    if (is_private_allowed(o, d->name, d->port))
        return true;
    d->why = "its address is private, or this host's own";
    d->fix = "the owner of this host can open it: carrel run --allow-private, or network_private";
    return false;
}

/* --- connecting --- */

static void end_dial(struct dial *d)
{
    struct dial_answer answer = {.fd = take_fd(&d->fd), .why = d->why, .fix = d->fix};
    dial_done *done = d->done;
    void *context = d->context;

    if (answer.fd >= 0 && d->why)
        scope_close(&answer.fd);
    free(d);
    done(context, &answer);
}

static void stop_watching(struct dial *d)
{
    events_forget(d->egress->events, &d->watch);
    timer_stop(d->egress->events, &d->timer);
}

static void end_later(struct timer *timer)
{
    end_dial((struct dial *)(void *)((char *)timer - offsetof(struct dial, timer)));
}

/* Not now: who began may not be ready for it. */
static void fail(struct dial *d, const char *why)
{
    d->why = why;
    d->timer.ring = end_later;
    (void)timer_set(d->egress->events, &d->timer, now_ms()); /* else its owner's time is up later */
}

static const char *reason(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return "the server refuses connections to this port";
    case ENETUNREACH:
    case EHOSTUNREACH:
        return "there is no way to the server";
    case ETIMEDOUT:
        return "the server does not answer";
    default:
        return "the server cannot be connected to";
    }
}

static void try_next(struct dial *d, int error);

static void connected(struct watch *watch, uint32_t what)
{
    struct dial *d = (struct dial *)(void *)watch;
    socklen_t n = sizeof(int);
    int error = 0;

    (void)what;
    stop_watching(d);
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error == 0) {
        end_dial(d);
        return;
    }
    scope_close(&d->fd);
    try_next(d, error);
}

static void too_slow(struct timer *timer)
{
    struct dial *d = (struct dial *)(void *)((char *)timer - offsetof(struct dial, timer));

    stop_watching(d);
    scope_close(&d->fd);
    try_next(d, ETIMEDOUT);
}

static int begin_to_connect(struct dial *d, const struct address *a)
{
    static const int on = 1;

    d->fd = socket(a->to.ss_family, d->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->fd < 0)
        return -errno;
    if (d->type == SOCK_STREAM) {
        (void)setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)setsockopt(d->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    if (connect(d->fd, (const struct sockaddr *)&a->to, a->n) < 0 && errno != EINPROGRESS)
        return -errno;
    d->watch.ready = connected;
    int r = events_watch(d->egress->events, &d->watch, d->fd, EPOLLOUT);
    if (r < 0)
        return r;
    d->timer.ring = too_slow;
    return d->at < d->count ? timer_set(d->egress->events, &d->timer, now_ms() + ADDRESS_MS) : 0;
}

static void try_next(struct dial *d, int error)
{
    while (d->at < d->count) {
        int r = begin_to_connect(d, &d->addresses[d->at++]);
        if (r == 0)
            return;
        error = -r;
        stop_watching(d);
        scope_close(&d->fd);
    }
    fail(d, reason(error));
}

/* --- addresses --- */

/* All are looked at; of those of one family the first are kept. False: one may not be dialled. */
static bool take_addresses(struct dial *d, const struct ares_addrinfo *found, int family)
{
    struct sockaddr_in v4;

    for (const struct ares_addrinfo_node *node = found->nodes; node; node = node->ai_next) {
        struct address a = {.n = node->ai_addrlen};
        if (node->ai_family != family || a.n > sizeof(a.to))
            continue;
        memcpy(&a.to, node->ai_addr, a.n);
        memcpy(&v4, &a.to, sizeof(v4));
        v4.sin_port = htons(d->port); /* at the same place in both families */
        memcpy(&a.to, &v4, sizeof(v4));
        if (!may_dial(d, &a))
            return false;
        if (d->count < ADDRESSES)
            d->addresses[d->count++] = a;
    }
    return true;
}

static const char *why_not_found(int status)
{
    switch (status) {
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
        return "there is no such host";
    case ARES_ETIMEOUT:
    case ARES_ECONNREFUSED:
        return "no name server answers";
    default:
        return "its address could not be found out";
    }
}

static void found(void *context, int status, int timeouts, struct ares_addrinfo *result)
{
    struct dial *d = context;

    (void)timeouts;
    d->is_asking = false;
    d->dialer->waiting--; /* who called us looks whether that was the last */
    if (!d->done) {
        free(d);
    } else if (status != ARES_SUCCESS) {
        fail(d, why_not_found(status));
    } else if (!take_addresses(d, result, AF_INET) || !take_addresses(d, result, AF_INET6)) {
        fail(d, d->why);
    } else {
        try_next(d, EHOSTUNREACH);
    }
    if (result)
        ares_freeaddrinfo(result);
}

struct dial *dial_begin(struct egress *e, const char *name, uint32_t port, dial_done *done,
                        void *context)
{
    static const struct ares_addrinfo_hints hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT};
    struct dial *d = calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    d->watch.fd = -1;
    d->egress = e;
    d->done = done;
    d->context = context;
    d->name = name;
    d->port = (uint16_t)port;
    d->type = port & NETWORK_UDP ? SOCK_DGRAM : SOCK_STREAM;
    d->fd = -1;
    d->fix = "";
    d->is_asking = true;
    look_at_settings(e);
    struct dialer *dialer = d->dialer = e->dialer;
    dialer->waiting++;
    ares_getaddrinfo(dialer->channel, name, NULL, &hints, found, d);
    set_ask_timer(dialer);
    return d;
}

void dial_cancel(struct dial *d)
{
    stop_watching(d);
    scope_close(&d->fd);
    d->done = NULL;
    if (!d->is_asking)
        free(d);
}
