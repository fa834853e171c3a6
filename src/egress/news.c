/* SPDX-License-Identifier: Apache-2.0 */
/* News go out in their order. Where nobody reads they wait here, within a bound that is never
 * passed: new connections are refused before (news_are_stuck). What is refused again and again is
 * told once in a second, with how often. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "egress/egress.h"

enum {
    STUCK = 4096,     /* messages: no new connections */
    OVERFLOW = 65536, /* ... more than those there were can have to say */
    TELL_MS = 1000,
};

struct item {
    struct item *next;
    size_t n;
    char bytes[];
};

struct news {
    struct egress *egress;
    struct item *first;
    struct item **last;
    size_t count;
    struct timer timer; /* to tell how often */
    bool waits;         /* for the socket */
};

static void tell_often(struct timer *timer);

int news_open(struct egress *e, struct err *err)
{
    e->news = calloc(1, sizeof(*e->news));
    if (!e->news)
        return err_set(err, ERR_LIMIT, ENOMEM, "open the news");
    e->news->egress = e;
    e->news->last = &e->news->first;
    e->news->timer.ring = tell_often;
    return 0;
}

/* 1: sent, 0: not now. */
static int send_now(struct egress *e, const void *bytes, size_t n)
{
    for (;;) {
        if (send(e->talk.fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 1;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != ENOBUFS)
            _exit(0); /* nobody is there any more, and what nobody records is not done */
        return 0;
    }
}

static void wait_for_room(struct egress *e, bool waits)
{
    if (e->news->waits == waits)
        return;
    e->news->waits = waits;
    (void)events_change(e->events, &e->talk, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void news_go_on(struct egress *e)
{
    struct news *w = e->news;

    while (w->first) {
        struct item *item = w->first;
        if (!send_now(e, item->bytes, item->n))
            break;
        w->first = item->next;
        if (!w->first)
            w->last = &w->first;
        w->count--;
        free(item);
    }
    wait_for_room(e, w->first != NULL);
}

static void keep(struct news *w, const struct buf *b)
{
    struct item *item = w->count < OVERFLOW ? malloc(sizeof(*item) + b->n) : NULL;

    if (!item) {
        log_warning("news_lost", "message", "nobody reads them: ending", NULL);
        _exit(1); /* rather than to go on without a record */
    }
    item->next = NULL;
    item->n = b->n;
    memcpy(item->bytes, b->p, b->n);
    *w->last = item;
    w->last = &item->next;
    w->count++;
    wait_for_room(w->egress, true);
}

void news_tell(struct egress *e, const struct egress_news *news)
{
    struct buf b;

    buf_init(&b, EGRESS_NEWS);
    egress_pack_news(&b, news);
    if (buf_done(&b) < 0) {
        log_warning("news_lost", "message", "there is no memory: ending", NULL);
        _exit(1);
    }
    if (e->news->first || !send_now(e, b.p, b.n))
        keep(e->news, &b);
    buf_clear(&b);
}

bool news_are_stuck(const struct egress *e)
{
    return e->news->count >= STUCK;
}

/* --- refusals --- */

static void tell_refusal(struct box *box, struct refusal *r, uint64_t now)
{
    news_tell(box->egress, &(struct egress_news){.kind = EGRESS_REFUSED,
                                                 .id = box->id,
                                                 .host = r->host,
                                                 .port = r->port,
                                                 .rule = r->rule,
                                                 .why = r->why,
                                                 .fix = r->fix,
                                                 .ms = now_ms() - r->at_ms,
                                                 .count = r->count,
                                                 .group = r->group});
    r->count = 0;
    r->told_ms = now;
}

static void tell_untold(struct box *box)
{
    struct refusal rest = {.host = "*",
                           .rule = "",
                           .why = "more were refused than are told one by one",
                           .at_ms = now_ms(),
                           .count = box->untold};

    box->untold = 0;
    if (rest.count)
        tell_refusal(box, &rest, 0);
}

void news_flush(struct box *box)
{
    uint64_t now = now_ms();

    for (size_t i = 0; box->refusals && i < REFUSALS_KEPT; i++) {
        if (box->refusals[i].count)
            tell_refusal(box, &box->refusals[i], now);
    }
    tell_untold(box);
}

static void tell_often(struct timer *timer)
{
    struct news *w = (struct news *)(void *)((char *)timer - offsetof(struct news, timer));

    for (struct box *box = w->egress->boxes; box; box = box->next)
        news_flush(box);
}

static void tell_later(struct news *w)
{
    if (w->timer.due_ms == 0)
        (void)timer_set(w->egress->events, &w->timer, now_ms() + TELL_MS);
}

/* The same one, or the one that was told longest ago. */
static struct refusal *find_refusal(struct box *box, const struct refused *like, bool *ret_is_same)
{
    struct refusal *oldest = box->refusals;

    for (size_t i = 0; i < REFUSALS_KEPT; i++) {
        struct refusal *r = &box->refusals[i];
        if (r->why == like->why && r->group == like->group && r->port == like->port &&
            strcmp(r->host, like->host) == 0) {
            *ret_is_same = true;
            return r;
        }
        if (r->told_ms < oldest->told_ms)
            oldest = r;
    }
    *ret_is_same = false;
    return oldest;
}

/* Whether one more may be told by itself in this second. */
static bool has_turn(struct box *box, uint64_t now)
{
    if (now - box->told_ms >= TELL_MS) {
        box->told_ms = now;
        box->told = 0;
    }
    return box->told++ < REFUSALS_TOLD && !news_are_stuck(box->egress);
}

void news_refuse(struct box *box, const struct refused *refused)
{
    uint64_t now = now_ms();
    bool is_same = false;

    if (!box->refusals)
        box->refusals = calloc(REFUSALS_KEPT, sizeof(*box->refusals));
    struct refusal *r = box->refusals ? find_refusal(box, refused, &is_same) : NULL;
    if (r && is_same) {
        r->count++;
        r->at_ms = now;
        if (now - r->told_ms < TELL_MS) {
            tell_later(box->egress->news);
            return;
        }
    } else if (r && has_turn(box, now)) {
        if (r->count)
            tell_refusal(box, r, now);
        *r = (struct refusal){.why = refused->why,
                              .port = refused->port,
                              .count = 1,
                              .group = refused->group,
                              .at_ms = now};
        snprintf(r->host, sizeof(r->host), "%s", refused->host);
        snprintf(r->rule, sizeof(r->rule), "%s", refused->rule);
        snprintf(r->fix, sizeof(r->fix), "%s", refused->fix);
    } else {
        box->untold++;
        tell_later(box->egress->news);
        return;
    }
    tell_refusal(box, r, now);
}
