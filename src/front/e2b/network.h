/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "front/e2b/e2b.h"

/* What a policy says of the network for what they ask: whether the internet is wanted at all, and
 * the lists of what is let out and what is not, in `lists`. False: it cannot be had, which is
 * answered. */
bool network_wanted(struct call *call, const json_t *internet, const json_t *lists, json_t **ret);
/* PUT /sandboxes/{id}/network */
void network_update(struct call *call);
