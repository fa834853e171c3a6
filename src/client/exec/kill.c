/* SPDX-License-Identifier: Apache-2.0 */
/* carrel kill: a signal to a command, or the end of it and of all it started. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"

enum {
    MOST_EXECS = 64
};

static const char help[] =
    "usage: carrel kill [-s SIGNAL] WORKSPACE EXEC...\n"
    "\n"
    "Ends commands together with everything they started, and nothing else. With -s,\n"
    "sends a signal to the command itself.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel kill desk xabcdefghijklmnopqrstuvwxyz\n"
    "  carrel kill -s INT desk xabcdefghijklmnopqrstuvwxyz\n";

static int end_one(struct daemon *daemon, const char *workspace, const char *exec, int number,
                   struct err *err)
{
    struct buf path;
    json_t *body = number ? json_pack("{s:i}", "signal", number) : NULL;

    client_workspace_path(&path, workspace, "/exec/");
    text_url(&path, exec);
    buf_str(&path, number ? "/signal" : "/kill");
    return client_do(daemon, "POST", &path, body, NULL, err);
}

int client_kill(char **argv)
{
    struct args_common common = {.verb = "kill"};
    const char *signal_name = NULL;
    const struct args_rule rules[] = {
        {"-s", NULL, NULL, ARGS_TEXT, &signal_name},
        {"--signal", "SIGNAL",
         "send a signal to the command, and end nothing\na name or number: TERM, INT, 10",
         ARGS_TEXT, &signal_name},
        {"--json", NULL, "print nothing but errors", ARGS_FLAG, &common.json},
        {0},
    };
    const char *words[MOST_EXECS + 2] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    int number = 0;
    int status = client_begin(argv + 1, help, rules, &common, words, MOST_EXECS + 1);
    if (status >= 0)
        return status;
    if (!words[0] || !words[1])
        return cli_fail("name a workspace and a command: carrel kill WORKSPACE EXEC; 'carrel ps' "
                        "lists them");
    if (signal_name && !(number = text_signal(signal_name))) {
        err_set(&err, ERR_INVALID, 0, "there is no signal '%.40s'; for example: -s TERM",
                signal_name);
        return client_fail(&err);
    }
    if (daemon_open(&daemon, common.state, &err) < 0)
        return client_fail(&err);
    status = 0;
    for (size_t i = 1; words[i]; i++) {
        if (end_one(&daemon, words[0], words[i], number, &err) < 0)
            status = client_fail(&err);
    }
    daemon_close(&daemon);
    return status;
}
