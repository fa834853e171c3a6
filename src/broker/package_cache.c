/* SPDX-License-Identifier: Apache-2.0 */
/* The package cache that all workspaces share:  DIR/.carrel/cache/<n>/{uv,bun,python}. A generation
 * is never written again: what a workspace adds goes to its own layer above the newest, so that no
 * workspace changes what another one is shown. The next generation is made when a workspace is
 * frozen: the files of the last one, and of that workspace's layers, by hard links. Nobody can
 * write those any more, as their workspace is gone.
 *
 * Older generations go when no sandbox shows them any more. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "broker/chores.h"
#include "broker/templates.h"
#include "broker/trees.h"
#include "sys/path.h"
#include "sys/tree_remove.h"

#define UNFINISHED "new"

enum {
    MOST_NUMBERED = 999999999,
    NUMBER_ROOM = 24,
    PATH_ROOM = 256,
};

static const char *const kinds[] = {"uv", "bun", "python"};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* 0: it is none. */
static uint64_t number_of(const char *name)
{
    uint64_t number = 0;

    if (*name < '1' || *name > '9')
        return 0;
    for (; *name >= '0' && *name <= '9' && number <= MOST_NUMBERED; name++)
        number = 10 * number + (uint64_t)(*name - '0');
    return *name || number > MOST_NUMBERED ? 0 : number;
}

/* Numbers in `dir`: the highest; and the lowest that `is_wanted` says yes to, in *ret_found. Only
 * system calls. -errno. */
static int64_t look_through(int dir, bool (*is_wanted)(const void *, uint64_t), const void *context,
                            uint64_t *ret_found)
{
    _Alignas(struct dirent64) char piece[4096];
    uint64_t newest = 0;
    long n;

    *ret_found = 0;
    if (lseek(dir, 0, SEEK_SET) < 0)
        return -errno;
    while ((n = syscall(SYS_getdents64, dir, piece, sizeof(piece))) > 0) {
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const void *)(piece + at);
            uint64_t number = number_of(entry->d_name);
            at += entry->d_reclen;
            if (number > newest)
                newest = number;
            if (number && is_wanted && is_wanted(context, number) &&
                (!*ret_found || number < *ret_found))
                *ret_found = number;
        }
    }
    return n < 0 ? -errno : (int64_t)newest;
}

int cache_open_all(const struct broker *b, struct err *err)
{
    scoped_fd int top = path_open_beneath(b->state, ".carrel", O_RDONLY | O_DIRECTORY, 0);

    if (top >= 0 && mkdirat(top, "cache", 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the package cache");
    int fd = top < 0 ? top : path_open_beneath(top, "cache", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? err_set(err, ERR_IO, -fd, "open the package cache") : fd;
}

/* --- a new generation: in a process of its own, or at the very beginning --- */

static int publish(int cache, uint64_t number)
{
    char name[NUMBER_ROOM];

    snprintf(name, sizeof(name), "%" PRIu64, number);
    if (syscall(SYS_renameat2, cache, UNFINISHED, cache, name, RENAME_NOREPLACE) < 0)
        return -errno;
    return fsync(cache) < 0 ? -errno : 0;
}

/* Empty, for whoever fills it. */
static int make_unfinished(int cache)
{
    int r = tree_remove(cache, UNFINISHED);

    if (r < 0)
        return r;
    if (mkdirat(cache, UNFINISHED, 0700) < 0)
        return -errno;
    scoped_fd int fd = path_open_beneath(cache, UNFINISHED, O_RDONLY | O_DIRECTORY, 0);
    for (size_t i = 0; fd >= 0 && i < KINDS; i++) {
        if (mkdirat(fd, kinds[i], 0755) < 0)
            return -errno;
    }
    return take_fd(&fd);
}

/* Whose it is decides as whose it is shown inside: one cache has one owner. */
static int own_all(int dir, uid_t uid, gid_t gid)
{
    for (size_t i = 0; geteuid() == 0 && i < KINDS; i++) {
        if (fchownat(dir, kinds[i], uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
    }
    return 0;
}

/* What one workspace has written, or what the last generation has: over what is in `to`. */
static int add_files(int from_dir, const char *from_path, int to_dir, const char *kind)
{
    scoped_fd int from = path_open_beneath(from_dir, from_path, O_RDONLY | O_DIRECTORY, 0);
    scoped_fd int to = path_open_beneath(to_dir, kind, O_RDONLY | O_DIRECTORY, 0);

    if (from == -ENOENT)
        return 0;
    if (from < 0 || to < 0)
        return from < 0 ? from : to;
    return tree_link_from(from, to);
}

/* Files of another owner than the cache's would be nobody's inside: 1, they are not added. */
static int take_owner(int cache, uint64_t last, int workspaces, const char *workspace, int next)
{
    char path[PATH_ROOM];
    struct stat own;
    struct stat st;

    snprintf(path, sizeof(path), "%s/env/%s", workspace, kinds[0]);
    scoped_fd int layer = path_open_beneath(workspaces, path, O_PATH | O_DIRECTORY, 0);
    snprintf(path, sizeof(path), "%" PRIu64 "/%s", last, kinds[0]);
    scoped_fd int before = last ? path_open_beneath(cache, path, O_PATH | O_DIRECTORY, 0) : -1;
    if (layer < 0 || fstat(layer, &own) < 0)
        return 1;
    if (before >= 0 && fstat(before, &st) == 0 && st.st_uid != own.st_uid)
        return 1;
    return own_all(next, own.st_uid, own.st_gid);
}

static int fill_next(int cache, uint64_t last, int workspaces, const char *workspace)
{
    scoped_fd int next = make_unfinished(cache);
    char path[PATH_ROOM];
    int r = next < 0 ? next : take_owner(cache, last, workspaces, workspace, next);

    if (r > 0)
        return tree_remove(cache, UNFINISHED);
    for (size_t i = 0; r == 0 && i < KINDS; i++) {
        snprintf(path, sizeof(path), "%" PRIu64 "/%s", last, kinds[i]);
        if (last)
            r = add_files(cache, path, next, kinds[i]);
        snprintf(path, sizeof(path), "%s/env/%s/upper", workspace, kinds[i]);
        if (r == 0)
            r = add_files(workspaces, path, next, kinds[i]);
    }
    if (r == 0)
        r = tree_sync(next);
    return r == 0 ? publish(cache, last + 1) : r;
}

/* Whether a workspace has added anything to the cache. */
static bool has_more(int workspaces, const char *workspace)
{
    char path[PATH_ROOM];
    bool more = false;

    for (size_t i = 0; i < KINDS; i++) {
        snprintf(path, sizeof(path), "%s/env/%s/upper", workspace, kinds[i]);
        scoped_fd int fd = path_open_beneath(workspaces, path, O_RDONLY | O_DIRECTORY, 0);
        more = more || (fd >= 0 && path_dir_is_empty(fd) == 0);
    }
    return more;
}

int cache_add_layers(int cache, int workspaces, const char *workspace)
{
    uint64_t unused;

    if (!has_more(workspaces, workspace))
        return 0;
    if (flock(cache, LOCK_EX) < 0) /* another workspace may be frozen at the same time */
        return -errno;
    int64_t last = look_through(cache, NULL, NULL, &unused);
    return last < 0 ? (int)last : fill_next(cache, (uint64_t)last, workspaces, workspace);
}

/* --- the newest --- */

void cache_look(struct broker *b)
{
    struct err err;
    scoped_fd int cache = cache_open_all(b, &err);
    uint64_t unused;
    int64_t newest = cache < 0 ? -EIO : look_through(cache, NULL, NULL, &unused);

    if (newest < 0) {
        log_warning("cache_unreadable", "then", "no package cache is shared", NULL);
        return;
    }
    b->cache = (uint64_t)newest;
}

static int begin_first(struct broker *b, struct err *err)
{
    scoped_fd int cache = cache_open_all(b, err);

    if (cache < 0)
        return -1;
    scoped_fd int first = make_unfinished(cache);
    int r = first < 0 ? first : own_all(first, b->owner_uid, b->owner_gid);
    if (r == 0)
        r = publish(cache, 1);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "begin the package cache");
    b->cache = 1;
    return 0;
}

static int open_newest(const struct broker *b, const char *kind, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, ".carrel/cache/%" PRIu64 "/%s", b->cache, kind);
    return path_open_beneath(b->state, path, O_PATH | O_DIRECTORY, 0);
}

/* One that an older Carrel has made has fewer kinds. */
static int add_kind(const struct broker *b, const char *kind, char path[PATH_ROOM])
{
    struct stat st;

    snprintf(path, PATH_ROOM, ".carrel/cache/%" PRIu64, b->cache);
    scoped_fd int newest = path_open_beneath(b->state, path, O_RDONLY | O_DIRECTORY, 0);
    if (newest < 0)
        return newest;
    if (fstatat(newest, kinds[0], &st, AT_SYMLINK_NOFOLLOW) < 0 || mkdirat(newest, kind, 0755) < 0)
        return -errno;
    if (geteuid() == 0 && fchownat(newest, kind, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return open_newest(b, kind, path);
}

int cache_open(struct broker *b, const char *kind, struct err *err)
{
    char path[PATH_ROOM];
    int fd = b->cache ? open_newest(b, kind, path) : -ENOENT;

    if (fd == -ENOENT) { /* there was none yet, or somebody has removed it by hand */
        b->cache = 0;
        cache_look(b);
        if (!b->cache && begin_first(b, err) < 0)
            return -1;
        fd = open_newest(b, kind, path);
    }
    if (fd == -ENOENT)
        fd = add_kind(b, kind, path);
    return fd < 0 ? err_set(err, ERR_IO, -fd, "open the package cache '%s'", path) : fd;
}

/* --- older ones --- */

static bool is_unused(const void *context, uint64_t number)
{
    const struct broker *b = context;

    if (number >= b->cache)
        return false;
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (s->cache == number)
                return false;
        }
    }
    return true;
}

static bool is_any_old_shown(const struct broker *b)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (s->cache && s->cache < b->cache)
                return true;
        }
    }
    return false;
}

static int remove_generation(const int *fds, const void *what, struct chore_report *report)
{
    int r = flock(fds[0], LOCK_EX) < 0 ? -errno : tree_remove(fds[0], what);

    return r < 0 ? err_set(&report->err, ERR_IO, -r, "remove an old package cache") : 0;
}

static void removed_generation(struct broker *b, void *context, const struct err *failed,
                               const struct chore_report *report)
{
    (void)context;
    (void)report;
    b->cache_has_old = !failed; /* perhaps */
    if (failed)
        log_err("cache_not_removed", NULL, failed); /* the next start tries again */
    else
        cache_tidy(b);
}

static void start_removal(struct broker *b, const char *name)
{
    struct err err;
    scoped_fd int cache = cache_open_all(b, &err);

    b->cache_has_old = false; /* until that one is gone, they are not looked for */
    if (cache < 0 || chore_start(b,
                                 &(struct chore_work){.fds = {cache, -1, -1, -1},
                                                      .work = remove_generation,
                                                      .what = name,
                                                      .done = removed_generation},
                                 &err) < 0)
        log_err("cache_not_removed", NULL, &err);
}

void cache_tidy(struct broker *b)
{
    char name[NUMBER_ROOM];
    uint64_t old = 0;
    struct err err;

    if (!b->cache_has_old || b->stopping)
        return;
    scoped_fd int cache = cache_open_all(b, &err);
    if (cache < 0 || look_through(cache, is_unused, b, &old) < 0)
        return;
    snprintf(name, sizeof(name), "%" PRIu64, old);
    if (old)
        start_removal(b, name);
    else
        b->cache_has_old = is_any_old_shown(b);
}

void cache_begin(struct broker *b)
{
    struct err err;
    struct stat st;
    scoped_fd int cache = cache_open_all(b, &err);

    cache_look(b);
    b->cache_has_old = true; /* perhaps */
    if (!b->cache)           /* whoever makes the first one begins anew */
        return;
    if (cache >= 0 && fstatat(cache, UNFINISHED, &st, AT_SYMLINK_NOFOLLOW) == 0)
        start_removal(b, UNFINISHED); /* then the others */
    else
        cache_tidy(b);
}
