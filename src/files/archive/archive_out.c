/* SPDX-License-Identifier: Apache-2.0 */
/* A tree as an archive, in the order of its names, in constant memory. Two walks: the first opens
 * every file, so that what cannot be read or is too large is told before the answer begins; what
 * changes after that cuts the answer off, and never leaves a file out unseen. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/archive/archive.h"

enum {
    LINKS = 1 << 16,       /* files with several names that are kept in mind */
    LINK_NAMES = 16 << 20, /* ... and the bytes of their names; more of them are packed again */
    HOLLOW = 64,           /* a zip takes files so many times larger than their blocks */
};

#define HOLLOW_FREE (64ULL << 20) /* ... and this much */

struct link {
    dev_t dev;
    ino_t ino;
    const char *name;
};

struct packing {
    struct files_call *call;
    struct packer *packer; /* NULL: the first walk */
    bool zip;
    uint64_t central; /* bytes a zip needs at its end */
    int error;
    struct buf failed_path;
    struct link *links; /* LINKS of them, found by their inode */
    struct arena names;
};

void pack_flush(struct packer *p)
{
    if (p->n > 0)
        (void)answer_bytes(p->call, p->bytes, p->n);
    p->n = 0;
}

void pack_bytes(struct packer *p, const void *bytes, size_t n)
{
    const char *at = bytes;

    p->written += n;
    while (n > 0 && !p->call->gone) {
        size_t part = sizeof(p->bytes) - p->n < n ? sizeof(p->bytes) - p->n : n;
        memcpy(p->bytes + p->n, at, part);
        p->n += part;
        at += part;
        n -= part;
        if (p->n == sizeof(p->bytes))
            pack_flush(p);
    }
}

/* The first failure is the one that is told. */
static enum walk_answer stop(struct packing *k, const char *path, int error)
{
    if (k->packer)
        k->call->gone = true;
    if (k->error == 0) {
        k->error = error;
        buf_str(&k->failed_path, strcmp(k->call->m->path, "/") == 0 ? "" : k->call->m->path);
        buf_str(&k->failed_path, *path ? "/" : "");
        buf_str(&k->failed_path, path);
    }
    return WALK_STOP;
}

/* A directory that could not be read, further down. */
static void on_failed(void *context, const char *path, int error)
{
    (void)stop(context, path, error);
}

/* The name under which this file is in the archive already; else it is kept in mind. */
static const char *earlier_name(struct packing *k, const struct pack_item *item)
{
    size_t at = (size_t)((uint64_t)item->st.st_ino * 0x9e3779b97f4a7c15U >> 48);

    if (k->zip || item->st.st_nlink < 2)
        return NULL;
    if (!k->links)
        k->links = calloc(LINKS, sizeof(*k->links));
    for (size_t tries = 0; k->links && tries < 64; tries++, at++) {
        struct link *link = &k->links[at % LINKS];
        if (!link->name) {
            link->name = arena_copy(&k->names, item->name, strlen(item->name));
            link->dev = item->st.st_dev;
            link->ino = item->st.st_ino;
            return NULL;
        }
        if (link->ino == item->st.st_ino && link->dev == item->st.st_dev)
            return link->name;
    }
    return NULL;
}

static void pack(struct packing *k, const struct pack_item *item)
{
    if (k->zip)
        zip_item(k->packer, item);
    else
        tar_item(k->packer, item);
}

/* Whether it can be packed: 0 or an errno. */
static int judge(struct packing *k, const struct pack_item *item)
{
    uint64_t size = (uint64_t)item->st.st_size;
    uint64_t there = (uint64_t)item->st.st_blocks * 512;

    if (strlen(item->name) > PACK_NAME)
        return ENAMETOOLONG;
    k->central += zip_central_size(strlen(item->name));
    if (!k->zip)
        return 0;
    if (S_ISREG(item->st.st_mode) && size > HOLLOW_FREE && (size - HOLLOW_FREE) / HOLLOW > there)
        return EFBIG; /* holes: tar has a way to say so, zip would write them out */
    return k->central > ZIP_CENTRAL_MOST ? EFBIG : 0;
}

/* One that is open, in either walk. */
static enum walk_answer take(struct packing *k, struct pack_item *item)
{
    int error = k->packer ? 0 : judge(k, item);

    if (error)
        return stop(k, item->name, error);
    if (k->packer) {
        const char *earlier = S_ISREG(item->st.st_mode) ? earlier_name(k, item) : NULL;
        item->hard = earlier != NULL;
        if (earlier)
            item->target = earlier;
        pack(k, item);
    }
    return k->call->gone ? WALK_STOP : WALK_ON;
}

static bool is_reserved(const struct packing *k, const char *name)
{
    char path[FILES_PATH];
    size_t n = strlen(name);

    /* Only in the root itself is there anything of Carrel's: what is further down is with it. */
    if (strcmp(k->call->m->path, "/") != 0 || n + 2 > sizeof(path))
        return false;
    path[0] = '/';
    memcpy(path + 1, name, n + 1);
    return files_check_reserved(path) == -EBUSY;
}

/* One that is to be left out, with all below it. */
static bool is_excluded(const struct packing *k, const char *name)
{
    const char *const *excluded = k->call->m->globs;

    while (excluded && *excluded && strcmp(*excluded, name) != 0)
        excluded++;
    return excluded && *excluded;
}

static enum walk_answer on_file(struct packing *k, const struct tree_entry *entry)
{
    scoped_fd int fd =
        openat(entry->dir, entry->name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    struct pack_item item = {.name = entry->path, .fd = fd};

    if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO))
        return WALK_ON; /* gone, or something else by now */
    if (fd < 0 || fstat(fd, &item.st) < 0)
        return stop(k, entry->path, errno);
    return S_ISREG(item.st.st_mode) ? take(k, &item) : WALK_ON;
}

static enum walk_answer on_link(struct packing *k, const struct tree_entry *entry)
{
    struct pack_item item = {.name = entry->path, .st = entry->st, .fd = -1};
    char target[PATH_MAX];
    ssize_t n = readlinkat(entry->dir, entry->name, target, sizeof(target) - 1);

    if (n < 0 && (errno == ENOENT || errno == EINVAL))
        return WALK_ON;
    if (n < 0)
        return stop(k, entry->path, errno);
    target[n] = '\0';
    item.target = target;
    return take(k, &item);
}

static enum walk_answer on_entry(void *context, const struct tree_entry *entry)
{
    struct packing *k = context;
    struct pack_item item = {.name = entry->path, .st = entry->st, .fd = -1};

    if (k->error || k->call->gone)
        return WALK_STOP;
    if (is_reserved(k, entry->path) || is_excluded(k, entry->path))
        return WALK_PAST;
    if (S_ISREG(entry->st.st_mode))
        return on_file(k, entry);
    if (S_ISLNK(entry->st.st_mode))
        return on_link(k, entry);
    return S_ISDIR(entry->st.st_mode) ? take(k, &item) : WALK_ON;
}

/* A single file: an archive with that one in it. */
static void pack_file(struct packing *k, const char *path)
{
    struct pack_item item = {.fd = -1};
    scoped_fd int fd = files_open(path, true, &item.st);

    if (fd < 0) {
        (void)stop(k, "", -fd);
        return;
    }
    item.name = strrchr(path, '/') + 1;
    item.fd = fd;
    item.st.st_nlink = 1;
    (void)take(k, &item);
}

static void walk(struct packing *k)
{
    const char *path = k->call->m->path;
    int r = files_walk(path, UINT_MAX, on_entry, on_failed, k);

    if (r == -ENOTDIR)
        pack_file(k, path);
    else if (r < 0)
        (void)stop(k, "", -r);
}

static void tell(struct packing *k)
{
    bool named = buf_done(&k->failed_path) == 0;

    if (k->error == EFBIG)
        answer_error(k->call, 413, "too_large",
                     "a zip cannot hold this: '%.200s' is mostly holes, or there are too many "
                     "files; take tar",
                     named ? k->failed_path.p : "");
    else
        answer_errno(k->call, k->error, named ? k->failed_path.p : k->call->m->path);
}

static void send_archive(struct packing *k)
{
    struct files_head head = {
        .status = 200, .type = k->zip ? FILES_TYPE_ZIP : FILES_TYPE_TAR, .size = FILES_MOST};

    k->packer = calloc(1, sizeof(*k->packer));
    if (!k->packer) {
        answer_errno(k->call, ENOMEM, k->call->m->path);
        return;
    }
    k->packer->call = k->call;
    buf_init(&k->packer->central, ZIP_CENTRAL_MOST);
    if (answer_begin(k->call, &head))
        walk(k);
    if (!k->call->gone) {
        if (k->zip)
            zip_finish(k->packer);
        else
            tar_finish(k->packer);
        answer_end(k->call);
    }
    zip_clear(k->packer);
    buf_clear(&k->packer->central);
    free(k->packer);
}

void files_pack_tree(struct files_call *call)
{
    struct packing k = {.call = call, .zip = call->m->flags & FILES_ZIP};

    buf_init(&k.failed_path, 1 << 20);
    arena_init(&k.names, LINK_NAMES);
    walk(&k);
    if (k.error)
        tell(&k);
    else
        send_archive(&k);
    buf_clear(&k.failed_path);
    arena_clear(&k.names);
    free(k.links);
}
