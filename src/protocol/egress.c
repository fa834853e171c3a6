/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/egress.h"

#include <string.h>

#include "base/pack.h"

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
    pack_string(b, order->name);
    pack_list(b, order->rules);
    pack_u64(b, order->connections);
    pack_u64(b, order->bytes_per_hour);
    pack_string(b, order->owner);
    pack_string(b, order->authority);
    pack_string(b, order->places);
    pack_string(b, order->secret);
    pack_string(b, order->value);
}

bool egress_unpack_order(char *bytes, size_t n, struct arena *arena, struct egress_order *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    ret->kind = get_kind(&u, EGRESS_ORDER_COUNT_);
    ret->id = unpack_u64(&u);
    ret->name = unpack_bounded(&u, EGRESS_TEXT);
    ret->rules = unpack_list(&u, arena, EGRESS_RULES);
    ret->connections = unpack_u64(&u);
    ret->bytes_per_hour = unpack_u64(&u);
    ret->owner = unpack_bounded(&u, EGRESS_TEXT);
    ret->authority = unpack_bounded(&u, EGRESS_VALUE);
    ret->places = unpack_bounded(&u, EGRESS_PLACES);
    ret->secret = unpack_bounded(&u, EGRESS_TEXT);
    ret->value = unpack_bounded(&u, EGRESS_VALUE);
    return (ret->id != 0) == (ret->kind != EGRESS_SECRET) && ret->rules && unpack_done(&u);
}

void egress_pack_news(struct buf *b, const struct egress_news *news)
{
    pack_u64(b, news->kind);
    pack_u64(b, news->id);
    pack_u64(b, news->connection);
    pack_string(b, news->host);
    pack_u64(b, news->port);
    pack_string(b, news->rule);
    pack_string(b, news->why);
    pack_string(b, news->fix);
    pack_u64(b, news->up);
    pack_u64(b, news->down);
    pack_u64(b, news->ms);
    pack_u64(b, news->count);
    pack_u64(b, news->group);
}

bool egress_unpack_news(char *bytes, size_t n, struct egress_news *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    ret->kind = get_kind(&u, EGRESS_NEWS_COUNT_);
    ret->id = unpack_u64(&u);
    ret->connection = unpack_u64(&u);
    ret->host = unpack_bounded(&u, EGRESS_TEXT);
    ret->port = unpack_upto(&u, UINT16_MAX);
    ret->rule = unpack_bounded(&u, EGRESS_TEXT);
    ret->why = unpack_bounded(&u, EGRESS_TEXT);
    ret->fix = unpack_bounded(&u, EGRESS_TEXT);
    ret->up = unpack_u64(&u);
    ret->down = unpack_u64(&u);
    ret->ms = unpack_u64(&u);
    ret->count = unpack_u64(&u);
    ret->group = unpack_u64(&u);
    return (ret->id != 0 || ret->kind == EGRESS_READY) && unpack_done(&u);
}
