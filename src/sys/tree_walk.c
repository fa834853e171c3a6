/* SPDX-License-Identifier: Apache-2.0 */
/* The way down is a list of levels. The last TREE_HELD of them are open; level n is held at
 * n % TREE_HELD, with the piece that was read of it. For the others there is their identity, how
 * far they were read, and their names in the path.
 *
 *   go_in: open, push          look: one name of the last level
 *   go_out: pop, and the level above is open again with the next thing that needs it (reach) */
#include "sys/tree_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"

enum {
    PIECE = 8192,
    SORTED_PIECE = 4 * PIECE,
    MOST_NAMES = 512 << 20, /* bytes, with the order of the names */
    MOST_PATH = 256 << 20,
    MOST_LEVELS = 1 << 22,
    DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
};

struct level {
    dev_t device;
    ino_t inode;
    off_t read_to;  /* the kernel's cookie after the last entry that was looked at */
    uint32_t path;  /* length of its path */
    uint32_t names; /* sorted: where they begin in w->names, */
    uint32_t order; /* ... where it says in which order, */
    uint32_t count; /* ... how many */
    uint32_t next;
};

/* getdents64: the C library's struct is the kernel's, its call is not everywhere. */
_Static_assert(offsetof(struct dirent, d_name) == 19 && sizeof(off_t) == 8, "as the kernel has it");

/* --- memory --- */

static int grow(struct tree_room *room, size_t more, size_t most)
{
    size_t size = room->size ? room->size : (size_t)PIECE;

    if (more > most - room->n)
        return -ENOMEM;
    while (size < room->n + more)
        size *= 2;
    if (size == room->size)
        return 0;
    void *at = room->at
                   ? mremap(room->at, room->size, size, MREMAP_MAYMOVE)
                   : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    room->at = at;
    room->size = size;
    return 0;
}

static void give_back(struct tree_room *room)
{
    if (room->at)
        (void)munmap(room->at, room->size);
    *room = (struct tree_room){0};
}

/* --- levels --- */

static struct level *level_at(const struct tree_walk *w, size_t i)
{
    return (struct level *)(void *)w->levels.at + i;
}

static struct level *last(const struct tree_walk *w)
{
    return level_at(w, w->depth - 1);
}

static struct tree_held *held(struct tree_walk *w)
{
    return &w->held[(w->depth - 1) % TREE_HELD];
}

static char *piece(struct tree_walk *w, const struct tree_held *h)
{
    return w->pieces.at + (size_t)(h - w->held) * PIECE;
}

static bool is_level(int fd, const struct level *level)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_dev == level->device && st.st_ino == level->inode;
}

static void cut_path(struct tree_walk *w, size_t n)
{
    w->path.n = n;
    w->path.at[n] = '\0';
}

/* The path of a name in the last level. */
static int set_path(struct tree_walk *w, const char *name)
{
    size_t n = strlen(name);

    cut_path(w, last(w)->path);
    if (grow(&w->path, n + 2, MOST_PATH) < 0)
        return -ENAMETOOLONG;
    if (w->path.n > 0)
        w->path.at[w->path.n++] = '/';
    memcpy(w->path.at + w->path.n, name, n + 1);
    w->path.n += n;
    return 0;
}

/* Where the last name of the path begins, if it is in this level. */
static const char *name_in(const struct tree_walk *w, const struct level *level)
{
    return w->path.at + level->path + (level->path > 0);
}

/* What the path says, in the last level. */
static void describe(struct tree_walk *w, struct tree_entry *ret)
{
    *ret = (struct tree_entry){.dir = -1, .name = w->path.at, .path = w->path.at};
    if (w->depth == 0)
        return;
    const struct tree_held *h = held(w);
    ret->dir = h->level == w->depth - 1 ? h->fd : -1;
    ret->name = name_in(w, last(w));
    ret->depth = (unsigned)w->depth;
}

static void pop(struct tree_walk *w)
{
    struct tree_held *h = held(w);

    w->names.n = last(w)->names;
    if (h->level == w->depth - 1)
        scope_close(&h->fd);
    w->depth--;
}

/* --- names in their order --- */

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

/* Each with its type before it and a NUL behind. */
static int keep_names(struct tree_walk *w, const char *bytes, long n, uint32_t *count)
{
    for (long at = 0; at < n;) {
        const struct dirent *entry = (const void *)(bytes + at);
        size_t length = strlen(entry->d_name) + 1;
        at += entry->d_reclen;
        if (path_is_dots(entry->d_name))
            continue;
        if (grow(&w->names, length + 1, MOST_NAMES) < 0)
            return -ENOMEM;
        w->names.at[w->names.n++] = (char)entry->d_type;
        memcpy(w->names.at + w->names.n, entry->d_name, length);
        w->names.n += length;
        ++*count;
    }
    return 0;
}

/* Sorted as pointers, and kept as distances: the memory may move. */
static int order_names(struct tree_walk *w, struct level *level)
{
    size_t filler = -w->names.n % sizeof(char *);
    size_t size = filler + level->count * sizeof(char *);

    if (grow(&w->names, size, MOST_NAMES) < 0)
        return -ENOMEM;
    char *name = w->names.at + level->names;
    char **order = (char **)(void *)(w->names.at + w->names.n + filler);
    level->order = (uint32_t)(w->names.n + filler);
    w->names.n += size;
    for (uint32_t i = 0; i < level->count; i++) {
        order[i] = name;
        name += strlen(name + 1) + 2;
    }
    if (level->count > 1)
        qsort(order, level->count, sizeof(char *), compare);
    for (uint32_t i = 0; i < level->count; i++) {
        uintptr_t distance = (uintptr_t)order[i] - (uintptr_t)w->names.at;
        memcpy(&order[i], &distance, sizeof(distance));
    }
    return 0;
}

static int read_names(struct tree_walk *w)
{
    uint32_t count = 0;
    long n;

    while ((n = syscall(SYS_getdents64, held(w)->fd, w->pieces.at, SORTED_PIECE)) > 0) {
        int r = keep_names(w, w->pieces.at, n, &count);
        if (r < 0)
            return r;
    }
    if (n < 0 && errno != ENOENT) /* removed meanwhile: there is nothing in it */
        return -errno;
    last(w)->count = count;
    return order_names(w, last(w));
}

/* --- the way down and up --- */

static int open_below(const struct tree_walk *w, int dir, const char *name)
{
    return path_open_name(dir, name, DIR_FLAGS, w->flags & TREE_ONE_MOUNT);
}

/* Takes the directory that the path names. */
static int push(struct tree_walk *w, int *fd)
{
    struct stat st;

    if (w->depth == MOST_LEVELS)
        return -ENAMETOOLONG;
    w->levels.n = w->depth * sizeof(struct level);
    if (grow(&w->levels, sizeof(struct level), MOST_LEVELS * sizeof(struct level)) < 0)
        return -ENOMEM;
    if (fstat(*fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    w->depth++;
    *last(w) = (struct level){.device = st.st_dev,
                              .inode = st.st_ino,
                              .path = (uint32_t)w->path.n,
                              .names = (uint32_t)w->names.n};
    struct tree_held *h = held(w);
    scope_close(&h->fd);
    *h = (struct tree_held){.fd = take_fd(fd), .level = w->depth - 1};
    int r = w->flags & TREE_SORTED ? read_names(w) : 0;
    if (r < 0)
        pop(w);
    return r;
}

/* Opens the last level from the top down: each must be what it was. */
static int open_from_top(struct tree_walk *w)
{
    scoped_fd int fd = fcntl(w->top, F_DUPFD_CLOEXEC, 3);

    for (size_t i = 1; i < w->depth && fd >= 0; i++) {
        const char *from = name_in(w, level_at(w, i - 1));
        size_t n = (size_t)(w->path.at + level_at(w, i)->path - from);
        char name[256];
        if (n >= sizeof(name))
            return -ESTALE;
        memcpy(name, from, n);
        name[n] = '\0';
        scoped_fd int next = open_below(w, fd, name);
        if (next < 0 || !is_level(next, level_at(w, i)))
            return -ESTALE;
        scope_close(&fd);
        fd = take_fd(&next);
    }
    return fd < 0 ? -ESTALE : take_fd(&fd);
}

/* The last level is open after that, or -ESTALE. */
static int reach(struct tree_walk *w)
{
    const struct level *level = last(w);
    struct tree_held *h = held(w);

    if (h->fd >= 0)
        return 0;
    scoped_fd int fd = w->below >= 0 ? openat(w->below, "..", DIR_FLAGS) : -1;
    if (fd < 0 || !is_level(fd, level)) {
        scope_close(&fd);
        fd = open_from_top(w);
    }
    off_t at = w->flags & TREE_EMPTYING ? 0 : level->read_to;
    if (fd < 0 || (!(w->flags & TREE_SORTED) && lseek(fd, at, SEEK_SET) < 0))
        return -ESTALE;
    *h = (struct tree_held){.fd = take_fd(&fd), .level = w->depth - 1};
    return 0;
}

static int go_in(struct tree_walk *w, struct tree_entry *ret)
{
    int r = reach(w);

    scope_close(&w->below);
    describe(w, ret);
    ret->is_dir = true;
    if (r < 0)
        return r;
    scoped_fd int fd = open_below(w, held(w)->fd, ret->name);
    r = fd < 0 ? fd : push(w, &fd);
    if (r < 0)
        describe(w, ret); /* memory may have moved */
    ret->is_dir = true;
    return r;
}

/* Whether what was left is still where it was; gone from there, it must have gone for good. */
static int check_place(struct tree_walk *w, const struct level *left, struct tree_entry *ret)
{
    if (fstatat(ret->dir, ret->name, &ret->st, AT_SYMLINK_NOFOLLOW) == 0)
        return ret->st.st_dev == left->device && ret->st.st_ino == left->inode ? 0 : -ESTALE;
    if (errno != ENOENT || fstat(w->below, &ret->st) < 0)
        return -errno;
    scoped_fd int above = openat(w->below, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return above >= 0 && is_level(above, last(w)) ? 0 : -ESTALE;
}

/* Leaves the last level, in which there is nothing more, or which could not be read. */
static int go_out(struct tree_walk *w, struct tree_entry *ret, int error)
{
    struct level left = *last(w);
    bool post = error == 0 && w->flags & TREE_POST && w->depth > 1;

    scope_close(&w->below);
    w->below = take_fd(&held(w)->fd);
    pop(w);
    cut_path(w, left.path);
    if (w->depth == 0)
        scope_close(&w->below);
    if (!post) {
        describe(w, ret);
        ret->is_dir = true;
        return error;
    }
    int r = reach(w);
    describe(w, ret);
    ret->is_dir = ret->after = true;
    if (r == 0)
        r = check_place(w, &left, ret);
    scope_close(&w->below);
    return r < 0 ? r : 1;
}

/* --- one entry --- */

/* 1: the next name of the last level, 0: there is none. */
static int next_name(struct tree_walk *w, const char **ret, unsigned char *type)
{
    struct level *level = last(w);
    struct tree_held *h = held(w);
    char *bytes = piece(w, h);

    if (w->flags & TREE_SORTED) {
        uintptr_t at;
        if (level->next == level->count)
            return 0;
        memcpy(&at, w->names.at + level->order + level->next++ * sizeof(at), sizeof(at));
        *type = (unsigned char)w->names.at[at];
        *ret = w->names.at + at + 1;
        return 1;
    }
    for (;;) {
        if (h->at >= h->filled) {
            h->at = 0;
            h->filled = syscall(SYS_getdents64, h->fd, bytes, PIECE);
            if (h->filled <= 0) /* ENOENT: it was removed meanwhile */
                return h->filled < 0 && errno != ENOENT ? -errno : 0;
        }
        const struct dirent *entry = (const void *)(bytes + h->at);
        h->at += entry->d_reclen;
        level->read_to = entry->d_off;
        if (path_is_dots(entry->d_name))
            continue;
        *type = entry->d_type;
        *ret = entry->d_name;
        return 1;
    }
}

static int look(struct tree_walk *w, const char *name, unsigned char type, struct tree_entry *ret)
{
    int r = set_path(w, name);

    describe(w, ret);
    if (r < 0)
        return r;
    ret->is_dir = type == DT_DIR;
    if (w->flags & TREE_STAT || type == DT_UNKNOWN) {
        if (fstatat(ret->dir, ret->name, &ret->st, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 0 : -errno;
        ret->is_dir = S_ISDIR(ret->st.st_mode);
    }
    w->enter = ret->is_dir;
    return 1;
}

/* The last level could not be found again. Of one whose names are all known, and done, nothing is
 * lost. */
static int lose(struct tree_walk *w, struct tree_entry *ret)
{
    const struct level *level = last(w);
    bool is_done = w->flags & TREE_SORTED && !(w->flags & TREE_POST) && level->next == level->count;

    cut_path(w, level->path);
    pop(w);
    describe(w, ret);
    ret->is_dir = true;
    return is_done ? 0 : -ESTALE;
}

int tree_walk_next(struct tree_walk *w, struct tree_entry *ret)
{
    const char *name = "";
    unsigned char type = DT_UNKNOWN;
    int r = 0;

    if (w->enter) {
        w->enter = false;
        r = go_in(w, ret);
    }
    while (r == 0 && w->depth > 0) {
        r = reach(w);
        scope_close(&w->below);
        if (r < 0) {
            r = lose(w, ret);
            continue;
        }
        r = next_name(w, &name, &type);
        r = r > 0 ? look(w, name, type, ret) : go_out(w, ret, r);
    }
    return r;
}

void tree_walk_skip(struct tree_walk *w)
{
    w->enter = false;
}

void tree_walk_again(struct tree_walk *w)
{
    w->enter = true;
}

int tree_walk_begin(struct tree_walk *w, int top, unsigned flags)
{
    *w = (struct tree_walk){.top = top, .flags = flags, .below = -1};
    for (size_t i = 0; i < TREE_HELD; i++)
        w->held[i].fd = -1;
    /* Not opened anew, for which it would have to be one that may be searched. */
    scoped_fd int fd = fcntl(top, F_DUPFD_CLOEXEC, 3);
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    int r = grow(&w->pieces, (size_t)TREE_HELD * PIECE, SIZE_MAX);
    if (r == 0)
        r = grow(&w->path, 1, MOST_PATH);
    return r == 0 ? push(w, &fd) : r;
}

void tree_walk_end(struct tree_walk *w)
{
    for (size_t i = 0; i < TREE_HELD; i++)
        scope_close(&w->held[i].fd);
    scope_close(&w->below);
    w->depth = 0;
    w->enter = false;
    give_back(&w->levels);
    give_back(&w->path);
    give_back(&w->names);
    give_back(&w->pieces);
}
