/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/tree_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "sys/path.h"
#include "sys/tree_walk.h"

/* --- the walk --- */

static int fail(int error, bool is_dir, const char *path, struct err *err)
{
    enum err_code code = error == -EACCES   ? ERR_DENIED
                         : error == -ENOENT ? ERR_NOT_FOUND
                         : error == -ENOMEM ? ERR_LIMIT
                                            : ERR_IO;

    if (is_dir)
        return err_set(err, code, -error, "open the directory '%s'", *path ? path : ".");
    return err_set(err, ERR_IO, -error, "look at '%s'", path);
}

static int let_in(const struct plan_walk *walk, const char *path)
{
    return walk->let_in ? walk->let_in(walk->context, *path ? path : ".") : 0;
}

static int open_top(const struct plan_walk *walk)
{
    int r = let_in(walk, walk->top);

    return r < 0 ? r
                 : path_open_beneath(walk->root, *walk->top ? walk->top : ".",
                                     O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);
}

/* `path` has room for all that a plan may name, and begins with the top. */
static int set_path(const struct plan_walk *walk, char *path, const struct tree_entry *e,
                    struct err *err)
{
    size_t at = strlen(walk->top);
    size_t n = strlen(e->path);

    at += at > 0 && n > 0;
    if (at + n > PLAN_MAX_PATH)
        return err_set(err, ERR_LIMIT, 0, "a path below '%.60s…' is longer than %d bytes", path,
                       PLAN_MAX_PATH);
    if (at > 0 && n > 0)
        path[at - 1] = '/';
    memcpy(path + at, e->path, n + 1);
    return 0;
}

static int visit(const struct plan_walk *walk, struct tree_walk *w, const struct tree_entry *e,
                 const char *path, struct err *err)
{
    struct plan_entry entry = {.path = path, .st = &e->st};

    if (walk->visit(walk->context, &entry, err) < 0)
        return -1;
    if (!e->is_dir)
        return 0;
    if (entry.skip_below) {
        tree_walk_skip(w);
        return 0;
    }
    int r = let_in(walk, path);
    return r < 0 ? fail(r, true, path, err) : 0;
}

int plan_walk(const struct plan_walk *walk, struct err *err)
{
    char path[PLAN_MAX_PATH + 2];
    struct tree_walk w;
    struct tree_entry e;
    size_t n = strlen(walk->top);
    int next = 1;

    if (n > PLAN_MAX_PATH)
        return err_set(err, ERR_LIMIT, 0, "a path is longer than %d bytes", PLAN_MAX_PATH);
    memcpy(path, walk->top, n + 1);
    scoped_fd int top = open_top(walk);
    if (top < 0)
        return fail(top, true, path, err);
    int r = tree_walk_begin(&w, top, TREE_ONE_MOUNT | TREE_STAT | TREE_SORTED | TREE_POST);
    if (r < 0)
        r = fail(r, true, path, err);
    while (r == 0 && (next = tree_walk_next(&w, &e)) != 0) {
        if (e.after && next > 0)
            continue;
        r = set_path(walk, path, &e, err);
        if (r == 0)
            r = next < 0 ? fail(next, e.is_dir, path, err) : visit(walk, &w, &e, path, err);
    }
    tree_walk_end(&w);
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

/* --- the digest --- */

struct counting {
    struct tree_digest *digest;
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
    if (counting->digest->newest_ns < changed)
        counting->digest->newest_ns = changed;
    counting->digest->entries++;
    if (S_ISREG(identity.mode))
        counting->digest->bytes += identity.size;
    return 0;
}

int tree_digest_except(struct tree_digest *ret, int root, const char *top,
                       const struct plan_bases *except, struct err *err)
{
    struct counting counting = {.digest = ret,
                                .except = except,
                                .prefix = *top ? strlen(top) + 1 : 0,
                                .hash = EVP_MD_CTX_new()};
    struct plan_walk walk = {.root = root, .top = top, .visit = count_entry, .context = &counting};
    int r = -1;

    *ret = (struct tree_digest){0};
    if (!counting.hash || EVP_DigestInit_ex(counting.hash, EVP_sha256(), NULL) != 1)
        (void)err_set(err, ERR_IO, 0, "hash what is below a directory");
    else
        r = plan_walk(&walk, err);
    if (r == 0 && EVP_DigestFinal_ex(counting.hash, ret->below, NULL) != 1)
        r = err_set(err, ERR_IO, 0, "hash what is below a directory");
    EVP_MD_CTX_free(counting.hash);
    return r;
}

int tree_digest(struct tree_digest *ret, int root, const char *top, const struct plan *except,
                struct err *err)
{
    struct plan_bases bases = {0};

    if (except && plan_bases_make(&bases, except, err) < 0)
        return -1;
    int r = tree_digest_except(ret, root, top, except ? &bases : NULL, err);
    plan_bases_clear(&bases);
    return r;
}
