/* SPDX-License-Identifier: Apache-2.0 */
/* Object stores, and the processes that move files to them.
 *
 *   stores.c   the stores' configurations, with what is secret in them: DIR/.carrel/stores
 *   movers.c   carrel-mover: a process for each job, from the request to its end
 */
#pragma once

#include "broker/broker.h"

/* --- stores.c */
bool store_set(struct broker *b, char *bytes, size_t n);
void store_remove(struct broker *b, uint64_t tag, const struct plain_message *m);
void store_list(struct broker *b, uint64_t tag);
/* Its configuration, open for reading; or -1. */
int store_open_conf(const struct broker *b, const char *name, struct err *err);
/* Our name in stores, which lasts as long as DIR. */
int store_daemon_name(const struct broker *b, char ret[65], struct err *err);

/* --- movers.c */
bool mover_request(struct broker *b, char *bytes, size_t n);
/* `tag` is of the request. */
void mover_cancel(struct broker *b, uint64_t tag);
/* A front hears them, or nobody. */
void movers_end_all(struct broker *b);
void movers_close(struct broker *b);
