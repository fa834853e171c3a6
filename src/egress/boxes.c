/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "egress/authority.h"
#include "egress/egress.h"
#include "egress/inspected.h"

enum {
    SPENT_TOLD = 64, /* so many times while the bound is used up */
    ACCEPT_TURN = 64,
    PAUSE_MS = 100, /* when nothing can be accepted */
};

/* --- bytes --- */

static void look_at_hour(struct box *box)
{
    uint64_t hour = now_ms() / EGRESS_HOUR_MS;

    if (hour != box->hour)
        box->hour_bytes = 0;
    box->hour = hour;
}

bool box_has_bytes(struct box *box, size_t *ret_left)
{
    *ret_left = SIZE_MAX;
    if (box->bytes_per_hour == 0)
        return true;
    look_at_hour(box);
    if (box->hour_bytes >= box->bytes_per_hour)
        return false;
    *ret_left = (size_t)(box->bytes_per_hour - box->hour_bytes);
    return true;
}

void box_spend(struct box *box, size_t n)
{
    box->hour_bytes += n;
    box->untold_bytes += n;
    if (box->bytes_per_hour && box->untold_bytes > box->bytes_per_hour / SPENT_TOLD)
        box_tell_spent(box);
}

void box_tell_spent(struct box *box)
{
    if (box->bytes_per_hour && box->untold_bytes)
        news_tell(box->egress, &(struct egress_news){.kind = EGRESS_SPENT,
                                                     .id = box->id,
                                                     .host = "",
                                                     .rule = "",
                                                     .up = box->untold_bytes});
    box->untold_bytes = 0;
}

/* --- listening sockets --- */

static void called(struct watch *watch, uint32_t what);

static int listen_again(struct port *port)
{
    port->watch.ready = called;
    return events_watch(port->box->egress->events, &port->watch, port->fd, EPOLLIN);
}

static void pause_over(struct timer *timer)
{
    struct port *port = (struct port *)(void *)((char *)timer - offsetof(struct port, timer));

    if (listen_again(port) < 0)
        (void)timer_set(port->box->egress->events, timer, now_ms() + PAUSE_MS);
}

static void called(struct watch *watch, uint32_t what)
{
    struct port *port = (struct port *)(void *)watch;
    struct events *events = port->box->egress->events;

    (void)what;
    for (int i = 0; i < ACCEPT_TURN; i++) {
        int fd = accept4(port->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            port->take(port, &fd);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN)
            return;
        events_forget(events, watch); /* no descriptor, or no memory */
        port->timer.ring = pause_over;
        (void)timer_set(events, &port->timer, now_ms() + PAUSE_MS);
        return;
    }
}

int port_listen(struct port *port, void (*take)(struct port *port, int *fd))
{
    port->take = take;
    return listen_again(port);
}

static void take_connection(struct port *port, int *fd)
{
    connection_accept(port->box, fd, port->port);
}

void port_close(struct port *port)
{
    events_forget(port->box->egress->events, &port->watch);
    timer_stop(port->box->egress->events, &port->timer);
    scope_close(&port->fd);
}

/* Of an IPv4 or IPv6 socket of that type that listens, if it is of streams; 0: it is another. It
 * does not block any more, for nobody who has it. */
static uint16_t port_of(int fd, int type)
{
    struct sockaddr_in at = {.sin_family = AF_UNSPEC};
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(address);
    socklen_t size = sizeof(int);
    int is = 0;
    int listens = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &is, &size) < 0 || is != type ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 ||
        listens != (type == SOCK_STREAM) || getsockname(fd, (struct sockaddr *)&address, &n) < 0 ||
        (address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
        fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
        return 0;
    memcpy(&at, &address, sizeof(at)); /* the port is at the same place in both */
    return ntohs(at.sin_port);
}

/* Whether the kernel can be asked over it. */
static bool is_diag(int fd)
{
    int domain = 0;
    socklen_t n = sizeof(domain);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_NETLINK;
}

static void port_init(struct box *box, struct port *port, int *fd, uint16_t number)
{
    *port = (struct port){.watch = {.fd = -1}, .box = box, .fd = take_fd(fd), .port = number};
}

/* --- sandboxes --- */

static struct box **find(struct egress *e, uint64_t id)
{
    struct box **at = &e->boxes;

    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

/* All or none. 0 or -1. */
static int set_rules(struct box *box, const char *const *lines, struct err *err)
{
    size_t count = 0;

    while (lines[count])
        count++;
    struct network_rule *rules = calloc(count + 1, sizeof(*rules));
    if (!rules)
        return err_set(err, ERR_LIMIT, ENOMEM, "take the rules");
    for (size_t i = 0; i < count; i++) {
        if (network_parse_rule(lines[i], &rules[i], err) < 0) {
            free(rules);
            return -1;
        }
    }
    free(box->rules);
    box->rules = rules;
    box->rule_count = count;
    return 0;
}

static void set_limits(struct box *box, const struct egress_order *order)
{
    box->most = order->connections == 0                 ? CONNECTIONS_DEFAULT
                : order->connections < CONNECTIONS_MOST ? (size_t)order->connections
                                                        : CONNECTIONS_MOST;
    box->bytes_per_hour = order->bytes_per_hour;
}

/* What the port of a socket inside is called: "512=8080" is one of the places. */
static uint16_t name_of(uint16_t port, const char *places)
{
    while (port && *places) {
        char *end;
        unsigned long place = strtoul(places, &end, 10);
        unsigned long name = *end == '=' ? strtoul(end + 1, &end, 10) : 0;
        if (place == port)
            return name <= UINT16_MAX ? (uint16_t)name : 0;
        if (*end != ',')
            break;
        places = end + 1;
    }
    return port;
}

static int take_sockets(struct box *box, const char *places, int *fds, size_t count,
                        struct err *err)
{
    if (count < EGRESS_SOCKETS || count > EGRESS_SOCKETS + EGRESS_PORTS ||
        !port_of(fds[0], SOCK_DGRAM) || !port_of(fds[1], SOCK_STREAM))
        return err_set(err, ERR_INVALID, 0, "not the sockets of a sandbox");
    for (size_t i = EGRESS_SOCKETS; i < count; i++) {
        uint16_t port = name_of(port_of(fds[i], SOCK_STREAM), places);
        bool is_udp = port == 0 && (port = port_of(fds[i], SOCK_DGRAM)) != 0;
        if (port == 0)
            return err_set(err, ERR_INVALID, 0, "not a socket that listens");
        port_init(box, &box->ports[box->port_count], &fds[i], port);
        box->ports[box->port_count++].is_udp = is_udp;
    }
    port_init(box, &box->udp, &fds[0], 0);
    port_init(box, &box->tcp, &fds[1], 0);
    if (is_diag(fds[2]))
        box->diag = take_fd(&fds[2]);
    return 0;
}

static int begin(struct box *box, struct err *err)
{
    if (box->diag >= 0)
        who_begin(box);
    if (questions_open(box, err) < 0)
        return -1;
    for (size_t i = 0; i < box->port_count; i++) {
        int r = box->ports[i].is_udp ? udp_listen(&box->ports[i])
                                     : port_listen(&box->ports[i], take_connection);
        if (r < 0)
            return err_set(err, ERR_IO, -r, "listen");
    }
    return 0;
}

static void free_box(struct box *box)
{
    connections_end(box, "the sandbox has ended");
    udp_end(box, "the sandbox has ended");
    questions_close(box);
    for (size_t i = 0; i < box->port_count; i++)
        port_close(&box->ports[i]);
    scope_close(&box->diag);
    names_clear(&box->names);
    leaves_clear(box);
    authority_free(box->authority);
    free(box->owner);
    free(box->refusals);
    free(box->rules);
    free(box);
}

static int take_owner(struct box *box, const struct egress_order *order, struct err *err)
{
    box->owner = strdup(order->owner);
    if (!box->owner)
        return err_set(err, ERR_LIMIT, ENOMEM, "serve a sandbox");
    if (!*order->authority || !box->egress->tls)
        return 0;
    box->authority = authority_open(order->authority, err);
    return box->authority ? 0 : -1;
}

static int add(struct egress *e, const struct egress_order *order, int *fds, size_t count,
               struct err *err)
{
    if (*find(e, order->id))
        return err_set(err, ERR_CONFLICT, 0, "a sandbox that is there already");
    struct box *box = calloc(1, sizeof(*box));
    if (!box)
        return err_set(err, ERR_LIMIT, ENOMEM, "serve a sandbox");
    box->egress = e;
    box->id = order->id;
    box->diag = -1;
    set_limits(box, order);
    look_at_hour(box);
    int none = -1;
    port_init(box, &box->udp, &none, 0);
    port_init(box, &box->tcp, &none, 0);
    if (take_owner(box, order, err) < 0 || set_rules(box, order->rules, err) < 0 ||
        take_sockets(box, order->places, fds, count, err) < 0 || begin(box, err) < 0) {
        free_box(box);
        return -1;
    }
    box->next = e->boxes;
    e->boxes = box;
    return 0;
}

static int change(struct egress *e, const struct egress_order *order, int *fds, size_t count,
                  struct err *err)
{
    struct box *box = *find(e, order->id);

    (void)fds;
    if (!box || count > 0)
        return err_set(err, ERR_NOT_FOUND, 0, "rules for a sandbox that is not there");
    if (set_rules(box, order->rules, err) < 0)
        return -1;
    set_limits(box, order);
    connections_check(box);
    udp_check(box);
    return 0;
}

static int spend(struct egress *e, const struct egress_order *order, int *fds, size_t count,
                 struct err *err)
{
    struct box *box = *find(e, order->id);

    (void)fds;
    if (!box || count > 0)
        return err_set(err, ERR_NOT_FOUND, 0, "bytes of a sandbox that is not there");
    look_at_hour(box);
    box->hour_bytes += order->bytes_per_hour;
    return 0;
}

static int drop(struct egress *e, const struct egress_order *order, int *fds, size_t count,
                struct err *err)
{
    struct box **at = find(e, order->id);
    struct box *box = *at;

    (void)fds;
    if (!box || count > 0)
        return err_set(err, ERR_NOT_FOUND, 0, "the end of a sandbox that is not there");
    *at = box->next;
    connections_end(box, "the sandbox has ended");
    box_tell_spent(box);
    news_flush(box);
    free_box(box);
    news_tell(e, &(struct egress_news){.kind = EGRESS_DROPPED, .id = order->id});
    return 0;
}

static int keep_secret(struct egress *e, const struct egress_order *order, int *fds, size_t count,
                       struct err *err)
{
    (void)fds;
    return count > 0 ? err_set(err, ERR_INVALID, 0, "a secret with a socket")
                     : secrets_hear(e, order, err);
}

void boxes_hear(struct egress *e, const struct egress_order *order, int *fds, size_t count)
{
    static int (*const orders[EGRESS_ORDER_COUNT_])(
        struct egress * e, const struct egress_order *order, int *fds, size_t count,
        struct err *err) = {[EGRESS_ADD] = add,
                            [EGRESS_CHANGE] = change,
                            [EGRESS_SPEND] = spend,
                            [EGRESS_DROP] = drop,
                            [EGRESS_SECRET] = keep_secret};
    struct err err;
    char text[512];

    if (orders[order->kind](e, order, fds, count, &err) < 0)
        log_warning("order_failed", "message", err_text(&err, text, sizeof(text)), NULL);
}
