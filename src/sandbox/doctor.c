/* SPDX-License-Identifier: Apache-2.0 */
/* carrel doctor: asks the kernel, one question a line, and says how to mend what is missing. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/programs.h"
#include "sandbox/denial/denial.h"
#include "sandbox/host.h"
#include "sandbox/identity.h"
#include "sandbox/limits/cgroup.h"
#include "sandbox/run.h"
#include "sys/mount.h"
#include "sys/path.h"
#include "sys/uapi.h"

struct finding {
    bool works;
    char detail[256];
    const char *fix; /* one command or sentence; NULL: nothing to do */
};

typedef void probe_fn(const struct host *, struct finding *);

static void say(struct finding *f, bool works, const char *fix, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(struct finding *f, bool works, const char *fix, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(f->detail, sizeof(f->detail), format, args);
    va_end(args);
    f->works = works;
    f->fix = works ? NULL : fix;
}

/* Tries the clone in a child, which exits at once. */
static int try_clone(int flags)
{
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    if (pid < 0)
        return -errno;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

static void probe_user_namespaces(const struct host *host, struct finding *f)
{
    int r = try_clone(CLONE_NEWUSER | CLONE_NEWPID);

    say(f, r == 0, host_userns_remedy(-r), "%s",
        r < 0            ? strerrordesc_np(-r)
        : host->uid == 0 ? "can be made by root"
                         : "can be made by this user");
}

static void probe_time_namespace(const struct host *host, struct finding *f)
{
    (void)host;
    say(f, access("/proc/self/ns/time", F_OK) == 0, "a kernel of 5.6 or later",
        "clocks of a sandbox start at zero");
}

/* Each limit is asked for as a run would: where a group can be made, not what is mounted. */
static void say_limit(struct finding *f, enum cgroup_limit which, const char *instead)
{
    struct cgroup_offer offers[CGROUP_LIMIT_COUNT_];

    cgroup_ask(offers);
    const struct cgroup_offer *offer = &offers[which];
    if (offer->version)
        say(f, true, NULL, "by cgroup v%d", offer->version);
    else if (instead)
        say(f, true, NULL, "%s", instead);
    else
        say(f, false, offer->fix, "%s; refused when asked for", offer->why);
}

static void probe_limit_memory(const struct host *host, struct finding *f)
{
    (void)host;
    say_limit(f, CGROUP_MEMORY, NULL);
}

static void probe_limit_pids(const struct host *host, struct finding *f)
{
    (void)host;
    say_limit(f, CGROUP_PIDS, "by RLIMIT_NPROC, which counts for each sandbox");
}

static void probe_limit_cpu(const struct host *host, struct finding *f)
{
    (void)host;
    say_limit(f, CGROUP_CPU, NULL);
}

static void probe_limit_io(const struct host *host, struct finding *f)
{
    (void)host;
    say_limit(f, CGROUP_IO, NULL);
}

static void probe_limit_disk(const struct host *host, struct finding *f)
{
    say(f, true, NULL, "%s",
        host->can_lease ? "by counting while it runs; exactly with --disk=image:SIZE"
                        : "by counting while it runs (--disk=image:SIZE needs root)");
}

static void probe_denials(const struct host *host, struct finding *f)
{
    (void)host;
    say(f, host_can_notify(), "a kernel of 5.5 or later with CONFIG_SECCOMP_FILTER",
        "refused system calls are told in the result");
}

static void probe_net_host(const struct host *host, struct finding *f)
{
    say(f, host->can_notify && host_can_guard(),
        "a kernel of 5.6 or later, pidfd_getfd and process_vm_readv not filtered away (by a "
        "container), kernel.yama.ptrace_scope below 3; until then --net host is refused",
        "--net host, without metadata addresses and Carrel's own port");
}

/* What asks for names outside takes the host's name servers; without any, none resolves. */
static void probe_net_names(const struct host *host, struct finding *f)
{
    char path[4096];
    char text[8192];

    (void)host;
    bool there = program_find("carrel-egress", path, sizeof(path)) != NULL;
    bool asks = path_read_small("/etc/resolv.conf", text, sizeof(text)) > 0 &&
                strstr(text, "nameserver") != NULL;
    say(f, there && asks,
        there ? "a nameserver in /etc/resolv.conf, or --nameserver ADDRESS"
              : "reinstall Carrel: carrel-egress is missing; until then --allow is refused",
        "%s",
        there && asks ? "--allow HOST"
        : there       ? "no name server to ask"
                      : "refused");
}

static void probe_landlock(const struct host *host, struct finding *f)
{
    say(f, host->landlock_abi >= CARREL_LANDLOCK_ABI_SCOPES,
        "a kernel of 6.12 or later with lsm=landlock; until then --net host refuses Unix sockets",
        "ABI %d (scopes need %d)", host->landlock_abi, CARREL_LANDLOCK_ABI_SCOPES);
}

static void probe_overlay(const struct host *host, struct finding *f)
{
    char text[4096];

    (void)host;
    bool there = path_read_small("/proc/filesystems", text, sizeof(text)) > 0 &&
                 strstr(text, "\toverlay\n") != NULL;
    say(f, there, "modprobe overlay", "%s",
        there ? "built in or loaded" : "not known to the kernel");
}

static void probe_idmap(const struct host *host, struct finding *f)
{
    struct identity id;
    struct err err = {0};
    int userns = -1;

    if (!host->can_lease) {
        say(f, true, NULL, "not needed: files belong to the user who runs Carrel");
        return;
    }
    identity_init(&id);
    scoped_fd int dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int tree = dir < 0 ? -1 : mount_clone(dir, false);
    id.base = IDENTITY_LEASE_FIRST;
    int r = tree < 0                                                           ? tree
            : identity_idmap(&id, IDENTITY_MAP_OWNER, 0, 0, &userns, &err) < 0 ? -EPERM
                                                                               : 0;
    if (r == 0)
        r = mount_set(tree, 0, false, userns);
    identity_clear(&id);
    say(f, r == 0, "keep workspaces on ext4, xfs, btrfs or tmpfs, or let an ordinary user own them",
        "%s", r == 0 ? "work on this directory's filesystem" : strerrordesc_np(-r));
}

static void probe_openat2(const struct host *host, struct finding *f)
{
    (void)host;
    int fd = path_open_beneath(AT_FDCWD, ".", O_PATH, 0);

    if (fd >= 0)
        (void)close(fd);
    say(f, fd >= 0, "a kernel of 5.6 or later", "paths are opened without following links");
}

static void probe_mount_api(const struct host *host, struct finding *f)
{
    (void)host;
    int r = mount_set(-1, 0, false, -1);

    /* A kernel that knows the call complains of the descriptor, or that this user may not mount. */
    say(f, r != -ENOSYS, "a kernel of 5.12 or later", "mounts are made by descriptor");
}

static void probe_seccomp(const struct host *host, struct finding *f)
{
    uint32_t action = SECCOMP_RET_ERRNO;

    (void)host;
    bool filters = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
    say(f, filters, "a kernel with CONFIG_SECCOMP_FILTER", "system calls can be filtered");
}

static void probe_proc(const struct host *host, struct finding *f)
{
    (void)host;
    say(f, access("/proc/self/uid_map", F_OK) == 0, "mount -t proc proc /proc", "/proc is mounted");
}

static void probe_quota(const struct host *host, struct finding *f)
{
    char *text = calloc(1, 1 << 16);
    bool found;

    (void)host;
    found = text && path_read_small("/proc/self/mounts", text, 1 << 16) > 0 &&
            (strstr(text, "prjquota") || strstr(text, "pquota"));
    say(f, found, "mount the workspaces' filesystem with prjquota (ext4, xfs)", "%s",
        found ? "on for a filesystem; --disk makes use of a workspace's own"
              : "no filesystem has them on; --disk is kept without");
    free(text);
}

enum need {
    NEEDED,
    HELPFUL,
    LATER, /* for what is to come: plans */
};

static const struct {
    const char *name;
    const char *title;
    enum need need;
    probe_fn *probe;
} probes[] = {
    {"proc", "proc filesystem", NEEDED, probe_proc},
    {"user_namespaces", "user namespaces", NEEDED, probe_user_namespaces},
    {"openat2", "openat2", NEEDED, probe_openat2},
    {"mount_api", "mount_setattr", NEEDED, probe_mount_api},
    {"seccomp", "seccomp filters", NEEDED, probe_seccomp},
    {"idmapped_mounts", "idmapped mounts", HELPFUL, probe_idmap},
    {"landlock", "Landlock scopes", HELPFUL, probe_landlock},
    {"time_namespace", "time namespace", HELPFUL, probe_time_namespace},
    {"denials", "denials", HELPFUL, probe_denials},
    {"net_host", "the host's network", HELPFUL, probe_net_host},
    {"net_names", "the network by name", HELPFUL, probe_net_names},
    {"limit_memory", "limit on memory", HELPFUL, probe_limit_memory},
    {"limit_pids", "limit on processes", HELPFUL, probe_limit_pids},
    {"limit_cpu", "limit on processors", HELPFUL, probe_limit_cpu},
    {"limit_io", "limit on disk speed", HELPFUL, probe_limit_io},
    {"limit_disk", "limit on disk space", HELPFUL, probe_limit_disk},
    {"quotas", "project quotas", HELPFUL, probe_quota},
    {"overlay", "overlay filesystem", LATER, probe_overlay},
};

static void remove_workspace(const char *path)
{
    static const char *const made[] = {"usr",    "bin", "sbin", "lib", "lib32", "lib64",
                                       "libx32", "etc", "proc", "dev", "tmp",   ".cache"};
    scoped_fd int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
        ignore(unlinkat(dir, made[i], AT_REMOVEDIR) == 0); /* those this host has no use for */
    ignore(rmdir(path) == 0);
}

/* The proof of the pudding: a sandbox with a command in it. */
static bool try_level_ns(const char *init_path, struct carrel_error *error)
{
    char name[] = "true";
    char *argv[] = {name, NULL};
    char workspace[] = "/tmp/carrel-doctor.XXXXXX";
    struct carrel_spec spec = {.workspace = workspace,
                               .argv = argv,
                               .capture = true,
                               .stdin_fd = -1,
                               .init_path = init_path};
    struct carrel_result result;

    if (!mkdtemp(workspace)) {
        snprintf(error->message, sizeof(error->message), "no workspace could be made in /tmp");
        return false;
    }
    bool works = carrel_run(&spec, &result, error) == 0;
    remove_workspace(workspace);
    if (!works)
        return false;
    if (result.exit_code != 0) {
        snprintf(error->message, sizeof(error->message), "a test command ended with status %d",
                 result.exit_code);
        works = false;
    }
    carrel_result_clear(&result);
    return works;
}

static json_t *describe_levels(bool ns_works, const char *why_not, const struct host *host)
{
    json_t *ns = json_pack("{s:b}", "works", ns_works);

    if (!ns_works)
        json_object_set_new(ns, "why_not", json_string(why_not));
    json_object_set_new(
        ns, "enforces",
        json_string(
            host->can_lease
                ? "own root, processes, network, ids (a leased uid range), no capabilities, "
                  "system call filter"
                : "own root, processes, network, ids (your uid alone), no capabilities, "
                  "system call filter"));
    return json_pack("{s:o, s:{s:b, s:s}}", "ns", ns, "dir", "works", 1, "enforces",
                     "nothing: a directory and an environment; the whole tree is ended at the end");
}

static json_t *examine(const char *init_path, bool *ret_ns_works)
{
    static const char *const needs[] = {[NEEDED] = "now", [HELPFUL] = "helpful", [LATER] = "later"};
    struct carrel_error error = {0};
    struct host host;
    json_t *features = json_object();

    host_ask(&host);
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
        struct finding f = {0};
        probes[i].probe(&host, &f);
        json_t *entry = json_pack("{s:s, s:b, s:s, s:s}", "title", probes[i].title, "works",
                                  f.works, "needed", needs[probes[i].need], "detail", f.detail);
        json_object_set_new(entry, "fix", f.fix ? json_string(f.fix) : json_null());
        json_object_set_new(features, probes[i].name, entry);
    }
    *ret_ns_works = try_level_ns(init_path, &error);
    return json_pack("{s:o, s:o}", "features", features, "levels",
                     describe_levels(*ret_ns_works, error.message, &host));
}

static const char *mark(bool works, const char *needed)
{
    if (works)
        return "ok";
    return strcmp(needed, "now") == 0 ? "NO" : "-";
}

static void print_text(struct buf *b, json_t *all)
{
    const char *name;
    json_t *entry;

    buf_str(b, "this host\n");
    json_object_foreach(json_object_get(all, "features"), name, entry)
    {
        bool works = json_is_true(json_object_get(entry, "works"));
        const char *needed = json_string_value(json_object_get(entry, "needed"));
        const char *fix = json_string_value(json_object_get(entry, "fix"));
        buf_printf(b, "  %-4s %-19s %s%s\n", mark(works, needed),
                   json_string_value(json_object_get(entry, "title")),
                   json_string_value(json_object_get(entry, "detail")),
                   strcmp(needed, "later") == 0 ? " (not used yet)" : "");
        if (fix)
            buf_printf(b, "       %-19s fix: %s\n", "", fix);
    }
    buf_str(b, "\nlevels\n");
    json_object_foreach(json_object_get(all, "levels"), name, entry)
    {
        const char *why_not = json_string_value(json_object_get(entry, "why_not"));
        buf_printf(b, "  %-4s %-4s %s\n",
                   json_is_true(json_object_get(entry, "works")) ? "ok" : "NO", name,
                   json_string_value(json_object_get(entry, "enforces")));
        if (why_not)
            buf_printf(b, "            why not: %s\n", why_not);
    }
    json_t *ns = json_object_get(json_object_get(all, "levels"), "ns");
    buf_printf(b, "\n%s\n",
               json_is_true(json_object_get(ns, "works"))
                   ? "Carrel works here: carrel run -- COMMAND"
                   : "Carrel cannot isolate here until the lines marked NO are mended.");
}

int carrel_doctor(enum carrel_format format, const char *init_path, char **ret_text,
                  struct carrel_error *error)
{
    bool ns_works = false;
    json_t *all = examine(init_path, &ns_works);
    scoped_buf struct buf b;

    buf_init(&b, 1UL << 20);
    if (format == CARREL_JSON) {
        char *text = json_dumps(all, JSON_INDENT(2));
        buf_str(&b, text ? text : "");
        buf_str(&b, "\n");
        free(text);
    } else {
        print_text(&b, all);
    }
    json_decref(all);
    if (buf_done(&b) < 0) {
        error->code = CARREL_ERROR_LIMIT;
        snprintf(error->message, sizeof(error->message), "out of memory");
        return -1;
    }
    *ret_text = b.p;
    b.p = NULL;
    return ns_works ? 0 : 1;
}
