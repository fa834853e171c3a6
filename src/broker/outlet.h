/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker knows of a sandbox whose network is a list of names, for egress.c, which tells it
 * to carrel-egress, and egress_news.c, which hears what becomes of it. */
#pragma once

#include "base/buf.h"
#include "broker/broker.h"
#include "broker/helper.h"
#include "protocol/egress.h"
#include "sys/packet.h"

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
    const char *authority;          /* its sandbox's, while that is there */
    char places[EGRESS_PLACES + 1]; /* struct egress_order's */
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

/* What carrel-egress says; helper.h. */
void outlet_heard(struct helper *helper, const char *bytes, size_t n);
/* It can be told everything now. */
void outlet_begin_all(struct broker *broker);
/* That sandbox has used so many bytes of its workspace's hour. */
void outlet_spent(struct broker *broker, const struct outlet *by, uint64_t bytes);
void outlet_free(struct broker *broker, struct outlet *outlet);
