/* SPDX-License-Identifier: Apache-2.0 */
/* carrel net: what a workspace has connected to and was refused, and which rule would decide. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

static const char help[] =
    "usage: carrel net log WORKSPACE\n"
    "       carrel net try WORKSPACE URL\n"
    "\n"
    "log prints what commands of the workspace have connected to, and what they\n"
    "were refused, from the daemon's record. try says which rule of its policy would\n"
    "decide about an address; nothing is connected to.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel net log desk\n"
    "  carrel net try desk https://api.example.org/v1/\n";

struct net_request {
    const char *workspace;
    const char *url;
    bool json;
};

/* "443", or "-" for a name that was asked for. */
static void add_record(struct table *table, const json_t *record)
{
    const json_t *details = json_object_get(record, "details");
    const char *operation = client_text(record, "operation");
    char ago[TEXT_SHORT];
    char port[TEXT_SHORT];
    char up[TEXT_SHORT];
    char down[TEXT_SHORT];
    const char *what = operation && strncmp(operation, "net.", 4) == 0 ? operation + 4 : operation;
    const char *why = client_text(details, "why");
    const char *cells[] = {client_ago(record, "time", ago),
                           what,
                           client_text(details, "host"),
                           client_number(details, "port", port),
                           client_number(details, "up", up),
                           client_number(details, "down", down),
                           client_text(details, "rule"),
                           client_text(details, "exec"),
                           why};

    table_add(table, cells);
}

/* A page; *after is where the next one begins, or 0. */
static int get_page(struct daemon *daemon, const struct net_request *request, json_int_t *after,
                    json_t **ret, struct err *err)
{
    struct buf path;

    client_workspace_path(&path, request->workspace, "/net");
    buf_printf(&path, "?after=%lld", (long long)*after);
    if (client_do(daemon, "GET", &path, NULL, ret, err) < 0)
        return -1;
    *after = json_integer_value(json_object_get(*ret, "next"));
    return 0;
}

static int print_records(const json_t *records)
{
    const json_t *record;
    size_t i;
    int status = 0;

    json_array_foreach((json_t *)(size_t)records, i, record)
    {
        if (status == 0)
            status = client_print(json_incref((json_t *)(size_t)record));
    }
    return status;
}

static int show_log(struct daemon *daemon, const struct net_request *request, struct err *err)
{
    static const char *const heads[] = {"WHEN", "WHAT", "HOST", "PORT", "UP",
                                        "DOWN", "RULE", "EXEC", "WHY",  NULL};
    struct table table;
    json_int_t after = 0;
    int status = 0;

    table_open(&table, heads);
    do {
        json_t *page = NULL;
        const json_t *record;
        size_t i;
        if (get_page(daemon, request, &after, &page, err) < 0) {
            table_close(&table);
            return client_fail(err);
        }
        const json_t *records = json_object_get(page, "records");
        if (request->json)
            status = print_records(records);
        json_array_foreach((json_t *)(size_t)records, i, record)
        {
            if (!request->json)
                add_record(&table, record);
        }
        json_decref(page);
    } while (after > 0 && status == 0);
    if (!request->json)
        return table_show(&table);
    table_close(&table);
    return status;
}

static int show_trial(struct daemon *daemon, const struct net_request *request, struct err *err)
{
    json_t *trial = NULL;
    struct buf path;
    struct buf line;

    client_workspace_path(&path, request->workspace, "/net/try?url=");
    text_url(&path, request->url);
    if (client_do(daemon, "GET", &path, NULL, &trial, err) < 0)
        return client_fail(err);
    if (request->json)
        return client_print(trial);
    const char *rule = client_text(trial, "rule");
    const char *why = client_text(trial, "why");
    buf_init(&line, 8192);
    buf_printf(&line, "%s: %s%s%s\n",
               json_is_true(json_object_get(trial, "allowed")) ? "allowed" : "refused",
               why ? why : "", rule ? ": " : "", rule ? rule : "");
    int status = buf_done(&line) < 0 ? cli_fail("out of memory") : cli_put(line.p);
    buf_clear(&line);
    json_decref(trial);
    return status;
}

static const struct action {
    const char *name;
    int (*run)(struct daemon *, const struct net_request *, struct err *);
    bool has_url;
} actions[] = {
    {"log", show_log, false},
    {"try", show_trial, true},
};

int client_net(char **argv)
{
    struct args_common common = {.verb = "net"};
    const struct args_rule rules[] = {{0}};
    const struct action *action = NULL;
    const char *words[4] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &common, words, 3);
    if (status >= 0)
        return status;
    for (size_t i = 0; words[0] && i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(words[0], actions[i].name) == 0)
            action = &actions[i];
    }
    if (!action)
        return client_no_action("say what: carrel net log WORKSPACE, carrel net try WORKSPACE URL",
                                words[0], actions, sizeof(actions) / sizeof(actions[0]),
                                sizeof(actions[0]));
    if (!words[1] || action->has_url != (words[2] != NULL))
        return cli_fail(action->has_url
                            ? "name a workspace and an address: carrel net try WORKSPACE URL"
                            : "name a workspace: carrel net log WORKSPACE");
    if (daemon_open(&daemon, common.state, &err) < 0)
        return client_fail(&err);
    const struct net_request request = {words[1], words[2], common.json};
    status = action->run(&daemon, &request, &err);
    daemon_close(&daemon);
    return status;
}
