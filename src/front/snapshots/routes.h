/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/snapshots, forks of them, and what comes back from those. */
#pragma once

#include "front/core/router.h"

extern const struct route snapshot_routes[];

void snapshots_create(struct call *call);
void snapshots_list(struct call *call);
void snapshots_get(struct call *call);
void snapshots_delete(struct call *call);
/* merge.c */
void snapshots_merge(struct call *call);
void snapshots_restore(struct call *call);
/* compare.c */
void snapshots_compare(struct call *call);
