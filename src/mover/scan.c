/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "mover/tree.h"
#include "sys/path.h"
#include "sys/tree_walk.h"

enum {
    NS = 1000000000,
};

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * NS + t->tv_nsec;
}

static bool describe(const char *path, const struct stat *st, struct entry *ret)
{
    *ret = (struct entry){.path = path,
                          .kind = S_ISREG(st->st_mode)   ? ENTRY_FILE
                                  : S_ISLNK(st->st_mode) ? ENTRY_LINK
                                                         : ENTRY_DIR,
                          .mode = st->st_mode & 07777,
                          .size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
                          .links = S_ISREG(st->st_mode) ? st->st_nlink : 1,
                          .ino = st->st_ino,
                          .mtime_ns = ns_of(&st->st_mtim),
                          .ctime_ns = ns_of(&st->st_ctim)};
    return S_ISREG(st->st_mode) || S_ISLNK(st->st_mode) || S_ISDIR(st->st_mode);
}

static int take(const struct mover *m, struct tree_walk *walk, const struct tree_entry *at,
                struct tree *tree)
{
    struct entry entry;

    if (name_is_excluded(m, at->path, at->name)) {
        if (at->is_dir)
            tree_walk_skip(walk);
        return 0;
    }
    if (!describe(at->path, &at->st, &entry)) {
        tree->skipped++;
        return 0;
    }
    entry.closed = entry.kind == ENTRY_FILE && !(entry.mode & S_IRUSR);
    tree->closed += entry.closed;
    return tree_add(tree, &entry);
}

static void cannot_see(const struct mover *m, int error, const struct tree_entry *at,
                       struct tree *tree)
{
    if (at->path && name_is_excluded(m, at->path, at->name))
        return;
    tree->blind = true;
    if (error == -ENOENT || error == -ESTALE)
        tree->moving = true;
    else
        tree->closed++;
}

int scan_tree(const struct mover *m, struct tree *ret, struct err *err)
{
    scoped_fd int top = open(m->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct tree_walk walk;
    struct tree_entry at;
    int r;

    tree_init(ret);
    if (top < 0)
        return err_set(err, ERR_IO, errno, "open the workspace's directory");
    r = tree_walk_begin(&walk, top, TREE_ONE_MOUNT | TREE_STAT);
    while (r == 0) {
        int found = tree_walk_next(&walk, &at);
        if (found == 0)
            break;
        if (found < 0)
            cannot_see(m, found, &at, ret);
        else if (take(m, &walk, &at, ret) < 0)
            r = -ENOMEM;
    }
    tree_walk_end(&walk);
    tree_sort(ret);
    return r < 0 ? err_set(err, ERR_IO, -r, "look through the workspace") : 0;
}

int scan_look(int top, const char *path, struct entry *ret)
{
    struct stat st;
    scoped_fd int fd = path_open_beneath(top, path, O_PATH | O_NOFOLLOW, 1);

    if (fd < 0) {
        errno = -fd;
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    }
    if (fstat(fd, &st) < 0)
        return -1;
    return describe(path, &st, ret);
}
