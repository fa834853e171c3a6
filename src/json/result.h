/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a command as `carrel run --json` prints it and the daemon answers it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "carrel.h"

/* "exit", "signal", "timeout", ... */
const char *result_reason(const struct carrel_result *result);
/* Without output a note (why it could not be started) is a member of its own. */
json_t *result_json(const struct carrel_result *result, bool with_output);
