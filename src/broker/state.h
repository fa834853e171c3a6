/* SPDX-License-Identifier: Apache-2.0 */
/* DIR: its layout, its lock and the key in it. */
#pragma once

#include "broker/broker.h"

/* Opens or makes DIR and what is in it, takes the lock, reads or makes the key. */
int state_open(struct broker *broker, struct err *err);
/* Releases the lock. stopped: clean shutdown; the next start has nothing to recover. */
void state_close(struct broker *broker, bool stopped);
/* A bucket's directories, made if need be. */
int state_make_bucket(const struct broker *broker, const char *bucket, struct err *err);
