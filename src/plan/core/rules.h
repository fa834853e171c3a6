/* SPDX-License-Identifier: Apache-2.0 */
/* The rules that one operation is judged by, in one table. */
#pragma once

#include "plan/core/patterns.h"
#include "plan/core/verify.h"

struct judge {
    const struct plan *plan;
    const struct plan_index *index;
    const struct plan_policy *policy;
    const struct plan_facts *facts;
    struct patterns allow;
    struct patterns protect;
    int32_t *rival; /* for each operation: another for the same place, or PLAN_NOBODY */
    int32_t *twin;  /* ... another whose final path differs in case only */
};

/* One operation before the judge. */
struct hearing {
    const struct judge *judge;
    size_t number;
    const struct plan_operation *operation;
    const struct plan_fact *fact;
    char *message; /* of PLAN_MESSAGE bytes */
};

enum {
    RULE_FIXED = -1 /* the policy has no say in it */
};

struct rule {
    const char *name;
    unsigned kinds;              /* bits of enum plan_kind */
    enum plan_severity severity; /* where the policy says nothing */
    long care;                   /* where in struct plan_policy it says */
    bool (*fires)(const struct hearing *h);
    const char *remedy;
};

extern const struct rule plan_rules[];
extern const size_t plan_rule_count;

/* Formats the message; true, so that a rule can return it. */
bool hearing_say(const struct hearing *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Why a path needs care, or NULL (sensitive.c). `arrives`: a directory comes there with all that is
 * in it. */
const char *plan_sensitive(const char *path, bool arrives);
