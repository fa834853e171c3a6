/* SPDX-License-Identifier: Apache-2.0 */
/* The setup as inert data: what would be mounted, with which flags, and what is taken away. */
#include "scene.h"

#include <linux/mount.h>
#include <sched.h>

#include "sys/uapi.h"

#define ANY_MOUNT (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define SYSTEM    (MOUNT_ATTR_RDONLY | ANY_MOUNT)

static const struct op *find(const struct scene *s, enum op_kind kind, const char *target)
{
    for (uint32_t i = 0; i < s->run->setup.op_count; i++) {
        const struct op *op = &s->run->setup.ops[i];
        if (op->kind == kind && strcmp(op->target, target) == 0)
            return op;
    }
    return NULL;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool has(uint64_t attrs, uint64_t wanted)
{
    return (attrs & wanted) == wanted;
}

/* The shapes a sandbox comes in; what must hold for one must hold for all. */
enum {
    SHAPES = 5
};

static void shape(struct scene *s, int which, struct carrel_mount mounts[2])
{
    s->spec = (struct carrel_spec){.argv = a_command};
    mounts[0] = (struct carrel_mount){s->folder, "/mnt/data", false, NULL, 0};
    mounts[1] = (struct carrel_mount){in_folder(s, "file"), "/tmp/deep/file", true, NULL, 0};
    if (which < 3)
        s->spec.workspace = in_folder(s, "ws");
    if (which == 1 || which == 4) {
        s->spec.mounts = mounts;
        s->spec.mount_count = 2;
    }
    if (which == 2) {
        s->spec.net = CARREL_NET_HOST;
        s->spec.user = CARREL_USER_ROOT;
    }
    if (which == 4)
        s->spec.at = "/home/me/project";
}

#define FOR_EVERY_SHAPE(scene)                                                                     \
    struct carrel_mount mounts[2];                                                                 \
    for (int i = 0; i < SHAPES; i++)                                                               \
        if (shape(&(scene), i, mounts), prepare(&(scene)) < 0) {                                   \
            CHECK_FOR((scene).err.msg, !"prepared");                                               \
        } else

/* --- what every setup has to keep --- */

TEST(no_operation_names_a_place_outside_the_new_root)
{
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        for (uint32_t n = 0; n < s.run->setup.op_count; n++) {
            const char *target = s.run->setup.ops[n].target;
            char with_slashes[512];
            snprintf(with_slashes, sizeof(with_slashes), "/%s/", target);
            CHECK_FOR(target, target[0] != '/');
            CHECK_FOR(target, !strstr(with_slashes, "/../") && !strstr(with_slashes, "/./"));
            bool root = n == s.run->setup.frame_count; /* once, before all that goes on it */
            CHECK_FOR(target, root || !strstr(with_slashes, "//"));
            CHECK_FOR(target, (target[0] == '\0') == root);
        }
    }
    return 0;
}

TEST(every_bind_is_nosuid_and_all_but_the_device_nodes_are_nodev)
{
    static const char *const nodes[] = {"dev/null",   "dev/zero",    "dev/full",
                                        "dev/random", "dev/urandom", "dev/tty"};
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        unsigned devices = 0;
        for (uint32_t n = 0; n < s.run->setup.op_count; n++) {
            const struct op *op = &s.run->setup.ops[n];
            if (op->kind != OP_BIND)
                continue;
            bool is_node = false;
            for (size_t d = 0; d < LENGTH(nodes); d++)
                is_node |= strcmp(op->target, nodes[d]) == 0;
            devices += is_node;
            CHECK_FOR(op->target, has(op->attrs, MOUNT_ATTR_NOSUID));
            CHECK_FOR(op->target, is_node || has(op->attrs, MOUNT_ATTR_NODEV));
            CHECK_FOR(op->target, !is_node || has(op->attrs, MOUNT_ATTR_NOEXEC));
            CHECK_FOR(op->target, !is_node || S_ISCHR(op->mode));
        }
        CHECK(devices == LENGTH(nodes));
    }
    return 0;
}

TEST(every_bind_of_the_system_is_read_only_all_the_way_down)
{
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        unsigned seen = 0;
        for (uint32_t n = 0; n < s.run->setup.op_count; n++) {
            const struct op *op = &s.run->setup.ops[n];
            if (op->kind != OP_BIND || (op->flags & OP_OWNED) || starts(op->target, "dev/"))
                continue;
            seen++;
            CHECK_FOR(op->target, has(op->attrs, SYSTEM));
            CHECK_FOR(op->target, op->flags & OP_RECURSIVE);
            CHECK_FOR(op->target, !starts(op->target, "etc") || has(op->attrs, MOUNT_ATTR_NOEXEC));
        }
        CHECK(seen >= 2);
        CHECK(find(&s, OP_BIND, "usr") != NULL);
    }
    return 0;
}

/* Only what was asked for, the system's programs, and what is listed of /etc and /dev. */
TEST(nothing_else_of_the_host_is_shown)
{
    static const char *const system_targets[] = {"usr",   "bin",   "sbin",   "lib",
                                                 "lib32", "lib64", "libx32", NULL};
    static const char *const never[] = {"/",     "/etc", "/proc", "/sys", "/dev", "/root", "/home",
                                        "/boot", "/var", "/run",  "/srv", "/tmp", "/mnt",  NULL};
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        for (uint32_t n = 0; n < s.run->setup.op_count; n++) {
            const struct op *op = &s.run->setup.ops[n];
            if (op->kind != OP_BIND)
                continue;
            bool known = starts(op->source, s.folder) || starts(op->target, "etc/") ||
                         starts(op->target, "dev/");
            for (size_t i = 0; system_targets[i]; i++)
                known |= strcmp(op->target, system_targets[i]) == 0;
            CHECK_FOR(op->source, known);
            for (size_t i = 0; never[i]; i++)
                CHECK_FOR(op->source, strcmp(op->source, never[i]) != 0);
        }
    }
    return 0;
}

TEST(no_secret_of_the_hosts_etc_is_shown)
{
    static const char *const secrets[] = {"shadow",      "gshadow",  "passwd",     "group",
                                          "ssh",         "sudoers",  "hosts",      "hostname",
                                          "fstab",       "crypttab", "machine-id", "krb5.keytab",
                                          "ssl/private", "ssl",      "apt"};
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        for (size_t n = 0; n < LENGTH(secrets); n++) {
            char target[64];
            snprintf(target, sizeof(target), "etc/%s", secrets[n]);
            CHECK_FOR(target, !find(&s, OP_BIND, target));
        }
        const struct op *passwd = find(&s, OP_FILE, "etc/passwd");
        CHECK(passwd && starts(passwd->source, "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:"));
        CHECK(!find(&s, OP_FILE, "etc/shadow"));
    }
    return 0;
}

TEST(proc_is_the_sandboxes_own_masked_and_locked)
{
    static const char *const masks[] = {"kcore",   "kallsyms",   "keys",        "kmsg",
                                        "modules", "timer_list", "sched_debug", "cmdline"};
    static const char *const locks[] = {"sys", "sysrq-trigger", "irq", "bus", "fs"};
    static const char *const own[] = {"cpuinfo", "meminfo", "stat", "loadavg",
                                      "sys/kernel/random/boot_id"};
    char path[64];
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        const struct op *proc = find(&s, OP_PROC, "proc");
        CHECK(proc && has(proc->attrs, ANY_MOUNT | MOUNT_ATTR_NOEXEC));
        CHECK(!find(&s, OP_BIND, "proc"));
        for (size_t n = 0; n < LENGTH(masks); n++) {
            snprintf(path, sizeof(path), "/proc/%s", masks[n]);
            const struct op *mask = find(&s, OP_MASK, path + 1);
            CHECK_FOR(path, mask || access(path, F_OK) < 0);
            CHECK_FOR(path, !mask || (mask > proc && has(mask->attrs, MOUNT_ATTR_RDONLY)));
        }
        for (size_t n = 0; n < LENGTH(locks); n++) {
            snprintf(path, sizeof(path), "proc/%s", locks[n]);
            const struct op *lock = find(&s, OP_LOCK, path);
            CHECK_FOR(path, lock && lock > proc && has(lock->attrs, SYSTEM));
        }
        for (size_t n = 0; n < LENGTH(own); n++) {
            snprintf(path, sizeof(path), "proc/%s", own[n]);
            const struct op *show = find(&s, OP_SHOW, path);
            CHECK_FOR(path, show && show > proc && has(show->attrs, SYSTEM));
        }
    }
    return 0;
}

TEST(etc_and_dev_of_our_own_are_read_only)
{
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        const struct op *etc = find(&s, OP_SHOW, "etc");
        const struct op *dev = find(&s, OP_SHOW, "dev");
        CHECK(etc && has(etc->attrs, SYSTEM | MOUNT_ATTR_NOEXEC));
        CHECK(dev && has(dev->attrs, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
        CHECK(!find(&s, OP_BIND, "etc") && !find(&s, OP_BIND, "dev"));
        const struct op *pts = find(&s, OP_DEVPTS, "dev/pts");
        CHECK(pts && pts > dev && has(pts->attrs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
    }
    return 0;
}

TEST(every_tmpfs_is_bounded_and_the_users)
{
    static const char *const targets[] = {"tmp", ".cache", "dev/shm"};
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        for (uint32_t n = 0; n < s.run->setup.op_count; n++) {
            const struct op *op = &s.run->setup.ops[n];
            if (op->kind != OP_TMPFS)
                continue;
            CHECK_FOR(op->target, op->bytes > 0 && op->inodes > 0);
            CHECK_FOR(op->target, has(op->attrs, ANY_MOUNT));
            CHECK_FOR(op->target, op->uid == s.run->setup.uid && op->gid == s.run->setup.gid);
        }
        for (size_t n = 0; n < LENGTH(targets); n++)
            CHECK_FOR(targets[n], find(&s, OP_TMPFS, targets[n]) != NULL);
        CHECK(has(find(&s, OP_TMPFS, "dev/shm")->attrs, MOUNT_ATTR_NOEXEC));
    }
    return 0;
}

/* What is made by name in the root must not be made in somebody's tree: pid 1 would follow the
 * links there, out of the sandbox. */
TEST(nothing_is_made_by_name_inside_a_bound_tree)
{
    struct carrel_mount nested[3];
    SCENE(s);

    s.spec.workspace = NULL;
    nested[0] = (struct carrel_mount){in_folder(&s, "ws"), "/work/link/x", false, NULL, 0};
    nested[1] = (struct carrel_mount){in_folder(&s, "ws"), "/data", true, NULL, 0};
    nested[2] = (struct carrel_mount){in_folder(&s, "file"), "/data/link/y", true, NULL, 0};
    s.spec.mounts = nested;
    s.spec.mount_count = 3;
    if (prepare(&s) < 0)
        return 0; /* refused altogether: as good */
    for (uint32_t i = 0; i < s.run->setup.op_count; i++) {
        const struct op *made = &s.run->setup.ops[i];
        if ((made->kind != OP_DIR && made->kind != OP_FILE) || !(made->flags & OP_IN_ROOT))
            continue;
        for (uint32_t j = 0; j < i; j++) {
            const struct op *bind = &s.run->setup.ops[j];
            size_t n = strlen(bind->target);
            CHECK_FOR(made->target, bind->kind != OP_BIND || !starts(made->target, bind->target) ||
                                        made->target[n] != '/');
        }
    }
    return 0;
}

TEST(the_frame_holds_nothing_of_the_tenants)
{
    SCENE(s);
    FOR_EVERY_SHAPE(s)
    {
        uint32_t frame = s.run->setup.frame_count;
        CHECK(frame > 0 && frame < s.run->setup.op_count);
        for (uint32_t n = 0; n < s.run->setup.op_count; n++) {
            const struct op *op = &s.run->setup.ops[n];
            CHECK_FOR(op->target, n >= frame || !(op->flags & (OP_OWNED | OP_TOP)));
            CHECK_FOR(op->target, n < frame || op->kind != OP_PROC);
            CHECK_FOR(op->target, (op->kind == OP_MOVE) <= (n >= frame));
        }
    }
    return 0;
}

/* --- the tree that is read-write --- */

TEST(a_workspace_is_the_root_writable_and_its_owners)
{
    SCENE(s);

    CHECK(prepare(&s) == 0);
    const struct op *root = &s.run->setup.ops[s.run->setup.frame_count];
    CHECK(root->kind == OP_BIND && has(root->attrs, ANY_MOUNT));
    CHECK(!has(root->attrs, MOUNT_ATTR_RDONLY));
    CHECK(strcmp(root->source, in_folder(&s, "ws")) == 0);
    CHECK(root->flags & OP_OWNED);
    CHECK(strcmp(s.run->command.cwd, "/") == 0);
    /* Names in a tree that the tenant writes are reached without crossing a mount. */
    static const char *const moved[] = {"usr", "etc", "proc", "dev", "tmp", ".cache"};
    for (size_t i = 0; i < LENGTH(moved); i++)
        CHECK_FOR(moved[i], find(&s, OP_MOVE, moved[i])->flags & OP_TOP);
    return 0;
}

TEST(without_a_workspace_the_current_directory_is_at_work_on_an_empty_root)
{
    SCENE(s);

    s.spec.workspace = NULL;
    CHECK(prepare(&s) == 0);
    CHECK(s.run->setup.ops[s.run->setup.frame_count].kind == OP_TMPFS);
    const struct op *work = find(&s, OP_BIND, "work");
    CHECK(work && strcmp(work->source, s.folder) == 0);
    CHECK(has(work->attrs, ANY_MOUNT) && !has(work->attrs, MOUNT_ATTR_RDONLY));
    CHECK(strcmp(s.run->command.cwd, "/work") == 0);
    s.spec.at = "/src/deep";
    CHECK(prepare(&s) == 0);
    CHECK(find(&s, OP_BIND, "src/deep") && !find(&s, OP_BIND, "work"));
    CHECK(strcmp(s.run->command.cwd, "/src/deep") == 0);
    return 0;
}

TEST(a_dry_run_makes_no_workspace)
{
    SCENE(s);

    s.spec.workspace = in_folder(&s, "new");
    s.spec.create = true;
    CHECK(prepare(&s) < 0 || access(in_folder(&s, "new"), F_OK) < 0);
    CHECK(access(in_folder(&s, "new"), F_OK) < 0);
    return 0;
}

TEST(workspaces_that_are_missing_no_directory_or_the_whole_host_are_refused)
{
    static const char *const names[] = {"missing", "file", "fifo", ""};
    SCENE(s);

    for (size_t i = 0; i < LENGTH(names); i++) {
        s.spec.workspace = i == 3 ? "/" : in_folder(&s, names[i]);
        CHECK_FOR(s.spec.workspace, prepare(&s) < 0);
        CHECK_FOR(s.spec.workspace, s.err.msg[0] != '\0');
    }
    return 0;
}

/* --- mounts that were asked for --- */

TEST(asked_mounts_are_read_only_unless_writable_was_said)
{
    struct carrel_mount mounts[2];
    SCENE(s);

    mounts[0] = (struct carrel_mount){s.folder, "/mnt/ro", false, NULL, 0};
    mounts[1] = (struct carrel_mount){s.folder, "/mnt/rw", true, NULL, 0};
    s.spec.mounts = mounts;
    s.spec.mount_count = 2;
    for (int with_workspace = 0; with_workspace < 2; with_workspace++) {
        s.spec.workspace = with_workspace ? in_folder(&s, "ws") : NULL;
        CHECK(prepare(&s) == 0);
        const struct op *ro = find(&s, OP_BIND, "mnt/ro");
        const struct op *rw = find(&s, OP_BIND, "mnt/rw");
        CHECK(ro && has(ro->attrs, SYSTEM) && (ro->flags & OP_RECURSIVE));
        CHECK(rw && has(rw->attrs, ANY_MOUNT) && !has(rw->attrs, MOUNT_ATTR_RDONLY));
    }
    return 0;
}

TEST(mounts_on_names_of_the_system_or_on_odd_names_are_refused)
{
    static const char *const targets[] = {
        "/",       "",        "relative", "/usr",      "/usr/local/x", "/bin",
        "/sbin/x", "/lib",    "/lib64",   "/libx32/y", "/etc",         "/etc/x",
        "/proc",   "/proc/1", "/dev",     "/dev/x",    "/a/../b",      "/..",
        "/.",      "/./a",    "/a/.",     "/../usr",   "/a/..",
    };
    char long_name[300];
    SCENE(s);
    struct carrel_mount mount = {s.folder, NULL, false, NULL, 0};

    s.spec.mounts = &mount;
    s.spec.mount_count = 1;
    for (size_t i = 0; i < LENGTH(targets); i++) {
        mount.target = targets[i];
        CHECK_FOR(targets[i], prepare(&s) < 0);
        CHECK_FOR(targets[i], s.err.code == ERR_INVALID);
    }
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[0] = '/';
    long_name[sizeof(long_name) - 1] = '\0';
    mount.target = long_name;
    CHECK(prepare(&s) < 0);
    mount.target = "/usrlocal/"; /* only looks like one */
    CHECK(prepare(&s) == 0);
    CHECK(find(&s, OP_BIND, "usrlocal") != NULL);
    return 0;
}

TEST(the_current_directory_cannot_be_put_on_names_of_the_system)
{
    static const char *const places[] = {"/",      "",      "work",     "/usr",
                                         "/etc/x", "/proc", "/dev/shm", "/a/../b"};
    SCENE(s);

    s.spec.workspace = NULL;
    for (size_t i = 0; i < LENGTH(places); i++) {
        s.spec.at = places[i];
        CHECK_FOR(places[i], prepare(&s) < 0);
    }
    return 0;
}

TEST(sources_that_are_missing_special_or_the_whole_host_are_refused)
{
    static const char *const sources[] = {"/nonexistent", "/dev/null", "/", "//", "/usr/..", ""};
    SCENE(s);
    struct carrel_mount mount = {NULL, "/mnt/x", false, NULL, 0};

    s.spec.mounts = &mount;
    s.spec.mount_count = 1;
    for (size_t i = 0; i < LENGTH(sources); i++) {
        mount.source = sources[i];
        CHECK_FOR(sources[i], prepare(&s) < 0);
    }
    mount.source = in_folder(&s, "fifo");
    CHECK(prepare(&s) < 0);
    return 0;
}

TEST(more_mounts_than_a_setup_holds_are_refused)
{
    static struct carrel_mount mounts[SETUP_MAX_OPS];
    static char targets[SETUP_MAX_OPS][16];
    SCENE(s);

    for (int i = 0; i < SETUP_MAX_OPS; i++) {
        snprintf(targets[i], sizeof(targets[i]), "/m%d", i);
        mounts[i] = (struct carrel_mount){s.folder, targets[i], false, NULL, 0};
    }
    s.spec.mounts = mounts;
    s.spec.mount_count = SETUP_MAX_OPS;
    CHECK(prepare(&s) < 0);
    CHECK(s.err.code == ERR_LIMIT);
    return 0;
}

TEST(the_size_asked_for_is_the_size_of_each_temporary_place)
{
    SCENE(s);

    s.spec.tmp_bytes = 12345678;
    CHECK(prepare(&s) == 0);
    CHECK(find(&s, OP_TMPFS, "tmp")->bytes == 12345678);
    CHECK(find(&s, OP_TMPFS, ".cache")->bytes == 12345678);
    CHECK(find(&s, OP_TMPFS, "dev/shm")->bytes == 12345678);
    return 0;
}

/* --- what is taken away --- */

TEST(every_namespace_is_new_and_the_network_too_unless_the_hosts_was_asked_for)
{
    uint32_t all =
        CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    SCENE(s);

    CHECK(prepare(&s) == 0);
    CHECK(has(s.run->setup.namespaces, all | CLONE_NEWNET));
    CHECK(has(s.run->setup.namespaces, CLONE_NEWTIME) || access("/proc/self/ns/time", F_OK) < 0);
    s.spec.net = CARREL_NET_HOST;
    CHECK(prepare(&s) == 0);
    CHECK(has(s.run->setup.namespaces, all));
    CHECK(!has(s.run->setup.namespaces, CLONE_NEWNET));
    return 0;
}

TEST(limits_are_set_and_never_above_what_the_caller_has)
{
    static const int set[] = {RLIMIT_CORE,   RLIMIT_NOFILE, RLIMIT_NPROC,    RLIMIT_MEMLOCK,
                              RLIMIT_RTPRIO, RLIMIT_NICE,   RLIMIT_MSGQUEUE, RLIMIT_SIGPENDING};
    SCENE(s);

    CHECK(prepare(&s) == 0);
    for (size_t i = 0; i < LENGTH(set); i++) {
        struct rlimit now;
        CHECK(getrlimit((__rlimit_resource_t)set[i], &now) == 0);
        CHECK(s.run->setup.limit_mask & (1U << set[i]));
        CHECK(s.run->setup.limits[set[i]].hard <= now.rlim_max);
        CHECK(s.run->setup.limits[set[i]].soft <= s.run->setup.limits[set[i]].hard);
    }
    CHECK(s.run->setup.limits[RLIMIT_CORE].hard <= 1);
    CHECK(s.run->setup.limits[RLIMIT_RTPRIO].hard == 0);
    return 0;
}

/* The host is lied to: it has no Landlock scopes. */
TEST(without_landlock_scopes_the_hosts_network_costs_unix_sockets)
{
    static struct setup with;
    SCENE(s);

    for (int i = 0; i < 2; i++) {
        s.spec.net = i ? CARREL_NET_HOST : CARREL_NET_NONE;
        CHECK(prepare(&s) == 0);
        s.run->host.landlock_abi = CARREL_LANDLOCK_ABI_SCOPES;
        CHECK(confinement_write(s.run, &s.err) == 0);
        CHECK(has(s.run->setup.flags, SETUP_SCOPE_SOCKETS | SETUP_SCOPE_SIGNALS));
        with = s.run->setup;
        s.run->host.landlock_abi = 0;
        s.run->setup.flags = 0;
        CHECK(confinement_write(s.run, &s.err) == 0);
        uint32_t flags = (s.run->host.can_notify ? SETUP_NOTIFY : 0) | (i ? SETUP_GUARD : 0);
        CHECK(s.run->setup.flags == flags);
        bool same = with.filter_length == s.run->setup.filter_length &&
                    memcmp(with.filter, s.run->setup.filter, sizeof(with.filter)) == 0;
        CHECK(same == (i == 0));
    }
    return 0;
}

/* ... and that it cannot hand calls to the engine, which makes the connections then. */
TEST(the_hosts_network_is_refused_where_connections_cannot_be_looked_at)
{
    SCENE(s);

    s.spec.net = CARREL_NET_HOST;
    CHECK(prepare(&s) == 0);
    CHECK(has(s.run->setup.flags, SETUP_GUARD | SETUP_NOTIFY));
    s.run->host.can_notify = false;
    CHECK(confinement_write(s.run, &s.err) < 0);
    CHECK(s.err.code == ERR_KERNEL && strstr(s.err.msg, "metadata"));
    s.spec.net = CARREL_NET_NONE;
    s.err = (struct err){0};
    CHECK(prepare(&s) == 0);
    CHECK(!(s.run->setup.flags & SETUP_GUARD));
    s.run->host.can_notify = false;
    CHECK(confinement_write(s.run, &s.err) == 0);
    return 0;
}

TEST(the_user_inside_is_never_the_hosts_root)
{
    SCENE(s);

    CHECK(prepare(&s) == 0);
    CHECK(s.run->setup.uid == 1000 && s.run->setup.gid == 1000);
    s.spec.user = CARREL_USER_ROOT;
    CHECK(prepare(&s) == 0);
    CHECK(s.run->setup.uid == 0 && s.run->setup.gid == 0);
    CHECK(!s.run->host.can_lease || (s.run->setup.flags & SETUP_UID_RANGE));
    return 0;
}
