/* SPDX-License-Identifier: Apache-2.0 */
/* Who has the tree of a workspace for itself. */
#pragma once

#include "broker/broker.h"

enum lock_use {
    LOCK_PLAN,
    LOCK_FREEZE,
    LOCK_FILL,
};

/* 0, or -1 with EBUSY: somebody else has it. From now on nothing new is begun in it. */
int lock_take(struct broker *broker, const char *workspace, enum lock_use use, const void *holder,
              struct err *err);
/* Nothing happens when `from` does not have it. */
void lock_pass(struct broker *broker, const char *workspace, const void *from, const void *to);
/* What waited goes on. Nothing happens for one that does not have it. */
void lock_release(struct broker *broker, const char *workspace, const void *holder);
bool lock_is_held(const struct broker *broker, const char *workspace);
/* 0: it may begin; 1: it is kept for later; -1: too many are. */
int lock_defer(struct broker *broker, uint32_t kind, const struct exec_message *m, uint64_t tag,
               struct err *err);
/* Puts what lives in it to sleep. 0: nothing does; 1: not yet; -1 with EBUSY: commands run.
 * `patient`: calls on files may finish first. */
int lock_settle(struct broker *broker, const char *workspace, bool patient, struct err *err);

/* The requests that wait for this workspace's tree are refused. */
void lock_refuse(struct broker *broker, const char *workspace, const char *why);
