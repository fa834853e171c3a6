/* SPDX-License-Identifier: Apache-2.0 */
/* What changes or tells names, not contents: stat, mkdir, chmod, symlink, move, copy. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"
#include "sys/path.h"

/* Where something is to be made or changed; never what Carrel provides. */
static int open_place(const char *path, bool parents, struct dir_entry *ret)
{
    int r = files_check_reserved(path);

    if (r == 0)
        r = place_open(path, parents, true, ret);
    return r == 0 ? place_check_reserved(ret) : r;
}

/* Tells what is under the name now. */
static void answer_place(struct files_call *call, unsigned status, const struct dir_entry *place,
                         const char *path)
{
    char target[FILES_PATH];
    struct stat st;
    bool is_link;

    if (fstatat(place->dir, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        answer_errno(call, errno, path);
        return;
    }
    is_link = S_ISLNK(st.st_mode) && files_read_link(place->dir, place->name, target) >= 0;
    answer_entry(call, status, path, &st, is_link ? target : NULL);
}

void files_stat(struct files_call *call)
{
    const struct files_message *m = call->m;
    int nofollow = m->flags & FILES_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
    char target[FILES_PATH];
    struct stat st;

    if (fstatat(AT_FDCWD, m->path, &st, nofollow) < 0) {
        answer_errno(call, errno, m->path);
        return;
    }
    bool is_link = S_ISLNK(st.st_mode) && files_read_link(AT_FDCWD, m->path, target) >= 0;
    answer_entry(call, 200, m->path, &st, is_link ? target : NULL);
}

/* --- mkdir --- */

/* 1: made, 0: it is there, and that is as good. */
static int make_directory(const struct dir_entry *place, const struct files_message *m)
{
    mode_t mode = m->mode == FILES_MOST ? 0755 : (mode_t)(m->mode & 0777);
    struct stat st;

    if (fstatat(place->dir, place->name, &st, 0) == 0)
        return S_ISDIR(st.st_mode) && m->flags & FILES_PARENTS ? 0 : -EEXIST;
    if (place_check_reserved(place) < 0)
        return -EBUSY;
    if (files_mkdirat(place->dir, place->name, mode) < 0)
        return -errno;
    if (m->mode != FILES_MOST && fchmodat(place->dir, place->name, mode, 0) < 0)
        return -errno;
    int r = files_sync_dir(place->dir);
    return r < 0 ? r : 1;
}

void files_mkdir(struct files_call *call)
{
    const struct files_message *m = call->m;
    scoped_place struct dir_entry place = {.dir = -1};
    struct stat st;
    int r;

    if (m->path[1] == '\0')
        r = m->flags & FILES_PARENTS ? 0 : -EEXIST;
    else
        r = place_open(m->path, m->flags & FILES_PARENTS, true, &place);
    if (r == 0 && place.dir >= 0)
        r = make_directory(&place, m);
    if (r >= 0 && fstatat(AT_FDCWD, m->path, &st, 0) < 0)
        r = -errno;
    if (r < 0)
        answer_errno(call, r, m->path);
    else
        answer_entry(call, r == 1 ? 201 : 200, m->path, &st, NULL);
}

/* --- chmod --- */

/* Whether what has this mode lets its owner in: then it is set on the way down, and also opens
 * what was closed; else on the way up. */
static bool lets_in(mode_t mode)
{
    return (mode & 0500) == 0500;
}

static int set_mode(int dir, const char *name, mode_t mode)
{
    return fchmodat(dir, name, mode, 0) < 0 ? -errno : 0;
}

static int enter_mode(int dir, const char *name, mode_t mode, const struct stat *st)
{
    return lets_in(mode) || !lets_in(st->st_mode) ? set_mode(dir, name, mode | 0500) : 0;
}

static int change_entry(const struct tree_entry *e, mode_t mode)
{
    if (e->after)
        return lets_in(mode) ? 0 : set_mode(e->dir, e->name, mode);
    if (e->is_dir)
        return enter_mode(e->dir, e->name, mode, &e->st);
    if (S_ISLNK(e->st.st_mode))
        return 0; /* has none of its own */
    int r = set_mode(e->dir, e->name, mode);
    return r == -ENOENT ? 0 : r;
}

static int change_tree(const struct dir_entry *place, mode_t mode, const struct stat *st)
{
    struct tree_walk w;
    struct tree_entry e;
    int r = enter_mode(place->dir, place->name, mode, st);

    if (r < 0)
        return r;
    scoped_fd int top =
        path_open_name(place->dir, place->name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, false);
    if (top < 0)
        return top;
    r = tree_walk_begin(&w, top, TREE_STAT | TREE_POST);
    while (r == 0) {
        int next = tree_walk_next(&w, &e);
        if (next == 0)
            break;
        if (next != -ENOENT)
            r = next < 0 ? next : change_entry(&e, mode);
    }
    tree_walk_end(&w);
    return r == 0 && !lets_in(mode) ? set_mode(place->dir, place->name, mode) : r;
}

static int change_mode(struct dir_entry *place, mode_t mode, bool recursive)
{
    struct stat st;
    int r = place_follow(place, &st);

    if (r != 0)
        return r < 0 ? r : -ENOENT;
    if (place_check_reserved(place) < 0)
        return -EBUSY;
    if (recursive && S_ISDIR(st.st_mode))
        return change_tree(place, mode, &st);
    return set_mode(place->dir, place->name, mode);
}

void files_chmod(struct files_call *call)
{
    const struct files_message *m = call->m;
    scoped_place struct dir_entry place = {.dir = -1};

    if (m->mode > 07777) {
        answer_error(call, 400, "invalid_request", "a mode is needed, such as 0644");
        return;
    }
    int r = open_place(m->path, false, &place);
    if (r == 0)
        r = change_mode(&place, (mode_t)(m->mode & 0777), m->flags & FILES_RECURSIVE);
    if (r < 0)
        answer_errno(call, r, m->path);
    else
        answer_place(call, 200, &place, m->path);
}

/* --- symlink --- */

/* In place of what is there: made beside it, and renamed. */
static int replace_by_link(struct files_call *call, const struct dir_entry *place,
                           const char *target)
{
    int at = files_temp_dir(call, place->dir);
    char temp[48];

    files_temp_name(temp);
    if (symlinkat(target, at, temp) < 0)
        return -errno;
    if (renameat(at, temp, place->dir, place->name) == 0)
        return 0;
    int r = -errno;
    ignore(unlinkat(at, temp, 0)); /* the first error counts */
    return r;
}

void files_symlink(struct files_call *call)
{
    const struct files_message *m = call->m;
    scoped_place struct dir_entry place = {.dir = -1};
    int r = m->other[0] ? open_place(m->path, m->flags & FILES_PARENTS, &place) : -EINVAL;

    if (r == 0 && symlinkat(m->other, place.dir, place.name) < 0)
        r = errno == EEXIST && m->flags & FILES_REPLACE ? replace_by_link(call, &place, m->other)
                                                        : -errno;
    if (r == 0)
        r = files_sync_dir(place.dir);
    if (r < 0)
        answer_errno(call, r, m->path);
    else
        answer_place(call, 201, &place, m->path);
}

/* --- move and copy --- */

/* The other way round, for file systems that cannot do it in one. */
static int move_first(const struct dir_entry *from, const struct dir_entry *to)
{
    struct stat st;

    if (fstatat(to->dir, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    return renameat(from->dir, from->name, to->dir, to->name) < 0 ? -errno : 0;
}

/* To another mount: a copy, and the old one removed. */
static int move_across(struct files_call *call, const struct dir_entry *from,
                       const struct dir_entry *to)
{
    struct files_message m = *call->m;
    const struct files_message *own = call->m;

    m.flags |= FILES_RECURSIVE;
    call->m = &m;
    int r = files_copy_to(call, from, to);
    call->m = own;
    return r == 0 ? files_remove_tree(from->dir, from->name) : r;
}

static int move(struct files_call *call, const struct dir_entry *from, const struct dir_entry *to)
{
    bool replace = call->m->flags & FILES_REPLACE;
    int r = 0;

    if (renameat2(from->dir, from->name, to->dir, to->name, replace ? 0 : RENAME_NOREPLACE) < 0)
        r = -errno;
    if (r == -EXDEV)
        r = move_across(call, from, to);
    else if (r == -EINVAL && !replace && path_same_mount(from->dir, to->dir))
        r = move_first(from, to);
    else if (r == -EEXIST && replace)
        r = -ENOTEMPTY; /* as some file systems say it */
    if (r == 0)
        r = files_sync_dir(to->dir);
    return r < 0 ? r : files_sync_dir(from->dir);
}

typedef int two_places(struct files_call *call, const struct dir_entry *from,
                       const struct dir_entry *to);

static void with_two(struct files_call *call, two_places *act, bool from_is_changed)
{
    const struct files_message *m = call->m;
    scoped_place struct dir_entry from = {.dir = -1};
    scoped_place struct dir_entry to = {.dir = -1};
    const char *path = m->path;
    struct stat st;
    int r = from_is_changed ? open_place(m->path, false, &from)
                            : place_open(m->path, false, false, &from);

    if (r == 0 && fstatat(from.dir, from.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno; /* before directories are made for nothing */
    if (r == 0) {
        path = m->other;
        r = files_path_is_valid(m->other) ? open_place(m->other, m->flags & FILES_PARENTS, &to)
                                          : -EINVAL;
    }
    if (r == 0)
        r = act(call, &from, &to);
    if (r < 0)
        answer_errno(call, r, path);
    else
        answer_place(call, 200, &to, m->other);
}

void files_move(struct files_call *call)
{
    with_two(call, move, true);
}

void files_copy(struct files_call *call)
{
    with_two(call, files_copy_to, false);
}
