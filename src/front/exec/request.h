/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST …/exec, checked and put under the workspace's policy. */
#pragma once

#include "front/core/sandbox_request.h"
#include "front/exec/follow.h"

struct exec_request {
    struct sandbox_request sandbox; /* with the message, and what it writes becomes a plan or not */
    const char *input;              /* for stdin, NULL: none */
    size_t input_n;
    bool input_open; /* more will be posted */
    bool background;
    bool streamed;
    enum follow_format format;
    bool own;                    /* Carrel's own: the answer is its output, whole or cut off */
    void (*then)(struct call *); /* called when it runs; NULL: nobody */
    json_t *shown;               /* what was asked, for the row and for listings */
};

/* False: answered with what is wrong. What is read lives as long as the call. */
bool exec_request_read(struct call *call, struct exec_request *ret);
/* One that Carrel itself makes: this command, nothing else of the body. */
bool exec_request_own(struct call *call, const char *const *argv, struct exec_request *ret);
