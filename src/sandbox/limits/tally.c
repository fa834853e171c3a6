/* SPDX-License-Identifier: Apache-2.0 */
/* The walk keeps a stack of directories, each with its identity and how far it was read. Only the
 * deepest few are open; to a closed one the way leads through "..", and it must still be the one it
 * was. When it is not (its child was moved away meanwhile) the rest of the tree counts as hidden.
 */
#include "sandbox/limits/tally.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"

enum {
    OPEN_LEVELS = 16,
    READ_BYTES = 8192,
    MAX_DEPTH = 1 << 20,
    FIRST_SEEN = 1 << 10, /* powers of two */
    MAX_SEEN = 1 << 20,
    BLOCK = 512, /* the unit of st_blocks */
};

struct level {
    dev_t device;
    ino_t inode;
    off_t read_to; /* the kernel's cookie after the last entry looked at */
};

/* An open directory; level n is at n % OPEN_LEVELS. */
struct open_level {
    int fd;
    size_t level;
    long filled;
    long at;
    char entries[READ_BYTES];
};

struct inode {
    dev_t device;
    ino_t number; /* 0: the slot is free */
};

struct tally {
    struct tally_sum sum;
    struct open_level open[OPEN_LEVELS];
    struct level *levels;
    size_t depth; /* levels in use; 0: no tree */
    size_t level_room;
    struct inode *seen; /* with several names, or none */
    size_t seen_count;
    size_t seen_room;
    uint64_t seed; /* a tenant must not know which inodes collide */
};

/* getdents64: the C library's struct is the kernel's, its call is not everywhere. */
_Static_assert(offsetof(struct dirent, d_name) == 19 && sizeof(off_t) == 8, "as the kernel has it");

static struct dirent *entry_at(struct open_level *o)
{
    return (struct dirent *)(void *)(o->entries + o->at);
}

struct tally *tally_new(void)
{
    struct tally *t = calloc(1, sizeof(*t));

    for (int i = 0; t && i < OPEN_LEVELS; i++)
        t->open[i].fd = -1;
    if (t && getrandom(&t->seed, sizeof(t->seed), GRND_NONBLOCK) < 0)
        t->seed = (uint64_t)(uintptr_t)t;
    return t;
}

static void close_all(struct tally *t)
{
    for (int i = 0; i < OPEN_LEVELS; i++)
        scope_close(&t->open[i].fd);
    t->depth = 0;
}

void tally_free(struct tally *t)
{
    if (!t)
        return;
    close_all(t);
    free(t->levels);
    free(t->seen);
    free(t);
}

void tally_reset(struct tally *t)
{
    close_all(t);
    t->sum = (struct tally_sum){0};
    t->seen_count = 0;
    if (t->seen)
        memset(t->seen, 0, t->seen_room * sizeof(*t->seen));
}

const struct tally_sum *tally_sum(const struct tally *t)
{
    return &t->sum;
}

void tally_note_hidden(struct tally *t)
{
    t->sum.hidden = true;
}

static size_t slot_of(const struct tally *t, dev_t device, ino_t inode, size_t room)
{
    uint64_t x = ((uint64_t)inode ^ t->seed) + (uint64_t)device * 0x9e3779b97f4a7c15ULL;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return (x ^ (x >> 31)) & (room - 1);
}

static struct inode *find(const struct tally *t, struct inode *table, size_t room,
                          struct inode wanted)
{
    size_t i = slot_of(t, wanted.device, wanted.number, room);

    while (table[i].number &&
           (table[i].number != wanted.number || table[i].device != wanted.device))
        i = (i + 1) & (room - 1);
    return &table[i];
}

static void make_room(struct tally *t)
{
    size_t room = t->seen_room ? t->seen_room * 2 : FIRST_SEEN;

    if (t->seen_count * 2 < t->seen_room || room > MAX_SEEN)
        return;
    struct inode *table = calloc(room, sizeof(*table));
    for (size_t i = 0; table && i < t->seen_room; i++) {
        if (t->seen[i].number)
            *find(t, table, room, t->seen[i]) = t->seen[i];
    }
    if (table) {
        free(t->seen);
        t->seen = table;
        t->seen_room = room;
    }
}

enum seen {
    SEEN_FIRST,
    SEEN_AGAIN,
    SEEN_UNKNOWN /* no room to remember it */
};

static enum seen see(struct tally *t, const struct stat *st)
{
    struct inode inode = {.device = st->st_dev, .number = st->st_ino};

    make_room(t);
    /* At three quarters it stays quick to search. */
    if (!t->seen_room)
        return SEEN_UNKNOWN;
    struct inode *slot = find(t, t->seen, t->seen_room, inode);
    if (slot->number)
        return SEEN_AGAIN;
    if (t->seen_count >= t->seen_room / 4 * 3)
        return SEEN_UNKNOWN;
    *slot = inode;
    t->seen_count++;
    return SEEN_FIRST;
}

static uint64_t bytes_of(const struct stat *st)
{
    return st->st_blocks > 0 ? (uint64_t)st->st_blocks * BLOCK : 0;
}

void tally_add_unlinked(struct tally *t, const struct stat *st)
{
    if (see(t, st) == SEEN_AGAIN)
        return;
    t->sum.bytes += bytes_of(st);
    t->sum.unlinked += bytes_of(st);
}

static void add(struct tally *t, const struct stat *st)
{
    if (S_ISDIR(st->st_mode) || st->st_nlink < 2) {
        t->sum.bytes += bytes_of(st);
        return;
    }
    switch (see(t, st)) {
    case SEEN_FIRST:
        t->sum.bytes += bytes_of(st);
        break;
    case SEEN_AGAIN:
        break;
    case SEEN_UNKNOWN: /* each name bears its part: right, if all are in the tree */
        t->sum.bytes += bytes_of(st) / st->st_nlink;
        break;
    }
}

/* What could not be opened hides something only from us when somebody with our uid could still
 * get in: as its owner, or because it may be searched. As root nothing is refused. */
static void add_unopened(struct tally *t, int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return;
    t->sum.bytes += bytes_of(&st);
    if (st.st_uid == geteuid() || faccessat(dir, name, X_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) == 0)
        t->sum.hidden = true;
}

/* Takes `fd` as the directory below the deepest. */
static void push(struct tally *t, int *fd, const struct stat *st)
{
    if (t->depth == t->level_room) {
        size_t room = t->level_room ? t->level_room * 2 : 64;
        struct level *levels = room > MAX_DEPTH ? NULL : realloc(t->levels, room * sizeof(*levels));
        if (!levels) {
            t->sum.hidden = true;
            scope_close(fd);
            return;
        }
        t->levels = levels;
        t->level_room = room;
    }
    size_t level = t->depth++;
    t->levels[level] = (struct level){.device = st->st_dev, .inode = st->st_ino};
    struct open_level *o = &t->open[level % OPEN_LEVELS];
    scope_close(&o->fd);
    o->fd = take_fd(fd);
    o->level = level;
    o->filled = o->at = 0;
}

static void descend(struct tally *t, int dir, const char *name)
{
    struct stat st;
    scoped_fd int fd = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);

    if (fd == -EXDEV || fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
        return; /* a mount; gone or replaced meanwhile */
    if (fd == -EACCES || fd == -EPERM) {
        add_unopened(t, dir, name);
        return;
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        t->sum.hidden = true;
        return;
    }
    t->sum.bytes += bytes_of(&st);
    push(t, &fd, &st);
}

/* Back to the directory above; where it is closed, by the way the tenant's tree has now. */
static void ascend(struct tally *t)
{
    struct open_level *from = &t->open[--t->depth % OPEN_LEVELS];
    struct stat st;

    if (t->depth == 0) {
        scope_close(&from->fd);
        return;
    }
    const struct level *level = &t->levels[t->depth - 1];
    struct open_level *to = &t->open[(t->depth - 1) % OPEN_LEVELS];
    if (to->fd < 0 || to->level != t->depth - 1) {
        scope_close(&to->fd);
        to->fd = openat(from->fd, "..", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
        to->level = t->depth - 1;
        to->filled = to->at = 0;
        if (to->fd < 0 || fstat(to->fd, &st) < 0 || st.st_dev != level->device ||
            st.st_ino != level->inode || lseek(to->fd, level->read_to, SEEK_SET) < 0) {
            t->sum.hidden = true;
            close_all(t);
            return;
        }
    }
    scope_close(&from->fd);
}

static void look_at(struct tally *t, int dir, const char *name, unsigned char type)
{
    struct stat st;

    if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')))
        return;
    t->sum.entries++;
    if (type == DT_DIR) {
        descend(t, dir, name);
        return;
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
        /* Readable and not searchable: sizes are out of sight, until its owner changes that. */
        if (errno != ENOENT && fstat(dir, &st) == 0 && st.st_uid == geteuid())
            t->sum.hidden = true;
        return;
    }
    if (S_ISDIR(st.st_mode))
        descend(t, dir, name);
    else
        add(t, &st);
}

int tally_step(struct tally *t, unsigned entries)
{
    while (t->depth > 0 && entries-- > 0) {
        struct open_level *o = &t->open[(t->depth - 1) % OPEN_LEVELS];
        if (o->at >= o->filled) {
            o->at = 0;
            o->filled = syscall(SYS_getdents64, o->fd, o->entries, sizeof(o->entries));
            if (o->filled < 0)
                t->sum.hidden |= errno != ENOENT; /* ENOENT: the directory was removed */
            if (o->filled <= 0) {
                ascend(t);
                continue;
            }
        }
        const struct dirent *entry = entry_at(o);
        o->at += entry->d_reclen;
        t->levels[t->depth - 1].read_to = entry->d_off;
        look_at(t, o->fd, entry->d_name, entry->d_type);
    }
    return t->depth > 0;
}

int tally_begin(struct tally *t, int root)
{
    struct stat st;

    close_all(t);
    if (fstat(root, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode)) {
        add(t, &st);
        return 0;
    }
    scoped_fd int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    t->sum.bytes += bytes_of(&st);
    push(t, &fd, &st);
    return 0;
}
