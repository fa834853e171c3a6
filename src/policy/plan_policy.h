/* SPDX-License-Identifier: Apache-2.0 */
/* The key "plan" of a policy: what a plan may change, and who has to look at it first. All zero is
 * the default of every key, and never the widest choice. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLAN_POLICY_KINDS = 7,
    PLAN_POLICY_PATTERNS = 64,
    PLAN_POLICY_TYPES = 64,
    PLAN_POLICY_PATTERN_BYTES = 1024,
    PLAN_POLICY_MOST_OPERATIONS = 200000,
    PLAN_POLICY_EXPIRES_MS = 72 * 3600 * 1000, /* where the policy does not say */
};

#define PLAN_POLICY_WAITING_BYTES (16ULL << 30) /* likewise */

/* While a plan is open: its base may change, and the plan goes stale; or it may not. */
enum plan_base {
    PLAN_BASE_FREE,
    PLAN_BASE_LOCKED,
};

enum plan_approval {
    PLAN_APPROVAL_NONE,
    PLAN_APPROVAL_REQUIRED,
};

/* What is done about a change that is not wrong by itself. */
enum plan_care {
    PLAN_CARE_DEFAULT, /* as the rule itself says (plan/core/rules.c) */
    PLAN_CARE_REVIEW,
    PLAN_CARE_ALLOW,
    PLAN_CARE_REFUSE,
};

/* What a file is by its first bytes. */
enum plan_magic {
    PLAN_MAGIC_NONE,
    PLAN_MAGIC_ELF,
    PLAN_MAGIC_PE,
    PLAN_MAGIC_MACH,
    PLAN_MAGIC_SCRIPT,
    PLAN_MAGIC_COUNT_,
};

struct plan_patterns {
    const char *at[PLAN_POLICY_PATTERNS];
    size_t count;
};

struct plan_policy {
    enum plan_base base;
    enum plan_approval approval;
    enum plan_care executables;
    enum plan_care sensitive;
    enum plan_care case_twins;
    bool has_allow; /* a list that is there and empty allows nothing */
    struct plan_patterns allow;
    struct plan_patterns protect;
    bool has_operations;
    unsigned operations;                    /* bits, as plan_policy_kinds counts them */
    const char *endings[PLAN_POLICY_TYPES]; /* ".exe": denied */
    size_t ending_count;
    unsigned magics;         /* bits of enum plan_magic: denied */
    uint64_t max_file_bytes; /* 0: not set, here and below */
    uint64_t max_bytes;
    uint64_t max_operations;
    uint64_t waiting_bytes; /* of a workspace's plans that are not decided */
    uint64_t expires_ms;
    bool snapshot; /* one is made before a plan is applied */
    uint64_t history_keep;
    uint64_t history_days;
    uint64_t history_bytes;
};

/* Names of the kinds of operations, in the order of enum plan_kind (plan/core/plan.h). */
extern const char *const plan_policy_kinds[PLAN_POLICY_KINDS];
/* Names of what first bytes tell, in the order of enum plan_magic. */
extern const char *const plan_policy_magics[PLAN_MAGIC_COUNT_];
