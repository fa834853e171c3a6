/* SPDX-License-Identifier: Apache-2.0 */
/* The tree that becomes / (or /work), seen from outside. A tenant may have written anything into
 * it, and may be writing now: every name goes through a descriptor, nothing is followed, nothing
 * that is there is moved. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "sandbox/image.h"
#include "sandbox/overlay.h"
#include "sandbox/run.h"
#include "sys/path.h"
#include "sys/process.h"

/* Directories that hold a whole system, and kernel file systems: nobody means them. */
static bool belongs_to_the_system(int fd, const char *path)
{
    static const char *const whole[] = {
        "/",           "/bin",       "/boot",     "/dev",       "/etc",
        "/lib",        "/lib32",     "/lib64",    "/run",       "/sbin",
        "/usr",        "/usr/bin",   "/usr/lib",  "/usr/lib32", "/usr/lib64",
        "/usr/libx32", "/usr/local", "/usr/sbin", "/usr/share", "/var",
    };

    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        if (strcmp(path, whole[i]) == 0)
            return true;
    }
    return path_is_of_the_kernel(fd);
}

/* A workspace that --create would make, for an explanation: an empty directory of ours stands for
 * it. */
static int imagine(struct run *run, const char *name, struct err *err)
{
    if (!run->spec->limits.disk_image && disk_image_refuse(name, err) < 0)
        return -1;
    run->imagined = true;
    run->workspace = open("/proc/self/fdinfo", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (run->workspace < 0)
        return err_set(err, ERR_IO, errno, "explain workspace '%s'", name);
    run->workspace_path = arena_copy(&run->arena, name, strlen(name));
    run->owner_uid = run->host.uid;
    run->owner_gid = run->host.gid;
    return run->workspace_path ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "workspace path");
}

int workspace_open(struct run *run, struct err *err)
{
    const char *name = run->spec->workspace ? run->spec->workspace : ".";
    char path[4096];
    struct stat st;

    run->workspace = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (run->workspace < 0 && errno == ENOENT && run->spec->create && !run->dry) {
        run->created = mkdir(name, 0755) == 0;
        if (!run->created && errno != EEXIST) /* another run may have been first */
            return err_set(err, ERR_IO, errno, "create workspace '%s'", name);
        run->workspace = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    if (run->workspace < 0 && errno == ENOENT && run->dry && run->spec->create)
        return imagine(run, name, err);
    if (run->workspace < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "workspace '%s' does not exist (--create makes it; its parent must exist)",
                       name);
    if (run->workspace < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open workspace '%s'", name);
    if (fstat(run->workspace, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at workspace '%s'", name);
    int r = path_of_fd(run->workspace, path, sizeof(path));
    if (r < 0)
        return err_set(
            err, ERR_KERNEL, -r,
            "find the path of workspace '%s' (is /proc mounted? mount -t proc proc /proc)", name);
    if (st.st_nlink == 0)
        return err_set(err, ERR_NOT_FOUND, 0, "workspace '%s' has been deleted", name);
    if (belongs_to_the_system(run->workspace, path))
        return err_set(err, ERR_DENIED, 0,
                       "'%s' belongs to the system and is not given away as a workspace; change to "
                       "another directory, or name one with --workspace",
                       path);
    if (faccessat(run->workspace, ".", R_OK | X_OK, AT_EACCESS) < 0)
        return err_set(err, ERR_DENIED, errno, "workspace '%s' cannot be read", name);
    if (run->host.can_lease && (st.st_mode & 0500) != 0500)
        return err_set(
            err, ERR_DENIED, 0,
            "workspace '%s' cannot be entered by its owner, which is the user inside (chmod u+rwx)",
            name);
    if (!run->spec->limits.disk_image && disk_image_refuse(path, err) < 0)
        return -1;
    run->workspace_path = arena_copy(&run->arena, path, strlen(path));
    run->owner_uid = st.st_uid;
    run->owner_gid = st.st_gid;
    return run->workspace_path ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "workspace path");
}

/* The tree in the workspace's image takes the place of its directory. */
int workspace_enter_image(struct run *run, struct err *err)
{
    int tree = -1;

    if (!run->spec->limits.disk_image)
        return 0;
    if (!run->spec->workspace)
        return err_set(err, ERR_INVALID, 0, "an image goes with --workspace DIR, which it holds");
    if (!run->host.can_lease)
        return err_set(err, ERR_DENIED, 0,
                       "only root can mount an image; as an ordinary user give --disk a size "
                       "without 'image:'");
    if (run->dry)
        return 0;
    if (disk_image_open(run, &tree, err) < 0)
        return -1;
    scope_close(&run->workspace);
    run->workspace = tree;
    run->in_image = true;
    return 0;
}

/* Names that hold things of the user's and are only covered while the sandbox lives. */
static bool may_hold_things(const char *name)
{
    return strcmp(name, "tmp") == 0 || strcmp(name, ".cache") == 0;
}

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFLNK:
        return "a symlink";
    case S_IFREG:
        return "a file";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFDIR:
        return "not empty";
    default:
        return "a device";
    }
}

static int refuse(const struct run *run, const char *name, struct err *err)
{
    struct stat st = {0};

    (void)fstatat(run->workspace, name, &st, AT_SYMLINK_NOFOLLOW);
    return err_set(
        err, ERR_CONFLICT, 0,
        "'%s' in the workspace is %s, but Carrel mounts the system's there; rename it, or "
        "leave --workspace out to see this directory at /work instead",
        name, kind_of(st.st_mode));
}

static int refuse_closed(const char *path, int error, struct err *err)
{
    return err_set(
        err, ERR_CONFLICT, error,
        "'%s' in the workspace, where Carrel mounts, is closed to its owner (chmod u+rwx "
        "it; it must be the owner's)",
        path);
}

/* Directories are made as the tree's owner would, without a chown that could be led astray. */
int workspace_make_as_owner(const struct run *run, int dir, const char *name, bool is_directory)
{
    struct process_marks marks;
    int r = 0;

    process_keep_marks(&marks);
    (void)setfsgid(run->owner_gid);
    (void)setfsuid(run->owner_uid);
    if (is_directory) {
        if (mkdirat(dir, name, 0755) < 0)
            r = -errno;
    } else {
        scoped_fd int fd =
            openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0)
            r = -errno;
    }
    (void)setfsuid(geteuid());
    (void)setfsgid(getegid());
    process_restore_marks(&marks);
    return r;
}

/* One of the system's names at the top: an empty directory. 1 when it is missing. */
static int check_reserved(const struct run *run, const char *name, struct err *err)
{
    scoped_fd int fd =
        path_open_beneath(run->workspace, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);

    if (fd == -ENOENT)
        return 1;
    if (weak("mountpoint-check"))
        return 0;
    if (fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV)
        return refuse(run, name, err);
    if (fd < 0)
        return refuse_closed(name, -fd, err);
    if (may_hold_things(name))
        return 0;
    int empty = path_dir_is_empty(fd);
    if (empty < 0)
        return err_set(err, ERR_IO, -empty, "look into '%s' in the workspace", name);
    return empty ? 0 : refuse(run, name, err);
}

int workspace_note_made(struct run *run, const char *path, size_t n, struct err *err)
{
    const char *copy = arena_copy(&run->arena, path, n);

    if (!copy || run->made_count == RUN_MAX_MADE)
        return err_set(err, ERR_LIMIT, 0, "too many mount points to make");
    run->made[run->made_count++] = copy;
    return 0;
}

static int reserve(struct run *run, uint32_t index, struct err *err)
{
    const char *name = run->setup.ops[index].target;

    if (run->plan) {
        size_t before = run->made_count;
        if (overlay_make_point(run, name, true, err) < 0)
            return -1;
        /* There already: a run that was killed has left it, nobody inside can have made it. */
        return run->made_count > before ? 0 : workspace_note_made(run, name, strlen(name), err);
    }
    int r = workspace_make_as_owner(run, run->workspace, name, true);
    if (r == -EEXIST)
        return 0;
    if (r < 0)
        return err_set(
            err, r == -EACCES || r == -EPERM ? ERR_CONFLICT : ERR_IO, -r,
            "make the mount point '%s' in the workspace (its owner must be able to write "
            "there)",
            name);
    return workspace_note_made(run, name, strlen(name), err);
}

/* One directory on the way to a mount point, or the mount point itself: made, or as it should be
 * already. `path` is the way up to and with it. */
static int step_into(struct run *run, int *dir, const char *path, bool is_directory,
                     struct err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    struct stat st;
    int r = workspace_make_as_owner(run, *dir, name, is_directory);

    if (r == -EACCES || r == -EPERM)
        return refuse_closed(slash ? arena_copy(&run->arena, path, (size_t)(slash - path)) : "/",
                             -r, err);
    if (r < 0 && r != -EEXIST)
        return err_set(err, ERR_IO, -r, "make the mount point '%s' in the workspace", path);
    if (r == 0 && workspace_note_made(run, path, strlen(path), err) < 0)
        return -1;
    int next = path_open_beneath(*dir, name, O_PATH, 1);
    if (next == -EACCES)
        return refuse_closed(path, EACCES, err);
    /* The kernel says EXDEV for what is a mount of the host's. */
    if (next < 0 || fstat(next, &st) < 0)
        return err_set(err, ERR_CONFLICT, next < 0 ? -next : errno,
                       "'%s' in the workspace is in the way of a mount; rename it", path);
    (void)close(*dir);
    *dir = next;
    if ((st.st_mode & S_IFMT) == (is_directory ? S_IFDIR : S_IFREG))
        return 0;
    return err_set(err, ERR_CONFLICT, 0,
                   "'%s' in the workspace is %s, but Carrel mounts %s there; remove or rename it",
                   path, S_ISDIR(st.st_mode) ? "a directory" : kind_of(st.st_mode),
                   is_directory ? "a directory" : "a file");
}

/* A mount point the caller named, any number of directories down; existing ones are covered. */
static int make_path(struct run *run, const char *path, bool is_directory, struct err *err)
{
    char part[4096];
    size_t n = strlen(path);

    if (run->plan)
        return overlay_make_point(run, path, is_directory, err);
    if (n >= sizeof(part))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "mount target '/%.64s…'", path);
    scoped_fd int dir = fcntl(run->workspace, F_DUPFD_CLOEXEC, 3);
    if (dir < 0)
        return err_set(err, ERR_IO, errno, "open the workspace");
    for (size_t at = 0; at < n; at++) {
        at += strcspn(path + at, "/");
        memcpy(part, path, at);
        part[at] = '\0';
        if (step_into(run, &dir, part, at < n || is_directory, err) < 0)
            return -1;
    }
    return 0;
}

static bool is_asked_for(const struct op *op)
{
    return op_has_tree(op) && (op->flags & OP_OWNED);
}

/* A layer stands for what is at its place, such as the packages of a workspace: where the tree has
 * some of its own there, nobody would see why they are gone. (What is missing, or no directory, is
 * found out when the place is made.) */
static int check_place_of_layer(const struct run *run, const char *path, struct err *err)
{
    scoped_fd int fd =
        path_open_beneath(run->workspace, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);
    int empty = fd < 0 ? 1 : path_dir_is_empty(fd);

    if (empty < 0)
        return err_set(err, ERR_IO, -empty, "look into '%s' in the workspace", path);
    if (empty)
        return 0;
    return err_set(err, ERR_CONFLICT, 0,
                   "'%s' in the workspace is not empty, and the layer mounted there would hide "
                   "what it holds; move that away, or leave the layer out",
                   path);
}

int workspace_check_mount_points(const struct run *run, bool missing[SETUP_MAX_OPS],
                                 struct err *err)
{
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        const struct op *op = &run->setup.ops[i];
        missing[i] = false;
        if (op->kind == OP_LAYER && (op->flags & OP_TOP) &&
            check_place_of_layer(run, op->target, err) < 0)
            return -1;
        if (!(op->flags & OP_TOP) || is_asked_for(op))
            continue;
        int r = check_reserved(run, op->target, err);
        if (r < 0)
            return -1;
        missing[i] = r == 1;
    }
    return 0;
}

enum {
    LOCK_TRIES = 200
};

/* All are looked at before any is made: a refusal leaves the tree as it was. */
int workspace_make_mount_points(struct run *run, struct err *err)
{
    bool missing[SETUP_MAX_OPS] = {false};

    /* Says that the mount points are in use. Nothing waits for it: see workspace_unmake. */
    run->lock = openat(run->workspace, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Another run may be taking its own back this moment, but a tenant may also hold it for ever.
     */
    for (int i = 0; run->lock >= 0 && i < LOCK_TRIES && flock(run->lock, LOCK_SH | LOCK_NB) < 0;
         i++)
        (void)poll(NULL, 0, 1);
    if (workspace_check_mount_points(run, missing, err) < 0)
        return -1;
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        const struct op *op = &run->setup.ops[i];
        if (missing[i] && reserve(run, i, err) < 0)
            return -1;
        if ((op->flags & OP_TOP) && is_asked_for(op) &&
            make_path(run, op->target, S_ISDIR(op->mode), err) < 0)
            return -1;
    }
    return 0;
}

/* Removes an empty directory or file of the workspace or its layer, following nothing on the way.
 */
static void unmake(const struct run *run, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char parent[4096];

    snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    int top = run->plan ? run->plan->upper : run->workspace;
    scoped_fd int dir = path_open_beneath(top, parent, O_PATH | O_DIRECTORY, 1);
    struct stat st;
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISDIR(st.st_mode))
        ignore(unlinkat(dir, name, AT_REMOVEDIR) == 0); /* not empty: in use by now */
    else if (S_ISREG(st.st_mode) && st.st_size == 0)
        ignore(unlinkat(dir, name, 0) == 0);
}

void workspace_unmake_points(struct run *run)
{
    while (run->made_count > 0)
        unmake(run, run->made[--run->made_count]);
}

/* Removing a mount point from here would detach what other runs have mounted on it: so only while
 * nobody else uses the workspace. (A layer is one run's alone.) */
void workspace_unmake(struct run *run)
{
    if (run->made_count > 0 && !run->plan &&
        (run->lock < 0 || flock(run->lock, LOCK_EX | LOCK_NB) < 0))
        return;
    workspace_unmake_points(run);
    disk_image_unmake(run);
    if (run->created)
        ignore(rmdir(run->spec->workspace) == 0); /* not empty: somebody else uses it already */
}
