/* SPDX-License-Identifier: Apache-2.0 */
/* carrel template: prepared bases for workspaces. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"
#include "client/core/where.h"
#include "client/workspace/provision.h"

static const char help[] =
    "usage: carrel template build FILE|NAME [--update-lock] [--offline] [--quiet]\n"
    "       carrel template build -f DOCKERFILE [NAME] [--offline] [--quiet]\n"
    "       carrel template list\n"
    "       carrel template show TEMPLATE\n"
    "       carrel template rm TEMPLATE\n"
    "\n"
    "Prepares bases for workspaces: Python and Node packages, Debian packages, files,\n"
    "variables, services. A template is built and stored once. Any number of workspaces can use "
    "it,\n"
    "and each keeps its own changes. NAME is a template that comes with Carrel: minimal,\n"
    "office, browser.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel template build office\n"
    "  carrel template show office\n"
    "  carrel template build ./mine.json --update-lock\n";

struct template_options {
    struct args_common common;
    bool update_lock;
    const char *dockerfile;
    bool offline;
    bool quiet;
};

/* Each returns the exit status. */
typedef int template_fn(struct daemon *daemon, const struct template_options *o, const char *name,
                        struct err *err);

/* "python 3.11 with 42 packages, node with 12". */
static void summarise(struct buf *b, const json_t *spec)
{
    static const char *const kinds[] = {"python", "node"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const json_t *kind = json_object_get(spec, kinds[i]);
        const char *version = client_text(kind, "version");
        size_t count = json_array_size(json_object_get(kind, "locked"));
        if (!kind)
            continue;
        buf_printf(b, "%s%s", b->n ? ", " : "", kinds[i]);
        if (version)
            buf_printf(b, " %s", version);
        if (count)
            buf_printf(b, " with %zu package%s", count, count == 1 ? "" : "s");
    }
}

static void add_row(struct table *table, const json_t *template)
{
    char created[TEXT_SHORT];
    char size[TEXT_SHORT];
    char used[TEXT_SHORT];
    struct buf what;

    buf_init(&what, 1024);
    summarise(&what, json_object_get(template, "spec"));
    text_bytes((uint64_t)json_integer_value(json_object_get(template, "bytes")), size);
    const char *cells[] = {
        client_text(template, "name"), size, client_number(template, "workspaces", used),
        client_ago(template, "created", created), buf_done(&what) == 0 ? what.p : "..."};
    table_add(table, cells);
    buf_clear(&what);
}

static int list_all(struct daemon *daemon, const struct template_options *o, const char *name,
                    struct err *err)
{
    static const char *const heads[] = {"NAME", "SIZE", "WORKSPACES", "CREATED", "WHAT", NULL};
    json_t *templates = NULL;

    (void)name;
    if (daemon_list(daemon, "/v1/templates", "templates", &templates, err) < 0)
        return client_fail(err);
    return client_table(json_pack("{s:o}", "templates", templates), "templates", heads, add_row,
                        o->common.json);
}

static void path_of(struct buf *path, const char *name)
{
    buf_init(path, 4096);
    buf_str(path, "/v1/templates/");
    text_url(path, name);
}

/* A line with a name in front; nothing where there is no value. */
static void add_line(struct buf *b, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    buf_printf(b, "%-11s ", name);
    text_escape(b, value, strlen(value));
    buf_str(b, "\n");
}

/* All of a list, each as one line; only the first has the name in front. */
static void add_items(struct buf *b, const char *name, const json_t *list)
{
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        add_line(b, i ? "" : name, json_string_value(item));
    }
}

static void add_variables(struct buf *b, json_t *env)
{
    const char *name;
    json_t *value;
    const char *head = "env";

    json_object_foreach(env, name, value)
    {
        struct buf line;
        buf_init(&line, 1 << 20);
        buf_printf(&line, "%s=%s", name, json_is_string(value) ? json_string_value(value) : "?");
        add_line(b, head, buf_done(&line) == 0 ? line.p : "...");
        buf_clear(&line);
        head = "";
    }
}

static void describe(struct buf *b, const json_t *template)
{
    const json_t *spec = json_object_get(template, "spec");
    const json_t *python = json_object_get(spec, "python");
    const json_t *node = json_object_get(spec, "node");
    char text[TEXT_SHORT];

    add_line(b, "name", client_text(template, "name"));
    add_line(b, "id", client_text(template, "id"));
    add_line(b, "created", client_ago(template, "created", text));
    add_line(b, "size",
             text_bytes((uint64_t)json_integer_value(json_object_get(template, "bytes")), text));
    add_line(b, "files", client_number(template, "files", text));
    add_line(b, "workspaces", client_number(template, "workspaces", text));
    if (python)
        add_line(b, "python", client_text(python, "version"));
    add_items(b, "packages", json_object_get(python, "locked"));
    if (node)
        add_line(b, "node", "bun");
    add_items(b, "packages", json_object_get(node, "locked"));
    add_items(b, "copied", json_object_get(spec, "files"));
    add_variables(b, json_object_get(spec, "env"));
    add_line(b, "start", client_text(spec, "start"));
}

static int show(struct daemon *daemon, const struct template_options *o, const char *name,
                struct err *err)
{
    json_t *answer = NULL;
    struct buf path;
    struct buf text;

    path_of(&path, name);
    if (client_do(daemon, "GET", &path, NULL, &answer, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(answer);
    buf_init(&text, 1 << 22);
    describe(&text, answer);
    json_decref(answer);
    int status = buf_done(&text) == 0 ? cli_put(text.p) : cli_fail("too much to show; use --json");
    buf_clear(&text);
    return status;
}

static int delete (struct daemon *daemon, const struct template_options *o, const char *name,
                   struct err *err)
{
    struct buf path;

    path_of(&path, name);
    return client_delete(daemon, &path, o->common.json, err);
}

/* --- which file --- */

/* One that came with Carrel: where it was installed, or in the tree it was built in. */
static bool find_shipped(const char *name, char path[PATH_MAX])
{
    static const char *const places[] = {"../../share/carrel/templates/",
                                         "../share/carrel/templates/", "../packaging/templates/"};
    const char *own = where_env("CARREL_TEMPLATES");
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 256);

    if (n <= 0)
        return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(slash + 1, PATH_MAX - (size_t)(slash + 1 - path), "%s%.64s.json", places[i], name);
        if (own)
            snprintf(path, PATH_MAX, "%.3900s/%.64s.json", own, name);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* 1 to 64 of letters, digits, '.', '_' and '-', a letter or digit first (template_file.py). */
static bool is_name(const char *word)
{
    static const char known[] = "._-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = strlen(word);

    return n > 0 && n <= 64 && !strchr("._-", word[0]) && word[strspn(word, known)] == '\0';
}

static int build_file(const struct template_options *o, const char *path)
{
    static struct where where;
    struct provision p;
    struct err err = {0};

    if (where_daemon(o->common.state, &where, &err) < 0)
        return client_fail(&err);
    provision_begin(&p, "template-build");
    provision_add(&p, "socket", where.socket[0] ? where.socket : NULL);
    provision_add(&p, "url", where.url);
    provision_flag(&p, "update-lock", o->update_lock);
    provision_flag(&p, "offline", o->offline);
    provision_flag(&p, "quiet", o->quiet);
    provision_flag(&p, "json", o->common.json);
    provision_add(&p, "file", o->dockerfile ? o->dockerfile : path);
    provision_flag(&p, "dockerfile", o->dockerfile != NULL);
    provision_add(&p, "name", o->dockerfile ? path : NULL);
    return provision_run(&p);
}

static int build(const struct template_options *o, const char *word)
{
    char path[PATH_MAX];
    char message[256];
    size_t n = strlen(word);
    bool is_path = strchr(word, '/') || (n > 5 && strcmp(word + n - 5, ".json") == 0);

    if (is_path || !is_name(word))
        return build_file(o, word);
    if (find_shipped(word, path))
        return build_file(o, path);
    snprintf(message, sizeof(message),
             "no template '%s' came with Carrel; for a file of your own write its path: ./%s.json",
             word, word);
    return cli_fail(message);
}

/* --- the verb --- */

static const struct {
    const char *name;
    template_fn *run; /* NULL: build */
    size_t words;     /* after the name */
} actions[] = {
    {"build", NULL, 1},
    {"list", list_all, 0},
    {"show", show, 1},
    {"rm", delete, 1},
};

enum {
    ACTIONS = sizeof(actions) / sizeof(actions[0])
};

static int dispatch(const struct template_options *o, const char *const *words, struct err *err)
{
    struct daemon daemon = {0};
    size_t i = 0;

    while (i < ACTIONS && (!words[0] || strcmp(actions[i].name, words[0]) != 0))
        i++;
    if (i == ACTIONS)
        return client_no_action(
            "no action given: carrel template build, list, show or rm; see 'carrel "
            "template --help'",
            words[0], actions, ACTIONS, sizeof(actions[0]));
    bool may_lack = !actions[i].run && o->dockerfile;
    if (((words[1] != NULL) != (actions[i].words == 1) && !may_lack) ||
        (words[1] && !words[1][0])) {
        err_set(err, ERR_INVALID, 0, "%s: %s; see 'carrel template --help'", words[0],
                actions[i].words == 0 ? "too many arguments"
                : actions[i].run      ? "name a template"
                                      : "name a file, or a template that came with Carrel");
        return client_fail(err);
    }
    if (actions[i].run && (o->update_lock || o->offline || o->quiet || o->dockerfile))
        return cli_fail("-f, --update-lock, --offline and --quiet are for carrel template build");
    if (!actions[i].run && o->dockerfile)
        return build_file(o, words[1]);
    if (!actions[i].run)
        return words[1] ? build(o, words[1]) : CLI_FAILED;
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    int status = actions[i].run(&daemon, o, words[1], err);
    daemon_close(&daemon);
    return status;
}

int client_template(char **argv)
{
    static struct template_options o = {.common.verb = "template"};
    const struct args_rule rules[] = {
        {"--update-lock", NULL, "resolve the packages again, and write the locks beside FILE",
         ARGS_FLAG, &o.update_lock},
        {"-f", "DOCKERFILE", "build: read this Dockerfile, for a template with a base", ARGS_TEXT,
         &o.dockerfile},
        {"--offline", NULL, "use only the shared cache, not the network", ARGS_FLAG, &o.offline},
        {"--quiet", NULL, "print only failures", ARGS_FLAG, &o.quiet},
        {"--json", NULL, "print JSON; a build prints one object a line as it goes on", ARGS_FLAG,
         &o.common.json},
        {0},
    };
    const char *words[3] = {NULL};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &o.common, words, 2);
    if (status >= 0)
        return status;
    return dispatch(&o, words, &err);
}
