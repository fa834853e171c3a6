/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/layout.h"
#include "sys/path.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* Linux 6.6 */
#endif

void reach_init(struct reach *reach, int top)
{
    *reach = (struct reach){.top = top, .parent = -1};
}

void reach_forget(struct reach *reach)
{
    scope_close(&reach->parent);
    reach->path[0] = '\0';
}

int reach_parent(struct reach *reach, const char *path, const char **ret_name)
{
    const char *name = layout_name(path);
    size_t n = name == path ? 0 : (size_t)(name - path) - 1;

    if (n >= sizeof(reach->path))
        return -ENAMETOOLONG;
    if (reach->parent < 0 || strncmp(reach->path, path, n) != 0 || reach->path[n] != '\0') {
        reach_forget(reach);
        memcpy(reach->path, path, n);
        reach->path[n] = '\0';
        reach->parent =
            path_open_beneath(reach->top, n > 0 ? reach->path : ".", O_PATH | O_DIRECTORY, 1);
        if (reach->parent < 0) {
            int error = reach->parent;
            reach_forget(reach);
            return error;
        }
    }
    *ret_name = name;
    return reach->parent;
}

int reach_stat(struct reach *reach, const char *path, struct stat *st)
{
    const char *name;

    if (path[0] == '\0')
        return fstatat(reach->top, "", st, AT_EMPTY_PATH) < 0 ? -errno : 0;
    int parent = reach_parent(reach, path, &name);
    if (parent < 0)
        return parent;
    return fstatat(parent, name, st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int reach_open(struct reach *reach, const char *path, int flags)
{
    const char *name = ".";
    int parent = path[0] ? reach_parent(reach, path, &name) : reach->top;

    return parent < 0 ? parent : path_open_beneath(parent, name, flags, 1);
}

int reach_rename(struct reach *from, const char *old, struct reach *to, const char *new,
                 unsigned flags)
{
    const char *old_name;
    const char *new_name;
    struct reach second = {.top = to->top, .parent = -1};
    /* One reach keeps one parent open: looking for the other would close the first. */
    int old_parent = reach_parent(from, old, &old_name);
    int new_parent = reach_parent(from == to ? &second : to, new, &new_name);
    int r = old_parent < 0 ? old_parent : new_parent < 0 ? new_parent : 0;

    if (r == 0 && renameat2(old_parent, old_name, new_parent, new_name, flags) < 0)
        r = -errno;
    reach_forget(&second);
    return r;
}

int reach_remove(struct reach *reach, const char *path)
{
    const char *name;
    int parent = reach_parent(reach, path, &name);

    if (parent < 0)
        return parent;
    if (unlinkat(parent, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* Kernels before the call of its own have only the name in /proc for an O_PATH descriptor. */
int reach_chmod(int fd, uint32_t mode)
{
    char name[32];

    if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOSYS)
        return -errno;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    return chmod(name, mode) < 0 ? -errno : 0;
}

int reach_set_mtime(int fd, int64_t mtime_ns)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000}};

    if (times[1].tv_nsec < 0) { /* before 1970 */
        times[1].tv_nsec += 1000000000;
        times[1].tv_sec--;
    }
    return utimensat(fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

bool reach_is_same(const struct plan_identity *noted, const struct stat *st, uint64_t dev,
                   int64_t ctime_ns)
{
    struct plan_identity now;

    plan_identify(&now, st);
    if (now.dev != dev || now.ino != noted->ino || (now.mode & S_IFMT) != (noted->mode & S_IFMT))
        return false;
    if (S_ISDIR(now.mode))
        return true;
    if (now.size != noted->size || now.mtime_ns != noted->mtime_ns || now.mode != noted->mode)
        return false;
    return ctime_ns < 0 || noted->ctime_ns < 0 || now.ctime_ns == noted->ctime_ns ||
           (ctime_ns != 0 && now.ctime_ns == ctime_ns);
}
