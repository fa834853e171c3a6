/* SPDX-License-Identifier: Apache-2.0 */
/* Which workspaces are mirrored to a store, and when: a while after something may have changed in
 * one, after a failure ever later, and when somebody asks. What changed carrel-mover finds out. */
#pragma once

#include <jansson.h>

#include "front/core/call.h"

/* After a start: all that are mirrored are looked at. */
void mirror_begin(struct front *front);
/* It has been made, changed or taken back from the trash. */
void mirror_set(struct front *front, const struct store_workspace *w);
/* It is deleted: what is in the store stays. */
void mirror_drop(struct front *front, const char *workspace);
/* Something may be another in its tree. */
void mirror_changed(struct front *front, const char *workspace);
/* What is told of it in the workspace's object: its settings and how far it is; NULL: none. */
json_t *mirror_json(const struct front *front, const struct store_workspace *w);

/* For /metrics. */
struct mirror_sums {
    uint64_t workspaces;
    uint64_t failing;
    uint64_t unsynced_bytes;
    uint64_t unsynced_seconds; /* the longest */
};

struct mirror_sums mirror_sums(const struct front *front);

/* The member "store" of a request, as it is kept: "" for none. False: answered. */
bool mirror_read(struct call *call, const char **ret);
/* POST /v1/workspaces/{ws}/sync */
void mirror_sync(struct call *call);
