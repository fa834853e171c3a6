/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/tree_digest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"

enum {
    MOST_WAITING = 1 << 20, /* entries listed and not visited yet */
};

/* --- the walk --- */

struct item {
    char *name;
    struct stat st;
};

/* One directory: its entries, and how many of them are done. */
struct level {
    struct item *items;
    size_t count;
    size_t done;
    size_t path; /* the length of the directory's path */
};

struct walking {
    const struct plan_walk *walk;
    struct level *levels;
    size_t depth;
    size_t room;
    size_t waiting;
    char path[PLAN_MAX_PATH + 2];
};

static void level_clear(struct level *level)
{
    for (size_t i = 0; i < level->count; i++)
        free(level->items[i].name);
    free(level->items);
    *level = (struct level){0};
}

static int compare_items(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

static int add_item(struct walking *w, struct level *level, int dir, const char *name,
                    struct err *err)
{
    struct stat st;

    /* Somebody may have taken it away since it was listed. */
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_set(err, ERR_IO, errno, "look at '%s'", name);
    if (++w->waiting > MOST_WAITING)
        return err_set(err, ERR_LIMIT, 0, "more than %d files in the directories around '%s'",
                       MOST_WAITING, w->path);
    if (level->count % 64 == 0) {
        struct item *items = reallocarray(level->items, level->count + 64, sizeof(level->items[0]));
        if (!items)
            return err_set(err, ERR_LIMIT, ENOMEM, "list '%s'", w->path);
        level->items = items;
    }
    char *copy = strdup(name);
    if (!copy)
        return err_set(err, ERR_LIMIT, ENOMEM, "list '%s'", w->path);
    level->items[level->count++] = (struct item){.name = copy, .st = st};
    return 0;
}

static int list(struct walking *w, struct level *level, int fd, struct err *err)
{
    DIR *stream = fdopendir(fd);
    int r = 0;

    if (!stream) {
        r = err_set(err, ERR_IO, errno, "list '%s'", w->path);
        (void)close(fd);
        return r;
    }
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream); /* NOLINT(concurrency-mt-unsafe) */
        if (!entry) {
            r = errno ? err_set(err, ERR_IO, errno, "list '%s'", w->path) : 0;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        r = add_item(w, level, dirfd(stream), entry->d_name, err);
        if (r < 0)
            break;
    }
    (void)closedir(stream);
    if (level->count > 0)
        qsort(level->items, level->count, sizeof(level->items[0]), compare_items);
    return r;
}

/* Opens the directory at w->path and begins with its entries. */
static int enter(struct walking *w, struct err *err)
{
    const struct plan_walk *walk = w->walk;
    const char *path = *w->path ? w->path : ".";
    int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
    int fd = walk->open ? walk->open(walk->context, path)
                        : path_open_beneath(walk->root, path, flags, 1);

    if (fd < 0)
        return err_set(err,
                       fd == -EACCES   ? ERR_DENIED
                       : fd == -ENOENT ? ERR_NOT_FOUND
                                       : ERR_IO,
                       -fd, "open the directory '%s'", path);
    if (w->depth == w->room) {
        size_t room = w->room ? 2 * w->room : 16;
        struct level *levels = reallocarray(w->levels, room, sizeof(levels[0]));
        if (!levels) {
            (void)close(fd);
            return err_set(err, ERR_LIMIT, ENOMEM, "open the directory '%s'", path);
        }
        w->levels = levels;
        w->room = room;
    }
    struct level *level = &w->levels[w->depth++];
    *level = (struct level){.path = strlen(w->path)};
    return list(w, level, fd, err);
}

static int visit_next(struct walking *w, struct err *err)
{
    struct level *level = &w->levels[w->depth - 1];

    if (level->done == level->count) {
        w->waiting -= level->count;
        level_clear(level);
        w->depth--;
        return 0;
    }
    const struct item *item = &level->items[level->done++];
    size_t name = strlen(item->name);
    size_t slash = level->path > 0;
    if (level->path + slash + name > PLAN_MAX_PATH)
        return err_set(err, ERR_LIMIT, 0, "a path below '%.60s…' is longer than %d bytes", w->path,
                       PLAN_MAX_PATH);
    if (slash)
        w->path[level->path] = '/';
    memcpy(w->path + level->path + slash, item->name, name + 1);
    struct plan_entry entry = {.path = w->path, .st = &item->st};
    if (w->walk->visit(w->walk->context, &entry, err) < 0)
        return -1;
    return S_ISDIR(item->st.st_mode) && !entry.skip_below ? enter(w, err) : 0;
}

int plan_walk(const struct plan_walk *walk, struct err *err)
{
    struct walking w = {.walk = walk};
    size_t n = strlen(walk->top);

    if (n > PLAN_MAX_PATH)
        return err_set(err, ERR_LIMIT, 0, "a path is longer than %d bytes", PLAN_MAX_PATH);
    memcpy(w.path, walk->top, n + 1);
    int r = enter(&w, err);
    while (r == 0 && w.depth > 0)
        r = visit_next(&w, err);
    while (w.depth > 0)
        level_clear(&w.levels[--w.depth]);
    free(w.levels);
    return r;
}

/* --- sets of base paths --- */

static int compare_paths(const void *a, const void *b)
{
    return plan_compare_paths(*(const char *const *)a, *(const char *const *)b);
}

int plan_bases_make(struct plan_bases *ret, const struct plan *plan, struct err *err)
{
    *ret = (struct plan_bases){.paths = reallocarray(NULL, plan->count + 1, sizeof(char *))};
    if (!ret->paths)
        return err_set(err, ERR_LIMIT, ENOMEM, "sort the plan's operations");
    for (size_t i = 0; i < plan->count; i++) {
        const char *path = plan_base_path(&plan->operations[i]);
        if (path)
            ret->paths[ret->count++] = path;
    }
    qsort(ret->paths, ret->count, sizeof(ret->paths[0]), compare_paths);
    return 0;
}

void plan_bases_clear(struct plan_bases *bases)
{
    free(bases->paths);
    *bases = (struct plan_bases){0};
}

bool plan_bases_has(const struct plan_bases *bases, const char *path)
{
    return bases->count > 0 &&
           bsearch(&path, bases->paths, bases->count, sizeof(bases->paths[0]), compare_paths);
}

/* --- the census --- */

struct counting {
    struct plan_census *census;
    const struct plan_bases *except;
    size_t prefix; /* of the paths, before what is below the top */
    EVP_MD_CTX *hash;
};

/* Of a directory only what a plan compares of one. No device: it has another number after a reboot,
 * or when an image is mounted again. No ctime of a file with several names: what is done to one of
 * them elsewhere changes it. */
static int count_entry(void *context, struct plan_entry *entry, struct err *err)
{
    struct counting *counting = context;
    struct plan_identity identity;
    const char *path = entry->path + counting->prefix;

    if (counting->except && plan_bases_has(counting->except, entry->path)) {
        entry->skip_below = true;
        return 0;
    }
    plan_identify(&identity, entry->st);
    bool is_dir = S_ISDIR(identity.mode);
    bool has_names = entry->st->st_nlink > 1;
    uint64_t facts[] = {identity.ino, is_dir ? identity.mode & S_IFMT : identity.mode,
                        is_dir ? 0 : identity.size, is_dir ? 0 : (uint64_t)identity.mtime_ns,
                        is_dir || has_names ? 0 : (uint64_t)identity.ctime_ns};
    if (EVP_DigestUpdate(counting->hash, path, strlen(path) + 1) != 1 ||
        EVP_DigestUpdate(counting->hash, facts, sizeof(facts)) != 1)
        return err_set(err, ERR_IO, 0, "hash what is below a directory");
    int64_t changed = has_names && !is_dir && identity.mtime_ns < identity.ctime_ns
                          ? identity.mtime_ns
                          : identity.ctime_ns;
    if (counting->census->newest_ns < changed)
        counting->census->newest_ns = changed;
    counting->census->entries++;
    if (S_ISREG(identity.mode))
        counting->census->bytes += identity.size;
    return 0;
}

int plan_census_except(struct plan_census *ret, int root, const char *top,
                       const struct plan_bases *except, struct err *err)
{
    struct counting counting = {.census = ret,
                                .except = except,
                                .prefix = *top ? strlen(top) + 1 : 0,
                                .hash = EVP_MD_CTX_new()};
    struct plan_walk walk = {.root = root, .top = top, .visit = count_entry, .context = &counting};
    int r = -1;

    *ret = (struct plan_census){0};
    if (!counting.hash || EVP_DigestInit_ex(counting.hash, EVP_sha256(), NULL) != 1)
        (void)err_set(err, ERR_IO, 0, "hash what is below a directory");
    else
        r = plan_walk(&walk, err);
    if (r == 0 && EVP_DigestFinal_ex(counting.hash, ret->below, NULL) != 1)
        r = err_set(err, ERR_IO, 0, "hash what is below a directory");
    EVP_MD_CTX_free(counting.hash);
    return r;
}

int plan_census(struct plan_census *ret, int root, const char *top, const struct plan *except,
                struct err *err)
{
    struct plan_bases bases = {0};

    if (except && plan_bases_make(&bases, except, err) < 0)
        return -1;
    int r = plan_census_except(ret, root, top, except ? &bases : NULL, err);
    plan_bases_clear(&bases);
    return r;
}
