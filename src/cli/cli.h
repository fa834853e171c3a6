/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of the command line share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "carrel.h"

enum {
    CLI_FAILED = 125,
    CLI_MAX_MOUNTS = 64,
    CLI_MAX_ENV = 1024,
    CLI_MAX_RULES = 256, /* of the network; and private hosts */
    CLI_MAX_PRIVATE = 16,
    CLI_MAX_SECRETS = 32,
};

/* The options of `carrel run`, checked. Everything points into argv or `arena`. */
struct run_options {
    struct carrel_spec spec;
    struct carrel_mount mounts[CLI_MAX_MOUNTS];
    const char *env[CLI_MAX_ENV + 1];
    size_t env_count;
    const char *net_rules[CLI_MAX_RULES + 1]; /* of --allow and --deny, sets as written */
    size_t net_rule_count;
    const char *net_private[CLI_MAX_PRIVATE + 1];
    size_t net_private_count;
    const char *net_secrets[CLI_MAX_SECRETS + 1];
    size_t net_secret_count;
    const char *shell_argv[4];
    const char *shell_line;
    const char *policy_path;
    const char *stdin_path;
    const char *plan_id; /* that goes on */
    bool plan;
    bool keep_open; /* ... so that another command can go on with it */
    bool json;
    bool explain;
    bool help;
    bool no_tty;
    char init_path[4096];
    char egress_path[4096];
    struct arena arena;
};

/* 0, or -1 with *err set. Touches nothing but its arguments. */
int run_options_parse(struct run_options *ret, int argc, char **argv, struct err *err);
void run_options_clear(struct run_options *options);
/* Prints a help text with these options. Returns the exit status. */
int run_options_help(const char *text);

/* The verbs: argv[0] is the verb; each returns the exit status. */
int cli_run(int argc, char **argv);
int cli_doctor(int argc, char **argv);
/* A run that needs JSON: done in carrel-full, handed over to it in carrel. */
int cli_run_full(struct run_options *options, char **argv);

/* Parts of a run that both programs share. */
int cli_open_files(struct run_options *options);
int cli_call(struct run_options *options, struct carrel_result *ret);
void cli_print_end(const struct carrel_result *result);

/* How a row of an option table begins: the name, what stands for its value (NULL: it has none), and
 * what --help says. A row without a text is another name of the next row; one with an empty text is
 * accepted and not shown. Completions are made of these texts, of the first line of each. */
struct option_text {
    const char *name;
    const char *value;
    const char *about;
};

/* Stands in a help text where the options go. */
#define HELP_OPTIONS "\v"

/* Prints a help text with its options: `count` rows of `size` bytes, each of which begins with an
 * option_text, then those of `common` that the table has not got itself. Returns the exit status.
 */
int cli_put_help(const char *text, const void *rows, size_t count, size_t size,
                 const struct option_text *common);

/* Prints "carrel: message" on stderr, as one line. */
void cli_say(const char *message);
/* Begins a new line where standard error is a terminal. */
void cli_end_line(void);
/* The same in a faint colour, for a terminal that has one. */
void cli_say_dim(const char *message);
/* Writes to standard output; 0, or 125 when that failed and was said. */
int cli_put(const char *text);
/* As cli_say, and returns 125. */
int cli_fail(const char *message);
