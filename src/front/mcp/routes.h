/* SPDX-License-Identifier: Apache-2.0 */
/* /mcp */
#pragma once

#include "front/core/router.h"

extern const struct route mcp_routes[];

void mcp_post(struct call *call);
void mcp_delete(struct call *call);
