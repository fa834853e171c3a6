/* SPDX-License-Identifier: Apache-2.0 */
/* carrel key: who may talk to the daemon. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/client.h"
#include "client/table.h"
#include "client/text.h"

static const char help[] =
    "usage: carrel key create --owner OWNER [--scope SCOPE]... [--name NAME]\n"
    "       carrel key ls\n"
    "       carrel key revoke ID\n"
    "\n"
    "Keys for the daemon. A key is shown once, when it is made. What it is put into:\n"
    "CARREL_KEY here, 'Authorization: Bearer KEY' over HTTP.\n"
    "\n"
    "  --owner OWNER  whose workspaces it opens\n"
    "  --scope SCOPE  user (default), approve or admin\n"
    "  --name NAME    what to call it in lists\n"
    "  --json         print one JSON object\n"
    "  --state DIR    the daemon of this state directory\n"
    "\n"
    "examples:\n"
    "  carrel key create --owner alice --name laptop\n"
    "  carrel key create --owner ops --scope admin --json\n"
    "  carrel key revoke kabcdefghijklmnopqrstuvwxyz\n";

struct key_options {
    struct args_common common;
    const char *owner;
    const char *name;
    struct args_list scopes;
};

static int create(struct daemon *daemon, const struct key_options *o, struct err *err)
{
    json_t *scopes = json_array();
    json_t *answer = NULL;
    char text[1024];

    for (size_t i = 0; i < o->scopes.count; i++)
        json_array_append_new(scopes, json_string(o->scopes.items[i]));
    if (o->scopes.count == 0)
        json_array_append_new(scopes, json_string("user"));
    json_t *body = json_pack("{s:s,s:o}", "owner", o->owner, "scopes", scopes);
    if (!body)
        return cli_fail("only UTF-8 can be sent");
    if (o->name)
        json_object_set_new(body, "name", json_string(o->name));
    if (daemon_ask(daemon, "POST", "/v1/keys", body, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    const char *id = client_text(answer, "id");
    const char *key = client_text(answer, "key");
    snprintf(text, sizeof(text), "id   %s\nkey  %s\n", id ? id : "-", key ? key : "-");
    json_decref(answer);
    int status = cli_put(text);
    if (status == 0)
        cli_say("this is the only time the key is shown; keep it");
    return status;
}

static void add_row(struct table *table, const json_t *key)
{
    json_t *scopes = json_object_get(key, "scopes");
    json_t *scope;
    size_t i;
    char created[TEXT_SHORT];
    struct buf list;

    buf_init(&list, 1024);
    json_array_foreach(scopes, i, scope)
    {
        buf_str(&list, i ? "," : "");
        buf_str(&list, json_is_string(scope) ? json_string_value(scope) : "?");
    }
    const char *cells[] = {client_text(key, "id"),
                           client_text(key, "owner"),
                           buf_done(&list) == 0 ? list.p : "...",
                           client_text(key, "revoked") ? "revoked" : "active",
                           client_ago(key, "created", created),
                           client_text(key, "name")};
    table_add(table, cells);
    buf_clear(&list);
}

static int list_keys(struct daemon *daemon, const struct key_options *o, struct err *err)
{
    static const char *const heads[] = {"ID", "OWNER", "SCOPES", "STATE", "CREATED", "NAME", NULL};
    json_t *keys = NULL;
    json_t *key;
    struct table table;
    size_t i;

    if (daemon_list(daemon, "/v1/keys", "keys", &keys, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(json_pack("{s:o}", "keys", keys));
    table_open(&table, heads);
    json_array_foreach(keys, i, key)
    {
        add_row(&table, key);
    }
    json_decref(keys);
    return table_show(&table);
}

static int revoke(struct daemon *daemon, const char *id, struct err *err)
{
    struct buf path;

    buf_init(&path, 4096);
    buf_str(&path, "/v1/keys/");
    text_url(&path, id);
    return client_do(daemon, "DELETE", &path, NULL, NULL, err) < 0 ? client_fail(err) : 0;
}

static int dispatch(const char *const *words, const struct key_options *o, struct err *err)
{
    struct daemon daemon = {0};
    int status = CLI_FAILED;
    bool creates = words[0] && strcmp(words[0], "create") == 0 && !words[1];
    bool lists = words[0] && strcmp(words[0], "ls") == 0 && !words[1];
    bool revokes = words[0] && strcmp(words[0], "revoke") == 0 && words[1];

    if (!creates && !lists && !revokes)
        return cli_fail("say what to do: carrel key create | ls | revoke ID; see 'carrel key "
                        "--help'");
    if (creates && !o->owner)
        return cli_fail("say whose key it is: carrel key create --owner NAME");
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    if (creates)
        status = create(&daemon, o, err);
    else
        status = lists ? list_keys(&daemon, o, err) : revoke(&daemon, words[1], err);
    daemon_close(&daemon);
    return status;
}

int client_key(char **argv)
{
    static struct key_options options = {.common.verb = "key"};
    const struct args_rule rules[] = {{"--owner", ARGS_TEXT, &options.owner},
                                      {"--name", ARGS_TEXT, &options.name},
                                      {"--scope", ARGS_EVERY, &options.scopes},
                                      {NULL, ARGS_FLAG, NULL}};
    const char *words[3] = {NULL};
    struct err err = {0};

    if (args_all(argv + 1, rules, &options.common, words, 2, &err) < 0)
        return client_fail(&err);
    if (options.common.help)
        return cli_put(help);
    return dispatch(words, &options, &err);
}
