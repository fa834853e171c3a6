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
#include "sys/path.h"

int verb_snapshot(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct snapshot_wish wish = {
        .dir = call->dir, .base = call->base, .layer = call->theirs, .name = "", .why = "asked"};
    scoped_fd int tree = path_open_beneath(call->tree, ".", O_RDONLY | O_DIRECTORY, 1);
    json_t *meta = NULL;
    int privileged = 0;
    int most = 0;
    const json_t *kept = NULL;

    if (verb_read(call, err, "{s:s, s?s, s:s, s?s, s?b, s?{s:i, s:o}}", "id", &wish.id, "name",
                  &wish.name, "actor", &wish.actor, "why", &wish.why, "privileged", &privileged,
                  "drop", "most", &most, "kept", &kept) < 0)
        return -1;
    if (tree < 0)
        return err_set(err, ERR_IO, -tree, "open the workspace's directory");
    wish.tree = tree;
    wish.privileged = privileged;
    /* Before it: else there could be too many. The new one is none of them yet. */
    if (kept && kept_drop(call->dir, wish.why, most > 0 ? (size_t)most - 1 : 0, kept, err) < 0)
        return -1;
    if (snapshot_make(&wish, &meta, err) < 0)
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
