/* SPDX-License-Identifier: Apache-2.0 */
/* A walk through a tree that others change meanwhile. Each directory is opened from the one above
 * it by its name alone and never through a link, its names are read at once and sorted. Of the
 * directories on the way down only the last few are held open; on the way back up one that was
 * closed is opened again, as ".." or from the top, and must be the one it was. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/call.h"

enum {
    HELD = 12, /* directories open at once, beside the first */
    MOST_NAMES = 256 << 20 /* bytes for names, of all directories on the way */,
    MOST_PATH = 16 << 20,
    DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
};

struct level {
    int fd; /* -1: closed for now */
    dev_t dev;
    ino_t ino;
    char *names;   /* each with its NUL */
    char **sorted; /* into names */
    size_t count;
    size_t next;
    size_t bytes; /* what it counts for */
    size_t path;  /* length of its path */
};

struct walk {
    struct level *levels; /* [0] is where it began */
    size_t n;
    size_t cap;
    size_t bytes;
    struct buf path;
    enum walk_answer (*each)(void *, const struct walk_entry *);
    void (*failed)(void *, const char *path, int error);
    void *context;
};

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void tell(struct walk *w, int error)
{
    if (w->failed)
        w->failed(w->context, w->path.n > 0 ? w->path.p : "", error);
}

/* Sets the path to the first n bytes of it and a name behind them. */
static int set_path(struct walk *w, size_t n, const char *name)
{
    w->path.n = n;
    if (n > 0 && *name)
        buf_str(&w->path, "/");
    buf_str(&w->path, name);
    if (buf_done(&w->path) == 0)
        return 0;
    w->path.failed = false;
    return -ENAMETOOLONG;
}

/* --- reading a directory --- */

static bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static int read_names(int fd, struct buf *names, size_t *count)
{
    char bytes[32768] __attribute__((aligned(8)));
    ssize_t n;

    while ((n = getdents64(fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *entry = (const void *)(bytes + at);
            if (!is_dots(entry->d_name)) {
                buf_add(names, entry->d_name, strlen(entry->d_name) + 1);
                ++*count;
            }
            at += entry->d_reclen;
        }
        if (names->failed)
            return -ENOMEM;
    }
    return n < 0 ? -errno : 0;
}

static int read_level(struct walk *w, struct level *level)
{
    struct buf names;

    buf_init(&names, MOST_NAMES - w->bytes);
    int r = read_names(level->fd, &names, &level->count);
    if (r == 0 && level->count > 0) {
        level->sorted = malloc(level->count * sizeof(char *));
        r = level->sorted ? 0 : -ENOMEM;
    }
    if (r < 0) {
        buf_clear(&names);
        level->count = 0;
        return r;
    }
    char *name = names.p;
    for (size_t i = 0; i < level->count; i++) {
        level->sorted[i] = name;
        name += strlen(name) + 1;
    }
    if (level->count > 1)
        qsort(level->sorted, level->count, sizeof(char *), compare);
    level->names = names.p;
    level->bytes = names.n;
    w->bytes += level->bytes;
    return 0;
}

/* --- the way down and up --- */

static void pop(struct walk *w)
{
    struct level *level = &w->levels[--w->n];

    scope_close(&level->fd);
    w->bytes -= level->bytes;
    free(level->names);
    free(level->sorted);
}

/* Takes the descriptor. */
static int push(struct walk *w, int *fd)
{
    struct stat st;

    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 32;
        struct level *levels = reallocarray(w->levels, cap, sizeof(*levels));
        if (!levels)
            return -ENOMEM;
        w->levels = levels;
        w->cap = cap;
    }
    if (fstat(*fd, &st) < 0)
        return -errno;
    if (w->n > HELD)
        scope_close(&w->levels[w->n - HELD].fd);
    struct level *level = &w->levels[w->n++];
    *level =
        (struct level){.fd = take_fd(fd), .dev = st.st_dev, .ino = st.st_ino, .path = w->path.n};
    int r = read_level(w, level);
    if (r < 0)
        pop(w);
    return r;
}

static bool is_level(int fd, const struct level *level)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_dev == level->dev && st.st_ino == level->ino;
}

/* The name of level i in the one above it is still in the path. */
static int open_part(const struct walk *w, int above, size_t i)
{
    size_t from = w->levels[i - 1].path + (w->levels[i - 1].path > 0);
    size_t n = w->levels[i].path - from;
    char name[256];

    if (n >= sizeof(name))
        return -ENAMETOOLONG;
    memcpy(name, w->path.p + from, n);
    name[n] = '\0';
    int fd = openat(above, name, DIR_FLAGS);
    return fd < 0 ? -errno : fd;
}

/* Opens the last level again, from the top down: each must be what it was. */
static int reopen_from_top(struct walk *w)
{
    scoped_fd int fd = fcntl(w->levels[0].fd, F_DUPFD_CLOEXEC, 3);

    for (size_t i = 1; i < w->n && fd >= 0; i++) {
        scoped_fd int next = open_part(w, fd, i);
        if (next < 0 || !is_level(next, &w->levels[i]))
            return -ESTALE;
        scope_close(&fd);
        fd = take_fd(&next);
    }
    return fd < 0 ? -errno : take_fd(&fd);
}

/* Leaves the last level; the one above it is open again after that, or passed over. */
static void climb(struct walk *w)
{
    scoped_fd int below = take_fd(&w->levels[w->n - 1].fd);

    pop(w);
    while (w->n > 0 && w->levels[w->n - 1].fd < 0) {
        struct level *level = &w->levels[w->n - 1];
        scoped_fd int fd = below >= 0 ? openat(below, "..", DIR_FLAGS) : -1;
        if (fd < 0 || !is_level(fd, level)) {
            scope_close(&fd);
            fd = reopen_from_top(w);
        }
        if (fd >= 0) {
            level->fd = take_fd(&fd);
            return;
        }
        (void)set_path(w, level->path, "");
        if (level->next < level->count)
            tell(w, ESTALE);
        scope_close(&below);
        pop(w);
    }
}

/* One name of the last level. True: stop. */
static bool step(struct walk *w, unsigned depth)
{
    struct level *level = &w->levels[w->n - 1];
    const char *name = level->sorted[level->next++];
    struct walk_entry entry = {.dir = level->fd, .name = name, .depth = (unsigned)w->n};
    int r = set_path(w, level->path, name);

    if (r < 0) {
        tell(w, -r);
        return false;
    }
    if (fstatat(level->fd, name, &entry.st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT) /* gone since its name was read */
            tell(w, errno);
        return false;
    }
    entry.path = w->path.p;
    enum walk_answer answer = w->each(w->context, &entry);
    if (answer != WALK_ON || !S_ISDIR(entry.st.st_mode) || w->n >= depth)
        return answer == WALK_STOP;
    scoped_fd int fd = openat(level->fd, name, DIR_FLAGS);
    r = fd < 0 ? -errno : push(w, &fd);
    if (r < 0 && r != -ENOENT)
        tell(w, -r);
    return false;
}

int files_walk(const char *path, unsigned depth,
               enum walk_answer (*each)(void *, const struct walk_entry *),
               void (*failed)(void *, const char *path, int error), void *context)
{
    struct walk w = {.each = each, .failed = failed, .context = context};
    bool stopped = false;
    /* A link here is the caller's own word, not something met on the way. */
    scoped_fd int fd = open(path, DIR_FLAGS & ~O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    buf_init(&w.path, MOST_PATH);
    int r = push(&w, &fd);
    while (r == 0 && !stopped && depth > 0 && w.n > 0) {
        struct level *level = &w.levels[w.n - 1];
        if (level->next < level->count)
            stopped = step(&w, depth);
        else
            climb(&w);
    }
    while (w.n > 0)
        pop(&w);
    free(w.levels);
    buf_clear(&w.path);
    return r < 0 ? r : stopped;
}
