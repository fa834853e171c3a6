/* SPDX-License-Identifier: Apache-2.0 */
/* carrel secret: values that rules of the network put into requests. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

static const char help[] =
    "usage: carrel secret set NAME [--file FILE] [--owner OWNER]\n"
    "       carrel secret ls [--owner OWNER]\n"
    "       carrel secret rm NAME [--owner OWNER]\n"
    "\n"
    "Manages values that are put into requests of commands, as a rule of the network says that\n"
    "names one; no command ever has the value, only a placeholder. 'set' reads it, one line, from\n"
    "standard input or FILE, never from an argument. It holds for the next request. Nobody can\n"
    "read it again.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel secret set example-key < key.txt\n"
    "  carrel secret ls\n"
    "  carrel secret rm example-key\n";

enum {
    LONGEST = 4096,
};

struct secret_options {
    struct args_common common;
    const char *name; /* NULL: of none */
    const char *file;
    const char *owner;
};

static int ask(struct daemon *daemon, const char *method, const struct secret_options *o,
               json_t *body, json_t **ret, struct err *err)
{
    struct buf path;

    buf_init(&path, 4096);
    buf_str(&path, "/v1/secrets");
    if (o->name) {
        buf_str(&path, "/");
        text_url(&path, o->name);
    }
    if (o->owner) {
        buf_str(&path, "?owner=");
        text_url(&path, o->owner);
    }
    return client_do(daemon, method, &path, body, ret, err);
}

/* One line, without its end. */
static int read_value(const char *file, char value[LONGEST + 3], struct err *err)
{
    scoped_fd int own = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    size_t n = 0;
    ssize_t some = 0;

    if (file && own < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open '%s'", file);
    while (n < LONGEST + 2 &&
           (some = read(file ? own : STDIN_FILENO, value + n, LONGEST + 2 - n)) > 0)
        n += (size_t)some;
    if (some < 0)
        return err_set(err, ERR_IO, errno, "read the value");
    if (n > 0 && value[n - 1] == '\n')
        n--;
    if (n > 0 && value[n - 1] == '\r')
        n--;
    value[n] = '\0';
    return n > LONGEST || strlen(value) != n
               ? err_set(err, ERR_INVALID, 0, "a value is one line of 8 to 4096 visible characters")
               : 0;
}

static int set(struct daemon *daemon, const struct secret_options *o, struct err *err)
{
    char value[LONGEST + 3];
    json_t *answer = NULL;

    if (read_value(o->file, value, err) < 0)
        return client_fail(err);
    json_t *text = json_string(value);
    explicit_bzero(value, sizeof(value));
    json_t *body = text ? json_pack("{s:o}", "value", text) : NULL;
    if (!body)
        return cli_fail("a value is one line of 8 to 4096 visible characters");
    if (ask(daemon, "PUT", o, body, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    json_decref(answer);
    return 0;
}

static void add_row(struct table *table, const json_t *secret)
{
    char ago[TEXT_SHORT];
    const char *cells[] = {client_text(secret, "name"), client_ago(secret, "set", ago)};

    table_add(table, cells);
}

static int list(struct daemon *daemon, const struct secret_options *o, struct err *err)
{
    static const char *const heads[] = {"NAME", "SET", NULL};
    json_t *answer = NULL;

    if (ask(daemon, "GET", o, NULL, &answer, err) < 0)
        return client_fail(err);
    return client_table(answer, "secrets", heads, add_row, o->common.json);
}

static int dispatch(const char *const *words, const struct secret_options *o, struct err *err)
{
    struct daemon daemon = {0};
    const char *action = words[0] ? words[0] : "";
    bool sets = strcmp(action, "set") == 0 && words[1];
    bool lists = strcmp(action, "ls") == 0 && !words[1];
    bool removes = strcmp(action, "rm") == 0 && words[1];
    int status = 0;

    if (!sets && !lists && !removes)
        return cli_fail("no action given: carrel secret set NAME | ls | rm NAME; see 'carrel "
                        "secret --help'");
    if (o->file && !sets)
        return cli_fail("--file goes with 'set'");
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    if (sets)
        status = set(&daemon, o, err);
    else if (lists)
        status = list(&daemon, o, err);
    else if (ask(&daemon, "DELETE", o, NULL, NULL, err) < 0)
        status = client_fail(err);
    daemon_close(&daemon);
    return status;
}

int client_secret(char **argv)
{
    static struct secret_options options = {.common.verb = "secret"};
    const struct args_rule rules[] = {
        {"--file", "FILE", "set: read the value from FILE instead of standard input", ARGS_TEXT,
         &options.file},
        {"--owner", "OWNER", "of this owner; for administrators", ARGS_TEXT, &options.owner},
        {0},
    };
    const char *words[3] = {NULL};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &options.common, words, 2);
    if (status >= 0)
        return status;
    options.name = words[1];
    return dispatch(words, &options, &err);
}
