/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a tree that a tenant has written: any names, any depth, no permissions, and somebody may
 * be renaming in it. By descriptor, following no symlink, crossing no mount. What lies too deep is
 * moved up, so that a fixed number of descriptors is enough. Only system calls: this runs in a
 * child of a process with threads. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "broker/broker.h"
#include "sys/path.h"

enum {
    DEEPEST = 24,
    PIECE = 8192,
};

struct level {
    int fd;
    char name[256]; /* in the level above */
};

struct removing {
    struct level levels[DEEPEST];
    int depth;       /* levels in use */
    unsigned lifted; /* for the names of what was moved up */
};

/* 1: removed; 0: it is a directory. */
static int remove_file(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 1;
    return errno == EISDIR ? 0 : -errno;
}

/* One piece of the directory's names. 1: *name is a directory; 0: none among them; *ret_removed if
 * something was. */
static int clear_piece(int dir, const char *piece, long n, char name[256], bool *ret_removed)
{
    for (long at = 0; at < n;) {
        const struct dirent64 *entry = (const void *)(piece + at);
        at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int r = remove_file(dir, entry->d_name);
        if (r < 0)
            return r;
        if (r == 0) {
            snprintf(name, 256, "%s", entry->d_name);
            return 1;
        }
        *ret_removed = true;
    }
    return 0;
}

/* The next directory in `dir`, after removing all else before it. 1: *name is one; 0: empty now. */
static int clear_files(int dir, char name[256])
{
    _Alignas(struct dirent64) char piece[PIECE];
    bool removed = true;

    /* Again as long as something was: an offset may have skipped some of what was there. */
    while (removed) {
        long n;
        removed = false;
        if (lseek(dir, 0, SEEK_SET) < 0)
            return -errno;
        while ((n = syscall(SYS_getdents64, dir, piece, sizeof(piece))) > 0) {
            int r = clear_piece(dir, piece, n, name, &removed);
            if (r != 0)
                return r;
        }
        if (n < 0)
            return errno == ENOENT ? 0 : -errno; /* removed by another purge meanwhile */
    }
    return 0;
}

/* Also one whose mode forbids it: rootless, its owner is us. */
static int open_level(int dir, const char *name)
{
    char self[40];
    int fd = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 1);

    if (fd != -EACCES)
        return fd;
    scoped_fd int handle = path_open_beneath(dir, name, O_PATH | O_DIRECTORY, 1);
    if (handle < 0)
        return handle;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", handle);
    if (chmod(self, 0700) < 0)
        return -errno;
    return path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 1);
}

/* A directory that cannot be written does not let go of its names. */
static void unlock(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
        ignore(fchmod(fd, 0700) == 0); /* then the next step says what is wrong */
}

static int descend(struct removing *r, const char *name)
{
    int above = r->levels[r->depth - 1].fd;
    char lifted[32];

    if (r->depth == DEEPEST) {
        snprintf(lifted, sizeof(lifted), ".carrel-lifted-%u", r->lifted++);
        return renameat(above, name, r->levels[0].fd, lifted) == 0 || errno == ENOENT ? 0 : -errno;
    }
    int fd = open_level(above, name);
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
        return 0; /* it has changed since: looked at again */
    if (fd < 0)
        return fd;
    unlock(fd);
    struct level *level = &r->levels[r->depth++];
    level->fd = fd;
    snprintf(level->name, sizeof(level->name), "%s", name);
    return 0;
}

/* The last level is empty. */
static int ascend(struct removing *r, int top, const char *top_name)
{
    struct level *level = &r->levels[--r->depth];
    int above = r->depth > 0 ? r->levels[r->depth - 1].fd : top;
    const char *name = r->depth > 0 ? level->name : top_name;

    scope_close(&level->fd);
    if (unlinkat(above, name, AT_REMOVEDIR) == 0 || errno == ENOENT || errno == ENOTDIR)
        return 0;
    /* Filled again meanwhile: it is found again from above, but the top is not. */
    return errno == ENOTEMPTY && r->depth > 0 ? 0 : -errno;
}

int tree_remove(int dir, const char *name)
{
    struct removing removing = {.depth = 0};
    char next[256];

    int r = open_level(dir, name);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    unlock(r);
    removing.levels[removing.depth++].fd = r;
    r = 0;
    while (removing.depth > 0 && r == 0) {
        r = clear_files(removing.levels[removing.depth - 1].fd, next);
        if (r == 1)
            r = descend(&removing, next);
        else if (r == 0)
            r = ascend(&removing, dir, name);
    }
    while (removing.depth > 0)
        scope_close(&removing.levels[--removing.depth].fd);
    return r;
}
