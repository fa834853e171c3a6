/* SPDX-License-Identifier: Apache-2.0 */
/* A command's "mode": whether it writes to the tree, or to a plan. What a plan is front/plans
 * knows, which stands on this room; main.c hands its functions down. */
#pragma once

#include "front/core/sandbox_request.h"

struct exec;

struct exec_mode {
    /* "mode", "plan" and "keep_open" of an exec's body. False: answered. */
    bool (*read)(struct call *call, struct plan_request *ret);
    /* Before the command is asked for: the row of its plan; or else, whether it may write to the
     * tree. False: answered. */
    bool (*begin)(struct call *call, const struct plan_request *wanted, const char *exec_id,
                  json_t *shown);
    /* It could not be started. */
    void (*failed)(struct call *call, const struct plan_request *wanted);
    /* One that is held (exec_hold) has ended, and its records are on disk: exec_let_go comes next,
     * now or later. */
    void (*settled)(struct exec *exec);
};
