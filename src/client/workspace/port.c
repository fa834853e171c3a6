/* SPDX-License-Identifier: Apache-2.0 */
/* carrel port: servers that listen inside, and the addresses by which they are reached. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

static const char help[] =
    "usage: carrel port [--access key|token] WORKSPACE PORT\n"
    "       carrel port --list WORKSPACE\n"
    "       carrel port --close WORKSPACE PORT\n"
    "\n"
    "Prints an address at which the daemon passes requests on to a server that listens on\n"
    "a port inside the workspace. The workspace gets no network by this. Running it again\n"
    "makes a new address; the old one stops working.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel exec --background desk -c 'python3 -m http.server 8000'\n"
    "  carrel port --access token desk 8000\n"
    "  carrel port --list desk\n"
    "  carrel port --close desk 8000\n";

static int show_all(struct daemon *daemon, const char *workspace, bool json, struct err *err)
{
    static const char *const heads[] = {"PORT", "ACCESS", "OPENED", "ADDRESS", NULL};
    json_t *all = NULL;
    json_t *port;
    struct table table;
    struct buf path;
    size_t i;

    client_workspace_path(&path, workspace, "/ports");
    if (client_do(daemon, "GET", &path, NULL, &all, err) < 0)
        return client_fail(err);
    if (json)
        return client_print(all);
    table_open(&table, heads);
    json_array_foreach(json_object_get(all, "ports"), i, port)
    {
        char number[TEXT_SHORT];
        char opened[TEXT_SHORT];
        const char *cells[] = {client_number(port, "port", number), client_text(port, "access"),
                               client_ago(port, "created", opened), client_text(port, "url")};
        table_add(&table, cells);
    }
    int status = table_show(&table);
    json_decref(all);
    return status;
}

/* Over the Unix socket alone there is a path only. */
static int show_one(json_t *port)
{
    const char *url = client_text(port, "url");

    url = url ? url : client_text(port, "path");
    int status = url ? cli_put(url) : 0;
    json_decref(port);
    return status ? status : cli_put("\n");
}

static int change(struct daemon *daemon, const char *const *words, const char *access, bool close,
                  bool json)
{
    json_t *port = NULL;
    json_t *body = access ? json_pack("{s:s}", "access", access) : NULL;
    struct buf path;
    struct err err = {0};

    client_workspace_path(&path, words[0], "/ports/");
    text_url(&path, words[1]);
    if (client_do(daemon, close ? "DELETE" : "POST", &path, body, close ? NULL : &port, &err) < 0)
        return client_fail(&err);
    return close ? 0 : json ? client_print(port) : show_one(port);
}

int client_port(char **argv)
{
    struct args_common common = {.verb = "port"};
    const char *access = NULL;
    bool list = false;
    bool close = false;
    const struct args_rule rules[] = {
        {"--access", "key|token",
         "choose who may use the address\nkey: requests need a key of the workspace's owner "
         "(default)\ntoken: anyone who knows the address; for browsers",
         ARGS_TEXT, &access},
        {"--list", NULL, "list the open ports", ARGS_FLAG, &list},
        {"--close", NULL, "close the port", ARGS_FLAG, &close},
        {0},
    };
    const char *words[3] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &common, words, 2);
    if (status >= 0)
        return status;
    if ((list && (close || access)) || (close && access))
        return cli_fail("--list, --close and --access do not go together");
    if (!words[0] || (list ? words[1] != NULL : !words[1]))
        return cli_fail(list ? "name a workspace: carrel port --list WORKSPACE"
                             : "name a workspace and a port: carrel port WORKSPACE PORT");
    if (daemon_open(&daemon, common.state, &err) < 0)
        return client_fail(&err);
    status = list ? show_all(&daemon, words[0], common.json, &err)
                  : change(&daemon, words, access, close, common.json);
    daemon_close(&daemon);
    return status;
}
