/* SPDX-License-Identifier: Apache-2.0 */
/* UDP, where a rule names it. An exchange is what one socket inside sends to one name at one port,
 * and what comes back from the one address that the name had when it began; it ends when nothing
 * has moved for a while. Nothing is kept but what came while the address was asked for. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "egress/egress.h"

enum {
    IDLE_MS = 60000,
    MOST = 128, /* exchanges of a sandbox */
    KEPT = 8,   /* datagrams that wait for the address */
    TURN = 64,
    LARGEST = 65536,
};

struct kept {
    size_t n;
    unsigned char *bytes;
};

struct exchange {
    struct watch watch; /* first: of the socket outside */
    struct timer timer;
    struct port *port;
    struct exchange *next;
    uint64_t number;
    const char *host; /* in the names of the box */
    char *rule;
    struct sockaddr_in inside;
    struct in_addr called; /* the address inside that was sent to */
    struct dial *dial;
    int fd;
    struct kept kept[KEPT];
    size_t kept_count;
    uint64_t since_ms;
    uint64_t moved_ms;
    uint64_t up;
    uint64_t down;
};

static const char no_rule[] = "no rule allows it";
static const char denied[] = "a rule denies it";
static const char no_name[] = "it is not the address of a name";
static const char too_many[] = "the sandbox has too many exchanges over UDP";
static const char used_up[] = "the workspace has used up its bytes of this hour";
static const char no_room[] = "carrel-egress has no room";

static void tell(const struct exchange *x, enum egress_news_kind kind, const char *why)
{
    struct box *box = x->port->box;

    news_tell(box->egress, &(struct egress_news){.kind = kind,
                                                 .id = box->id,
                                                 .connection = x->number,
                                                 .host = x->host,
                                                 .port = x->port->port,
                                                 .rule = x->rule,
                                                 .why = why,
                                                 .up = x->up,
                                                 .down = x->down,
                                                 .ms = now_ms() - x->since_ms});
}

static void refuse(const struct port *port, const char *host, const struct network_rule *rule,
                   const char *why, const char *fix)
{
    char text[NETWORK_RULE] = "";
    char own[EGRESS_TEXT + 1];

    if (why == no_rule) {
        snprintf(own, sizeof(own), "allow \"%s:%u udp\"", host, (unsigned)port->port);
        fix = own;
    }
    news_refuse(port->box, &(struct refused){.group = EGRESS_NOBODY,
                                             .host = host,
                                             .port = port->port,
                                             .rule = rule ? network_rule_text(rule, text) : "",
                                             .why = why,
                                             .fix = fix});
}

/* Gone afterwards. */
static void end(struct exchange *x, const char *why)
{
    struct box *box = x->port->box;
    struct exchange **at = &box->exchanges;

    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    if (x->fd >= 0)
        tell(x, EGRESS_CLOSED, why);
    if (x->dial)
        dial_cancel(x->dial);
    events_forget(box->egress->events, &x->watch);
    timer_stop(box->egress->events, &x->timer);
    scope_close(&x->fd);
    while (x->kept_count > 0)
        free(x->kept[--x->kept_count].bytes);
    box->count--;
    box->egress->connections--;
    free(x->rule);
    free(x);
}

static void rested(struct timer *timer)
{
    struct exchange *x =
        (struct exchange *)(void *)((char *)timer - offsetof(struct exchange, timer));
    uint64_t due = x->moved_ms + IDLE_MS;

    if (now_ms() >= due || timer_set(x->port->box->egress->events, timer, due) < 0)
        end(x, "");
}

/* Bytes of this hour; false: there are none left. */
static bool spend(struct exchange *x, size_t n, uint64_t *count)
{
    struct box *box = x->port->box;
    size_t left;

    if (!box_has_bytes(box, &left) || left < n) {
        refuse(x->port, x->host, NULL, used_up, "allow more \"bytes_per_hour\"");
        return false;
    }
    box_spend(box, n);
    *count += n;
    x->moved_ms = now_ms();
    return true;
}

static void send_out(struct exchange *x, const void *bytes, size_t n)
{
    if (spend(x, n, &x->up))
        ignore(send(x->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) >=
               0); /* it may be lost, as any */
}

/* From the address that was sent to: others are not listened to inside. */
static void send_in(struct exchange *x, void *bytes, size_t n)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = {0};
    struct iovec part = {bytes, n};
    struct msghdr message = {.msg_name = &x->inside,
                             .msg_namelen = sizeof(x->inside),
                             .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    struct in_pktinfo from = {.ipi_spec_dst = x->called};

    head->cmsg_level = IPPROTO_IP;
    head->cmsg_type = IP_PKTINFO;
    head->cmsg_len = CMSG_LEN(sizeof(from));
    memcpy(CMSG_DATA(head), &from, sizeof(from));
    if (spend(x, n, &x->down))
        ignore(sendmsg(x->port->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0);
}

static void outside_ready(struct watch *watch, uint32_t what)
{
    static char bytes[LARGEST];
    struct exchange *x = (struct exchange *)(void *)watch;

    (void)what;
    for (int i = 0; i < TURN; i++) {
        ssize_t n = recv(x->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n >= 0)
            send_in(x, bytes, (size_t)n);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR && errno != ECONNREFUSED) {
            end(x, "the network has failed");
            return;
        }
    }
}

static void dialled(void *context, const struct dial_answer *answer)
{
    struct exchange *x = context;

    x->dial = NULL;
    x->fd = answer->fd;
    x->watch.ready = outside_ready;
    if (x->fd < 0) {
        refuse(x->port, x->host, NULL, answer->why, answer->fix);
        end(x, "");
        return;
    }
    tell(x, EGRESS_OPENED, "");
    if (events_watch(x->port->box->egress->events, &x->watch, x->fd, EPOLLIN) < 0) {
        end(x, no_room);
        return;
    }
    for (size_t i = 0; i < x->kept_count; i++) {
        send_out(x, x->kept[i].bytes, x->kept[i].n);
        free(x->kept[i].bytes);
    }
    x->kept_count = 0;
}

static void keep(struct exchange *x, const void *bytes, size_t n)
{
    unsigned char *copy = x->kept_count < KEPT ? malloc(n ? n : 1) : NULL;

    if (!copy)
        return; /* lost, as any may be */
    memcpy(copy, bytes, n);
    x->kept[x->kept_count++] = (struct kept){n, copy};
}

/* --- what comes from inside --- */

static struct exchange *find(const struct port *port, const struct sockaddr_in *from,
                             struct in_addr called)
{
    struct exchange *x = port->box->exchanges;

    while (x && (x->port != port || x->called.s_addr != called.s_addr ||
                 x->inside.sin_port != from->sin_port ||
                 x->inside.sin_addr.s_addr != from->sin_addr.s_addr))
        x = x->next;
    return x;
}

static size_t count_of(const struct box *box)
{
    size_t n = 0;

    for (const struct exchange *x = box->exchanges; x; x = x->next)
        n++;
    return n;
}

static struct exchange *make(struct port *port, const struct sockaddr_in *from,
                             struct in_addr called, const char *host,
                             const struct network_rule *rule)
{
    struct exchange *x = calloc(1, sizeof(*x));
    struct box *box = port->box;
    char text[NETWORK_RULE];

    if (!x || !(x->rule = strdup(network_rule_text(rule, text)))) {
        free(x);
        return NULL;
    }
    x->port = port;
    x->inside = *from;
    x->called = called;
    x->host = host;
    x->fd = x->watch.fd = -1;
    x->number = ++box->egress->last_connection;
    x->since_ms = x->moved_ms = now_ms();
    x->timer.ring = rested;
    x->next = box->exchanges;
    box->exchanges = x;
    box->count++;
    box->egress->connections++;
    return x;
}

static struct exchange *begin(struct port *port, const struct sockaddr_in *from,
                              struct in_addr called)
{
    struct box *box = port->box;
    const char *host = names_find(&box->names, ntohl(called.s_addr));
    char text[INET_ADDRSTRLEN];

    if (!host) {
        refuse(port, inet_ntop(AF_INET, &called, text, sizeof(text)), NULL, no_name,
               "send to a name: addresses are not allowed");
        return NULL;
    }
    const struct network_rule *rule =
        weak("net-rules")
            ? box->rules
            : network_decide(box->rules, box->rule_count, host, NETWORK_UDP | port->port);
    const char *why = !rule ? no_rule : rule->deny ? denied : NULL;
    if (!why && (box->count >= box->most || count_of(box) >= MOST))
        why = too_many;
    if (!why && (box->egress->connections >= box->egress->most || news_are_stuck(box->egress)))
        why = no_room;
    struct exchange *x = why ? NULL : make(port, from, called, host, rule);
    if (!x) {
        refuse(port, host, rule, why ? why : no_room, "");
        return NULL;
    }
    x->dial = dial_begin(box->egress, host, NETWORK_UDP | port->port, dialled, x);
    if (x->dial && timer_set(box->egress->events, &x->timer, now_ms() + IDLE_MS) == 0)
        return x;
    refuse(port, host, rule, no_room, "");
    end(x, "");
    return NULL;
}

static void take(struct port *port, const struct sockaddr_in *from, struct in_addr called,
                 const void *bytes, size_t n)
{
    struct exchange *x = find(port, from, called);

    if (!x)
        x = begin(port, from, called);
    if (!x)
        return;
    if (x->dial)
        keep(x, bytes, n);
    else
        send_out(x, bytes, n);
}

/* Where it was sent to; 0: the kernel does not say. */
static struct in_addr called_of(struct msghdr *message)
{
    struct in_pktinfo info = {.ipi_addr = {0}};

    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO &&
            h->cmsg_len >= CMSG_LEN(sizeof(info)))
            memcpy(&info, CMSG_DATA(h), sizeof(info));
    }
    return info.ipi_addr;
}

static void inside_ready(struct watch *watch, uint32_t what)
{
    static char bytes[LARGEST];
    struct port *port = (struct port *)(void *)watch;

    (void)what;
    for (int i = 0; i < TURN; i++) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct sockaddr_in from = {.sin_family = AF_UNSPEC};
        struct iovec part = {bytes, sizeof(bytes)};
        struct msghdr message = {.msg_name = &from,
                                 .msg_namelen = sizeof(from),
                                 .msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(port->fd, &message, MSG_DONTWAIT);
        if (n < 0 && errno != EINTR)
            return;
        struct in_addr called = n < 0 ? (struct in_addr){0} : called_of(&message);
        if (called.s_addr && from.sin_family == AF_INET)
            take(port, &from, called, bytes, (size_t)n);
    }
}

int udp_listen(struct port *port)
{
    static const int on = 1;

    if (setsockopt(port->fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) < 0)
        return -errno;
    port->watch.ready = inside_ready;
    return events_watch(port->box->egress->events, &port->watch, port->fd, EPOLLIN);
}

void udp_check(struct box *box)
{
    struct exchange *next;

    for (struct exchange *x = box->exchanges; x; x = next) {
        const struct network_rule *rule =
            network_decide(box->rules, box->rule_count, x->host, NETWORK_UDP | x->port->port);
        next = x->next;
        if (rule && !rule->deny)
            continue;
        refuse(x->port, x->host, rule, rule ? denied : no_rule, "");
        end(x, "the rules have changed");
    }
}

void udp_end(struct box *box, const char *why)
{
    struct exchange *next;

    for (struct exchange *x = box->exchanges; x; x = next) {
        next = x->next;
        end(x, why);
    }
}
