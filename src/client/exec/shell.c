/* SPDX-License-Identifier: Apache-2.0 */
/* carrel shell: an interactive shell in a workspace, on this terminal. */
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/exec/exec.h"

static const char help[] =
    "usage: carrel shell [options] WORKSPACE\n"
    "\n"
    "Opens a shell in a workspace: bash where there is one, sh otherwise. What runs in\n"
    "the background there goes on after the shell has ended.\n"
    "\n"
    "  --cwd PATH         start in PATH inside\n"
    "  --env NAME=VALUE   set a variable\n"
    "  --timeout TIME     end the shell after TIME: 30m, 8h\n"
    "  --user user|root   who the shell is inside\n"
    "  --state DIR        the daemon of this state directory\n"
    "\n"
    "Exit status: the shell's; 125 Carrel itself failed.\n"
    "\n"
    "example: carrel shell desk\n";

/* Inside nobody knows which shells there are until they are asked for. */
static char *const shell[] = {
    (char[]){"/bin/sh"}, (char[]){"-c"},
    (char[]){"if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi"}, NULL};

static int parse(char **argv, struct exec_options *o, struct err *err)
{
    const struct args_rule rules[] = {
        {"--cwd", ARGS_TEXT, &o->cwd},
        {"--env", ARGS_EVERY, &o->env},
        {"--timeout", ARGS_TEXT, &o->timeout},
        {"--user", ARGS_TEXT, &o->user},
        {NULL, ARGS_FLAG, NULL},
    };
    const char *words[2] = {NULL};

    if (args_all(argv + 1, rules, &o->common, words, 1, err) < 0)
        return -1;
    if (o->common.help)
        return 0;
    if (!words[0] || !*words[0])
        return err_set(err, ERR_INVALID, 0, "no workspace given; for example: carrel shell desk");
    if (o->common.json)
        return err_set(err, ERR_INVALID, 0, "a shell has no JSON; use 'carrel exec --json'");
    o->workspace = words[0];
    o->argv = shell;
    o->tty = true;
    return 0;
}

int client_shell(char **argv)
{
    static struct exec_options options = {.common.verb = "shell"};
    struct daemon daemon = {0};
    struct err err = {0};
    json_t *request = NULL;

    if (parse(argv, &options, &err) < 0)
        return client_fail(&err);
    if (options.common.help)
        return cli_put(help);
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return cli_fail("a shell needs a terminal; for a script use: carrel exec --stdin - "
                        "WORKSPACE -- sh");
    if (exec_request(&options, &request, &err) < 0)
        return client_fail(&err);
    if (daemon_open(&daemon, options.common.state, &err) < 0) {
        json_decref(request);
        return client_fail(&err);
    }
    int status = exec_stream(&options, &daemon, request, NULL, &err);
    daemon_close(&daemon);
    return status;
}
