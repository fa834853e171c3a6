/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/run.h"
#include "sandbox/start.h"
#include "sys/mount.h"
#include "sys/path.h"
#include "sys/process.h"

enum {
    STACK_BYTES = 64 * 1024,
    ASK_AGAIN_MS = 5,
    GONE_WITHIN_MS = 30000, /* all of its file system is written to disk before */
    ACL_BYTES = 4096
};

bool overlay_is_privileged(void)
{
    struct host host;

    host_ask(&host);
    return host.can_lease;
}

/* --- the directory --- */

static bool is_within(const char *path, const char *above)
{
    size_t n = strlen(above);

    return strncmp(path, above, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int check_directory(const struct run *run, struct err *err)
{
    const char *name = run->spec->plan;
    char path[4096];
    struct stat plan;
    struct stat tree;

    if (fstat(run->plan, &plan) < 0 || fstat(run->workspace, &tree) < 0)
        return err_set(err, ERR_IO, errno, "look at the plan's directory '%s'", name);
    if (plan.st_mode & 077)
        return err_set(err, ERR_DENIED, 0,
                       "the plan's directory '%s' can be entered by others (chmod 700)", name);
    if (plan.st_uid != run->host.uid && plan.st_uid != run->owner_uid)
        return err_set(err, ERR_DENIED, 0, "the plan's directory '%s' belongs to another user",
                       name);
    if (plan.st_dev != tree.st_dev)
        return err_set(err, ERR_INVALID, 0,
                       "the plan's directory '%s' is on another file system than the workspace, "
                       "and nothing could be moved from one to the other; keep it beside the "
                       "workspace",
                       name);
    int r = path_of_fd(run->plan, path, sizeof(path));
    if (r < 0)
        return err_set(err, ERR_IO, -r, "find the path of '%s'", name);
    if (is_within(path, run->workspace_path) || is_within(run->workspace_path, path))
        return err_set(err, ERR_INVALID, 0,
                       "the plan's directory '%s' lies in the workspace, or the workspace in it",
                       name);
    return 0;
}

/* What the tree's top allows beyond its mode is the layer's top's as well. */
static void copy_acl(const struct run *run, int to)
{
    static const char *const names[] = {"system.posix_acl_access", "system.posix_acl_default"};
    char value[ACL_BYTES];
    char top[32];

    snprintf(top, sizeof(top), "/proc/self/fd/%d", run->workspace);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ssize_t n = getxattr(top, names[i], value, sizeof(value));
        if (n > 0)
            ignore(fsetxattr(to, names[i], value, (size_t)n, 0) == 0);
    }
}

/* One part of the directory. */
static int open_part(const struct run *run, const char *name, mode_t mode, bool like_top,
                     struct err *err)
{
    struct stat st;
    int r = mkdirat(run->plan, name, 0700) < 0 ? -errno : 0;

    if (r < 0 && r != -EEXIST)
        return err_set(err, ERR_IO, -r, "make '%s/%s'", run->spec->plan, name);
    scoped_fd int fd = path_open_beneath(run->plan, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, fd < 0 ? -fd : errno, "open '%s/%s'", run->spec->plan, name);
    if (r == 0) {
        if (run->host.can_lease)
            r = fchown(fd, run->owner_uid, run->owner_gid);
        if (r == 0)
            r = fchmod(fd, mode & 07777);
        if (r < 0)
            return err_set(err, ERR_IO, errno, "give '%s/%s' to the workspace's owner",
                           run->spec->plan, name);
        if (like_top)
            copy_acl(run, fd);
    }
    return take_fd(&fd);
}

int overlay_open(struct run *run, struct err *err)
{
    struct stat top;

    if (run->dry)
        return 0;
    run->plan = open(run->spec->plan, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (run->plan < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open the plan's directory '%s'",
                       run->spec->plan);
    if (check_directory(run, err) < 0)
        return -1;
    if (flock(run->plan, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_CONFLICT, 0, "the plan's layer is in use: a command runs in it");
    if (fstat(run->workspace, &top) < 0)
        return err_set(err, ERR_IO, errno, "look at the workspace");
    run->upper = open_part(run, "upper", top.st_mode, true, err);
    if (run->upper < 0)
        return -1;
    scoped_fd int work = open_part(run, "work", 0700, false, err);
    return work < 0 ? -1 : 0;
}

int overlay_describe(struct run *run, struct op *op, struct err *err)
{
    char path[4096];
    struct statvfs fs;
    struct stat st = {0};

    snprintf(path, sizeof(path), "%s", run->spec->plan);
    if (!run->dry) {
        int r = fstat(run->plan, &st) < 0 ? -errno : path_of_fd(run->plan, path, sizeof(path));
        if (r < 0)
            return err_set(err, ERR_IO, -r, "find the path of '%s'", run->spec->plan);
    }
    op->kind = OP_LAYER;
    op->flags &= ~(uint32_t)OP_RECURSIVE; /* a layer covers one file system */
    op->layer = arena_copy(&run->arena, path, strlen(path));
    op->layer_inode = st.st_ino;
    /* A copy of the tree's mount would have kept this of itself. */
    if (fstatvfs(run->workspace, &fs) == 0 && (fs.f_flag & ST_NOEXEC))
        op->attrs |= MOUNT_NOEXEC;
    return op->layer ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "the plan's directory");
}

/* --- places for mounts --- */

static int refuse_point(const char *path, int error, struct err *err)
{
    return err_set(err, ERR_CONFLICT, error,
                   "'%s' in the workspace is in the way of a mount; rename it", path);
}

/* A directory that the tree has too is merged with that one, and must look like it. */
static int look_like_base(const struct run *run, int dir, const char *path, const char *name,
                          struct err *err)
{
    struct stat st;
    scoped_fd int base = path_open_beneath(run->workspace, path, O_PATH, 1);

    if (base < 0)
        return 0;
    if (fstat(base, &st) < 0 || st.st_uid != run->owner_uid)
        return err_set(err, ERR_CONFLICT, 0,
                       "'%s' in the workspace, where Carrel mounts, is not its owner's", path);
    if (fchmodat(dir, name, st.st_mode & 07777, 0) < 0)
        return err_set(err, ERR_IO, errno, "make '%s' in the plan's layer", path);
    return 0;
}

/* Makes the last part of `path` in the layer's directory `dir`, or finds it there. */
static int make_in_layer(struct run *run, int dir, const char *path, bool is_directory,
                         struct err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    int r = workspace_make_as_owner(run, dir, name, is_directory);

    if (r == -EEXIST)
        return 0;
    if (r < 0)
        return err_set(err, ERR_IO, -r, "make the mount point '%s' in the plan's layer", path);
    if (workspace_note_made(run, path, strlen(path), err) < 0)
        return -1;
    return is_directory ? look_like_base(run, dir, path, name, err) : 0;
}

int overlay_make_point(struct run *run, const char *path, bool is_directory, struct err *err)
{
    char part[4096];
    struct stat st;
    size_t n = strlen(path);

    if (n >= sizeof(part))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "mount target '/%.64s…'", path);
    scoped_fd int there = path_open_beneath(run->workspace, path, O_PATH, 1);
    if (there >= 0 && fstat(there, &st) == 0)
        return S_ISDIR(st.st_mode) == is_directory && (is_directory || S_ISREG(st.st_mode))
                   ? 0
                   : refuse_point(path, 0, err);
    if (there != -ENOENT)
        return refuse_point(path, there < 0 ? -there : errno, err);
    scoped_fd int dir = fcntl(run->upper, F_DUPFD_CLOEXEC, 3);
    for (size_t at = 0; dir >= 0 && at < n; at++) {
        at += strcspn(path + at, "/");
        memcpy(part, path, at);
        part[at] = '\0';
        if (make_in_layer(run, dir, part, at < n || is_directory, err) < 0)
            return -1;
        if (at == n)
            return 0;
        const char *slash = strrchr(part, '/');
        int next = path_open_beneath(dir, slash ? slash + 1 : part, O_PATH | O_DIRECTORY, 1);
        if (next < 0)
            return refuse_point(part, -next, err);
        (void)close(dir);
        dir = next;
    }
    return err_set(err, ERR_LIMIT, errno, "open files");
}

/* --- the mount, as root --- */

/* A piece of work that needs namespaces of its own, done by a child in our memory while we wait. */
struct aside {
    int (*work)(struct aside *aside);
    int lower; /* detached mounts */
    int plan;
    uid_t uid;
    gid_t gid;
    uint64_t attrs;
    char path[4096];
    bool in_userns;
    int result;
    _Alignas(16) char stack[STACK_BYTES];
};

static int run_aside(void *argument)
{
    struct aside *aside = argument;

    aside->result = aside->work(aside);
    return 0;
}

/* The child's result, or -errno. */
static int do_aside(struct aside *aside, int flags)
{
    struct process_marks marks;
    sigset_t all;
    sigset_t before;

    aside->result = -EIO;
    process_keep_marks(&marks);
    sigfillset(&all); /* a handler of the caller's must not run in it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* We go on when it has ended, whoever else waits for children here. */
    pid_t pid = clone(run_aside, aside->stack + sizeof(aside->stack),
                      flags | CLONE_VM | CLONE_VFORK | SIGCHLD, aside);
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    process_restore_marks(&marks);
    if (pid < 0)
        return -saved;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return aside->result;
}

/* What the kernel makes for itself in the layers is made by who mounts them. */
static int become_owner(uid_t uid, gid_t gid)
{
    (void)setfsgid(gid);
    (void)setfsuid(uid);
    return process_raise_capabilities() < 0 ? -errno : 0;
}

/* Layers must be mounted somewhere while an overlay is made of them (before Linux 6.15); here
 * nobody else sees them, and they go with this process. */
static int mount_layers(struct aside *aside)
{
    struct tmpfs_options small = {.bytes = 1 << 16, .inodes = 16, .mode = 0700};
    struct overlay_options options = {
        .lower = "tree", .upper = "plan/upper", .work = "plan/work", .attrs = aside->attrs};

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    scoped_fd int place = mount_new_tmpfs(&small);
    scoped_fd int where = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = place < 0 ? place : where < 0 ? -errno : mount_attach(place, where);
    if (r < 0)
        return r;
    if (mkdirat(place, "tree", 0700) < 0 || mkdirat(place, "plan", 0700) < 0 || fchdir(place) < 0)
        return -errno;
    r = mount_attach_at(aside->lower, place, "tree");
    if (r == 0)
        r = mount_attach_at(aside->plan, place, "plan");
    if (r < 0)
        return r;
    r = become_owner(aside->uid, aside->gid);
    return r < 0 ? r : mount_new_overlay(&options);
}

/* -EINVAL also when the kernel cannot make an overlay of mapped layers. */
static int mount_mapped(struct run *run, struct aside *aside, bool mapped, struct err *err)
{
    scoped_fd int userns = -1;
    scoped_fd int lower = mount_clone(run->workspace, false);
    scoped_fd int plan = mount_clone(run->plan, false);

    if (lower < 0 || plan < 0)
        return lower < 0 ? lower : plan;
    if (mapped &&
        identity_layer_idmap(&run->identity, run->owner_uid, run->owner_gid, &userns, err) < 0)
        return -ECANCELED;
    int r = mount_set(lower, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV, false, userns);
    if (r == 0)
        r = mount_set(plan, MOUNT_NOSUID | MOUNT_NODEV, false, userns);
    if (r < 0)
        return r;
    aside->lower = lower;
    aside->plan = plan;
    aside->uid = identity_outside_uid(&run->identity);
    aside->gid = identity_outside_gid(&run->identity);
    return do_aside(aside, CLONE_NEWNS | CLONE_FILES);
}

static bool has_no_mapping(int r)
{
    return r == -EINVAL || r == -EOPNOTSUPP || r == -ENOSYS;
}

static int mount_somehow(struct run *run, struct aside *aside, struct err *err)
{
    int tree = mount_mapped(run, aside, true, err);

    if (has_no_mapping(tree)) {
        if (run->owner_uid == 0 || run->owner_gid == 0)
            return err_set(err, ERR_KERNEL, -tree,
                           "a plan for a tree of root's needs an overlay over idmapped mounts "
                           "(Linux 5.19, on ext4, xfs, btrfs or tmpfs); give '%s' to an ordinary "
                           "user (chown -R 1000:1000)",
                           run->workspace_path);
        if (live_use_owner_directly(run, err) < 0)
            return -1;
        tree = mount_mapped(run, aside, false, err);
    }
    if (tree < 0 && tree != -ECANCELED)
        return err_set(err, tree == -EBUSY ? ERR_CONFLICT : ERR_KERNEL, -tree, "%s",
                       mount_overlay_fault(tree));
    return tree;
}

int overlay_mount(struct run *run, struct err *err)
{
    for (uint32_t i = run->setup.frame_count; i < run->setup.op_count; i++) {
        if (run->setup.ops[i].kind != OP_LAYER)
            continue;
        struct aside *aside = malloc(sizeof(*aside));
        if (!aside)
            return err_set(err, ERR_LIMIT, 0, "out of memory");
        *aside = (struct aside){.work = mount_layers, .attrs = run->setup.ops[i].attrs};
        int tree = mount_somehow(run, aside, err);
        free(aside);
        if (tree < 0)
            return -1;
        scope_close(&run->sources[i]);
        run->sources[i] = tree;
    }
    return 0;
}

/* --- the end --- */

static void let_go(struct run *run)
{
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        if (run->setup.ops[i].kind == OP_LAYER)
            scope_close(&run->sources[i]);
    }
}

void overlay_leave(struct run *run)
{
    if (run->plan < 0)
        return;
    let_go(run);
    workspace_unmake_points(run);
    scope_close(&run->upper);
    scope_close(&run->plan);
}

static int map_to_self(const struct aside *aside)
{
    char map[32];
    int r = path_write_text(AT_FDCWD, "/proc/self/setgroups", "deny");

    snprintf(map, sizeof(map), "%u %u 1\n", aside->uid, aside->uid);
    if (r == 0)
        r = path_write_text(AT_FDCWD, "/proc/self/uid_map", map);
    snprintf(map, sizeof(map), "%u %u 1\n", aside->gid, aside->gid);
    return r < 0 ? r : path_write_text(AT_FDCWD, "/proc/self/gid_map", map);
}

/* The descriptor is of the mount namespace we come from; the kernel wants layers of this one. */
static int enter_again(const struct aside *aside)
{
    struct stat was;
    struct stat is;

    if (chdir(aside->path) < 0 || fstat(aside->plan, &was) < 0 || stat(".", &is) < 0)
        return -errno;
    return was.st_dev == is.st_dev && was.st_ino == is.st_ino ? 0 : -ESTALE;
}

/* An overlay of the layer over itself, which cannot be: ELOOP. But first the kernel looks whether
 * it is in use: EBUSY. Nothing is made either way. */
static int try_layer(struct aside *aside)
{
    struct overlay_options options = {
        .lower = "upper", .upper = "upper", .work = "work", .in_userns = aside->in_userns};
    struct stat work;
    int r = options.in_userns ? map_to_self(aside) : 0;

    if (r == 0)
        r = enter_again(aside);
    if (r == 0 && stat("work", &work) < 0)
        r = -errno;
    if (r == 0 && !options.in_userns)
        r = become_owner(work.st_uid, work.st_gid);
    if (r < 0)
        return r;
    scoped_fd int tree = mount_new_overlay(&options);
    return tree < 0 ? tree : -ELOOP;
}

static int ask_once(int dir, bool privileged)
{
    struct aside *aside = malloc(sizeof(*aside));

    if (!aside)
        return -ENOMEM;
    *aside = (struct aside){.work = try_layer,
                            .plan = dir,
                            .uid = geteuid(),
                            .gid = getegid(),
                            .in_userns = !privileged};
    int r = path_of_fd(dir, aside->path, sizeof(aside->path));
    if (r == 0)
        r = do_aside(aside, privileged ? 0 : CLONE_NEWUSER | CLONE_NEWNS);
    free(aside);
    return r;
}

/* The kernel's own directories have no mode at all: their owner could not even remove them. */
static void open_for_removal(int plan)
{
    static const char *const own[] = {"work/work", "work/index"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        ignore(fchmodat(plan, own[i], 0700, 0) == 0); /* not always there */
}

int overlay_settle(const char *plan, unsigned wait_ms, struct err *err)
{
    bool privileged = overlay_is_privileged();
    uint64_t until = now_ms() + wait_ms;
    scoped_fd int dir = open(plan, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = dir < 0 ? -errno : ask_once(dir, privileged);

    while (r == -EBUSY && now_ms() < until) {
        (void)poll(NULL, 0, ASK_AGAIN_MS);
        r = ask_once(dir, privileged);
    }
    if (r == -ELOOP) {
        open_for_removal(dir);
        return 0;
    }
    if (r == -EBUSY)
        return err_set(err, ERR_CONFLICT, 0, "the plan's layer is still in use");
    return err_set(err, ERR_KERNEL, -r, "find out whether the plan's layer is still in use");
}

int overlay_end(struct run *run, struct err *err)
{
    let_go(run);
    int r = overlay_settle(run->spec->plan, GONE_WITHIN_MS, err);
    overlay_leave(run);
    return r;
}
