/* SPDX-License-Identifier: Apache-2.0 */
/* The record, and what waits for the disk. */
#pragma once

#include "broker/broker.h"

int record_open(struct broker *broker, struct err *err);
void record_close(struct broker *broker);
/* 0, or -1: it cannot be written, and `waiter` will not be called. `waiter` may be NULL. */
int record_add(struct broker *broker, const struct audit_record *record, struct waiter *waiter,
               struct err *err);
/* The same for what must not begin without its record: that is in the file then, not yet on disk,
 * and written again if it cannot get there. */
int record_begin(struct broker *broker, const struct audit_record *record, struct waiter *waiter,
                 struct err *err);
/* The same for what has happened and cannot be refused any more: what cannot be written now is kept
 * and tried again. 0: `waiter` will be called; -1: it will not. */
int record_note(struct broker *broker, const struct audit_record *record, struct waiter *waiter);
/* Writes what was added to the file, if that can be written. */
void record_write(struct broker *broker);
/* Whether the disk is so far behind that answers wait for it. */
bool record_is_late(const struct broker *broker);
/* Once in each turn of the loop, before it waits: sends what was added to the disk. */
void record_commit(struct broker *broker);
/* Waits until everything is on disk, a few seconds at most. False: some of it is not. */
bool record_flush(struct broker *broker);
/* Why it cannot be written, while it cannot. */
int record_errno(const struct broker *broker);
/* Where the records are. */
void record_dir(const struct broker *broker, char *path, size_t size);
/* Whether something that is asked for may be recorded: with the last room, only what makes more,
 * or takes a right away. */
int record_may_add(struct broker *b, const char *operation, struct err *err);
/* A text as JSON, at most `most` bytes of it. */
void record_put_text(struct buf *b, const char *text, size_t most);
