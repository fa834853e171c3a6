/* SPDX-License-Identifier: Apache-2.0 */
/* The network by name of all sandboxes: carrel-egress, and the sockets that it serves. The broker
 * keeps copies of them, so that one that dies is followed by another that goes on serving; until
 * then connections fail. What it says goes on the record, and refusals to the commands that run.
 *
 *   egress_add --> to be added --> served --(egress_drop)--> to be dropped
 *                       ^------------'  carrel-egress has died
 *   to be dropped --(its last word)--> freed
 */
#include "broker/egress.h"
#include "broker/listen.h"
#include "broker/outlet.h"
#include "broker/sandboxes.h"
#include "broker/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "policy/network_sets.h"
#include "protocol/egress.h"
#include "sys/packet.h"

enum {
    STOP_MS = 1000,
    AGAIN_MS = 5, /* its socket is full */
    MOST_ARGS = 128,
    MOST_PRIVATE = EGRESS_MOST_PRIVATE,
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum due {
    DUE_ADD = 1,
    DUE_CHANGE = 2,
    DUE_DROP = 4,
    DUE_SPEND = 8,
};

/* --- bytes of an hour, which are the workspace's --- */

/* An order of EGRESS_SECRET that waits for room. */
struct secret_order {
    struct secret_order *next;
    size_t n;
    char bytes[];
};

/* In the order in which they were set; 0, or that there is no room. */
static int send_secrets(struct broker *b)
{
    while (b->secret_orders) {
        struct secret_order *first = b->secret_orders;
        int r = packet_send(b->egress.socket, first->bytes, first->n, NULL, 0);
        if (r < 0)
            return r;
        b->secret_orders = first->next;
        free(first);
    }
    return 0;
}

static void drop_secrets(struct broker *b)
{
    while (b->secret_orders) {
        struct secret_order *first = b->secret_orders;
        b->secret_orders = first->next;
        free(first);
    }
}

static void send_all(struct broker *b);

struct account {
    struct account *next;
    uint64_t hour;
    uint64_t bytes;
    char workspace[PROTOCOL_ID + 1];
};

/* Those of other hours go. With `make` it is there afterwards, unless there is no memory. */
static struct account *account_of(struct broker *b, const char *workspace, bool make)
{
    uint64_t hour = now_ms() / EGRESS_HOUR_MS;
    struct account **at = &b->accounts;

    while (*at) {
        struct account *a = *at;
        if (a->hour == hour && strcmp(a->workspace, workspace) == 0)
            return a;
        if (a->hour == hour) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free(a);
    }
    if (make && (*at = calloc(1, sizeof(**at)))) {
        (*at)->hour = hour;
        snprintf((*at)->workspace, sizeof((*at)->workspace), "%s", workspace);
    }
    return *at;
}

/* Another sandbox of the same workspace, that of a plan for example, has used them. */
void outlet_spent(struct broker *b, const struct outlet *by, uint64_t bytes)
{
    struct account *a = account_of(b, by->workspace, true);

    if (a)
        a->bytes += bytes;
    for (struct outlet *o = b->outlets; o; o = o->next) {
        if (o == by || !o->sandbox || strcmp(o->workspace, by->workspace) != 0)
            continue;
        o->to_spend += bytes;
        o->due |= DUE_SPEND;
    }
    send_all(b);
}

/* --- what it is told --- */

static int pack(struct buf *b, enum egress_order_kind kind, const struct outlet *o,
                const struct spec_message *m)
{
    static const char *const nothing[] = {NULL};
    const struct egress_order order = {.kind = kind,
                                       .id = o->id,
                                       .name = o->workspace,
                                       .rules = m->net_rules ? m->net_rules : nothing,
                                       .connections = m->net_connections,
                                       .bytes_per_hour = m->net_bytes_per_hour,
                                       .owner = m->owner,
                                       .authority = o->authority,
                                       .places = o->places};

    buf_clear(b);
    buf_init(b, EGRESS_MESSAGE);
    egress_pack_order(b, &order);
    return buf_done(b);
}

static int send_plain(const struct broker *b, const struct outlet *o, enum egress_order_kind kind,
                      uint64_t bytes)
{
    static const char *const nothing[] = {NULL};
    scoped_buf struct buf drop;
    const struct egress_order order = {
        .kind = kind, .id = o->id, .name = "", .rules = nothing, .bytes_per_hour = bytes};

    buf_init(&drop, EGRESS_MESSAGE);
    egress_pack_order(&drop, &order);
    return buf_done(&drop) < 0 ? -EAGAIN : packet_send(b->egress.socket, drop.p, drop.n, NULL, 0);
}

/* What has been sent is not sent again when the rest is. */
static int send_due(const struct broker *b, struct outlet *o)
{
    int r = 0;

    if (o->due & DUE_ADD)
        r = packet_send(b->egress.socket, o->add.p, o->add.n, o->fds, o->fd_count);
    else if (o->due & DUE_CHANGE)
        r = packet_send(b->egress.socket, o->change.p, o->change.n, NULL, 0);
    if (r == 0)
        o->due &= ~(unsigned)(DUE_ADD | DUE_CHANGE);
    if (r == 0 && o->due & DUE_SPEND)
        r = send_plain(b, o, EGRESS_SPEND, o->to_spend);
    if (r == 0) {
        o->due &= ~(unsigned)DUE_SPEND;
        o->to_spend = 0;
    }
    if (r == 0 && o->due & DUE_DROP)
        r = send_plain(b, o, EGRESS_DROP, 0);
    if (r == 0)
        o->due = 0;
    return r;
}

static void send_again(struct timer *timer)
{
    send_all((struct broker *)(void *)((char *)timer - offsetof(struct broker, egress_timer)));
}

static void send_all(struct broker *b)
{
    if (!b->egress_ready || b->egress.socket < 0)
        return;
    int secrets = send_secrets(b);
    for (struct outlet *o = b->outlets; o || secrets < 0; o = o ? o->next : NULL) {
        int r = secrets < 0 ? secrets : o->due ? send_due(b, o) : 0;
        if (r == 0)
            continue;
        if (r != -EAGAIN && r != -ENOBUFS && r != -ETOOMANYREFS)
            return; /* it has died, and all is sent to the next */
        b->egress_timer.ring = send_again;
        ignore(timer_set(b->events, &b->egress_timer, now_ms() + AGAIN_MS) == 0);
        return;
    }
}

void outlet_free(struct broker *b, struct outlet *o)
{
    struct outlet **at = &b->outlets;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    for (size_t i = 0; i < o->fd_count; i++)
        (void)close(o->fds[i]);
    buf_clear(&o->add);
    buf_clear(&o->change);
    free(o->opened);
    free(o);
}

static void begin_outlet(struct broker *b, struct outlet *o)
{
    const struct account *a = account_of(b, o->workspace, false);

    o->due = DUE_ADD | (a ? DUE_SPEND : 0U);
    o->to_spend = a ? a->bytes : 0;
}

/* What the one before was told is to be told to this one. */
void outlet_begin_all(struct broker *b)
{
    struct outlet *next;

    b->egress_ready = true;
    drop_secrets(b);
    secrets_tell(b);
    for (struct outlet *o = b->outlets; o; o = next) {
        next = o->next;
        o->opened_count = 0;
        if (!o->sandbox)
            outlet_free(b, o);
        else
            begin_outlet(b, o);
    }
    send_all(b);
}

/* --- the process --- */

/* What the settings name: also where packages are fetched from, which many have in their intranet.
 */
static size_t add_private(const struct settings *s, struct arena *arena, const char **argv)
{
    const char *const indexes[] = {s->package_index, s->package_registry, s->debian_mirror};
    const char *words[MOST_PRIVATE + LENGTH(indexes)];
    char *text = arena_copy(arena, s->network_private, strlen(s->network_private));
    size_t n = text ? egress_split(text, words, MOST_PRIVATE) : 0;
    char rule[NETWORK_RULE];

    for (size_t i = 0; i < LENGTH(indexes); i++) {
        if (network_sets_url(indexes[i], rule) &&
            (words[n] = arena_copy(arena, rule, strlen(rule))) != NULL)
            n++;
    }
    for (size_t i = 0; i < n; i++) {
        argv[2 * i] = "--private";
        argv[2 * i + 1] = words[i];
    }
    return 2 * n;
}

/* The key of the secrets, and further authorities, as descriptors 4 and 5. */
static bool open_extra(struct helper *h, const char **argv, size_t *n, int fds[HELPER_FDS],
                       struct err *err)
{
    const char *trust = h->broker->settings.network_trust;

    fds[0] = secrets_key(h->broker, err);
    if (fds[0] < 0)
        return false;
    argv[(*n)++] = "--secrets-fd";
    argv[(*n)++] = "4";
    h->extra_count = 1;
    if (!*trust)
        return true;
    fds[1] = open(trust, O_RDONLY | O_CLOEXEC);
    if (fds[1] < 0) {
        err_set(err, ERR_NOT_FOUND, errno, "open '%s', the setting network_trust", trust);
        return false;
    }
    argv[(*n)++] = "--trust-fd";
    argv[(*n)++] = "5";
    h->extra_count = 2;
    return true;
}

static char *const *prepare(struct helper *h, struct arena *arena, int fds[HELPER_FDS],
                            struct err *err)
{
    const struct broker *b = h->broker;
    const char **argv = arena_alloc(arena, (MOST_ARGS + 1) * sizeof(*argv));
    uint16_t ports[CARREL_MAX_PORTS] = {0};
    size_t n = 0;

    h->broker->egress_ready = false;
    if (!argv) {
        err_set(err, ERR_LIMIT, ENOMEM, "start carrel-egress");
        return NULL;
    }
    argv[n++] = "carrel-egress";
    argv[n++] = "--inspect";
    argv[n++] = "yes";
    if (!open_extra(h, argv, &n, fds, err))
        return NULL;
    if (*b->settings.nameservers) {
        argv[n++] = "--nameservers";
        argv[n++] = b->settings.nameservers;
    }
    listen_ports(b, ports);
    for (size_t i = 0; i < CARREL_MAX_PORTS && ports[i]; i++) {
        argv[n++] = "--own-port";
        argv[n++] = arena_printf(arena, "%u", ports[i]);
    }
    (void)add_private(&b->settings, arena, argv + n);
    return (char *const *)(uintptr_t)argv;
}

static void start(struct broker *b)
{
    if (b->egress.broker)
        return;
    b->egress = (struct helper){.broker = b,
                                .name = "carrel-egress",
                                .program = b->egress_program,
                                .uid = b->egress_uid,
                                .gid = b->egress_uid != geteuid() ? b->egress_uid : getegid(),
                                .prepare = prepare,
                                .heard = outlet_heard,
                                .socket = -1,
                                .watch = {.fd = -1},
                                .talk = {.fd = -1}};
    helper_begin(&b->egress);
}

void egress_stop(struct broker *b)
{
    if (b->egress.broker)
        helper_stop(&b->egress, SIGTERM, STOP_MS);
    timer_stop(b->events, &b->egress_timer);
    drop_secrets(b);
    while (b->outlets)
        outlet_free(b, b->outlets);
    for (struct account *a = b->accounts, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    b->accounts = NULL;
}

void egress_secret(struct broker *b, const char *owner, const char *name, const char *value)
{
    static const char *const nothing[] = {NULL};
    const struct egress_order order = {.kind = EGRESS_SECRET,
                                       .name = "",
                                       .rules = nothing,
                                       .owner = owner,
                                       .secret = name,
                                       .value = value};
    struct secret_order **last = &b->secret_orders;
    scoped_buf struct buf bytes;

    buf_init(&bytes, EGRESS_MESSAGE);
    if (!b->egress_ready) /* it is told all when it begins */
        return;
    egress_pack_order(&bytes, &order);
    struct secret_order *one = buf_done(&bytes) < 0 ? NULL : malloc(sizeof(*one) + bytes.n);
    if (!one) {
        log_error("secret_failed", "secret", name, "why", "no memory", NULL);
        return;
    }
    one->next = NULL;
    one->n = bytes.n;
    memcpy(one->bytes, bytes.p, bytes.n);
    while (*last)
        last = &(*last)->next;
    *last = one;
    send_all(b);
}

void egress_hear(struct broker *b)
{
    if (b->egress.broker)
        helper_hear(&b->egress);
}

/* --- sandboxes --- */

static struct outlet *outlet_of(const struct sandbox *s)
{
    struct outlet *o = s->broker->outlets;

    while (o && o->sandbox != s)
        o = o->next;
    return o;
}

static bool copy_fds(struct outlet *o, const int *fds, size_t count)
{
    for (size_t i = 0; i < count && i < PACKET_MAX_FDS; i++) {
        o->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (o->fds[i] < 0)
            return false;
        o->fd_count++;
    }
    return o->fd_count == count;
}

static bool read_network(struct sandbox *s, struct arena *arena, struct spec_message *ret)
{
    struct unpack u = {.at = s->network.p, .end = s->network.p + s->network.n};

    /* The text is pointed into, and stays as it is. */
    *ret = (struct spec_message){.net = CARREL_NET_ALLOW};
    ret->net_rules = unpack_list(&u, arena, EGRESS_RULES);
    ret->net_connections = unpack_u64(&u);
    ret->net_bytes_per_hour = unpack_u64(&u);
    ret->owner = unpack_string(&u);
    return unpack_done(&u) && ret->net_rules;
}

void egress_pack_network(struct buf *b, const struct spec_message *m)
{
    pack_list(b, m->net_rules);
    pack_u64(b, m->net_connections);
    pack_u64(b, m->net_bytes_per_hour);
    pack_string(b, m->owner);
}

void egress_add(struct sandbox *s, const int *fds, size_t count)
{
    struct broker *b = s->broker;
    struct outlet *o = outlet_of(s) ? NULL : calloc(1, sizeof(*o));
    struct spec_message m;
    struct arena arena;

    if (!o)
        return;
    arena_init(&arena, 1 << 18);
    o->sandbox = s;
    o->id = ++b->outlets_begun;
    snprintf(o->workspace, sizeof(o->workspace), "%s", s->workspace);
    o->authority = session_authority(s->session);
    session_places(s->session, o->places);
    begin_outlet(b, o);
    o->next = b->outlets;
    b->outlets = o;
    bool whole = copy_fds(o, fds, count) && read_network(s, &arena, &m) &&
                 pack(&o->add, EGRESS_ADD, o, &m) == 0;
    arena_clear(&arena);
    if (!whole) { /* its connections fail */
        log_error("network_failed", "workspace", s->workspace, "why", "no memory or open files",
                  NULL);
        outlet_free(b, o);
        return;
    }
    start(b);
    send_all(b);
}

/* Whether it was made for rules like these. */
static bool is_like(struct sandbox *s, const struct spec_message *m)
{
    struct spec_message was;
    struct arena arena;

    arena_init(&arena, 1 << 18);
    bool like = m->net == CARREL_NET_ALLOW && read_network(s, &arena, &was) &&
                was.net_connections == m->net_connections &&
                was.net_bytes_per_hour == m->net_bytes_per_hour &&
                egress_is_alike(was.net_rules, m->net_rules);
    arena_clear(&arena);
    return like;
}

bool egress_change(struct sandbox *s, const struct spec_message *m)
{
    struct outlet *o = outlet_of(s);
    bool like = is_like(s, m);

    if (!o)
        return like;
    if (pack(&o->change, EGRESS_CHANGE, o, m) < 0 || pack(&o->add, EGRESS_ADD, o, m) < 0) {
        egress_drop(s);
        return false;
    }
    o->due |= DUE_CHANGE;
    send_all(s->broker);
    return like;
}

void egress_drop(struct sandbox *s)
{
    struct broker *b = s->broker;
    struct outlet *o = outlet_of(s);

    if (!o)
        return;
    o->sandbox = NULL;
    o->authority = NULL;
    if (!b->egress_ready || o->due & DUE_ADD) {
        outlet_free(b, o);
        return;
    }
    for (size_t i = 0; i < o->fd_count; i++)
        (void)close(o->fds[i]);
    o->fd_count = 0;
    o->due = DUE_DROP;
    send_all(b);
}
