/* SPDX-License-Identifier: Apache-2.0 */
/* What carrel-egress says: connections and refusals, on the record and to the commands that run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "broker/channel.h"
#include "broker/outlet.h"
#include "broker/record.h"
#include "broker/sandboxes.h"
#include "sandbox/denial/denied.h"

enum {
    LONGEST_DETAILS = 4096,
    MOST_OPENED = 8192,
    RECORDS = 100, /* of connections of one sandbox, in a second; more are counted */
    SECOND_MS = 1000,
};

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

void outlet_heard(struct helper *h, const char *bytes, size_t n)
{
    struct broker *b = h->broker;
    struct egress_news news;
    char copy[HELPER_MESSAGE];

    memcpy(copy, bytes, n);
    if (!egress_unpack_news(copy, n, &news))
        return;
    if (news.kind == EGRESS_READY) {
        outlet_begin_all(b);
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
        outlet_spent(b, o, news.up);
        break;
    case EGRESS_DROPPED:
        if (!o->sandbox)
            outlet_free(b, o);
        break;
    case EGRESS_READY:
    case EGRESS_NEWS_COUNT_:
        break;
    }
}
