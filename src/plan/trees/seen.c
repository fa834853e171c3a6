/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trees/seen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/plan.h"
#include "sys/path.h"

enum {
    LEAST_ROOM = 1024,
    PIECE = 1 << 20,
};

#define MOST_PATHS (1UL << 30)
#define MOST_BYTES (2UL << 30)

static const char magic[8] = {'c', 'a', 'r', 's', 'e', 'e', 'n', '1'};

/* As it is in the file, before the path; numbers as this host has them: no other reads it. */
struct written {
    uint64_t dev;
    uint64_t ino;
    uint64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint64_t length;
};

void seen_init(struct seen *seen)
{
    *seen = (struct seen){.at = NULL};
    arena_init(&seen->arena, MOST_PATHS);
}

void seen_clear(struct seen *seen)
{
    free(seen->at);
    arena_clear(&seen->arena);
    *seen = (struct seen){.at = NULL};
}

static int64_t in_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

void seen_of(const struct stat *st, struct seen_file *ret)
{
    *ret = (struct seen_file){.dev = st->st_dev,
                              .ino = st->st_ino,
                              .size = (uint64_t)st->st_size,
                              .mtime_ns = in_ns(&st->st_mtim),
                              .ctime_ns = in_ns(&st->st_ctim)};
}

bool seen_is_same(const struct seen_file *a, const struct seen_file *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

static size_t first_place(const struct seen *seen, uint64_t dev, uint64_t ino)
{
    uint64_t hash = (ino ^ dev << 32 ^ dev >> 32) * 0x9e3779b97f4a7c15ULL;

    return (size_t)(hash >> 20) & (seen->room - 1);
}

static struct seen_file *place_of(const struct seen *seen, uint64_t dev, uint64_t ino)
{
    size_t i = first_place(seen, dev, ino);

    while (seen->at[i].path && (seen->at[i].ino != ino || seen->at[i].dev != dev))
        i = (i + 1) & (seen->room - 1);
    return &seen->at[i];
}

const struct seen_file *seen_find(const struct seen *seen, uint64_t dev, uint64_t ino)
{
    if (seen->count == 0)
        return NULL;
    const struct seen_file *file = place_of(seen, dev, ino);
    return file->path ? file : NULL;
}

/* Never more than half full. */
static int grow(struct seen *seen)
{
    struct seen larger = {.room = seen->room ? 2 * seen->room : LEAST_ROOM};

    if (seen->room > 2 * seen->count)
        return 0;
    larger.at = calloc(larger.room, sizeof(*larger.at));
    if (!larger.at)
        return -1;
    for (size_t i = 0; i < seen->room; i++) {
        if (seen->at[i].path)
            *place_of(&larger, seen->at[i].dev, seen->at[i].ino) = seen->at[i];
    }
    free(seen->at);
    seen->at = larger.at;
    seen->room = larger.room;
    return 0;
}

int seen_add(struct seen *seen, const struct seen_file *file)
{
    if (grow(seen) < 0)
        return -1;
    struct seen_file *place = place_of(seen, file->dev, file->ino);
    char *path = arena_copy(&seen->arena, file->path, strlen(file->path));
    if (!path)
        return -1;
    seen->count += !place->path;
    *place = *file;
    place->path = path;
    return 0;
}

/* --- as a file --- */

static int flush(struct buf *b, int fd)
{
    size_t at = 0;

    while (!b->failed && at < b->n) {
        ssize_t n = write(fd, b->p + at, b->n - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        at += (size_t)n;
    }
    b->n = 0;
    return b->failed ? -ENOMEM : 0;
}

static int write_all(const struct seen *seen, int fd, int64_t settled_ns)
{
    scoped_buf struct buf b = {0};
    int r = 0;

    buf_init(&b, PIECE + PLAN_MAX_PATH + 1024);
    buf_add(&b, magic, sizeof(magic));
    for (size_t i = 0; r == 0 && i < seen->room; i++) {
        const struct seen_file *f = &seen->at[i];
        if (!f->path || f->ctime_ns >= settled_ns || f->mtime_ns >= settled_ns)
            continue;
        struct written w = {f->dev, f->ino, f->size, f->mtime_ns, f->ctime_ns, strlen(f->path)};
        buf_add(&b, &w, sizeof(w));
        buf_add(&b, f->path, strlen(f->path));
        if (b.n >= PIECE || b.failed)
            r = flush(&b, fd);
    }
    return r == 0 ? flush(&b, fd) : r;
}

int seen_save(const struct seen *seen, int dir, const char *name, int64_t settled_ns,
              struct err *err)
{
    scoped_fd int fd =
        openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : write_all(seen, fd, settled_ns);

    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    return r < 0 ? err_set(err, ERR_IO, -r, "write what the snapshot has seen") : 0;
}

static int is_damaged(struct err *err)
{
    return err_set(err, ERR_IO, 0, "what a snapshot has seen is damaged");
}

/* A path in the snapshot, as the walk gives it. */
static bool is_path(const char *text, size_t n)
{
    if (n == 0 || n > PLAN_MAX_PATH || memchr(text, '\0', n) || *text == '/' || text[n - 1] == '/')
        return false;
    for (const char *at = text; at < text + n;) {
        const char *slash = memchr(at, '/', n - (size_t)(at - text));
        size_t length = slash ? (size_t)(slash - at) : n - (size_t)(at - text);
        if (length == 0 || (length == 1 && *at == '.') ||
            (length == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += length + 1;
    }
    return true;
}

int seen_parse(struct seen *ret, const char *bytes, size_t n, struct err *err)
{
    char path[PLAN_MAX_PATH + 1];
    struct written w;

    if (n < sizeof(magic) || memcmp(bytes, magic, sizeof(magic)) != 0)
        return is_damaged(err);
    for (size_t at = sizeof(magic); at < n; at += w.length) {
        if (n - at < sizeof(w))
            return is_damaged(err);
        memcpy(&w, bytes + at, sizeof(w));
        at += sizeof(w);
        if (w.length > n - at || !is_path(bytes + at, w.length))
            return is_damaged(err);
        memcpy(path, bytes + at, w.length);
        path[w.length] = '\0';
        struct seen_file file = {.dev = w.dev,
                                 .ino = w.ino,
                                 .size = w.size,
                                 .mtime_ns = w.mtime_ns,
                                 .ctime_ns = w.ctime_ns,
                                 .path = path};
        if (seen_add(ret, &file) < 0)
            return err_set(err, ERR_LIMIT, ENOMEM, "read what a snapshot has seen");
    }
    return 0;
}

int seen_load(struct seen *ret, int dir, const char *name, struct err *err)
{
    scoped_buf struct buf b = {0};
    scoped_fd int fd = path_open_beneath(dir, name, O_RDONLY | O_NOFOLLOW, 1);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, fd < 0 ? -fd : errno, "read what a snapshot has seen");
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > MOST_BYTES)
        return is_damaged(err);
    buf_init(&b, MOST_BYTES);
    size_t size = (size_t)st.st_size;
    char *room = buf_room(&b, size);
    for (size_t at = 0; room && at < size;) {
        ssize_t n = pread(fd, room + at, size - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return is_damaged(err);
        at += (size_t)n;
    }
    if (!room)
        return err_set(err, ERR_LIMIT, ENOMEM, "read what a snapshot has seen");
    return seen_parse(ret, room, size, err);
}
