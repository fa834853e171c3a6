/* SPDX-License-Identifier: Apache-2.0 */
/* What sandbox the commands, the calls on files and the ports of a call's workspace get: its
 * policy, template and links, as the broker is told. */
#pragma once

#include "front/core/call.h"
#include "front/core/quota.h"
#include "protocol/broker.h"

/* Where what is written goes: into the tree, or into a plan. */
struct plan_request {
    bool is_plan;
    bool keep_open;
    bool is_new;
    bool shared; /* plans/planned.h: the open one of its key, begun if there is none */
    const char *id;
    char quota_name[FRONT_ID]; /* of its sandbox, as the broker tells it */
};

struct sandbox_request {
    struct exec_message message; /* all but exec */
    struct plan_request plan;
    uint64_t output_bytes; /* bound on the output of a command; 0: none */
};

/* Puts what is asked under the workspace's policy: nothing in it goes beyond. False: answered. It
 * lives as long as the call. */
bool sandbox_request_make(struct call *call, struct carrel_spec *spec,
                          struct sandbox_request *wanted);
/* The same for the sandbox alone: no command is run, and the workspace does not wake. False:
 * answered. */
bool sandbox_request_plain(struct call *call, const char *const *argv, struct sandbox_request *ret);
/* What that sandbox counts for. */
struct quota_request sandbox_request_quota(const struct call *call,
                                           const struct sandbox_request *wanted);
