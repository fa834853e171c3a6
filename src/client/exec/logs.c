/* SPDX-License-Identifier: Apache-2.0 */
/* carrel logs: what a command has written, as it is kept. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/exec/attach.h"

static const char help[] =
    "usage: carrel logs [-f] [--from N] WORKSPACE EXEC\n"
    "\n"
    "Prints what a command has written: its standard output on standard output, its\n"
    "standard error on standard error.\n"
    "\n" HELP_OPTIONS "\n"
    "example: carrel logs -f desk xabcdefghijklmnopqrstuvwxyz\n";

static int parse_from(const char *text, uint64_t *ret, struct err *err)
{
    char *end = NULL;

    if (!text)
        return 0;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno)
        return err_set(err, ERR_INVALID, 0, "--from '%.80s': write a number of bytes", text);
    return 0;
}

static int follow(struct daemon *daemon, struct attach *s, struct err *err)
{
    int r = attach_attach(s, err);

    (void)daemon;
    if (r == 0)
        r = attach_run(s, err);
    return r < 0 ? client_fail(err) : 0;
}

int client_logs(char **argv)
{
    static struct attach s;
    struct args_common common = {.verb = "logs"};
    bool follows = false;
    const char *from_text = NULL;
    const struct args_rule rules[] = {
        {"-f", NULL, NULL, ARGS_FLAG, &follows},
        {"--follow", NULL, "wait for more until the command ends", ARGS_FLAG, &follows},
        {"--from", "N", "begin at byte N of the output", ARGS_TEXT, &from_text},
        {"--json", NULL, "print one JSON object a line, with the offset of each piece", ARGS_FLAG,
         &common.json},
        {0},
    };
    const char *words[3] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    uint64_t from = 0;
    int status = client_begin(argv + 1, help, rules, &common, words, 2);
    if (status >= 0)
        return status;
    if (!words[0] || !words[1])
        return cli_fail("name a workspace and a command: carrel logs WORKSPACE EXEC; 'carrel ps' "
                        "lists them");
    if (parse_from(from_text, &from, &err) < 0 || daemon_open(&daemon, common.state, &err) < 0)
        return client_fail(&err);
    if (attach_open(&s, &daemon, words[0], &err) < 0) {
        status = client_fail(&err);
    } else {
        snprintf(s.exec_id, sizeof(s.exec_id), "%s", words[1]);
        s.next = from;
        s.follow = follows;
        s.lines = common.json;
        status = follow(&daemon, &s, &err);
    }
    attach_close(&s);
    daemon_close(&daemon);
    return status;
}
