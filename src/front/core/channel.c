/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "protocol/broker.h"
#include "sys/message.h"

enum {
    SLOTS = 1024 /* tags are handed out in order, so that they spread evenly */
};

struct question {
    struct question *next;
    uint64_t tag;
    broker_heard *heard;
    void *context;
    bool many;
};

struct channel {
    struct events *events;
    struct watch watch;
    int socket;
    uint64_t last_tag;
    broker_heard *event;
    void *context;
    struct question *questions[SLOTS];
};

/* Without the broker there is nothing a front can do; the next one begins anew. */
static _Noreturn void lose_broker(const char *doing, int r)
{
    log_error("broker_lost", "doing", doing, "error", r < 0 ? strerrordesc_np(-r) : "closed", NULL);
    _exit(1);
}

static struct question *take_question(struct channel *channel, uint64_t tag)
{
    for (struct question **at = &channel->questions[tag % SLOTS]; *at; at = &(*at)->next) {
        struct question *q = *at;
        if (q->tag != tag)
            continue;
        if (!q->many)
            *at = q->next;
        return q;
    }
    return NULL;
}

void broker_pass(struct channel *channel, struct answer *answer)
{
    channel->event(channel->context, answer);
}

static void hand_out(struct channel *channel, struct answer *answer)
{
    uint64_t tag = 0;

    if (answer->n >= sizeof(tag))
        memcpy(&tag, answer->bytes, sizeof(tag));
    struct question *q = tag ? take_question(channel, tag) : NULL;
    if (!q) {
        channel->event(channel->context, answer);
        return;
    }
    bool once = !q->many; /* one that hears many may settle, and be freed, meanwhile */
    q->heard(q->context, answer);
    if (once)
        free(q);
}

static void receive(struct watch *watch, uint32_t what)
{
    struct channel *channel = container_of(watch, struct channel, watch);
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;

    (void)what;
    int r = message_receive_head(channel->socket, &head, fds);
    if (r <= 0)
        lose_broker("receive", r);
    struct answer answer = {.kind = head.kind,
                            .bytes = malloc(head.length + 1UL),
                            .n = head.length,
                            .fds = fds,
                            .fd_count = head.fd_count};
    if (!answer.bytes)
        lose_broker("receive", -ENOMEM);
    r = message_read_exactly(channel->socket, answer.bytes, answer.n);
    if (r < 0)
        lose_broker("receive", r);
    hand_out(channel, &answer);
    for (size_t i = 0; i < answer.fd_count; i++)
        scope_close(&fds[i]);
    free(answer.bytes);
}

int broker_open(struct channel **ret, struct events *events, int socket, broker_heard *event,
                void *context)
{
    struct channel *channel = calloc(1, sizeof(*channel));

    if (!channel)
        return -ENOMEM;
    *channel = (struct channel){.events = events,
                                .watch = {.ready = receive, .fd = -1},
                                .socket = socket,
                                .event = event,
                                .context = context};
    int r = events_watch(events, &channel->watch, socket, EPOLLIN);
    if (r < 0) {
        free(channel);
        return r;
    }
    *ret = channel;
    return 0;
}

static uint64_t expect(struct channel *channel, broker_heard *heard, void *context, bool many)
{
    struct question *q = calloc(1, sizeof(*q));

    if (!q)
        return 0;
    *q = (struct question){
        .tag = ++channel->last_tag, .heard = heard, .context = context, .many = many};
    q->next = channel->questions[q->tag % SLOTS];
    channel->questions[q->tag % SLOTS] = q;
    return q->tag;
}

uint64_t broker_expect(struct channel *channel, broker_heard *heard, void *context)
{
    return expect(channel, heard, context, false);
}

uint64_t broker_expect_many(struct channel *channel, broker_heard *heard, void *context)
{
    return expect(channel, heard, context, true);
}

void broker_settle(struct channel *channel, uint64_t tag)
{
    struct question *q = take_question(channel, tag);

    if (!q)
        return;
    for (struct question **at = &channel->questions[tag % SLOTS]; *at; at = &(*at)->next) {
        if (*at == q) {
            *at = q->next;
            break;
        }
    }
    free(q);
}

void broker_send(struct channel *channel, uint32_t kind, struct buf *message)
{
    int r = buf_done(message) < 0
                ? -ENOMEM
                : message_send(channel->socket, kind, message->p, message->n, NULL, 0);
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
