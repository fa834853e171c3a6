/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the broker: while DIR has a file of that name (DIR is in FAULTS),
 *
 *   epoll_ctl   no process can be watched
 *   fsync       no directory whose path is in that file can be written to disk
 *   getxattr    no mark of a plan's layer can be read
 *
 * and DIR/log gets a line for each directory that was written to disk, each mark that was set. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_in_dir(const char *name, int flags)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", getenv("FAULTS"), name);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

/* What the file holds, or -1. */
static ssize_t wanted(const char *name, char *text, size_t size)
{
    int fd = open_in_dir(name, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

    if (fd >= 0)
        close(fd);
    if (n >= 0)
        text[n] = '\0';
    return n;
}

static void note(const char *what, const char *about, size_t size)
{
    int fd = open_in_dir("log", O_WRONLY | O_CREAT | O_APPEND);

    if (fd < 0)
        return;
    dprintf(fd, "%s %s %zu\n", what, about, size);
    close(fd);
}

static void name_of(int fd, char path[PATH_MAX])
{
    char link[64];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = '\0';
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    char path[PATH_MAX];
    char text[8];

    name_of(fd, path);
    if (operation == EPOLL_CTL_ADD && strstr(path, "pidfd") &&
        wanted("epoll_ctl", text, sizeof(text)) >= 0) {
        note("unwatched", path, 0);
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}

int fsync(int fd)
{
    char path[PATH_MAX];
    char text[PATH_MAX];

    name_of(fd, path);
    if (wanted("fsync", text, sizeof(text)) >= 0 && strcmp(path, text) == 0) {
        errno = EIO;
        return -1;
    }
    note("fsync", path, 0);
    return (int)syscall(SYS_fsync, fd);
}

ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
    char text[8];

    if (wanted("getxattr", text, sizeof(text)) >= 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_getxattr, path, name, value, size);
}

int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    note("setxattr", name, size);
    return (int)syscall(SYS_setxattr, path, name, value, size, flags);
}
