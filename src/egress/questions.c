/* SPDX-License-Identifier: Apache-2.0 */
/* The name server of a sandbox, over UDP and TCP. It asks nobody: what a rule allows has an
 * address, of this sandbox's own, and everything else does not exist. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "egress/dns.h"
#include "egress/egress.h"

enum {
    TURN = 64,
    LENGTH = 2, /* in front of each message over TCP */
    ASKING_MS = 10000,
};

/* One connection for questions. */
struct asking {
    struct watch watch; /* first */
    struct timer timer;
    struct box *box;
    struct asking *next;
    struct asking *previous;
    int fd;
    size_t n;
    unsigned char bytes[LENGTH + DNS_MOST];
};

/* Where a question has come from. */
struct asker {
    int fd;
    const struct sockaddr_storage *from; /* NULL: fd is a connection */
};

static uint64_t group_of(struct box *box, const struct asker *asker)
{
    struct sockaddr_storage here = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(here);

    if (!asker->from)
        return who_connects(box, asker->fd);
    return getsockname(asker->fd, (struct sockaddr *)&here, &n) == 0
               ? who_asks(box, IPPROTO_UDP, asker->from, &here)
               : EGRESS_NOBODY;
}

static void refuse_name(struct box *box, uint64_t group, const struct dns_question *q,
                        const struct network_rule *rule)
{
    char fix[EGRESS_TEXT + 1] = "";
    char text[NETWORK_RULE] = "";
    struct refused refused = {.group = group,
                              .host = *q->name ? q->name : q->shown,
                              .rule = rule ? network_rule_text(rule, text) : "",
                              .fix = fix};

    if (!*q->name) {
        refused.why = "this is no name of a host";
    } else if (rule) {
        refused.why = "a rule denies it";
        refused.fix = "take the rule away";
    } else {
        refused.why = "no rule allows it";
        snprintf(fix, sizeof(fix), "allow \"%s\"", q->name);
    }
    news_refuse(box, &refused);
}

/* 0: there is no answer. */
static size_t answer(struct box *box, const struct asker *asker, const unsigned char *message,
                     size_t n, unsigned char ret[DNS_ANSWER])
{
    struct dns_question q;
    enum dns_code code;
    uint32_t address = 0;

    if (!dns_read(message, n, &q, &code))
        return 0;
    if (code == DNS_OK) {
        const struct network_rule *rule =
            *q.name ? network_decide(box->rules, box->rule_count, q.name, 0) : NULL;
        if ((!rule || rule->deny) && !weak("net-names")) {
            refuse_name(box, group_of(box, asker), &q, rule);
            code = DNS_NO_SUCH_NAME;
        } else if (q.asks_address && (address = names_give(&box->names, q.name)) == 0) {
            news_refuse(box, &(struct refused){.group = group_of(box, asker),
                                               .host = q.name,
                                               .rule = "",
                                               .why = "the sandbox has asked for too many names",
                                               .fix = ""});
            code = DNS_FAILED;
        }
    }
    return dns_write(message, &q, code, address, ret);
}

static void hear_datagrams(struct watch *watch, uint32_t what)
{
    struct port *port = (struct port *)(void *)watch;
    unsigned char message[DNS_MOST];
    unsigned char reply[DNS_ANSWER];

    (void)what;
    for (int i = 0; i < TURN; i++) {
        struct sockaddr_storage from;
        socklen_t size = sizeof(from);
        ssize_t n = recvfrom(port->fd, message, sizeof(message), MSG_DONTWAIT,
                             (struct sockaddr *)&from, &size);
        if (n < 0 && errno == EAGAIN)
            return;
        const struct asker asker = {port->fd, &from};
        size_t length = n > 0 ? answer(port->box, &asker, message, (size_t)n, reply) : 0;
        if (length > 0) /* one that is lost is asked for again */
            ignore(sendto(port->fd, reply, length, MSG_DONTWAIT | MSG_NOSIGNAL,
                          (struct sockaddr *)&from, size));
    }
}

/* --- over TCP --- */

static void asking_close(struct asking *a)
{
    struct events *events = a->box->egress->events;

    events_forget(events, &a->watch);
    timer_stop(events, &a->timer);
    scope_close(&a->fd);
    if (a->previous)
        a->previous->next = a->next;
    else
        a->box->asking = a->next;
    if (a->next)
        a->next->previous = a->previous;
    a->box->asking_count--;
    free(a);
}

static void asking_late(struct timer *timer)
{
    asking_close((struct asking *)(void *)((char *)timer - offsetof(struct asking, timer)));
}

/* Answers what is there as a whole. False: it is over. */
static bool answer_stream(struct asking *a)
{
    unsigned char reply[LENGTH + DNS_ANSWER];
    const struct asker asker = {a->fd, NULL};

    while (a->n >= LENGTH) {
        size_t n = (size_t)a->bytes[0] << 8 | a->bytes[1];
        if (n > DNS_MOST)
            return false;
        if (a->n < LENGTH + n)
            return true;
        size_t length = answer(a->box, &asker, a->bytes + LENGTH, n, reply + LENGTH);
        reply[0] = (unsigned char)(length >> 8);
        reply[1] = (unsigned char)length;
        /* Who asks and does not read has what does not fit into the socket for an end. */
        if (length == 0 || send(a->fd, reply, LENGTH + length, MSG_DONTWAIT | MSG_NOSIGNAL) !=
                               (ssize_t)(LENGTH + length))
            return false;
        a->n -= LENGTH + n;
        memmove(a->bytes, a->bytes + LENGTH + n, a->n);
    }
    return true;
}

static void hear_stream(struct watch *watch, uint32_t what)
{
    struct asking *a = (struct asking *)(void *)watch;
    ssize_t n = recv(a->fd, a->bytes + a->n, sizeof(a->bytes) - a->n, MSG_DONTWAIT);

    (void)what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        asking_close(a);
        return;
    }
    a->n += (size_t)n;
    if (!answer_stream(a) || timer_set(a->box->egress->events, &a->timer, now_ms() + ASKING_MS) < 0)
        asking_close(a);
}

static void accept_asking(struct box *box, int *fd)
{
    struct events *events = box->egress->events;
    struct asking *a = box->asking_count < ASKING_MOST ? calloc(1, sizeof(*a)) : NULL;

    if (!a) {
        scope_close(fd);
        return;
    }
    a->watch = (struct watch){.ready = hear_stream, .fd = -1};
    a->timer.ring = asking_late;
    a->box = box;
    a->fd = take_fd(fd);
    a->next = box->asking;
    if (a->next)
        a->next->previous = a;
    box->asking = a;
    box->asking_count++;
    if (events_watch(events, &a->watch, a->fd, EPOLLIN) < 0 ||
        timer_set(events, &a->timer, now_ms() + ASKING_MS) < 0)
        asking_close(a);
}

static void called(struct port *port, int *fd)
{
    accept_asking(port->box, fd);
}

int questions_open(struct box *box, struct err *err)
{
    struct events *events = box->egress->events;

    box->udp.watch.ready = hear_datagrams;
    int r = events_watch(events, &box->udp.watch, box->udp.fd, EPOLLIN);
    if (r == 0)
        r = port_listen(&box->tcp, called);
    return r < 0 ? err_set(err, ERR_IO, -r, "answer questions") : 0;
}

void questions_close(struct box *box)
{
    struct asking *next;

    for (struct asking *a = box->asking; a; a = next) {
        next = a->next;
        asking_close(a);
    }
    port_close(&box->udp);
    port_close(&box->tcp);
}
