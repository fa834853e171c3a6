/* SPDX-License-Identifier: Apache-2.0 */
/* A tree from its top: into a directory by its name, out of it by "..", which must lead to where
 * one came from. So there is one descriptor for where we are, and what grows with the depth is a
 * list in memory. What is no directory is dealt with while its directory is read; the directories
 * in it are remembered, and entered after that.
 *
 *   go_in: enter, open, scan (leaf ...)  <-->  go_out: "..", leave */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"

enum {
    SCAN_BYTES = 32768,
    MOST_PENDING = 1 << 22, /* directories that are yet to be entered, and levels */
    MOST_AGAIN = 64,        /* times that something new has come where all was done */
};

struct pending {
    char *name;
    size_t level;
};

struct level {
    char *name;
    dev_t device; /* of the directory above */
    ino_t inode;
};

struct climb {
    const struct climb_ops *ops;
    void *context;
    int start; /* where the top is, of who asked for it */
    int dir;
    char *bytes; /* SCAN_BYTES, for entries */
    struct pending *pending;
    size_t pending_count;
    size_t pending_room;
    struct level *levels;
    size_t depth;
    size_t levels_room;
    unsigned again;
};

/* Room for one more. */
static void *grow(void *items, size_t count, size_t *room, size_t size)
{
    size_t more = *room ? *room * 2 : 64;

    if (count < *room)
        return items;
    void *grown = count < MOST_PENDING ? reallocarray(items, more, size) : NULL;
    if (grown)
        *room = more;
    return grown;
}

/* Takes the name, also when it fails. */
static int remember(struct climb *c, char *name)
{
    struct pending *grown =
        name ? grow(c->pending, c->pending_count, &c->pending_room, sizeof(*c->pending)) : NULL;

    if (!grown) {
        free(name);
        return -ENOMEM;
    }
    c->pending = grown;
    c->pending[c->pending_count++] = (struct pending){name, c->depth};
    return 0;
}

static int see_leaf(struct climb *c, const char *name)
{
    struct stat st;

    if (!c->ops->stats)
        return c->ops->leaf(c->context, c->dir, name, NULL);
    if (fstatat(c->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    return c->ops->leaf(c->context, c->dir, name, &st);
}

static int see(struct climb *c, const struct dirent64 *entry)
{
    const char *name = entry->d_name;
    bool is_dir = entry->d_type == DT_DIR;
    struct stat st;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (entry->d_type == DT_UNKNOWN) {
        if (fstatat(c->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 0 : -errno;
        is_dir = S_ISDIR(st.st_mode);
    }
    return is_dir ? remember(c, strdup(name)) : see_leaf(c, name);
}

static int scan(struct climb *c)
{
    for (;;) {
        ssize_t n = getdents64(c->dir, c->bytes, SCAN_BYTES);
        if (n <= 0)
            return n < 0 && errno != ENOENT ? -errno : 0; /* ENOENT: it was removed meanwhile */
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(c->bytes + at);
            int r = see(c, entry);
            if (r < 0)
                return r;
            at += entry->d_reclen;
        }
    }
}

/* The directory is opened and becomes where we are; takes the name. */
static int descend(struct climb *c, char *name)
{
    scoped_fd int fd =
        openat(c->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct level *grown = grow(c->levels, c->depth, &c->levels_room, sizeof(*c->levels));
    struct stat above;
    int r = 0;

    if (grown)
        c->levels = grown;
    if (fd < 0 || fstat(c->dir, &above) < 0)
        r = -errno;
    else if (!grown)
        r = -ENOMEM;
    else if (c->ops->one_mount && !files_same_mount(c->dir, fd))
        r = -EBUSY;
    if (r < 0 || !grown) {
        free(name);
        return r != -ENOENT ? r : c->ops->all ? -ESTALE : 0;
    }
    grown[c->depth++] = (struct level){name, above.st_dev, above.st_ino};
    scope_close(&c->dir);
    c->dir = take_fd(&fd);
    return scan(c);
}

static int go_in(struct climb *c)
{
    char *name = c->pending[--c->pending_count].name;
    struct stat st;
    int r = 0;

    if (fstatat(c->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = errno == ENOENT ? 1 : -errno;
    else if (!S_ISDIR(st.st_mode)) /* another by now */
        r = c->ops->leaf(c->context, c->dir, name, &st) < 0 ? -ESTALE : 1;
    else if (c->ops->enter)
        r = c->ops->enter(c->context, c->dir, name, &st);
    if (r == 0)
        return descend(c, name);
    free(name);
    return r < 0 ? r : 0;
}

/* Whether that is still where we came from. At the top by its name, as ".." would find what is
 * mounted over the place where we began, if anything is. */
static bool is_above(const struct climb *c, int above, const struct stat *here)
{
    const struct level *level = &c->levels[c->depth - 1];
    struct stat now;

    if (c->depth == 1)
        return fstatat(above, level->name, &now, AT_SYMLINK_NOFOLLOW) < 0 ||
               (now.st_dev == here->st_dev && now.st_ino == here->st_ino);
    return fstat(above, &now) == 0 && now.st_dev == level->device && now.st_ino == level->inode;
}

static int go_out(struct climb *c)
{
    struct level *level = &c->levels[c->depth - 1];
    bool top = c->depth == 1;
    scoped_fd int above =
        openat(top ? c->start : c->dir, top ? "." : "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (above < 0 || fstat(c->dir, &st) < 0)
        return -errno;
    if (!is_above(c, above, &st))
        return -ESTALE; /* it was moved while we were in it */
    c->depth--;
    scope_close(&c->dir);
    c->dir = take_fd(&above);
    int r = c->ops->leave ? c->ops->leave(c->context, c->dir, level->name, &st) : 0;
    if (r == 1 && c->again++ < MOST_AGAIN)
        return remember(c, level->name);
    free(level->name);
    return r == 1 ? -ENOTEMPTY : r;
}

int files_climb(int dir, const char *name, const struct climb_ops *ops, void *context)
{
    struct climb c = {.ops = ops,
                      .context = context,
                      .start = dir,
                      .dir = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC),
                      .bytes = malloc(SCAN_BYTES)};
    int r = c.dir < 0 ? -errno : c.bytes ? remember(&c, strdup(name)) : -ENOMEM;

    while (r == 0 && (c.pending_count > 0 || c.depth > 0)) {
        bool in = c.pending_count > 0 && c.pending[c.pending_count - 1].level == c.depth;
        r = in ? go_in(&c) : go_out(&c);
    }
    while (c.pending_count > 0)
        free(c.pending[--c.pending_count].name);
    while (c.depth > 0)
        free(c.levels[--c.depth].name);
    free(c.pending);
    free(c.levels);
    free(c.bytes);
    scope_close(&c.dir);
    return r;
}
