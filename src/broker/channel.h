/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from the front and to it. */
#pragma once

#include "broker/broker.h"

int channel_open(struct broker *broker, int *socket, struct err *err);
void channel_close(struct broker *broker);
/* What a front that has died had still said. */
void channel_hear_out(struct broker *broker);
/* Borrows the descriptors. Without a front nothing happens. */
void channel_send(struct broker *broker, uint32_t kind, struct buf *message, const int *fds,
                  size_t fd_count);
void channel_send_plain(struct broker *broker, uint32_t kind, uint64_t tag,
                        const struct plain_message *m);
void channel_send_ok(struct broker *broker, uint64_t tag);
/* How many bytes the front has not read: queued, or in the socket. */
uint64_t channel_unread(const struct broker *broker);
/* Whether the front does not keep up: then what it can do without is not sent. Otherwise a sandbox
 * with much to report could have the front ended. */
bool channel_is_behind(const struct broker *broker);
void channel_send_error(struct broker *broker, uint64_t tag, const struct err *err);
