/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that Carrel starts itself in the call's workspace, under its policy. */
#pragma once

#include "front/core/call.h"
#include "front/exec/exec.h"

/* Without `then` its output is the answer, raw. With it, `then` is called once it runs: it has an
 * input to be given, and the answer is its result. */
void execs_own(struct call *call, const char *const *argv, void (*then)(struct call *));
/* The result, which is the callee's, instead of an answer. */
typedef void exec_over(struct call *call, json_t *result, void *context);

/* A command of which the call wants to know the end. `argv` and `context` live as long as it. */
struct exec_script {
    const char *const *argv;
    const char *shown; /* for the row and for listings */
    uint64_t timeout_ms;
    exec_over
        *over; /* not called when the client has gone, or when it did not start: answered then */
    void *context;
};

void execs_script(struct call *call, const struct exec_script *script);

/* A command of the daemon's own. It counts and waits as any other, and is not started in a sandbox
 * that has gone to sleep. The texts live as long as the call. */
struct exec_background {
    const char *const *argv;
    const char *const *env; /* or NULL */
    const char *shown;
};

/* Takes the call, which has no client. */
void execs_background(struct call *call, const struct exec_background *what);
/* The exec of such a call while it runs; NULL before. */
struct exec *exec_of_call(const struct call *call);
