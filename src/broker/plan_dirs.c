/* SPDX-License-Identifier: Apache-2.0 */
/* Where plans are:  DIR/<bucket>/.carrel/workspaces/<workspace>/plans/<plan>, on the file system of
 * the tree, so that what is staged there can be renamed into it. All above the plan is ours alone;
 * the plan itself belongs to the tree's owner, as who carries it out is that user and no more.
 *
 * DIR/<bucket>/.carrel/applying/<workspace>~<plan> is there while a tree is being changed: one that
 * is found at a start was interrupted. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/pack.h"
#include "broker/broker.h"
#include "broker/chores.h"
#include "broker/plans.h"
#include "broker/trees.h"
#include "sys/path.h"
#include "sys/tree_remove.h"

enum {
    MARK_ROOM = PROTOCOL_ID + PROTOCOL_EXEC_ID + 2,
};

/* Opens a directory of ours, made if need be: then its name is on disk before anything is put into
 * it. */
static int open_own(int above, const char *name, bool make)
{
    bool made = make && mkdirat(above, name, 0700) == 0;

    if (make && !made && errno != EEXIST)
        return -errno;
    scoped_fd int fd = path_open_beneath(above, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0 && made && (fsync(fd) < 0 || fsync(above) < 0)) {
        int r = -errno;
        ignore(unlinkat(above, name, AT_REMOVEDIR) == 0); /* else the next one takes it for safe */
        return r;
    }
    return take_fd(&fd);
}

static int open_below(int from, const char *const *names, size_t n, bool make)
{
    int fd = from;

    for (size_t i = 0; i < n; i++) {
        int next = open_own(fd, names[i], make);
        if (fd != from)
            (void)close(fd);
        if (next < 0)
            return next;
        fd = next;
    }
    return fd;
}

static int open_carrel(const struct broker *b, const char *bucket)
{
    char path[NAME_MAX + 16];

    snprintf(path, sizeof(path), "%s/.carrel", bucket);
    return path_open_beneath(b->state, path, O_RDONLY | O_DIRECTORY, 0);
}

static int open_plans(const struct broker *b, const char *bucket, const char *workspace, bool make)
{
    const char *const names[] = {"workspaces", workspace, "plans"};
    scoped_fd int top = open_carrel(b, bucket);

    return top < 0 ? top : open_below(top, names, 3, make);
}

void plan_path(const struct broker *b, const char *bucket, const char *workspace, const char *plan,
               char *path, size_t size)
{
    snprintf(path, size, "%s/%s/.carrel/workspaces/%s/plans/%s", b->settings.state, bucket,
             workspace, plan);
}

/* Only what is certainly not there is gone: whoever hears that gives the plan up. */
static int say_unopened(int r, const char *gone, struct err *err)
{
    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, 0, "%s", gone);
    return err_set(err, ERR_IO, -r, "open the plan's directory");
}

/* A new one: the tree's owner's, and on disk. */
static int hand_over(int fd, int plans, int tree, struct err *err)
{
    struct stat st;

    if (fstat(tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the workspace's directory");
    if (geteuid() == 0 && fchown(fd, st.st_uid, st.st_gid) < 0)
        return err_set(err, ERR_IO, errno, "give the plan's directory to the tree's owner");
    if (fsync(fd) < 0 || fsync(plans) < 0)
        return err_set(err, ERR_IO, errno, "write the plan's directory to disk");
    return 0;
}

int plan_open_dir(const struct broker *b, const struct plan_id *at, bool make, struct err *err)
{
    scoped_fd int plans = open_plans(b, at->bucket, at->workspace, make);

    if (plans < 0 && make)
        return err_set(err, ERR_IO, -plans, "make a directory for the plan");
    if (plans < 0)
        return say_unopened(plans, "the plan's files are gone", err);
    scoped_fd int tree = tree_open(b, at->bucket, at->workspace, err);
    if (tree < 0)
        return -1;
    bool made = make && mkdirat(plans, at->plan, 0700) == 0;
    if (make && !made && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the plan's directory");
    scoped_fd int fd = path_open_beneath(plans, at->plan, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return say_unopened(fd, "the plan's files are gone", err);
    if (made && hand_over(fd, plans, tree, err) < 0) {
        ignore(unlinkat(plans, at->plan, AT_REMOVEDIR) == 0);
        return -1;
    }
    return take_fd(&fd);
}

int plan_open_own(const struct broker *b, const char *bucket, const char *workspace,
                  const char *name)
{
    const char *const names[] = {"workspaces", workspace, name};
    scoped_fd int top = open_carrel(b, bucket);

    return top < 0 ? top : open_below(top, names, 3, true);
}

/* Above each of them, as that is given its name there by who makes it. */
int plan_open_snapshots(const struct broker *b, const struct plan_id *at, struct err *err)
{
    const char *const names[] = {"workspaces", at->workspace};
    scoped_fd int top = open_carrel(b, at->bucket);
    scoped_fd int home = top < 0 ? top : open_below(top, names, 2, true);

    if (home < 0)
        return err_set(err, ERR_IO, -home, "make a directory for snapshots");
    scoped_fd int tree = tree_open(b, at->bucket, at->workspace, err);
    if (tree < 0)
        return -1;
    bool made = mkdirat(home, "snapshots", 0700) == 0;
    if (!made && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make a directory for snapshots");
    scoped_fd int fd = path_open_beneath(home, "snapshots", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open the directory of the snapshots");
    if (made && hand_over(fd, home, tree, err) < 0) {
        ignore(unlinkat(home, "snapshots", AT_REMOVEDIR) == 0);
        return -1;
    }
    return take_fd(&fd);
}

/* --- trees that are being changed --- */

static void write_mark(const struct plan_id *at, char text[MARK_ROOM])
{
    snprintf(text, MARK_ROOM, "%s~%s", at->workspace, at->plan);
}

int plan_mark(const struct broker *b, const struct plan_id *at, struct err *err)
{
    const char *const names[] = {"applying"};
    scoped_fd int top = open_carrel(b, at->bucket);
    scoped_fd int dir = top < 0 ? top : open_below(top, names, 1, true);
    char mark[MARK_ROOM];

    if (dir < 0)
        return err_set(err, ERR_IO, -dir, "note that the plan is being applied");
    write_mark(at, mark);
    scoped_fd int fd = openat(dir, mark, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fsync(fd) < 0 || fsync(dir) < 0)
        return err_set(err, ERR_IO, errno, "note that the plan is being applied");
    return 0;
}

void plan_unmark(const struct broker *b, const struct plan_id *at)
{
    const char *const names[] = {"applying"};
    scoped_fd int top = open_carrel(b, at->bucket);
    scoped_fd int dir = top < 0 ? top : open_below(top, names, 1, false);
    char mark[MARK_ROOM];

    write_mark(at, mark);
    if (dir >= 0) /* one that is left is looked at once more by the next start */
        ignore(unlinkat(dir, mark, 0) == 0);
}

static int recover_marked(struct broker *b, const char *bucket, const char *mark, struct err *err)
{
    struct plan_id at = {.plan = ""};
    const char *sign = strchr(mark, '~');
    size_t n = sign ? (size_t)(sign - mark) : 0;

    if (n == 0 || n > PROTOCOL_ID || !protocol_plan_id_is_valid(sign + 1))
        return 0;
    snprintf(at.bucket, sizeof(at.bucket), "%s", bucket);
    memcpy(at.workspace, mark, n);
    snprintf(at.plan, sizeof(at.plan), "%s", sign + 1);
    return protocol_id_is_valid(at.workspace) ? plan_recover(b, &at, err) : 0;
}

/* Calls `each` with every name in `fd`, which it closes, as long as it returns 0. */
static int for_names(int fd, struct broker *b, const char *bucket,
                     int (*each)(struct broker *b, const char *bucket, const char *name,
                                 struct err *err),
                     struct err *err)
{
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int r = 0;

    if (!dir) {
        err_set(err, ERR_IO, fd < 0 ? -fd : errno, "look for plans that were half applied");
        scope_close(&fd);
        return -1;
    }
    errno = 0;
    while (r == 0 && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
        r = each(b, bucket, entry->d_name, err);
        errno = 0;
    }
    if (r == 0 && errno)
        r = err_set(err, ERR_IO, errno, "look for plans that were half applied");
    (void)closedir(dir);
    return r;
}

static int recover_bucket(struct broker *b, const char *unused, const char *bucket, struct err *err)
{
    const char *const names[] = {"applying"};

    (void)unused;
    if (!protocol_id_is_valid(bucket))
        return 0;
    scoped_fd int top = open_carrel(b, bucket);
    if (top == -ENOENT || top == -ENOTDIR || top == -ELOOP)
        return 0; /* no bucket */
    int fd = top < 0 ? top : open_below(top, names, 1, false);
    return fd == -ENOENT ? 0 : for_names(fd, b, bucket, recover_marked, err);
}

int plans_recover_all(struct broker *b, struct err *err)
{
    int fd = openat(b->state, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return for_names(fd < 0 ? -errno : fd, b, "", recover_bucket, err);
}

/* --- all of them --- */

struct listing {
    struct arena arena;
    const char *names[PROTOCOL_NAMES + 1];
    size_t n;
};

static void list_plans(struct listing *l, int workspaces, const char *workspace)
{
    const char *const names[] = {workspace, "plans"};
    scoped_fd int fd = open_below(workspaces, names, 2, false);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!dir)
        return;
    (void)take_fd(&fd);
    while (l->n < PROTOCOL_NAMES && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
        if (!protocol_plan_id_is_valid(entry->d_name))
            continue;
        const char *name = arena_printf(&l->arena, "%s/%s", workspace, entry->d_name);
        if (name)
            l->names[l->n++] = name;
    }
    (void)closedir(dir);
}

int plan_scan(const struct broker *b, const char *bucket, struct buf *names, struct err *err)
{
    static struct listing listing;
    const char *const below[] = {"workspaces"};
    scoped_fd int top = open_carrel(b, bucket);
    scoped_fd int fd = top < 0 ? top : open_below(top, below, 1, false);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    listing.n = 0;
    arena_init(&listing.arena, 2UL << 20);
    if (dir)
        (void)take_fd(&fd);
    while (dir && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
        if (protocol_id_is_valid(entry->d_name))
            list_plans(&listing, dirfd(dir), entry->d_name);
    }
    if (dir)
        (void)closedir(dir);
    listing.names[listing.n] = NULL;
    pack_list(names, listing.names);
    arena_clear(&listing.arena);
    return buf_done(names) < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "list the plans") : 0;
}

/* What it changes of an environment or a cache that it shares: beside the plans, so that it goes
 * when they go. The last one is the tree's owner's, as what is written into it is. */
int layer_open(const struct broker *b, const struct plan_id *at, const char *name, int tree,
               struct err *err)
{
    const char *const names[] = {"workspaces", at->workspace, "env"};
    scoped_fd int top = open_carrel(b, at->bucket);
    scoped_fd int env = top < 0 ? top : open_below(top, names, 3, true);

    if (env < 0)
        return err_set(err, ERR_IO, -env, "make a directory for the workspace's environments");
    bool made = mkdirat(env, name, 0700) == 0;
    if (!made && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make a directory for an environment");
    scoped_fd int fd = path_open_beneath(env, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open the directory of an environment");
    if (made && hand_over(fd, env, tree, err) < 0) {
        ignore(unlinkat(env, name, AT_REMOVEDIR) == 0);
        return -1;
    }
    return take_fd(&fd);
}

int layers_open(const struct broker *b, const char *bucket, const char *workspace)
{
    const char *const names[] = {"workspaces", workspace, "env"};
    scoped_fd int top = open_carrel(b, bucket);

    return top < 0 ? top : open_below(top, names, 3, false);
}

static int remove_gone(const int *fds, const void *name, struct chore_report *report)
{
    int r = tree_remove(fds[0], name);

    return r < 0 ? err_set(&report->err, ERR_IO, -r, "remove an environment's old layer") : 0;
}

void layer_drop(struct broker *b, const struct plan_id *at, const char *name)
{
    static const char gone[] = "gone";
    const char *const names[] = {"workspaces", at->workspace, "env"};
    struct stat st;
    struct err err;
    scoped_fd int top = open_carrel(b, at->bucket);
    scoped_fd int env = top < 0 ? top : open_below(top, names, 3, false);

    /* The lock is the process's that removes, as it has the same open directory: one at a time for
     * a workspace. What finds one on its way out is tried again with the next sandbox. */
    if (env < 0 || flock(env, LOCK_EX | LOCK_NB) < 0)
        return;
    /* One that an interrupted process has left is finished first. */
    if (renameat(env, name, env, gone) < 0 && fstatat(env, gone, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (chore_start(
            b,
            &(struct chore_work){
                .fds = {env, -1, -1, -1}, .work = remove_gone, .what = gone, .can_wait = true},
            &err) < 0)
        log_err("layer_not_removed", at->workspace, &err);
}

int plan_open_parent(const struct broker *b, const char *bucket, const char *workspace,
                     struct err *err)
{
    int fd = open_plans(b, bucket, workspace, false);

    return fd < 0 ? say_unopened(fd, "the workspace has no plans", err) : fd;
}

int plan_open_workspaces(const struct broker *b, const char *bucket)
{
    const char *const names[] = {"workspaces"};
    scoped_fd int top = open_carrel(b, bucket);

    return top < 0 ? top : open_below(top, names, 1, false);
}
