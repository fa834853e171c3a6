/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trees/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "plan/core/attributes.h"
#include "plan/core/tree_digest.h"
#include "sys/path.h"

enum {
    PERMISSIONS = 0777,
    PIECE = 64 << 10,
};

#define MOST_PATHS (1UL << 30)

/* --- reading one --- */

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "list the files of a tree");
}

static int visit(void *context, struct plan_entry *entry, struct err *err)
{
    struct version *v = context;

    if (plan_is_reserved(entry->path)) {
        entry->skip_below = true;
        return 0;
    }
    if (!S_ISREG(entry->st->st_mode) && !S_ISDIR(entry->st->st_mode) &&
        !S_ISLNK(entry->st->st_mode))
        return 0;
    if (v->count >= VERSION_MOST)
        return err_set(err, ERR_LIMIT, 0, "a tree holds more than %d files and directories",
                       VERSION_MOST);
    if (v->count % 4096 == 0) {
        struct version_entry *all = reallocarray(v->at, v->count + 4096, sizeof(all[0]));
        if (!all)
            return no_memory(err);
        v->at = all;
    }
    const char *path = arena_copy(&v->arena, entry->path, strlen(entry->path));
    if (!path)
        return no_memory(err);
    v->at[v->count].path = path;
    plan_identify(&v->at[v->count++].st, entry->st);
    return 0;
}

int version_read(struct version *ret, int root, struct err *err)
{
    struct plan_walk walk = {.root = root, .top = "", .visit = visit, .context = ret};

    *ret = (struct version){.root = root, .is_live = true};
    arena_init(&ret->arena, MOST_PATHS);
    seen_init(&ret->seen);
    if (plan_walk(&walk, err) == 0)
        return 0;
    version_clear(ret);
    return -1;
}

int version_read_kept(struct version *ret, int home, int *ret_tree, struct err *err)
{
    struct err unused;

    *ret_tree = path_open_beneath(home, "tree", O_RDONLY | O_DIRECTORY, 1);
    if (*ret_tree < 0)
        return err_set(err, ERR_IO, -*ret_tree, "open the files of a snapshot");
    if (version_read(ret, *ret_tree, err) < 0)
        return -1;
    ret->is_live = false;
    if (seen_load(&ret->seen, home, "seen", &unused) < 0) { /* then contents are compared */
        seen_clear(&ret->seen);
        seen_init(&ret->seen);
    }
    return 0;
}

void version_clear(struct version *version)
{
    free(version->at);
    seen_clear(&version->seen);
    arena_clear(&version->arena);
    *version = (struct version){.root = -1};
}

static int compare_to_entry(const void *path, const void *entry)
{
    return plan_compare_paths(path, ((const struct version_entry *)entry)->path);
}

const struct version_entry *version_find(const struct version *version, const char *path)
{
    return version->count > 0 ? bsearch(path, version->at, version->count, sizeof(version->at[0]),
                                        compare_to_entry)
                              : NULL;
}

/* --- what lies at one place --- */

static int fail(int r, const char *path, struct err *err)
{
    if (r == -ESTALE || r == -ENOENT)
        return err_set(err, ERR_CONFLICT, 0, "'%.300s' is being changed; try again", path);
    if (r == -EACCES || r == -EPERM)
        return err_set(err, ERR_DENIED, -r, "the owner of the workspace may not read '%.300s'",
                       path);
    return err_set(err, ERR_IO, -r, "read '%.300s'", path);
}

static bool is_it(int fd, const struct plan_identity *known)
{
    struct plan_identity now;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return false;
    plan_identify(&now, &st);
    return now.dev == known->dev && now.ino == known->ino && now.size == known->size &&
           now.mtime_ns == known->mtime_ns && now.mode == known->mode;
}

int version_open(struct version_at a, struct err *err)
{
    scoped_fd int fd =
        path_open_beneath(a.of->root, a.entry->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 1);

    if (fd < 0)
        return fail(fd, a.entry->path, err);
    return is_it(fd, &a.entry->st) ? take_fd(&fd) : fail(-ESTALE, a.entry->path, err);
}

int version_target(struct version_at a, char *target, struct err *err)
{
    scoped_fd int fd = path_open_beneath(a.of->root, a.entry->path, O_PATH | O_NOFOLLOW, 1);
    ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", target, PLAN_MAX_PATH + 1);

    if (n < 0 || n > PLAN_MAX_PATH)
        return fail(fd < 0 ? fd : n < 0 ? -ESTALE : -ENAMETOOLONG, a.entry->path, err);
    target[n] = '\0';
    return 0;
}

/* --- two of them --- */

/* Whether one is known to be a copy of the other: nothing has to be read. */
static bool is_copy(struct version_at copy, struct version_at live)
{
    const struct plan_identity *st = &live.entry->st;
    const struct seen_file *known = seen_find(&copy.of->seen, st->dev, st->ino);

    return known && known->size == st->size && known->mtime_ns == st->mtime_ns &&
           known->ctime_ns == st->ctime_ns && strcmp(known->path, copy.entry->path) == 0;
}

/* Other than snapshots', names of one file may have been written to since they were listed, but
 * then both have been. */
static bool is_known_same(struct version_at a, struct version_at b)
{
    if (a.entry->st.dev == b.entry->st.dev && a.entry->st.ino == b.entry->st.ino)
        return true;
    return (b.of->is_live && is_copy(a, b)) || (a.of->is_live && is_copy(b, a));
}

/* 1, 0 or -errno. */
static int same_bytes(int a, int b, uint64_t size)
{
    static char one[PIECE]; /* of this process, which does one thing at a time */
    static char other[PIECE];

    for (uint64_t at = 0; at < size;) {
        ssize_t n = pread(a, one, sizeof(one), (off_t)at);
        ssize_t m = n > 0 ? pread(b, other, (size_t)n, (off_t)at) : n;
        if (n < 0 || m < 0)
            return -errno;
        if (n == 0 || n != m)
            return -ESTALE;
        if (memcmp(one, other, (size_t)n) != 0)
            return 0;
        at += (uint64_t)n;
    }
    return 1;
}

static int same_attributes(int a, int b, bool *ret)
{
    scoped_buf struct buf one = {0};
    scoped_buf struct buf other = {0};

    buf_init(&one, ATTRIBUTES_LARGEST);
    buf_init(&other, ATTRIBUTES_LARGEST);
    int r = attributes_read(a, NULL, &one);
    if (r == 0)
        r = attributes_read(b, NULL, &other);
    *ret = r == 0 && one.n == other.n && (one.n == 0 || memcmp(one.p, other.p, one.n) == 0);
    return r;
}

int version_compare_files(struct version_at a, struct version_at b, struct version_parts *ret,
                          struct err *err)
{
    *ret = (struct version_parts){true, true};
    if (is_known_same(a, b))
        return 0;
    scoped_fd int one = version_open(a, err);
    scoped_fd int other = one < 0 ? -1 : version_open(b, err);
    if (other < 0)
        return -1;
    int same = a.entry->st.size == b.entry->st.size ? same_bytes(one, other, a.entry->st.size) : 0;
    int r = same < 0 ? same : same_attributes(one, other, &ret->attributes);
    if (r == 0 && (!is_it(one, &a.entry->st) || !is_it(other, &b.entry->st)))
        r = -ESTALE;
    ret->content = same > 0;
    return r < 0 ? fail(r, a.entry->path, err) : 0;
}

static int is_same_target(struct version_at a, struct version_at b, struct err *err)
{
    char one[PLAN_MAX_PATH + 1];
    char other[PLAN_MAX_PATH + 1];

    if (version_target(a, one, err) < 0 || version_target(b, other, err) < 0)
        return -1;
    return strcmp(one, other) == 0;
}

int version_is_same(struct version_at a, struct version_at b, struct err *err)
{
    struct version_parts parts;

    if (!a.entry || !b.entry)
        return a.entry == b.entry;
    if (a.entry == b.entry)
        return 1;
    uint32_t differs = a.entry->st.mode ^ b.entry->st.mode;
    if (differs & S_IFMT)
        return 0;
    if (S_ISLNK(a.entry->st.mode))
        return is_same_target(a, b, err);
    if (differs & PERMISSIONS)
        return 0;
    if (S_ISDIR(a.entry->st.mode))
        return 1;
    if (version_compare_files(a, b, &parts, err) < 0)
        return -1;
    return parts.content && parts.attributes;
}

/* --- as a list --- */

int version_set_path(json_t *object, const char *path)
{
    struct buf b;
    size_t n = strlen(path);

    if (bytes_are_utf8(path, n))
        return json_object_set_new(object, "path", json_stringn(path, n));
    buf_init(&b, 2L * PLAN_MAX_PATH);
    bytes_add_base64(&b, path, n);
    int r = buf_done(&b) < 0 ? -1 : json_object_set_new(object, "path_b64", json_string(b.p));
    buf_clear(&b);
    return r;
}

static const char *type_name(uint32_t mode)
{
    return S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "symlink" : "file";
}

/* "added", "removed" or "changed", with what it is now, or was. */
static json_t *tell(const struct version_entry *was, const struct version_entry *is)
{
    const struct version_entry *one = is ? is : was;
    char mode[8];

    snprintf(mode, sizeof(mode), "%04o", one->st.mode & PERMISSIONS);
    json_t *told = json_pack("{s:s, s:s, s:s}", "change",
                             !was  ? "added"
                             : !is ? "removed"
                                   : "changed",
                             "type", type_name(one->st.mode), "mode", mode);
    if (S_ISREG(one->st.mode))
        json_object_set_new(told, "size", json_integer((json_int_t)one->st.size));
    if (was && is && S_ISREG(was->st.mode) && S_ISREG(is->st.mode))
        json_object_set_new(told, "was_size", json_integer((json_int_t)was->st.size));
    if (was && is && ((was->st.mode ^ is->st.mode) & S_IFMT))
        json_object_set_new(told, "was", json_string(type_name(was->st.mode)));
    if (version_set_path(told, one->path) == 0)
        return told;
    json_decref(told);
    return NULL;
}

int version_diff(const struct version *a, const struct version *b, size_t most, json_t *ret,
                 size_t *ret_count, struct err *err)
{
    size_t i = 0;
    size_t j = 0;

    *ret_count = 0;
    while (i < a->count || j < b->count) {
        int order = i == a->count   ? 1
                    : j == b->count ? -1
                                    : plan_compare_paths(a->at[i].path, b->at[j].path);
        const struct version_entry *was = order <= 0 ? &a->at[i++] : NULL;
        const struct version_entry *is = order >= 0 ? &b->at[j++] : NULL;
        int same = version_is_same((struct version_at){a, was}, (struct version_at){b, is}, err);
        if (same < 0)
            return -1;
        if (same > 0 || ++*ret_count > most)
            continue;
        if (json_array_append_new(ret, tell(was, is)) < 0)
            return no_memory(err);
    }
    return 0;
}
