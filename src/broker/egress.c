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
#include "broker/channel.h"
#include "broker/listen.h"
#include "broker/record.h"
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
#include "base/programs.h"
#include "policy/network_inner.h"
#include "policy/network_sets.h"
#include "protocol/egress.h"
#include "sys/message.h"
#include "sys/packet.h"

enum {
    STOP_MS = 1000,
    AGAIN_MS = 5, /* its socket is full */
    MOST_ARGS = 128,
    MOST_PRIVATE = 32,
    LONGEST_DETAILS = 4096,
    MOST_OPENED = 8192,
    RECORDS = 100, /* of connections of one sandbox, in a second; more are counted */
    SECOND_MS = 1000,
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum due {
    DUE_ADD = 1,
    DUE_CHANGE = 2,
    DUE_DROP = 4,
    DUE_SPEND = 8,
};

/* An open connection, and the command that made it. */
struct opened {
    uint64_t connection;
    char exec[PROTOCOL_EXEC_ID + 1];
};

struct outlet {
    struct outlet *next;
    struct sandbox *sandbox; /* NULL: its sandbox has ended */
    uint64_t id;
    unsigned due;
    uint64_t to_spend; /* bytes, while that is due */
    char workspace[PROTOCOL_ID + 1];
    const char *authority; /* its sandbox's, while that is there */
    int fds[PACKET_MAX_FDS];
    size_t fd_count;
    struct buf add;    /* as packed, with the rules of now */
    struct buf change; /* likewise, while that is due */
    uint64_t second_ms;
    unsigned records;
    uint64_t skipped; /* records, since the last one */
    struct opened *opened;
    size_t opened_count;
    size_t opened_room;
};

/* --- rules --- */

/* "a, b c": at most `most` words of it, cut up in place. */
static size_t split(char *text, const char **words, size_t most)
{
    char *rest;
    size_t n = 0;

    for (char *word = strtok_r(text, ", \t", &rest); word && n < most;
         word = strtok_r(NULL, ", \t", &rest))
        words[n++] = word;
    return n;
}

static int parse_limit(const struct broker *b, struct network_rule *rules, size_t *ret,
                       struct err *err)
{
    char text[sizeof(b->settings.network_limit)];
    const char *words[NETWORK_MOST];

    snprintf(text, sizeof(text), "%s", b->settings.network_limit);
    *ret = split(text, words, NETWORK_MOST);
    for (size_t i = 0; i < *ret; i++) {
        if (network_parse_rule(words[i], &rules[i], err) < 0)
            return err_wrap(err, "the setting network_limit");
    }
    return 0;
}

int egress_check_settings(const struct broker *b, struct err *err)
{
    const struct settings *s = &b->settings;
    char text[sizeof(s->network_private)];
    const char *words[MOST_PRIVATE + 1];
    struct network_rule rule;
    size_t n;

    snprintf(text, sizeof(text), "%s", s->network_private);
    n = split(text, words, MOST_PRIVATE + 1);
    if (n > MOST_PRIVATE)
        return err_set(err, ERR_INVALID, 0, "the setting network_private names more than %d hosts",
                       MOST_PRIVATE);
    for (size_t i = 0; i < n; i++) {
        if (words[i][0] == '!' || network_parse_rule(words[i], &rule, err) < 0)
            return err_set(err, ERR_INVALID, 0,
                           "the setting network_private: '%.80s' is not HOST or HOST:PORT",
                           words[i]);
    }
    if (strspn(s->nameservers, "0123456789abcdefABCDEF.:[], ") != strlen(s->nameservers))
        return err_set(err, ERR_INVALID, 0,
                       "the setting nameservers must be ADDRESS:PORT, with commas between");
    struct network_rule *limit = malloc(NETWORK_MOST * sizeof(*limit));
    int r = limit ? parse_limit(b, limit, &n, err)
                  : err_set(err, ERR_LIMIT, ENOMEM, "check the settings");
    free(limit);
    return r;
}

static int check_rules(const struct broker *b, const char *const *texts, struct network_rule *limit,
                       size_t limits, struct err *err)
{
    struct network_rule rule;

    (void)b;
    for (size_t i = 0; texts && texts[i]; i++) {
        if (i == NETWORK_MOST)
            return err_set(err, ERR_LIMIT, 0, "more than %d rules of the network", NETWORK_MOST);
        if (network_parse_rule(texts[i], &rule, err) < 0)
            return err_wrap(err, "the policy's network");
        if (!rule.deny && limits && !network_is_within(&rule, limit, limits))
            return err_set(err, ERR_DENIED, 0,
                           "the policy allows %s, which goes beyond the setting network_limit",
                           texts[i]);
    }
    return 0;
}

int egress_check(const struct broker *b, const struct spec_message *m, struct err *err)
{
    size_t limits = 0;

    if (m->net != CARREL_NET_ALLOW)
        return 0;
    if (!b->settings.allow_net) {
        err_set(err, ERR_DENIED, 0,
                "the policy names hosts of the network, which the setting allow_net forbids");
        err->said = SAID_ALLOW_NET;
        return -1;
    }
    struct network_rule *limit = malloc(NETWORK_MOST * sizeof(*limit));
    if (!limit)
        return err_set(err, ERR_LIMIT, ENOMEM, "check the policy");
    int r = parse_limit(b, limit, &limits, err);
    if (r == 0)
        r = check_rules(b, m->net_rules, limit, limits, err);
    free(limit);
    return r;
}

int egress_expand(const struct broker *b, struct spec_message *m, struct arena *arena,
                  struct err *err)
{
    const struct network_mirror mirrors[] = {
        {"pip", b->settings.package_index}, {"npm", b->settings.package_registry}, {NULL, NULL}};
    char path[4096];

    if (m->net != CARREL_NET_ALLOW)
        return 0;
    const char *dir = *b->settings.networks ? b->settings.networks
                                            : program_share("networks", path, sizeof(path));
    return network_sets_expand(m->net_rules, dir, mirrors, arena, &m->net_rules, err);
}

void egress_request(struct broker *b, uint64_t tag, const struct exec_message *m)
{
    struct exec_message expanded = *m;
    struct arena arena;
    scoped_buf struct buf names;
    struct err err;

    arena_init(&arena, 8 << 20);
    buf_init(&names, MESSAGE_MAX_BYTES);
    pack_u64(&names, tag);
    int r = egress_expand(b, &expanded.spec, &arena, &err);
    if (r == 0)
        r = egress_check(b, &expanded.spec, &err);
    if (r == 0) {
        sandbox_change_network(b, &expanded);
        pack_list(&names, expanded.spec.net_rules);
        r = buf_done(&names) < 0 ? err_set(&err, ERR_LIMIT, ENOMEM, "tell the rules") : 0;
    }
    arena_clear(&arena);
    if (r < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send(b, ANSWER_NAMES, &names, NULL, 0);
}

/* The ports of rules that were checked; -1: too many. */
static int ports_of(const char *const *texts, uint16_t *ret)
{
    struct network_rule *rules = malloc(NETWORK_MOST * sizeof(*rules));
    struct err err;
    size_t n = 0;

    while (rules && texts && texts[n] && n < NETWORK_MOST &&
           network_parse_rule(texts[n], &rules[n], &err) == 0)
        n++;
    int count = rules ? network_ports(rules, n, ret, EGRESS_PORTS) : -1;
    free(rules);
    return count;
}

/* What the sandbox was made with: the hosts that its authority is for, and its placeholders. */
static bool inspects_same(const char *const *was, const char *const *is)
{
    struct network_rule a = {.inspect = false};
    struct network_rule b = {.inspect = false};
    struct err err;

    for (;;) {
        while (*was && (network_parse_rule(*was, &a, &err) < 0 || !a.inspect))
            was++;
        while (*is && (network_parse_rule(*is, &b, &err) < 0 || !b.inspect))
            is++;
        if (!*was || !*is)
            return !*was && !*is;
        if (strcmp(a.name, b.name) != 0 ||
            strcmp(network_inner(&a, a.secret), network_inner(&b, b.secret)) != 0 ||
            strcmp(network_inner(&a, a.env), network_inner(&b, b.env)) != 0)
            return false;
        was++;
        is++;
    }
}

static bool leads_to_same_ports(const char *const *was, const char *const *is)
{
    uint16_t old[EGRESS_PORTS];
    uint16_t new[EGRESS_PORTS];
    int n = ports_of(was, old);
    int m = ports_of(is, new);

    return n > 0 && n == m && memcmp(old, new, (size_t)n * sizeof(*old)) == 0;
}

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
static void spent(struct broker *b, const struct outlet *by, uint64_t bytes)
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
                                       .authority = o->authority};

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

/* --- what it says --- */

static void free_outlet(struct broker *b, struct outlet *o)
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

/* Whose it is; "": that cannot be told for certain. */
static const char *exec_now(const struct outlet *o, const struct egress_news *news)
{
    uint64_t now = now_ms();

    if (!o->sandbox || !o->sandbox->session || o->sandbox->over || news->group == EGRESS_NOBODY)
        return "";
    const struct broker_exec *e =
        session_exec_of(o->sandbox->session, news->group == EGRESS_UNGROUPED ? 0 : news->group,
                        news->ms < now ? now - news->ms : 0);
    return e ? e->id : "";
}

/* Without memory its end will have none. */
static void remember_exec(struct outlet *o, uint64_t connection, const char *exec)
{
    if (o->opened_count == o->opened_room) {
        size_t room = o->opened_room ? o->opened_room * 2 : 16;
        struct opened *all = room <= MOST_OPENED ? realloc(o->opened, room * sizeof(*all)) : NULL;
        if (!all)
            return;
        o->opened = all;
        o->opened_room = room;
    }
    struct opened *one = &o->opened[o->opened_count++];
    one->connection = connection;
    snprintf(one->exec, sizeof(one->exec), "%s", exec);
}

static void recall_exec(struct outlet *o, uint64_t connection, char ret[PROTOCOL_EXEC_ID + 1])
{
    *ret = '\0';
    for (size_t i = 0; i < o->opened_count; i++) {
        if (o->opened[i].connection != connection)
            continue;
        memcpy(ret, o->opened[i].exec, PROTOCOL_EXEC_ID + 1);
        o->opened[i] = o->opened[--o->opened_count];
        return;
    }
}

static void find_exec(struct outlet *o, const struct egress_news *news,
                      char ret[PROTOCOL_EXEC_ID + 1])
{
    if (news->kind == EGRESS_CLOSED) {
        recall_exec(o, news->connection, ret);
        return;
    }
    snprintf(ret, PROTOCOL_EXEC_ID + 1, "%s", exec_now(o, news));
    if (news->kind == EGRESS_OPENED && *ret)
        remember_exec(o, news->connection, ret);
}

static void describe(struct buf *b, const struct egress_news *news, const char *exec,
                     uint64_t skipped)
{
    buf_str(b, "{\"host\":");
    record_put_text(b, news->host, EGRESS_TEXT);
    if (news->port)
        buf_printf(b, ",\"port\":%llu", (unsigned long long)news->port);
    buf_str(b, ",\"rule\":");
    record_put_text(b, news->rule, EGRESS_TEXT);
    if (news->kind != EGRESS_REFUSED)
        buf_printf(b, ",\"connection\":%llu", (unsigned long long)news->connection);
    if (*exec)
        buf_printf(b, ",\"exec\":\"%s\"", exec);
    if (*news->why) {
        buf_str(b, news->kind == EGRESS_REQUEST ? ",\"request\":" : ",\"why\":");
        record_put_text(b, news->why, EGRESS_TEXT);
    }
    if (news->kind == EGRESS_CLOSED)
        buf_printf(b, ",\"up\":%llu,\"down\":%llu,\"ms\":%llu", (unsigned long long)news->up,
                   (unsigned long long)news->down, (unsigned long long)news->ms);
    if (news->kind == EGRESS_REQUEST)
        buf_printf(b, ",\"status\":%llu,\"ms\":%llu", (unsigned long long)news->count,
                   (unsigned long long)news->ms);
    if (news->kind == EGRESS_REFUSED)
        buf_printf(b, ",\"count\":%llu", (unsigned long long)news->count);
    if (skipped)
        buf_printf(b, ",\"skipped\":%llu", (unsigned long long)skipped);
    buf_str(b, "}");
}

/* A sandbox that does nothing but connect does not fill the disk with records of that. */
static bool may_record(struct outlet *o)
{
    uint64_t now = now_ms();

    if (now - o->second_ms >= SECOND_MS) {
        o->second_ms = now;
        o->records = 0;
    }
    if (o->records++ < RECORDS)
        return true;
    o->skipped++;
    return false;
}

static void record(struct broker *b, struct outlet *o, const struct egress_news *news)
{
    static const char *const operations[] = {[EGRESS_OPENED] = "net.open",
                                             [EGRESS_CLOSED] = "net.close",
                                             [EGRESS_REFUSED] = "net.refuse",
                                             [EGRESS_REQUEST] = "net.request"};
    char exec[PROTOCOL_EXEC_ID + 1];
    scoped_buf struct buf details;

    buf_init(&details, LONGEST_DETAILS);
    find_exec(o, news, exec);
    if (!may_record(o))
        return;
    describe(&details, news, exec, o->skipped);
    if (buf_done(&details) < 0)
        return;
    o->skipped = 0;
    (void)record_note(
        b,
        &(struct audit_record){.actor = "carrel-egress",
                               .workspace = o->workspace,
                               .request = "",
                               .operation = operations[news->kind],
                               .result = news->kind == EGRESS_REFUSED ? "denied" : "ok",
                               .details = details.p},
        NULL);
}

static void deny(const struct outlet *o, const struct egress_news *news)
{
    struct carrel_denial denial;

    if (!o->sandbox)
        return;
    denied_name(news->host, (unsigned)news->port, news->rule, news->why, news->fix, &denial);
    denial.count = news->count > UINT32_MAX ? UINT32_MAX : (unsigned)news->count;
    sandbox_deny(o->sandbox, &denial);
}

static struct outlet *find(const struct broker *b, uint64_t id)
{
    struct outlet *o = b->outlets;

    while (o && o->id != id)
        o = o->next;
    return o;
}

static void begin_outlet(struct broker *b, struct outlet *o)
{
    const struct account *a = account_of(b, o->workspace, false);

    o->due = DUE_ADD | (a ? DUE_SPEND : 0U);
    o->to_spend = a ? a->bytes : 0;
}

/* What the one before was told is to be told to this one. */
static void begin(struct broker *b)
{
    struct outlet *next;

    b->egress_ready = true;
    drop_secrets(b);
    secrets_tell(b);
    for (struct outlet *o = b->outlets; o; o = next) {
        next = o->next;
        o->opened_count = 0;
        if (!o->sandbox)
            free_outlet(b, o);
        else
            begin_outlet(b, o);
    }
    send_all(b);
}

static void heard(struct helper *h, const char *bytes, size_t n)
{
    struct broker *b = h->broker;
    struct egress_news news;
    char copy[HELPER_MESSAGE];

    memcpy(copy, bytes, n);
    if (!egress_unpack_news(copy, n, &news))
        return;
    if (news.kind == EGRESS_READY) {
        begin(b);
        return;
    }
    struct outlet *o = find(b, news.id);
    if (!o)
        return;
    switch ((enum egress_news_kind)news.kind) {
    case EGRESS_REFUSED:
        deny(o, &news);
        __attribute__((fallthrough));
    case EGRESS_OPENED:
    case EGRESS_REQUEST:
        record(b, o, &news);
        break;
    case EGRESS_CLOSED:
        record(b, o, &news);
        if (b->resumed && !channel_is_behind(b)) /* it only counts them */
            channel_send_plain(
                b, EVENT_CONNECTION, 0,
                &(struct plain_message){.texts = {o->workspace}, .number = news.up + news.down});
        break;
    case EGRESS_SPENT:
        spent(b, o, news.up);
        break;
    case EGRESS_DROPPED:
        if (!o->sandbox)
            free_outlet(b, o);
        break;
    case EGRESS_READY:
    case EGRESS_NEWS_COUNT_:
        break;
    }
}

/* --- the process --- */

/* What the settings name: also where packages are fetched from, which many have in their intranet.
 */
static size_t add_private(const struct settings *s, struct arena *arena, const char **argv)
{
    const char *const indexes[] = {s->package_index, s->package_registry};
    const char *words[MOST_PRIVATE + LENGTH(indexes)];
    char *text = arena_copy(arena, s->network_private, strlen(s->network_private));
    size_t n = text ? split(text, words, MOST_PRIVATE) : 0;
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
                                .heard = heard,
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
        free_outlet(b, b->outlets);
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
    begin_outlet(b, o);
    o->next = b->outlets;
    b->outlets = o;
    bool whole = copy_fds(o, fds, count) && read_network(s, &arena, &m) &&
                 pack(&o->add, EGRESS_ADD, o, &m) == 0;
    arena_clear(&arena);
    if (!whole) { /* its connections fail */
        log_error("network_failed", "workspace", s->workspace, "why", "no memory or open files",
                  NULL);
        free_outlet(b, o);
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
                leads_to_same_ports(was.net_rules, m->net_rules) &&
                inspects_same(was.net_rules, m->net_rules);
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
        free_outlet(b, o);
        return;
    }
    for (size_t i = 0; i < o->fd_count; i++)
        (void)close(o->fds[i]);
    o->fd_count = 0;
    o->due = DUE_DROP;
    send_all(b);
}
