/* SPDX-License-Identifier: Apache-2.0 */
/* carrel env: the tools, and Python and Node in a workspace. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/workspace/provision.h"

static const char help[] =
    "usage: carrel env setup [options]\n"
    "       carrel env WORKSPACE\n"
    "       carrel env WORKSPACE python [--version VERSION] [--clear]\n"
    "       carrel env WORKSPACE node\n"
    "\n"
    "Gives a workspace Python or Node of its own. 'python' makes /.venv with uv, pip and a\n"
    "pyproject.toml; 'node' makes package.json and /node_modules for bun. Every command in\n"
    "the workspace then finds them: uv pip install, uv add, pip install, uv run, bun add,\n"
    "bun run. Existing environments are kept. Without 'python' or 'node', lists what the\n"
    "workspace has. 'setup' brings uv, pip and bun to this host, once; see\n"
    "'carrel env setup --help'.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel env setup\n"
    "  carrel env desk python --version 3.11\n"
    "  carrel env desk node\n"
    "  carrel env desk\n";

static const char *or_none(const char *text)
{
    return text ? text : "none";
}

static void add_line(struct buf *b, const char *name, const char *text)
{
    buf_printf(b, "%-8s ", name);
    text_escape(b, text, strlen(text));
    buf_str(b, "\n");
}

static void add_python(struct buf *b, const json_t *python)
{
    const char *state = client_text(python, "state");
    const char *version = client_text(python, "version");
    const char *pip = client_text(python, "pip");
    char line[512];

    if (json_is_null(python))
        snprintf(line, sizeof(line), "none; make it with: carrel env WORKSPACE python");
    else if (state && strcmp(state, "broken") == 0)
        snprintf(line, sizeof(line),
                 "/.venv does not work; replace it with: carrel env WORKSPACE python --clear");
    else
        snprintf(line, sizeof(line), "%.40s in /.venv, of %.200s; pip %.40s", or_none(version),
                 or_none(client_text(python, "interpreter")), or_none(pip));
    add_line(b, "python", line);
}

static void add_node(struct buf *b, const json_t *node)
{
    const char *host = client_text(node, "node");
    char line[512];

    if (json_is_null(node))
        snprintf(line, sizeof(line), "none; make it with: carrel env WORKSPACE node");
    else
        snprintf(line, sizeof(line), "bun %.40s, packages in /node_modules; node %.40s, npm %.200s",
                 or_none(client_text(node, "bun")), or_none(host),
                 or_none(client_text(node, "npm")));
    add_line(b, "node", line);
}

static void add_tools(struct buf *b, const json_t *tools)
{
    const char *uv = client_text(tools, "uv");
    const char *bun = client_text(tools, "bun");
    char line[256];

    snprintf(line, sizeof(line), "uv %.40s, bun %.40s%s", or_none(uv), or_none(bun),
             uv && bun ? "" : "; bring them with: carrel env setup");
    add_line(b, "tools", line);
}

static void add_interpreters(struct buf *b, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        char line[512];
        snprintf(line, sizeof(line), "Python %.40s at %.300s", or_none(client_text(one, "version")),
                 or_none(client_text(one, "path")));
        add_line(b, i ? "" : "host", line);
    }
}

static int show(json_t *answer)
{
    static const struct {
        const char *name;
        void (*add)(struct buf *b, const json_t *value);
    } parts[] = {{"tools", add_tools},
                 {"python", add_python},
                 {"node", add_node},
                 {"interpreters", add_interpreters}};
    struct buf b;

    buf_init(&b, 1 << 20);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const json_t *value = json_object_get(answer, parts[i].name);
        if (value)
            parts[i].add(&b, value);
    }
    json_decref(answer);
    int status = buf_done(&b) == 0 ? cli_put(b.p) : cli_fail("too much to show; use --json");
    buf_clear(&b);
    return status;
}

static int ask(struct daemon *daemon, const char *const *words, json_t *body, bool json,
               struct err *err)
{
    struct buf path;
    json_t *answer = NULL;

    client_workspace_path(&path, words[0], "/env");
    if (words[1]) {
        buf_str(&path, "/");
        text_url(&path, words[1]);
    }
    if (client_do(daemon, words[1] ? "POST" : "GET", &path, body, &answer, err) < 0)
        return client_fail(err);
    return json ? client_print(answer) : show(answer);
}

int client_env(char **argv)
{
    struct args_common common = {.verb = "env"};
    const char *version = NULL;
    bool clear = false;
    const struct args_rule rules[] = {
        {"--version", "VERSION",
         "use this version of Python, if the host has it; default: the choice of uv", ARGS_TEXT,
         &version},
        {"--clear", NULL, "replace /.venv and everything installed in it", ARGS_FLAG, &clear},
        {0},
    };
    const char *words[3] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};

    if (argv[1] && strcmp(argv[1], "setup") == 0)
        return env_setup(argv + 1);
    int status = client_begin(argv + 1, help, rules, &common, words, 2);
    if (status >= 0)
        return status;
    if (!words[0])
        return cli_fail(
            "name a workspace: carrel env WORKSPACE [python|node]; or: carrel env setup");
    bool python = words[1] && strcmp(words[1], "python") == 0;
    if (words[1] && !python && strcmp(words[1], "node") != 0)
        return cli_fail("unknown environment; write python or node: carrel env WORKSPACE python");
    if (!python && (version || clear))
        return cli_fail("--version and --clear are for python");
    json_t *body = words[1] ? json_object() : NULL;
    if (version)
        json_object_set_new(body, "version", json_string(version));
    if (clear)
        json_object_set_new(body, "clear", json_true());
    if (daemon_open(&daemon, common.state, &err) < 0) {
        json_decref(body);
        return client_fail(&err);
    }
    status = ask(&daemon, words, body, common.json, &err);
    daemon_close(&daemon);
    return status;
}
