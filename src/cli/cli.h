/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of the command line share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "carrel.h"
#include "policy/policy.h"

enum { CLI_FAILED = 125, CLI_MAX_MOUNTS = 64, CLI_MAX_ENV = 1024 };

/* The options of `carrel run`, checked. Everything points into argv or `arena`. */
struct run_options {
    struct carrel_spec spec;
    struct carrel_mount mounts[CLI_MAX_MOUNTS];
    const char *env[CLI_MAX_ENV + 1];
    size_t env_count;
    const char *shell_argv[4];
    const char *shell_line;
    const char *policy_path;
    const char *stdin_path;
    bool json;
    bool explain;
    bool help;
    bool no_tty;
    struct arena arena;
};

/* 0, or -1 with *err set. Touches nothing but its arguments. */
int run_options_parse(struct run_options *ret, int argc, char **argv, struct err *err);
void run_options_clear(struct run_options *options);

/* The verbs: argv[0] is the verb; each returns the exit status. */
int cli_run(int argc, char **argv);
int cli_doctor(int argc, char **argv);
/* Finds carrel-init beside this program or where it was installed; NULL: the built-in place. */
const char *cli_init_path(char *path, size_t size);
/* Prints "carrel: message" on stderr and returns 125. */
int cli_fail(const char *message);
