/* SPDX-License-Identifier: Apache-2.0 */
/* What may be had at a time, of one owner and of the host: commands, sandboxes, and in sums what
 * the policies of live sandboxes allow. Whatever starts is asked for here, in this one thread, and
 * counted from then on: requests that come together exceed no quota together. Counted is at least
 * what the broker has, which minds the host's bounds once more. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "front/core/front.h"

struct sandbox_use;

struct quota_request {
    const char *workspace;
    const char *owner;
    uint64_t memory_bytes; /* of its sandbox, by the policy; 0: no limit */
    uint64_t pids;
    bool starts_nothing; /* with its sandbox, which is only woken to be read in */
};

/* What a request that cannot be met now waits for. */
enum quota_wait {
    QUOTA_NOTHING, /* it may start */
    QUOTA_OWNER,   /* something of its owner's ends */
    QUOTA_SANDBOX, /* a sandbox of the host ends */
    QUOTA_EXEC,    /* a command of the host ends */
    QUOTA_NEVER,   /* no end of anything would help */
};

struct quota_answer {
    enum quota_wait wait;
    const char *setting; /* which says so */
    char why[200];
};

void quota_check(const struct front *front, const struct quota_request *wanted,
                 struct quota_answer *ret);
/* For the sandbox alone, which is woken for something else than a command. */
void quota_check_sandbox(const struct front *front, const struct quota_request *wanted,
                         struct quota_answer *ret);
/* Whether it would start a sandbox, or one of another size. */
bool quota_wants_sandbox(const struct front *front, const struct quota_request *wanted);
/* Likewise of a sandbox alone, until the broker has answered. NULL without memory. */
struct sandbox_use *quota_wake(struct front *front, const struct quota_request *wanted);
void quota_woken(struct front *front, struct sandbox_use *awake);

/* What one command counts for, until it is freed. */
struct quota_use {
    struct front *front;
    struct owner_use *tenant;   /* whose quotas; NULL: no longer counted */
    struct sandbox_use *waking; /* while it is asked for */
    bool is_gone;               /* nothing of it is left running */
};

/* -1 without memory. */
int quota_use_begin(struct quota_use *use, struct front *front, const char *owner);
/* It is asked for: from here on its sandbox counts. Without memory -1. */
int quota_use_ask(struct quota_use *use, const struct quota_request *wanted);
/* It runs, or not: its sandbox counts by itself. */
void quota_use_answered(struct quota_use *use);
/* Nothing of it is left running. */
void quota_use_gone(struct quota_use *use);
void quota_use_end(struct quota_use *use);

/* Whether that is so for all that this one was asked for by. */
bool quota_starts_nothing(const struct front *front, const char *workspace);

/* What the broker tells of sandboxes. */
void quota_woke(struct front *front, const struct quota_request *made);
void quota_slept(struct front *front, const char *workspace);
void quota_froze(struct front *front, const char *workspace, bool is_frozen);

/* An owner with commands, or with output that is kept. Freed with the last of them. */
struct owner_use {
    struct owner_use *next;
    char owner[FRONT_ID];
    size_t uses;
    uint64_t spools;            /* of which something runs */
    uint64_t waiting;           /* requests in the queue */
    uint64_t chores;            /* trees that are being copied or removed */
    uint64_t bodies;            /* bytes of their requests that are kept until these are done */
    uint64_t file_bodies;       /* ...  that are kept for their workspaces' file servers */
    uint64_t output_running;    /* bytes on disk, of commands that are not over */
    uint64_t output_kept;       /* ... that are */
    struct kept_output *oldest; /* of these */
    struct kept_output *newest;
};

struct owner_use *owner_use_use(struct front *front, const char *owner);
void owner_use_drop(struct front *front, struct owner_use *tenant);
/* A whole tree is copied or removed for them. NULL: so many are already, or without memory. */
struct owner_use *owner_use_begin_chore(struct front *front, const char *owner);
void owner_use_end_chore(struct front *front, struct owner_use *tenant);
