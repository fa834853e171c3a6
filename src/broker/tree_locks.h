/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on the trees of workspaces: a holder has the tree for itself. */
#pragma once

#include "broker/broker.h"

enum lock_use {
    LOCK_PLAN,
    LOCK_FREEZE,
    LOCK_FILL,
    LOCK_SNAPSHOT,
    LOCK_RESET,
};

/* Takes the lock: nothing new is begun in the tree until it is released. 0, or -1 with EBUSY:
 * another holder has it. */
int lock_take(struct broker *broker, const char *workspace, enum lock_use use, const void *holder,
              struct err *err);
/* Makes `to` the holder. Does nothing where `from` is not. */
void lock_pass(struct broker *broker, const char *workspace, const void *from, const void *to);
/* Releases the lock; the requests that waited go on. Does nothing where `holder` does not
 * have it. */
void lock_release(struct broker *broker, const char *workspace, const void *holder);
bool lock_is_held(const struct broker *broker, const char *workspace);
/* Keeps the request until the tree is free. 0: the tree is free, begin; 1: kept; -1: too many wait.
 */
int lock_defer(struct broker *broker, uint32_t kind, const struct exec_message *m, uint64_t tag,
               struct err *err);
/* Ends the sandboxes that show the tree. 0: none is left; 1: not yet; -1 with EBUSY: commands run.
 * `patient`: waits for calls on files. */
int lock_settle(struct broker *broker, const char *workspace, bool patient, struct err *err);

/* Refuses the requests that wait for this workspace's tree. */
void lock_refuse(struct broker *broker, const char *workspace, const char *why);
