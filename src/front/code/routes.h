/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "front/core/router.h"

extern const struct route code_routes[];
