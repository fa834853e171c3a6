/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the JSON of a policy by tables of keys; for the files of this layer only. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"

struct reader {
    struct policy *policy;
    struct arena *arena;
    struct err *err;
};

/* `read` returns 0, -ECANCELED when the reader's error is set, any other number when the value is
 * not what is expected. */
struct key {
    const char *name;
    const char *expected; /* said when the type or value is wrong */
    int (*read)(struct reader *, const json_t *);
};

/* The one walk over every object: each member must be a known key. */
int reader_object(struct reader *r, const json_t *object, const struct key *keys, size_t count);
/* Text without NUL bytes, which a system call would cut short; NULL: it is not that. */
const char *reader_text(struct reader *r, const json_t *value);
/* A number of bytes, or text such as "64M". */
int reader_size(const json_t *value, uint64_t *ret);
/* A whole number from 1 to `most`. */
int reader_count(const json_t *value, uint64_t most, uint64_t *ret);

/* The key "network", as an object (network_policy.c). */
int network_policy_read(struct reader *r, const json_t *value);
/* The key "plan" (plan_policy.c). */
int plan_policy_read(struct reader *r, const json_t *value);
