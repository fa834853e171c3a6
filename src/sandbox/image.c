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
#include "sandbox/disk.h"
#include "sys/loop.h"
#include "sys/mount.h"
#include "sys/path.h"

#define SUFFIX    ".carrel-img"
#define MARK      "trusted.carrel.image"
#define MIN_BYTES (8UL << 20)

enum {
    LOCK_TRIES = 500, /* of 10 ms: the mount of the run before may take a moment to go */
    CHILD_FD = 3,
};

struct image {
    char path[4096];
    const char *name; /* in it */
    int dir;
    int file;
    struct stat workspace;
    uint64_t bytes;
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

    if (fstatvfs(image->dir, &fs) < 0)
        return err_set(err, ERR_IO, errno, "look at the disk of '%s'", image->path);
    if ((uint64_t)fs.f_bavail * fs.f_frsize < needed)
        return err_set(err, ERR_LIMIT, ENOSPC,
                       "the disk image '%s' may grow by %llu bytes; make room, or ask for less",
                       image->path, (unsigned long long)needed);
    return 0;
}

static int check_existing(const struct image *image, struct err *err)
{
    struct stat st;
    char mark[8];

    if (fstat(image->file, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at '%s'", image->path);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 07777) != 0600 ||
        st.st_nlink != 1)
        return err_set(err, ERR_DENIED, 0,
                       "'%s' is not mounted: it must be a file of root's with mode 0600 and one "
                       "name",
                       image->path);
    if (fgetxattr(image->file, MARK, mark, sizeof(mark)) < 0)
        return err_set(err, ERR_DENIED, 0,
                       "'%s' was not made by Carrel, and a crafted image could attack the kernel; "
                       "if you trust it: setfattr -n " MARK " -v 1 FILE",
                       image->path);
    if ((uint64_t)st.st_size != image->bytes)
        return err_set(err, ERR_CONFLICT, 0,
                       "'%s' has %lld bytes, and its size cannot change; ask for image:%lld, or "
                       "remove it with all that is in it",
                       image->path, (long long)st.st_size, (long long)st.st_size);
    return check_room(image, (uint64_t)st.st_blocks * 512, err);
}

static int lock(const struct image *image, struct err *err)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(image->file, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_set(err, ERR_IO, errno, "lock '%s'", image->path);
        (void)poll(NULL, 0, 10);
    }
    return err_set(err, ERR_CONFLICT, 0,
                   "another run uses the disk image '%s'; a workspace in an image takes one run at "
                   "a time",
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
        return err_set(err, ERR_IO, 0, "'%s' could not make a file system of %llu bytes", program,
                       (unsigned long long)image->bytes);
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
    if (image->file < 0 || fchmod(image->file, 0600) < 0 ||
        ftruncate(image->file, (off_t)image->bytes) < 0 ||
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

int disk_image_open(const char *workspace, int workspace_fd, uint64_t bytes, int *ret_tree,
                    struct err *err)
{
    __attribute__((cleanup(image_clear))) struct image image = {
        .dir = -1, .file = -1, .bytes = bytes};

    if (geteuid() != 0)
        return err_set(err, ERR_DENIED, 0,
                       "--disk=image needs root, who alone may mount it; use --disk SIZE");
    if (!workspace)
        return err_set(err, ERR_INVALID, 0, "--disk=image needs --workspace");
    if (bytes < MIN_BYTES || bytes > INT64_MAX / 2)
        return err_set(err, ERR_INVALID, 0, "a disk image has at least %lu bytes", MIN_BYTES);
    if (find(&image, workspace_fd, err) < 0)
        return -1;
    image.file =
        openat(image.dir, image.name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (image.file < 0 && errno == ENOENT)
        return make_image(&image, workspace_fd, ret_tree, err);
    if (image.file < 0)
        return err_set(err, ERR_DENIED, errno, "open '%s'", image.path);
    if (lock(&image, err) < 0 || check_existing(&image, err) < 0)
        return -1;
    return mount_image(&image, ret_tree, err);
}
