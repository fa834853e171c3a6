/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the frame and the new root: carries out the setup's mount operations, every one by
 * descriptor.
 *
 * The frame is built in a directory of Carrel's own files and moved onto the root, part by part.
 * The root is attached over "/" of this mount namespace and entered at the end. Mount points are
 * opened beneath the new root without following anything; a tenant who renames them while we work
 * can move a mount about inside the own tree only, and stage_verify_mounts then refuses to go on.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "init/box.h"
#include "sys/mount.h"
#include "sys/path.h"

static int fail(struct err *err, int negative_errno, const struct op *op, const char *what)
{
    int code = negative_errno == -ENOENT ? ERR_NOT_FOUND : ERR_IO;

    return err_set(err, (enum err_code)code, -negative_errno, "%s '/%s'", what, op->target);
}

/* Opens the mount point of an operation in the new root. */
static int open_target(struct box *box, const struct op *op)
{
    if (op->target[0] == '\0')
        return open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return path_open_beneath(box->root, op->target, O_PATH, (op->flags & OP_TOP) != 0);
}

/* In the frame, which is ours alone, a path leads where it says. */
static int put(struct box *box, const struct op *op, int tree)
{
    if (box->root == box->frame && op->target[0] != '\0')
        return mount_attach_at(tree, box->frame, op->target);
    scoped_fd int where = open_target(box, op);
    return where < 0 ? where : mount_attach(tree, where);
}

/* Attaches a finished tree. In a tree the tenant writes, remembers which mount must be seen there
 * at the end; below our own mounts nobody else can rename anything. */
static int attach(struct box *box, const struct op *op, int tree, struct err *err)
{
    int r = put(box, op, tree);

    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "the mount point '/%s' does not exist in what is mounted above it; make it "
                       "there first",
                       op->target);
    if (r < 0)
        return fail(err, r, op, "mount on");
    if (op->flags & OP_TOP) {
        uint64_t id = mount_id(tree);
        if (!id)
            return err_set(err, ERR_KERNEL, ENOSYS, "ask for the id of a mount");
        box->mount_ids[op - box->setup->ops] = id;
    }
    return 0;
}

/* A detached copy of a host path, which must still be what the engine saw under that name. */
static int open_bind_tree(const struct op *op, struct err *err)
{
    struct stat st;
    scoped_fd int source = path_open_canonical(op->source, O_PATH);
    if (source < 0)
        return err_set(err, ERR_NOT_FOUND, -source, "open '%s'", op->source);
    if (fstat(source, &st) < 0 || st.st_dev != op->device || st.st_ino != op->inode)
        return err_set(err, ERR_CONFLICT, 0, "'%s' changed while the sandbox started", op->source);
    int tree = mount_clone(source, (op->flags & OP_RECURSIVE) != 0);
    if (tree < 0)
        return err_set(err, ERR_IO, -tree, "bind '%s'", op->source);
    int r = mount_set(tree, op->attrs, (op->flags & OP_RECURSIVE) != 0, -1);
    if (r < 0) {
        (void)close(tree);
        return err_set(err, ERR_IO, -r, "set mount flags of '%s'", op->source);
    }
    return tree;
}

static int attach_part(int dir, const char *name, int tree)
{
    if (mkdirat(dir, name, 0700) < 0)
        return -errno;
    return mount_attach_at(tree, dir, name);
}

/* Of the two trees that are below the working directory. */
static int make_overlay(const struct op *op)
{
    bool shown = (op->flags & OP_SHOWN) != 0;
    struct overlay_options options = {.lower = shown ? "layer/upper:tree" : "tree",
                                      .upper = shown ? NULL : "layer/upper",
                                      .work = "layer/work",
                                      .in_userns = true,
                                      .exclusive = (op->flags & OP_PLAN) != 0,
                                      .attrs = op->attrs};

    return mount_new_overlay(&options);
}

/* A place for the parts of one layer, as the working directory. */
static int enter_layer_place(struct box *box, const struct op *op)
{
    char name[24];

    snprintf(name, sizeof(name), "layer-%u", (unsigned)(op - box->setup->ops));
    if (mkdirat(box->prepared, name, 0700) < 0)
        return -errno;
    scoped_fd int place = path_open_beneath(box->prepared, name, O_PATH | O_DIRECTORY, 1);
    return place < 0 ? place : fchdir(place) < 0 ? -errno : 0;
}

/* The layer over the tree. Both lie among Carrel's own files while the kernel makes one of them,
 * and go away with the old root; the overlay has copies of its own. */
static int open_layer_tree(struct box *box, const struct op *op, struct err *err)
{
    struct op from = {.source = op->layer,
                      .attrs = op->attrs,
                      .device = op->layer_device,
                      .inode = op->layer_inode};
    scoped_fd int lower = open_bind_tree(op, err);
    scoped_fd int layer = lower < 0 ? -1 : open_bind_tree(&from, err);

    if (layer < 0)
        return -1;
    int r = enter_layer_place(box, op);
    if (r == 0)
        r = attach_part(AT_FDCWD, "tree", lower);
    if (r == 0)
        r = attach_part(AT_FDCWD, "layer", layer);
    if (r == 0)
        r = make_overlay(op);
    if (chdir("/") < 0 || r < 0)
        return err_set(err, r == -EBUSY ? ERR_CONFLICT : ERR_KERNEL, -r, "the %s%s%s: %s",
                       op->flags & OP_PLAN ? "plan's layer" : "layer of '/",
                       op->flags & OP_PLAN ? "" : op->target, op->flags & OP_PLAN ? "" : "'",
                       mount_overlay_fault(r));
    return r;
}

/* Without privilege on the host the engine cannot make mount trees; here it can be done. */
static int open_bind_trees(struct box *box, uint32_t first, uint32_t end, struct err *err)
{
    box->tree_count = box->trees_used = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = &box->setup->ops[i];
        if (!op_has_tree(op))
            continue;
        if (box->tree_count == MESSAGE_MAX_FDS)
            return err_set(err, ERR_LIMIT, 0, "too many mounts (at most %d)", MESSAGE_MAX_FDS);
        int tree = op->kind == OP_LAYER ? open_layer_tree(box, op, err) : open_bind_tree(op, err);
        if (tree < 0)
            return -1;
        box->trees[box->tree_count++] = tree;
    }
    return 0;
}

static int do_bind(struct box *box, const struct op *op, struct err *err)
{
    if (box->trees_used >= box->tree_count)
        return err_set(err, ERR_INVALID, 0, "the setup names more trees than were sent");
    scoped_fd int tree = take_fd(&box->trees[box->trees_used++]);
    if (attach(box, op, tree, err) < 0)
        return -1;
    if (op->target[0] == '\0')
        box->root = take_fd(&tree);
    return 0;
}

static int do_tmpfs(struct box *box, const struct op *op, struct err *err)
{
    struct tmpfs_options options = {.bytes = op->bytes,
                                    .inodes = op->inodes,
                                    .mode = op->mode,
                                    .uid = op->uid,
                                    .gid = op->gid,
                                    .attrs = op->attrs};
    scoped_fd int tree = mount_new_tmpfs(&options);

    if (tree < 0)
        return fail(err, tree, op, "make a tmpfs for");
    if (attach(box, op, tree, err) < 0)
        return -1;
    if (op->target[0] == '\0')
        box->root = take_fd(&tree);
    return 0;
}

static int do_proc(struct box *box, const struct op *op, struct err *err)
{
    scoped_fd int tree = mount_new_proc(!weak("hidepid"), op->attrs);

    if (tree == -EPERM)
        return err_set(
            err, ERR_KERNEL, EPERM,
            "this host does not let a user namespace mount /proc (is Carrel running in a "
            "container whose /proc is masked? unmask it, e.g. docker run "
            "--security-opt systempaths=unconfined)");
    if (tree < 0)
        return fail(err, tree, op, "make");
    return attach(box, op, tree, err);
}

static int do_devpts(struct box *box, const struct op *op, struct err *err)
{
    scoped_fd int tree = mount_new_devpts(op->gid, op->attrs);

    if (tree < 0)
        return fail(err, tree, op, "make");
    return attach(box, op, tree, err);
}

/* The directory an OP_DIR or OP_FILE goes into, and the last part of its name. */
static int open_parent(const struct box *box, const struct op *op, const char **ret_name)
{
    const char *slash = strrchr(op->target, '/');
    char parent[4096];
    int base = op->flags & OP_IN_ROOT ? box->root : box->prepared;

    *ret_name = slash ? slash + 1 : op->target;
    size_t n = slash ? (size_t)(slash - op->target) : 1;
    if (n >= sizeof(parent))
        return -ENAMETOOLONG;
    memcpy(parent, slash ? op->target : ".", n);
    parent[n] = '\0';
    return path_open_beneath(base, parent, O_PATH | O_DIRECTORY, 0);
}

static int do_dir(struct box *box, const struct op *op, struct err *err)
{
    const char *name;
    scoped_fd int parent = open_parent(box, op, &name);

    if (parent < 0 || (mkdirat(parent, name, op->mode) < 0 && errno != EEXIST))
        return fail(err, parent < 0 ? parent : -errno, op, "make directory");
    return 0;
}

static int do_file(struct box *box, const struct op *op, struct err *err)
{
    const char *name;
    scoped_fd int parent = open_parent(box, op, &name);
    size_t n = strlen(op->source);

    if (parent < 0)
        return fail(err, parent, op, "make file");
    scoped_fd int fd =
        openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, op->mode);
    if (fd < 0 && errno == EEXIST && n == 0)
        return 0;
    if (fd < 0 || write(fd, op->source, n) != (ssize_t)n)
        return fail(err, -errno, op, "make file");
    return 0;
}

static int do_link(struct box *box, const struct op *op, struct err *err)
{
    if (symlinkat(op->source, box->prepared, op->target) < 0)
        return fail(err, -errno, op, "make link");
    return 0;
}

static int do_show(struct box *box, const struct op *op, struct err *err)
{
    scoped_fd int source = path_open_beneath(box->prepared, op->source, O_PATH, 1);
    scoped_fd int tree = source < 0 ? source : mount_clone(source, false);

    if (tree < 0)
        return fail(err, tree, op, "prepare");
    int r = mount_set(tree, op->attrs, false, -1);
    if (r < 0)
        return fail(err, r, op, "set mount flags of");
    return attach(box, op, tree, err);
}

/* Files are covered with the null device, directories with an empty one; both covers are read-only
 * mounts already, so a copy of them is all that is needed. A name this kernel does not have needs
 * no cover. */
static int do_mask(struct box *box, const struct op *op, struct err *err)
{
    int cover = S_ISDIR(op->mode) ? box->empty_cover : box->null_cover;

    /* Asked first: to let go of a copy that found no place takes an RCU period. */
    if (faccessat(box->root, op->target, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    scoped_fd int tree = mount_clone(cover, false);
    int r = tree < 0 ? tree : put(box, op, tree);
    return r < 0 ? fail(err, r, op, "cover") : 0;
}

static int do_lock(struct box *box, const struct op *op, struct err *err)
{
    scoped_fd int where = open_target(box, op);

    if (where == -ENOENT)
        return 0;
    scoped_fd int tree = where < 0 ? where : mount_clone(where, false);
    int r = tree < 0 ? tree : mount_set(tree, op->attrs, false, -1);
    if (r == 0)
        r = mount_attach(tree, where);
    return r < 0 ? fail(err, r, op, "make read-only") : 0;
}

/* A place on the root's own mount that nobody inside can see, for those who write files there from
 * outside. */
static void send_covered(struct box *box, const struct op *op)
{
    scoped_fd int where = open_target(box, op);
    struct reply reply = {.kind = REPLY_HIDDEN};

    if (where >= 0)
        talk_answer(box->socket, &reply, where);
}

static int do_move(struct box *box, const struct op *op, struct err *err)
{
    scoped_fd int tree = path_open_beneath(box->frame, op->source, O_PATH, 0);

    if (op->flags & OP_HIDES)
        send_covered(box, op);
    return tree < 0 ? fail(err, tree, op, "find the frame's") : attach(box, op, tree, err);
}

_Static_assert(OP_KIND_COUNT_ == 12, "every kind has an action here");
static int (*const actions[OP_KIND_COUNT_])(struct box *, const struct op *, struct err *) = {
    [OP_BIND] = do_bind, [OP_TMPFS] = do_tmpfs, [OP_PROC] = do_proc, [OP_DEVPTS] = do_devpts,
    [OP_DIR] = do_dir,   [OP_FILE] = do_file,   [OP_LINK] = do_link, [OP_SHOW] = do_show,
    [OP_MASK] = do_mask, [OP_LOCK] = do_lock,   [OP_MOVE] = do_move, [OP_LAYER] = do_bind,
};

/* The prepared files live on one small tmpfs, attached somewhere in the old root so that parts of
 * it can be bound (a detached mount cannot be copied before Linux 6.15); it goes away with the old
 * root. */
static int make_prepared(struct box *box, struct err *err)
{
    struct tmpfs_options options = {.bytes = 1 << 20, .inodes = 1024, .mode = 0755};
    scoped_fd int where = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (!(box->setup->flags & SETUP_UID_RANGE)) {
        options.uid = box->setup->uid;
        options.gid = box->setup->gid;
    }
    box->prepared = mount_new_tmpfs(&options);
    int r = box->prepared < 0 ? box->prepared : mount_attach(box->prepared, where);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "make a tmpfs for Carrel's own files");
    if (mkdirat(box->prepared, "frame", 0755) < 0)
        return err_set(err, ERR_IO, errno, "prepare Carrel's own files");
    box->root = box->frame = path_open_beneath(box->prepared, "frame", O_PATH | O_DIRECTORY, 1);
    return box->frame < 0 ? err_set(err, ERR_IO, -box->frame, "prepare Carrel's own files") : 0;
}

/* Binds `source` read-only over an entry of its own in the prepared files: what covers are copied
 * from (a copy keeps the flags; a detached mount could not be copied). */
static int make_cover(struct box *box, int source, const char *name, struct err *err)
{
    scoped_fd int tree = mount_clone(source, false);
    int where = tree < 0 ? tree : path_open_beneath(box->prepared, name, O_PATH, 1);
    int r =
        where < 0 ? where : mount_set(tree, MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NOEXEC, false, -1);

    if (r == 0)
        r = mount_attach(tree, where);
    if (where >= 0)
        (void)close(where);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "prepare the cover '%s'", name);
    return take_fd(&tree);
}

static int make_covers(struct box *box, struct err *err)
{
    struct stat st;
    scoped_fd int null = path_open_canonical("/dev/null", O_PATH);

    if (null < 0)
        return err_set(err, ERR_NOT_FOUND, -null, "open '/dev/null'");
    if (fstat(null, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
        return err_set(err, ERR_KERNEL, 0, "'/dev/null' of this host is not the null device");
    if (mkdirat(box->prepared, "empty", 0555) < 0 ||
        mknodat(box->prepared, "null", S_IFREG | 0444, 0) < 0)
        return err_set(err, ERR_IO, errno, "prepare Carrel's own files");
    scoped_fd int empty = path_open_beneath(box->prepared, "empty", O_PATH, 1);
    if (empty < 0)
        return err_set(err, ERR_IO, -empty, "prepare Carrel's own files");
    box->null_cover = make_cover(box, null, "null", err);
    if (box->null_cover < 0)
        return -1;
    box->empty_cover = make_cover(box, empty, "empty", err);
    return box->empty_cover < 0 ? -1 : 0;
}

static int carry_out(struct box *box, uint32_t first, uint32_t end, struct err *err)
{
    umask(0);
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = &box->setup->ops[i];
        if (actions[op->kind](box, op, err) < 0)
            return -1;
    }
    umask(022);
    return 0;
}

/* Situation: new mount namespace still showing the host, all capabilities inside the user
 * namespace, uid as stage_become_builder left it. */
int stage_build_frame(struct box *box, struct err *err)
{
    uint32_t count = box->setup->frame_count;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_set(err, ERR_IO, errno, "make mounts private");
    if (!(box->setup->flags & SETUP_TREES_PASSED) && open_bind_trees(box, 0, count, err) < 0)
        return -1;
    if (make_prepared(box, err) < 0 || make_covers(box, err) < 0)
        return -1;
    return carry_out(box, 0, count, err);
}

/* Situation: as above, with the frame in place; the tenant's tree has come with the message. */
int stage_build_root(struct box *box, struct err *err)
{
    uint32_t first = box->setup->frame_count;
    uint32_t end = box->setup->op_count;

    if (!(box->setup->flags & SETUP_TREES_PASSED) && open_bind_trees(box, first, end, err) < 0)
        return -1;
    return carry_out(box, first, end, err);
}

/* Whether ".." at the root leads anywhere but to the root: it would follow a mount left on top. */
static bool root_is_the_end(void)
{
    scoped_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int above = open("/..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat r;
    struct stat a;

    return root >= 0 && above >= 0 && fstat(root, &r) == 0 && fstat(above, &a) == 0 &&
           r.st_dev == a.st_dev && r.st_ino == a.st_ino && mount_id(root) == mount_id(above);
}

int stage_enter_root(struct box *box, struct err *err)
{
    char cwd[8];

    if (fchdir(box->root) < 0)
        return err_set(err, ERR_IO, errno, "enter the new root");
    if (weak("pivot"))
        return chroot(".");
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return err_set(err, ERR_IO, errno, "make the workspace the root");
    /* The old root now lies on top of the new one. */
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_set(err, ERR_IO, errno, "leave the host's root");
    /* CVE-2024-21626: a working directory outside the root would show here. */
    if (syscall(SYS_getcwd, cwd, sizeof(cwd)) < 0 || strcmp(cwd, "/") != 0 || !root_is_the_end())
        return err_set(err, ERR_CONFLICT, 0, "the new root is not where it should be");
    return 0;
}

/* What is seen under each mounted name must be the mount made for it. */
int stage_verify_mounts(struct box *box, struct err *err)
{
    for (uint32_t i = 0; i < box->setup->op_count; i++) {
        const struct op *op = &box->setup->ops[i];
        if (!box->mount_ids[i] || op->target[0] == '\0')
            continue;
        scoped_fd int fd = path_open_beneath(box->root, op->target, O_PATH, 0);
        if (fd < 0 || mount_id(fd) != box->mount_ids[i])
            return err_set(err, ERR_CONFLICT, 0,
                           "'/%s' was renamed or replaced while the sandbox started; start it "
                           "again when nothing else works on that name",
                           op->target);
    }
    return 0;
}
