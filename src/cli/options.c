/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "policy/units.h"

typedef int take_fn(struct run_options *, char *, struct err *);

static int bad(struct err *err, const char *option, const char *value, const char *expected)
{
    return err_set(err, ERR_INVALID, 0, "%s '%.80s': %s", option, value, expected);
}

static int take_workspace(struct run_options *o, char *value, struct err *err)
{
    o->spec.workspace = value;
    return *value ? 0 : bad(err, "--workspace", value, "name a directory");
}

static int take_create(struct run_options *o, char *value, struct err *err)
{
    (void)value;
    (void)err;
    o->spec.create = true;
    return 0;
}

static int take_at(struct run_options *o, char *value, struct err *err)
{
    (void)err;
    o->spec.at = value;
    return 0;
}

static int take_level(struct run_options *o, char *value, struct err *err)
{
    static const char *const names[] = {
        [CARREL_LEVEL_AUTO] = "auto", [CARREL_LEVEL_DIR] = "dir", [CARREL_LEVEL_NS] = "ns"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) == 0) {
            o->spec.level = (enum carrel_level)i;
            return 0;
        }
    }
    return bad(err, "--level", value, "choose dir, ns or auto");
}

static int take_net(struct run_options *o, char *value, struct err *err)
{
    if (strcmp(value, "none") == 0)
        o->spec.net = CARREL_NET_NONE;
    else if (strcmp(value, "host") == 0)
        o->spec.net = CARREL_NET_HOST;
    else
        return bad(err, "--net", value, "choose none or host");
    return 0;
}

static int take_user(struct run_options *o, char *value, struct err *err)
{
    if (strcmp(value, "user") == 0)
        o->spec.user = CARREL_USER_USER;
    else if (strcmp(value, "root") == 0)
        o->spec.user = CARREL_USER_ROOT;
    else
        return bad(err, "--user", value, "choose user or root");
    return 0;
}

/* SRC[:DST]: the last colon followed by a slash divides, so that names may hold colons. */
static int take_mount(struct run_options *o, char *value, bool writable, struct err *err)
{
    const char *option = writable ? "--rw" : "--ro";

    if (o->spec.mount_count == CLI_MAX_MOUNTS)
        return err_set(err, ERR_LIMIT, 0, "more than %d mounts", CLI_MAX_MOUNTS);
    struct carrel_mount *m = &o->mounts[o->spec.mount_count++];
    *m = (struct carrel_mount){.source = value, .writable = writable};
    for (char *at = value; (at = strstr(at, ":/")); at++)
        m->target = at + 1;
    if (m->target) {
        m->source = arena_copy(&o->arena, value, (size_t)(m->target - 1 - value));
        if (!m->source)
            return err_set(err, ERR_LIMIT, 0, "out of memory");
    }
    if (!*m->source || (!m->target && m->source[0] != '/'))
        return bad(err, option, value, "write SRC:DST, DST an absolute path inside");
    return 0;
}

static int take_ro(struct run_options *o, char *value, struct err *err)
{
    return take_mount(o, value, false, err);
}

static int take_rw(struct run_options *o, char *value, struct err *err)
{
    return take_mount(o, value, true, err);
}

static int take_env(struct run_options *o, char *value, struct err *err)
{
    const char *equals = strchr(value, '=');

    if (!equals || equals == value)
        return bad(err, "--env", value, "write NAME=value");
    if (o->env_count == CLI_MAX_ENV)
        return err_set(err, ERR_LIMIT, 0, "more than %d --env options", CLI_MAX_ENV);
    o->env[o->env_count++] = value;
    return 0;
}

static int take_cwd(struct run_options *o, char *value, struct err *err)
{
    o->spec.cwd = value;
    return value[0] == '/' ? 0 : bad(err, "--cwd", value, "give an absolute path inside");
}

static int take_timeout(struct run_options *o, char *value, struct err *err)
{
    if (units_parse_duration(value, &o->spec.timeout_ms) < 0)
        return bad(err, "--timeout", value,
                   "write a duration above zero such as 500ms, 30s, 5m, 1h");
    return 0;
}

static int take_tmp_size(struct run_options *o, char *value, struct err *err)
{
    if (units_parse_size(value, &o->spec.tmp_bytes) < 0)
        return bad(err, "--tmp-size", value, "write a size above zero such as 64M or 1G");
    return 0;
}

static int take_max_output(struct run_options *o, char *value, struct err *err)
{
    if (units_parse_size(value, &o->spec.output_bytes) < 0)
        return bad(err, "--max-output", value, "write a size above zero such as 100K or 16M");
    return 0;
}

static int take_stdin(struct run_options *o, char *value, struct err *err)
{
    (void)err;
    o->stdin_path = value;
    return 0;
}

static int take_policy(struct run_options *o, char *value, struct err *err)
{
    (void)err;
    o->policy_path = value;
    return 0;
}

static int take_shell_line(struct run_options *o, char *value, struct err *err)
{
    (void)err;
    o->shell_line = value;
    return 0;
}

static int take_tty(struct run_options *o, char *value, struct err *err)
{
    (void)value;
    (void)err;
    o->spec.tty = true;
    return 0;
}

static int take_no_tty(struct run_options *o, char *value, struct err *err)
{
    (void)value;
    (void)err;
    o->no_tty = true;
    return 0;
}

static int take_json(struct run_options *o, char *value, struct err *err)
{
    (void)value;
    (void)err;
    o->json = true;
    return 0;
}

static int take_explain(struct run_options *o, char *value, struct err *err)
{
    (void)value;
    (void)err;
    o->explain = true;
    return 0;
}

static int take_help(struct run_options *o, char *value, struct err *err)
{
    (void)value;
    (void)err;
    o->help = true;
    return 0;
}

static const struct {
    const char *name;
    int argument;
    take_fn *take;
} table[] = {
    {"workspace", required_argument, take_workspace},
    {"create", no_argument, take_create},
    {"at", required_argument, take_at},
    {"level", required_argument, take_level},
    {"net", required_argument, take_net},
    {"ro", required_argument, take_ro},
    {"rw", required_argument, take_rw},
    {"env", required_argument, take_env},
    {"cwd", required_argument, take_cwd},
    {"user", required_argument, take_user},
    {"timeout", required_argument, take_timeout},
    {"tmp-size", required_argument, take_tmp_size},
    {"max-output", required_argument, take_max_output},
    {"stdin", required_argument, take_stdin},
    {"tty", no_argument, take_tty},
    {"no-tty", no_argument, take_no_tty},
    {"policy", required_argument, take_policy},
    {"json", no_argument, take_json},
    {"explain", no_argument, take_explain},
    {"help", no_argument, take_help},
    {"c", required_argument, take_shell_line},
};

enum {
    OPTION_COUNT = sizeof(table) / sizeof(table[0]),
    FIRST_CODE = 1000
};

static int find_option(int code)
{
    if (code >= FIRST_CODE && code < FIRST_CODE + OPTION_COUNT)
        return code - FIRST_CODE;
    if (code == 'c')
        return OPTION_COUNT - 1;
    return code == 'h' ? OPTION_COUNT - 2 : -1;
}

/* The command: what follows the options, or a line for the shell. */
static int take_command(struct run_options *o, int argc, char **argv, int first, struct err *err)
{
    if (o->help)
        return 0;
    if (o->shell_line && first < argc)
        return err_set(err, ERR_INVALID, 0, "give either -c 'shell line' or a command, not both");
    if (!o->shell_line && first >= argc)
        return err_set(err, ERR_INVALID, 0,
                       "no command given; for example: carrel run -- python3 -c 'print(1)'");
    o->spec.argv = argv + first;
    if (o->shell_line) {
        o->shell_argv[0] = "/bin/sh";
        o->shell_argv[1] = "-c";
        o->shell_argv[2] = o->shell_line;
        o->spec.argv = (char *const *)(uintptr_t)o->shell_argv;
    }
    return 0;
}

static int check_together(const struct run_options *o, struct err *err)
{
    if (o->spec.create && !o->spec.workspace)
        return err_set(err, ERR_INVALID, 0, "--create goes with --workspace DIR");
    if (o->spec.at && o->spec.workspace)
        return err_set(err, ERR_INVALID, 0,
                       "--at goes without --workspace: a workspace always appears at /");
    if (o->spec.tty && o->no_tty)
        return err_set(err, ERR_INVALID, 0, "--tty and --no-tty exclude each other");
    if (o->spec.tty && o->json)
        return err_set(err, ERR_INVALID, 0, "--tty and --json exclude each other");
    return 0;
}

int run_options_parse(struct run_options *ret, int argc, char **argv, struct err *err)
{
    struct option longs[OPTION_COUNT + 1] = {0};
    int code;

    memset(ret, 0, sizeof(*ret));
    arena_init(&ret->arena, 1UL << 20);
    for (int i = 0; i < OPTION_COUNT - 1; i++)
        longs[i] = (struct option){table[i].name, table[i].argument, NULL, FIRST_CODE + i};
    longs[OPTION_COUNT - 1] = (struct option){0};
    optind = 0;
    opterr = 0;
    /* Before any thread: NOLINTNEXTLINE(concurrency-mt-unsafe) */
    while ((code = getopt_long(argc, argv, "+:c:h", longs, NULL)) != -1) {
        int option = find_option(code);
        if (option < 0)
            return err_set(err, ERR_INVALID, 0, "%s '%.80s'; see 'carrel run --help'",
                           code == ':' ? "a value is missing after" : "unknown option",
                           argv[optind - 1]);
        if (table[option].take(ret, optarg, err) < 0)
            return -1;
    }
    ret->spec.mounts = ret->mounts;
    ret->spec.env = ret->env;
    if (take_command(ret, argc, argv, optind, err) < 0)
        return -1;
    return check_together(ret, err);
}

void run_options_clear(struct run_options *options)
{
    arena_clear(&options->arena);
}
