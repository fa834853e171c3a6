/* SPDX-License-Identifier: Apache-2.0 */
/* A policy, and a spec that it is applied to. */
#pragma once

#include <string.h>

#include "policy/policy.h"

/* Room for one test; the policy's strings live in the arena. */
struct desk {
    struct policy policy;
    struct arena arena;
    struct carrel_spec spec;
    struct err err;
};

static inline void desk_clear(struct desk *d)
{
    arena_clear(&d->arena);
}

#define scoped_desk __attribute__((cleanup(desk_clear))) struct desk d = {.arena = {.max = 1 << 20}}

static inline int parse(struct desk *d, const char *text)
{
    return policy_parse(&d->policy, &d->arena, text, strlen(text), &d->err);
}

static inline int apply(struct desk *d, const char *text)
{
    return parse(d, text) < 0 ? -2 : policy_apply(&d->policy, &d->arena, &d->spec, &d->err);
}
