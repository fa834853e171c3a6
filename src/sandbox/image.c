/* SPDX-License-Identifier: Apache-2.0 */
/* A workspace in a file system image: the kernel keeps the limit, exactly.
 *
 * The image is beside the workspace, not in it: the kernel must never mount what a tenant has
 * written. So it also has to be root's, private, of one name, and carry a mark that only root on
 * the host can set. A new one gets its name last, when everything in it is ready.
 *
 * The lock on the image belongs to the open file that the loop device holds: it ends when the last
 * user of the mount does. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "policy/units.h"
#include "sandbox/identity.h"
#include "sandbox/image.h"
#include "sandbox/limits/disk.h"
#include "sandbox/run.h"
#include "sys/loop.h"
#include "sys/mount.h"
#include "sys/path.h"

#define SUFFIX    ".carrel-img"
#define MARK      "trusted.carrel.image"
#define MIN_BYTES (8UL << 20)

enum {
    LOCK_MS = 5000, /* the mount of the run before may take a moment to go */
    LOCK_STEP_MS = 10,
    CHILD_FD = 3,
};

struct image {
    char path[4096];
    const char *name; /* in it */
    int dir;
    int file;
    struct stat workspace;
    uint64_t bytes;
    uint64_t wait_ms; /* for the run before */
};

static void image_clear(struct image *image)
{
    scope_close(&image->dir);
    scope_close(&image->file);
}

static int find(struct image *image, int workspace_fd, struct err *err)
{
    size_t room = sizeof(image->path) - sizeof(SUFFIX);
    int r = path_of_fd(workspace_fd, image->path, room);

    if (r < 0 || fstat(workspace_fd, &image->workspace) < 0)
        return err_set(err, ERR_IO, r < 0 ? -r : errno, "find the workspace");
    char *slash = strrchr(image->path, '/');
    if (!slash || !slash[1])
        return err_set(err, ERR_INVALID, 0, "this workspace cannot have a disk image");
    *slash = '\0';
    image->dir =
        path_open_canonical(slash == image->path ? "/" : image->path, O_RDONLY | O_DIRECTORY);
    if (image->dir < 0)
        return err_set(err, ERR_IO, -image->dir, "open '%s'", image->path);
    *slash = '/';
    image->name = slash + 1;
    memcpy(image->path + strlen(image->path), SUFFIX, sizeof(SUFFIX));
    return 0;
}

/* An image is made sparse, but what it promises must be there. */
static int check_room(const struct image *image, uint64_t allocated, struct err *err)
{
    uint64_t needed = image->bytes > allocated ? image->bytes - allocated : 0;
    struct statvfs fs;
    char text[32];

    if (fstatvfs(image->dir, &fs) < 0)
        return err_set(err, ERR_IO, errno, "look at the disk of '%s'", image->path);
    if ((uint64_t)fs.f_bavail * fs.f_frsize < needed)
        return err_set(err, ERR_LIMIT, ENOSPC,
                       "the disk image '%s' may grow to %s, and the disk has no room for that; "
                       "make room, or ask for less",
                       image->path, units_text(UNITS_SIZE, image->bytes, text));
    return 0;
}

/* An image belongs to nobody: what belongs to the owner of a workspace around it, root for one,
 * would be the user's in a sandbox there. */
#define IMAGE_OWNER (IDENTITY_LEASE_FIRST - 1)
#define IMAGE_MODE  0000

static bool has_the_looks_of_one(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == IMAGE_OWNER && (st->st_mode & 07777) == IMAGE_MODE;
}

static int check_existing(const struct image *image, struct err *err)
{
    struct stat st;
    char mark[8];
    char text[32];

    if (fstat(image->file, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at '%s'", image->path);
    if (!has_the_looks_of_one(&st) || st.st_nlink != 1)
        return err_set(err, ERR_DENIED, 0,
                       "'%s' is not mounted: it must be a file of uid %u with mode 0000 and one "
                       "name",
                       image->path, IMAGE_OWNER);
    if (fgetxattr(image->file, MARK, mark, sizeof(mark)) < 0)
        return err_set(err, ERR_DENIED, 0,
                       "'%s' was not made by Carrel, and a crafted image could attack the kernel; "
                       "if you trust it: setfattr -n " MARK " -v 1 FILE",
                       image->path);
    if ((uint64_t)st.st_size != image->bytes)
        return err_set(err, ERR_CONFLICT, 0,
                       "the size of '%s' cannot change; ask for image:%s, or remove it with all "
                       "that is in it",
                       image->path, units_text(UNITS_SIZE, (uint64_t)st.st_size, text));
    return check_room(image, (uint64_t)st.st_blocks * 512, err);
}

static int lock(const struct image *image, struct err *err)
{
    for (uint64_t waited = 0;; waited += LOCK_STEP_MS) {
        if (flock(image->file, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_set(err, ERR_IO, errno, "lock '%s'", image->path);
        if (waited >= image->wait_ms)
            break;
        (void)poll(NULL, 0, LOCK_STEP_MS);
    }
    return err_set(err, ERR_CONFLICT, 0,
                   "another run uses the disk image '%s', which takes one at a time; try again "
                   "when it has ended, or give this one a workspace of its own",
                   image->path);
}

static int spawn_mkfs(const char *program, int file, const char *root_owner, pid_t *ret)
{
    const char *argv[] = {program, "-q", "-F", "-b",       "4096", "-i",     "8192",
                          "-m",    "0",  "-E", root_owner, "-L",   "carrel", "/proc/self/fd/3",
                          NULL};
    char *env[] = {(char[]){"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, (char[]){"LC_ALL=C"}, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all;
    sigset_t none;

    if (posix_spawn_file_actions_init(&files) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&how) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return -ENOMEM;
    }
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    (void)posix_spawnattr_setsigdefault(&how, &all);
    (void)posix_spawnattr_setsigmask(&how, &none);
    int r = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    for (int fd = 0; r == 0 && fd < 3; fd++)
        r = posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&files, file, CHILD_FD);
    if (r == 0)
        r = posix_spawn(ret, program, &files, &how, (char *const *)(uintptr_t)argv, env);
    (void)posix_spawnattr_destroy(&how);
    (void)posix_spawn_file_actions_destroy(&files);
    return -r;
}

static int make_file_system(const struct image *image, struct err *err)
{
    static const char *const programs[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"};
    const char *program = access(programs[0], X_OK) == 0 ? programs[0] : programs[1];
    char options[128];
    char text[32];
    int status = 0;
    pid_t pid = -1;

    snprintf(options, sizeof(options),
             "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=%u:%u",
             image->workspace.st_uid, image->workspace.st_gid);
    /* Not the number it gets in the child: there it would keep its close-on-exec. */
    scoped_fd int file = fcntl(image->file, F_DUPFD_CLOEXEC, CHILD_FD + 1);
    if (file < 0)
        return err_set(err, ERR_LIMIT, errno, "open files");
    int r = spawn_mkfs(program, file, options, &pid);
    if (r == -ENOENT || r == -EACCES)
        return err_set(err, ERR_KERNEL, 0,
                       "a disk image needs mkfs.ext4 (install the package e2fsprogs)");
    if (r < 0)
        return err_set(err, ERR_IO, -r, "start '%s'", program);
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return err_set(err, ERR_IO, errno, "wait for '%s'", program);
    }
    if (status != 0)
        return err_set(err, ERR_IO, 0, "'%s' could not make a file system of %s", program,
                       units_text(UNITS_SIZE, image->bytes, text));
    return 0;
}

static int mount_image(const struct image *image, int *ret_tree, struct err *err)
{
    char path[32];
    scoped_fd int device = loop_attach(image->file, path, sizeof(path));

    if (device < 0)
        return err_set(err, ERR_KERNEL, -device,
                       "make a loop device for '%s' (a disk image needs /dev/loop-control and a "
                       "free loop device)",
                       image->path);
    int tree = mount_new_ext4(path, MOUNT_NOSUID | MOUNT_NODEV);
    if (tree < 0)
        return err_set(err, ERR_KERNEL, -tree, "mount the disk image '%s'", image->path);
    *ret_tree = tree;
    return 0;
}

/* Only an empty directory: what is in it would be covered, and look lost. */
static int check_empty(const struct image *image, int workspace_fd, struct err *err)
{
    scoped_fd int fd = openat(workspace_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int empty = fd < 0 ? -errno : path_dir_is_empty(fd);

    if (empty < 0)
        return err_set(err, ERR_IO, -empty, "look into the workspace");
    if (!empty)
        return err_set(err, ERR_CONFLICT, 0,
                       "the workspace is not empty, but with --disk=image its files are in '%s', "
                       "which does not exist yet; name an empty directory, or --create one",
                       image->path);
    return 0;
}

static int prepare_root(const struct image *image, int tree, struct err *err)
{
    scoped_fd int root = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (root < 0 || fchmod(root, image->workspace.st_mode & 0777) < 0)
        return err_set(err, ERR_IO, errno, "open the disk image '%s'", image->path);
    /* For a file system check after a disaster, which makes it again. */
    ignore(unlinkat(root, "lost+found", AT_REMOVEDIR) == 0);
    return 0;
}

static int name_it(const struct image *image, struct err *err)
{
    char link[32];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", image->file);
    if (linkat(AT_FDCWD, link, image->dir, image->name, AT_SYMLINK_FOLLOW) < 0)
        return err_set(err, errno == EEXIST ? ERR_CONFLICT : ERR_IO, errno, "make '%s'",
                       image->path);
    return 0;
}

static int make_image(struct image *image, int workspace_fd, int *ret_tree, struct err *err)
{
    if (check_empty(image, workspace_fd, err) < 0 || check_room(image, 0, err) < 0)
        return -1;
    image->file = openat(image->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (image->file < 0 || fchown(image->file, IMAGE_OWNER, IMAGE_OWNER) < 0 ||
        fchmod(image->file, IMAGE_MODE) < 0 || ftruncate(image->file, (off_t)image->bytes) < 0 ||
        fsetxattr(image->file, MARK, "1", 1, 0) < 0)
        return err_set(err, ERR_IO, errno, "make '%s'", image->path);
    scoped_fd int tree = -1;
    if (make_file_system(image, err) < 0 || lock(image, err) < 0 ||
        mount_image(image, &tree, err) < 0 || prepare_root(image, tree, err) < 0 ||
        name_it(image, err) < 0)
        return -1;
    *ret_tree = take_fd(&tree);
    return 0;
}

int disk_image_open(struct run *run, int *ret_tree, struct err *err)
{
    uint64_t timeout = run->spec->timeout_ms;
    __attribute__((cleanup(image_clear))) struct image image = {
        .dir = -1,
        .file = -1,
        .bytes = run->spec->limits.disk_bytes,
        .wait_ms = timeout && timeout < LOCK_MS ? timeout : LOCK_MS};
    struct stat st;
    char text[32];

    if (image.bytes < MIN_BYTES || image.bytes > INT64_MAX / 2)
        return err_set(err, ERR_INVALID, 0, "a disk image has at least %s",
                       units_text(UNITS_SIZE, MIN_BYTES, text));
    if (find(&image, run->workspace, err) < 0)
        return -1;
    image.file =
        openat(image.dir, image.name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (image.file < 0 && errno == ENOENT) {
        if (make_image(&image, run->workspace, ret_tree, err) < 0)
            return -1;
        run->image_made = fstat(image.file, &st) == 0 ? st.st_ino : 0;
        return 0;
    }
    if (image.file < 0)
        return err_set(err, ERR_DENIED, errno, "open '%s'", image.path);
    if (lock(&image, err) < 0 || check_existing(&image, err) < 0)
        return -1;
    return mount_image(&image, ret_tree, err);
}

int disk_image_refuse(const char *workspace, struct err *err)
{
    char path[4096];
    char text[32];
    struct stat st;

    /* Only what has the looks of one: beside a directory in /tmp anybody can make a name. */
    if ((size_t)snprintf(path, sizeof(path), "%s" SUFFIX, workspace) >= sizeof(path) ||
        lstat(path, &st) < 0 || !has_the_looks_of_one(&st))
        return 0;
    return err_set(err, ERR_CONFLICT, 0,
                   "the files of this workspace are in '%s'; as root, give --workspace '%s' "
                   "--disk=image:%s, or remove it with all that is in it",
                   path, workspace, units_text(UNITS_SIZE, (uint64_t)st.st_size, text));
}

void disk_image_unmake(const struct run *run)
{
    char path[4096];
    struct stat st;
    scoped_fd int root = openat(run->workspace, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (!run->image_made || root < 0 || path_dir_is_empty(root) != 1)
        return;
    if ((size_t)snprintf(path, sizeof(path), "%s" SUFFIX, run->workspace_path) >= sizeof(path))
        return;
    char *slash = strrchr(path, '/');
    *slash = '\0';
    scoped_fd int dir = path_open_canonical(slash == path ? "/" : path, O_RDONLY | O_DIRECTORY);
    if (dir >= 0 && fstatat(dir, slash + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_ino == run->image_made)
        ignore(unlinkat(dir, slash + 1, 0) == 0);
}
