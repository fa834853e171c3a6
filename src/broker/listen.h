/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets that clients connect to. */
#pragma once

#include "broker/broker.h"

/* Whether the address is one that may be listened on. */
int listen_check(const struct broker *broker, bool may_go_beyond, struct err *err);
int listen_open(struct broker *broker, struct err *err);
void listen_close(struct broker *broker);
/* The ports of ours, 0 after the last: no sandbox connects to them. */
void listen_ports(const struct broker *broker, uint16_t ret[CARREL_MAX_PORTS]);
void listen_describe(const struct broker *broker, char *tcp, size_t tcp_size, char *path,
                     size_t path_size);
/* Where HTTPS is served; "": nowhere. */
void listen_describe_tls(const struct broker *broker, char *tcp, size_t size);
/* "READY=1" and the like, to the service manager, if there is one. */
/* For a person, when the first front is ready: where it is, and a line to paste. */
void listen_welcome(const struct broker *b);
void listen_notify(const char *text);
/* How often to send WATCHDOG=1, in ms; 0: never. */
uint64_t listen_watchdog_ms(void);
