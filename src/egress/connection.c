/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "egress/egress.h"
#include "egress/inspected.h"

enum {
    DIAL_MS = 20000,
    LOOK_MS = 15000,  /* for the rest of a hello, or of a head */
    HALF_MS = 300000, /* one side has ended, and nothing moves */
};

static const char no_rule[] = "no rule allows it";
static const char denied[] = "a rule denies it";
static const char stricter[] = "the rule that allows it looks at more than when it was made";
static const char no_authority[] =
    "its requests are to be looked at, which this sandbox was not made for";
static const char no_name[] = "no name has this address";
static const char too_many[] = "the sandbox has as many connections as it may have";
static const char no_room[] = "there is no room for more connections now";
static const char spent[] = "the sandbox has used up its bytes of this hour";

/* --- ends --- */

static void reset(int *fd)
{
    static const struct linger now = {.l_onoff = 1};

    (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    scope_close(fd);
}

static void end_close(struct connection *c, struct end *end, bool by_reset)
{
    events_forget(c->box->egress->events, &end->watch);
    if (end->fd >= 0 && by_reset)
        reset(&end->fd);
    scope_close(&end->fd);
}

/* `why`: NULL for one that has come to its end on both sides. */
static void end_connection(struct connection *c, const char *why)
{
    struct box *box = c->box;
    struct egress *e = box->egress;

    if (c->is_open)
        news_tell(e, &(struct egress_news){.kind = EGRESS_CLOSED,
                                           .id = box->id,
                                           .connection = c->number,
                                           .host = c->host,
                                           .port = c->port,
                                           .rule = c->rule,
                                           .why = why ? why : "",
                                           .up = c->up.sent,
                                           .down = c->down.sent,
                                           .ms = now_ms() - c->since_ms,
                                           .group = c->group});
    timer_stop(e->events, &c->timer);
    if (c->dial)
        dial_cancel(c->dial);
    inspected_end(c);
    end_close(c, &c->inside, why);
    end_close(c, &c->outside, why);
    flow_clear(c, &c->up);
    flow_clear(c, &c->down);
    look_clear(&c->look);
    if (c->previous)
        c->previous->next = c->next;
    else
        box->connections = c->next;
    if (c->next)
        c->next->previous = c->previous;
    box->count--;
    e->connections--;
    box->inspected -= c->is_inspected;
    e->inspected -= c->is_inspected;
    free(c->rule);
    free(c);
}

static void refuse_connection(struct connection *c, const char *why, const char *fix)
{
    news_refuse(c->box, &(struct refused){.group = c->group,
                                          .host = c->host,
                                          .port = c->port,
                                          .rule = c->rule,
                                          .why = why,
                                          .fix = fix});
    end_connection(c, why);
}

/* --- open --- */

static int arm(struct connection *c, struct end *end)
{
    struct events *events = c->box->egress->events;
    uint32_t wants = c->inspected ? inspected_wants(c, end) : flow_wants(c, end);

    if (wants == end->armed)
        return 0;
    /* One that nothing is wanted of is not watched: that it was hung up would be told for ever. */
    if (wants == 0)
        events_forget(events, &end->watch);
    int r = wants == 0        ? 0
            : end->armed == 0 ? events_watch(events, &end->watch, end->fd, wants)
                              : events_change(events, &end->watch, wants);
    end->armed = wants;
    return r;
}

static int set_timer(struct connection *c, bool has_moved)
{
    struct events *events = c->box->egress->events;
    uint64_t now = now_ms();

    if (c->inspected) {
        uint64_t due = inspected_due(c);
        if (due == 0)
            timer_stop(events, &c->timer);
        return due == 0 || due == c->timer.due_ms ? 0 : timer_set(events, &c->timer, due);
    }
    if (c->look.is_waiting && (!c->is_waiting || c->look.cleared != c->waits_at))
        (void)timer_set(events, &c->timer, now + LOOK_MS);
    else if (!c->look.is_waiting && c->is_waiting)
        timer_stop(events, &c->timer);
    c->is_waiting = c->look.is_waiting;
    c->waits_at = c->look.cleared;
    if (!c->is_waiting && (c->up.ended || c->down.ended) && (has_moved || !c->timer.due_ms))
        return timer_set(events, &c->timer, now + HALF_MS);
    return 0;
}

static enum relay carry(struct connection *c)
{
    enum relay r = flow_step(c, &c->down); /* may let more of the other leave */

    return r == RELAY_FINE ? flow_step(c, &c->up) : r;
}

void connection_step(struct connection *c)
{
    uint64_t before = c->up.sent + c->down.sent;
    enum relay r = c->inspected ? inspected_step(c) : carry(c);

    if (r == RELAY_REFUSED)
        refuse_connection(c, c->look.why, c->look.fix);
    else if (r == RELAY_SPENT)
        refuse_connection(c, spent, "raise bytes_per_hour, or wait");
    else if (r == RELAY_OVER || (r == RELAY_FINE && c->up.told && c->down.told))
        end_connection(c, NULL);
    else if (r != RELAY_FINE)
        end_connection(c, r == RELAY_INSIDE ? "the program inside has cut it"
                                            : "the server has cut it");
    else if (arm(c, &c->inside) < 0 || arm(c, &c->outside) < 0 ||
             set_timer(c, c->up.sent + c->down.sent != before) < 0)
        end_connection(c, "there is no memory");
}

static void ready(struct watch *watch, uint32_t what)
{
    (void)what; /* reading and writing tell */
    connection_step(((struct end *)(void *)watch)->connection);
}

static void ring(struct timer *timer)
{
    struct connection *c =
        (struct connection *)(void *)((char *)timer - offsetof(struct connection, timer));

    const char *why;

    if (!c->is_open)
        refuse_connection(c, "the server does not answer", "");
    else if (c->inspected && inspected_late(c, &why))
        refuse_connection(c, why, "");
    else if (c->inspected)
        end_connection(c, NULL);
    else if (c->is_waiting)
        refuse_connection(c, "what was sent first did not come to its end in time", "");
    else
        end_connection(c, "one side had ended, and nothing moved");
}

static void dialled(void *context, const struct dial_answer *answer)
{
    struct connection *c = context;
    struct egress *e = c->box->egress;

    c->dial = NULL;
    timer_stop(e->events, &c->timer);
    if (answer->fd < 0) {
        refuse_connection(c, answer->why, answer->fix);
        return;
    }
    c->outside.fd = answer->fd;
    c->is_open = true;
    news_tell(e, &(struct egress_news){.kind = EGRESS_OPENED,
                                       .id = c->box->id,
                                       .connection = c->number,
                                       .host = c->host,
                                       .port = c->port,
                                       .rule = c->rule,
                                       .ms = now_ms() - c->since_ms,
                                       .group = c->group});
    if (c->is_inspected && !inspected_begin(c))
        refuse_connection(c, no_room, "");
    else
        connection_step(c);
}

/* --- accepted --- */

static struct connection *make(struct box *box, const char *host, uint16_t port,
                               const struct network_rule *rule)
{
    char text[NETWORK_RULE];
    struct connection *c = calloc(1, sizeof(*c));

    if (!c || !(c->rule = strdup(network_rule_text(rule, text)))) {
        free(c);
        return NULL;
    }
    c->box = box;
    c->host = host;
    c->port = port;
    c->number = ++box->egress->last_connection;
    c->since_ms = now_ms();
    c->timer.ring = ring;
    c->inside = (struct end){.watch = {.ready = ready, .fd = -1}, .connection = c, .fd = -1};
    c->outside = c->inside;
    c->up = (struct flow){.from = &c->inside, .to = &c->outside};
    c->down = (struct flow){.from = &c->outside, .to = &c->inside};
    c->is_inspected =
        network_inspects(box->rules, box->rule_count, host, port) && !weak("net-rules");
    box->inspected += c->is_inspected;
    box->egress->inspected += c->is_inspected;
    c->is_opaque = rule->opaque;
    c->refuses_ech = rule->refuse_ech;
    look_begin(&c->look, host, port, rule);
    c->next = box->connections;
    if (c->next)
        c->next->previous = c;
    box->connections = c;
    box->count++;
    box->egress->connections++;
    return c;
}

/* The address inside that was connected to, as a number; 0: none of ours. */
static uint32_t called_address(int fd)
{
    struct sockaddr_in6 to = {.sin6_family = AF_UNSPEC};
    struct sockaddr_in v4;
    socklen_t n = sizeof(to);
    uint32_t address;

    if (getsockname(fd, (struct sockaddr *)&to, &n) < 0)
        return 0;
    memcpy(&v4, &to, sizeof(v4));
    if (to.sin6_family == AF_INET)
        return ntohl(v4.sin_addr.s_addr);
    if (to.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&to.sin6_addr))
        return 0;
    memcpy(&address, &to.sin6_addr.s6_addr[12], sizeof(address));
    return ntohl(address);
}

static void refuse_socket(struct box *box, int *fd, const char *host, uint16_t port,
                          const struct network_rule *rule, const char *why)
{
    char fix[EGRESS_TEXT + 1] = "";
    char text[NETWORK_RULE] = "";

    if (why == no_rule)
        snprintf(fix, sizeof(fix), "allow \"%s:%u\"", host, (unsigned)port);
    else if (why == denied)
        snprintf(fix, sizeof(fix), "take the rule away");
    else if (why == no_name)
        snprintf(fix, sizeof(fix), "connect to a name: addresses are not allowed");
    news_refuse(box, &(struct refused){.group = who_connects(box, *fd),
                                       .host = host,
                                       .port = port,
                                       .rule = rule ? network_rule_text(rule, text) : "",
                                       .why = why,
                                       .fix = fix});
    reset(fd);
}

/* The last quarter is for sandboxes that have few: one that may have many cannot have all. */
static bool has_room(const struct box *box)
{
    const struct egress *e = box->egress;
    size_t most = box->count < CONNECTIONS_DEFAULT ? e->most : e->most - e->most / 4;

    return e->connections < most && !news_are_stuck(e);
}

static const char *why_not(const struct box *box, const struct network_rule *rule, const char *host,
                           uint16_t port)
{
    if (!rule)
        return no_rule;
    if (rule->deny)
        return denied;
    if (network_inspects(box->rules, box->rule_count, host, port) && !weak("net-rules")) {
        if (!box->authority)
            return no_authority;
        if (box->inspected >= INSPECTED_MOST)
            return too_many;
        if (box->egress->inspected >= INSPECTED_ALL)
            return no_room;
    }
    if (box->count >= box->most)
        return too_many;
    return has_room(box) ? NULL : no_room;
}

void connection_accept(struct box *box, int *fd, uint16_t port)
{
    static const int on = 1;
    uint32_t address = called_address(*fd);
    const char *host = names_find(&box->names, address);
    char text[INET_ADDRSTRLEN];

    if (!host) {
        address = htonl(address);
        refuse_socket(box, fd, inet_ntop(AF_INET, &address, text, sizeof(text)), port, NULL,
                      no_name);
        return;
    }
    const struct network_rule *rule =
        weak("net-rules") ? box->rules : network_decide(box->rules, box->rule_count, host, port);
    const char *why = why_not(box, rule, host, port);
    if (why) {
        refuse_socket(box, fd, host, port, rule, why);
        return;
    }
    struct connection *c = make(box, host, port, rule);
    if (!c) {
        refuse_socket(box, fd, host, port, rule, no_room);
        return;
    }
    c->group = who_connects(box, *fd);
    c->inside.fd = take_fd(fd);
    (void)setsockopt(c->inside.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->dial = dial_begin(box->egress, host, port, dialled, c);
    if (!c->dial || timer_set(box->egress->events, &c->timer, now_ms() + DIAL_MS) < 0)
        refuse_connection(c, no_room, "");
}

void connections_check(struct box *box)
{
    struct connection *next;

    for (struct connection *c = box->connections; c; c = next) {
        const struct network_rule *rule =
            network_decide(box->rules, box->rule_count, c->host, c->port);
        next = c->next;
        if (!rule || rule->deny)
            refuse_connection(c, rule ? denied : no_rule, "");
        else if ((c->is_opaque && !rule->opaque) || (!c->refuses_ech && rule->refuse_ech) ||
                 c->is_inspected != network_inspects(box->rules, box->rule_count, c->host, c->port))
            refuse_connection(c, stricter, "connect again");
    }
}

void connections_end(struct box *box, const char *why)
{
    struct connection *next;

    for (struct connection *c = box->connections; c; c = next) {
        next = c->next;
        end_connection(c, why);
    }
}
