/* SPDX-License-Identifier: Apache-2.0 */
/* HTTPS: carrel-tls, which ends TLS and has the key. */
#pragma once

#include "broker/broker.h"

/* Says no to settings that do not go together. Makes the certificate where settings ask for one of
 * its own, and has carrel-tls look at it: a daemon that could not serve HTTPS does not start. After
 * state_open, before there are threads. */
int tls_check(struct broker *broker, struct err *err);
/* The door to the front, and the socket to listen at; nothing without the setting. */
int tls_begin(struct broker *broker, struct err *err);
void tls_start(struct broker *broker);
void tls_stop(struct broker *broker);
/* Where the certificate is. */
const char *tls_certificate(const struct broker *broker);
