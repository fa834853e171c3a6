/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the mount operations of a sandbox: what its file tree is made of. Nothing is mounted here.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/names.h"
#include "base/weak.h"
#include "protocol/egress.h"
#include "sandbox/authority.h"
#include "sandbox/etc_linked.h"
#include "sandbox/limits/limits.h"
#include "sandbox/overlay.h"
#include "sandbox/procfiles.h"
#include "sandbox/rootfs.h"
#include "sandbox/run.h"
#include "sandbox/system.h"
#include "sys/mount.h"
#include "sys/path.h"

#define ROOT_TMP_BYTES (64UL << 20)

static uint64_t system_attrs(void)
{
    return (weak("ro") ? 0 : MOUNT_RDONLY) | (weak("nosuid") ? 0 : MOUNT_NOSUID) |
           (weak("nodev") ? 0 : MOUNT_NODEV);
}

uint64_t rootfs_data_attrs(void)
{
    return system_attrs() & ~(uint64_t)MOUNT_RDONLY;
}

/* NULL when the setup is full; callers that add many look once, at the end. */
struct op *rootfs_add(struct run *run, enum op_kind kind, const char *source, const char *target)
{
    struct setup *setup = &run->setup;

    if (setup->op_count == SETUP_MAX_OPS || !source || !target)
        return NULL;
    run->sources[setup->op_count] = -1;
    struct op *op = &setup->ops[setup->op_count++];
    *op = (struct op){.kind = kind, .source = source, .target = target};
    return op;
}

int rootfs_full(struct err *err)
{
    return err_set(err, ERR_LIMIT, 0, "too many mounts (at most %d operations)", SETUP_MAX_OPS);
}

/* Adds the bind of what `fd` is open on: as root a mount tree that only has to be passed on,
 * otherwise a handle whose canonical path and identity pid 1 will find again. `name` is for people.
 */
static int add_bind_of(struct run *run, int *fd, const char *name, const struct op *as,
                       struct err *err)
{
    char canonical[4096];
    struct stat st;

    if (fstat(*fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at '%s'", name);
    if ((!run->host.can_lease || run->dry) && !run->imagined) {
        int r = path_of_fd(*fd, canonical, sizeof(canonical));
        if (r < 0)
            return err_set(err, ERR_IO, -r, "find the path of '%s'", name);
        name = canonical;
    }
    struct op *op =
        rootfs_add(run, OP_BIND, arena_copy(&run->arena, name, strlen(name)), as->target);
    if (!op)
        return rootfs_full(err);
    op->attrs = as->attrs;
    op->flags = as->flags;
    op->device = st.st_dev;
    op->inode = st.st_ino;
    op->mode = st.st_mode;
    op->uid = st.st_uid;
    op->gid = st.st_gid;
    run->sources[op - run->setup.ops] = take_fd(fd);
    return 0;
}

/* Nobody but the host's administrator changes what such a path leads to: pid 1 binds it in one
 * call.
 */
static int add_bind_of_host(struct run *run, const char *path, const char *target, uint64_t attrs,
                            uint32_t flags, struct err *err)
{
    if (access(path, F_OK) < 0)
        return errno == ENOENT ? 1 : err_set(err, ERR_NOT_FOUND, errno, "open '%s'", path);
    struct op *op = rootfs_add(run, OP_BIND, arena_copy(&run->arena, path, strlen(path)), target);
    if (!op)
        return rootfs_full(err);
    op->attrs = attrs;
    op->flags = flags | OP_OF_HOST;
    return 0;
}

/* Binds a path of the host's own. 1 when it is not there. */
static int add_bind_if_there(struct run *run, const char *path, const char *target, uint64_t attrs,
                             uint32_t flags, struct err *err)
{
    bool recursive = (flags & OP_RECURSIVE) != 0;

    /* As root we open it while pid 1 is busy. On /proc pid 1 has its own files. */
    if (!run->host.can_lease && !run->dry && strcmp(path, "/proc") != 0)
        return add_bind_of_host(run, path, target, attrs, flags, err);
    scoped_fd int fd = run->host.can_lease && !run->dry ? mount_clone_path(path, recursive)
                                                        : open(path, O_PATH | O_CLOEXEC);

    if (fd == -ENOENT || (fd == -1 && errno == ENOENT))
        return 1;
    if (fd < 0)
        return err_set(err, ERR_NOT_FOUND, fd == -1 ? errno : -fd, "open '%s'", path);
    struct op as = {.target = target, .attrs = attrs, .flags = flags};
    return add_bind_of(run, &fd, path, &as, err);
}

/* Binds a tree somebody else may be writing to: exactly the one that `fd` is open on, whatever its
 * name leads to by now. `fd` is borrowed. `layer`: is put over it; or NULL. */
int rootfs_add_opened(struct run *run, int fd, const char *name, const struct op *as,
                      struct layer *layer, struct err *err)
{
    bool is_tree = run->in_image && fd == run->workspace; /* such cannot be copied before 6.15 */
    scoped_fd int own = run->host.can_lease && !run->dry && !is_tree && !layer
                            ? mount_clone(fd, (as->flags & OP_RECURSIVE) != 0)
                            : fcntl(fd, F_DUPFD_CLOEXEC, 3);

    if (own < 0)
        return err_set(err, ERR_IO, own == -1 ? errno : -own, "bind '%s'", name);
    if (add_bind_of(run, &own, name, as, err) < 0)
        return -1;
    struct op *op = &run->setup.ops[run->setup.op_count - 1];
    return layer ? overlay_describe(run, layer, op, err) : 0;
}

int rootfs_add_bind(struct run *run, const char *path, const char *target, uint64_t attrs,
                    uint32_t flags, struct err *err)
{
    int r = add_bind_if_there(run, path, target, attrs, flags, err);

    return r == 1 ? err_set(err, ERR_NOT_FOUND, ENOENT, "open '%s'", path) : r;
}

struct op *rootfs_add_file(struct run *run, const char *target, const char *content)
{
    struct op *op = rootfs_add(run, OP_FILE, content, target);

    if (op)
        op->mode = 0444;
    return op;
}

struct op *rootfs_add_dir(struct run *run, const char *target, uint32_t flags)
{
    struct op *op = rootfs_add(run, OP_DIR, "", target);

    if (op) {
        op->mode = 0755;
        op->flags = flags;
    }
    return op;
}

static struct op *add_show(struct run *run, const char *source, const char *target, uint64_t attrs)
{
    struct op *op = rootfs_add(run, OP_SHOW, source, target);

    if (op)
        op->attrs = attrs;
    return op;
}

struct op *rootfs_add_tmpfs(struct run *run, const char *target, uint64_t bytes, uint32_t mode)
{
    struct op *op = rootfs_add(run, OP_TMPFS, "", target);

    if (op) {
        op->bytes = bytes;
        op->inodes = bytes / 4096 < 1024 ? 1024 : bytes / 4096;
        op->mode = mode;
        op->attrs = rootfs_data_attrs();
        op->uid = run->setup.uid;
        op->gid = run->setup.gid;
    }
    return op;
}

/* Names at the top of the new root that Carrel mounts on, where this host has them. */
static const char *const system_names[] = {CARREL_SYSTEM_NAMES};
static const char *const own_names[] = {CARREL_OWN_NAMES};

enum {
    SYSTEM_NAMES = sizeof(system_names) / sizeof(system_names[0]),
    OWN_NAMES = sizeof(own_names) / sizeof(own_names[0])
};

/* What cannot be looked at counts as there, and binding it then says why. */
static bool host_has(const char *name)
{
    char path[16];

    snprintf(path, sizeof(path), "/%s", name);
    return access(path, F_OK) == 0 || errno != ENOENT;
}

static int add_root(struct run *run, struct err *err)
{
    struct op as = {.target = "", .attrs = rootfs_data_attrs(), .flags = OP_RECURSIVE | OP_OWNED};

    if (run->spec->workspace)
        return rootfs_add_opened(run, run->workspace, run->workspace_path, &as, run->plan, err);
    if (!rootfs_add_tmpfs(run, "", ROOT_TMP_BYTES, 0755))
        return rootfs_full(err);
    return 0;
}

/* Moves a part of the frame onto the root. In a tenant's tree workspace.c makes the name; on our
 * own root pid 1 does. */
static int add_move(struct run *run, const char *name)
{
    if (!run->spec->workspace && !rootfs_add_dir(run, name, OP_IN_ROOT))
        return -1;
    struct op *op = rootfs_add(run, OP_MOVE, name, name);
    if (op && run->spec->workspace)
        op->flags = OP_TOP;
    return op ? 0 : -1;
}

static int add_moves(struct run *run, struct err *err)
{
    if (run->spec->base && system_each_name(run, add_move) < 0)
        return rootfs_full(err);
    for (size_t i = 0; !run->spec->base && i < SYSTEM_NAMES; i++) {
        if (host_has(system_names[i]) && add_move(run, system_names[i]) < 0)
            return rootfs_full(err);
    }
    for (size_t i = 0; i < OWN_NAMES; i++) {
        if (add_move(run, own_names[i]) < 0)
            return rootfs_full(err);
    }
    return 0;
}

static int add_system(struct run *run, struct err *err)
{
    char path[16];

    for (size_t i = 0; i < SYSTEM_NAMES; i++) {
        snprintf(path, sizeof(path), "/%s", system_names[i]);
        if (!host_has(system_names[i]))
            continue;
        if (!rootfs_add_dir(run, system_names[i], OP_IN_ROOT))
            return rootfs_full(err);
        if (rootfs_add_bind(run, path, system_names[i], system_attrs(), OP_RECURSIVE, err) < 0)
            return -1;
    }
    return 0;
}

/* Parts of the host's /etc that programs need and that hold no secrets. */
static const struct {
    const char *name;
    bool directory;
} etc_from_host[] = {
    {"ld.so.cache", false},  {"ld.so.conf", false},
    {"ld.so.conf.d", true},  {"alternatives", true},
    {"ssl/certs", true},     {"ssl/openssl.cnf", false},
    {"pki/tls/certs", true}, {"pki/ca-trust/extracted", true},
    {"fonts", true},         {"services", false},
    {"protocols", false},    {"mime.types", false},
    {"magic", false},        {"terminfo", true},
};

static const char *const etc_dirs[] = {"etc", "etc/ssl", "etc/pki", "etc/pki/tls",
                                       "etc/pki/ca-trust"};

static int copy_localtime(struct run *run, struct err *err)
{
    char target[256];
    ssize_t n = readlink("/etc/localtime", target, sizeof(target) - 1);

    if (n <= 0)
        return 0;
    target[n] = '\0';
    const char *zone = strstr(target, "/usr/share/zoneinfo/");
    if (zone &&
        !rootfs_add(run, OP_LINK, arena_copy(&run->arena, zone, strlen(zone)), "etc/localtime"))
        return rootfs_full(err);
    return 0;
}

/* With the host's network its resolver is needed too. Otherwise it is the address where pid 1 opens
 * a name server, if names may be reached; if not, no way leads there, and the kernel refuses, and
 * counts, every look at a name that is not local. */
static const char *resolver(struct run *run)
{
    char text[8192];

    if (run->net != CARREL_NET_HOST || path_read_small("/etc/resolv.conf", text, sizeof(text)) <= 0)
        return "nameserver " EGRESS_NAMESERVER "\n";
    return arena_copy(&run->arena, text, strlen(text));
}

static int add_etc_files(struct run *run, struct err *err)
{
    const char *machine_id = procfile_random_id(&run->arena);
    char compact[40];
    size_t n = 0;

    if (!machine_id)
        return err_set(err, ERR_IO, 0, "no random bytes for the machine id");
    for (const char *c = machine_id; *c; c++) {
        if (*c != '-')
            compact[n++] = *c;
    }
    const char *files[][2] = {
        {"etc/passwd", "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/:/bin/bash\n"
                       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
        {"etc/group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"},
        {"etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                              "services: files\nprotocols: files\nnetworks: files\n"},
        {"etc/hosts", "127.0.0.1 localhost carrel\n::1 localhost ip6-localhost\n"},
        {"etc/host.conf", "multi on\n"},
        {"etc/hostname", "carrel\n"},
        {"etc/resolv.conf", resolver(run)},
        {"etc/machine-id", arena_copy(&run->arena, compact, n)},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (!rootfs_add_file(run, files[i][0], files[i][1]))
            return rootfs_full(err);
    }
    return copy_localtime(run, err);
}

/* `python`, where the host knows it as python3 only: last on the PATH, so that every other one is
 * found before it. */
static int add_python(struct run *run, struct err *err)
{
    static const char *const found_at[] = {"/usr/local/bin/python3", "/usr/bin/python3"};

    for (size_t i = 0; i < sizeof(found_at) / sizeof(found_at[0]); i++) {
        if (access(found_at[i], X_OK) < 0)
            continue;
        if (!rootfs_add_dir(run, "etc/carrel", 0) || !rootfs_add_dir(run, "etc/carrel/bin", 0) ||
            !rootfs_add(run, OP_LINK, found_at[i], "etc/carrel/bin/python"))
            return rootfs_full(err);
        return 0;
    }
    return 0;
}

/* What is trusted besides, and all of it in one file, which is also in the place of the host's. */
static int add_authority(struct run *run, struct err *err)
{
    struct op *bundle;
    struct op *java = NULL;

    if (!run->authority_cert)
        return 0;
    if (!rootfs_add_dir(run, "etc/carrel", 0) ||
        !rootfs_add_file(run, AUTHORITY_DIR "/" AUTHORITY_FILE, run->authority_cert) ||
        !(bundle = rootfs_add_file(run, AUTHORITY_DIR "/" AUTHORITY_BUNDLE, run->authority_cert)) ||
        (*run->authority_java &&
         !(java = rootfs_add_file(run, AUTHORITY_DIR "/" AUTHORITY_JAVA, run->authority_java))))
        return rootfs_full(err);
    bundle->layer = authority_of_host();
    if (java)
        java->flags |= OP_BASE64;
    return 0;
}

static int show_instead(struct run *run, const char *source, const char *host, uint64_t attrs)
{
    char path[4096];

    if (!host || !realpath(host, path) || strncmp(path, "/etc/", 5) != 0)
        return 0;
    return add_show(run, source, arena_copy(&run->arena, path + 1, strlen(path + 1)), attrs) ? 0
                                                                                             : -1;
}

static int show_authority(struct run *run, uint64_t attrs, struct err *err)
{
    if (!run->authority_cert)
        return 0;
    if (show_instead(run, AUTHORITY_DIR "/" AUTHORITY_BUNDLE, authority_of_host(), attrs) < 0 ||
        (*run->authority_java &&
         show_instead(run, AUTHORITY_DIR "/" AUTHORITY_JAVA, authority_java_of_host(), attrs) < 0))
        return rootfs_full(err);
    return 0;
}

static int add_etc_cover(void *context, const char *path, const struct stat *st)
{
    struct run *run = context;
    struct op *op = rootfs_add(run, OP_MASK, "", arena_copy(&run->arena, path, strlen(path)));

    if (!op)
        return -ENOMEM;
    op->attrs = MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC;
    op->mode = S_ISDIR(st->st_mode) ? S_IFDIR : S_IFREG;
    return 0;
}

/* One directory of the host's, with covers over what must not be seen; a whole cover where that
 * cannot be said of all it holds. */
static int add_etc_linked(struct run *run, const char *name, struct err *err)
{
    char path[NAME_MAX + 8];
    uint64_t attrs = system_attrs() | MOUNT_NOEXEC;
    uint32_t before = run->setup.op_count;

    snprintf(path, sizeof(path), "/etc/%s", name);
    const char *target = arena_copy(&run->arena, path + 1, strlen(path + 1));
    if (rootfs_add_bind(run, path, target, attrs, OP_RECURSIVE, err) < 0)
        return -1;
    /* A leased uid is nobody's on the host; where there is none, see live_use_owner_directly. */
    int r = etc_linked_closed(name, run->host.can_lease, add_etc_cover, run);
    if (r == -E2BIG) {
        run->setup.op_count = before + 1;
        r = add_etc_cover(run, target, &(struct stat){.st_mode = S_IFDIR});
    }
    return r < 0 ? rootfs_full(err) : 0;
}

static int add_etc(struct run *run, struct err *err)
{
    const char *linked[ETC_LINKED_MAX];
    uint64_t attrs = system_attrs() | MOUNT_NOEXEC;
    char path[NAME_MAX + 8];

    if (weak("own-etc"))
        return rootfs_add_bind(run, "/etc", "etc", attrs, OP_RECURSIVE, err);
    for (size_t i = 0; i < sizeof(etc_dirs) / sizeof(etc_dirs[0]); i++)
        (void)rootfs_add_dir(run, etc_dirs[i], 0);
    if (add_etc_files(run, err) < 0 || add_python(run, err) < 0 || add_authority(run, err) < 0)
        return -1;
    size_t count = sizeof(etc_from_host) / sizeof(etc_from_host[0]);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "/etc/%s", etc_from_host[i].name);
        if (access(path, F_OK) < 0)
            continue;
        const char *target = arena_copy(&run->arena, path + 1, strlen(path + 1));
        if (etc_from_host[i].directory ? !rootfs_add_dir(run, target, 0)
                                       : !rootfs_add_file(run, target, ""))
            return rootfs_full(err);
    }
    int linked_count = etc_linked_find(&run->arena, linked);
    if (linked_count < 0)
        return err_set(err, ERR_IO, -linked_count, "look through '/etc'");
    for (int i = 0; i < linked_count; i++) {
        snprintf(path, sizeof(path), "etc/%s", linked[i]);
        if (!rootfs_add_dir(run, arena_copy(&run->arena, path, strlen(path)), 0))
            return rootfs_full(err);
    }
    if (!add_show(run, "etc", "etc", attrs))
        return rootfs_full(err);
    for (int i = 0; i < linked_count; i++) {
        if (add_etc_linked(run, linked[i], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "/etc/%s", etc_from_host[i].name);
        const char *target = arena_copy(&run->arena, path + 1, strlen(path + 1));
        if (add_bind_if_there(run, path, target, attrs, OP_RECURSIVE, err) < 0)
            return -1;
    }
    return show_authority(run, attrs, err);
}

/* Kernel files and directories that tell of the host, or act on it. What a kernel does not have
 * needs no cover. */
static const char *const masked_files[] = {
    "proc/buddyinfo",   "proc/cmdline",     "proc/config.gz",  "proc/diskstats",
    "proc/interrupts",  "proc/iomem",       "proc/ioports",    "proc/kallsyms",
    "proc/kcore",       "proc/key-users",   "proc/keys",       "proc/kmsg",
    "proc/kpagecgroup", "proc/kpagecount",  "proc/kpageflags", "proc/latency_stats",
    "proc/locks",       "proc/mdstat",      "proc/modules",    "proc/pagetypeinfo",
    "proc/partitions",  "proc/sched_debug", "proc/schedstat",  "proc/slabinfo",
    "proc/softirqs",    "proc/swaps",       "proc/timer_list", "proc/timer_stats",
    "proc/vmallocinfo", "proc/vmstat",      "proc/zoneinfo",
};

static const char *const masked_dirs[] = {
    "proc/acpi", "proc/asound", "proc/driver", "proc/dynamic_debug", "proc/pressure", "proc/scsi",
};

static const char *const proc_read_only[] = {"proc/bus", "proc/fs", "proc/irq", "proc/sys",
                                             "proc/sysrq-trigger"};

static int add_covers(struct run *run, enum op_kind kind, const char *const *names, size_t count,
                      uint32_t mode)
{
    for (size_t i = 0; i < count; i++) {
        struct op *op = rootfs_add(run, kind, "", names[i]);
        if (!op)
            return -1;
        op->attrs = MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC;
        op->mode = mode;
    }
    return 0;
}

static int add_proc_covers(struct run *run, struct err *err)
{
    size_t files = sizeof(masked_files) / sizeof(masked_files[0]);
    size_t dirs = sizeof(masked_dirs) / sizeof(masked_dirs[0]);
    size_t locks = sizeof(proc_read_only) / sizeof(proc_read_only[0]);

    if (add_covers(run, OP_MASK, masked_files, files, S_IFREG) < 0 ||
        add_covers(run, OP_MASK, masked_dirs, dirs, S_IFDIR) < 0 ||
        add_covers(run, OP_LOCK, proc_read_only, locks, 0) < 0)
        return rootfs_full(err);
    return 0;
}

static int add_proc_files(struct run *run, struct err *err)
{
    const struct {
        const char *name;
        const char *target;
        const char *content;
    } files[] = {
        {"cpuinfo", "proc/cpuinfo", procfile_cpuinfo(&run->arena, &run->host)},
        {"meminfo", "proc/meminfo", procfile_meminfo(&run->arena, &run->host)},
        {"stat", "proc/stat", procfile_stat(&run->arena, &run->host)},
        {"loadavg", "proc/loadavg", "0.00 0.00 0.00 1/1 1\n"},
        {"boot_id", "proc/sys/kernel/random/boot_id", procfile_random_id(&run->arena)},
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (!rootfs_add_file(run, files[i].name, files[i].content) ||
            !add_show(run, files[i].name, files[i].target, system_attrs() | MOUNT_NOEXEC))
            return rootfs_full(err);
    }
    return 0;
}

static int add_proc(struct run *run, struct err *err)
{
    if (weak("ns-pid"))
        return rootfs_add_bind(run, "/proc", "proc", 0, OP_RECURSIVE, err);
    struct op *op = rootfs_add(run, OP_PROC, "", "proc");
    if (!op)
        return rootfs_full(err);
    op->attrs = MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC;
    if (!weak("proc-masks") && add_proc_covers(run, err) < 0)
        return -1;
    if (!weak("proc-own") && add_proc_files(run, err) < 0)
        return -1;
    return 0;
}

static const char *const dev_nodes[] = {"dev/null",   "dev/zero",    "dev/full",
                                        "dev/random", "dev/urandom", "dev/tty"};

static int add_dev_nodes(struct run *run, struct err *err)
{
    char path[32];

    for (size_t i = 0; i < sizeof(dev_nodes) / sizeof(dev_nodes[0]); i++) {
        snprintf(path, sizeof(path), "/%s", dev_nodes[i]);
        if (rootfs_add_bind(run, path, dev_nodes[i], MOUNT_NOSUID | MOUNT_NOEXEC, 0, err) < 0)
            return -1;
    }
    return 0;
}

static int add_dev(struct run *run, struct err *err)
{
    static const char *const links[][2] = {{"dev/fd", "/proc/self/fd"},
                                           {"dev/stdin", "/proc/self/fd/0"},
                                           {"dev/stdout", "/proc/self/fd/1"},
                                           {"dev/stderr", "/proc/self/fd/2"},
                                           {"dev/ptmx", "pts/ptmx"}};

    if (weak("own-dev"))
        return rootfs_add_bind(run, "/dev", "dev", 0, OP_RECURSIVE, err);
    (void)rootfs_add_dir(run, "dev", 0);
    (void)rootfs_add_dir(run, "dev/pts", 0);
    (void)rootfs_add_dir(run, "dev/shm", 0);
    for (size_t i = 0; i < sizeof(dev_nodes) / sizeof(dev_nodes[0]); i++)
        (void)rootfs_add_file(run, dev_nodes[i], "");
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        (void)rootfs_add(run, OP_LINK, links[i][1], links[i][0]);
    if (!add_show(run, "dev", "dev", MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NOEXEC))
        return rootfs_full(err);
    if (add_dev_nodes(run, err) < 0)
        return -1;
    struct op *pts = rootfs_add(run, OP_DEVPTS, "", "dev/pts");
    struct op *shm = rootfs_add_tmpfs(run, "dev/shm", limits_tmp_bytes(run->spec), 01777);
    if (!pts || !shm)
        return rootfs_full(err);
    pts->attrs = MOUNT_NOSUID | MOUNT_NOEXEC;
    pts->gid = run->setup.gid; /* the only group sure to be mapped */
    shm->attrs |= MOUNT_NOEXEC;
    return 0;
}

static int add_temporary(struct run *run, struct err *err)
{
    if (!rootfs_add_tmpfs(run, "tmp", limits_tmp_bytes(run->spec), 01777) ||
        !rootfs_add_tmpfs(run, ".cache", limits_tmp_bytes(run->spec), 0700))
        return rootfs_full(err);
    return 0;
}

/* "/a/b" -> "a/b"; NULL unless absolute, without empty, "." or ".." parts. */
static const char *relative_target(const char *target)
{
    if (target[0] != '/' || target[1] == '\0')
        return NULL;
    for (const char *part = target; *part == '/';) {
        size_t n = strcspn(part + 1, "/");
        if (n == 0 || n > 255 || (n == 1 && part[1] == '.') ||
            (n == 2 && part[1] == '.' && part[2] == '.'))
            return NULL;
        part += 1 + n;
    }
    return target + 1;
}

/* Whether `path` is `above` or lies below it. */
static bool is_within(const char *path, const char *above)
{
    size_t n = strlen(above);

    return strncmp(path, above, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int refuse_reserved(const struct run *run, const char *target, struct err *err)
{
    static const char *const reserved[] = {
        "usr",    "bin", "sbin", "lib", "lib32",           "lib64",
        "libx32", "etc", "proc", "dev", CARREL_LAYER_NAMES};
    size_t own =
        run->spec->base ? 0 : sizeof((const char *[]){CARREL_LAYER_NAMES}) / sizeof(char *);

    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]) - own; i++) {
        if (is_within(target, reserved[i]))
            return err_set(err, ERR_INVALID, 0,
                           "mount target '/%s' lies in '/%s', which Carrel provides itself; choose "
                           "another place, for example /mnt",
                           target, reserved[i]);
    }
    return 0;
}

/* Directories on file systems that are ours (the empty root, /tmp, /.cache), one by one. */
static int add_target_dirs(struct run *run, const char *target, bool is_directory, struct err *err)
{
    for (const char *slash = strchr(target, '/'); slash; slash = strchr(slash + 1, '/')) {
        const char *parent = arena_copy(&run->arena, target, (size_t)(slash - target));
        if (!rootfs_add_dir(run, parent, OP_IN_ROOT))
            return rootfs_full(err);
    }
    struct op *last =
        is_directory ? rootfs_add_dir(run, target, OP_IN_ROOT) : rootfs_add_file(run, target, "");
    if (!last)
        return rootfs_full(err);
    last->flags = OP_IN_ROOT;
    return 0;
}

/* Compares a target with the mounts asked for before it. Below one of them its mount point must be
 * there already: making it would be writing into that tree by name. Over one, it would hide it. */
static int compare_with_earlier(const struct run *run, const char *target, bool *ret_nested,
                                struct err *err)
{
    *ret_nested = false;
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        const struct op *op = &run->setup.ops[i];
        if (!op_has_tree(op) || !(op->flags & OP_OWNED) || op->target[0] == '\0')
            continue;
        if (is_within(target, op->target) && (op->flags & OP_READY))
            return err_set(
                err, ERR_INVALID, 0,
                "mount target '/%s' lies in '/%s', which is served from elsewhere; choose "
                "another place",
                target, op->target);
        if (is_within(target, op->target) && strcmp(target, op->target) != 0)
            *ret_nested = true;
        else if (is_within(op->target, target))
            return err_set(
                err, ERR_INVALID, 0,
                "mount target '/%s' would hide '/%s', which was given before it; give the "
                "outer one first",
                target, op->target);
    }
    return 0;
}

static int check_source(const struct run *run, int fd, const struct carrel_mount *mount,
                        mode_t *ret_mode, struct err *err)
{
    const char *source = mount->source;
    struct stat st;
    struct stat root;

    if (fstat(fd, &st) < 0 || stat("/", &root) < 0)
        return err_set(err, ERR_IO, errno, "look at mount source '%s'", source);
    if (mount->layer && !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, 0,
                       "mount source '%s' is no directory, and only that can have a layer", source);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "mount source '%s' is neither a directory nor a file",
                       source);
    if (path_is_of_the_kernel(fd) && !run->imagined)
        return err_set(
            err, ERR_DENIED, 0,
            "mount source '%s' shows the kernel and the host's processes; it is not given "
            "to a sandbox",
            source);
    if (st.st_dev == root.st_dev && st.st_ino == root.st_ino)
        return err_set(err, ERR_DENIED, 0,
                       "mounting '/' would show the whole host; mount the directories you need");
    *ret_mode = st.st_mode;
    return 0;
}

/* The layer a mount was given, or a plan's where it shows the tree; *ret NULL: none. */
static int open_layer(struct run *run, int fd, const struct carrel_mount *mount, struct layer **ret,
                      struct err *err)
{
    *ret = fd == run->workspace ? run->plan : NULL;
    if (!mount->layer || weak("layer"))
        return 0;
    return overlay_open(run, mount->layer, fd, mount->writable ? 0 : OP_SHOWN, ret, err);
}

/* A mount the caller asked for, of what `fd` is open on, at its target as checked. The operations
 * that make its mount point come before it. */
static int add_user_bind(struct run *run, int fd, const struct carrel_mount *mount, struct err *err)
{
    const char *target = mount->target;
    struct layer *layer;
    mode_t mode = 0;
    bool nested;
    bool ours = !run->spec->workspace || is_within(target, "tmp") || is_within(target, ".cache");

    if (check_source(run, fd, mount, &mode, err) < 0 || refuse_reserved(run, target, err) < 0 ||
        compare_with_earlier(run, target, &nested, err) < 0)
        return -1;
    if (ours && !nested && add_target_dirs(run, target, S_ISDIR(mode), err) < 0)
        return -1;
    struct op as = {.target = target,
                    .attrs = mount->writable ? rootfs_data_attrs() : system_attrs(),
                    .flags = OP_RECURSIVE | OP_OWNED | (ours || nested ? 0 : OP_TOP)};
    if (open_layer(run, fd, mount, &layer, err) < 0)
        return -1;
    return rootfs_add_opened(run, fd, mount->source, &as, layer, err);
}

/* A mount that is there already, at a name at the top: on the way to it nothing can hang, and
 * nobody asks it anything. */
static int add_ready(struct run *run, const struct carrel_mount *mount, struct err *err)
{
    const char *target = mount->target;
    bool nested;

    if (strchr(target, '/') || strcmp(target, "tmp") == 0 || strcmp(target, ".cache") == 0)
        return err_set(err, ERR_INVALID, 0,
                       "'%s' cannot be shown at '/%s': choose a name at the top that is not "
                       "Carrel's, such as /projects",
                       mount->source, target);
    if (refuse_reserved(run, target, err) < 0 ||
        compare_with_earlier(run, target, &nested, err) < 0 ||
        (!run->spec->workspace && add_target_dirs(run, target, true, err) < 0))
        return -1;
    struct op *op = rootfs_add(run, OP_BIND, mount->source, target);
    if (!op)
        return rootfs_full(err);
    op->attrs = mount->writable ? rootfs_data_attrs() : system_attrs();
    op->flags = OP_OWNED | OP_READY | (run->spec->workspace ? OP_TOP : 0);
    op->mode = S_IFDIR;
    if (mount->ready < 0 || run->dry)
        return 0;
    int fd = fcntl(mount->ready, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return err_set(err, ERR_LIMIT, errno, "keep the mount of '%s'", mount->source);
    run->sources[op - run->setup.ops] = fd;
    return 0;
}

/* A target as the caller wrote it, with single slashes and none at its end. */
static const char *checked_target(struct run *run, const char *asked, struct err *err)
{
    size_t n = 0;
    char *copy = arena_copy(&run->arena, asked, strlen(asked));

    for (const char *c = asked; copy && *c; c++) {
        if (*c != '/' || n == 0 || copy[n - 1] != '/')
            copy[n++] = *c;
    }
    while (copy && n > 1 && copy[n - 1] == '/')
        n--;
    if (copy)
        copy[n] = '\0';
    const char *target = copy ? relative_target(copy) : NULL;
    if (!target)
        (void)err_set(err, ERR_INVALID, 0,
                      "mount target '%s' is not an absolute path other than / without ..", asked);
    return target;
}

static int add_extra(struct run *run, struct err *err)
{
    const struct carrel_mount *mounts = run->spec->mounts;

    if (!run->spec->workspace) {
        struct carrel_mount work = {.source = run->workspace_path, .writable = true};
        work.target = checked_target(run, run->spec->at ? run->spec->at : "/work", err);
        if (!work.target || add_user_bind(run, run->workspace, &work, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < run->spec->mount_count; i++) {
        struct carrel_mount mount = mounts[i];
        mount.target = checked_target(run, mount.target ? mount.target : mount.source, err);
        if (mount.target && mount.ready) {
            if (add_ready(run, &mount, err) < 0)
                return -1;
            continue;
        }
        scoped_fd int fd = mount.target ? open(mount.source, O_PATH | O_CLOEXEC) : -1;
        if (mount.target && fd < 0)
            return err_set(err, ERR_NOT_FOUND, errno, "mount source '%s'", mount.source);
        if (!mount.target || add_user_bind(run, fd, &mount, err) < 0)
            return -1;
    }
    return 0;
}

/* The host's system, or a base's with what this workspace has changed of it. */
static int add_whose_system(struct run *run, struct err *err)
{
    for (size_t i = 0; i < OWN_NAMES; i++)
        (void)rootfs_add_dir(run, own_names[i], OP_IN_ROOT);
    if (run->spec->base)
        return system_write_frame(run, resolver(run), err);
    return add_system(run, err) < 0 ? -1 : add_etc(run, err);
}

int rootfs_write_frame(struct run *run, struct err *err)
{
    if (add_whose_system(run, err) < 0 || add_proc(run, err) < 0 || add_dev(run, err) < 0 ||
        add_temporary(run, err) < 0)
        return -1;
    run->setup.frame_count = run->setup.op_count;
    return run->setup.op_count == SETUP_MAX_OPS ? rootfs_full(err) : 0;
}

int rootfs_write_root(struct run *run, struct err *err)
{
    if (add_root(run, err) < 0 || add_moves(run, err) < 0 || add_extra(run, err) < 0)
        return -1;
    return run->setup.op_count == SETUP_MAX_OPS ? rootfs_full(err) : 0;
}
