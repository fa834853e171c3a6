/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trees/layered.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/plan.h"
#include "plan/derive/layer.h"
#include "sys/path.h"

struct walking {
    const struct layered *how;
    struct layer_scan layer;
    size_t *open; /* directories that the walk is in: entries of the layer */
    size_t depth;
};

static int fail(int r, const char *path, struct err *err)
{
    if (r == -EACCES || r == -EPERM)
        return err_set(err, ERR_DENIED, -r, "the owner of the fork may not read '%.300s'", path);
    return err_set(err, r == -ESTALE ? ERR_CONFLICT : ERR_IO, r == -ESTALE ? 0 : -r,
                   "read '%.300s' of the fork", path);
}

enum {
    PATH_ROOM = PLAN_MAX_PATH + 2,
};

static int join(char ret[PATH_ROOM], const char *above, const char *name, struct err *err)
{
    bool slash = *above && *name;

    if (strlen(above) + slash + strlen(name) > PLAN_MAX_PATH)
        return err_set(err, ERR_LIMIT, 0, "'%.200s...' is a longer path than %d bytes", above,
                       PLAN_MAX_PATH);
    snprintf(ret, PATH_ROOM, "%s%s%s", above, slash ? "/" : "", name);
    return 0;
}

static int compare_to_entry(const void *path, const void *entry)
{
    return plan_compare_paths(path, ((const struct layer_entry *)entry)->path);
}

static bool has_own(const struct walking *w, const char *path)
{
    return w->layer.count > 0 && bsearch(path, w->layer.entries, w->layer.count,
                                         sizeof(w->layer.entries[0]), compare_to_entry);
}

/* --- what is seen of the snapshot --- */

/* Entries of its directory `from` that is `path` here; what the layer has of the same name, also as
 * deleted, comes by that. */
static int take_below(const struct walking *w, const char *from, const char *path, struct err *err)
{
    char name[PATH_ROOM];
    char here[PATH_ROOM];
    struct tree_walk walk;
    struct tree_entry e = {.path = ""};
    int next = 1;
    scoped_fd int top =
        path_open_beneath(w->how->base, *from ? from : ".", O_RDONLY | O_DIRECTORY, 1);

    if (top < 0)
        return fail(top, path, err);
    int r = tree_walk_begin(&walk, top, TREE_ONE_MOUNT | TREE_STAT | TREE_POST);
    if (r < 0)
        r = fail(r, path, err);
    while (r == 0 && (next = tree_walk_next(&walk, &e)) != 0) {
        if (next < 0)
            r = fail(next, e.path ? e.path : path, err);
        else if (join(name, from, e.path, err) < 0 || join(here, path, e.path, err) < 0)
            r = -1;
        if (r < 0)
            break;
        if (e.depth == 1 && (has_own(w, here) || plan_is_reserved(here))) {
            if (e.is_dir && !e.after)
                tree_walk_skip(&walk);
            continue;
        }
        e.dir = w->how->base;
        e.name = name;
        e.path = here;
        r = w->how->take(w->how->context, &e, err);
    }
    tree_walk_end(&walk);
    return r;
}

/* --- what the layer has --- */

static int take_own(const struct walking *w, const struct layer_entry *entry, bool after,
                    struct err *err)
{
    struct tree_entry e = {.dir = w->layer.upper,
                           .name = entry->path,
                           .path = entry->path,
                           .depth = 1,
                           .is_dir = entry->type == LAYER_DIRECTORY,
                           .after = after};
    scoped_fd int fd = path_open_beneath(w->layer.upper, entry->path, O_PATH | O_NOFOLLOW, 1);

    for (const char *at = entry->path; *at; at++)
        e.depth += *at == '/';
    if (fd < 0 || fstat(fd, &e.st) < 0)
        return fail(fd < 0 ? fd : -errno, entry->path, err);
    if (e.is_dir) /* it may be open to us for the moment */
        e.st.st_mode = entry->st.mode;
    return w->how->take(w->how->context, &e, err);
}

/* Only its mode was changed: content and the rest are the snapshot's. */
static int take_changed_mode(const struct walking *w, const struct layer_entry *entry,
                             struct err *err)
{
    struct tree_entry e = {
        .dir = w->how->base, .name = entry->from, .path = entry->path, .depth = 1, .is_dir = false};
    scoped_fd int fd = path_open_beneath(w->how->base, entry->from, O_PATH | O_NOFOLLOW, 1);

    if (fd < 0 || fstat(fd, &e.st) < 0)
        return fail(fd < 0 ? fd : -errno, entry->path, err);
    e.st.st_mode = S_IFREG | (entry->st.mode & 07777);
    return w->how->take_with_mode(w->how->context, &e, err);
}

static const struct layer_entry *last_open(const struct walking *w)
{
    return &w->layer.entries[w->open[w->depth - 1]];
}

static int leave_to(struct walking *w, const char *path, struct err *err)
{
    while (w->depth > 0 && (!path || !plan_is_below(path, last_open(w)->path))) {
        const struct layer_entry *left = last_open(w);
        w->depth--;
        if (take_own(w, left, true, err) < 0)
            return -1;
    }
    return 0;
}

static int take_entry(struct walking *w, const struct layer_entry *entry, struct err *err)
{
    if (leave_to(w, entry->path, err) < 0)
        return -1;
    if (entry->type == LAYER_WHITEOUT)
        return 0;
    if (entry->type == LAYER_FILE && entry->empty)
        return take_changed_mode(w, entry, err);
    if (take_own(w, entry, false, err) < 0)
        return -1;
    if (entry->type != LAYER_DIRECTORY)
        return 0;
    w->open[w->depth++] = (size_t)(entry - w->layer.entries);
    return entry->from ? take_below(w, entry->from, entry->path, err) : 0;
}

/* Pipes, sockets and devices are nothing without who made them; anything else is told. */
static int check_flaws(const struct plan *flaws, struct err *err)
{
    for (size_t i = 0; i < flaws->flaw_count; i++) {
        if (flaws->flaws[i].kind == PLAN_FLAW_LOST)
            return err_set(err, ERR_IO, 0, "the layer of the fork is damaged at '%.300s'",
                           flaws->flaws[i].path);
    }
    return 0;
}

/* Nothing has run in it yet: it has none. */
static bool has_layer(int layer)
{
    scoped_fd int upper = path_open_beneath(layer, "upper", O_PATH | O_DIRECTORY, 1);

    return upper != -ENOENT;
}

int layered_walk(const struct layered *l, struct err *err)
{
    struct walking w = {.how = l};
    const struct plan_derivation how = {
        .tree = l->base, .dir = l->layer, .privileged = l->privileged};
    struct plan flaws;

    plan_init(&flaws);
    w.layer.upper = -1;
    int r = has_layer(l->layer) ? layer_read(&w.layer, &how, &flaws, err) : 0;
    if (r == 0)
        r = check_flaws(&flaws, err);
    if (r == 0 && !(w.open = reallocarray(NULL, w.layer.count + 1, sizeof(w.open[0]))))
        r = err_set(err, ERR_LIMIT, ENOMEM, "read the layer of the fork");
    if (r == 0)
        r = take_below(&w, "", "", err);
    for (size_t i = 0; r == 0 && i < w.layer.count; i++)
        r = take_entry(&w, &w.layer.entries[i], err);
    if (r == 0)
        r = leave_to(&w, NULL, err);
    free(w.open);
    layer_clear(&w.layer);
    plan_clear(&flaws);
    return r;
}
