/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trees/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/names.h"
#include "plan/core/plan.h"
#include "plan/trees/copy.h"
#include "plan/trees/kept.h"
#include "plan/trees/layered.h"
#include "plan/trees/seen.h"
#include "sys/path.h"
#include "sys/tree_walk.h"

enum {
    BLOCK = 512, /* of st_blocks */
    MOST_LEFT_OUT = 20,
};

/* How much later a change must be for its time to be another: the clock of file times ticks every
 * 1 to 10 ms. */
#define TICK_NS 20000000

struct making {
    int to;             /* the new tree */
    int base;           /* the snapshot's that a fork stands on; -1: it is none */
    int last;           /* the last snapshot's; -1: there is none */
    struct seen before; /* ... of which these are the files */
    struct seen now;
    struct tree_walk walk;
    json_t *left_out;
    size_t left_out_count;
    uid_t uid;
    int64_t newest_ns; /* change of a file */
    uint64_t files;
    uint64_t directories;
    uint64_t bytes;     /* of all files, as ls says */
    uint64_t copied;    /* files that have changed */
    uint64_t own_bytes; /* on the disk, of those */
};

static int fail(int r, const char *what, const char *path, struct err *err)
{
    if (r == -EACCES || r == -EPERM)
        return err_set(err, ERR_DENIED, -r,
                       "%s '%.300s': the owner of the workspace may not read it; change its mode, "
                       "or remove it",
                       what, path);
    if (r == -ESTALE || r == -ENOENT)
        return err_set(err, ERR_CONFLICT, 0,
                       "%s '%.300s': it is being changed, from outside the workspace; try again",
                       what, path);
    if (r == -EXDEV)
        return err_set(err, ERR_CONFLICT, 0, "%s '%.300s': something is mounted there", what, path);
    return err_set(err, ERR_IO, -r, "%s '%.300s'", what, path);
}

/* Pipes, sockets and devices are nothing without who made them. */
static int leave_out(struct making *m, const char *path)
{
    json_t *text = m->left_out_count++ < MOST_LEFT_OUT ? json_string(path) : NULL;

    return text ? json_array_append_new(m->left_out, text) : 0;
}

static int note(struct making *m, const struct stat *st, const char *path, struct err *err)
{
    struct seen_file file;

    seen_of(st, &file);
    file.path = path;
    if (file.ctime_ns > m->newest_ns)
        m->newest_ns = file.ctime_ns;
    return seen_add(&m->now, &file) < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "keep what was seen") : 0;
}

/* 1: it was linked; 0: it has to be copied. */
static int link_to(struct making *m, int from, const char *copy, const char *path, struct err *err)
{
    if (linkat(from, copy, m->to, path, 0) == 0)
        return 1;
    if (errno == EMLINK || errno == ENOENT || errno == EPERM || errno == EXDEV)
        return 0;
    return fail(-errno, "share with the last snapshot", path, err);
}

static int link_if_known(struct making *m, const struct stat *st, const char *path, struct err *err)
{
    const struct seen_file *known = seen_find(&m->now, st->st_dev, st->st_ino);
    struct seen_file file;

    if (known) /* another name of a file of this very tree */
        return link_to(m, m->to, known->path, path, err);
    seen_of(st, &file);
    known = m->last < 0 ? NULL : seen_find(&m->before, st->st_dev, st->st_ino);
    if (!known || !seen_is_same(known, &file))
        return 0;
    int r = link_to(m, m->last, known->path, path, err);
    return r <= 0 ? r : note(m, st, path, err) < 0 ? -1 : 1;
}

static int copy_anew(struct making *m, const struct tree_entry *e, struct err *err)
{
    struct stat made;
    int r = copy_file(e->dir, e->name, &e->st, m->to, e->path);

    if (r < 0)
        return fail(r, "copy", e->path, err);
    m->copied++;
    if (fstatat(m->to, e->path, &made, AT_SYMLINK_NOFOLLOW) == 0)
        m->own_bytes += (uint64_t)made.st_blocks * BLOCK;
    return 0;
}

static int take_file(struct making *m, const struct tree_entry *e, struct err *err)
{
    m->files++;
    m->bytes += (uint64_t)e->st.st_size;
    int r = e->dir == m->base ? link_to(m, m->base, e->name, e->path, err)
                              : link_if_known(m, &e->st, e->path, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return copy_anew(m, e, err) < 0 ? -1 : note(m, &e->st, e->path, err);
}

/* Neither shared nor remembered: by its inode it is the snapshot's file, which has another mode. */
static int take_with_mode(void *context, const struct tree_entry *e, struct err *err)
{
    struct making *m = context;

    m->files++;
    m->bytes += (uint64_t)e->st.st_size;
    return copy_anew(m, e, err);
}

static int take(struct making *m, const struct tree_entry *e, struct err *err)
{
    mode_t type = e->st.st_mode & S_IFMT;
    int r = 0;

    if (strlen(e->path) > PLAN_MAX_PATH)
        return err_set(err, ERR_LIMIT, 0, "'%.200s...' is a longer path than %d bytes", e->path,
                       PLAN_MAX_PATH);
    if (e->after) {
        r = copy_directory(e->dir, e->name, &e->st, m->to, e->path);
        return r < 0 ? fail(r, "copy", e->path, err) : 0;
    }
    if (e->st.st_uid != m->uid)
        return err_set(err, ERR_DENIED, 0,
                       "'%.300s' belongs to the user %u and not to the workspace's owner, which a "
                       "snapshot could not keep; change its owner, or remove it",
                       e->path, (unsigned)e->st.st_uid);
    if (type == S_IFREG)
        return take_file(m, e, err);
    if (type == S_IFDIR) {
        m->directories++;
        return mkdirat(m->to, e->path, 0700) < 0 ? fail(-errno, "copy", e->path, err) : 0;
    }
    if (type != S_IFLNK)
        return leave_out(m, e->path);
    m->files++;
    r = copy_symlink(e->dir, e->name, &e->st, m->to, e->path);
    return r < 0 ? fail(r, "copy", e->path, err) : 0;
}

/* At the top: where Carrel mounts, and what is not finished. */
static bool is_ours(const struct tree_entry *e)
{
    return e->depth == 1 && name_kind(e->name) != NAME_FREE;
}

static int take_of_fork(void *context, const struct tree_entry *e, struct err *err)
{
    return take(context, e, err);
}

static int walk_fork(struct making *m, const struct snapshot_wish *wish, struct err *err)
{
    scoped_fd int base = path_open_beneath(wish->base, "tree", O_RDONLY | O_DIRECTORY, 1);
    const struct layered how = {.base = base,
                                .layer = wish->layer,
                                .privileged = wish->privileged,
                                .take = take_of_fork,
                                .take_with_mode = take_with_mode,
                                .context = m};

    if (base < 0)
        return fail(base, "read", "what the fork stands on", err);
    m->base = base;
    int r = layered_walk(&how, err);
    m->base = -1;
    return r;
}

static int walk(struct making *m, int tree, struct err *err)
{
    struct tree_entry e = {.path = ""};
    int next = 1;
    int r = tree_walk_begin(&m->walk, tree, TREE_ONE_MOUNT | TREE_STAT | TREE_POST);

    if (r < 0)
        return fail(r, "read", ".", err);
    while (r == 0 && (next = tree_walk_next(&m->walk, &e)) != 0) {
        if (next < 0)
            r = fail(next, "read", e.path ? e.path : ".", err);
        else if (!is_ours(&e))
            r = take(m, &e, err);
        else if (!e.after && e.is_dir)
            tree_walk_skip(&m->walk);
    }
    tree_walk_end(&m->walk);
    return r;
}

/* The top of the new tree is as the top of the live one. */
static int finish_top(const struct making *m, int tree, struct err *err)
{
    struct stat st;

    if (fstat(tree, &st) < 0)
        return fail(-errno, "copy", ".", err);
    int r = copy_directory(tree, ".", &st, m->to, ".");
    return r < 0 ? fail(r, "copy", ".", err) : 0;
}

static json_t *describe(const struct snapshot_wish *wish, const struct making *m, uint64_t took_ms)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:I}", "id",
                     wish->id, "name", wish->name, "actor", wish->actor, "why", wish->why,
                     "created_ms", (json_int_t)wall_ms(), "files", (json_int_t)m->files,
                     "directories", (json_int_t)m->directories, "bytes", (json_int_t)m->bytes,
                     "copied", (json_int_t)m->copied, "own_bytes", (json_int_t)m->own_bytes,
                     "left_out_count", (json_int_t)m->left_out_count, "left_out", m->left_out,
                     "copy_ms", (json_int_t)took_ms);
}

static int64_t clock_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until a change from now on gets another time than those that were seen, which is at most one
 * tick: then none of them is in doubt. */
static void await_tick(const struct making *m)
{
    struct timespec pause = {.tv_nsec = TICK_NS};
    int64_t age = clock_ns() - m->newest_ns;

    if (age >= 0 && age <= TICK_NS)
        (void)nanosleep(&pause, NULL);
}

static int open_last(struct making *m, int dir, const struct kept_list *list)
{
    char path[KEPT_ID + 8];
    struct err unused;

    if (list->count == 0)
        return -1;
    scoped_fd int home =
        path_open_beneath(dir, list->at[list->count - 1].id, O_RDONLY | O_DIRECTORY, 1);
    snprintf(path, sizeof(path), "%s/tree", list->at[list->count - 1].id);
    /* Without it everything is copied: nothing is lost but room. */
    if (home < 0 || seen_load(&m->before, home, "seen", &unused) < 0) {
        seen_clear(&m->before);
        seen_init(&m->before);
        return -1;
    }
    return path_open_beneath(dir, path, O_RDONLY | O_DIRECTORY, 1);
}

/* All in `.new-ID`; what is written is on disk when this returns. Pages that the live tree has
 * mapped for writing are written back by that, too, so that a later change to them is seen in the
 * times of its file. */
static int fill(struct making *m, const struct snapshot_wish *wish, int home, json_t **ret_meta,
                struct err *err)
{
    uint64_t began_ms = now_ms();

    if (mkdirat(home, "tree", 0700) < 0)
        return err_set(err, ERR_IO, errno, "make the snapshot's directory");
    scoped_fd int to = path_open_beneath(home, "tree", O_RDONLY | O_DIRECTORY, 1);
    m->to = to;
    if (to < 0)
        return err_set(err, ERR_IO, -to, "open the snapshot's directory");
    if ((wish->base < 0 ? walk(m, wish->tree, err) : walk_fork(m, wish, err)) < 0 ||
        finish_top(m, wish->tree, err) < 0)
        return -1;
    if (syncfs(to) < 0)
        return err_set(err, ERR_IO, errno, "write the snapshot to disk");
    await_tick(m);
    if (seen_save(&m->now, home, "seen", clock_ns() - TICK_NS, err) < 0)
        return -1;
    json_t *meta = describe(wish, m, now_ms() - began_ms);
    if (!meta)
        return err_set(err, ERR_INVALID, 0, "the snapshot's name is no UTF-8");
    if (kept_write_meta(home, meta, err) < 0 || fsync(home) < 0) {
        json_decref(meta);
        return -1;
    }
    *ret_meta = meta;
    return 0;
}

static int make(struct making *m, const struct snapshot_wish *wish, json_t **ret_meta,
                struct err *err)
{
    char made[KEPT_ID + 8];

    kept_own_name(made, sizeof(made), "new", wish->id);
    if (mkdirat(wish->dir, made, 0700) < 0)
        return err_set(err, ERR_IO, errno, "make the snapshot's directory");
    scoped_fd int home = path_open_beneath(wish->dir, made, O_RDONLY | O_DIRECTORY, 1);
    int r = home < 0 ? err_set(err, ERR_IO, -home, "open the snapshot's directory")
                     : fill(m, wish, home, ret_meta, err);
    if (r == 0 && (renameat(wish->dir, made, wish->dir, wish->id) < 0 || fsync(wish->dir) < 0)) {
        json_decref(*ret_meta);
        r = err_set(err, ERR_IO, errno, "give the snapshot its name");
    }
    return r;
}

static int check_wish(const struct snapshot_wish *wish, const struct kept_list *list,
                      struct err *err)
{
    if (!kept_id_is_valid(wish->id))
        return err_set(err, ERR_INVALID, 0, "the job: '%.40s' is no id", wish->id);
    if (strlen(wish->name) > KEPT_NAME || kept_id_is_valid(wish->name))
        return err_set(err, ERR_INVALID, 0,
                       "the name of a snapshot has at most %d bytes, and is not like an id",
                       KEPT_NAME);
    if (*wish->name && kept_find(list, wish->name))
        return err_set(err, ERR_CONFLICT, 0, "there is a snapshot '%s' already", wish->name);
    if (list->count == KEPT_MOST)
        return err_set(err, ERR_LIMIT, 0,
                       "the workspace has %d snapshots, as many as it may; remove some", KEPT_MOST);
    return 0;
}

int snapshot_make(const struct snapshot_wish *wish, json_t **ret_meta, struct err *err)
{
    static struct making m; /* of this process, which makes one */
    static struct kept_list list;
    struct err unused;
    struct stat st;

    m = (struct making){.to = -1, .base = -1, .last = -1, .left_out = json_array()};
    if (fstat(wish->tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the workspace's directory");
    m.uid = st.st_uid;
    if (kept_read(&list, wish->dir, err) < 0)
        return -1;
    int r = check_wish(wish, &list, err);
    seen_init(&m.before);
    seen_init(&m.now);
    scoped_fd int last = r < 0 ? -1 : open_last(&m, wish->dir, &list);
    m.last = last;
    if (r == 0)
        r = kept_sweep(wish->dir, err);
    if (r == 0 && make(&m, wish, ret_meta, err) < 0) {
        (void)kept_sweep(wish->dir, &unused); /* else the next one does it */
        r = -1;
    }
    seen_clear(&m.before);
    seen_clear(&m.now);
    kept_clear(&list);
    json_decref(m.left_out);
    return r;
}
