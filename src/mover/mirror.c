/* SPDX-License-Identifier: Apache-2.0 */
/* From the tree to the store, what changed since the last time:
 *
 *   scan, compare with the index --> nothing: done
 *     is the path ours? --> note what is intended --> what is in the way goes
 *     --> rclone copies the list --> look again: what changed meanwhile stays due
 *     --> the manifest --> what is gone goes --> the index
 *
 * Killed anywhere, the next job does what is missing: the index says of nothing that it is in the
 * store before it is, and the intent names all that may be there and is not in the index. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/fd.h"
#include "mover/tree.h"
#include "sys/path.h"

enum {
    /* A change and one right after it may have the same time: what is that young when it is read
     * is looked at again by the next job. */
    TICK_MS = 20,
    MOST_NAMES = 64 << 20,
    LONGEST_PATH = 4096,
};

#define MS_NS       1000000
#define MOST_OF_ALL (4UL << 30)

struct work {
    struct mover *m;
    struct index known;
    struct tree now;
    const struct entry **up; /* to be sent, of `now`, */
    size_t up_count;
    const struct entry **down; /* ... and removed, of `known` */
    size_t down_count;
    uint64_t bytes;
    struct buf manifest;
    char manifest_hash[DIGEST_HEX];
    int top;
    int64_t read_ns; /* when the first of them was read */
};

/* --- what there is to do --- */

/* The one that is of this kind, too: one that was on its way may have the path of another. */
static struct entry *find_alike(const struct tree *tree, const struct entry *wanted)
{
    struct entry *at = tree_find(tree, wanted->path);
    struct entry *end = tree->entries + tree->count;

    if (!at)
        return NULL;
    while (at > tree->entries && strcmp(at[-1].path, wanted->path) == 0)
        at--;
    for (; at < end && strcmp(at->path, wanted->path) == 0; at++) {
        if (at->kind == wanted->kind)
            return at;
    }
    return NULL;
}

/* Whether what lies above it could not be looked at is not asked: then nothing is removed at all.
 */
static int compare(struct work *w, struct err *err)
{
    w->up = calloc(w->now.count + 1, sizeof(const struct entry *));
    w->down = calloc(w->known.tree.count + 1, sizeof(const struct entry *));
    if (!w->up || !w->down)
        return err_set(err, ERR_LIMIT, ENOMEM, "compare the workspace with its mirror");
    for (size_t i = 0; i < w->now.count; i++) {
        const struct entry *e = &w->now.entries[i];
        const struct entry *known = find_alike(&w->known.tree, e);
        if (e->kind == ENTRY_DIR || e->closed || (known && entry_is_as(e, known)))
            continue;
        w->up[w->up_count++] = e;
        w->bytes += e->size;
    }
    for (size_t i = 0; i < w->known.tree.count && !w->now.blind; i++) {
        const struct entry *e = &w->known.tree.entries[i];
        if (e->kind != ENTRY_DIR && !find_alike(&w->now, e))
            w->down[w->down_count++] = e;
    }
    return 0;
}

static bool is_there(const struct mover *m, const char *name)
{
    return faccessat(m->state_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A tree that was never mirrored from here, and objects that are: whose disk was lost, or whose id
 * another had. What is there may be all that is left of it. */
static int refuse_other_copy(struct mover *m, struct err *err)
{
    scoped_buf struct buf found;
    struct arena arena;

    buf_init(&found, 0);
    if (is_there(m, "index") || is_there(m, "intent"))
        return 0;
    arena_init(&arena, 8192);
    const char *const args[] = {
        "cat", "--include", "/manifest.json",
        rclone_place(m, &arena, arena_printf(&arena, ".carrel/%s", m->workspace)), NULL};
    struct err unused;
    int r = args[3] ? rclone_run(m, args, -1, &found, &unused) : -1;
    arena_clear(&arena);
    if (r < 0 || found.n == 0)
        return 0; /* a store that does not answer is told by what follows */
    m->code = "store_has_copy";
    return err_set(
        err, ERR_CONFLICT, 0,
        "the store has a copy of a workspace '%s' that was not made from this one; it is "
        "left as it is. Remove it there (threads/%s and .carrel/%s), or use another id",
        m->workspace, m->workspace, m->workspace);
}

/* --- lists for rclone --- */

static int write_list(const struct work *w, bool removes, const struct entry *const *entries,
                      size_t count, size_t *ret_count, struct err *err)
{
    const struct mover *m = w->m;
    scoped_buf struct buf text;

    buf_init(&text, MOST_OF_ALL);
    *ret_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct entry *e = entries[i];
        if ((e->dirty && !removes) || !name_is_plain(e->path))
            continue;
        buf_printf(&text, "%s%s\n", e->path, e->kind == ENTRY_LINK ? ".rclonelink" : "");
        ++*ret_count;
    }
    if (buf_done(&text) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "list what is to be sent");
    scoped_fd int fd = openat(m->state_fd, removes ? "down" : "up",
                              O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, text.p, text.n);
    return r < 0 ? err_set(err, ERR_IO, -r, "list what is to be sent") : 0;
}

static int copy_plain(struct work *w, struct err *err)
{
    struct mover *m = w->m;
    struct arena arena;
    size_t n;

    if (write_list(w, false, w->up, w->up_count, &n, err) < 0)
        return -1;
    if (n == 0)
        return 0;
    arena_init(&arena, 65536);
    const char *list = arena_printf(&arena, "%s/up", m->state);
    const char *const args[] = {
        "copy",
        m->tree,
        rclone_place(m, &arena, arena_printf(&arena, "threads/%s", m->workspace)),
        "--files-from-raw",
        list ? list : "",
        "--links",
        "--metadata",
        "--no-traverse",
        "--no-check-dest",
        NULL};
    int r = args[2] ? rclone_run(m, args, -1, NULL, err)
                    : err_set(err, ERR_LIMIT, ENOMEM, "send files to the store");
    arena_clear(&arena);
    return r;
}

/* One by one; there are few. */
static int copy_raw(struct work *w, const struct entry *e, struct err *err)
{
    char target[4096];
    struct arena arena;
    int r = -1;

    arena_init(&arena, 65536);
    const char *object = name_of_object(w->m, &arena, e);
    if (!object) {
        err_set(err, ERR_LIMIT, ENOMEM, "name an object of the store");
    } else if (e->kind == ENTRY_LINK) {
        scoped_fd int fd = path_open_beneath(w->top, e->path, O_PATH | O_NOFOLLOW, 1);
        ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", target, sizeof(target));
        r = n < 0 ? 0 : rclone_write(w->m, object, target, (size_t)n, err);
    } else {
        const char *const args[] = {"rcat", rclone_place(w->m, &arena, object), NULL};
        scoped_fd int fd =
            path_open_beneath(w->top, e->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 1);
        r = fd < 0 ? 0 : rclone_run(w->m, args, fd, NULL, err);
    }
    arena_clear(&arena);
    return r;
}

static int send_all(struct work *w, struct err *err)
{
    if (copy_plain(w, err) < 0)
        return -1;
    for (size_t i = 0; i < w->up_count; i++) {
        if (!w->up[i]->dirty && !name_is_plain(w->up[i]->path) && copy_raw(w, w->up[i], err) < 0)
            return -1;
    }
    return 0;
}

/* What stands where a directory is to be, or the other way round: some stores keep directories.
 * `above` (4097 bytes) gets the directory that has to go with it, or "". */
static bool is_in_the_way(const struct work *w, const struct entry *e, char *above)
{
    size_t n = strlen(e->path);
    const struct entry *there = tree_find(&w->now, e->path);

    *above = '\0';
    if (there && there->kind == ENTRY_DIR)
        return true;
    if (n > LONGEST_PATH)
        return false;
    memcpy(above, e->path, n + 1);
    for (char *slash = strrchr(above, '/'); slash; slash = strrchr(above, '/')) {
        *slash = '\0';
        there = tree_find(&w->now, above);
        if (there)
            return there->kind != ENTRY_DIR;
    }
    *above = '\0';
    return false;
}

static int remove_listed(struct work *w, const struct entry *const *entries, size_t count,
                         struct err *err)
{
    struct mover *m = w->m;
    struct arena arena;
    size_t n;

    if (write_list(w, true, entries, count, &n, err) < 0)
        return -1;
    arena_init(&arena, MOST_NAMES);
    const char *list = arena_printf(&arena, "%s/down", m->state);
    const char *const args[] = {
        "delete",
        rclone_place(m, &arena, arena_printf(&arena, "threads/%s", m->workspace)),
        "--files-from-raw",
        list ? list : "",
        "--no-traverse",
        NULL};
    int r = n ? rclone_run(m, args, -1, NULL, err) : 0;
    for (size_t i = 0; r == 0 && i < count; i++) {
        if (name_is_plain(entries[i]->path))
            continue;
        const char *object = name_of_object(m, &arena, entries[i]);
        struct err unused; /* one that was only intended is not there */
        if (object)
            (void)rclone_remove(m, object, &unused);
    }
    arena_clear(&arena);
    return r;
}

/* The directories that what was removed has left, where a file is to be; S3 has none. */
static int remove_dir(struct work *w, const char *path, struct err *err)
{
    struct mover *m = w->m;
    struct arena arena;

    if (s3_is(m) || !name_is_plain(path))
        return 0;
    arena_init(&arena, 8192);
    const char *place = arena_printf(&arena, "threads/%s/%s", m->workspace, path);
    int r = place ? rclone_remove_dirs(m, place, err)
                  : err_set(err, ERR_LIMIT, ENOMEM, "name a directory of the store");
    arena_clear(&arena);
    return r;
}

/* Once each: they come in the order of their paths. */
static int remove_dirs(struct work *w, const struct entry *const *entries, size_t count,
                       struct err *err)
{
    char last[LONGEST_PATH + 1] = "";
    char above[LONGEST_PATH + 1];
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++) {
        (void)is_in_the_way(w, entries[i], above);
        if (*above && strcmp(above, last) != 0)
            r = remove_dir(w, above, err);
        memcpy(last, above, sizeof(last));
    }
    return r;
}

/* `first`: what is in the way of what is sent; else the rest. */
static int remove_some(struct work *w, bool first, struct err *err)
{
    const struct entry **some = calloc(w->down_count + 1, sizeof(const struct entry *));
    char above[LONGEST_PATH + 1];
    size_t n = 0;

    if (!some)
        return err_set(err, ERR_LIMIT, ENOMEM, "list what is to be removed");
    for (size_t i = 0; i < w->down_count; i++) {
        if (is_in_the_way(w, w->down[i], above) == first)
            some[n++] = w->down[i];
    }
    int r = n ? remove_listed(w, some, n, err) : 0;
    if (r == 0 && first)
        r = remove_dirs(w, some, n, err);
    free(some);
    return r;
}

/* --- the manifest --- */

static int make_manifest(struct work *w, struct err *err)
{
    if (manifest_write(w->m, &w->now, &w->manifest, err) < 0)
        return -1;
    if (digest_hex(w->manifest.p, w->manifest.n, w->manifest_hash) < 0)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL has no SHA-256");
    return 0;
}

static bool manifest_is_new(const struct work *w)
{
    return strcmp(w->manifest_hash, w->known.manifest) != 0;
}

static int send_manifest(struct work *w, struct err *err)
{
    char object[128];

    if (!manifest_is_new(w))
        return 0;
    snprintf(object, sizeof(object), ".carrel/%s/manifest.json", w->m->workspace);
    return rclone_write(w->m, object, w->manifest.p, w->manifest.n, err);
}

/* --- looking again --- */

static int64_t wall_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 * MS_NS + t.tv_nsec;
}

/* Old enough that a change since would have another time. */
static void let_a_tick_pass(struct work *w)
{
    const struct timespec pause = {.tv_nsec = (long)TICK_MS * MS_NS};

    (void)nanosleep(&pause, NULL);
    w->read_ns = wall_ns();
}

/* How many of what was sent are another by now, or may be. */
static size_t look_again(struct work *w)
{
    size_t changed = 0;

    for (size_t i = 0; i < w->up_count; i++) {
        struct entry *e = tree_find(&w->now, w->up[i]->path);
        struct entry is;
        if (e->dirty || scan_look(w->top, e->path, &is) != 1 || !entry_is_as(e, &is) ||
            e->ctime_ns > w->read_ns - (int64_t)TICK_MS * MS_NS)
            e->dirty = true;
        changed += e->dirty;
    }
    return changed;
}

/* A file that changes while it is read is no failure of the store's: the others are sent without
 * it, and it is due again. */
static int send_what_stays(struct work *w, size_t *ret_changed, struct err *err)
{
    size_t changed = 0;

    for (;;) {
        int r = send_all(w, err);
        size_t before = changed;
        changed = *ret_changed = look_again(w);
        if (r == 0 || changed == before)
            return r;
    }
}

/* What could not be removed is still in the store. */
static int keep_index(struct work *w, struct err *err)
{
    struct index next = {.manifest = ""};

    for (size_t i = 0; i < w->now.count; i++)
        w->now.entries[i].dirty = w->now.entries[i].dirty || w->now.entries[i].closed;
    next.tree = w->now;
    for (size_t i = 0; w->now.blind && i < w->known.tree.count; i++) {
        const struct entry *e = &w->known.tree.entries[i];
        if (e->kind != ENTRY_DIR && !find_alike(&w->now, e) && tree_add(&next.tree, e) < 0)
            return err_set(err, ERR_LIMIT, ENOMEM, "keep what is known of the mirror");
    }
    tree_sort(&next.tree);
    memcpy(next.manifest, w->manifest_hash, sizeof(next.manifest));
    int r = index_save(w->m, &next, err);
    w->now = next.tree;
    return r;
}

/* --- the job --- */

static int carry_out(struct work *w, size_t *ret_changed, struct err *err)
{
    if (owner_claim(w->m, err) < 0 || refuse_other_copy(w->m, err) < 0 ||
        index_intend(w->m, w->up, w->up_count, w->down, w->down_count, err) < 0 ||
        remove_some(w, true, err) < 0)
        return -1;
    let_a_tick_pass(w);
    if (send_what_stays(w, ret_changed, err) < 0 || send_manifest(w, err) < 0 ||
        remove_some(w, false, err) < 0)
        return -1;
    return keep_index(w, err);
}

static void tell_progress(const struct work *w)
{
    mover_tell(json_pack("{s:{s:I, s:I, s:I}}", "progress", "files", (json_int_t)w->up_count,
                         "bytes", (json_int_t)w->bytes, "removed", (json_int_t)w->down_count));
}

static int mirror(struct work *w, json_t **ret, struct err *err)
{
    uint64_t began = now_ms();
    size_t changed = 0;

    w->top = open(w->m->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->top < 0)
        return err_set(err, ERR_IO, errno, "open the workspace's directory");
    if (index_load(w->m, &w->known, err) < 0 || scan_tree(w->m, &w->now, err) < 0 ||
        compare(w, err) < 0 || make_manifest(w, err) < 0)
        return -1;
    tell_progress(w);
    bool idle = !w->up_count && !w->down_count && !manifest_is_new(w);
    if (!idle && carry_out(w, &changed, err) < 0)
        return -1;
    changed += w->now.moving;
    *ret = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "entries",
                     (json_int_t)w->now.count, "sent", (json_int_t)w->up_count, "bytes",
                     (json_int_t)w->bytes, "removed", (json_int_t)w->down_count, "due",
                     (json_int_t)changed, "skipped", (json_int_t)w->now.skipped, "unreadable",
                     (json_int_t)w->now.closed, "ms", (json_int_t)(now_ms() - began));
    return 0;
}

int job_mirror(struct mover *m, json_t **ret, struct err *err)
{
    struct work w = {.m = m, .top = -1};

    tree_init(&w.known.tree);
    tree_init(&w.now);
    buf_init(&w.manifest, 0);
    int r = mirror(&w, ret, err);
    scope_close(&w.top);
    tree_clear(&w.known.tree);
    tree_clear(&w.now);
    buf_clear(&w.manifest);
    free(w.up);
    free(w.down);
    return r;
}
