/* SPDX-License-Identifier: Apache-2.0 */
/* Where a symbolic link leads in the tree as the plan leaves it, through whatever other links, of
 * the plan or of the base. Nothing is opened on the way but directories, and no link is followed by
 * the kernel. */
#pragma once

#include "plan/core/index.h"
#include "plan/core/reach.h"

enum plan_lead {
    PLAN_LEAD_INSIDE, /* or to nothing */
    PLAN_LEAD_OUT,
    PLAN_LEAD_UNKNOWN, /* too long a way, or round and round */
    PLAN_LEAD_COUNT_,
};

struct plan_leads {
    const struct plan_index *index;
    struct reach tree;
    uint64_t looks; /* that are left, for all links together */
};

void plan_leads_init(struct plan_leads *leads, const struct plan_index *index, int tree,
                     uint64_t looks);
void plan_leads_clear(struct plan_leads *leads);

/* Of a link at the final path `path`; `through` gets the last other link on the way, or "". */
enum plan_lead plan_lead_of(struct plan_leads *leads, const char *path, const char *target,
                            char through[PLAN_MAX_PATH + 1]);
/* Of a link that the base has at `base`, and that comes to `path` with a directory. */
enum plan_lead plan_lead_of_moved(struct plan_leads *leads, const char *base, const char *path,
                                  char through[PLAN_MAX_PATH + 1]);
