/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox as their API shows it. */
#pragma once

#include "front/e2b/e2b.h"

/* The one that the path names becomes the call's workspace. False: answered with 404. */
bool e2b_find(struct call *call, struct lifetime *ret);
/* What create and connect answer. */
json_t *sandbox_brief(struct call *call, const struct lifetime *l);
/* One of a list, or with all that is told of one. */
json_t *sandbox_listed(struct call *call, const struct store_workspace *w,
                       const struct lifetime *l);
json_t *sandbox_detail(struct call *call, const struct lifetime *l);
/* What the client calls metadata: labels that are not ours. */
json_t *sandbox_metadata(const struct store_workspace *w);
/* A label of ours; "" */
const char *sandbox_note(struct call *call, const struct store_workspace *w, const char *name);

void e2b_create(struct call *call);
void e2b_list(struct call *call);
void e2b_metrics(struct call *call);
void e2b_logs(struct call *call);
