/* SPDX-License-Identifier: Apache-2.0 */
/* Removing: as deep as it goes, and through directories whose owner, who is us, had closed them. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"

static int remove_leaf(void *context, int dir, const char *name, const struct stat *st)
{
    (void)context;
    (void)st;
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT || errno == EISDIR)
        return 0; /* a directory by now: found when the one above is not empty */
    return -errno;
}

/* An rmdir that fails at every level makes the way up out of a deep tree slow in the kernel: it is
 * tried at the top, to fail before anything is lost, and on what may not be looked into. */
static int remove_empty(void *context, int dir, const char *name, const struct stat *st)
{
    bool *begun = context;
    bool closed = (st->st_mode & 0700) != 0700;

    if (*begun && !closed)
        return 0;
    *begun = true;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 1;
    /* What is mounted on says EBUSY here, before anything in it is lost. */
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    if (closed)
        ignore(fchmodat(dir, name, (st->st_mode & 0777) | 0700, 0)); /* opening it says it better */
    return 0;
}

/* 1: something new is in it. */
static int remove_emptied(void *context, int dir, const char *name, const struct stat *st)
{
    (void)context;
    (void)st;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? 1 : -errno;
}

int files_remove_tree(int dir, const char *name)
{
    static const struct climb_ops ops = {
        .one_mount = true, .leaf = remove_leaf, .enter = remove_empty, .leave = remove_emptied};
    bool begun = false;
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return files_climb(dir, name, &ops, &begun);
    return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}

static int remove_one(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0)
        return 0;
    if (errno == EISDIR && unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    return errno == EEXIST ? -ENOTEMPTY : -errno;
}

void files_remove(struct files_call *call)
{
    const struct files_message *m = call->m;
    scoped_place struct place place = {.dir = -1};
    int r = files_check_reserved(m->path);

    if (r == 0)
        r = place_open(m->path, false, false, &place);
    if (r == 0)
        r = place_check_reserved(&place);
    if (r == 0)
        r = m->flags & FILES_RECURSIVE ? files_remove_tree(place.dir, place.name)
                                       : remove_one(place.dir, place.name);
    if (r == 0)
        r = files_sync_dir(place.dir);
    if (r < 0)
        answer_errno(call, r, m->path);
    else
        answer_empty(call);
}
