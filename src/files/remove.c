/* SPDX-License-Identifier: Apache-2.0 */
/* Removing: as deep as it goes, and through directories whose owner, who is us, had closed them. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"
#include "sys/tree_remove.h"

int files_remove_tree(int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return tree_remove(dir, name);
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
    scoped_place struct dir_entry place = {.dir = -1};
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
