/* SPDX-License-Identifier: Apache-2.0 */
/* carrel shell: an interactive shell in a workspace, on this terminal. */
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/exec/exec.h"

static const char help[] =
    "usage: carrel shell [options] WORKSPACE\n"
    "\n"
    "Opens a shell in a workspace: bash if the workspace has it, sh otherwise. Commands\n"
    "in the background of the shell go on after it has ended.\n"
    "\n" HELP_OPTIONS "\n"
    "Exit status: the shell's; 125 when Carrel itself failed.\n"
    "\n"
    "example: carrel shell desk\n";

/* Inside nobody knows which shells there are until they are asked for. */
static char *const shell[] = {
    (char[]){"/bin/sh"}, (char[]){"-c"},
    (char[]){"if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi"}, NULL};

static struct exec_options options = {.common.verb = "shell"};
static const struct args_rule rules[] = {
    {"--cwd", "PATH", "start in PATH, inside", ARGS_TEXT, &options.cwd},
    {"--env", "NAME=VALUE", "set a variable", ARGS_EVERY, &options.env},
    {"--timeout", "TIME", "end the shell after TIME\n30m, 8h", ARGS_TEXT, &options.timeout},
    {"--user", "user|root",
     "be this user inside; root has rights only over a\nsystem of the workspace's own (policy "
     "'system')",
     ARGS_TEXT, &options.user},
    {"--json", NULL, "", ARGS_FLAG, &options.common.json},
    {0},
};

static int parse(char **argv, struct exec_options *o, struct err *err)
{
    const char *words[2] = {NULL};

    if (args_all(argv + 1, rules, &o->common, words, 1, err) < 0)
        return -1;
    if (o->common.help)
        return 0;
    if (!words[0] || !*words[0])
        return err_set(err, ERR_INVALID, 0, "no workspace given; for example: carrel shell desk");
    if (o->common.json)
        return err_set(err, ERR_INVALID, 0, "a shell prints no JSON; use 'carrel exec --json'");
    o->workspace = words[0];
    o->argv = shell;
    o->tty = true;
    return 0;
}

int client_shell(char **argv)
{
    struct daemon daemon = {0};
    struct err err = {0};
    json_t *request = NULL;

    if (parse(argv, &options, &err) < 0)
        return client_fail(&err);
    if (options.common.help)
        return args_help(help, rules);
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return cli_fail("a shell needs a terminal; for a script use: carrel exec --stdin - "
                        "WORKSPACE -- sh");
    if (exec_prepare(&options, &daemon, &request, &err) < 0)
        return client_fail(&err);
    int status = exec_stream(&options, &daemon, request, NULL, &err);
    daemon_close(&daemon);
    return status;
}
