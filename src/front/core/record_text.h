/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "protocol/broker.h"

enum {
    DETAILS_MAX = PROTOCOL_DETAILS - 256, /* the broker adds who said so */
};

/* The details of a record as text, malloc'd; takes them. Where they are longer than `most`, the
 * longest members become {"omitted", "count" or "bytes", "sha256" of its JSON}: who decided what
 * is never left out for the sake of a list. NULL: without memory, or no details. */
char *record_text(json_t *details, size_t most);
