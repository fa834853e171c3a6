/* SPDX-License-Identifier: Apache-2.0 */
/* From the store to a tree that is new, and nobody else's until it is whole. The list is made by
 * what may be named (listing.c); rclone brings plain files into a tree without symlinks, so that
 * none of its paths leads elsewhere; links, modes and empty directories are made afterwards, each
 * by a descriptor of the directory it is in. What is there then is compared with the list. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/fd.h"
#include "mover/tree.h"
#include "sys/path.h"

#define ROOM_LEFT (256ULL << 20) /* on the disk, when all is there */
#define MOST_LIST (1UL << 30)
#define MODE_BITS 0777U
#define LINK_END  ".rclonelink"
#define LONGEST   4200

struct work {
    struct mover *m;
    int top;
    struct tree listed;
    size_t refused;
    uint64_t bytes;
    struct buf manifest_text;
    json_t *manifest;
    json_t *raw; /* sizes of its "raw" objects by their names */
};

/* --- paths --- */

/* The directory that it is in, open, and its name there; made if need be. -1 with *err. */
static int open_parent(struct work *w, const char *path, bool make, const char **ret_name,
                       struct err *err)
{
    scoped_fd int dir = openat(w->top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[256];

    for (const char *slash; dir >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
        if (make && mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
            break;
        int next = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 1);
        scope_close(&dir);
        dir = next;
    }
    *ret_name = path;
    if (dir < 0 || strchr(path, '/'))
        return err_set(err, ERR_IO, 0, "open a directory of the workspace");
    return take_fd(&dir);
}

/* A path of the manifest; in `text`. False: none that a tree can have. */
static bool read_path(const json_t *told, char *text, size_t size)
{
    const char *plain = json_string_value(told);
    const char *coded = json_string_value(json_object_get(told, "b64"));
    ssize_t n = -1;

    if (plain && strlen(plain) < size) {
        n = (ssize_t)strlen(plain);
        memcpy(text, plain, (size_t)n);
    } else if (coded && strlen(coded) / 4 * 3 + 3 < size) {
        n = bytes_from_base64(coded, strlen(coded), text);
    }
    if (n <= 0 || memchr(text, '\0', (size_t)n))
        return false;
    text[n] = '\0';
    return raw_name_is_good(text);
}

/* --- what there is --- */

static int read_manifest(struct work *w, struct err *err)
{
    char object[128];

    snprintf(object, sizeof(object), ".carrel/%s/manifest.json", w->m->workspace);
    int r = rclone_read(w->m, object, &w->manifest_text, err);
    if (r < 0)
        return -1;
    w->manifest = r == 1 && buf_done(&w->manifest_text) == 0
                      ? json_loadb(w->manifest_text.p, w->manifest_text.n, 0, NULL)
                      : NULL;
    if (r == 1 && json_is_object(w->manifest))
        return 0;
    w->m->code = "not_found";
    return err_set(err, ERR_NOT_FOUND, 0,
                   r ? "the manifest of workspace '%s' in the store cannot be read"
                     : "the store has no workspace '%s'",
                   w->m->workspace);
}

/* What there is below it, in an array. 1; 0: nothing. */
static int list_objects(struct work *w, const char *below, json_t **ret, struct err *err)
{
    scoped_buf struct buf text;

    buf_init(&text, 0);
    int r = rclone_list(w->m, below, &text, err);
    if (r <= 0)
        return r;
    *ret = buf_done(&text) == 0 ? json_loadb(text.p, text.n, 0, NULL) : NULL;
    return json_is_array(*ret) ? 1 : err_set(err, ERR_IO, 0, "the store's list cannot be read");
}

/* What of the manifest's "raw" there is, and how large. */
static int read_raw(struct work *w, struct err *err)
{
    json_t *list = NULL;
    const json_t *one;
    char below[128];
    size_t i;

    w->raw = json_object();
    if (json_array_size(json_object_get(w->manifest, "raw")) == 0)
        return 0;
    snprintf(below, sizeof(below), ".carrel/%s/raw", w->m->workspace);
    int r = list_objects(w, below, &list, err);
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "Path"));
        if (name)
            json_object_set(w->raw, name, json_object_get(one, "Size"));
    }
    json_decref(list);
    return r < 0 ? -1 : 0;
}

static int read_list(struct work *w, struct err *err)
{
    char below[128];
    json_t *list = NULL;

    snprintf(below, sizeof(below), "threads/%s", w->m->workspace);
    int r = list_objects(w, below, &list, err);

    if (r <= 0)
        return r; /* 0: a tree without files */
    r = listing_take(list, &w->listed, &w->refused, err);
    json_decref(list);
    for (size_t i = 0; r == 0 && i < w->listed.count; i++)
        w->bytes += w->listed.entries[i].size;
    return r;
}

static int check_room(const struct work *w, struct err *err)
{
    struct statvfs disk;

    if (fstatvfs(w->top, &disk) < 0)
        return err_set(err, ERR_IO, errno, "look at the disk");
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    return w->bytes + ROOM_LEFT > room
               ? err_set(err, ERR_LIMIT, ENOSPC,
                         "the copy in the store has %ju MiB, and the disk room for %ju",
                         (uintmax_t)(w->bytes >> 20), (uintmax_t)(room >> 20))
               : 0;
}

/* --- bringing it --- */

static int write_list(const struct work *w, struct err *err)
{
    scoped_buf struct buf text;

    buf_init(&text, MOST_LIST);
    for (size_t i = 0; i < w->listed.count; i++)
        buf_printf(&text, "%s%s\n", w->listed.entries[i].path,
                   w->listed.entries[i].kind == ENTRY_LINK ? LINK_END : "");
    scoped_fd int fd =
        openat(w->m->state_fd, "down", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = buf_done(&text) < 0 ? -ENOMEM : fd < 0 ? -errno : fd_write_all(fd, text.p, text.n);
    return r < 0 ? err_set(err, ERR_IO, -r, "list what is to be brought") : 0;
}

static int bring(struct work *w, struct err *err)
{
    struct mover *m = w->m;
    struct arena arena;

    if (w->listed.count == 0)
        return 0;
    if (write_list(w, err) < 0)
        return -1;
    arena_init(&arena, 65536);
    const char *list = arena_printf(&arena, "%s/down", m->state);
    const char *const args[] = {
        "copy",
        rclone_place(m, &arena, arena_printf(&arena, "threads/%s", m->workspace)),
        m->tree,
        "--files-from-raw",
        list ? list : "",
        "--no-traverse",
        "--ignore-times",
        "--transfers=32",
        NULL};
    int r = rclone_run(m, args, -1, NULL, err);
    arena_clear(&arena);
    return r;
}

static int bring_raw(struct work *w, const json_t *one, struct err *err)
{
    scoped_buf struct buf content;
    const char *hash = json_string_value(json_array_get(one, 1));
    const char *kind = json_string_value(json_array_get(one, 2));
    const json_t *size = json_object_get(w->raw, hash ? hash : "");
    const char *name;
    char path[LONGEST];
    char object[256];
    int r = 0;

    buf_init(&content, 0);
    if (!hash || !kind || !bytes_are_hex(hash, DIGEST_HEX - 1) ||
        !read_path(json_array_get(one, 0), path, sizeof(path))) {
        w->refused++;
        return 0;
    }
    scoped_fd int dir = open_parent(w, path, true, &name, err);
    snprintf(object, sizeof(object), ".carrel/%s/raw/%s", w->m->workspace, hash);
    if (dir < 0 || rclone_read(w->m, object, &content, err) < 0)
        return -1;
    /* An object that is not there, and one without bytes, are read alike. */
    if (buf_done(&content) < 0 || !size || json_integer_value(size) != (json_int_t)content.n)
        return err_set(err, ERR_IO, 0, "'%.200s' did not come whole from the store", path);
    if (strcmp(kind, "link") == 0) {
        buf_add(&content, "", 1);
        r = content.p && symlinkat(content.p, dir, name) < 0 ? -errno : 0;
    } else {
        scoped_fd int fd =
            openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        r = fd < 0 ? -errno : fd_write_all(fd, content.p, content.n);
    }
    return r < 0 ? err_set(err, ERR_IO, -r, "write a file of the workspace") : 0;
}

/* --- what plain objects do not hold --- */

/* The object with where it leads becomes the symlink. */
static int make_link(struct work *w, struct entry *e, struct err *err)
{
    char held[LONGEST + sizeof(LINK_END)];
    char target[4096];
    const char *name;
    struct stat st;

    scoped_fd int dir = open_parent(w, e->path, false, &name, err);
    if (dir < 0)
        return -1;
    snprintf(held, sizeof(held), "%s" LINK_END, name);
    scoped_fd int fd = openat(dir, held, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, target, sizeof(target));
    if (n <= 0 || n == (ssize_t)sizeof(target) || memchr(target, '\0', (size_t)n)) {
        w->refused++;
        e->closed = true; /* nothing is expected there */
        ignore(unlinkat(dir, held, 0) == 0);
        return 0;
    }
    target[n] = '\0';
    if (fstat(fd, &st) < 0 || symlinkat(target, dir, name) < 0 || unlinkat(dir, held, 0) < 0)
        return err_set(err, ERR_IO, errno, "make a symlink of the workspace");
    const struct timespec times[2] = {st.st_mtim, st.st_mtim};
    ignore(utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) == 0);
    return 0;
}

/* All are names of the first. */
static int make_hardlinks(struct work *w, const json_t *group, struct err *err)
{
    char first[LONGEST];
    char path[LONGEST];
    const char *from;
    const char *name;

    if (!read_path(json_array_get(group, 0), first, sizeof(first)))
        return 0;
    scoped_fd int dir = open_parent(w, first, false, &from, err);
    for (size_t i = 1; dir >= 0 && i < json_array_size(group); i++) {
        if (!read_path(json_array_get(group, i), path, sizeof(path)))
            continue;
        scoped_fd int at = open_parent(w, path, false, &name, err);
        if (at < 0 || (unlinkat(at, name, 0) < 0 && errno != ENOENT) ||
            linkat(dir, from, at, name, 0) < 0)
            return err_set(err, ERR_IO, errno, "make a hard link of the workspace");
    }
    return dir < 0 ? -1 : 0;
}

static int set_mode(struct work *w, const json_t *one, bool is_dir, struct err *err)
{
    json_int_t mode = json_integer_value(json_array_get(one, 1));
    char path[LONGEST];
    const char *name;

    if (!read_path(json_array_get(one, 0), path, sizeof(path)))
        return 0;
    scoped_fd int dir = open_parent(w, path, is_dir, &name, err);
    if (dir < 0)
        return -1;
    if (is_dir && mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make a directory of the workspace");
    scoped_fd int fd = path_open_beneath(
        dir, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | (is_dir ? O_DIRECTORY : 0), 1);
    if (fd < 0 || fchmod(fd, (mode_t)((unsigned)mode & MODE_BITS)) < 0)
        return is_dir || fd != -ENOENT
                   ? err_set(err, ERR_IO, fd < 0 ? -fd : errno, "set a mode in the workspace")
                   : 0;
    return 0;
}

static int finish(struct work *w, struct err *err)
{
    const json_t *dirs = json_object_get(w->manifest, "dirs");
    const json_t *one;
    size_t i;
    int r = 0;

    json_array_foreach(json_object_get(w->manifest, "raw"), i, one) r =
        r < 0 ? r : bring_raw(w, one, err);
    for (i = 0; r == 0 && i < w->listed.count; i++)
        r = w->listed.entries[i].kind == ENTRY_LINK ? make_link(w, &w->listed.entries[i], err) : 0;
    json_array_foreach(json_object_get(w->manifest, "hardlinks"), i, one) r =
        r < 0 ? r : make_hardlinks(w, one, err);
    json_array_foreach(json_object_get(w->manifest, "modes"), i, one) r =
        r < 0 ? r : set_mode(w, one, false, err);
    for (i = json_array_size(dirs); r == 0 && i > 0; i--) /* those inside before those around */
        r = set_mode(w, json_array_get(dirs, i - 1), true, err);
    return r;
}

/* --- is it all there? --- */

static int verify(struct work *w, const struct tree *now, struct err *err)
{
    for (size_t i = 0; i < w->listed.count; i++) {
        const struct entry *wanted = &w->listed.entries[i];
        const struct entry *is = tree_find(now, wanted->path);
        if (wanted->closed)
            continue;
        if (!is || is->kind != wanted->kind || is->size != wanted->size)
            return err_set(err, ERR_IO, 0, "'%.200s' did not come whole from the store",
                           wanted->path);
    }
    return 0;
}

/* What has come is what the store has: nothing of it is sent again. */
static int keep(struct work *w, struct err *err)
{
    struct index index = {.manifest = ""};
    char hash[DIGEST_HEX];

    if (digest_hex(w->manifest_text.p, w->manifest_text.n, hash) < 0)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no SHA-256");
    int r = scan_tree(w->m, &index.tree, err);
    if (r == 0)
        r = verify(w, &index.tree, err);
    for (size_t i = 0; r == 0 && i < index.tree.count; i++) {
        const struct entry *e = &index.tree.entries[i];
        index.tree.entries[i].dirty =
            name_is_plain(e->path) && e->kind != ENTRY_DIR && !tree_find(&w->listed, e->path);
    }
    memcpy(index.manifest, hash, sizeof(index.manifest));
    if (r == 0)
        r = index_save(w->m, &index, err);
    tree_clear(&index.tree);
    return r;
}

static int hydrate(struct work *w, json_t **ret, struct err *err)
{
    uint64_t began = now_ms();

    w->top = open(w->m->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->top < 0)
        return err_set(err, ERR_IO, errno, "open the workspace's directory");
    if (owner_claim(w->m, err) < 0 || read_manifest(w, err) < 0 || read_list(w, err) < 0 ||
        read_raw(w, err) < 0 || check_room(w, err) < 0)
        return -1;
    mover_tell(json_pack("{s:{s:I, s:I}}", "progress", "files", (json_int_t)w->listed.count,
                         "bytes", (json_int_t)w->bytes));
    if (bring(w, err) < 0 || finish(w, err) < 0 || keep(w, err) < 0)
        return -1;
    *ret = json_pack("{s:I, s:I, s:I, s:I}", "files", (json_int_t)w->listed.count, "bytes",
                     (json_int_t)w->bytes, "refused", (json_int_t)w->refused, "ms",
                     (json_int_t)(now_ms() - began));
    return 0;
}

int job_hydrate(struct mover *m, json_t **ret, struct err *err)
{
    struct work w = {.m = m, .top = -1};

    tree_init(&w.listed);
    buf_init(&w.manifest_text, 0);
    int r = hydrate(&w, ret, err);
    scope_close(&w.top);
    tree_clear(&w.listed);
    buf_clear(&w.manifest_text);
    json_decref(w.manifest);
    json_decref(w.raw);
    return r;
}
