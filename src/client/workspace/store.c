/* SPDX-License-Identifier: Apache-2.0 */
/* carrel store: the object stores that workspaces are mirrored to. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"

static const char help[] =
    "usage: carrel store add NAME --path BUCKET[/DIR] --config FILE\n"
    "       carrel store ls\n"
    "       carrel store check NAME [--take-over]\n"
    "       carrel store rm NAME\n"
    "\n"
    "Manages the object stores of the daemon, which rclone reaches: S3, R2, Google Cloud Storage,\n"
    "Azure, SFTP, WebDAV and others. FILE holds one section of rclone's configuration, with the\n"
    "credentials; '-' reads it from standard input. The daemon keeps it where nobody else reads\n"
    "it, and never shows it again. 'check' writes, reads and deletes an object, says what the\n"
    "store can do, and makes its path this daemon's own. 'rm' forgets the store; what is in it\n"
    "stays.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel store add work --path my-bucket/carrel --config rclone.conf\n"
    "  rclone config show r2 | carrel store add work --path my-bucket --config -\n"
    "  carrel store check work\n";

struct store_options {
    struct args_common common;
    const char *path;
    const char *config;
    bool take_over;
};

/* --- a section of rclone's configuration --- */

static char *trim(char *text)
{
    size_t n;

    text += strspn(text, " \t\r");
    for (n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

static int take_line(json_t *config, char *line, unsigned *sections, struct err *err)
{
    line = trim(line);
    if (*line == '\0' || *line == '#' || *line == ';')
        return 0;
    if (*line == '[')
        return ++*sections > 1 ? err_set(err, ERR_INVALID, 0,
                                         "the configuration has more than one section; give one: "
                                         "rclone config show NAME")
                               : 0;
    char *sign = strchr(line, '=');
    if (!sign)
        return err_set(err, ERR_INVALID, 0, "the configuration has a line without '='");
    *sign = '\0';
    if (json_object_set_new(config, trim(line), json_string(trim(sign + 1))) < 0)
        return err_set(err, ERR_INVALID, 0, "the configuration is not UTF-8");
    return 0;
}

/* NULL: *err says why. */
static json_t *read_config(const char *path, struct err *err)
{
    json_t *config = json_object();
    unsigned sections = 0;
    struct buf text;
    int r;

    buf_init(&text, 65536);
    r = client_read_file(path, &text, err);
    if (r == 0 && buf_done(&text) < 0)
        r = err_set(err, ERR_INVALID, 0, "the configuration is too long");
    for (char *line = r == 0 ? text.p : NULL; r == 0 && line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        r = take_line(config, line, &sections, err);
        line = end ? end + 1 : NULL;
    }
    if (text.p)
        explicit_bzero(text.p, text.n);
    buf_clear(&text);
    if (r == 0)
        return config;
    json_decref(config);
    return NULL;
}

/* --- the actions --- */

static int check(struct daemon *daemon, const char *name, const struct store_options *o,
                 struct err *err)
{
    json_t *body = json_pack("{s:b}", "take_over", o->take_over);
    json_t *answer = NULL;
    struct buf path;

    buf_init(&path, 4096);
    buf_str(&path, "/v1/stores/");
    text_url(&path, name);
    buf_str(&path, "/check");
    if (client_do(daemon, "POST", &path, body, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    const char *ownership = client_text(answer, "ownership");
    bool is_strong = ownership && strcmp(ownership, "conditional") == 0;
    json_decref(answer);
    cli_say(is_strong ? "the store works; its path is this daemon's"
                      : "the store works; its path is this daemon's, which another daemon that "
                        "begins in the same second may miss: this store writes on no condition");
    return 0;
}

static int add(struct daemon *daemon, const char *name, const struct store_options *o,
               struct err *err)
{
    json_t *config = read_config(o->config, err);
    json_t *answer = NULL;

    if (!config)
        return client_fail(err);
    json_t *body = json_pack("{s:s, s:s, s:o}", "name", name, "path", o->path, "config", config);
    if (!body)
        return cli_fail("only UTF-8 can be sent");
    if (daemon_ask(daemon, "POST", "/v1/stores", body, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    json_decref(answer);
    if (check(daemon, name, o, err) == 0)
        return 0;
    cli_say("the store is kept; mend it with 'carrel store add', try it with 'carrel store check'");
    return CLI_FAILED;
}

static void add_row(struct table *table, const json_t *store)
{
    const char *cells[] = {client_text(store, "name"), client_text(store, "type"),
                           client_text(store, "path"), client_text(store, "endpoint")};

    table_add(table, cells);
}

static int list(struct daemon *daemon, const struct store_options *o, struct err *err)
{
    static const char *const heads[] = {"NAME", "TYPE", "PATH", "ENDPOINT", NULL};
    json_t *answer = NULL;

    if (daemon_ask(daemon, "GET", "/v1/stores", NULL, &answer, err) < 0)
        return client_fail(err);
    return client_table(answer, "stores", heads, add_row, o->common.json);
}

static int forget(struct daemon *daemon, const char *name, const struct store_options *o,
                  struct err *err)
{
    struct buf path;

    buf_init(&path, 4096);
    buf_str(&path, "/v1/stores/");
    text_url(&path, name);
    return client_delete(daemon, &path, o->common.json, err);
}

static int dispatch(const char *const *words, const struct store_options *o, struct err *err)
{
    struct daemon daemon = {0};
    int status;
    const char *action = words[0] ? words[0] : "";
    bool adds = strcmp(action, "add") == 0 && words[1];
    bool lists = strcmp(action, "ls") == 0 && !words[1];
    bool checks = strcmp(action, "check") == 0 && words[1];
    bool removes = strcmp(action, "rm") == 0 && words[1];

    if (!adds && !lists && !checks && !removes)
        return cli_fail("no action given: carrel store add NAME | ls | check NAME | rm NAME; see "
                        "'carrel store --help'");
    if (adds && (!o->path || !o->config))
        return cli_fail("a store needs --path BUCKET[/DIR] and --config FILE; see 'carrel store "
                        "--help'");
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    if (adds)
        status = add(&daemon, words[1], o, err);
    else if (lists)
        status = list(&daemon, o, err);
    else
        status = checks ? check(&daemon, words[1], o, err) : forget(&daemon, words[1], o, err);
    daemon_close(&daemon);
    return status;
}

int client_store(char **argv)
{
    static struct store_options options = {.common.verb = "store"};
    const struct args_rule rules[] = {
        {"--path", "BUCKET[/DIR]", "add: keep everything below this path of the store", ARGS_TEXT,
         &options.path},
        {"--config", "FILE",
         "add: read a section of rclone's configuration\n-: from standard input", ARGS_TEXT,
         &options.config},
        {"--take-over", NULL,
         "check: make the path this daemon's, though another one has it\nonly if that daemon is "
         "gone for good",
         ARGS_FLAG, &options.take_over},
        {0},
    };
    const char *words[3] = {NULL};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &options.common, words, 2);
    if (status >= 0)
        return status;
    return dispatch(words, &options, &err);
}
