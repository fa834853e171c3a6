/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "front/core/call.h"

/* POST /v1/sandbox: a workspace with an empty directory /workspace. */
void sandbox_create(struct call *call);
