/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "protocol/broker.h"
#include "sys/message.h"

enum {
    SLOTS = 1024 /* tags are handed out in order, so that they spread evenly */
};

struct question {
    struct question *next;
    uint64_t tag;
    link_heard *heard;
    void *context;
    bool many;
};

struct link {
    struct events *events;
    struct watch watch;
    int socket;
    uint64_t last_tag;
    link_heard *event;
    void *context;
    struct question *questions[SLOTS];
};

/* Without the broker there is nothing a front can do; the next one begins anew. */
static _Noreturn void lose_broker(const char *doing, int r)
{
    fprintf(stderr, "level=error event=broker_lost doing='%s' error='%s'\n", doing,
            r < 0 ? strerrordesc_np(-r) : "closed");
    _exit(1);
}

static struct question *take_question(struct link *link, uint64_t tag)
{
    for (struct question **at = &link->questions[tag % SLOTS]; *at; at = &(*at)->next) {
        struct question *q = *at;
        if (q->tag != tag)
            continue;
        if (!q->many)
            *at = q->next;
        return q;
    }
    return NULL;
}

void link_pass(struct link *link, struct answer *answer)
{
    link->event(link->context, answer);
}

static void hand_out(struct link *link, struct answer *answer)
{
    uint64_t tag = 0;

    if (answer->n >= sizeof(tag))
        memcpy(&tag, answer->bytes, sizeof(tag));
    struct question *q = tag ? take_question(link, tag) : NULL;
    if (!q) {
        link->event(link->context, answer);
        return;
    }
    bool once = !q->many; /* one that hears many may settle, and be freed, meanwhile */
    q->heard(q->context, answer);
    if (once)
        free(q);
}

static void receive(struct watch *watch, uint32_t what)
{
    struct link *link = container_of(watch, struct link, watch);
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;

    (void)what;
    int r = message_receive_head(link->socket, &head, fds);
    if (r <= 0)
        lose_broker("receive", r);
    struct answer answer = {.kind = head.kind,
                            .bytes = malloc(head.length + 1UL),
                            .n = head.length,
                            .fds = fds,
                            .fd_count = head.fd_count};
    if (!answer.bytes)
        lose_broker("receive", -ENOMEM);
    r = message_read_exactly(link->socket, answer.bytes, answer.n);
    if (r < 0)
        lose_broker("receive", r);
    hand_out(link, &answer);
    for (size_t i = 0; i < answer.fd_count; i++)
        scope_close(&fds[i]);
    free(answer.bytes);
}

int link_open(struct link **ret, struct events *events, int socket, link_heard *event,
              void *context)
{
    struct link *link = calloc(1, sizeof(*link));

    if (!link)
        return -ENOMEM;
    *link = (struct link){.events = events,
                          .watch = {.ready = receive, .fd = -1},
                          .socket = socket,
                          .event = event,
                          .context = context};
    int r = events_watch(events, &link->watch, socket, EPOLLIN);
    if (r < 0) {
        free(link);
        return r;
    }
    *ret = link;
    return 0;
}

static uint64_t expect(struct link *link, link_heard *heard, void *context, bool many)
{
    struct question *q = calloc(1, sizeof(*q));

    if (!q)
        return 0;
    *q = (struct question){
        .tag = ++link->last_tag, .heard = heard, .context = context, .many = many};
    q->next = link->questions[q->tag % SLOTS];
    link->questions[q->tag % SLOTS] = q;
    return q->tag;
}

uint64_t link_expect(struct link *link, link_heard *heard, void *context)
{
    return expect(link, heard, context, false);
}

uint64_t link_expect_many(struct link *link, link_heard *heard, void *context)
{
    return expect(link, heard, context, true);
}

void link_settle(struct link *link, uint64_t tag)
{
    struct question *q = take_question(link, tag);

    if (!q)
        return;
    for (struct question **at = &link->questions[tag % SLOTS]; *at; at = &(*at)->next) {
        if (*at == q) {
            *at = q->next;
            break;
        }
    }
    free(q);
}

void link_send(struct link *link, uint32_t kind, struct buf *message)
{
    int r = buf_done(message) < 0
                ? -ENOMEM
                : message_send(link->socket, kind, message->p, message->n, NULL, 0);
    if (r < 0)
        lose_broker("send", r);
    buf_clear(message);
}

int answer_check(struct answer *answer, struct err *ret)
{
    uint64_t tag;

    if (answer->kind != ANSWER_ERROR)
        return 0;
    if (!protocol_unpack_error(answer->bytes, answer->n, &tag, ret))
        err_set(ret, ERR_IO, 0, "the broker's answer cannot be read");
    return -1;
}
