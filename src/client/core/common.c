/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/near.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

enum {
    POLICY_MAX = 1024 * 1024,
};

int client_fail(const struct err *err)
{
    char text[512];

    return cli_fail(err_text(err, text, sizeof(text)));
}

int client_begin(char **argv, const char *help, const struct args_rule *rules,
                 struct args_common *common, const char **words, size_t most)
{
    struct err err = {0};

    if (args_all(argv, rules, common, words, most, &err) < 0)
        return client_fail(&err);
    return common->help ? args_help(help, rules) : -1;
}

int client_no_action(const char *says, const char *word, const void *rows, size_t count,
                     size_t size)
{
    char hint[NEAR_HINT] = "";
    char text[512];

    if (word)
        (void)near_hint(hint, word, strlen(word), rows, count, size);
    snprintf(text, sizeof(text), "%s%s", says, hint);
    return cli_fail(text);
}

int client_print(json_t *value)
{
    /* On a terminal nothing but letters: text inside may hold what drives it. */
    size_t flags = JSON_REAL_PRECISION(6) | JSON_ENCODE_ANY;
    char *text = json_dumps(value, isatty(STDOUT_FILENO) ? flags | JSON_ENSURE_ASCII : flags);

    json_decref(value);
    if (!text)
        return cli_fail("out of memory for the answer");
    int status = cli_put(text);
    free(text);
    return status ? status : cli_put("\n");
}

int client_table(json_t *answer, const char *member, const char *const *heads,
                 void (*add_row)(struct table *table, const json_t *object), bool json)
{
    const json_t *object;
    struct table table;
    size_t i;

    if (json)
        return client_print(answer);
    table_open(&table, heads);
    json_array_foreach(json_object_get(answer, member), i, object)
    {
        add_row(&table, object);
    }
    json_decref(answer);
    return table_show(&table);
}

int client_id(json_t *answer, bool json)
{
    const char *id = client_text(answer, "id");
    char line[128];

    if (json)
        return client_print(answer);
    snprintf(line, sizeof(line), "%s\n", id ? id : "");
    json_decref(answer);
    return cli_put(line);
}

int client_delete(struct daemon *daemon, struct buf *path, bool json, struct err *err)
{
    json_t *answer = NULL;

    if (client_do(daemon, "DELETE", path, NULL, &answer, err) < 0)
        return client_fail(err);
    if (json && !json_is_null(answer))
        return client_print(answer);
    json_decref(answer);
    return 0;
}

const char *client_text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

const char *client_ago(const json_t *object, const char *name, char *ret)
{
    const json_t *value = json_object_get(object, name);
    int64_t then = json_is_string(value)    ? text_parse_time(json_string_value(value))
                   : json_is_integer(value) ? (int64_t)json_integer_value(value)
                                            : -1;

    if (then < 0)
        return NULL;
    return text_ago(wall_ms(), then, ret);
}

const char *client_number(const json_t *object, const char *name, char *ret)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_integer(value))
        return NULL;
    snprintf(ret, TEXT_SHORT, "%lld", (long long)json_integer_value(value));
    return ret;
}

void client_command(const json_t *exec, struct buf *b)
{
    const char *line = client_text(exec, "command");
    json_t *argv = json_object_get(exec, "argv");
    json_t *word;
    size_t i;

    if (line)
        buf_str(b, line);
    json_array_foreach(argv, i, word)
    {
        buf_str(b, i ? " " : "");
        buf_str(b, json_is_string(word) ? json_string_value(word) : "?");
    }
}

void client_workspace_path(struct buf *b, const char *workspace, const char *rest)
{
    buf_init(b, 16384);
    buf_str(b, "/v1/workspaces/");
    text_url(b, workspace);
    buf_str(b, rest);
}

int client_do(struct daemon *daemon, const char *method, struct buf *path, json_t *body,
              json_t **ret, struct err *err)
{
    int r = -1;

    if (buf_done(path) < 0) {
        json_decref(body);
        err_set(err, ERR_INVALID, 0, "the request is too long");
    } else {
        r = daemon_ask(daemon, method, path->p, body, ret, err);
    }
    buf_clear(path);
    return r;
}

int client_read_file(const char *path, struct buf *ret, struct err *err)
{
    scoped_fd int opened = -1;
    bool standard = strcmp(path, "-") == 0;
    char bytes[65536 / 2];
    ssize_t n;

    if (!standard) {
        opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (opened < 0)
            return err_set(err, ERR_NOT_FOUND, errno, "open '%.200s'", path);
    }
    while ((n = read(standard ? STDIN_FILENO : opened, bytes, sizeof(bytes))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, ERR_IO, errno, "read '%.200s'", path);
        buf_add(ret, bytes, (size_t)n);
        if (ret->failed)
            break;
    }
    if (buf_done(ret) < 0)
        return err_set(err, ERR_LIMIT, 0, "'%.200s' is larger than %zu bytes", path, ret->max);
    return 0;
}

int client_add_policy(json_t *body, const char *path, struct err *err)
{
    json_error_t where;
    struct buf text;
    json_t *policy = NULL;

    buf_init(&text, POLICY_MAX);
    int r = client_read_file(path, &text, err);
    if (r == 0) {
        policy = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &where);
        if (!policy)
            r = err_set(err, ERR_INVALID, 0, "'%.120s', line %d: %.160s", path, where.line,
                        where.text);
    }
    buf_clear(&text);
    if (r == 0)
        json_object_set_new(body, "policy", policy);
    return r;
}
