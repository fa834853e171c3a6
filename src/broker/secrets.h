/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets of owners, sealed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/broker.h"
#include "protocol/broker.h"

/* At the start: the key, made where there is none. */
int secrets_begin(struct broker *broker, struct err *err);
/* Open on the key, for carrel-egress; the caller closes it. -1: *err says why. */
int secrets_key(const struct broker *broker, struct err *err);
/* All of them to a carrel-egress that has begun. */
void secrets_tell(struct broker *broker);
/* REQUEST_SECRET_SET, _LIST; false: it is none. */
bool secret_set(struct broker *broker, char *bytes, size_t n);
bool secret_list(struct broker *broker, uint64_t tag, const struct plain_message *m);
