/* SPDX-License-Identifier: Apache-2.0 */
/* What of a tree is in the store, as far as the last job knows: the file "index". What a job is
 * about to put there it notes before in "intent"; one that is killed leaves it, and the next one
 * takes those for written or half written. Both are whole or not there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "mover/tree.h"

#define MAGIC     0x31786469656c7272ULL /* another form, another number: then all is sent again */
#define MOST_FILE (8UL << 30)

enum {
    LONGEST_PATH = 16384,
};

static void put_entry(struct buf *b, const struct entry *e)
{
    pack_u64(b, (uint64_t)e->kind);
    pack_string(b, e->path);
    pack_u64(b, e->dirty);
    pack_u64(b, e->mode);
    pack_u64(b, e->size);
    pack_u64(b, e->links);
    pack_u64(b, e->ino);
    pack_u64(b, (uint64_t)e->mtime_ns);
    pack_u64(b, (uint64_t)e->ctime_ns);
}

static void get_entry(struct unpack *u, struct entry *ret)
{
    ret->kind = (enum entry_kind)unpack_upto(u, 127);
    ret->path = unpack_bounded(u, LONGEST_PATH);
    ret->dirty = unpack_upto(u, 1) == 1;
    ret->mode = (uint32_t)unpack_upto(u, 07777);
    ret->size = unpack_u64(u);
    ret->links = unpack_u64(u);
    ret->ino = unpack_u64(u);
    ret->mtime_ns = (int64_t)unpack_u64(u);
    ret->ctime_ns = (int64_t)unpack_u64(u);
}

/* 1 and all of it; 0: there is none. -1. */
static int read_file(const struct mover *m, const char *name, char **ret, size_t *ret_n,
                     struct err *err)
{
    scoped_fd int fd = openat(m->state_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    size_t n = 0;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "open what is known of the mirror");
    char *text = malloc((size_t)st.st_size + 1);
    while (text && n < (size_t)st.st_size) {
        ssize_t got = read(fd, text + n, (size_t)st.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (!text)
        return err_set(err, ERR_LIMIT, ENOMEM, "read what is known of the mirror");
    *ret = text;
    *ret_n = n;
    return 1;
}

static int write_file(const struct mover *m, const char *name, const struct buf *b, struct err *err)
{
    char other[32];

    snprintf(other, sizeof(other), "%s.new", name);
    if (b->failed)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep what is known of the mirror");
    ignore(unlinkat(m->state_fd, other, 0) == 0); /* of a job that was killed */
    scoped_fd int fd =
        openat(m->state_fd, other, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, b->p, b->n);
    if (r == 0 && (fsync(fd) < 0 || renameat(m->state_fd, other, m->state_fd, name) < 0 ||
                   fsync(m->state_fd) < 0))
        r = -errno;
    return r < 0 ? err_set(err, ERR_IO, -r, "write what is known of the mirror") : 0;
}

/* Not well formed: as if there were none. Then everything is sent again, and what is in the store
 * beyond that is found by listing it. */
static bool parse(char *text, size_t n, struct index *ret)
{
    struct unpack u = {.at = text, .end = text + n};

    if (unpack_u64(&u) != MAGIC)
        return false;
    const char *manifest = unpack_bounded(&u, sizeof(ret->manifest) - 1);
    snprintf(ret->manifest, sizeof(ret->manifest), "%s", manifest);
    uint64_t count = unpack_u64(&u);
    for (uint64_t i = 0; i < count && !u.failed; i++) {
        struct entry entry;
        get_entry(&u, &entry);
        if (!u.failed && tree_add(&ret->tree, &entry) < 0)
            return false;
    }
    return unpack_done(&u);
}

static int add_intent(const struct mover *m, struct index *index, struct err *err)
{
    char *text = NULL;
    size_t n = 0;
    struct tree more;
    int r = read_file(m, "intent", &text, &n, err);

    if (r <= 0)
        return r;
    struct unpack u = {.at = text, .end = text + n};
    tree_init(&more);
    r = 0;
    while (r == 0 && u.at < u.end) {
        struct entry entry;
        get_entry(&u, &entry);
        if (u.failed)
            break; /* it is whole or not there, unless a disk has failed */
        struct entry *known = tree_find(&index->tree, entry.path);
        entry.dirty = true;
        if (known && known->kind == entry.kind)
            known->dirty = true;
        else if (tree_add(&more, &entry) < 0)
            r = -1;
    }
    for (size_t i = 0; r == 0 && i < more.count; i++)
        r = tree_add(&index->tree, &more.entries[i]);
    tree_sort(&index->tree);
    tree_clear(&more);
    free(text);
    return r < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "read what was on its way") : 0;
}

int index_load(const struct mover *m, struct index *ret, struct err *err)
{
    char *text = NULL;
    size_t n = 0;

    *ret = (struct index){.manifest = ""};
    tree_init(&ret->tree);
    int r = read_file(m, "index", &text, &n, err);
    if (r == 1 && !parse(text, n, ret)) {
        tree_clear(&ret->tree);
        tree_init(&ret->tree);
        ret->manifest[0] = '\0';
    }
    free(text);
    return r < 0 ? -1 : add_intent(m, ret, err);
}

int index_save(const struct mover *m, const struct index *index, struct err *err)
{
    scoped_buf struct buf b;

    buf_init(&b, MOST_FILE);
    pack_u64(&b, MAGIC);
    pack_string(&b, index->manifest);
    pack_u64(&b, index->tree.count);
    for (size_t i = 0; i < index->tree.count; i++)
        put_entry(&b, &index->tree.entries[i]);
    if (write_file(m, "index", &b, err) < 0)
        return -1;
    if (unlinkat(m->state_fd, "intent", 0) < 0 && errno != ENOENT)
        return err_set(err, ERR_IO, errno, "forget what was on its way");
    return 0;
}

int index_intend(const struct mover *m, const struct entry *const *up, size_t up_count,
                 const struct entry *const *down, size_t down_count, struct err *err)
{
    scoped_buf struct buf b;

    buf_init(&b, MOST_FILE);
    for (size_t i = 0; i < up_count; i++)
        put_entry(&b, up[i]);
    for (size_t i = 0; i < down_count; i++)
        put_entry(&b, down[i]);
    buf_add(&b, "", 0);
    return write_file(m, "intent", &b, err);
}
