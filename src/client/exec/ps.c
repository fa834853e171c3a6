/* SPDX-License-Identifier: Apache-2.0 */
/* carrel ps: the commands that run. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

static const char help[] = "usage: carrel ps [--all] [WORKSPACE]\n"
                           "\n"
                           "Lists the running commands of one workspace, or of all.\n"
                           "\n" HELP_OPTIONS "\n"
                           "examples:\n"
                           "  carrel ps\n"
                           "  carrel ps --all desk\n";

static int add_of(struct daemon *daemon, const char *workspace, bool all, json_t *execs,
                  struct err *err)
{
    json_t *some = NULL;
    struct buf path;

    client_workspace_path(&path, workspace, all ? "/exec" : "/exec?state=running");
    int r = buf_done(&path) < 0 ? err_set(err, ERR_INVALID, 0, "the request is too long")
                                : daemon_list(daemon, path.p, "execs", &some, err);
    buf_clear(&path);
    if (r == 0)
        json_array_extend(execs, some);
    json_decref(some);
    return r;
}

/* Workspaces may be deleted while we go through them. */
static int add_of_all(struct daemon *daemon, bool all, json_t *execs, struct err *err)
{
    json_t *workspaces = NULL;
    json_t *workspace;
    size_t i;
    int r = daemon_list(daemon, "/v1/workspaces", "workspaces", &workspaces, err);

    json_array_foreach(workspaces, i, workspace)
    {
        const char *id = client_text(workspace, "id");
        if (r < 0 || !id || (!all && json_integer_value(json_object_get(workspace, "execs")) == 0))
            continue;
        r = add_of(daemon, id, all, execs, err);
        if (r < 0 && err->code == ERR_NOT_FOUND)
            r = 0;
    }
    json_decref(workspaces);
    return r;
}

static const char *state_of(const json_t *exec, char *text)
{
    json_t *result = json_object_get(exec, "result");
    json_t *code = json_object_get(result, "exit_code");

    if (!json_is_integer(code))
        return client_text(exec, "state");
    snprintf(text, TEXT_SHORT, "exit %lld", (long long)json_integer_value(code));
    return text;
}

static int show(const json_t *execs)
{
    static const char *const heads[] = {"WORKSPACE", "EXEC",    "STATE", "STARTED",
                                        "OUTPUT",    "COMMAND", NULL};
    struct table table;
    json_t *exec;
    size_t i;

    table_open(&table, heads);
    json_array_foreach(execs, i, exec)
    {
        char started[TEXT_SHORT];
        char output[TEXT_SHORT];
        char state[TEXT_SHORT];
        struct buf command;
        json_t *bytes = json_object_get(exec, "output_bytes");
        buf_init(&command, 65536);
        client_command(exec, &command);
        const char *cells[] = {
            client_text(exec, "workspace"),
            client_text(exec, "exec_id"),
            state_of(exec, state),
            client_ago(exec, "started", started),
            json_is_integer(bytes) ? text_bytes((uint64_t)json_integer_value(bytes), output) : NULL,
            buf_done(&command) == 0 ? command.p : "..."};
        table_add(&table, cells);
        buf_clear(&command);
    }
    return table_show(&table);
}

int client_ps(char **argv)
{
    struct args_common common = {.verb = "ps"};
    bool all = false;
    const struct args_rule rules[] = {
        {"--all", NULL, "list ended commands too", ARGS_FLAG, &all},
        {0},
    };
    const char *words[2] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &common, words, 1);
    if (status >= 0)
        return status;
    if (daemon_open(&daemon, common.state, &err) < 0)
        return client_fail(&err);
    json_t *execs = json_array();
    int r = words[0] ? add_of(&daemon, words[0], all, execs, &err)
                     : add_of_all(&daemon, all, execs, &err);
    status = r < 0         ? client_fail(&err)
             : common.json ? client_print(json_pack("{s:O}", "execs", execs))
                           : show(execs);
    json_decref(execs);
    daemon_close(&daemon);
    return status;
}
