/* SPDX-License-Identifier: Apache-2.0 */
/* carrel key: who may talk to the daemon. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

static const char help[] =
    "usage: carrel key create [--owner OWNER] [--scope SCOPE]... [--workspace WORKSPACE]...\n"
    "                         [--name NAME] [--template TEMPLATE] [--policy FILE]\n"
    "       carrel key ls\n"
    "       carrel key revoke ID\n"
    "\n"
    "Manages the keys of the daemon. A key is shown once, when it is made. Give it to the\n"
    "command line in CARREL_KEY, to other programs as 'Authorization: Bearer KEY' over HTTP.\n"
    "If standard output is not a terminal, only the key is printed.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel key create --owner alice --scope owner --name laptop\n"
    "  KEY=$(carrel key create --owner alice --scope agent --workspace 'thread-*')\n"
    "  carrel key create --owner alice --scope approve --name carol\n"
    "  carrel key revoke kabcdefghijklmnopqrstuvwxyz\n";

struct key_options {
    struct args_common common;
    const char *owner;
    const char *name;
    const char *template;
    const char *policy;
    struct args_list scopes;
    struct args_list workspaces;
};

/* A member that is absent when there is nothing to say. False: it is no UTF-8. */
static bool add_text(json_t *body, const char *name, const char *text)
{
    return !text || json_object_set_new(body, name, json_string(text)) == 0;
}

static bool add_list(json_t *body, const char *name, const struct args_list *list)
{
    json_t *array = json_array();
    bool good = true;

    for (size_t i = 0; i < list->count; i++)
        good = json_array_append_new(array, json_string(list->items[i])) == 0 && good;
    if (list->count)
        return json_object_set_new(body, name, array) == 0 && good;
    json_decref(array);
    return true;
}

/* NULL: told. */
static json_t *read_options(const struct key_options *o, struct err *err)
{
    static const struct args_list usual = {.items = {"user"}, .count = 1};
    json_t *body = json_object();

    if (!add_text(body, "owner", o->owner) || !add_text(body, "name", o->name) ||
        !add_text(body, "template", o->template) ||
        !add_list(body, "scopes", o->scopes.count ? &o->scopes : &usual) ||
        !add_list(body, "workspaces", &o->workspaces))
        (void)cli_fail("only UTF-8 can be sent");
    else if (o->policy && client_add_policy(body, o->policy, err) < 0)
        (void)client_fail(err);
    else
        return body;
    json_decref(body);
    return NULL;
}

static int create(struct daemon *daemon, const struct key_options *o, struct err *err)
{
    json_t *body = read_options(o, err);
    json_t *answer = NULL;
    char text[1024];

    if (!body)
        return CLI_FAILED;
    if (daemon_ask(daemon, "POST", "/v1/keys", body, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    const char *id = client_text(answer, "id");
    const char *key = client_text(answer, "key");
    bool shows = isatty(STDOUT_FILENO); /* else KEY=$(carrel key create …) gets the key */
    if (shows)
        snprintf(text, sizeof(text), "id   %s\nkey  %s\n", id ? id : "-", key ? key : "-");
    else
        snprintf(text, sizeof(text), "%s\n", key ? key : "-");
    json_decref(answer);
    int status = cli_put(text);
    if (status == 0 && shows)
        cli_say("this is the only time that the key is shown; store it");
    return status;
}

/* The texts of a list, a comma between two; `none` when there is no list. */
static const char *joined(const json_t *list, const char *none, struct buf *b)
{
    const json_t *item;
    size_t i;

    buf_init(b, 4096);
    if (!json_is_array(list))
        return none;
    json_array_foreach(list, i, item)
    {
        buf_str(b, i ? "," : "");
        buf_str(b, json_is_string(item) ? json_string_value(item) : "?");
    }
    return buf_done(b) == 0 ? b->p : "...";
}

static void add_row(struct table *table, const json_t *key)
{
    char created[TEXT_SHORT];
    struct buf scopes;
    struct buf workspaces;

    const char *cells[] = {client_text(key, "id"),
                           client_text(key, "owner"),
                           joined(json_object_get(key, "scopes"), "?", &scopes),
                           joined(json_object_get(key, "workspaces"), "all", &workspaces),
                           client_text(key, "revoked") ? "revoked" : "active",
                           client_ago(key, "created", created),
                           client_text(key, "name")};
    table_add(table, cells);
    buf_clear(&scopes);
    buf_clear(&workspaces);
}

static int list_keys(struct daemon *daemon, const struct key_options *o, struct err *err)
{
    static const char *const heads[] = {"ID",    "OWNER",   "SCOPES", "WORKSPACES",
                                        "STATE", "CREATED", "NAME",   NULL};
    json_t *keys = NULL;

    if (daemon_list(daemon, "/v1/keys", "keys", &keys, err) < 0)
        return client_fail(err);
    return client_table(json_pack("{s:o}", "keys", keys), "keys", heads, add_row, o->common.json);
}

static int revoke_key(struct daemon *daemon, const char *id, const struct key_options *o,
                      struct err *err)
{
    struct buf path;

    buf_init(&path, 4096);
    buf_str(&path, "/v1/keys/");
    text_url(&path, id);
    return client_delete(daemon, &path, o->common.json, err);
}

static int dispatch(const char *const *words, const struct key_options *o, struct err *err)
{
    struct daemon daemon = {0};
    int status = CLI_FAILED;
    bool creates = words[0] && strcmp(words[0], "create") == 0 && !words[1];
    bool lists = words[0] && strcmp(words[0], "ls") == 0 && !words[1];
    bool revokes = words[0] && strcmp(words[0], "revoke") == 0 && words[1];

    if (!creates && !lists && !revokes)
        return cli_fail("no action given: carrel key create | ls | revoke ID; see 'carrel key "
                        "--help'");
    if (creates && !o->owner && !where_env("CARREL_KEY")) /* an owner's key makes its own */
        return cli_fail("no owner given: carrel key create --owner NAME");
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    if (creates)
        status = create(&daemon, o, err);
    else
        status = lists ? list_keys(&daemon, o, err) : revoke_key(&daemon, words[1], o, err);
    daemon_close(&daemon);
    return status;
}

int client_key(char **argv)
{
    static struct key_options options = {.common.verb = "key"};
    const struct args_rule rules[] = {
        {"--owner", "OWNER", "name the owner of the key\nwith an owner's key: always that owner",
         ARGS_TEXT, &options.owner},
        {"--name", "NAME", "give the key a name for lists", ARGS_TEXT, &options.name},
        {"--scope", "owner|agent|approve|read|user|admin",
         "choose what the key may do\nowner: makes workspaces, sets their policy, decides about "
         "plans,\n  makes keys of the scopes agent, approve and read\nagent: works in some "
         "workspaces: commands, files, plans;\n  never policy, keys or decisions\napprove: sees "
         "plans and decides about them\nread: sees everything, changes nothing\nuser: as owner, "
         "without making keys (default)\nadmin: everything",
         ARGS_EVERY, &options.scopes},
        {"--workspace", "WORKSPACE",
         "agent, approve, read: allow only this workspace\nor all that match a pattern such as "
         "'thread-*'",
         ARGS_EVERY, &options.workspaces},
        {"--template", "TEMPLATE", "agent: make every workspace from this template", ARGS_TEXT,
         &options.template},
        {"--policy", "FILE",
         "agent: give every workspace that it makes this policy\nJSON; -: standard input",
         ARGS_TEXT, &options.policy},
        {0},
    };
    const char *words[3] = {NULL};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &options.common, words, 2);
    if (status >= 0)
        return status;
    return dispatch(words, &options, &err);
}
