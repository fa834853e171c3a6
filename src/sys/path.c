/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "sys/mount.h"

enum {
    RENAME_RACE_TRIES = 32
};

static int openat2_retrying(int dir, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC), .resolve = resolve};

    for (int i = 0; i < RENAME_RACE_TRIES; i++) {
        int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
        if (fd >= 0)
            return fd;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
    return -EAGAIN;
}

int path_open_beneath(int dir, const char *path, int flags, int same_mount)
{
    uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

    if (weak("mountpoint-check"))
        resolve = RESOLVE_IN_ROOT;
    else
        flags |= O_NOFOLLOW;
    if (same_mount)
        resolve |= RESOLVE_NO_XDEV;
    return openat2_retrying(dir, path, flags, resolve);
}

bool path_same_mount(int one, int two)
{
    uint64_t id = mount_id(one);
    struct stat a;
    struct stat b;

    if (id != 0)
        return id == mount_id(two);
    return fstat(one, &a) == 0 && fstat(two, &b) == 0 && a.st_dev == b.st_dev;
}

int path_open_name(int dir, const char *name, int flags, bool same_mount)
{
    if (same_mount) {
        int fd = path_open_beneath(dir, name, flags, 1);
        if (fd != -ENOSYS)
            return fd;
    }
    scoped_fd int fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return same_mount && !path_same_mount(dir, fd) ? -EXDEV : take_fd(&fd);
}

int path_open_canonical(const char *path, int flags)
{
    return openat2_retrying(AT_FDCWD, path, flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

int path_of_fd(int fd, char *text, size_t size)
{
    char link[32];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, text, size);
    if (n < 0)
        return -errno;
    if ((size_t)n >= size)
        return -ENAMETOOLONG;
    text[n] = '\0';
    return 0;
}

int path_dir_is_empty(int dir)
{
    char entries[1024];
    struct stat st;

    if (fstat(dir, &st) < 0)
        return -errno;
    if (st.st_size > PATH_SMALL_DIR)
        return 0;
    for (;;) {
        long n = syscall(SYS_getdents64, dir, entries, sizeof(entries));
        if (n < 0)
            return -errno;
        if (n == 0)
            return 1;
        /* struct dirent64: 8 inode, 8 offset, 2 record length, 1 type, name */
        for (long at = 0; at < n;) {
            unsigned short length;
            memcpy(&length, entries + at + 16, sizeof(length));
            const char *name = entries + at + 19;
            if (!path_is_dots(name))
                return 0;
            at += length;
        }
    }
}

bool path_is_of_the_kernel(int fd)
{
    static const unsigned long types[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
                                          CGROUP2_SUPER_MAGIC};
    struct statfs fs;

    for (size_t i = 0; fstatfs(fd, &fs) == 0 && i < sizeof(types) / sizeof(types[0]); i++) {
        if ((unsigned long)fs.f_type == types[i])
            return true;
    }
    return false;
}

ssize_t path_read_small(const char *path, char *text, size_t size)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t n = 0;

    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t got = read(fd, text + n, size - n);
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
        if (n == size)
            return -EFBIG;
    }
    text[n] = '\0';
    return (ssize_t)n;
}

int path_write_text(int dir, const char *path, const char *text)
{
    scoped_fd int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, text, strlen(text));
    if (n < 0)
        return -errno;
    return (size_t)n == strlen(text) ? 0 : -EIO;
}
