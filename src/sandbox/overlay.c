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
#include "sys/quota.h"

enum {
    STACK_BYTES = 64 * 1024,
    ASK_AGAIN_MS = 5,
    GONE_WITHIN_MS = 30000, /* all of its file system is written to disk before */
    ACL_BYTES = 4096,
    MAX_PIECES = CARREL_MAX_LAYERS + 1
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

static bool is_plan(uint32_t flags)
{
    return (flags & OP_PLAN) != 0;
}

/* A plan's is part of a tree that is moved into the workspace one day. */
static int check_place(const struct run *run, const struct layer *layer, const struct stat *dir,
                       struct err *err)
{
    struct stat tree;

    if (fstat(run->workspace, &tree) < 0)
        return err_set(err, ERR_IO, errno, "look at the workspace");
    if (dir->st_dev == tree.st_dev)
        return 0;
    return err_set(err, ERR_INVALID, 0,
                   "the plan's directory '%s' is on another file system than the workspace, and "
                   "nothing could be moved from one to the other; keep it beside the workspace",
                   layer->name);
}

/* Neither may lie in the other: what is kept apart would be seen, or be its own layer. */
static int check_apart(const struct layer *layer, const char *path, const char *tree,
                       const char *what, struct err *err)
{
    if (!is_within(path, tree) && !is_within(tree, path))
        return 0;
    return err_set(err, ERR_INVALID, 0, "the directory '%s' lies in the %s, or the %s in it",
                   layer->name, what, what);
}

/* Code inside could put links in the place of what is kept there, until that is mounted. */
static int check_mounts(const struct run *run, const struct layer *layer, const char *path,
                        struct err *err)
{
    char other[4096];

    int r = path_of_fd(layer->lower, other, sizeof(other));
    if (r < 0)
        return err_set(err, ERR_IO, -r, "find the path of what is below '%s'", layer->name);
    if (check_apart(layer, path, other, "source of its mount", err) < 0)
        return -1;
    for (size_t i = 0; i < run->spec->mount_count; i++) {
        const struct carrel_mount *mount = &run->spec->mounts[i];
        bool counts = (mount->writable || mount->layer) &&
                      !mount->ready; /* a layer's source is to stay as it is */
        scoped_fd int fd = counts ? open(mount->source, O_PATH | O_CLOEXEC) : -1;
        if (fd >= 0 && path_of_fd(fd, other, sizeof(other)) == 0 &&
            check_apart(layer, path, other,
                        mount->layer ? "source of a mount" : "source of a writable mount (--rw)",
                        err) < 0)
            return -1;
    }
    return 0;
}

static const char *whose_directory(const struct layer *layer)
{
    return is_plan(layer->flags) ? "plan" : "layer";
}

static int check_directory(const struct run *run, const struct layer *layer, struct err *err)
{
    const char *whose = whose_directory(layer);
    char path[4096];
    struct stat dir;

    if (fstat(layer->dir, &dir) < 0)
        return err_set(err, ERR_IO, errno, "look at the %s's directory '%s'", whose, layer->name);
    if (dir.st_mode & 077)
        return err_set(err, ERR_DENIED, 0,
                       "the %s's directory '%s' can be entered by others (chmod 700)", whose,
                       layer->name);
    if (dir.st_uid != run->host.uid && dir.st_uid != run->owner_uid)
        return err_set(err, ERR_DENIED, 0, "the %s's directory '%s' belongs to another user", whose,
                       layer->name);
    if (is_plan(layer->flags) && check_place(run, layer, &dir, err) < 0)
        return -1;
    int r = path_of_fd(layer->dir, path, sizeof(path));
    if (r < 0)
        return err_set(err, ERR_IO, -r, "find the path of '%s'", layer->name);
    if (check_apart(layer, path, run->workspace_path, "workspace", err) < 0)
        return -1;
    return is_plan(layer->flags) ? 0 : check_mounts(run, layer, path, err);
}

/* What the tree's top allows beyond its mode is the layer's top's as well. */
static void copy_acl(int from, int to)
{
    static const char *const names[] = {"system.posix_acl_access", "system.posix_acl_default"};
    char value[ACL_BYTES];
    char top[32];

    snprintf(top, sizeof(top), "/proc/self/fd/%d", from);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ssize_t n = getxattr(top, names[i], value, sizeof(value));
        if (n > 0)
            ignore(fsetxattr(to, names[i], value, (size_t)n, 0) == 0);
    }
}

/* What is kept in a layer counts to the workspace's quota, where both are on one file system. (What
 * a plan holds is moved into the workspace one day.) */
static int join_quota(const struct run *run, const struct layer *layer, int part, struct err *err)
{
    struct stat tree;
    struct stat st;
    scoped_fd int top = openat(run->workspace, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (top < 0 || fstat(top, &tree) < 0 || fstat(part, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the workspace's quota");
    int r = is_plan(layer->flags) || tree.st_dev != st.st_dev ? 0 : quota_join(top, part);
    return r < 0 ? err_set(err, ERR_IO, -r, "count '%s' to the workspace's quota", layer->name) : 0;
}

/* One part of the directory, under its name only when it is as it should be: it may outlive us. */
static int make_part(const struct run *run, const struct layer *layer, const char *name,
                     mode_t mode, struct err *err)
{
    static const char unready[] = "new";

    if (mkdirat(layer->dir, unready, 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make '%s/%s'", layer->name, name);
    scoped_fd int fd = path_open_beneath(layer->dir, unready, O_RDONLY | O_DIRECTORY, 1);
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open '%s/%s'", layer->name, unready);
    bool of_system = (layer->flags & OP_SYSTEM) != 0;
    uid_t uid = of_system ? IDENTITY_SYSTEM_FIRST : run->owner_uid;
    gid_t gid = of_system ? IDENTITY_SYSTEM_FIRST : run->owner_gid;
    if ((run->host.can_lease && fchown(fd, uid, gid) < 0) || fchmod(fd, mode & 07777) < 0)
        return err_set(err, ERR_IO, errno, "give '%s/%s' to the workspace's owner", layer->name,
                       name);
    if (join_quota(run, layer, fd, err) < 0)
        return -1;
    if (strcmp(name, "upper") == 0)
        copy_acl(layer->lower, fd);
    if (renameat(layer->dir, unready, layer->dir, name) < 0)
        return err_set(err, ERR_IO, errno, "make '%s/%s'", layer->name, name);
    return take_fd(&fd);
}

static int open_part(const struct run *run, const struct layer *layer, const char *name,
                     mode_t mode, struct err *err)
{
    int fd = path_open_beneath(layer->dir, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);

    if (fd == -ENOENT)
        return make_part(run, layer, name, mode, err);
    return fd < 0 ? err_set(err, ERR_IO, -fd, "open '%s/%s'", layer->name, name) : fd;
}

static int open_parts(const struct run *run, struct layer *layer, struct err *err)
{
    struct stat top;

    if (fstat(layer->lower, &top) < 0)
        return err_set(err, ERR_IO, errno, "look at the tree below '%s'", layer->name);
    layer->upper = open_part(run, layer, "upper", top.st_mode, err);
    if (layer->upper < 0)
        return -1;
    scoped_fd int work = open_part(run, layer, "work", 0700, err);
    return work < 0 ? -1 : 0;
}

static int lock_layer(const struct layer *layer, struct err *err)
{
    if (flock(layer->dir, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (is_plan(layer->flags))
        return err_set(err, ERR_CONFLICT, 0, "the plan's layer is in use: a command runs in it");
    return err_set(err, ERR_CONFLICT, 0,
                   "the layer '%s' is in use by another sandbox; wait until that has ended, or "
                   "give each a directory of its own",
                   layer->name);
}

static void close_layer(struct layer *layer)
{
    /* A copy of the descriptor may be on its way through a fork: it must not keep the lock. */
    if (layer->dir >= 0)
        (void)flock(layer->dir, LOCK_UN);
    scope_close(&layer->dir);
    scope_close(&layer->upper);
    scope_close(&layer->lower);
    scope_close(&layer->over);
}

/* What was changed so far; 1: nothing was. */
static int open_shown(struct layer *layer, struct err *err)
{
    int r = path_open_beneath(layer->dir, "upper", O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);

    if (r == -ENOENT)
        return 1;
    if (r < 0)
        return err_set(err, ERR_IO, -r, "open '%s/upper'", layer->name);
    layer->upper = r;
    return 0;
}

/* 1: it was only to be shown, and there is nothing. */
static int open_directory(const struct run *run, struct layer *layer, struct err *err)
{
    bool shown = (layer->flags & OP_SHOWN) != 0;

    layer->dir = open(layer->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (layer->dir < 0 && errno == ENOENT && shown)
        return 1;
    if (layer->dir < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open the %s's directory '%s'",
                       whose_directory(layer), layer->name);
    if (check_directory(run, layer, err) < 0)
        return -1;
    if (shown)
        return open_shown(layer, err);
    return lock_layer(layer, err) < 0 ? -1 : open_parts(run, layer, err);
}

int overlay_open(struct run *run, const char *name, int lower, uint32_t flags, struct layer **ret,
                 struct err *err)
{
    struct layer *layer = &run->layers[run->layer_count];

    if (run->layer_count == (run->plan || is_plan(flags) ? MAX_PIECES : CARREL_MAX_LAYERS))
        return err_set(err, ERR_LIMIT, 0, "more than %d mounts with a layer", CARREL_MAX_LAYERS);
    *layer = (struct layer){
        .name = name, .flags = flags, .dir = -1, .upper = -1, .lower = -1, .over = -1};
    layer->lower = fcntl(lower, F_DUPFD_CLOEXEC, 3);
    if (layer->lower < 0)
        return err_set(err, ERR_LIMIT, errno, "open files");
    int r = run->dry ? 0 : open_directory(run, layer, err);
    *ret = r == 0 ? layer : NULL;
    if (r == 0)
        run->layer_count++;
    else
        close_layer(layer);
    return r < 0 ? -1 : 0;
}

int overlay_see_through(const struct run *run, struct layer *layer, const char *name,
                        struct err *err)
{
    if (run->dry)
        return 0;
    scoped_fd int dir = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    layer->over = dir < 0 ? -errno : path_open_beneath(dir, "upper", O_RDONLY | O_DIRECTORY, 1);
    return layer->over < 0 ? err_set(err, ERR_NOT_FOUND, -layer->over, "open '%s/upper'", name) : 0;
}

/* Pid 1 opens it by its path where the engine cannot send a mount of it. */
static int describe_over(struct run *run, const struct layer *layer, struct op *op, struct err *err)
{
    char path[4096];
    struct stat st;

    op->over = "";
    if (layer->over < 0)
        return 0;
    int r = fstat(layer->over, &st) < 0 ? -errno : path_of_fd(layer->over, path, sizeof(path));
    if (r < 0)
        return err_set(err, ERR_IO, -r, "find the path of what '%s' is over", layer->name);
    op->over = arena_copy(&run->arena, path, strlen(path));
    op->over_device = st.st_dev;
    op->over_inode = st.st_ino;
    return op->over ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "the directory of a layer");
}

/* A copy of either's mount would have kept this of itself. */
static bool is_noexec(int fd)
{
    struct statvfs fs;

    return fd >= 0 && fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_NOEXEC);
}

int overlay_describe(struct run *run, struct layer *layer, struct op *op, struct err *err)
{
    char path[4096];
    struct stat st = {0};

    snprintf(path, sizeof(path), "%s", layer->name);
    if (!run->dry) {
        int r = fstat(layer->dir, &st) < 0 ? -errno : path_of_fd(layer->dir, path, sizeof(path));
        if (r < 0)
            return err_set(err, ERR_IO, -r, "find the path of '%s'", layer->name);
    }
    layer->op = (uint32_t)(op - run->setup.ops);
    op->kind = OP_LAYER;
    op->flags &= ~(uint32_t)OP_RECURSIVE; /* a layer covers one file system */
    op->flags |= layer->flags;
    op->layer = arena_copy(&run->arena, path, strlen(path));
    op->layer_device = st.st_dev;
    op->layer_inode = st.st_ino;
    if (is_noexec(layer->lower) || is_noexec(layer->upper))
        op->attrs |= MOUNT_NOEXEC;
    if (!op->layer)
        return err_set(err, ERR_LIMIT, ENOMEM, "the directory of a layer");
    return describe_over(run, layer, op, err);
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
    scoped_fd int dir = fcntl(run->plan->upper, F_DUPFD_CLOEXEC, 3);
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

/* One overlay to be mounted, and what became of it. */
struct piece {
    int lower; /* detached mounts */
    int over;  /* or -1 */
    int layer;
    uint32_t flags;
    uint64_t attrs;
    int tree; /* the overlay, or -errno */
};

/* A piece of work that needs namespaces of its own, done by a child in our memory while we wait. */
struct aside {
    int (*work)(struct aside *aside);
    struct piece pieces[MAX_PIECES]; /* of mount_layers */
    size_t count;
    int dir; /* of try_layer */
    char path[4096];
    bool in_userns;
    uid_t uid;
    gid_t gid;
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

static int make_and_attach(int tree, int place, const char *name)
{
    if (mkdirat(place, name, 0700) < 0)
        return -errno;
    return mount_attach_at(tree, place, name);
}

/* The parts of a piece, as names of their own at `place`. */
static int attach_piece(const struct piece *piece, size_t i, int place)
{
    char name[32];

    snprintf(name, sizeof(name), "tree%zu", i);
    int r = make_and_attach(piece->lower, place, name);
    snprintf(name, sizeof(name), "over%zu", i);
    if (r == 0 && piece->over >= 0)
        r = make_and_attach(piece->over, place, name);
    snprintf(name, sizeof(name), "layer%zu", i);
    return r < 0 ? r : make_and_attach(piece->layer, place, name);
}

static int mount_piece(const struct piece *piece, size_t i)
{
    char over[32] = "";
    char lower[96];
    char upper[32];
    char work[32];
    bool shown = (piece->flags & OP_SHOWN) != 0;

    snprintf(upper, sizeof(upper), "layer%zu/upper", i);
    snprintf(work, sizeof(work), "layer%zu/work", i);
    if (piece->over >= 0)
        snprintf(over, sizeof(over), "over%zu:", i);
    snprintf(lower, sizeof(lower), "%s%s%stree%zu", shown ? upper : "", shown ? ":" : "", over, i);
    bool stays = (piece->flags & OP_STAYS) != 0;
    struct overlay_options options = {.lower = lower,
                                      .upper = shown ? NULL : upper,
                                      .work = work,
                                      .exclusive = is_plan(piece->flags) && !stays,
                                      .moves = is_plan(piece->flags),
                                      .attrs = piece->attrs};
    return mount_new_overlay(&options);
}

/* Layers must be mounted somewhere while an overlay is made of them (before Linux 6.15); here
 * nobody else sees them, and they go with this process. */
static int mount_layers(struct aside *aside)
{
    struct tmpfs_options small = {.bytes = 1 << 16, .inodes = 64, .mode = 0700};

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    scoped_fd int place = mount_new_tmpfs(&small);
    scoped_fd int where = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = place < 0 ? place : where < 0 ? -errno : mount_attach(place, where);
    if (r == 0 && fchdir(place) < 0)
        r = -errno;
    for (size_t i = 0; r == 0 && i < aside->count; i++)
        r = attach_piece(&aside->pieces[i], i, place);
    if (r == 0)
        r = become_owner(aside->uid, aside->gid);
    for (size_t i = 0; r == 0 && i < aside->count; i++) {
        aside->pieces[i].tree = mount_piece(&aside->pieces[i], i);
        r = aside->pieces[i].tree < 0 ? aside->pieces[i].tree : 0;
    }
    return r;
}

/* A copy of a tree for the overlay, with its id map; *ret is the caller's also when it failed. */
static int copy_for_overlay(int fd, uint64_t attrs, int userns, int *ret)
{
    int r = *ret = mount_clone(fd, false);

    return r < 0 ? r : mount_set(*ret, attrs, false, userns);
}

/* The tree's owner and that of the layer's files are both the user inside. */
static int fill_piece(struct run *run, const struct layer *layer, bool mapped, struct piece *piece,
                      struct err *err)
{
    const struct op *op = &run->setup.ops[layer->op];
    uint64_t fixed = MOUNT_NOSUID | MOUNT_NODEV;
    int of_lower = -1;
    int of_layer = -1;

    piece->flags = op->flags;
    piece->attrs = op->attrs;
    bool of_system = (op->flags & OP_SYSTEM) != 0;
    enum identity_map kind = of_system ? IDENTITY_MAP_SYSTEM : IDENTITY_MAP_LAYER;
    if (mapped &&
        (identity_idmap(&run->identity, kind, op->uid, op->gid, &of_lower, err) < 0 ||
         identity_idmap(&run->identity, kind, run->owner_uid, run->owner_gid, &of_layer, err) < 0))
        return -ECANCELED;
    int r = copy_for_overlay(layer->lower, fixed | MOUNT_RDONLY, of_lower, &piece->lower);
    if (r == 0 && layer->over >= 0)
        r = copy_for_overlay(layer->over, fixed | MOUNT_RDONLY, of_lower, &piece->over);
    if (r < 0)
        return r;
    if (op->flags & OP_SHOWN)
        fixed |= MOUNT_RDONLY;
    return copy_for_overlay(layer->dir, fixed, of_layer, &piece->layer);
}

static void close_pieces(struct aside *aside, bool trees)
{
    for (size_t i = 0; i < aside->count; i++) {
        scope_close(&aside->pieces[i].lower);
        scope_close(&aside->pieces[i].over);
        scope_close(&aside->pieces[i].layer);
        if (trees)
            scope_close(&aside->pieces[i].tree);
    }
}

/* All of them: 0, or -errno with *ret_at the one that failed. -EINVAL also when the kernel cannot
 * make an overlay of mapped trees. */
static int mount_mapped(struct run *run, struct aside *aside, bool mapped, size_t *ret_at,
                        struct err *err)
{
    int r = 0;

    aside->work = mount_layers;
    aside->uid = identity_outside_uid(&run->identity);
    aside->gid = identity_outside_gid(&run->identity);
    *ret_at = 0;
    for (aside->count = 0; r == 0 && aside->count < run->layer_count;) {
        size_t i = *ret_at = aside->count++;
        aside->pieces[i] = (struct piece){.lower = -1, .over = -1, .layer = -1, .tree = -1};
        r = fill_piece(run, &run->layers[i], mapped, &aside->pieces[i], err);
    }
    if (r == 0) {
        r = do_aside(aside, CLONE_NEWNS | CLONE_FILES);
        for (*ret_at = 0; r < 0 && *ret_at + 1 < aside->count && aside->pieces[*ret_at].tree >= 0;)
            ++*ret_at;
    }
    close_pieces(aside, r < 0);
    return r;
}

static bool has_no_mapping(int r)
{
    return r == -EINVAL || r == -EOPNOTSUPP || r == -ENOSYS;
}

/* Without maps the user inside is the owner of the tenant's tree: who must be somebody, and whose
 * the trees below must be already where they are written to. */
static int check_unmapped(const struct run *run, int error, struct err *err)
{
    for (size_t i = 0; i < run->layer_count; i++) {
        const struct op *op = &run->setup.ops[run->layers[i].op];
        bool of_root = run->owner_uid == 0 || run->owner_gid == 0;
        bool of_other = op->uid != run->owner_uid || op->gid != run->owner_gid;
        if (op->flags & OP_SYSTEM)
            return err_set(err, ERR_KERNEL, error,
                           "a system of its own needs an overlay over idmapped mounts (Linux 5.19, "
                           "on ext4, xfs, btrfs or tmpfs)");
        if (of_root)
            return err_set(err, ERR_KERNEL, error,
                           "a %s for a tree of root's needs an overlay over idmapped mounts "
                           "(Linux 5.19, on ext4, xfs, btrfs or tmpfs); give '%s' to an ordinary "
                           "user (chown -R 1000:1000)",
                           is_plan(op->flags) ? "plan" : "layer", run->workspace_path);
        if (of_other && !(op->flags & OP_SHOWN))
            return err_set(err, ERR_KERNEL, error,
                           "a layer over '%s', which belongs to another user than the workspace, "
                           "needs an overlay over idmapped mounts (Linux 5.19, on ext4, xfs, btrfs "
                           "or tmpfs)",
                           op->source);
    }
    return 0;
}

static int refuse_mount(const struct op *op, int r, struct err *err)
{
    enum err_code code = r == -EBUSY ? ERR_CONFLICT : ERR_KERNEL;

    if (op->flags & OP_SYSTEM)
        return err_set(err, code, -r, "the system's layer: %s", mount_overlay_fault(r));
    if (is_plan(op->flags))
        return err_set(err, code, -r, "the plan's layer: %s", mount_overlay_fault(r));
    return err_set(err, code, -r, "the layer of '/%s': %s", op->target, mount_overlay_fault(r));
}

static int mount_somehow(struct run *run, struct aside *aside, struct err *err)
{
    bool mapped = !run->identity.direct;
    size_t at = 0;
    int r = mapped ? mount_mapped(run, aside, true, &at, err) : -EINVAL;

    if (has_no_mapping(r)) {
        if (check_unmapped(run, -r, err) < 0 || (mapped && live_use_owner_directly(run, err) < 0))
            return -1;
        r = mount_mapped(run, aside, false, &at, err);
    }
    if (r == -ECANCELED)
        return -1;
    return r < 0 ? refuse_mount(&run->setup.ops[run->layers[at].op], r, err) : 0;
}

int overlay_mount(struct run *run, struct err *err)
{
    if (run->layer_count == 0)
        return 0;
    struct aside *aside = malloc(sizeof(*aside));
    if (!aside)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    int r = mount_somehow(run, aside, err);
    for (size_t i = 0; r == 0 && i < run->layer_count; i++) {
        int *source = &run->sources[run->layers[i].op];
        scope_close(source);
        *source = aside->pieces[i].tree;
    }
    free(aside);
    return r;
}

void overlay_started(struct run *run)
{
    for (size_t i = 0; i < run->layer_count; i++) {
        scope_close(&run->layers[i].lower);
        scope_close(&run->layers[i].over);
        if (&run->layers[i] != run->plan)
            scope_close(&run->layers[i].upper);
        if (run->layers[i].flags & OP_SHOWN)
            scope_close(&run->layers[i].dir);
    }
}

/* --- the end --- */

/* With the last reference to an overlay the kernel writes all of the layer's file system to disk.
 * Of a session's pid 1 has it, or a file server: neither is waited for here. */
static void let_go(struct run *run)
{
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        if (run->setup.ops[i].kind == OP_LAYER)
            scope_close(&run->sources[i]);
    }
}

/* The kernel's own directories have no mode at all: their owner could not even remove them. */
static void open_for_removal(int dir)
{
    static const char *const own[] = {"work/work", "work/index"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        ignore(fchmodat(dir, own[i], 0700, 0) == 0); /* not always there */
}

void overlay_clear(struct run *run)
{
    while (run->layer_count > 0) {
        struct layer *layer = &run->layers[--run->layer_count];
        if (!layer->flags && !run->dry && !run->host.can_lease)
            open_for_removal(layer->dir);
        close_layer(layer);
    }
    run->plan = NULL;
}

void overlay_leave(struct run *run)
{
    let_go(run);
    if (run->plan)
        workspace_unmake_points(run);
    overlay_clear(run);
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

    if (chdir(aside->path) < 0 || fstat(aside->dir, &was) < 0 || stat(".", &is) < 0)
        return -errno;
    return was.st_dev == is.st_dev && was.st_ino == is.st_ino ? 0 : -ESTALE;
}

/* An overlay of the layer over itself, which cannot be: ELOOP. But first the kernel looks whether
 * it is in use: EBUSY. Nothing is made either way. */
static int try_layer(struct aside *aside)
{
    struct overlay_options options = {.lower = "upper",
                                      .upper = "upper",
                                      .work = "work",
                                      .in_userns = aside->in_userns,
                                      .exclusive = true};
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
                            .dir = dir,
                            .uid = geteuid(),
                            .gid = getegid(),
                            .in_userns = !privileged};
    int r = path_of_fd(dir, aside->path, sizeof(aside->path));
    if (r == 0)
        r = do_aside(aside, privileged ? 0 : CLONE_NEWUSER | CLONE_NEWNS);
    free(aside);
    return r;
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
