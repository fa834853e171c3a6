/* SPDX-License-Identifier: Apache-2.0 */
/* Records that the front asks the broker to write. */
#pragma once

#include <jansson.h>

#include "front/core/front.h"

/* Writes a record for an actor whose request may be over. Calls `heard` (or NULL) when it is on
 * disk, with NULL or what went wrong. Takes `details`. */
typedef void front_recorded(void *context, const struct err *failed);

struct front_record {
    const char *actor;
    const char *request;
    const char *workspace;
    const char *operation;
    const char *result;
};

void front_record(struct front *front, const struct front_record *r, json_t *details,
                  front_recorded *heard, void *context);
