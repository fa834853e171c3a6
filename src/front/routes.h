/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon itself: how it is (host.c), its record (audit_routes.c), what happens (core/events.c).
 */
#pragma once

#include "front/core/router.h"

extern const struct route front_routes[];

void health_get(struct call *call);
void ready_get(struct call *call);
void openapi_get(struct call *call);
void version_get(struct call *call);
void metrics_get(struct call *call);
void host_get(struct call *call);
void records_list(struct call *call);
/* Connections of a workspace, and names that were refused it. */
void records_net(struct call *call);
void records_raw(struct call *call);
void records_heads(struct call *call);
void records_keys(struct call *call);
