/* SPDX-License-Identifier: Apache-2.0 */
/* What comes of snapshots: a workspace that goes back to one (merge.c), a fork whose changes come
 * into a workspace (merge.c), what two versions have different (compare.c). */
#pragma once

#include "front/core/call.h"
#include "front/snapshots/job.h"
#include "front/workspaces/trash.h"

enum {
    VERSION_ROOM = FRONT_ID + 28, /* "WORKSPACE/SNAPSHOT" */
};

/* A snapshot of its own kind, `why`, of a workspace. `change` is begun, so that nobody forks from,
 * or drops, what is in use: in the call's arena, and ended by who gets it, once nothing reads the
 * snapshot any more. */
struct version_wish {
    const struct store_workspace *of;
    const char *why;
    struct change *change;
    job_done *then; /* with the answer of carrel-plan */
    job_failed *failed;
};

/* Makes it, and drops those of that kind that nobody needs any more. Every refusal is answered;
 * where the job has failed after `failed`, which ends what the call holds. */
void version_take(struct call *call, const struct version_wish *wish);
/* The other workspace that a body names, of the same owner and bucket, which this one may see.
 * False: answered. */
bool version_workspace(struct call *call, const char *field, const char *id,
                       struct store_workspace *ret);
