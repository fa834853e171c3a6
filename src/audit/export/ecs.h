/* SPDX-License-Identifier: Apache-2.0 */
/* One record as a document of the Elastic Common Schema. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct ecs_facts {
    uint64_t seq;
    char id[96];   /* "SEQ-HASH": the same whenever the record is sent, and nobody else's */
    char hash[65]; /* of its line */
    char time[28];
    char operation[64];
    const char *outcome; /* in the schema's words */
    bool failed;
};

/* Adds the document to `doc`, without a newline. `host` is this host's name. `whole`: with the line
 * itself, from which the chain can be checked anew. -1: the line is not a record, or no memory. */
int ecs_encode(const char *line, size_t n, const char *host, bool whole, struct buf *doc,
               struct ecs_facts *ret);
