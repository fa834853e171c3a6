/* SPDX-License-Identifier: Apache-2.0 */
/* What was changed in the base after the layer had it: while a plan is open the base may change,
 * and what the base is now is not what the command has seen. Such an operation forgets what it
 * touches, so that it is stale from the beginning.
 *
 * An entry's time of birth is when it was copied up, and no command can set it: what has happened
 * to the base's object since has a later ctime. Of those that the clock's tick makes equal nobody
 * can say which came first: they count as changed, but for what is as old as the layer itself. What
 * is deleted has the birth of a whiteout that many deletions share, the first of them: of what was
 * changed between two deletions the layer does not tell which side it is on, and it counts as
 * changed, too. A directory that moves or gets a mode takes along what has been put into it. Where
 * the file system keeps no birth, nothing is known. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "plan/derive/derive.h"
#include "sys/path.h"

static int compare_to_entry(const void *path, const void *entry)
{
    return plan_compare_paths(path, ((const struct layer_entry *)entry)->path);
}

/* The entry that the operation is read off; NULL: another name of a file that is elsewhere. */
static const struct layer_entry *entry_of(const struct deriving *d,
                                          const struct plan_operation *operation)
{
    if (operation->kind == PLAN_DELETE)
        return derive_place(d, operation->path);
    return d->layer.count == 0 ? NULL
                               : bsearch(operation->path, d->layer.entries, d->layer.count,
                                         sizeof(d->layer.entries[0]), compare_to_entry);
}

/* INT64_MAX: the file system does not say. */
static int64_t born(const struct deriving *d, const char *path)
{
    scoped_fd int fd = path_open_beneath(d->layer.upper, path, O_PATH, 1);
    struct statx s;

    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &s) < 0 || !(s.stx_mask & STATX_BTIME))
        return INT64_MAX;
    return s.stx_btime.tv_sec * 1000000000 + s.stx_btime.tv_nsec;
}

void derive_forget_if_changed(const struct deriving *d, struct plan_operation *operation,
                              int64_t changed_ns)
{
    const struct layer_entry *entry = entry_of(d, operation);

    if (entry && changed_ns >= born(d, entry->path) && changed_ns > born(d, "."))
        operation->base.ino = PLAN_FORGOTTEN;
}

void derive_forget_changed(const struct deriving *d)
{
    for (size_t i = 0; i < d->plan->count; i++) {
        struct plan_operation *operation = &d->plan->operations[i];
        if (operation->has_base && !S_ISDIR(operation->base.mode))
            derive_forget_if_changed(d, operation, operation->base.ctime_ns);
    }
}
