/* SPDX-License-Identifier: Apache-2.0 */
/* carrel exec: one command in a workspace, as if it ran here. */
#include "client/exec/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/terminal.h"
#include "client/exec/attach.h"
#include "policy/units.h"
#include "json/encode.h"

enum {
    INLINE_INPUT = 16 * 1024 * 1024
};

static const char help[] =
    "usage: carrel exec [options] WORKSPACE -- COMMAND [ARG...]\n"
    "       carrel exec [options] WORKSPACE -c LINE\n"
    "\n"
    "Runs a command in a workspace of the daemon and passes on its output and its exit\n"
    "status. The first Ctrl-C goes to the command, the second one ends the command, the\n"
    "third one ends only carrel and leaves the command running.\n"
    "\n" HELP_OPTIONS "\n"
    "Exit status: the command's; 128+n for signal n; when a limit was reached: 120\n"
    "memory, 121 processes, 122 output, 123 disk, 124 time; 125 when Carrel itself\n"
    "failed; 126 when the command cannot be executed, 127 when it is not found.\n"
    "\n"
    "examples:\n"
    "  carrel exec desk -- python3 -c 'print(6 * 7)'\n"
    "  carrel exec --timeout 30s desk -c 'make test 2>&1 | tail'\n"
    "  carrel exec --stdin - desk -- tar x < archive.tar\n"
    "  carrel exec --background desk -- python3 -m http.server\n";

static int bad(struct err *err, const char *option, const char *value, const char *expected)
{
    return err_set(err, ERR_INVALID, 0, "%s '%.80s': %s", option, value, expected);
}

static int add_env(json_t *request, const struct args_list *env, struct err *err)
{
    json_t *object = json_object();

    json_object_set_new(request, "env", object);
    for (size_t i = 0; i < env->count; i++) {
        const char *equals = strchr(env->items[i], '=');
        size_t n = equals ? (size_t)(equals - env->items[i]) : 0;
        char name[256];
        if (n == 0 || n >= sizeof(name))
            return bad(err, "--env", env->items[i], "write NAME=value");
        memcpy(name, env->items[i], n);
        name[n] = '\0';
        if (json_object_set_new(object, name, json_string(equals + 1)) < 0)
            return bad(err, "--env", name, "only UTF-8 can be sent");
    }
    return 0;
}

static int add_command(json_t *request, const struct exec_options *o, struct err *err)
{
    json_t *argv = json_array();

    if (o->line) {
        json_decref(argv);
        return json_object_set_new(request, "command", json_string(o->line)) == 0
                   ? 0
                   : bad(err, "-c", o->line, "only UTF-8 can be sent");
    }
    json_object_set_new(request, "argv", argv);
    for (size_t i = 0; o->argv[i]; i++) {
        if (json_array_append_new(argv, json_string(o->argv[i])) < 0)
            return bad(err, "argument", o->argv[i], "only UTF-8 can be sent");
    }
    return 0;
}

int exec_request(const struct exec_options *o, json_t **ret, struct err *err)
{
    json_t *request = json_object();
    uint64_t timeout_ms = 0;
    int r = add_command(request, o, err);

    if (r == 0 && o->env.count)
        r = add_env(request, &o->env, err);
    if (r == 0 && o->cwd && o->cwd[0] != '/')
        r = bad(err, "--cwd", o->cwd, "give an absolute path inside");
    if (r == 0 && o->cwd)
        json_object_set_new(request, "cwd", json_string(o->cwd));
    if (r == 0 && o->user && strcmp(o->user, "user") != 0 && strcmp(o->user, "root") != 0)
        r = bad(err, "--user", o->user, "choose user or root");
    if (r == 0 && o->user)
        json_object_set_new(request, "user", json_string(o->user));
    if (r == 0 && o->timeout && units_parse_duration(o->timeout, &timeout_ms) < 0)
        r = bad(err, "--timeout", o->timeout,
                "write a duration above zero such as 500ms, 30s, 5m, 1h");
    if (r == 0 && timeout_ms)
        json_object_set_new(request, "timeout_ms", json_integer((json_int_t)timeout_ms));
    if (r < 0)
        json_decref(request);
    else
        *ret = request;
    return r;
}

int exec_prepare(const struct exec_options *o, struct daemon *daemon, json_t **ret, struct err *err)
{
    json_t *request = NULL;

    if (exec_request(o, &request, err) < 0)
        return -1;
    if (daemon_open(daemon, o->common.state, err) < 0) {
        json_decref(request);
        return -1;
    }
    *ret = request;
    return 0;
}

/* One question, one answer: what was to be read comes with it. */
int exec_ask(const struct exec_options *o, struct daemon *daemon, json_t *request, struct err *err)
{
    json_t *answer = NULL;
    struct buf path;
    struct buf input;
    int r = 0;

    buf_init(&input, INLINE_INPUT);
    if (o->stdin_path)
        r = client_read_file(o->stdin_path, &input, err);
    if (r == 0 && o->stdin_path)
        encode_bytes(request, "stdin", input.p, input.n);
    buf_clear(&input);
    if (r < 0) {
        json_decref(request);
        return client_fail(err);
    }
    if (o->background)
        json_object_set_new(request, "background", json_true());
    client_workspace_path(&path, o->workspace, "/exec");
    if (client_do(daemon, "POST", &path, request, &answer, err) < 0)
        return client_fail(err);
    int code = o->background ? 0 : (int)json_integer_value(json_object_get(answer, "exit_code"));
    const char *id = client_text(answer, "exec_id");
    int status = 0;
    if (o->common.json) {
        status = client_print(json_incref(answer));
    } else {
        attach_say_plan(o->workspace, client_text(json_object_get(answer, "plan"), "id"));
        printf("%s\n", id ? id : "");
        status = fflush(stdout) == 0 ? 0 : cli_fail("standard output cannot be written");
    }
    json_decref(answer);
    return status ? status : code;
}

static int open_input(const struct exec_options *o, struct attach *s, struct err *err)
{
    s->input_fd = -1;
    if (o->stdin_path && strcmp(o->stdin_path, "-") != 0) {
        s->input_fd = open(o->stdin_path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (s->input_fd < 0)
            return err_set(err, ERR_NOT_FOUND, errno, "open '%.200s' for --stdin", o->stdin_path);
    } else if (o->stdin_path || (o->tty && isatty(STDIN_FILENO))) {
        s->input_fd = STDIN_FILENO;
    }
    return 0;
}

/* Programs inside must know what they write to. */
static void add_term(json_t *request)
{
    const char *term = where_env("TERM");
    json_t *env = json_object_get(request, "env");

    if (!env) {
        env = json_object();
        json_object_set_new(request, "env", env);
    }
    if (term && !json_object_get(env, "TERM"))
        json_object_set_new(env, "TERM", json_string(term));
}

static int prepare(const struct exec_options *o, struct attach *s, json_t *request, struct err *err)
{
    int columns;
    int rows;

    if (open_input(o, s, err) < 0 || attach_signals_open(s, err) < 0)
        return -1;
    json_object_set_new(request, "stream", json_string("ndjson"));
    if (s->input_fd >= 0 && !o->tty)
        json_object_set_new(request, "stdin_open", json_true());
    if (!o->tty)
        return 0;
    terminal_size(&columns, &rows);
    json_object_set_new(request, "pty", json_pack("{s:i,s:i}", "cols", columns, "rows", rows));
    add_term(request);
    s->terminal = true;
    return 0;
}

static int finish(const struct attach *s)
{
    if (s->left) {
        if (!s->terminal)
            cli_say("carrel ends here; the command may still run: see 'carrel ps'");
        return 128 + s->left_by;
    }
    return attach_end_status(s->end);
}

int exec_stream(const struct exec_options *o, struct daemon *daemon, json_t *request,
                json_t **ret_end, struct err *err)
{
    static struct attach s;
    int r = attach_open(&s, daemon, o->workspace, err);
    int status = CLI_FAILED;

    if (r == 0)
        r = prepare(o, &s, request, err);
    s.says_plan = !json_object_get(request, "mode");
    if (r == 0)
        r = attach_post(&s, json_incref(request), err);
    json_decref(request);
    if (r == 0 && s.terminal && s.input_fd >= 0 && isatty(s.input_fd)) {
        int failed = terminal_raw();
        if (failed < 0)
            r = err_set(err, ERR_IO, -failed, "the terminal cannot be set");
    }
    if (r == 0)
        r = attach_run(&s, err);
    terminal_restore();
    status = r < 0 ? client_fail(err) : finish(&s);
    if (ret_end)
        *ret_end = json_incref(s.end);
    attach_close(&s);
    return status;
}

static struct exec_options options = {.common.verb = "exec"};
static const struct args_rule rules[] = {
    {"-c", "LINE", "run a line in the shell", ARGS_TEXT, &options.line},
    {"--cwd", "PATH", "start in PATH, inside", ARGS_TEXT, &options.cwd},
    {"--env", "NAME=VALUE", "set a variable", ARGS_EVERY, &options.env},
    {"--timeout", "TIME", "end the command and all it started after TIME\n500ms, 30s, 5m, 1h",
     ARGS_TEXT, &options.timeout},
    {"--user", "user|root",
     "be this user inside; root has rights only over a\nsystem of the workspace's own (policy "
     "'system')",
     ARGS_TEXT, &options.user},
    {"--stdin", "FILE",
     "read standard input from FILE\n-: pass on standard input; without it there is none",
     ARGS_TEXT, &options.stdin_path},
    {"--tty", NULL, "give the command a terminal", ARGS_FLAG, &options.tty},
    {"--background", NULL, "print the id of the command and leave it running", ARGS_FLAG,
     &options.background},
    {"--json", NULL, "print one JSON object with output, exit code, usage", ARGS_FLAG,
     &options.common.json},
    {0},
};

/* Options may stand on both sides of the workspace. */
static int parse(char **argv, struct exec_options *o, struct err *err)
{
    int at = 1;

    if (args_options(argv, &at, rules, &o->common, err) < 0)
        return -1;
    if (o->common.help)
        return 0;
    if (!argv[at] || strcmp(argv[at], "--") == 0 || !argv[at][0])
        return err_set(
            err, ERR_INVALID, 0,
            "no workspace given; for example: carrel exec desk -- python3 -c 'print(1)'");
    o->workspace = argv[at++];
    if (args_options(argv, &at, rules, &o->common, err) < 0)
        return -1;
    if (argv[at] && strcmp(argv[at], "--") == 0)
        at++;
    o->argv = argv + at;
    if (o->line && argv[at])
        return err_set(err, ERR_INVALID, 0, "give either -c 'shell line' or a command, not both");
    if (!o->common.help && !o->line && !argv[at])
        return err_set(err, ERR_INVALID, 0,
                       "no command given; for example: carrel exec %.64s -- ls", o->workspace);
    if (o->tty && (o->common.json || o->background))
        return err_set(err, ERR_INVALID, 0, "--tty goes without --json and --background");
    return 0;
}

int client_exec(char **argv)
{
    struct daemon daemon = {0};
    struct err err = {0};
    json_t *request = NULL;

    if (parse(argv, &options, &err) < 0)
        return client_fail(&err);
    if (options.common.help)
        return args_help(help, rules);
    if (exec_prepare(&options, &daemon, &request, &err) < 0)
        return client_fail(&err);
    int status = options.common.json || options.background
                     ? exec_ask(&options, &daemon, request, &err)
                     : exec_stream(&options, &daemon, request, NULL, &err);
    daemon_close(&daemon);
    return status;
}
