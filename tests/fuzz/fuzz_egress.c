/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to carrel-egress and news from it: what is taken gives, written again, the same bytes. */
#include "fuzz.h"

#include <string.h>

#include "protocol/egress.h"

static void must_be(struct buf *b, const char *bytes, size_t n)
{
    MUST(buf_done(b) == 0 && b->n == n && memcmp(b->p, bytes, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct egress_order order;
    struct egress_news news;
    struct arena arena;
    struct buf b;

    if (size < 1)
        return 0;
    char *exact = malloc(size);
    MUST(exact);
    memcpy(exact, data + 1, size - 1);
    arena_init(&arena, 1 << 20);
    buf_init(&b, 1 << 20);
    if (data[0] % 2 == 0 && egress_unpack_order(exact, size - 1, &arena, &order)) {
        MUST(order.kind > 0 && order.kind < EGRESS_ORDER_COUNT_ && order.rules);
        MUST((order.id != 0) == (order.kind != EGRESS_SECRET));
        MUST(strlen(order.name) <= EGRESS_TEXT);
        egress_pack_order(&b, &order);
        must_be(&b, exact, size - 1);
    } else if (data[0] % 2 == 1 && egress_unpack_news(exact, size - 1, &news)) {
        MUST(news.kind > 0 && news.kind < EGRESS_NEWS_COUNT_ && news.port <= UINT16_MAX);
        MUST(strlen(news.host) <= EGRESS_TEXT && strlen(news.why) <= EGRESS_TEXT);
        egress_pack_news(&b, &news);
        must_be(&b, exact, size - 1);
    }
    buf_clear(&b);
    arena_clear(&arena);
    free(exact);
    return 0;
}
