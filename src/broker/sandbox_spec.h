/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy says, turned into what the engine is told. */
#pragma once

#include "broker/broker.h"

struct sandbox_spec {
    struct arena arena;
    struct carrel_spec spec;
    int fds[128]; /* what spec.mounts names by /proc/self/fd */
    size_t fd_count;
    const char *layer; /* of a fork; NULL: it is none */
    bool is_planned;   /* what it writes goes to a plan */
    int tree;          /* while it is made */
    bool looks;        /* nothing is made for it */
    bool has_tools;
    bool has_ca;
    uint64_t cache; /* which generation of the package cache is shown; 0: none */
};

/* Everything but the pool. */
int sandbox_spec_make(struct broker *broker, const struct exec_message *m, struct sandbox_spec *ret,
                      struct err *err);
void sandbox_spec_clear(struct sandbox_spec *spec);
/* A mount that is there already, consumed (-1: it is only looked at what there would be): a store,
 * where it is shown, and how. */
int sandbox_spec_add_ready(struct sandbox_spec *to, int *mount, const char *const *three,
                           bool writable, struct err *err);
/* A Python environment that is whole (front/workspaces/env.sh) takes the place of its
 * template's, now that the sandbox is over; unless something else of the workspace's lives. */
void sandbox_spec_put_staged(const struct broker *broker, const struct sandbox *sandbox);
/* Whether there is room for one more sandbox (if `new_sandbox`) and what was asked for (REQUEST_…).
 */
int sandbox_spec_check_room(struct broker *broker, uint32_t kind, const struct exec_message *m,
                            bool new_sandbox, struct err *err);
