/* SPDX-License-Identifier: Apache-2.0 */
/* What `exec` and `shell` share. */
#pragma once

#include <jansson.h>

#include "client/core/args.h"
#include "client/core/http.h"

struct exec_options {
    struct args_common common;
    const char *workspace;
    const char *line; /* for the shell; NULL: argv */
    char *const *argv;
    const char *cwd;
    const char *timeout;
    const char *user;
    const char *stdin_path; /* NULL: none; "-": ours */
    struct args_list env;
    bool tty;
    bool background;
};

/* The body of POST .../exec, but for how it is to be answered. */
int exec_request(const struct exec_options *o, json_t **ret, struct err *err);
/* ... and the daemon that it goes to; on success both are the caller's. */
int exec_prepare(const struct exec_options *o, struct daemon *daemon, json_t **ret,
                 struct err *err);
/* Runs it as if it were here, and returns its exit status. `request` is consumed. What the daemon
 * said at its end is the caller's, in *ret_end, unless that is NULL. */
int exec_stream(const struct exec_options *o, struct daemon *daemon, json_t *request,
                json_t **ret_end, struct err *err);
/* Asks for it, prints the answer, and returns the exit status. `request` is consumed. */
int exec_ask(const struct exec_options *o, struct daemon *daemon, json_t *request, struct err *err);
