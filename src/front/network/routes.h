/* SPDX-License-Identifier: Apache-2.0 */
/* The network by name of a workspace: which rule would decide, and rules that have changed. What
 * was connected is on the record (audit_routes.c). */
#pragma once

#include "front/core/router.h"

extern const struct route network_routes[];

void network_try(struct call *call);
/* secrets.c */
void secrets_list(struct call *call);
void secret_put(struct call *call);
void secret_remove(struct call *call);

/* Tells the broker what the workspace's policy says now, for a sandbox that lives; `then` is heard
 * when that is so. False: it is not asked, and nothing is heard. */
bool network_tell(struct call *call, call_heard *then);
