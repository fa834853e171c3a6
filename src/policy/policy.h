/* SPDX-License-Identifier: Apache-2.0 */
/* A policy: what a run may do, set by the workspace's owner. Untrusted bytes in, a checked
 * structure out. Options may narrow it, never widen it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "carrel.h"
#include "policy/network.h"
#include "policy/plan_policy.h"

enum {
    POLICY_MAX_MOUNTS = 64,
    POLICY_MAX_STORES = 16,
    POLICY_STORE = 64, /* longest name of one */
    POLICY_MAX_ENV = 256
};

/* Where what agents' keys change goes, in the daemon: to the tree, or to a plan. */
enum policy_writes {
    POLICY_WRITES_DIRECT,
    POLICY_WRITES_PLAN,
};

enum {
    SNAPSHOTS_KEEP = 24, /* that the daemon has made by itself, of each kind */
};

/* An object store that is shown inside, by the daemon. */
struct policy_store {
    const char *store;
    const char *at; /* a name at the top: "/projects" */
    bool writable;
};

struct policy {
    enum carrel_level level;
    enum carrel_net net;
    const char *net_rules[NETWORK_MOST + 1]; /* of CARREL_NET_ALLOW; with "@set" as written */
    size_t net_rule_count;
    uint64_t net_connections; /* 0: not set */
    uint64_t net_bytes_per_hour;
    enum carrel_user user;
    struct carrel_mount mounts[POLICY_MAX_MOUNTS];
    size_t mount_count;
    struct policy_store stores[POLICY_MAX_STORES];
    size_t store_count;
    const char *env[POLICY_MAX_ENV];
    size_t env_count;
    uint64_t timeout_ms; /* 0: not set */
    uint64_t tmp_bytes;
    const char *base; /* the daemon shows a system of the workspace's own on it; NULL: the host's */
    bool no_root;     /* ... without commands as root */
    bool no_sudo;     /* ... and without those that a command of the user's asks for */
    bool tmp_exec;    /* the daemon keeps /tmp and /.cache no longer than commands run */
    uint64_t output_bytes;
    struct carrel_limits limits;
    struct plan_policy plan;
    enum policy_writes writes;
    uint64_t snapshots_every_ms; /* the daemon makes them by itself; 0: it does not */
    uint64_t snapshots_keep;     /* so many of its own; 0: SNAPSHOTS_KEEP */
};

/* Strings live in `arena`. */
int policy_parse(struct policy *ret, struct arena *arena, const char *bytes, size_t n,
                 struct err *err);
/* Reads the file and parses it; or one of srt's settings (srt.h), whose paths are of `workspace`.
 */
int policy_load(struct policy *ret, struct arena *arena, const char *path, const char *workspace,
                struct err *err);
/* Replaces every "@set" by the rules of the file of that name in `dir`; to be called once before
 * the policy is applied, if it has rules of the network. */
int policy_expand_sets(struct policy *policy, struct arena *arena, const char *dir,
                       struct err *err);
/* Puts the policy under the spec: fills what was not asked for, refuses what goes beyond. `env` and
 * `mounts` of the spec are replaced by joined lists in `arena`. */
int policy_apply(const struct policy *policy, struct arena *arena, struct carrel_spec *spec,
                 struct err *err);
