/* SPDX-License-Identifier: Apache-2.0 */
/* Object stores that sandboxes see as directories. One mount for each store, which all its
 * workspaces share; rclone serves it, as a child of carrel-mover.
 *
 *   none --(a sandbox wants it)--> begins --(it answers)--> serves --(it ended, or did not
 *   answer)--> away --(after a pause)--> begins ...
 *
 * Requests wait while it begins. Sandboxes that live when it serves again get the new mount.
 * Nothing here or in the engine asks the mount anything: mount_room.h. */
#pragma once

#include "broker/broker.h"

struct sandbox_spec;

/* Those that were mounted before: what was written then may not be in the store yet. */
void store_mounts_resume(struct broker *broker);
/* 0: all stores of the message serve; 1: one begins, and the request was kept until it does; -1. */
int store_mounts_await(struct broker *broker, uint32_t kind, const struct exec_message *m,
                       uint64_t tag, struct err *err);
/* A copy of the mount of each, for a sandbox that is made. */
int store_mounts_add(struct broker *broker, struct sandbox_spec *to, const struct exec_message *m,
                     struct err *err);
/* The store is another one now, or none. */
void store_mounts_changed(struct broker *broker, const char *store);
void store_mounts_close(struct broker *broker);
