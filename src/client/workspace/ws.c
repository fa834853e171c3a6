/* SPDX-License-Identifier: Apache-2.0 */
/* carrel ws: workspaces of the daemon. */
#include "client/workspace/ws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

static const char help[] =
    "usage: carrel ws create [ID] [--template TEMPLATE] [--python] [--node] [--policy FILE]\n"
    "                        [--owner OWNER] [--label NAME=VALUE]... [--link NAME=VALUE]...\n"
    "                        [--mirror STORE] [--from-store STORE]\n"
    "       carrel ws ls [--deleted] [--owner OWNER]\n"
    "       carrel ws show ID\n"
    "       carrel ws policy ID [FILE]\n"
    "       carrel ws rm ID [--purge]\n"
    "       carrel ws undelete ID\n"
    "       carrel ws sleep ID\n"
    "       carrel ws services ID\n"
    "       carrel ws reset-system ID\n"
    "       carrel ws mirror ID STORE|off\n"
    "       carrel ws sync ID\n"
    "       carrel ws backup ID > FILE\n"
    "       carrel ws restore ID < FILE\n"
    "       carrel ws adopt DIR [--owner OWNER] [--dry-run]\n"
    "\n"
    "Manages the workspaces of the daemon. 'policy' shows the policy, or sets it from FILE;\n"
    "'undelete' takes a workspace out of the trash; 'sleep' ends its sandbox; 'services'\n"
    "shows what its template keeps running in it, while it is awake; 'reset-system' removes\n"
    "what one that is asleep has changed of its own system; 'mirror' copies its\n"
    "files to an object store, now and whenever they change (see 'carrel store'); 'sync'\n"
    "waits until all of them are there; 'backup' writes its files as a tar archive, 'restore'\n"
    "reads one; 'adopt' takes over an existing directory tree in place.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel ws create desk --label team=blue\n"
    "  carrel ws create den --template office\n"
    "  carrel ws policy desk policy.json\n"
    "  carrel ws backup desk > desk.tar\n"
    "  carrel ws adopt --dry-run /srv/agents\n";

static int add_pairs(json_t *body, const char *name, const struct args_list *pairs,
                     const char *option, struct err *err)
{
    json_t *object = json_object();

    json_object_set_new(body, name, object);
    for (size_t i = 0; i < pairs->count; i++) {
        const char *equals = strchr(pairs->items[i], '=');
        size_t n = equals ? (size_t)(equals - pairs->items[i]) : 0;
        char key[256];
        if (n == 0 || n >= sizeof(key))
            return err_set(err, ERR_INVALID, 0, "%s '%.80s': write NAME=VALUE", option,
                           pairs->items[i]);
        memcpy(key, pairs->items[i], n);
        key[n] = '\0';
        if (json_object_set_new(object, key, json_string(equals + 1)) < 0)
            return err_set(err, ERR_INVALID, 0, "%s '%.80s': only UTF-8 can be sent", option, key);
    }
    return 0;
}

static const char *plain(const json_t *value, char **ret_text)
{
    *ret_text =
        json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    return *ret_text ? *ret_text : json_string_value(value);
}

/* All members, one a line. */
static int show_object(json_t *object)
{
    const char *name;
    json_t *value;
    struct buf text;

    buf_init(&text, 1 << 22);
    json_object_foreach(object, name, value)
    {
        char *dumped;
        const char *shown = plain(value, &dumped);
        if (!json_is_null(value) && shown) {
            struct buf padded;
            buf_init(&padded, 1024);
            text_escape(&padded, name, strlen(name));
            buf_printf(&text, "%-9s ", buf_done(&padded) == 0 ? padded.p : "?");
            buf_clear(&padded);
            text_escape(&text, shown, strlen(shown));
            buf_str(&text, "\n");
        }
        free(dumped);
    }
    int status = buf_done(&text) == 0 ? cli_put(text.p) : cli_fail("too much to show; use --json");
    buf_clear(&text);
    json_decref(object);
    return status;
}

static int add_mirror(json_t *body, const char *store, struct err *err)
{
    json_t *value = strcmp(store, "off") == 0 ? json_null() : json_pack("{s:s}", "mirror", store);

    return value && json_object_set_new(body, "store", value) == 0
               ? 0
               : err_set(err, ERR_INVALID, 0, "the store: only UTF-8 can be sent");
}

static int create(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                  struct err *err)
{
    json_t *body = json_object();
    json_t *answer = NULL;
    int r = 0;

    if (words[1])
        json_object_set_new(body, "id", json_string(words[1]));
    if (o->owner)
        json_object_set_new(body, "owner", json_string(o->owner));
    if (o->template && json_object_set_new(body, "template", json_string(o->template)) < 0)
        r = err_set(err, ERR_INVALID, 0, "--template: only UTF-8 can be sent");
    if (r == 0 && o->from_store &&
        json_object_set_new(body, "from_store", json_string(o->from_store)) < 0)
        r = err_set(err, ERR_INVALID, 0, "--from-store: only UTF-8 can be sent");
    if (r == 0 && (o->mirror || o->from_store))
        r = add_mirror(body, o->mirror ? o->mirror : o->from_store, err);
    if (o->python)
        json_object_set_new(body, "python", json_true());
    if (o->node)
        json_object_set_new(body, "node", json_true());
    if (r == 0 && o->labels.count)
        r = add_pairs(body, "labels", &o->labels, "--label", err);
    if (r == 0 && o->links.count)
        r = add_pairs(body, "links", &o->links, "--link", err);
    if (r == 0 && o->policy)
        r = client_add_policy(body, o->policy, err);
    if (r < 0)
        json_decref(body);
    else
        r = daemon_ask(daemon, "POST", "/v1/workspaces", body, &answer, err);
    if (r < 0)
        return client_fail(err);
    return client_id(answer, o->common.json);
}

/* "-" where it is not mirrored; `text` has TEXT_SHORT bytes. */
static const char *mirror_state(const json_t *workspace, char *text)
{
    const json_t *store = json_object_get(workspace, "store");
    json_int_t behind = json_integer_value(json_object_get(store, "unsynced_seconds"));

    if (!store)
        return NULL;
    if (json_is_object(json_object_get(store, "last_error")))
        return "failing";
    if (!json_is_string(json_object_get(store, "synced")) || behind > 0)
        snprintf(text, TEXT_SHORT, "%jds behind", (intmax_t)behind);
    else
        snprintf(text, TEXT_SHORT, "synced");
    return text;
}

static void add_row(struct table *table, const json_t *workspace)
{
    char mirror[TEXT_SHORT];
    char created[TEXT_SHORT];
    char deleted[TEXT_SHORT];
    char execs[TEXT_SHORT];
    json_t *labels = json_object_get(workspace, "labels");
    const char *gone = client_ago(workspace, "deleted", deleted);
    const char *name;
    json_t *value;
    struct buf list;

    buf_init(&list, 65536);
    json_object_foreach(labels, name, value)
    {
        const char *text = json_string_value(value);
        buf_printf(&list, "%s%s=%s", list.n ? " " : "", name, text ? text : "?");
    }
    const char *cells[] = {client_text(workspace, "id"),
                           client_text(workspace, "owner"),
                           gone ? "deleted" : client_text(workspace, "state"),
                           client_number(workspace, "execs", execs),
                           gone ? gone : client_ago(workspace, "created", created),
                           mirror_state(workspace, mirror),
                           buf_done(&list) == 0 ? list.p : "..."};
    table_add(table, cells);
    buf_clear(&list);
}

static int list_all(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                    struct err *err)
{
    static const char *const heads[] = {"ID",      "OWNER",  "STATE",  "EXECS",
                                        "CREATED", "MIRROR", "LABELS", NULL};
    static const char *const trash[] = {"ID", "OWNER", "STATE", "EXECS", "DELETED", "LABELS", NULL};
    json_t *workspaces = NULL;
    struct buf path;

    (void)words;
    buf_init(&path, 4096);
    buf_printf(&path, "/v1/workspaces%s", o->deleted ? "?deleted=1" : "");
    if (o->owner) {
        buf_str(&path, o->deleted ? "&owner=" : "?owner=");
        text_url(&path, o->owner);
    }
    int r = buf_done(&path) < 0 ? err_set(err, ERR_INVALID, 0, "--owner is too long")
                                : daemon_list(daemon, path.p, "workspaces", &workspaces, err);
    buf_clear(&path);
    if (r < 0)
        return client_fail(err);
    return client_table(json_pack("{s:o}", "workspaces", workspaces), "workspaces",
                        o->deleted ? trash : heads, add_row, o->common.json);
}

static int show(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                struct err *err)
{
    json_t *answer = NULL;
    struct buf path;

    client_workspace_path(&path, words[1], "");
    if (client_do(daemon, "GET", &path, NULL, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    json_t *template = json_object_get(json_object_get(answer, "template"), "name");
    if (template)
        json_object_set(answer, "template", template);
    return show_object(answer);
}

static int policy(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                  struct err *err)
{
    json_t *answer = NULL;
    json_t *body = words[2] ? json_object() : NULL;
    struct buf path;

    if (words[2] && client_add_policy(body, words[2], err) < 0) {
        json_decref(body);
        return client_fail(err);
    }
    client_workspace_path(&path, words[1], "");
    if (client_do(daemon, body ? "PATCH" : "GET", &path, body, &answer, err) < 0)
        return client_fail(err);
    json_t *now = json_incref(json_object_get(answer, "policy"));
    json_decref(answer);
    if (!words[2] || o->common.json)
        return client_print(now ? now : json_null());
    json_decref(now);
    return 0;
}

static int mirror(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                  struct err *err)
{
    json_t *body = json_object();
    json_t *answer = NULL;
    struct buf path;

    if (add_mirror(body, words[2], err) < 0) {
        json_decref(body);
        return client_fail(err);
    }
    client_workspace_path(&path, words[1], "");
    if (client_do(daemon, "PATCH", &path, body, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    json_decref(answer);
    return 0;
}

static int change(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                  struct err *err)
{
    bool removes = strcmp(words[0], "rm") == 0;
    json_t *answer = NULL;
    struct buf path;

    client_workspace_path(&path, words[1], removes ? "" : "/");
    if (!removes)
        buf_str(&path, words[0]); /* "undelete", "sleep", "reset-system" */
    else if (o->purge)
        buf_str(&path, "?purge=1");
    if (client_do(daemon, removes ? "DELETE" : "POST", &path, removes ? NULL : json_object(),
                  &answer, err) < 0)
        return client_fail(err);
    if (o->common.json && !json_is_null(answer))
        return client_print(answer);
    json_decref(answer);
    return 0;
}

static const struct {
    const char *name;
    ws_fn *run;
    size_t least; /* words after the name */
    size_t most;
} actions[] = {
    {"create", create, 0, 1},        {"ls", list_all, 0, 0},         {"show", show, 1, 1},
    {"policy", policy, 1, 2},        {"rm", change, 1, 1},           {"undelete", change, 1, 1},
    {"sleep", change, 1, 1},         {"sync", change, 1, 1},         {"mirror", mirror, 2, 2},
    {"backup", ws_backup, 1, 1},     {"restore", ws_restore, 1, 1},  {"adopt", ws_adopt, 1, 1},
    {"services", ws_services, 1, 1}, {"reset-system", change, 1, 1},
};

static int dispatch(const struct ws_options *o, const char *const *words, struct err *err)
{
    struct daemon daemon = {0};
    size_t count = 0;
    size_t i = 0;

    while (words[0] && words[count + 1])
        count++;
    while (i < sizeof(actions) / sizeof(actions[0]) &&
           (!words[0] || strcmp(actions[i].name, words[0]) != 0))
        i++;
    if (i == sizeof(actions) / sizeof(actions[0]))
        return client_no_action(
            "no action given: carrel ws create, ls, show, policy, rm, undelete, sleep, "
            "reset-system, mirror, sync, backup, restore or adopt; see 'carrel ws --help'",
            words[0], actions, sizeof(actions) / sizeof(actions[0]), sizeof(actions[0]));
    if (count < actions[i].least || count > actions[i].most || (actions[i].least && !words[1][0])) {
        err_set(err, ERR_INVALID, 0, "%s: %s; see 'carrel ws --help'", words[0],
                count > actions[i].most      ? "too many arguments"
                : actions[i].run == ws_adopt ? "name a directory"
                                             : "name a workspace");
        return client_fail(err);
    }
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    int status = actions[i].run(&daemon, o, words, err);
    daemon_close(&daemon);
    return status;
}

int client_ws(char **argv)
{
    static struct ws_options o = {.common.verb = "ws"};
    const struct args_rule rules[] = {
        {"--policy", "FILE",
         "set this policy, JSON as for 'carrel run --policy'\n-: standard input", ARGS_TEXT,
         &o.policy},
        {"--owner", "OWNER", "name the owner (with an admin key)", ARGS_TEXT, &o.owner},
        {"--label", "NAME=VALUE", "add a label, any text you want to keep with the workspace",
         ARGS_EVERY, &o.labels},
        {"--link", "NAME=VALUE",
         "set one of skills_user, skills_at, ticket, ticket_at, ticket_mode", ARGS_EVERY, &o.links},
        {"--deleted", NULL, "list the workspaces in the trash", ARGS_FLAG, &o.deleted},
        {"--purge", NULL, "delete for good, without the trash", ARGS_FLAG, &o.purge},
        {"--mirror", "STORE", "create: mirror its files to this store; off: to none", ARGS_TEXT,
         &o.mirror},
        {"--from-store", "STORE",
         "create: begin with the copy that this store has\nand mirror it there, if --mirror does "
         "not say otherwise",
         ARGS_TEXT, &o.from_store},
        {"--dry-run", NULL, "print what would be done, and do nothing", ARGS_FLAG, &o.dry_run},
        {"--template", "TEMPLATE", "use this template as the base; see 'carrel template list'",
         ARGS_TEXT, &o.template},
        {"--python", NULL, "make a Python environment, as 'carrel env' does", ARGS_FLAG, &o.python},
        {"--node", NULL, "make a Node environment, as 'carrel env' does", ARGS_FLAG, &o.node},
        {0},
    };
    const char *words[4] = {NULL};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &o.common, words, 3);
    if (status >= 0)
        return status;
    return dispatch(&o, words, &err);
}
