/* SPDX-License-Identifier: Apache-2.0 */
/* Walks through a tree to copy it: by descriptor, following nothing; only system calls: this runs
 * in a child of a process with threads. Data is shared with the original where the file system can.
 *
 *   a layer   of a plan, for a command that looks at the planned view and whose own writes nobody
 *             wants. Its marks go along, as they make the view what it is
 *   a filling what a new workspace has of its template: all but what is shared, and what is
 *             Carrel's own in any workspace
 *   links     of a package cache into the next generation of it: the files themselves, which nobody
 *             writes any more
 *   a count   of what is there
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/names.h"
#include "broker/broker.h"
#include "broker/trees.h"
#include "sys/path.h"
#include "sys/tree_walk.h"

enum {
    DEEPEST = 128,
    SELF = 32,   /* "/proc/self/fd/N" */
    FEW = 64,    /* files that are sent to the disk one by one */
    MANY = 512,  /* ... in a tree that is there; of more, everybody's */
    BLOCK = 512, /* of st_blocks */
};

struct copying;

/* What is done with what, from c->from to c->to. Each returns 0 or -errno. */
struct how {
    /* Anything but a directory. */
    int (*entry)(struct copying *c, const char *name, const struct stat *st);
    int (*enter)(struct copying *c, const char *name); /* before it goes down; NULL: nothing */
    /* What is done with a directory when all in it is done; NULL: nothing. */
    int (*leave)(struct copying *c, const char *name, const struct stat *st);
    bool partly; /* not what is shared, nor Carrel's own */
};

struct copying {
    const struct how *how;
    int from;        /* the directory that it is in, */
    int to;          /* ... and its copy; -1: nothing is made */
    int at[DEEPEST]; /* the copies of those on the way down; the first is the caller's */
    size_t depth;    /* the last of them */
    uid_t uid;       /* of a filling */
    gid_t gid;
    uint64_t files;
    uint64_t bytes;
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
    ssize_t size = getxattr(from, name, value, sizeof(value));
    if (size < 0)
        return errno == ENODATA ? 0 : -errno;
    return setxattr(to, name, value, (size_t)size, 0) < 0 ? -errno : 0;
}

static int copy_marks(const char *from, const char *to)
{
    static char names[XATTR_LIST_MAX];
    ssize_t n = listxattr(from, names, sizeof(names));
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

/* What is there of this name, for the following: a name could have become a link to anywhere. */
static int open_itself(int dir, const char *name)
{
    return path_open_beneath(dir, name, O_PATH | O_NOFOLLOW, 1);
}

static int set_owner(int fd, uid_t uid, gid_t gid)
{
    return geteuid() == 0 && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static int set_mode(int fd, mode_t mode)
{
    char self[SELF];

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    return chmod(self, mode & 0777) < 0 ? -errno : 0;
}

/* Owner, marks and mode, in this order: a change of owner may take bits of the mode away. */
static int finish(int from, int to, const char *name, const struct stat *st)
{
    char source[SELF];
    char target[SELF];
    struct stat made;
    scoped_fd int in = open_itself(from, name);
    scoped_fd int out = open_itself(to, name);

    if (in < 0 || out < 0)
        return in < 0 ? in : out;
    if (fstat(out, &made) < 0)
        return -errno;
    if ((made.st_mode & S_IFMT) != (st->st_mode & S_IFMT))
        return -ESTALE; /* it is not what was made here */
    int r = set_owner(out, st->st_uid, st->st_gid);
    if (r < 0 || S_ISCHR(st->st_mode))
        return r;
    snprintf(source, sizeof(source), "/proc/self/fd/%d", in);
    snprintf(target, sizeof(target), "/proc/self/fd/%d", out);
    r = copy_marks(source, target);
    return r < 0 || S_ISLNK(st->st_mode) ? r : set_mode(out, st->st_mode);
}

/* --- a layer --- */

/* What a plan cannot hold (devices, sockets) is not in its view either. */
static int copy_of_layer(struct copying *c, const char *name, const struct stat *st)
{
    int from = c->from;
    int to = c->to;
    int r = 0;

    if (S_ISREG(st->st_mode))
        r = copy_file(from, to, name, st);
    else if (S_ISLNK(st->st_mode))
        r = copy_symlink(from, to, name);
    else if (S_ISCHR(st->st_mode) && st->st_rdev == 0) /* something that is deleted */
        r = mknodat(to, name, S_IFCHR, 0) < 0 ? -errno : 0;
    else
        return 0;
    return r < 0 ? r : finish(from, to, name, st);
}

static int make_dir(struct copying *c, const char *name)
{
    return mkdirat(c->to, name, 0700) < 0 ? -errno : 0;
}

static int leave_layer(struct copying *c, const char *name, const struct stat *st)
{
    return finish(c->from, c->to, name, st);
}

/* --- a filling --- */

static int own(const struct copying *c, int to, const char *name, mode_t mode, bool is_link)
{
    struct stat st;
    scoped_fd int fd = open_itself(to, name);

    if (fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? fd : -errno;
    int r = set_owner(fd, c->uid, c->gid);
    return r < 0 || is_link || S_ISLNK(st.st_mode) ? r : set_mode(fd, mode);
}

static int sync_file(struct copying *c, int to, const char *name)
{
    if (++c->files > FEW) /* all at once, at the end */
        return 0;
    scoped_fd int fd = path_open_beneath(to, name, O_RDONLY | O_NONBLOCK, 1);
    if (fd == -EACCES)
        c->files = FEW + 1; /* its mode says so: as if there were many */
    return fd >= 0 && fsync(fd) < 0 ? -errno : 0;
}

/* What a new tree already has of its own, its .bashrc, gives way. */
static int fill_entry(struct copying *c, const char *name, const struct stat *st)
{
    int from = c->from;
    int to = c->to;
    bool is_link = S_ISLNK(st->st_mode);

    if (!is_link && !S_ISREG(st->st_mode))
        return 0;
    if (unlinkat(to, name, 0) < 0 && errno != ENOENT)
        return -errno;
    int r = is_link ? copy_symlink(from, to, name) : copy_file(from, to, name, st);
    if (r == 0)
        r = own(c, to, name, st->st_mode, is_link);
    return r == 0 && !is_link ? sync_file(c, to, name) : r;
}

static int leave_filling(struct copying *c, const char *name, const struct stat *st)
{
    int to = c->to;
    scoped_fd int fd = path_open_beneath(to, name, O_RDONLY | O_DIRECTORY, 1);

    int r = fd < 0 ? fd : own(c, to, name, st->st_mode, false);
    return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

/* --- links --- */

/* What is there already is of the generation before, and gives way. */
static int make_way(int to, const char *name)
{
    if (unlinkat(to, name, 0) == 0 || errno == ENOENT)
        return 0;
    return errno == EISDIR ? 1 : -errno;
}

/* Marks of what was deleted are of no use to anybody else, and devices, sockets, pipes neither. */
static int link_entry(struct copying *c, const char *name, const struct stat *st)
{
    int from = c->from;
    int to = c->to;

    if (!S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode))
        return 0;
    int r = make_way(to, name);
    if (r != 0)
        return r < 0 ? r : 0; /* a directory stays */
    c->files++;
    if (S_ISREG(st->st_mode))
        return linkat(from, name, to, name, 0) < 0 ? -errno : 0;
    r = copy_symlink(from, to, name);
    if (r == 0 && geteuid() == 0 &&
        fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    return r;
}

static int merge_dir(struct copying *c, const char *name)
{
    int to = c->to;
    struct stat st;

    if (mkdirat(to, name, 0700) == 0)
        return 0;
    if (errno != EEXIST || fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return 0;
    return unlinkat(to, name, 0) < 0 || mkdirat(to, name, 0700) < 0 ? -errno : 0;
}

static int leave_links(struct copying *c, const char *name, const struct stat *st)
{
    scoped_fd int fd = open_itself(c->to, name);

    int r = fd < 0 ? fd : set_owner(fd, st->st_uid, st->st_gid);
    return r < 0 ? r : set_mode(fd, st->st_mode | 0700);
}

/* --- a count --- */

static int count_entry(struct copying *c, const char *name, const struct stat *st)
{
    (void)name;
    c->files++;
    c->bytes += (uint64_t)st->st_blocks * BLOCK;
    return 0;
}

static int count_dir(struct copying *c, const char *name, const struct stat *st)
{
    return count_entry(c, name, st);
}

/* --- onto the disk --- */

static int sync_name(struct copying *c, const char *name, const struct stat *st)
{
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
        return 0;
    scoped_fd int fd = path_open_beneath(c->from, name, O_RDONLY | O_NONBLOCK, 1);
    return fd < 0 ? fd : fsync(fd) < 0 ? -errno : 0;
}

/* --- the way through --- */

/* In the root of a workspace: what is shared of a template, the places of Carrel's own mounts, and
 * what an interrupted making of an environment has left. */
static bool is_left_out(const struct copying *c, const char *name)
{
    return c->how->partly && (name_kind(name) != NAME_FREE || strcmp(name, ".venv") == 0 ||
                              strcmp(name, "node_modules") == 0);
}

static int descend(struct copying *c, const char *name)
{
    if (c->depth + 1 == DEEPEST)
        return -ENAMETOOLONG;
    int r = c->how->enter ? c->how->enter(c, name) : 0;
    int to = r < 0 || c->to < 0 ? -1 : path_open_beneath(c->to, name, O_RDONLY | O_DIRECTORY, 1);

    if (r < 0 || (to < 0 && c->to >= 0))
        return r < 0 ? r : to;
    c->at[++c->depth] = to;
    return 0;
}

static int ascend(struct copying *c, const char *name, const struct stat *st)
{
    scope_close(&c->at[c->depth--]);
    c->to = c->at[c->depth];
    return c->how->leave ? c->how->leave(c, name, st) : 0;
}

static int copy_entry(struct copying *c, struct tree_walk *w, const struct tree_entry *e)
{
    c->from = e->dir;
    c->to = c->at[c->depth];
    if (e->after)
        return ascend(c, e->name, &e->st);
    if (e->depth == 1 && is_left_out(c, e->name)) {
        tree_walk_skip(w);
        return 0;
    }
    return e->is_dir ? descend(c, e->name) : c->how->entry(c, e->name, &e->st);
}

/* All below `from`; 0 or -errno. */
static int walk(struct copying *c, int from)
{
    static struct tree_walk w; /* of this process */
    struct tree_entry e;
    size_t top = c->depth;
    int next = 1;
    int r = tree_walk_begin(&w, from, TREE_ONE_MOUNT | TREE_STAT | TREE_POST);

    while (r == 0 && (next = tree_walk_next(&w, &e)) != 0)
        r = next < 0 ? next : copy_entry(c, &w, &e);
    tree_walk_end(&w);
    while (c->depth > top)
        scope_close(&c->at[c->depth--]);
    return r;
}

static struct copying *begin(const struct how *how, int from, int to)
{
    static struct copying c; /* of this process: it does nothing else */

    c.depth = 0;
    c.how = how;
    c.files = c.bytes = 0;
    c.from = from;
    c.to = c.at[0] = to;
    return &c;
}

/* The upper directory of a layer, with what is in it. */
static int copy_upper(struct copying *c, int from, int to)
{
    struct stat st;
    scoped_fd int upper = path_open_beneath(from, "upper", O_RDONLY | O_DIRECTORY, 1);

    if (upper < 0 || fstat(upper, &st) < 0)
        return upper < 0 ? upper : -errno;
    int r = descend(c, "upper");
    if (r == 0)
        r = walk(c, upper);
    c->from = from;
    c->to = to;
    return r == 0 ? ascend(c, "upper", &st) : r;
}

int tree_copy(int dir, const char *name, const char *copy)
{
    static const struct how how = {.entry = copy_of_layer, .enter = make_dir, .leave = leave_layer};
    scoped_fd int from = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 1);
    scoped_fd int to = path_open_beneath(dir, copy, O_RDONLY | O_DIRECTORY, 1);

    if (from < 0 || to < 0)
        return -ENOENT;
    struct copying *c = begin(&how, from, to);
    struct stat st;
    int r = copy_upper(c, from, to);
    /* The layer of a written plan is made of this. */
    if (r == 0 && fstatat(from, "manifest", &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    return r == 0 ? copy_of_layer(c, "manifest", &st) : r;
}

int tree_fill_from(int from, int to)
{
    static const struct how how = {
        .entry = fill_entry, .enter = merge_dir, .leave = leave_filling, .partly = true};
    struct copying *c = begin(&how, from, to);
    struct stat st;

    if (fstat(to, &st) < 0)
        return -errno;
    c->uid = st.st_uid;
    c->gid = st.st_gid;
    int r = walk(c, from);
    if (r == 0 && (c->files > FEW ? syncfs(to) : fsync(to)) < 0)
        r = -errno;
    return r;
}

int tree_link_from(int from, int to)
{
    static const struct how how = {.entry = link_entry, .enter = merge_dir, .leave = leave_links};

    return walk(begin(&how, from, to), from);
}

int tree_sync(int dir)
{
    static const struct how how = {.entry = sync_name, .leave = sync_name};
    uint64_t files;
    uint64_t bytes;
    int r = tree_count(dir, false, &files, &bytes);

    if (r == 0 && files > MANY)
        return syncfs(dir) < 0 ? -errno : 0;
    if (r == 0)
        r = walk(begin(&how, dir, -1), dir);
    if (r == 0)
        return fsync(dir) < 0 ? -errno : 0;
    return syncfs(dir) < 0 ? -errno : 0; /* not all of it can be opened */
}

int tree_count(int from, bool partly, uint64_t *ret_files, uint64_t *ret_bytes)
{
    static const struct how all = {.entry = count_entry, .leave = count_dir};
    static const struct how some = {.entry = count_entry, .leave = count_dir, .partly = true};
    struct copying *c = begin(partly ? &some : &all, from, -1);
    int r = walk(c, from);

    *ret_files = c->files;
    *ret_bytes = c->bytes;
    return r;
}
