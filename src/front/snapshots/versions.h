/* SPDX-License-Identifier: Apache-2.0 */
/* What comes of snapshots: a workspace that goes back to one (merge.c), a fork whose changes come
 * into a workspace (merge.c), what two versions have different (compare.c). */
#pragma once

#include "front/core/call.h"

enum {
    VERSION_ROOM = FRONT_ID + 28, /* "WORKSPACE/SNAPSHOT" */
};

/* Makes a snapshot of its own kind of the workspace, `why`, and drops those of that kind that
 * nobody needs any more. `then` is called with the answer of carrel-plan. */
void version_take(struct call *call, const struct store_workspace *of, const char *why,
                  void (*then)(struct call *call, json_t *answer, uint64_t frozen_ms));
/* The other workspace that a body names, of the same owner and bucket, which this one may see.
 * False: answered. */
bool version_workspace(struct call *call, const char *field, const char *id,
                       struct store_workspace *ret);
