/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/egress.h"

#include <string.h>

#include "base/pack.h"

/* NULL and "" are the same here, so that every message has one form only. */
static void put(struct buf *b, const char *text)
{
    pack_text(b, text ? text : "");
}

static const char *get(struct unpack *u, size_t most)
{
    const char *text = unpack_text(u);

    if (!text || strlen(text) > most) {
        u->failed = true;
        return "";
    }
    return text;
}

static uint64_t get_kind(struct unpack *u, uint64_t count)
{
    uint64_t kind = unpack_upto(u, count - 1);

    if (kind == 0)
        u->failed = true;
    return kind;
}

void egress_pack_order(struct buf *b, const struct egress_order *order)
{
    pack_u64(b, order->kind);
    pack_u64(b, order->id);
    put(b, order->name);
    pack_list(b, order->rules);
    pack_u64(b, order->connections);
    pack_u64(b, order->bytes_per_hour);
}

bool egress_unpack_order(char *bytes, size_t n, struct arena *arena, struct egress_order *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    ret->kind = get_kind(&u, EGRESS_ORDER_COUNT_);
    ret->id = unpack_u64(&u);
    ret->name = get(&u, EGRESS_TEXT);
    ret->rules = unpack_list(&u, arena, EGRESS_RULES);
    ret->connections = unpack_u64(&u);
    ret->bytes_per_hour = unpack_u64(&u);
    return ret->id != 0 && ret->rules && unpack_done(&u);
}

void egress_pack_news(struct buf *b, const struct egress_news *news)
{
    pack_u64(b, news->kind);
    pack_u64(b, news->id);
    pack_u64(b, news->connection);
    put(b, news->host);
    pack_u64(b, news->port);
    put(b, news->rule);
    put(b, news->why);
    put(b, news->fix);
    pack_u64(b, news->up);
    pack_u64(b, news->down);
    pack_u64(b, news->ms);
    pack_u64(b, news->count);
}

bool egress_unpack_news(char *bytes, size_t n, struct egress_news *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    ret->kind = get_kind(&u, EGRESS_NEWS_COUNT_);
    ret->id = unpack_u64(&u);
    ret->connection = unpack_u64(&u);
    ret->host = get(&u, EGRESS_TEXT);
    ret->port = unpack_upto(&u, UINT16_MAX);
    ret->rule = get(&u, EGRESS_TEXT);
    ret->why = get(&u, EGRESS_TEXT);
    ret->fix = get(&u, EGRESS_TEXT);
    ret->up = unpack_u64(&u);
    ret->down = unpack_u64(&u);
    ret->ms = unpack_u64(&u);
    ret->count = unpack_u64(&u);
    return (ret->id != 0 || ret->kind == EGRESS_READY) && unpack_done(&u);
}
