/* SPDX-License-Identifier: Apache-2.0 */
/* carrel snapshot: versions of a workspace. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"
#include "client/snapshot/versions.h"

static const char help[] =
    "usage: carrel snapshot create WORKSPACE [--name NAME]\n"
    "       carrel snapshot ls WORKSPACE\n"
    "       carrel snapshot show WORKSPACE SNAPSHOT\n"
    "       carrel snapshot diff WORKSPACE SNAPSHOT [SNAPSHOT]\n"
    "       carrel snapshot restore WORKSPACE SNAPSHOT\n"
    "       carrel snapshot rm WORKSPACE SNAPSHOT\n"
    "\n"
    "Keeps the files of a workspace as they are now. Commands that run stand still for that\n"
    "moment, and go on. A snapshot shares what has not changed with the one before it.\n"
    "SNAPSHOT is an id or a name, in 'diff' also \"now\", which the second one is if it is left\n"
    "out. 'restore' makes a plan by which the workspace goes back to the snapshot: nothing is\n"
    "changed before that is applied. 'create' may be left out.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel snapshot desk --name before-cleanup\n"
    "  carrel snapshot ls desk\n"
    "  carrel snapshot rm desk before-cleanup\n";

struct snapshot_options {
    struct args_common common;
    const char *name;
};

/* Each returns the exit status. */
typedef int snapshot_fn(struct daemon *daemon, const struct snapshot_options *o,
                        const char *const *words, struct err *err);

static void path_of(struct buf *path, const char *const *words)
{
    client_workspace_path(path, words[0], "/snapshots");
    if (words[1]) {
        buf_str(path, "/");
        text_url(path, words[1]);
    }
}

static int create(struct daemon *daemon, const struct snapshot_options *o, const char *const *words,
                  struct err *err)
{
    json_t *body = json_object();
    json_t *answer = NULL;
    struct buf path;
    char size[TEXT_SHORT];
    char line[256];

    if (o->name && json_object_set_new(body, "name", json_string(o->name)) < 0) {
        json_decref(body);
        return cli_fail("--name: only UTF-8 can be sent");
    }
    path_of(&path, words);
    if (client_do(daemon, "POST", &path, body, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    text_bytes((uint64_t)json_integer_value(json_object_get(answer, "own_bytes")), size);
    snprintf(line, sizeof(line),
             "%s\n  %lld files, of which %lld were copied (%s); commands stood still for %lld ms\n",
             client_text(answer, "id"),
             (long long)json_integer_value(json_object_get(answer, "files")),
             (long long)json_integer_value(json_object_get(answer, "copied")), size,
             (long long)json_integer_value(json_object_get(answer, "frozen_ms")));
    json_decref(answer);
    return cli_put(line);
}

static void add_row(struct table *table, const json_t *one)
{
    char created[TEXT_SHORT];
    char files[TEXT_SHORT];
    char size[TEXT_SHORT];
    char own[TEXT_SHORT];

    const char *cells[] = {
        client_text(one, "id"),
        client_text(one, "name"),
        client_ago(one, "created", created),
        client_number(one, "files", files),
        text_bytes((uint64_t)json_integer_value(json_object_get(one, "bytes")), size),
        text_bytes((uint64_t)json_integer_value(json_object_get(one, "own_bytes")), own)};
    table_add(table, cells);
}

static int list_all(struct daemon *daemon, const struct snapshot_options *o,
                    const char *const *words, struct err *err)
{
    static const char *const heads[] = {"ID", "NAME", "CREATED", "FILES", "SIZE", "OWN", NULL};
    json_t *answer = NULL;
    struct buf path;

    path_of(&path, words);
    if (client_do(daemon, "GET", &path, NULL, &answer, err) < 0)
        return client_fail(err);
    return client_table(answer, "snapshots", heads, add_row, o->common.json);
}

static int show(struct daemon *daemon, const struct snapshot_options *o, const char *const *words,
                struct err *err)
{
    json_t *answer = NULL;
    struct buf path;

    (void)o;
    path_of(&path, words);
    if (client_do(daemon, "GET", &path, NULL, &answer, err) < 0)
        return client_fail(err);
    return client_print(answer);
}

static int diff(struct daemon *daemon, const struct snapshot_options *o, const char *const *words,
                struct err *err)
{
    json_t *body = json_pack("{s:s, s:s}", "from", words[1], "to", words[2] ? words[2] : "now");

    if (!body)
        return cli_fail("only UTF-8 can be sent");
    return client_versions_diff(daemon, words[0], body, o->common.json, err);
}

static int restore(struct daemon *daemon, const struct snapshot_options *o,
                   const char *const *words, struct err *err)
{
    json_t *plan = NULL;
    struct buf path;

    path_of(&path, words);
    buf_str(&path, "/restore");
    if (client_do(daemon, "POST", &path, json_object(), &plan, err) < 0)
        return client_fail(err);
    return client_versions_plan(plan, o->common.json);
}

static int delete (struct daemon *daemon, const struct snapshot_options *o,
                   const char *const *words, struct err *err)
{
    struct buf path;

    path_of(&path, words);
    return client_delete(daemon, &path, o->common.json, err);
}

static const struct {
    const char *name;
    snapshot_fn *run;
    size_t words; /* after the name */
    size_t more;  /* ... that may follow */
} actions[] = {
    {"create", create, 1, 0}, {"ls", list_all, 1, 0},     {"show", show, 2, 0},
    {"diff", diff, 2, 1},     {"restore", restore, 2, 0}, {"rm", delete, 2, 0},
};

enum {
    ACTIONS = sizeof(actions) / sizeof(actions[0])
};

static int dispatch(const struct snapshot_options *o, const char *const *words, struct err *err)
{
    struct daemon daemon = {0};
    size_t i = 0;
    size_t count = 0;

    while (i < ACTIONS && (!words[0] || strcmp(actions[i].name, words[0]) != 0))
        i++;
    if (words[0] && i < ACTIONS)
        words++;
    else
        i = 0; /* "carrel snapshot WORKSPACE" */
    while (words[count])
        count++;
    size_t most = actions[i].words + actions[i].more;
    if (count < actions[i].words || count > most || !words[0] || !words[0][0]) {
        err_set(err, ERR_INVALID, 0, "%s: %s; see 'carrel snapshot --help'", actions[i].name,
                count > most ? "too many arguments"
                : count == 0 ? "name a workspace"
                             : "name a snapshot");
        return client_fail(err);
    }
    if (o->name && actions[i].run != create)
        return cli_fail("--name is for a new snapshot: carrel snapshot WORKSPACE --name NAME");
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    int status = actions[i].run(&daemon, o, words, err);
    daemon_close(&daemon);
    return status;
}

int client_snapshot(char **argv)
{
    static struct snapshot_options o = {.common.verb = "snapshot"};
    const struct args_rule rules[] = {
        {"--name", "NAME", "name the new snapshot, to find it by", ARGS_TEXT, &o.name},
        {0},
    };
    const char *words[5] = {NULL};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &o.common, words, 4);
    if (status >= 0)
        return status;
    return dispatch(&o, words, &err);
}
