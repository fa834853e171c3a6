/* SPDX-License-Identifier: Apache-2.0 */
/* carrel fork: a new workspace that starts from a version of another. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "protocol/broker.h"

static const char help[] =
    "usage: carrel fork WORKSPACE[@SNAPSHOT] NEW\n"
    "\n"
    "Makes the workspace NEW, which starts with the files of WORKSPACE as they are now, or were\n"
    "in a snapshot, by its id or name. That takes no time and no room, however many files there\n"
    "are: what NEW changes is kept beside it, and WORKSPACE sees nothing of it.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel fork desk attempt-1\n"
    "  carrel fork desk@before-cleanup attempt-2\n";

struct fork_options {
    struct args_common common;
};

/* The id of the snapshot that is meant, or of one that is made now; NULL. */
static json_t *find_snapshot(struct daemon *daemon, const char *workspace, const char *snapshot,
                             struct err *err)
{
    json_t *answer = NULL;
    struct buf path;

    client_workspace_path(&path, workspace, "/snapshots");
    if (snapshot) {
        buf_str(&path, "/");
        text_url(&path, snapshot);
    }
    if (client_do(daemon, snapshot ? "GET" : "POST", &path, snapshot ? NULL : json_object(),
                  &answer, err) < 0)
        return NULL;
    json_t *id = json_incref(json_object_get(answer, "id"));
    json_decref(answer);
    if (!id)
        err_set(err, ERR_IO, 0, "the daemon's answer has no id");
    return id;
}

static int make(struct daemon *daemon, const struct fork_options *o, const char *of,
                const char *name, struct err *err)
{
    char workspace[PROTOCOL_ID + 1];
    const char *at = strchr(of, '@');
    size_t n = at ? (size_t)(at - of) : strlen(of);
    json_t *answer = NULL;

    if (n == 0 || n > PROTOCOL_ID || (at && !at[1])) {
        err_set(err, ERR_INVALID, 0, "'%.80s' is no WORKSPACE or WORKSPACE@SNAPSHOT", of);
        return client_fail(err);
    }
    memcpy(workspace, of, n);
    workspace[n] = '\0';
    json_t *snapshot = find_snapshot(daemon, workspace, at ? at + 1 : NULL, err);
    if (!snapshot)
        return client_fail(err);
    json_t *body = json_pack("{s:s, s:{s:s, s:o}}", "id", name, "fork", "workspace", workspace,
                             "snapshot", snapshot);
    if (!body)
        return cli_fail("only UTF-8 can be sent");
    if (daemon_ask(daemon, "POST", "/v1/workspaces", body, &answer, err) < 0)
        return client_fail(err);
    return client_id(answer, o->common.json);
}

int client_fork(char **argv)
{
    static struct fork_options o = {.common.verb = "fork"};
    const struct args_rule rules[] = {{0}};
    const char *words[3] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &o.common, words, 2);
    if (status >= 0)
        return status;
    if (!words[0] || !words[1] || !words[0][0] || !words[1][0])
        return cli_fail("name a workspace and the new one: carrel fork desk attempt-1");
    if (daemon_open(&daemon, o.common.state, &err) < 0)
        return client_fail(&err);
    status = make(&daemon, &o, words[0], words[1], &err);
    daemon_close(&daemon);
    return status;
}
