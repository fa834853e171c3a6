/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/near.h"
#include "cli/cli.h"
#include "policy/network.h"
#include "policy/network_inner.h"
#include "policy/units.h"

typedef int take_fn(struct run_options *, char *, struct err *);

static int bad(struct err *err, const char *option, const char *value, const char *expected)
{
    return err_set(err, ERR_INVALID, 0, "%s '%.80s': %s", option, value, expected);
}

/* Sizes have one range and one way to be written. */
static int take_size(const char *option, const char *value, uint64_t *ret, struct err *err)
{
    if (units_parse_size(value, ret) < 0)
        return bad(err, option, value,
                   "write a size from 1 to 1048576T: a whole number, or one with K, M, G or T, "
                   "such as 64M");
    return 0;
}

static int take_workspace(struct run_options *o, char *value, struct err *err)
{
    o->spec.workspace = value;
    return *value ? 0 : bad(err, "--workspace", value, "name a directory");
}

static int take_at(struct run_options *o, char *value, struct err *err)
{
    (void)err;
    o->spec.at = value;
    return 0;
}

/* auto is the strongest level there is, and that is ns; it never stands for dir. */
static int take_level(struct run_options *o, char *value, struct err *err)
{
    if (strcmp(value, "ns") == 0 || strcmp(value, "auto") == 0)
        o->spec.level = CARREL_LEVEL_NS;
    else if (strcmp(value, "dir") == 0)
        o->spec.level = CARREL_LEVEL_DIR;
    else
        return bad(err, "--level", value, "choose dir, ns or auto");
    return 0;
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

static int add_rule(struct run_options *o, const char *rule, struct err *err)
{
    struct network_rule parsed;
    bool is_set = rule[rule[0] == '!'] == '@';

    if (!rule[0] || o->net_rule_count == CLI_MAX_RULES)
        return err_set(err, ERR_LIMIT, 0, "more than %d rules of the network", CLI_MAX_RULES);
    if (!is_set && network_parse_rule(rule, &parsed, err) < 0)
        return -1;
    o->net_rules[o->net_rule_count++] = rule;
    return 0;
}

static int take_allow(struct run_options *o, char *value, struct err *err)
{
    if (!*value || *value == '!')
        return bad(err, "--allow", value, "name a host such as api.example.com; --deny denies one");
    return add_rule(o, value, err) < 0 ? err_wrap(err, "--allow") : 0;
}

static int take_deny(struct run_options *o, char *value, struct err *err)
{
    const char *rule = arena_printf(&o->arena, "!%s", value);

    if (!*value || *value == '!')
        return bad(err, "--deny", value, "name a host such as upload.example.com");
    if (!rule)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    return add_rule(o, rule, err) < 0 ? err_wrap(err, "--deny") : 0;
}

static int take_private(struct run_options *o, char *value, struct err *err)
{
    struct network_rule parsed;

    if (*value == '!' || network_parse_rule(value, &parsed, err) < 0)
        return bad(err, "--allow-private", value, "write HOST or HOST:PORT, a name");
    if (o->net_private_count == CLI_MAX_PRIVATE)
        return err_set(err, ERR_LIMIT, 0, "more than %d --allow-private", CLI_MAX_PRIVATE);
    o->net_private[o->net_private_count++] = value;
    return 0;
}

static int take_secret(struct run_options *o, char *value, struct err *err)
{
    const char *sign = strchr(value, '=');
    char name[NETWORK_SECRET] = "";

    if (sign && (size_t)(sign - value) < sizeof(name))
        memcpy(name, value, (size_t)(sign - value));
    if (!sign || !sign[1] || !network_is_secret(name))
        return bad(err, "--secret", value,
                   "write NAME=FILE: the name that a rule has, and the file that holds the value");
    if (o->net_secret_count == CLI_MAX_SECRETS)
        return err_set(err, ERR_LIMIT, 0, "more than %d --secret", CLI_MAX_SECRETS);
    o->net_secrets[o->net_secret_count++] = value;
    return 0;
}

static int take_trust(struct run_options *o, char *value, struct err *err)
{
    if (!*value)
        return bad(err, "--trust", value, "name a file of certificates (PEM)");
    o->spec.net_trust = value;
    return 0;
}

static int take_nameserver(struct run_options *o, char *value, struct err *err)
{
    size_t n = strlen(value);

    if (n == 0 || strspn(value, "0123456789abcdefABCDEF.:[]") != n)
        return bad(err, "--nameserver", value,
                   "write an address, or ADDRESS:PORT, such as 192.0.2.53:53");
    o->spec.nameservers =
        o->spec.nameservers ? arena_printf(&o->arena, "%s,%s", o->spec.nameservers, value) : value;
    return o->spec.nameservers ? 0 : err_set(err, ERR_LIMIT, 0, "out of memory");
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

/* SRC:DST:DIR, as above; DIR has no colon. */
static int take_layered(struct run_options *o, char *value, bool writable, struct err *err)
{
    const char *option = writable ? "--layer" : "--layer-ro";
    const char *words = "write SRC:DST:DIR, DST an absolute path inside";
    const char *colon = strrchr(value, ':');

    if (!colon || !colon[1])
        return bad(err, option, value, words);
    char *front = arena_copy(&o->arena, value, (size_t)(colon - value));
    if (!front)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (take_mount(o, front, writable, err) < 0)
        return err->code == ERR_INVALID ? bad(err, option, value, words) : -1;
    struct carrel_mount *m = &o->mounts[o->spec.mount_count - 1];
    m->layer = colon + 1;
    return m->target ? 0 : bad(err, option, value, words);
}

static int take_layer(struct run_options *o, char *value, struct err *err)
{
    return take_layered(o, value, true, err);
}

static int take_layer_ro(struct run_options *o, char *value, struct err *err)
{
    return take_layered(o, value, false, err);
}

/* BASE:DIR; DIR has no colon. */
static int take_system(struct run_options *o, char *value, struct err *err)
{
    const char *colon = strrchr(value, ':');

    if (!colon || colon == value || !colon[1])
        return bad(err, "--system", value, "write BASE:DIR, two directories");
    o->spec.base = arena_copy(&o->arena, value, (size_t)(colon - value));
    o->spec.base_layer = colon + 1;
    return o->spec.base ? 0 : err_set(err, ERR_LIMIT, 0, "out of memory");
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
    return take_size("--tmp-size", value, &o->spec.tmp_bytes, err);
}

static int take_max_output(struct run_options *o, char *value, struct err *err)
{
    return take_size("--max-output", value, &o->spec.output_bytes, err);
}

static int take_memory(struct run_options *o, char *value, struct err *err)
{
    return take_size("--memory", value, &o->spec.limits.memory_bytes, err);
}

static int take_pids(struct run_options *o, char *value, struct err *err)
{
    if (units_parse_count(value, UNITS_MOST_PIDS, &o->spec.limits.pids) < 0)
        return bad(err, "--pids", value, "write a whole number from 1 to 999999 such as 100");
    return 0;
}

static int take_cpu(struct run_options *o, char *value, struct err *err)
{
    if (units_parse_cpu(value, &o->spec.limits.cpu_milli) < 0)
        return bad(err, "--cpu", value,
                   "write a number of processors from 0.01 to 1000000 with at most three decimals, "
                   "such as 2, 1.5 or 0.25");
    return 0;
}

static int take_io(struct run_options *o, char *value, struct err *err)
{
    return take_size("--io", value, &o->spec.limits.io_bytes, err);
}

static int take_disk(struct run_options *o, char *value, struct err *err)
{
    struct carrel_limits *limits = &o->spec.limits;

    if (units_parse_disk(value, &limits->disk_bytes, &limits->disk_image) < 0)
        return bad(err, "--disk", value,
                   "write a size from 1 to 1048576T: a whole number, or one with K, M, G or T, "
                   "such as 2G; or image:2G");
    return 0;
}

static int take_files(struct run_options *o, char *value, struct err *err)
{
    if (units_parse_count(value, UNITS_MOST_FILES, &o->spec.limits.disk_files) < 0)
        return bad(err, "--files", value,
                   "write a whole number from 1 to 1000000000 such as 10000");
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
    if (o->policy_path)
        return bad(err, "--policy", value, "only one policy can be given");
    o->policy_path = value;
    return 0;
}

static int take_plan_id(struct run_options *o, char *value, struct err *err)
{
    o->plan_id = value;
    return *value ? 0 : bad(err, "--plan-id", value, "name a plan");
}

static int take_shell_line(struct run_options *o, char *value, struct err *err)
{
    (void)err;
    o->shell_line = value;
    return 0;
}

/* An option takes a value, or sets one field to true. Begins as struct option_text does. */
static const struct option_rule {
    const char *name;
    const char *value;
    const char *about;
    take_fn *take;
    size_t field;
} table[] = {
    {"--workspace", "DIR", "show DIR as /\nwithout it the current directory appears at /work",
     take_workspace, 0},
    {"--create", NULL, "make DIR if it is missing", NULL,
     offsetof(struct run_options, spec.create)},
    {"--at", "PATH", "show the current directory at PATH (default /work)", take_at, 0},
    {"--level", "auto|ns|dir",
     "choose the isolation level\nns: isolated (default); dir: a directory, isolates "
     "nothing;\nauto: the strongest, ns",
     take_level, 0},
    {"--net", "none|host",
     "choose the network\nnone: a loopback of its own (default); host: the host's network",
     take_net, 0},
    {"--allow", "HOST[:PORT]",
     "reach that name and nothing else: TCP to 80 and 443, or PORT\n*.HOST for the names below it; "
     "@python, @node, @debian, @github",
     take_allow, 0},
    {"--deny", "HOST[:PORT]", "never reach that name, whatever else is allowed", take_deny, 0},
    {"--allow-private", "HOST[:PORT]", "reach it also where its address is a private one",
     take_private, 0},
    {"--secret", "NAME=FILE",
     "put what FILE holds into requests, as the rule says that names NAME\nthe command never sees "
     "it: "
     "it has a placeholder",
     take_secret, 0},
    {"--trust", "FILE", "trust servers of these authorities, too, where requests are looked at",
     take_trust, 0},
    {"--nameserver", "ADDRESS[:PORT]", "ask this server for addresses, not the host's",
     take_nameserver, 0},
    {"--ro", "SRC[:DST]", "show SRC read-only at DST", take_ro, 0},
    {"--rw", "SRC[:DST]", "show SRC read-write at DST", take_rw, 0},
    {"--layer", "SRC:DST:DIR",
     "show SRC at DST, and keep changes in DIR\nSRC stays as it is; DIR has mode 0700", take_layer,
     0},
    {"--layer-ro", "SRC:DST:DIR", "show SRC with the changes in DIR at DST, read-only",
     take_layer_ro, 0},
    {"--system", "BASE:DIR",
     "show the system BASE, not the host's, and keep changes in DIR\nBASE: made by carrel base "
     "build; DIR has mode 0700",
     take_system, 0},
    {"--env", "NAME=VALUE",
     "set a variable\nthe command gets no other variable of your environment", take_env, 0},
    {"--cwd", "PATH", "start the command in PATH, inside", take_cwd, 0},
    {"--user", "user|root",
     "be this user inside; root has no privileges either,\nbut over --system, to install software",
     take_user, 0},
    {"--timeout", "TIME", "end everything after TIME\n500ms, 30s, 5m, 1h", take_timeout, 0},
    {"--tmp-size", "SIZE",
     "limit the size of each of /tmp, /.cache and /dev/shm\ndefault 512M; with --memory at most a "
     "sixth of that",
     take_tmp_size, 0},
    {"--max-output", "SIZE", "end everything after SIZE bytes of output\n100K, 16M",
     take_max_output, 0},
    {"--memory", "SIZE",
     "limit the memory of all processes together\n/tmp counts; there is no swap", take_memory, 0},
    {"--pids", "N", "limit the number of processes and threads", take_pids, 0},
    {"--cpu", "N", "limit the processors\n2, 1.5, 0.25", take_cpu, 0},
    {"--io", "SIZE", "limit the bytes a second, read and written each (cgroup v2)", take_io, 0},
    {"--disk", "SIZE", "limit the bytes that may be added\nimage:SIZE keeps DIR in an image",
     take_disk, 0},
    {"--files", "N", "limit the number of files that may be added", take_files, 0},
    {"--stdin", "FILE", "read standard input from FILE", take_stdin, 0},
    {"--tty", NULL,
     "give the command a terminal\ndefault: if standard input, output and error are terminals",
     NULL, offsetof(struct run_options, spec.tty)},
    {"--no-tty", NULL, "give the command no terminal", NULL, offsetof(struct run_options, no_tty)},
    {"--policy", "FILE", "keep to the JSON policy in FILE; options can only narrow it", take_policy,
     0},
    {"--plan", NULL,
     "change nothing; keep the changes beside DIR as a plan\nsee carrel plan --help", NULL,
     offsetof(struct run_options, plan)},
    {"--plan-id", "ID", "go on with the open plan ID", take_plan_id, 0},
    {"--keep-open", NULL, "leave the plan open for further commands", NULL,
     offsetof(struct run_options, keep_open)},
    {"--json", NULL, "print one JSON object with output, exit code, usage", NULL,
     offsetof(struct run_options, json)},
    {"--explain", NULL, "print everything that would be done, and do nothing", NULL,
     offsetof(struct run_options, explain)},
    {"--help", NULL, "", NULL, offsetof(struct run_options, help)},
    {"-h", NULL, "", NULL, offsetof(struct run_options, help)},
    {"-c", "LINE", "run a line in the shell", take_shell_line, 0},
};

/* Finds "--name" or the front of "--name=value". Whole names only: what an abbreviation stands for
 * changes when options are added. */
static const struct option_rule *find_rule(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strlen(table[i].name) == n && strncmp(table[i].name, word, n) == 0)
            return &table[i];
    }
    return NULL;
}

/* Takes the option at argv[at]; returns how many words it was, or -1. */
static int take_option(struct run_options *o, int argc, char **argv, int at, struct err *err)
{
    char *word = argv[at];
    char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    const struct option_rule *rule = find_rule(word, n);
    char hint[NEAR_HINT];

    if (!rule) {
        (void)near_hint(hint, word, n, table, sizeof(table) / sizeof(table[0]), sizeof(table[0]));
        return err_set(err, ERR_INVALID, 0, "unknown option '%.80s'; see 'carrel run --help'%s",
                       word, hint);
    }
    if (!rule->take) {
        if (equals)
            return err_set(err, ERR_INVALID, 0, "%s takes no value", rule->name);
        *(bool *)((char *)o + rule->field) = true;
        return 1;
    }
    if (!equals && at + 1 >= argc)
        return err_set(err, ERR_INVALID, 0,
                       "a value is missing after '%s'; see 'carrel run --help'", rule->name);
    if (rule->take(o, equals ? equals + 1 : argv[at + 1], err) < 0)
        return -1;
    return equals ? 1 : 2;
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

/* Rules that allow are what asks for the network by name; those that deny narrow a policy's. */
static int check_network(struct run_options *o, struct err *err)
{
    bool allows = false;

    for (size_t i = 0; i < o->net_rule_count; i++)
        allows = allows || o->net_rules[i][0] != '!';
    if (!allows && !o->policy_path && (o->net_rule_count || o->net_private_count))
        return err_set(err, ERR_INVALID, 0, "%s goes with --allow HOST",
                       o->net_rule_count ? "--deny" : "--allow-private");
    if (o->net_rule_count && o->spec.net != CARREL_NET_DEFAULT)
        return err_set(err, ERR_INVALID, 0, "%s goes without --net: it is a network of its own",
                       allows ? "--allow" : "--deny");
    if (allows)
        o->spec.net = CARREL_NET_ALLOW;
    if (o->net_rule_count)
        o->spec.net_rules = o->net_rules;
    if (!allows && !o->policy_path && (o->net_secret_count || o->spec.net_trust))
        return err_set(err, ERR_INVALID, 0, "%s goes with --allow HOST",
                       o->net_secret_count ? "--secret" : "--trust");
    if (o->net_secret_count)
        o->spec.net_secrets = o->net_secrets;
    if (o->net_private_count)
        o->spec.net_private = o->net_private;
    return 0;
}

static int check_together(const struct run_options *o, struct err *err)
{
    if (o->spec.create && !o->spec.workspace)
        return err_set(err, ERR_INVALID, 0, "--create goes with --workspace DIR");
    if (o->spec.at && o->spec.workspace)
        return err_set(err, ERR_INVALID, 0,
                       "--at goes without --workspace: a workspace always appears at /");
    if ((o->plan_id || o->keep_open) && !o->plan)
        return err_set(err, ERR_INVALID, 0, "%s goes with --plan",
                       o->plan_id ? "--plan-id" : "--keep-open");
    if (o->plan && o->spec.create)
        return err_set(
            err, ERR_INVALID, 0,
            "--plan needs an existing directory; make the directory first, and leave --create out");
    if (o->spec.tty && o->no_tty)
        return err_set(err, ERR_INVALID, 0, "--tty and --no-tty exclude each other");
    if (o->spec.tty && o->json)
        return err_set(err, ERR_INVALID, 0, "--tty and --json exclude each other");
    return 0;
}

int run_options_parse(struct run_options *ret, int argc, char **argv, struct err *err)
{
    int at = 1;

    memset(ret, 0, sizeof(*ret));
    arena_init(&ret->arena, 1UL << 20);
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0' && strcmp(argv[at], "--") != 0) {
        int words = take_option(ret, argc, argv, at, err);
        if (words < 0)
            return -1;
        at += words;
    }
    if (at < argc && strcmp(argv[at], "--") == 0)
        at++;
    ret->spec.mounts = ret->mounts;
    ret->spec.env = ret->env;
    if (take_command(ret, argc, argv, at, err) < 0)
        return -1;
    return check_network(ret, err) < 0 ? -1 : check_together(ret, err);
}

void run_options_clear(struct run_options *options)
{
    arena_clear(&options->arena);
}

int run_options_help(const char *text)
{
    return cli_put_help(text, table, sizeof(table) / sizeof(table[0]), sizeof(table[0]), NULL);
}
