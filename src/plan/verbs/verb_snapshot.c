/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs about the snapshots of a workspace; the directory they are given is that of all of
 * them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "plan/core/verbs.h"
#include "plan/trees/kept.h"
#include "plan/trees/snapshot.h"
#include "plan/trees/version.h"
#include "sys/path.h"

/* 1: both hold the same; 0; -1. */
static int is_same(int dir, const char *one, const char *other, struct err *err)
{
    scoped_fd int home = path_open_beneath(dir, one, O_RDONLY | O_DIRECTORY, 1);
    scoped_fd int other_home = path_open_beneath(dir, other, O_RDONLY | O_DIRECTORY, 1);
    scoped_fd int tree = -1;
    scoped_fd int other_tree = -1;
    struct version a = {.root = -1};
    struct version b = {.root = -1};
    json_t *unused = json_array();
    size_t count = 0;
    int r = home < 0 || other_home < 0
                ? err_set(err, ERR_IO, home < 0 ? -home : -other_home, "open a snapshot")
                : version_read_kept(&a, home, &tree, err);

    if (r == 0)
        r = version_read_kept(&b, other_home, &other_tree, err);
    if (r == 0)
        r = version_diff(&a, &b, 0, unused, &count, err);
    version_clear(&a);
    version_clear(&b);
    json_decref(unused);
    return r < 0 ? -1 : count == 0;
}

/* Where nothing has changed since the one before it, the new one goes again: 1; 0; -1. */
static int drop_if_same(int dir, const char *id, struct err *err)
{
    static struct kept_list list; /* of this process, which does one thing at a time */
    int same = kept_read(&list, dir, err);

    if (same == 0 && list.count > 1)
        same = is_same(dir, list.at[list.count - 2].id, id, err);
    if (same > 0 && kept_remove(dir, id, err) < 0)
        same = -1;
    kept_clear(&list);
    return same;
}

/* Those of its kind that are too many, or that nobody needs. */
struct drop {
    int changed; /* it is kept only where something has changed since the last one */
    int most;    /* of its kind, with it; 0: it alone */
    const json_t *kept;
};

/* Before it, so that there is room; unless it may come to nothing. */
static int make(int dir, const struct snapshot_wish *wish, const struct drop *drop, json_t **meta,
                struct err *err)
{
    size_t before = drop->most > 0 ? (size_t)drop->most - 1 : 0;

    if (drop->kept && !drop->changed && kept_drop(dir, wish->why, before, drop->kept, err) < 0)
        return -1;
    if (snapshot_make(wish, meta, err) < 0)
        return -1;
    int same = drop->changed ? drop_if_same(dir, wish->id, err) : 0;
    if (same > 0)
        json_object_set_new(*meta, "unchanged", json_true());
    if (same == 0 && drop->kept && drop->changed &&
        kept_drop(dir, wish->why, (size_t)drop->most, drop->kept, err) < 0)
        same = -1;
    if (same < 0)
        json_decref(*meta);
    return same < 0 ? -1 : 0;
}

int verb_snapshot(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct snapshot_wish wish = {
        .dir = call->dir, .base = call->base, .layer = call->theirs, .name = "", .why = "asked"};
    scoped_fd int tree = path_open_beneath(call->tree, ".", O_RDONLY | O_DIRECTORY, 1);
    struct drop drop = {0};
    json_t *meta = NULL;
    int privileged = 0;

    if (verb_read(call, err, "{s:s, s?s, s:s, s?s, s?b, s?b, s?{s:i, s:o}}", "id", &wish.id, "name",
                  &wish.name, "actor", &wish.actor, "why", &wish.why, "privileged", &privileged,
                  "changed", &drop.changed, "drop", "most", &drop.most, "kept", &drop.kept) < 0)
        return -1;
    if (tree < 0)
        return err_set(err, ERR_IO, -tree, "open the workspace's directory");
    if (drop.most < 0)
        return err_set(err, ERR_INVALID, 0, "the job: 'most' is a number");
    wish.tree = tree;
    wish.privileged = privileged;
    if (make(call->dir, &wish, &drop, &meta, err) < 0)
        return -1;
    int r = json_object_update(answer, meta);
    json_decref(meta);
    return r < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "tell about the snapshot") : 0;
}

static int tell(const struct kept_list *list, json_t *answer, struct err *err)
{
    json_t *all = json_array();

    for (size_t i = 0; i < list->count; i++)
        json_array_append(all, list->at[i].meta);
    if (json_array_size(all) == list->count && json_object_set_new(answer, "snapshots", all) == 0)
        return 0;
    return err_set(err, ERR_LIMIT, ENOMEM, "list the snapshots");
}

/* The one that is found by its id or name, and what becomes of it. */
static int work_on(const struct verb_call *call, const struct kept_list *list, const char *word,
                   bool removes, json_t *answer, struct err *err)
{
    const struct kept *one = kept_find(list, word);

    if (!one)
        return err_set(err, ERR_NOT_FOUND, 0, "the workspace has no snapshot '%.80s'", word);
    if (json_object_set(answer, "snapshot", one->meta) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "tell about the snapshot");
    return removes ? kept_remove(call->dir, one->id, err) : 0;
}

int verb_snapshots(const struct verb_call *call, json_t *answer, struct err *err)
{
    static struct kept_list list;
    const char *find = NULL;
    const char *remove = NULL;

    if (verb_read(call, err, "{s?s, s?s}", "find", &find, "remove", &remove) < 0 ||
        kept_read(&list, call->dir, err) < 0)
        return -1;
    int r = remove ? work_on(call, &list, remove, true, answer, err)
            : find ? work_on(call, &list, find, false, answer, err)
                   : tell(&list, answer, err);
    kept_clear(&list);
    return r;
}
