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
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/fd.h"
#include "base/weak.h"
#include "init/init.h"
#include "sys/mount.h"
#include "sys/path.h"

enum {
    LEAVER_STACK = 16384,
    TRUST_BYTES = 512 << 10, /* most authorities of a system */
};

static int fail(struct err *err, int negative_errno, const struct op *op, const char *what)
{
    int code = negative_errno == -ENOENT ? ERR_NOT_FOUND : ERR_IO;

    return err_set(err, (enum err_code)code, -negative_errno, "%s '/%s'", what, op->target);
}

/* Opens the mount point of an operation in the new root. */
static int open_target(struct sandbox *sandbox, const struct op *op)
{
    if (op->target[0] == '\0')
        return open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return path_open_beneath(sandbox->root, op->target, O_PATH, (op->flags & OP_TOP) != 0);
}

/* The frame is ours alone: a path leads where it says there, and the working directory is its top.
 */
static bool in_frame(const struct sandbox *sandbox, const struct op *op)
{
    return sandbox->root == sandbox->frame && op->target[0] != '\0';
}

static int put(struct sandbox *sandbox, const struct op *op, int tree)
{
    if (op->flags & OP_SYSTEM) /* parts of it are shown, never the whole */
        return mount_attach_at(tree, sandbox->prepared, op->target);
    if (in_frame(sandbox, op) && op->kind != OP_PART)
        return mount_attach_at(tree, sandbox->frame, op->target);
    scoped_fd int where = open_target(sandbox, op);
    return where < 0 ? where : mount_attach(tree, where);
}

/* In a tree the tenant writes: which mount must be seen there at the end. Below our own mounts
 * nobody else can rename anything. */
static int remember(struct sandbox *sandbox, const struct op *op, uint64_t id, struct err *err)
{
    if (!id)
        return err_set(err, ERR_KERNEL, ENOSYS, "ask for the id of a mount");
    sandbox->mount_ids[op - sandbox->setup->ops] = id;
    return 0;
}

/* Attaches a finished tree. */
static int attach(struct sandbox *sandbox, const struct op *op, int tree, struct err *err)
{
    int r = put(sandbox, op, tree);

    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "the mount point '/%s' does not exist in what is mounted above it; make it "
                       "there first",
                       op->target);
    if (r < 0)
        return fail(err, r, op, "mount on");
    return op->flags & OP_TOP ? remember(sandbox, op, mount_id(tree), err) : 0;
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

/* Of the trees that are below the working directory. */
static int make_overlay(const struct op *op)
{
    bool shown = (op->flags & OP_SHOWN) != 0;
    char lower[48];
    snprintf(lower, sizeof(lower), "%s%stree", shown ? "layer/upper:" : "",
             *op->over ? "over:" : "");
    struct overlay_options options = {.lower = lower,
                                      .upper = shown ? NULL : "layer/upper",
                                      .work = "layer/work",
                                      .in_userns = true,
                                      .exclusive = (op->flags & (OP_PLAN | OP_STAYS)) == OP_PLAN,
                                      .attrs = op->attrs};

    return mount_new_overlay(&options);
}

/* A place for the parts of one layer, as the working directory. */
static int enter_layer_place(struct sandbox *sandbox, const struct op *op)
{
    char name[24];

    snprintf(name, sizeof(name), "layer-%u", (unsigned)(op - sandbox->setup->ops));
    if (mkdirat(sandbox->prepared, name, 0700) < 0)
        return -errno;
    scoped_fd int place = path_open_beneath(sandbox->prepared, name, O_PATH | O_DIRECTORY, 1);
    return place < 0 ? place : fchdir(place) < 0 ? -errno : 0;
}

/* The layer over the tree. Both lie among Carrel's own files while the kernel makes one of them,
 * and go away with the old root; the overlay has copies of its own. */
static int open_layer_tree(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    struct op from = {.source = op->layer,
                      .attrs = op->attrs,
                      .device = op->layer_device,
                      .inode = op->layer_inode};
    struct op between = {.source = op->over,
                         .attrs = op->attrs | MOUNT_RDONLY,
                         .device = op->over_device,
                         .inode = op->over_inode};
    scoped_fd int lower = open_bind_tree(op, err);
    scoped_fd int layer = lower < 0 ? -1 : open_bind_tree(&from, err);
    scoped_fd int over = layer < 0 || !*op->over ? -1 : open_bind_tree(&between, err);

    if (layer < 0 || (*op->over && over < 0))
        return -1;
    int r = enter_layer_place(sandbox, op);
    if (r == 0)
        r = attach_part(AT_FDCWD, "tree", lower);
    if (r == 0 && over >= 0)
        r = attach_part(AT_FDCWD, "over", over);
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
static int open_bind_trees(struct sandbox *sandbox, uint32_t first, uint32_t end, struct err *err)
{
    sandbox->tree_count = sandbox->trees_used = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = &sandbox->setup->ops[i];
        if (!op_has_tree(op))
            continue;
        if (sandbox->tree_count == MESSAGE_MAX_FDS)
            return err_set(err, ERR_LIMIT, 0, "too many mounts (at most %d)", MESSAGE_MAX_FDS);
        int tree =
            op->kind == OP_LAYER ? open_layer_tree(sandbox, op, err) : open_bind_tree(op, err);
        if (tree < 0)
            return -1;
        sandbox->trees[sandbox->tree_count++] = tree;
    }
    return 0;
}

static int bind_of_host(const struct sandbox *sandbox, const struct op *op, struct err *err)
{
    bool recursive = (op->flags & OP_RECURSIVE) != 0;
    int r = in_frame(sandbox, op) ? mount_bind_with_at(op->source, op->target, op->attrs, recursive)
                                  : -EINVAL;

    return r < 0 ? err_set(err, ERR_IO, -r, "bind '%s'", op->source) : 0;
}

static int do_bind(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    if (op->flags & OP_OF_HOST)
        return bind_of_host(sandbox, op, err);
    if (sandbox->trees_used >= sandbox->tree_count)
        return err_set(err, ERR_INVALID, 0, "the setup names more trees than were sent");
    scoped_fd int tree = take_fd(&sandbox->trees[sandbox->trees_used++]);
    if (attach(sandbox, op, tree, err) < 0)
        return -1;
    if (op->target[0] == '\0')
        sandbox->root = take_fd(&tree);
    return 0;
}

static int do_tmpfs(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    struct tmpfs_options options = {.bytes = op->bytes,
                                    .inodes = op->inodes,
                                    .mode = op->mode,
                                    .uid = op->uid,
                                    .gid = op->gid,
                                    .attrs = op->attrs};

    if (in_frame(sandbox, op)) {
        int r = mount_tmpfs_at(op->target, &options);
        return r < 0 ? fail(err, r, op, "make a tmpfs for") : 0;
    }
    scoped_fd int tree = mount_new_tmpfs(&options);
    if (tree < 0)
        return fail(err, tree, op, "make a tmpfs for");
    if (attach(sandbox, op, tree, err) < 0)
        return -1;
    if (op->target[0] == '\0')
        sandbox->root = take_fd(&tree);
    return 0;
}

static int do_proc(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    int r = mount_proc_at(op->target, !weak("hidepid"), op->attrs);

    (void)sandbox;
    if (r == -EPERM)
        return err_set(
            err, ERR_KERNEL, EPERM,
            "this host does not let a user namespace mount /proc (is Carrel running in a "
            "container whose /proc is masked? unmask it, e.g. docker run "
            "--security-opt systempaths=unconfined)");
    return r < 0 ? fail(err, r, op, "make") : 0;
}

static int do_devpts(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    int r = mount_devpts_at(op->target, op->gid, op->attrs);

    (void)sandbox;
    return r < 0 ? fail(err, r, op, "make") : 0;
}

/* The directory an OP_DIR or OP_FILE goes into, and its name there: of what is ours alone the top,
 * and all of the path. `own` is for one that has to be opened. */
static int find_parent(const struct sandbox *sandbox, const struct op *op, int *own,
                       const char **ret_name)
{
    const char *slash = strrchr(op->target, '/');
    char parent[4096];
    int base = op->flags & OP_IN_ROOT ? sandbox->root : sandbox->prepared;

    *ret_name = op->target;
    if (!slash || in_frame(sandbox, op))
        return base;
    *ret_name = slash + 1;
    size_t n = (size_t)(slash - op->target);
    if (n >= sizeof(parent))
        return -ENAMETOOLONG;
    memcpy(parent, op->target, n);
    parent[n] = '\0';
    return *own = path_open_beneath(base, parent, O_PATH | O_DIRECTORY, 0);
}

static int do_dir(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    const char *name;
    scoped_fd int own = -1;
    int parent = find_parent(sandbox, op, &own, &name);

    if (parent < 0 || (mkdirat(parent, name, op->mode) < 0 && errno != EEXIST))
        return fail(err, parent < 0 ? parent : -errno, op, "make directory");
    return 0;
}

/* What the system of the workspace's own has in place of the host's file; < 0: nothing that can be
 * read. Root inside may have put anything there. */
static int open_trust(const struct sandbox *sandbox)
{
    struct stat st;
    scoped_fd int fd = path_open_beneath(sandbox->prepared, SETUP_SYSTEM_PLACE "/" SETUP_TRUST,
                                         O_RDONLY | O_NONBLOCK, 0);

    if (fd < 0)
        return fd;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= TRUST_BYTES
               ? take_fd(&fd)
               : -EINVAL;
}

/* What a file of the host's has, which everybody may read. */
static int copy_before(const struct sandbox *sandbox, const struct op *op, int fd)
{
    char piece[16384];
    scoped_fd int from = op->flags & OP_TRUST ? open_trust(sandbox) : -1;
    ssize_t n;

    if (from < 0 && (!op->layer || !*op->layer))
        return 0;
    if (from < 0)
        from = open(op->layer, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return -errno;
    while ((n = read(from, piece, sizeof(piece))) > 0) {
        if (write(fd, piece, (size_t)n) != n)
            return -EIO;
    }
    return n < 0 ? -errno : 0;
}

static int write_source(const struct op *op, int fd, size_t n)
{
    scoped_buf struct buf bytes;

    buf_init(&bytes, n);
    if (!(op->flags & OP_BASE64))
        return write(fd, op->source, n) == (ssize_t)n ? 0 : -1;
    if (bytes_add_decoded(&bytes, op->source, n) < 0 || buf_done(&bytes) < 0) {
        errno = EINVAL;
        return -1;
    }
    return write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n ? 0 : -1;
}

static int do_file(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    const char *name;
    scoped_fd int own = -1;
    int parent = find_parent(sandbox, op, &own, &name);
    size_t n = strlen(op->source);

    if (parent < 0)
        return fail(err, parent, op, "make file");
    if (n == 0) { /* to be mounted on */
        bool is_there = mknodat(parent, name, S_IFREG | op->mode, 0) == 0 || errno == EEXIST;
        return is_there ? 0 : fail(err, -errno, op, "make file");
    }
    scoped_fd int fd =
        openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, op->mode);
    int r = fd >= 0 ? copy_before(sandbox, op, fd) : 0;
    if (r < 0)
        return fail(err, r, op, "copy what the host has to");
    if (fd < 0 || write_source(op, fd, n) < 0)
        return fail(err, -errno, op, "make file");
    return 0;
}

static int do_link(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    if (symlinkat(op->source, sandbox->prepared, op->target) < 0)
        return fail(err, -errno, op, "make link");
    return 0;
}

static int do_show(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    char source[64];
    int n = snprintf(source, sizeof(source), "../%s", op->source);

    (void)sandbox;
    if (n < 0 || (size_t)n >= sizeof(source))
        return fail(err, -ENAMETOOLONG, op, "prepare");
    int r = mount_bind_with_at(source, op->target, op->attrs, false);
    return r < 0 ? fail(err, r, op, "show") : 0;
}

/* Root inside may have made a link, or a file, of any directory. */
static int refuse_part(const struct op *op, int negative_errno, struct err *err)
{
    return err_set(
        err, ERR_CONFLICT, -negative_errno,
        "'/%s' of the workspace's own system is missing, or a link, and nothing starts on "
        "it; begin with a new layer (another DIR of --system), or: carrel ws sleep, then carrel ws "
        "reset-system",
        op->target);
}

static int do_part(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    scoped_fd int source = path_open_beneath(sandbox->prepared, op->source, O_PATH, 0);
    scoped_fd int tree = source < 0 ? source : mount_clone(source, false);
    int r = tree < 0 ? tree : mount_set(tree, op->attrs, false, -1);

    if (r == 0)
        r = put(sandbox, op, tree);
    if (r < 0 && op->flags & OP_TRUST)
        return 0; /* variables name what is trusted, too */
    return r < 0 ? refuse_part(op, r, err) : 0;
}

/* Whether only somebody who is nobody inside can read it: the host's root. Nobody inside has the
 * capability to do so all the same. */
static bool is_closed(const struct sandbox *sandbox, const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_mode & 077) == 0 && st->st_uid != sandbox->setup->uid &&
           st->st_uid != 0;
}

/* Files are covered with the null device, directories with an empty one; both covers are read-only
 * mounts already, so a copy of them is all that is needed. A name this kernel does not have needs
 * no cover. */
static int do_mask(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    const char *cover = S_ISDIR(op->mode) ? "../empty" : "../null";
    struct stat st;

    if (fstatat(sandbox->frame, op->target, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail(err, -errno, op, "look at");
    if (is_closed(sandbox, &st))
        return 0;
    int r = mount_bind_at(cover, op->target, false);
    return r < 0 ? fail(err, r, op, "cover") : 0;
}

static int do_lock(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    int r = mount_bind_with_at(op->target, op->target, op->attrs, false);

    (void)sandbox;
    return r < 0 && r != -ENOENT ? fail(err, r, op, "make read-only") : 0;
}

/* A place on the root's own mount that nobody inside can see, for those who write files there from
 * outside. */
static void send_covered(struct sandbox *sandbox, const struct op *op)
{
    scoped_fd int where = open_target(sandbox, op);
    struct reply reply = {.kind = REPLY_HIDDEN};

    if (where >= 0)
        talk_answer(sandbox->socket, &reply, where);
}

static int do_move(struct sandbox *sandbox, const struct op *op, struct err *err)
{
    bool is_top = (op->flags & OP_TOP) != 0;

    if (op->flags & OP_HIDES)
        send_covered(sandbox, op);
    if (is_top && remember(sandbox, op, mount_id_at(sandbox->frame, op->source), err) < 0)
        return -1;
    scoped_fd int own = is_top ? open_target(sandbox, op) : -1; /* an empty one of our own */
    int where = is_top ? own : sandbox->root;
    int r = where < 0 ? where
                      : mount_move_at(sandbox->frame, op->source, where, is_top ? "" : op->target);
    return r < 0 ? fail(err, r, op, "mount on") : 0;
}

_Static_assert(OP_KIND_COUNT_ == 13, "every kind has an action here");
static int (*const actions[OP_KIND_COUNT_])(struct sandbox *, const struct op *, struct err *) = {
    [OP_BIND] = do_bind, [OP_TMPFS] = do_tmpfs, [OP_PROC] = do_proc, [OP_DEVPTS] = do_devpts,
    [OP_DIR] = do_dir,   [OP_FILE] = do_file,   [OP_LINK] = do_link, [OP_SHOW] = do_show,
    [OP_MASK] = do_mask, [OP_LOCK] = do_lock,   [OP_MOVE] = do_move, [OP_LAYER] = do_bind,
    [OP_PART] = do_part,
};

/* The prepared files live on one small tmpfs, attached somewhere in the old root so that parts of
 * it can be bound (a detached mount cannot be copied before Linux 6.15); it goes away with the old
 * root. */
static int make_prepared(struct sandbox *sandbox, struct err *err)
{
    struct tmpfs_options options = {.bytes = 1 << 20, .inodes = 1024, .mode = 0755};

    if (!(sandbox->setup->flags & SETUP_UID_RANGE)) {
        options.uid = sandbox->setup->uid;
        options.gid = sandbox->setup->gid;
    }
    int r = mount_tmpfs_at("/proc", &options);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "make a tmpfs for Carrel's own files");
    if (chdir("/proc") < 0 || mkdir("frame", 0755) < 0 || chdir("frame") < 0)
        return err_set(err, ERR_IO, errno, "prepare Carrel's own files");
    sandbox->prepared = open("..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    sandbox->root = sandbox->frame = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (sandbox->prepared < 0 || sandbox->frame < 0)
        return err_set(err, ERR_IO, errno, "prepare Carrel's own files");
    return 0;
}

/* What covers are copied from: a copy keeps the flags of its mount. */
static int make_covers(struct sandbox *sandbox, struct err *err)
{
    const uint64_t attrs = MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NOEXEC;
    struct stat st;
    scoped_fd int null = path_open_canonical("/dev/null", O_PATH);

    if (null < 0)
        return err_set(err, ERR_NOT_FOUND, -null, "open '/dev/null'");
    if (fstat(null, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
        return err_set(err, ERR_KERNEL, 0, "'/dev/null' of this host is not the null device");
    if (mkdirat(sandbox->prepared, "empty", 0555) < 0 ||
        mknodat(sandbox->prepared, "null", S_IFREG | 0444, 0) < 0)
        return err_set(err, ERR_IO, errno, "prepare Carrel's own files");
    int r = mount_bind_with_at("../empty", "../empty", attrs, false);
    scoped_fd int tree = r < 0 ? r : mount_clone(null, false);
    r = tree < 0 ? tree : mount_set(tree, attrs, false, -1);
    if (r == 0)
        r = mount_attach_at(tree, sandbox->prepared, "null");
    return r < 0 ? err_set(err, ERR_IO, -r, "prepare what covers files") : 0;
}

static int carry_out(struct sandbox *sandbox, uint32_t first, uint32_t end, struct err *err)
{
    umask(0);
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = &sandbox->setup->ops[i];
        if (actions[op->kind](sandbox, op, err) < 0)
            return -1;
    }
    umask(022);
    return 0;
}

/* Situation: new mount namespace still showing the host, all capabilities inside the user
 * namespace, uid as stage_become_builder left it. */
int stage_build_frame(struct sandbox *sandbox, struct err *err)
{
    uint32_t count = sandbox->setup->frame_count;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_set(err, ERR_IO, errno, "make mounts private");
    bool opens = !(sandbox->setup->flags & SETUP_TREES_PASSED);
    bool has_layer =
        (sandbox->setup->flags & SETUP_SYSTEM) != 0; /* made among the prepared files */
    if (opens && !has_layer && open_bind_trees(sandbox, 0, count, err) < 0)
        return -1;
    if (make_prepared(sandbox, err) < 0 || make_covers(sandbox, err) < 0)
        return -1;
    if (opens && has_layer && open_bind_trees(sandbox, 0, count, err) < 0)
        return -1;
    if (fchdir(sandbox->frame) < 0)
        return err_set(err, ERR_IO, errno, "enter the frame");
    if (carry_out(sandbox, 0, count, err) < 0)
        return -1;
    return chdir("/") < 0 ? err_set(err, ERR_IO, errno, "leave the frame") : 0;
}

/* Situation: as above, with the frame in place; the tenant's tree has come with the message. */
int stage_build_root(struct sandbox *sandbox, struct err *err)
{
    uint32_t first = sandbox->setup->frame_count;
    uint32_t end = sandbox->setup->op_count;

    if (!(sandbox->setup->flags & SETUP_TREES_PASSED) &&
        open_bind_trees(sandbox, first, end, err) < 0)
        return -1;
    return carry_out(sandbox, first, end, err);
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

static int detach_here(void *context)
{
    (void)context;
    return umount2(".", MNT_DETACH) < 0 ? errno : 0;
}

/* The old root lies on top of the new one, and here is it. It is gone at once, but who takes it
 * away waits for all processors of the host, up to milliseconds: a child does, while we go on. Its
 * memory is ours. Before Linux 6.2 there can be no such child, and none where a limit is reached,
 * by some who were just killed, maybe: then we wait. */
static int begin_to_leave(struct sandbox *sandbox)
{
    static char stack[LEAVER_STACK] __attribute__((aligned(16)));

    sandbox->leaver = clone(detach_here, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
    if (sandbox->leaver < 0 && (errno == EINVAL || errno == EAGAIN))
        return detach_here(NULL) == 0 ? 0 : -1;
    return sandbox->leaver < 0 ? -1 : 0;
}

int stage_enter_root(struct sandbox *sandbox, struct err *err)
{
    char cwd[8];

    if (fchdir(sandbox->root) < 0)
        return err_set(err, ERR_IO, errno, "enter the new root");
    if (weak("pivot"))
        return chroot(".");
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return err_set(err, ERR_IO, errno, "make the workspace the root");
    if (begin_to_leave(sandbox) < 0 || chdir("/") < 0)
        return err_set(err, ERR_IO, errno, "leave the host's root");
    /* CVE-2024-21626: a working directory outside the root would show here. */
    if (syscall(SYS_getcwd, cwd, sizeof(cwd)) < 0 || strcmp(cwd, "/") != 0)
        return err_set(err, ERR_CONFLICT, 0, "the new root is not where it should be");
    return 0;
}

/* Situation: everything is done, and nothing was started yet. */
int stage_left_root(struct sandbox *sandbox, struct err *err)
{
    int status = 0;

    if (weak("pivot"))
        return 0;
    while (sandbox->leaver > 0 && waitpid(sandbox->leaver, &status, 0) < 0) {
        if (errno != EINTR)
            return err_set(err, ERR_IO, errno, "wait until the host's root has gone");
    }
    if (status != 0)
        return err_set(err, ERR_IO, WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                       "leave the host's root");
    if (!root_is_the_end())
        return err_set(err, ERR_CONFLICT, 0, "the new root is not where it should be");
    return 0;
}

/* The mount seen under a name; 0 where that cannot be said, or a link would have to be followed. */
static uint64_t seen_at(const struct sandbox *sandbox, const char *target)
{
    if (!strchr(target, '/') && !weak("mountpoint-check"))
        return mount_id_at(sandbox->root, target);
    scoped_fd int fd = path_open_beneath(sandbox->root, target, O_PATH, 0);
    return fd < 0 ? 0 : mount_id(fd);
}

/* What is seen under each mounted name must be the mount made for it. */
int stage_verify_mounts(struct sandbox *sandbox, struct err *err)
{
    for (uint32_t i = 0; i < sandbox->setup->op_count; i++) {
        const struct op *op = &sandbox->setup->ops[i];
        if (!sandbox->mount_ids[i] || op->target[0] == '\0')
            continue;
        if (seen_at(sandbox, op->target) != sandbox->mount_ids[i])
            return err_set(err, ERR_CONFLICT, 0,
                           "'/%s' was renamed or replaced while the sandbox started; start it "
                           "again when nothing else works on that name",
                           op->target);
    }
    return 0;
}
