/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "front/core/router.h"

extern const struct route store_routes[];

void stores_set(struct call *call);
void stores_list(struct call *call);
void stores_remove(struct call *call);
void stores_check(struct call *call);
