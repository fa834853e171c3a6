/* SPDX-License-Identifier: Apache-2.0 */
/* carrel ws backup, restore, adopt: whole trees. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/exec/attach.h"
#include "client/workspace/ws.h"

struct output {
    int os_errno;
};

static size_t write_all(void *context, const char *bytes, size_t n)
{
    struct output *output = context;

    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(STDOUT_FILENO, bytes + at, n - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            output->os_errno = errno;
            return 0;
        }
        at += (size_t)wrote;
    }
    return n;
}

/* Runs one call to its end. Its path is consumed. */
static int wait_for(struct call *call, const char *method, struct buf *path, struct err *err)
{
    int r = buf_done(path) < 0 ? err_set(err, ERR_INVALID, 0, "the request is too long")
                               : call_wait(call, method, path->p, err);

    buf_clear(path);
    return r;
}

int ws_backup(struct daemon *daemon, const struct ws_options *o, const char *const *words,
              struct err *err)
{
    struct output output = {0};
    struct call call;
    struct buf path;

    (void)o;
    if (isatty(STDOUT_FILENO))
        return cli_fail("the archive does not go to a terminal; for example: carrel ws backup desk "
                        "> desk.tar");
    client_workspace_path(&path, words[1], "/backup");
    int r = call_open(&call, daemon, err);
    call.take = write_all;
    call.context = &output;
    call.accept = "application/x-tar";
    if (r == 0)
        r = wait_for(&call, "GET", &path, err);
    else
        buf_clear(&path);
    if (output.os_errno)
        err_set(err, ERR_IO, output.os_errno, "standard output cannot be written");
    else if (r < 0 && call.status / 100 == 2)
        err_set(err, ERR_IO, 0, "the archive is incomplete: the daemon stopped sending it");
    call_close(&call);
    return r < 0 ? client_fail(err) : 0;
}

/* What tar said inside, line by line. */
static void say_lines(const char *text)
{
    char line[512];

    while (*text) {
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : sizeof(line)), text);
        cli_say(line);
        text += n + (text[n] == '\n');
    }
}

int ws_restore(struct daemon *daemon, const struct ws_options *o, const char *const *words,
               struct err *err)
{
    struct call call;
    struct buf path;
    json_t *result = NULL;

    if (isatty(STDIN_FILENO))
        return cli_fail("the archive comes from standard input; for example: carrel ws restore "
                        "desk < desk.tar");
    client_workspace_path(&path, words[1], "/restore");
    int r = call_open(&call, daemon, err);
    call.body_fd = STDIN_FILENO;
    call.type = "application/x-tar";
    if (r == 0)
        r = wait_for(&call, "POST", &path, err);
    else
        buf_clear(&path);
    if (r == 0)
        result = json_loadb(call.answer.p, call.answer.n, JSON_ALLOW_NUL, NULL);
    call_close(&call);
    if (r < 0)
        return client_fail(err);
    int code = (int)json_integer_value(json_object_get(result, "exit_code"));
    const char *said = client_text(result, "stderr");
    if (o->common.json) {
        int status = client_print(result);
        return status ? status : code;
    }
    if (code != 0)
        say_lines(said && *said ? said : "the archive could not be read inside");
    json_decref(result);
    return code;
}

/* "system user": the links of old that go on to work. */
static const char *names_of(struct buf *list, json_t *object)
{
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        buf_str(list, list->n ? " " : "");
        buf_str(list, json_object_iter_key(at));
    }
    return list->n && buf_done(list) == 0 ? list->p : NULL;
}

/* Why it is not adopted, or why links in it will not work. */
static const char *reasons_of(struct buf *list, const json_t *workspace)
{
    json_t *unused = json_object_get(workspace, "links_unused");
    const char *why = client_text(workspace, "why");

    buf_str(list, why ? why : "");
    for (void *at = json_object_iter(unused); at; at = json_object_iter_next(unused, at)) {
        const char *words = json_string_value(json_object_iter_value(at));
        buf_str(list, list->n ? "; " : "");
        buf_str(list, json_object_iter_key(at));
        buf_str(list, ": ");
        buf_str(list, words ? words : "?");
    }
    return list->n && buf_done(list) == 0 ? list->p : NULL;
}

static void add_row(struct table *table, const json_t *workspace)
{
    json_t *links = json_object_get(workspace, "links");
    scoped_buf struct buf places;
    scoped_buf struct buf reasons;

    buf_init(&places, 4096);
    buf_init(&reasons, 65536);
    const char *cells[] = {client_text(workspace, "id"), client_text(workspace, "action"),
                           names_of(&places, json_object_get(links, "places")),
                           reasons_of(&reasons, workspace)};
    table_add(table, cells);
}

int ws_adopt(struct daemon *daemon, const struct ws_options *o, const char *const *words,
             struct err *err)
{
    static const char *const heads[] = {"WORKSPACE", "ACTION", "LINKS", "WHY", NULL};
    char *real = realpath(words[1], NULL);
    json_t *answer = NULL;

    if (!real) {
        err_set(err, ERR_NOT_FOUND, errno, "'%.200s'", words[1]);
        return client_fail(err);
    }
    json_t *body = json_pack("{s:s,s:b}", "path", real, "dry_run", (int)o->dry_run);
    free(real);
    if (!body)
        return cli_fail("only a path in UTF-8 can be sent");
    if (o->owner)
        json_object_set_new(body, "owner", json_string(o->owner));
    if (daemon_ask(daemon, "POST", "/v1/adopt", body, &answer, err) < 0)
        return client_fail(err);
    return client_table(answer, "workspaces", heads, add_row, o->common.json);
}
