/* SPDX-License-Identifier: Apache-2.0 */
/* carrel_explain: prints a prepared run, everything that would be done and what this host cannot
 * give. */
#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "carrel.h"
#include "policy/units.h"
#include "sandbox/filter.h"
#include "sandbox/limits/limits.h"
#include "sandbox/run.h"
#include "sys/mount.h"
#include "sys/uapi.h"

_Static_assert(OP_KIND_COUNT_ == 13, "every kind has a name here");
static const char *const kind_names[OP_KIND_COUNT_] = {
    [OP_BIND] = "bind",   [OP_TMPFS] = "tmpfs", [OP_PROC] = "proc",    [OP_DEVPTS] = "devpts",
    [OP_DIR] = "dir",     [OP_FILE] = "file",   [OP_LINK] = "symlink", [OP_SHOW] = "own",
    [OP_MASK] = "mask",   [OP_LOCK] = "lock",   [OP_MOVE] = "move",    [OP_LAYER] = "layer",
    [OP_PART] = "system",
};

static const struct {
    uint32_t flag;
    const char *name;
} namespace_names[] = {
    {CLONE_NEWUSER, "user"}, {CLONE_NEWNS, "mount"},      {CLONE_NEWPID, "pid"},
    {CLONE_NEWIPC, "ipc"},   {CLONE_NEWUTS, "uts"},       {CLONE_NEWNET, "net"},
    {CLONE_NEWTIME, "time"}, {CLONE_NEWCGROUP, "cgroup"},
};

static const char *const limit_names[RLIM_NLIMITS] = {
    [RLIMIT_CORE] = "core",         [RLIMIT_NOFILE] = "open_files",
    [RLIMIT_NPROC] = "processes",   [RLIMIT_MEMLOCK] = "locked_memory",
    [RLIMIT_RTPRIO] = "realtime",   [RLIMIT_NICE] = "nice",
    [RLIMIT_MSGQUEUE] = "msgqueue", [RLIMIT_SIGPENDING] = "pending_signals",
    [RLIMIT_FSIZE] = "file_size",
};

/* Names are bytes, JSON and terminals want text: control characters and what is not UTF-8 are
 * written as \xNN. */
static json_t *as_text(const char *bytes)
{
    json_t *plain = json_string(bytes);
    bool is_text = plain != NULL;
    scoped_buf struct buf b;

    json_decref(plain);
    buf_init(&b, 4UL << 20);
    for (const unsigned char *c = (const unsigned char *)bytes; *c; c++) {
        bool c1 = *c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f;
        if (*c < 0x20 || *c == 0x7f || c1 || (*c > 0x7f && !is_text))
            buf_printf(&b, "\\x%02x", *c);
        else
            buf_add(&b, c, 1);
        if (c1)
            buf_printf(&b, "\\x%02x", *++c);
    }
    return buf_done(&b) < 0 ? json_null() : json_string(b.p);
}

static json_t *explain_mount(const struct op *op)
{
    json_t *m = json_pack("{s:s}", "kind", kind_names[op->kind]);
    char *target = NULL;

    if (op_has_tree(op) || op->kind == OP_SHOW)
        json_object_set_new(m, "source", as_text(op->source));
    if (op->kind == OP_LAYER)
        json_object_set_new(m, op->flags & OP_SHOWN ? "changes_of" : "changes_to",
                            as_text(op->layer));
    if (asprintf(&target, "/%s", op->target) >= 0) {
        json_object_set_new(m, "target", as_text(target));
        free(target);
    }
    json_object_set_new(m, "read_only", json_boolean(op->attrs & MOUNT_RDONLY));
    if (op->kind == OP_TMPFS)
        json_object_set_new(m, "bytes", json_integer((json_int_t)op->bytes));
    return m;
}

/* As it will be seen: the root, then what the frame puts on it, then what the caller asked for. */
static json_t *explain_mounts(const struct run *run)
{
    const struct setup *setup = &run->setup;
    json_t *mounts = json_array();

    for (uint32_t n = 0; n < setup->op_count; n++) {
        uint32_t i = n == 0 ? setup->frame_count : n <= setup->frame_count ? n - 1 : n;
        const struct op *op = &setup->ops[i];
        bool making = op->kind == OP_DIR || op->kind == OP_FILE || op->kind == OP_LINK;
        /* Parts of what an "own" line shows, and how the frame comes to its place. */
        if ((making && (i < setup->frame_count || !(op->flags & OP_IN_ROOT))) ||
            op->kind == OP_MOVE)
            continue;
        json_array_append_new(mounts, explain_mount(op));
    }
    return mounts;
}

static json_t *explain_namespaces(const struct run *run)
{
    json_t *names = json_array();

    for (size_t i = 0; i < sizeof(namespace_names) / sizeof(namespace_names[0]); i++) {
        if (run->setup.namespaces & namespace_names[i].flag)
            json_array_append_new(names, json_string(namespace_names[i].name));
    }
    return names;
}

static json_t *explain_limits(const struct run *run)
{
    json_t *limits = json_object();

    for (int i = 0; i < RLIM_NLIMITS; i++) {
        if ((run->setup.limit_mask & (1U << i)) && limit_names[i])
            json_object_set_new(limits, limit_names[i],
                                json_integer((json_int_t)run->setup.limits[i].soft));
    }
    if (run->spec->timeout_ms)
        json_object_set_new(limits, "timeout_ms", json_integer((json_int_t)run->spec->timeout_ms));
    if (run->spec->output_bytes)
        json_object_set_new(limits, "max_output",
                            json_integer((json_int_t)run->spec->output_bytes));
    return limits;
}

static void explain_kept(json_t *kept, const char *name, uint64_t value, const char *by)
{
    json_object_set_new(kept, name,
                        json_pack("{s:I, s:s?}", "value", (json_int_t)value, "kept_by", by));
}

/* The limits somebody asked for, and what keeps each on this host; null: nothing can. */
static json_t *explain_asked_limits(const struct run *run, json_t *missing)
{
    static const struct {
        const char *name;
        const char *by[3]; /* by version of cgroups */
    } kinds[CGROUP_LIMIT_COUNT_] = {
        [CGROUP_MEMORY] =
            {"memory",
             {NULL, "cgroup v1, no swap; a sixteenth of it, at most 16M, is for network sockets",
              "cgroup v2, no swap"}},
        [CGROUP_PIDS] = {"pids", {"RLIMIT_NPROC of its user namespace", "cgroup v1", "cgroup v2"}},
        [CGROUP_CPU] = {"cpu", {NULL, "cgroup v1", "cgroup v2"}},
        [CGROUP_IO] = {"io", {NULL, NULL, "cgroup v2"}},
    };
    const struct carrel_limits *limits = &run->spec->limits;
    const uint64_t values[CGROUP_LIMIT_COUNT_] = {
        [CGROUP_MEMORY] = limits->memory_bytes,
        [CGROUP_PIDS] = limits->pids,
        [CGROUP_CPU] = limits->cpu_milli,
        [CGROUP_IO] = limits->io_bytes,
    };
    struct cgroup_offer offers[CGROUP_LIMIT_COUNT_];
    json_t *kept = json_object();

    cgroup_ask(offers);
    for (int i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        const char *by = kinds[i].by[offers[i].version];
        if (!values[i])
            continue;
        explain_kept(kept, i == CGROUP_CPU ? "cpu_milli" : kinds[i].name, values[i], by);
        if (!by)
            json_array_append_new(
                missing,
                json_sprintf("--%s cannot be kept here and the run would be refused: %s; %s",
                             kinds[i].name, offers[i].why, offers[i].fix));
    }
    const char *disk = limits->disk_image
                           ? "a file system image beside the workspace"
                           : "a quota where the workspace has one; else no fallocate, bounded file "
                             "sizes, and counting while it runs";
    if (limits->disk_bytes)
        explain_kept(kept, "disk", limits->disk_bytes, disk);
    if (limits->disk_files)
        explain_kept(kept, "files", limits->disk_files, disk);
    return kept;
}

static void visit_rule(void *context, const char *name, enum filter_answer answer)
{
    static const char *const lists[] = {
        [FILTER_ALLOWED] = "allowed", [FILTER_CHECKED] = "checked", [FILTER_REFUSED] = "refused"};

    json_array_append_new(json_object_get(context, lists[answer]), json_string(name));
}

static json_t *explain_filter(const struct run *run)
{
    json_t *filter = json_pack("{s:s, s:i, s:[], s:[], s:[]}", "default", "ENOSYS", "instructions",
                               (int)run->setup.filter_length, "allowed", "checked", "refused");

    filter_visit(visit_rule, filter);
    return filter;
}

static json_t *explain_identity(const struct run *run)
{
    json_t *id = json_pack("{s:i, s:i, s:s}", "uid_inside", (int)run->setup.uid, "gid_inside",
                           (int)run->setup.gid, "capabilities", "none");

    if (run->host.can_lease)
        json_object_set_new(id, "outside", json_string("a leased range of 65536 uids"));
    else
        json_object_set_new(id, "outside", json_sprintf("uid %u", run->host.uid));
    json_object_set_new(id, "files_on_disk",
                        json_sprintf("uid %u, gid %u", run->owner_uid, run->owner_gid));
    return id;
}

static void explain_unlimited(const struct run *run, json_t *missing)
{
    const struct carrel_limits *limits = &run->spec->limits;

    const struct {
        bool limited;
        const char *what;
    } things[] = {{limits->memory_bytes != 0, "memory (--memory)"},
                  {limits->cpu_milli != 0, "processor time (--cpu)"},
                  {limits->disk_bytes != 0, "disk space (--disk)"}};

    char list[128] = "";

    for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
        size_t used = strlen(list);
        if (!things[i].limited)
            snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", things[i].what);
    }
    if (list[0])
        json_array_append_new(missing, json_sprintf("no limit on %s", list));
}

static json_t *explain_missing(const struct run *run)
{
    json_t *missing = json_array();
    bool dir = run->level == CARREL_LEVEL_DIR;

    if (dir) {
        static const char *const not_isolated[] = {
            ("level dir isolates nothing: the command can read and write whatever its user can, "
             "anywhere on this host"),
            "network, processes and other workspaces are all within its reach",
            "system calls are not filtered and privileges are not dropped",
        };
        for (size_t i = 0; i < sizeof(not_isolated) / sizeof(not_isolated[0]); i++)
            json_array_append_new(missing, json_string(not_isolated[i]));
        return missing;
    }
    explain_unlimited(run, missing);
    if (!(run->setup.namespaces & CLONE_NEWTIME))
        json_array_append_new(missing, json_string("no time namespace: uptime is the host's"));
    if (run->host.landlock_abi < CARREL_LANDLOCK_ABI_SCOPES)
        json_array_append_new(
            missing,
            json_string(run->net == CARREL_NET_HOST
                            ? "no Landlock scopes (Linux 6.12): with --net host Unix sockets "
                              "are refused inside altogether"
                            : "no Landlock scopes (Linux 6.12): namespaces alone keep "
                              "sockets and signals apart"));
    if (run->net == CARREL_NET_HOST)
        json_array_append_new(
            missing, json_string("--net host: every service the host can reach, its own loopback "
                                 "included, can be reached; connections to cloud metadata "
                                 "addresses and to Carrel's own port are refused"));
    return missing;
}

static json_t *explain_command(const struct run *run)
{
    json_t *argv = json_array();

    for (uint32_t i = 0; i < run->command.argc; i++)
        json_array_append_new(argv, as_text(run->command.argv[i]));
    return argv;
}

static json_t *explain_environment(const struct run *run)
{
    json_t *env = json_object();

    for (uint32_t i = 0; i < run->command.envc; i++) {
        const char *text = run->command.env[i];
        const char *equals = strchr(text, '=');
        char *name = strndup(text, (size_t)(equals - text));
        if (name)
            json_object_set_new(env, name, as_text(equals + 1));
        free(name);
    }
    return env;
}

static json_t *explain_names(const struct run *run)
{
    json_t *names = json_array();

    for (size_t i = 0; run->spec->net_rules[i]; i++)
        json_array_append_new(names, as_text(run->spec->net_rules[i]));
    return names;
}

static json_t *explain_all(const struct run *run)
{
    bool ns = run->level == CARREL_LEVEL_NS;
    json_t *all = json_pack("{s:s, s:o, s:s}", "level", ns ? "ns" : "dir", "workspace",
                            as_text(run->workspace_path), "network",
                            run->net == CARREL_NET_HOST    ? "host"
                            : run->net == CARREL_NET_ALLOW ? "names"
                                                           : "none");

    if (run->net == CARREL_NET_ALLOW)
        json_object_set_new(all, "names", explain_names(run));

    if (ns) {
        json_object_set_new(all, "namespaces", explain_namespaces(run));
        json_object_set_new(all, "identity", explain_identity(run));
        json_object_set_new(all, "mounts", explain_mounts(run));
        json_object_set_new(all, "landlock",
                            json_string(run->setup.flags & SETUP_SCOPE_SOCKETS
                                            ? "abstract sockets and signals scoped"
                                            : "not used"));
        json_object_set_new(all, "filter", explain_filter(run));
    }
    json_t *missing = explain_missing(run);
    json_object_set_new(all, "limits", explain_limits(run));
    if (ns)
        json_object_set_new(all, "asked_limits", explain_asked_limits(run, missing));
    json_object_set_new(all, "cwd", as_text(run->command.cwd));
    json_object_set_new(all, "environment", explain_environment(run));
    json_object_set_new(all, "command", explain_command(run));
    json_object_set_new(all, "not_given", missing);
    return all;
}

static void text_list(struct buf *b, const char *title, const json_t *list, const char *separator)
{
    const json_t *item;
    size_t i;

    buf_printf(b, "%s", title);
    json_array_foreach(list, i, item)
    {
        buf_printf(b, "%s%s", i ? separator : "", json_string_value(item));
    }
    buf_str(b, "\n");
}

static void text_mounts(struct buf *b, const json_t *mounts)
{
    const json_t *m;
    size_t i;

    buf_str(b, "\nmounts\n");
    json_array_foreach(mounts, i, m)
    {
        const char *source = json_string_value(json_object_get(m, "source"));
        const char *layer = json_string_value(json_object_get(m, "changes_to"));
        const char *shown = json_string_value(json_object_get(m, "changes_of"));
        buf_printf(b, "  %-7s %-2s  %-30s %s%s%s\n", json_string_value(json_object_get(m, "kind")),
                   json_is_true(json_object_get(m, "read_only")) ? "ro" : "rw",
                   json_string_value(json_object_get(m, "target")), source ? source : "",
                   layer   ? ", changes to "
                   : shown ? ", with the changes of "
                           : "",
                   layer   ? layer
                   : shown ? shown
                           : "");
    }
}

/* How numbers that are not counts are named and written for people. */
static const struct {
    const char *key;
    const char *title;
    enum units_kind kind;
} text_kinds[] = {
    {"memory", "memory", UNITS_SIZE},
    {"io", "io", UNITS_SIZE},
    {"disk", "disk", UNITS_SIZE},
    {"max_output", "max_output", UNITS_SIZE},
    {"file_size", "file_size", UNITS_SIZE},
    {"locked_memory", "locked_memory", UNITS_SIZE},
    {"msgqueue", "msgqueue", UNITS_SIZE},
    {"cpu_milli", "cpu", UNITS_CPU},
    {"timeout_ms", "timeout", UNITS_DURATION},
};

static void text_number(struct buf *b, const char *key, const json_t *value)
{
    enum units_kind kind = UNITS_COUNT;
    const char *title = key;
    char text[UNITS_TEXT];

    for (size_t i = 0; i < sizeof(text_kinds) / sizeof(text_kinds[0]); i++) {
        if (strcmp(text_kinds[i].key, key) == 0) {
            title = text_kinds[i].title;
            kind = text_kinds[i].kind;
        }
    }
    json_int_t number = json_integer_value(value);
    buf_printf(b, "  %-16s %s", title,
               number < 0 ? "unlimited" : units_text(kind, (uint64_t)number, text));
}

static void text_pairs(struct buf *b, const char *title, json_t *object)
{
    const char *key;
    json_t *value;

    buf_printf(b, "\n%s\n", title);
    json_object_foreach(object, key, value)
    {
        if (json_is_integer(value))
            text_number(b, key, value);
        else
            buf_printf(b, "  %-16s %s", key, json_string_value(value));
        buf_str(b, "\n");
    }
}

static void text_asked_limits(struct buf *b, json_t *kept)
{
    const char *name;
    json_t *limit;

    json_object_foreach(kept, name, limit)
    {
        const char *by = json_string_value(json_object_get(limit, "kept_by"));
        text_number(b, name, json_object_get(limit, "value"));
        buf_printf(b, ", kept by %s\n", by ? by : "nothing on this host");
    }
}

static void text_all(struct buf *b, json_t *all)
{
    static const char *const simple[] = {"level", "workspace", "network", "cwd", "landlock"};

    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        const char *value = json_string_value(json_object_get(all, simple[i]));
        if (value)
            buf_printf(b, "%-12s %s\n", simple[i], value);
    }
    if (json_object_get(all, "names"))
        text_list(b, "names        ", json_object_get(all, "names"), ", ");
    text_list(b, "command      ", json_object_get(all, "command"), " ");
    json_t *filter = json_object_get(all, "filter");
    if (filter) {
        text_list(b, "namespaces   ", json_object_get(all, "namespaces"), " ");
        text_pairs(b, "identity", json_object_get(all, "identity"));
        text_mounts(b, json_object_get(all, "mounts"));
    }
    text_pairs(b, "limits", json_object_get(all, "limits"));
    text_asked_limits(b, json_object_get(all, "asked_limits"));
    if (filter) {
        buf_printf(b,
                   "\nsystem calls (%zu allowed; anything not named here does not exist inside)\n",
                   json_array_size(json_object_get(filter, "allowed")));
        text_list(b, "  by argument: ", json_object_get(filter, "checked"), " ");
        text_list(b, "  refused:     ", json_object_get(filter, "refused"), " ");
    }
    text_pairs(b, "environment", json_object_get(all, "environment"));
    const json_t *not_given = json_object_get(all, "not_given");
    if (json_array_size(not_given))
        text_list(b, "\nwhat this does not give\n  ", not_given, "\n  ");
}

static int explain(const struct run *run, enum carrel_format format, char **ret_text,
                   struct err *err)
{
    json_t *all = explain_all(run);
    scoped_buf struct buf b;

    buf_init(&b, 4UL << 20);
    if (format == CARREL_JSON) {
        char *dumped = json_dumps(all, JSON_INDENT(2));
        buf_str(&b, dumped ? dumped : "");
        buf_str(&b, "\n");
        b.failed = b.failed || !dumped;
        free(dumped);
    } else {
        text_all(&b, all);
    }
    json_decref(all);
    if (buf_done(&b) < 0)
        return err_set(err, ERR_LIMIT, 0, "the explanation does not fit in memory");
    *ret_text = b.p;
    b.p = NULL;
    return 0;
}

int carrel_explain(const struct carrel_spec *spec, enum carrel_format format, char **ret_text,
                   struct carrel_error *error)
{
    struct err err = {0};
    struct run *run = malloc(sizeof(*run));

    if (!run) {
        err_set(&err, ERR_LIMIT, 0, "out of memory");
        return run_report(&err, error);
    }
    bool missing[SETUP_MAX_OPS];
    int r = run_prepare(run, spec, true, NULL, &err);
    if (r == 0 && run->level == CARREL_LEVEL_NS && spec->workspace && !run->imagined)
        r = workspace_check_mount_points(run, missing, &err);
    if (r == 0)
        r = explain(run, format, ret_text, &err);
    run_clear(run);
    free(run);
    return r < 0 ? run_report(&err, error) : 0;
}
