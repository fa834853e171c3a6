/* SPDX-License-Identifier: Apache-2.0 */
/* carrel diff: what forks have changed. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/snapshot/versions.h"

static const char help[] =
    "usage: carrel diff FORK [OTHER]\n"
    "\n"
    "Lists the files that FORK has added, removed or changed since it was made; or, with\n"
    "OTHER, what that workspace or fork has different from FORK, as both are now.\n"
    "A leading + is a file that was added, - one that was removed, ~ one that was changed.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel diff attempt-1\n"
    "  carrel diff attempt-1 attempt-2\n";

struct diff_options {
    struct args_common common;
};

static void add_change(struct buf *b, const json_t *change)
{
    static const struct {
        const char *word;
        char sign;
    } signs[] = {{"added", '+'}, {"removed", '-'}, {"changed", '~'}};

    const char *word = client_text(change, "change");
    const char *path = client_text(change, "path");
    char sign = '?';

    for (size_t i = 0; word && i < sizeof(signs) / sizeof(signs[0]); i++) {
        if (strcmp(word, signs[i].word) == 0)
            sign = signs[i].sign;
    }
    buf_printf(b, "%c ", sign);
    path = path ? path : client_text(change, "path_b64");
    text_escape(b, path, path ? strlen(path) : 0);
    const char *type = client_text(change, "type");
    buf_str(b, type && strcmp(type, "directory") == 0 ? "/\n" : "\n");
}

int client_versions_diff(struct daemon *daemon, const char *workspace, json_t *body, bool json,
                         struct err *err)
{
    json_t *answer = NULL;
    struct buf path;
    struct buf b;
    json_t *change;
    size_t i;

    client_workspace_path(&path, workspace, "/compare");
    if (client_do(daemon, "POST", &path, body, &answer, err) < 0)
        return client_fail(err);
    if (json)
        return client_print(answer);
    buf_init(&b, 64UL << 20);
    const json_t *changes = json_object_get(answer, "changes");
    json_array_foreach(changes, i, change)
    {
        add_change(&b, change);
    }
    size_t count = (size_t)json_integer_value(json_object_get(answer, "count"));
    if (count > json_array_size(changes))
        buf_printf(&b, "... and %zu more\n", count - json_array_size(changes));
    json_decref(answer);
    int status = buf_done(&b) < 0 ? cli_fail("out of memory") : b.n ? cli_put(b.p) : 0;
    buf_clear(&b);
    return status;
}

int client_diff(char **argv)
{
    static struct diff_options o = {.common.verb = "diff"};
    const struct args_rule rules[] = {{0}};
    const char *words[3] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &o.common, words, 2);

    if (status >= 0)
        return status;
    if (!words[0] || !words[0][0])
        return cli_fail("name a fork: carrel diff attempt-1");
    json_t *body =
        words[1] ? json_pack("{s:s, s:s, s:s}", "from", "now", "to", "now", "workspace", words[1])
                 : json_pack("{s:s, s:s}", "from", "base", "to", "now");
    if (!body)
        return cli_fail("only UTF-8 can be sent");
    if (daemon_open(&daemon, o.common.state, &err) < 0) {
        json_decref(body);
        return client_fail(&err);
    }
    status = client_versions_diff(&daemon, words[0], body, o.common.json, &err);
    daemon_close(&daemon);
    return status;
}
