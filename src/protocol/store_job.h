/* SPDX-License-Identifier: Apache-2.0 */
/* What the front asks of the broker about stores: REQUEST_STORE_JOB, one thing that carrel-mover is
 * to do, and REQUEST_STORE_SET. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    STORE_EXCLUDES = 64,
    STORE_PATTERN = 255, /* longest pattern of what is not mirrored */
    STORE_KILLED = 255,  /* instead of an exit status */
};

struct store_job {
    const char *store;
    const char *verb;
    const char *bucket;         /* "": it is about no workspace */
    const char *workspace;      /* likewise */
    const char *const *exclude; /* ends with NULL */
    bool take_over;
};

void store_job_pack(struct buf *b, uint64_t tag, const struct store_job *job);
bool store_job_unpack(char *bytes, size_t n, struct arena *arena, uint64_t *ret_tag,
                      struct store_job *ret);

/* REQUEST_STORE_SET: a name, and a text as protocol/store.h has it. */
void protocol_pack_store(struct buf *b, uint64_t tag, const char *name, const char *text);
bool protocol_unpack_store(char *bytes, size_t n, uint64_t *ret_tag, const char **ret_name,
                           char **ret_text);
