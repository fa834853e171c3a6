/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/sandbox: what the Cloudflare client of OpenAI's Agents SDK asks a worker for. A sandbox is a
 * workspace, with the same id, of which the client uses the directory /workspace. Each call is one
 * of ours: the same key, owner check, plan and record; only its words are others. */
#pragma once

#include "front/core/router.h"

extern const struct route sandbox_routes[];

/* For front->translate: answers of ours in words of that protocol. */
json_t *sandbox_translate(struct call *call, int *status, json_t *object);
