/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a plan's layer, for a command that looks at the planned view and whose own writes
 * nobody wants. Its marks go along, as they make the view what it is; data is shared with the
 * original where the file system can. By descriptor, following nothing; only system calls: this
 * runs in a child of a process with threads. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "broker/broker.h"
#include "sys/path.h"

enum {
    DEEPEST = 128,
    PIECE = 8192,
    ENTRY = 300, /* "/proc/self/fd/N/" and a name */
};

static int copy_data(int from, int to, off_t size)
{
    off_t at = 0;

    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    if (ftruncate(to, size) < 0)
        return -errno;
    for (;;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0) /* nothing but a hole is left; of a file that was only moved, all of it */
            return errno == ENXIO ? 0 : -errno;
        off_t hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0)
            return -errno;
        at = data;
        while (at < hole) {
            loff_t in = at;
            loff_t out = at;
            ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(hole - at), 0);
            if (n <= 0)
                return n < 0 ? -errno : -EIO;
            at += n;
        }
    }
}

/* Those that this process may see and set; of another kind, none. One that cannot be read makes it
 * another view than the plan's. */
static int copy_mark(const char *from, const char *to, const char *name)
{
    static char value[XATTR_SIZE_MAX]; /* of this process: it does nothing else */

    if (strncmp(name, "trusted.overlay.", 16) != 0 && strncmp(name, "user.", 5) != 0)
        return 0;
    ssize_t size = lgetxattr(from, name, value, sizeof(value));
    if (size < 0)
        return errno == ENODATA ? 0 : -errno;
    return lsetxattr(to, name, value, (size_t)size, 0) < 0 ? -errno : 0;
}

static int copy_marks(const char *from, const char *to)
{
    static char names[XATTR_LIST_MAX];
    ssize_t n = llistxattr(from, names, sizeof(names));
    int r = 0;

    if (n < 0)
        return errno == ENOTSUP ? 0 : -errno;
    for (const char *name = names; r == 0 && name < names + n; name += strlen(name) + 1)
        r = copy_mark(from, to, name);
    return r;
}

static int copy_symlink(int from, int to, const char *name)
{
    char target[4096];
    ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    return symlinkat(target, to, name) < 0 ? -errno : 0;
}

static int copy_file(int from, int to, const char *name, const struct stat *st)
{
    scoped_fd int in = path_open_beneath(from, name, O_RDONLY | O_NONBLOCK, 1);

    if (in < 0)
        return in;
    scoped_fd int out =
        openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, st->st_mode & 0777);
    return out < 0 ? -errno : copy_data(in, out, st->st_size);
}

/* Owner, marks and mode, in this order: a change of owner may take bits of the mode away. */
static int finish(int from, int to, const char *name, const struct stat *st)
{
    char source[ENTRY];
    char target[ENTRY];

    if (geteuid() == 0 && fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISCHR(st->st_mode))
        return 0;
    snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", from, name);
    snprintf(target, sizeof(target), "/proc/self/fd/%d/%s", to, name);
    int r = copy_marks(source, target);
    if (r == 0 && !S_ISLNK(st->st_mode) && fchmodat(to, name, st->st_mode & 0777, 0) < 0)
        r = -errno;
    return r;
}

/* A directory on the way down. */
struct level {
    int from;
    int to;
    struct stat st;
    char name[256]; /* in the level above */
};

struct copying {
    struct level levels[DEEPEST];
    int depth; /* of the last one; 0 is what holds the top */
};

static int descend(struct copying *c, const char *name, const struct stat *st)
{
    const struct level *above = &c->levels[c->depth];
    struct level *level = &c->levels[c->depth + 1];

    if (c->depth + 1 == DEEPEST)
        return -ENAMETOOLONG;
    if (mkdirat(above->to, name, 0700) < 0)
        return -errno;
    scoped_fd int from = path_open_beneath(above->from, name, O_RDONLY | O_DIRECTORY, 1);
    scoped_fd int to = from < 0 ? from : path_open_beneath(above->to, name, O_DIRECTORY, 1);
    if (to < 0)
        return to;
    *level = (struct level){.from = take_fd(&from), .to = take_fd(&to), .st = *st};
    snprintf(level->name, sizeof(level->name), "%s", name);
    c->depth++;
    return 0;
}

static int ascend(struct copying *c)
{
    struct level *level = &c->levels[c->depth--];

    scope_close(&level->from);
    scope_close(&level->to);
    return finish(c->levels[c->depth].from, c->levels[c->depth].to, level->name, &level->st);
}

/* 1: it is a directory, and the next to be looked at. What a plan cannot hold (devices, sockets) is
 * not in its view either. */
static int copy_entry(struct copying *c, const char *name)
{
    int from = c->levels[c->depth].from;
    int to = c->levels[c->depth].to;
    struct stat st;
    int r = 0;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode)) {
        r = descend(c, name, &st);
        return r < 0 ? r : 1;
    }
    if (S_ISREG(st.st_mode))
        r = copy_file(from, to, name, &st);
    else if (S_ISLNK(st.st_mode))
        r = copy_symlink(from, to, name);
    else if (S_ISCHR(st.st_mode) && st.st_rdev == 0) /* something that is deleted */
        r = mknodat(to, name, S_IFCHR, 0) < 0 ? -errno : 0;
    else
        return 0;
    return r < 0 ? r : finish(from, to, name, &st);
}

/* One piece of the last level's names. 1: there may be more, here or below; 0: this level is done.
 */
static int copy_piece(struct copying *c)
{
    _Alignas(struct dirent64) char piece[PIECE];
    int from = c->levels[c->depth].from;
    long n = syscall(SYS_getdents64, from, piece, sizeof(piece));

    for (long at = 0; at < n;) {
        const struct dirent64 *entry = (const void *)(piece + at);
        at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int r = copy_entry(c, entry->d_name);
        if (r == 1 && lseek(from, entry->d_off, SEEK_SET) < 0) /* from there on, afterwards */
            r = -errno;
        if (r != 0)
            return r;
    }
    return n < 0 ? -errno : n > 0;
}

int tree_copy(int dir, const char *name, const char *copy)
{
    static struct copying c; /* of this process: it does nothing else */

    c.depth = 0;
    c.levels[0].from = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 1);
    c.levels[0].to = path_open_beneath(dir, copy, O_RDONLY | O_DIRECTORY, 1);
    if (c.levels[0].from < 0 || c.levels[0].to < 0)
        return -ENOENT;
    int r = copy_entry(&c, "upper");
    while (r > 0 && c.depth > 0) {
        r = copy_piece(&c);
        if (r == 0)
            r = ascend(&c) < 0 ? -EIO : 1;
    }
    return r < 0 ? r : 0;
}
