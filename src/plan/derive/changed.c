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
 * changed, too. A file that was there before the copy was made, but by another name, is known by
 * its handle. A directory that moves or gets a mode takes along what has been put into it. Where
 * the file system keeps no birth, nothing is known. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "plan/core/tree_digest.h"
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

/* --- replaced --- */

enum {
    MOST_LOOKS = 1000000, /* at files of the base: beyond, nothing more is taken for replaced */
};

struct hunt {
    const struct deriving *d;
    struct origin wanted;
    size_t looks; /* of all hunts */
    bool found;
};

static void look_at(struct hunt *hunt, const char *path)
{
    hunt->looks++;
    hunt->found = hunt->found || derive_is_origin(hunt->d, path, &hunt->wanted);
}

static int visit(void *context, struct plan_entry *entry, struct err *err)
{
    struct hunt *hunt = context;

    (void)err;
    entry->skip_below = hunt->found || hunt->looks >= MOST_LOOKS;
    if (S_ISREG(entry->st->st_mode) && !entry->skip_below)
        look_at(hunt, entry->path);
    return 0;
}

/* Whether the copy was made of another file that the plan moves or deletes, as it then may lie in
 * the place of this one: where its name was, an operation takes it away. */
static bool is_moved_here(struct hunt *hunt)
{
    const struct deriving *d = hunt->d;
    struct err ignored;

    hunt->found = false;
    for (size_t i = 0; i < d->plan->count && !hunt->found && hunt->looks < MOST_LOOKS; i++) {
        const struct plan_operation *o = &d->plan->operations[i];
        const char *path = o->has_base ? plan_base_path(o) : NULL;
        struct plan_walk walk = {
            .root = d->how->tree, .top = path, .visit = visit, .context = hunt};
        if (path && S_ISREG(o->base.mode))
            look_at(hunt, path);
        else if (path && S_ISDIR(o->base.mode) && o->kind == PLAN_DELETE &&
                 plan_walk(&walk, &ignored) < 0)
            return true; /* nobody knows */
    }
    return hunt->found || hunt->looks >= MOST_LOOKS;
}

static bool has_one_name(const struct deriving *d, const char *path)
{
    scoped_fd int fd = path_open_beneath(d->how->tree, path, O_PATH, 1);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink == 1;
}

/* A file that is older than the copy can have come to the place all the same, by a rename: the
 * command that had read what was there before changes that. The copy says of which file it is, if
 * that had a name left; if it had none, what has no data of its own cannot be of the one that is
 * there. What has data may be new just as well, and nothing is known. */
static bool is_replaced(struct hunt *hunt, const struct plan_operation *operation)
{
    const struct deriving *d = hunt->d;
    const struct layer_entry *entry = d->how->privileged ? entry_of(d, operation) : NULL;
    const char *base = plan_base_path(operation);

    if (!entry || !base || entry->type != LAYER_FILE || entry->shared ||
        !S_ISREG(operation->base.mode))
        return false;
    derive_origin(d->layer.upper, entry->path, &hunt->wanted);
    if (hunt->wanted.is_absent)
        return entry->empty && has_one_name(d, base);
    return hunt->wanted.n > 0 && !derive_is_origin(d, base, &hunt->wanted) && !is_moved_here(hunt);
}

void derive_forget_changed(const struct deriving *d)
{
    struct hunt hunt = {.d = d};

    for (size_t i = 0; i < d->plan->count; i++) {
        struct plan_operation *operation = &d->plan->operations[i];
        if (!operation->has_base || S_ISDIR(operation->base.mode))
            continue;
        derive_forget_if_changed(d, operation, operation->base.ctime_ns);
        if (operation->base.ino != PLAN_FORGOTTEN && is_replaced(&hunt, operation))
            operation->base.ino = PLAN_FORGOTTEN;
    }
}
