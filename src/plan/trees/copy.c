/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trees/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/plan.h"
#include "sys/path.h"

enum {
    SMALL = 16 << 10, /* read and written: cheaper than to ask for holes */
};

static int write_small(int in, int out)
{
    char piece[SMALL];
    ssize_t n;

    while ((n = read(in, piece, sizeof(piece))) > 0) {
        if (write(out, piece, (size_t)n) != n)
            return errno ? -errno : -EIO;
    }
    return n < 0 ? -errno : 0;
}

static int copy_range(int in, int out, off_t at, off_t end)
{
    while (at < end) {
        loff_t from = at;
        loff_t to = at;
        ssize_t n = copy_file_range(in, &from, out, &to, (size_t)(end - at), 0);
        if (n <= 0)
            return n < 0 ? -errno : -ESTALE; /* it has become shorter */
        at += n;
    }
    return 0;
}

/* copy_file_range shares the blocks where the file system can (XFS, btrfs). */
static int copy_data(int in, int out, off_t size)
{
    off_t hole = 0;

    if (size <= SMALL)
        return write_small(in, out);
    if (ftruncate(out, size) < 0)
        return -errno;
    for (;;) {
        off_t data = lseek(in, hole, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : -errno;
        hole = lseek(in, data, SEEK_HOLE);
        int r = hole < 0 ? -errno : copy_range(in, out, data, hole);
        if (r < 0)
            return r;
    }
}

static int copy_attributes(int in, int out)
{
    static char names[XATTR_LIST_MAX]; /* of this process, which does one thing at a time */
    static char value[XATTR_SIZE_MAX];
    ssize_t n = flistxattr(in, names, sizeof(names));

    if (n < 0)
        return errno == ENOTSUP ? 0 : -errno;
    for (const char *name = names; name < names + n; name += strlen(name) + 1) {
        /* What a layer of ours is marked with means nothing elsewhere. */
        if (strncmp(name, "user.", 5) != 0 || strncmp(name, "user.overlay.", 13) == 0)
            continue;
        ssize_t size = fgetxattr(in, name, value, sizeof(value));
        if (size < 0 || fsetxattr(out, name, value, (size_t)size, 0) < 0)
            return -errno;
    }
    return 0;
}

/* Attributes first: the mode may forbid them. */
static int finish(int in, int out, const struct stat *st)
{
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};
    int r = copy_attributes(in, out);

    if (r < 0)
        return r;
    /* No file of ours is set-id; a directory may be. */
    if (fchmod(out, st->st_mode & (S_ISDIR(st->st_mode) ? 07777 : 0777)) < 0)
        return -errno;
    return futimens(out, times) < 0 ? -errno : 0;
}

static bool is_it(int fd, const struct stat *st)
{
    struct stat now;

    return fstat(fd, &now) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino &&
           ((now.st_mode ^ st->st_mode) & S_IFMT) == 0 && now.st_size == st->st_size &&
           memcmp(&now.st_mtim, &st->st_mtim, sizeof(now.st_mtim)) == 0 &&
           memcmp(&now.st_ctim, &st->st_ctim, sizeof(now.st_ctim)) == 0;
}

int copy_file(int from, const char *name, const struct stat *st, int to, const char *path)
{
    scoped_fd int in = path_open_beneath(from, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 1);

    if (in < 0)
        return in;
    scoped_fd int out =
        openat(to, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    int r = is_it(in, st) ? copy_data(in, out, st->st_size) : -ESTALE;
    if (r == 0)
        r = finish(in, out, st);
    if (r == 0 && !is_it(in, st))
        r = -ESTALE;
    if (r < 0)
        ignore(unlinkat(to, path, 0) == 0);
    return r;
}

int copy_symlink(int from, const char *name, const struct stat *st, int to, const char *path)
{
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};
    char target[PLAN_MAX_PATH + 8];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    if (symlinkat(target, to, path) < 0 || utimensat(to, path, times, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return 0;
}

int copy_directory(int from, const char *name, const struct stat *st, int to, const char *path)
{
    scoped_fd int in = path_open_beneath(from, name, O_RDONLY | O_DIRECTORY, 1);

    if (in < 0)
        return in;
    scoped_fd int out = openat(to, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return out < 0 ? -errno : finish(in, out, st);
}
