/* SPDX-License-Identifier: Apache-2.0 */
/* The front's line to the broker: requests with a tag, answers to whoever asked, events to all. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/events.h"

struct channel;

struct answer {
    uint32_t kind; /* enum answer_kind */
    char *bytes;   /* the whole message, tag first; may be changed */
    size_t n;
    int *fds; /* taken ones are set to -1; the rest is closed after the call */
    size_t fd_count;
};

typedef void broker_heard(void *context, struct answer *answer);

/* 0, or -1 with the error in an ANSWER_ERROR. */
int answer_check(struct answer *answer, struct err *ret);

/* `event` hears what nobody asked for. 0 or -errno. */
int broker_open(struct channel **ret, struct events *events, int socket, broker_heard *event,
                void *context);
/* A tag for a message to come, and who is to hear the answer; 0 without memory. */
uint64_t broker_expect(struct channel *channel, broker_heard *heard, void *context);
/* Also for all answers with this tag until broker_settle: a request with many answers. */
uint64_t broker_expect_many(struct channel *channel, broker_heard *heard, void *context);
void broker_settle(struct channel *channel, uint64_t tag);
/* To whoever hears what nobody has asked for. */
void broker_pass(struct channel *channel, struct answer *answer);
/* Sends a packed message and empties it. A broker that does not listen ends the front. */
void broker_send(struct channel *channel, uint32_t kind, struct buf *message);
