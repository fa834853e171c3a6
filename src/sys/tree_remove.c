/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/tree_remove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"
#include "sys/tree_walk.h"

enum {
    MOST_AGAIN = 64, /* times that something new has come where all was done */
};

/* A directory that is closed to its owner, who is us, is opened. Not through a link, if it has
 * become one. Where no /proc shows us, as to a file server in a sandbox, by its name: whoever could
 * put a link there has no fewer rights than we. */
static int unlock(int dir, const char *name)
{
    scoped_fd int fd = path_open_name(dir, name, O_PATH | O_DIRECTORY, true);
    char self[40];
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? fd : -errno;
    if ((st.st_mode & 0700) == 0700)
        return -EACCES; /* not for its mode */
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (chmod(self, (st.st_mode & 0777) | 0700) == 0)
        return 0;
    return errno == ENOENT && fchmodat(dir, name, (st.st_mode & 0777) | 0700, 0) == 0 ? 0 : -errno;
}

/* A directory that cannot be written does not let go of its names. True: it was, and now can be. */
static bool unlock_held(int dir)
{
    int saved = errno;
    struct stat st;
    bool good = fstat(dir, &st) == 0 && (st.st_mode & 0700) != 0700 &&
                fchmod(dir, (st.st_mode & 0777) | 0700) == 0;

    errno = saved;
    return good;
}

/* 0, 1: there is something in it, -errno. */
static int remove_dir(int dir, const char *name)
{
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? 1 : -errno;
}

/* What is a directory by now is found when the one above is not empty. */
static int remove_file(int dir, const char *name)
{
    do {
        if (unlinkat(dir, name, 0) == 0 || errno == ENOENT || errno == EISDIR)
            return 0;
    } while (errno == EACCES && unlock_held(dir));
    return -errno;
}

/* All in it is gone, or something new has come. */
static int remove_emptied(struct tree_walk *w, const struct tree_entry *e, unsigned *again)
{
    int r = remove_dir(e->dir, e->name);

    if (r == -EACCES && unlock_held(e->dir))
        r = remove_dir(e->dir, e->name);
    if (r != 1)
        return r == -ENOTDIR ? remove_file(e->dir, e->name) : r;
    if ((*again)++ == MOST_AGAIN)
        return -ENOTEMPTY;
    tree_walk_again(w);
    return 0;
}

/* A directory that could not be entered. */
static int mend(struct tree_walk *w, const struct tree_entry *e, int error)
{
    if (error == -ENOENT)
        return 0;
    if (error == -ENOTDIR || error == -ELOOP) /* another by now */
        return remove_file(e->dir, e->name);
    if (error != -EACCES || e->depth == 0)
        return error;
    int r = unlock_held(e->dir) ? 0 : remove_dir(e->dir, e->name);
    if (r == 1 || r == -EACCES)
        r = unlock(e->dir, e->name);
    if (r == 0)
        tree_walk_again(w);
    return r;
}

/* All in the directory. -ESTALE: something was moved away meanwhile. */
static int clear(int dir, unsigned *again)
{
    struct tree_walk w;
    struct tree_entry e;
    int r = tree_walk_begin(&w, dir, TREE_ONE_MOUNT | TREE_POST | TREE_EMPTYING);

    while (r == 0) {
        int next = tree_walk_next(&w, &e);
        if (next == 0)
            break;
        if (next < 0)
            r = mend(&w, &e, next);
        else if (e.after)
            r = remove_emptied(&w, &e, again);
        else if (!e.is_dir)
            r = remove_file(e.dir, e.name);
    }
    tree_walk_end(&w);
    return r;
}

static int remove_tree(int dir, const char *name)
{
    scoped_fd int fd = path_open_name(dir, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, true);
    unsigned again = 0;
    int r = 1;

    if (fd == -EACCES) {
        int unlocked = unlock(dir, name);
        fd = unlocked < 0 ? unlocked
                          : path_open_name(dir, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, true);
    }
    if (fd < 0)
        return fd;
    while (r == 1 && again++ < MOST_AGAIN) {
        r = clear(fd, &again);
        if (r == -ESTALE)
            r = 1;
        else if (r == 0)
            r = remove_dir(dir, name);
    }
    return r == 1 ? -ENOTEMPTY : r;
}

int tree_remove(int dir, const char *name)
{
    int r;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return -errno;
    /* An rmdir that fails at every level makes the way up out of a deep tree slow in the kernel: it
     * is tried at the top. What is mounted on says EBUSY here, before anything in it is lost. */
    r = remove_dir(dir, name);
    if (r == 1)
        r = remove_tree(dir, name);
    return r == -EXDEV ? -EBUSY : r == -ENOENT ? 0 : r;
}
