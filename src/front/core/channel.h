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

/* `event` is called with every message that answers no request. 0 or -errno. */
int broker_open(struct channel **ret, struct events *events, int socket, broker_heard *event,
                void *context);
/* Returns a tag for the next message, whose answer `heard` is called with; 0 without memory. */
uint64_t broker_expect(struct channel *channel, broker_heard *heard, void *context);
/* For a request with many answers: `heard` is called with each, until broker_settle. */
uint64_t broker_expect_many(struct channel *channel, broker_heard *heard, void *context);
void broker_settle(struct channel *channel, uint64_t tag);
/* Hands an answer to `event`, as if it answered no request. */
void broker_pass(struct channel *channel, struct answer *answer);
/* Sends a packed message and empties it. A broker that does not listen ends the front. */
void broker_send(struct channel *channel, uint32_t kind, struct buf *message);
