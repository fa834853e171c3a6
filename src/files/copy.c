/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: made where nobody sees them, and put in their place when they are whole, whether one
 * file or a tree. Links are copied as links, modes are kept, holes stay holes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"
#include "sys/path.h"

enum {
    CHUNK = 32768,
    STEP = 64 << 20, /* bytes after which to ask whether the client is still there */
};

struct copy {
    struct files_call *call;
    int dir; /* where we are in the copy */
    size_t depth;
    dev_t device; /* of the copy's top, which may lie within what is copied */
    ino_t inode;
};

/* --- one file --- */

static int copy_by_hand(int from, int to, off_t at, off_t end)
{
    char bytes[CHUNK];

    while (at < end) {
        size_t most = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        ssize_t n = pread(from, bytes, most, at);
        if (n == 0)
            break; /* it has become shorter */
        if (n < 0 && errno == EINTR)
            continue;
        ssize_t done = n < 0 ? -1 : pwrite(to, bytes, (size_t)n, at);
        if (done < 0)
            return -errno;
        at += done;
    }
    return 0;
}

/* Bytes at..end by the kernel, which shares them where the disk can. 0 or -errno. */
static int copy_data(struct files_call *call, int from, int to, off_t at, off_t end)
{
    off_t in = at;
    off_t out = at;
    int r = files_room_take(to, (uint64_t)(end - at));

    if (r < 0)
        return r;
    while (in < end) {
        size_t most = end - in < STEP ? (size_t)(end - in) : STEP;
        ssize_t n = copy_file_range(from, &in, to, &out, most, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
            return copy_by_hand(from, to, in, end);
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        if (in < end && files_client_left(call))
            return -EPIPE;
    }
    return 0;
}

static int copy_bytes(struct files_call *call, int from, int to)
{
    struct stat st;

    if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
        return -errno;
    for (off_t at = 0; at < st.st_size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break; /* only a hole is left */
        off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (data < 0 || hole < 0) { /* a file system that does not know of them */
            data = at;
            hole = st.st_size;
        }
        if (hole > st.st_size)
            hole = st.st_size;
        if (data >= hole)
            break;
        int r = copy_data(call, from, to, data, hole);
        if (r < 0)
            return r;
        at = hole;
    }
    return 0;
}

/* As a new file in `to`, not synced. */
static int copy_file(struct files_call *call, int dir, const char *name, int to, const char *as)
{
    scoped_fd int in = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (in < 0 || fstat(in, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ESTALE;
    int r = files_room_take(-1, FILES_BLOCK);
    if (r < 0)
        return r;
    scoped_fd int out = openat(to, as, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    r = copy_bytes(call, in, out);
    if (r == 0 && fchmod(out, st.st_mode & 0777) < 0)
        r = -errno;
    return r;
}

static int copy_link(int dir, const char *name, int to, const char *as)
{
    char target[FILES_PATH];
    ssize_t n = files_read_link(dir, name, target);

    if (n < 0)
        return (int)n;
    return symlinkat(target, to, as) < 0 ? -errno : 0;
}

static int copy_leaf(struct files_call *call, int dir, const char *name, const struct stat *st,
                     const struct dir_entry *to)
{
    mode_t type = st->st_mode & S_IFMT;

    if (type == S_IFREG)
        return copy_file(call, dir, name, to->dir, to->name);
    if (type == S_IFLNK)
        return copy_link(dir, name, to->dir, to->name);
    if (type != S_IFIFO && type != S_IFSOCK)
        return -ENXIO;
    if (mknodat(to->dir, to->name, type | 0600, 0) < 0 ||
        fchmodat(to->dir, to->name, st->st_mode & 0777, 0) < 0)
        return -errno;
    return 0;
}

/* --- trees --- */

/* The directory is made, and is where we are. */
static int enter_copy(struct copy *copy, const char *as)
{
    struct stat own;

    if (files_mkdirat(copy->dir, as, 0700) < 0)
        return -errno;
    scoped_fd int fd = openat(copy->dir, as, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &own) < 0)
        return -errno;
    if (copy->depth++ == 0) {
        copy->device = own.st_dev;
        copy->inode = own.st_ino;
    }
    scope_close(&copy->dir);
    copy->dir = take_fd(&fd);
    return 0;
}

static int leave_copy(struct copy *copy, mode_t mode)
{
    scoped_fd int above = openat(copy->dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (above < 0)
        above = openat(copy->dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (above < 0)
        return -errno;
    int r = fchmod(copy->dir, mode & 0777) < 0 ? -errno : 0;
    scope_close(&copy->dir);
    copy->dir = take_fd(&above);
    copy->depth--;
    return r;
}

static int copy_entry(struct copy *copy, struct tree_walk *w, const struct tree_entry *e)
{
    struct dir_entry to = {.dir = copy->dir};

    if (e->after)
        return leave_copy(copy, e->st.st_mode);
    if (e->is_dir && e->st.st_dev == copy->device && e->st.st_ino == copy->inode) {
        tree_walk_skip(w); /* the copy itself */
        return 0;
    }
    if (e->is_dir)
        return enter_copy(copy, e->name);
    if (files_client_left(copy->call))
        return -EPIPE;
    memcpy(to.name, e->name, strnlen(e->name, sizeof(to.name) - 1));
    return copy_leaf(copy->call, e->dir, e->name, &e->st, &to);
}

static bool is_gone(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP;
}

/* What is in the top, of which the copy stays open: its mode and ".." change when it gets its
 * place. */
static int copy_entries(struct copy *copy, int top)
{
    struct tree_walk w;
    struct tree_entry e;
    int r = tree_walk_begin(&w, top, TREE_STAT | TREE_POST);

    while (r == 0) {
        int next = tree_walk_next(&w, &e);
        if (next == 0)
            break;
        r = next > 0 ? copy_entry(copy, &w, &e) : is_gone(next) ? -ESTALE : next;
    }
    tree_walk_end(&w);
    return r;
}

static int copy_tree(struct files_call *call, const struct dir_entry *from, int at,
                     const char *temp)
{
    struct copy copy = {.call = call, .dir = openat(at, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    scoped_fd int top =
        path_open_name(from->dir, from->name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, false);
    struct stat begun = {0};
    struct stat st;
    int r = copy.dir < 0 ? -errno : top < 0 ? top : fstat(top, &begun) < 0 ? -errno : 0;

    if (r == 0)
        r = enter_copy(&copy, temp);
    if (r == 0)
        r = copy_entries(&copy, top);
    if (r == 0 && fstatat(from->dir, from->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (st.st_dev != begun.st_dev || st.st_ino != begun.st_ino))
        r = -ESTALE; /* it was moved while we were in it */
    scope_close(&copy.dir);
    return top < 0 && is_gone(r) ? -ESTALE : r;
}

/* --- putting in place --- */

/* Everything of the copy is on the disk before it gets its name. */
static int sync_copy(int at, const char *temp, mode_t type)
{
    if (type == S_IFREG) {
        scoped_fd int fd = openat(at, temp, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0)
            return fsync(fd) < 0 ? -errno : 0;
    }
    if (type != S_IFREG && type != S_IFDIR)
        return 0;
    scoped_fd int dir = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        sync();
        return 0;
    }
    return syncfs(dir) < 0 ? -errno : 0;
}

static int put_copy(int at, const char *temp, const struct dir_entry *to, bool replace)
{
    if (renameat2(at, temp, to->dir, to->name, replace ? 0 : RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EINVAL && !replace) /* a file system without it */
        return faccessat(to->dir, to->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? -EEXIST
               : renameat(at, temp, to->dir, to->name) < 0                  ? -errno
                                                                            : 0;
    return errno == EEXIST && replace ? -ENOTEMPTY : -errno;
}

int files_copy_to(struct files_call *call, const struct dir_entry *from, const struct dir_entry *to)
{
    uint64_t flags = call->m->flags;
    struct dir_entry temp = {.dir = files_temp_dir(call, to->dir)};
    struct stat st;
    struct stat there;
    int r;

    if (fstatat(from->dir, from->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode) && !(flags & FILES_RECURSIVE))
        return -EISDIR;
    if (!(flags & FILES_REPLACE) && fstatat(to->dir, to->name, &there, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST; /* before the work; what counts is the rename */
    files_temp_name(temp.name);
    if (S_ISDIR(st.st_mode))
        r = copy_tree(call, from, temp.dir, temp.name);
    else
        r = copy_leaf(call, from->dir, from->name, &st, &temp);
    if (r == 0)
        r = sync_copy(temp.dir, temp.name, st.st_mode & S_IFMT);
    if (r == 0)
        r = put_copy(temp.dir, temp.name, to, flags & FILES_REPLACE);
    if (r < 0) {
        ignore(files_remove_tree(temp.dir, temp.name)); /* the first error counts */
        return r;
    }
    if (S_ISDIR(st.st_mode) && fchmodat(to->dir, to->name, st.st_mode & 0777, 0) < 0)
        return -errno;
    return files_sync_dir(to->dir);
}
