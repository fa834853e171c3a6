/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs about versions share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "client/core/client.h"

/* Prints the plan that was made, which it takes, and what to do with it. Returns the exit status.
 */
int client_versions_plan(json_t *plan, bool json);
/* Asks what two versions of the workspace have different, and prints that; takes `body`. */
int client_versions_diff(struct daemon *daemon, const char *workspace, json_t *body, bool json,
                         struct err *err);
