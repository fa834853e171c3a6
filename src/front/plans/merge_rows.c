/* SPDX-License-Identifier: Apache-2.0 */
/* Merges of forks, by their plans: which snapshot of the fork each was made of. While that is in
 * the tree, the next merge begins from it. */
#include <errno.h>

#include "front/store/store.h"

#include "front/store/db.h"

/* The row of the plan says whether it is applied, while it is there and has not been given up. */
#define WITH_PLANS "merges m LEFT JOIN plans p ON p.id = m.plan"
#define APPLIED                                                                                    \
    "CASE WHEN p.id IS NULL OR p.state = 'discarded' THEN m.applied ELSE p.state = 'applied' END"
#define MAY_BE                                                                                     \
    "coalesce(p.state IN ('closed', 'pending', 'approved', 'queued', 'applying', 'undoing'), 0)"

int store_merge_add(struct store *store, const struct store_merge *m, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_MERGE_ADD,
                 "INSERT INTO merges (plan, fork, target, snapshot, applied) VALUES (?,?,?,?,0)");

    query_text(&q, m->plan);
    query_text(&q, m->fork);
    query_text(&q, m->into);
    query_text(&q, m->snapshot);
    return query_run(&q, NULL, err);
}

int store_merge_note(struct store *store, const char *plan, bool is_applied, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_MERGE_NOTE, "UPDATE merges SET applied = ? WHERE plan = ?");

    query_number(&q, is_applied);
    query_text(&q, plan);
    return query_run(&q, NULL, err);
}

int store_merge_tidy(struct store *store, const char *fork, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_MERGE_TIDY,
                 "DELETE FROM merges WHERE place IN (SELECT m.place FROM " WITH_PLANS
                 " WHERE m.fork = ? AND NOT (" APPLIED ") AND NOT " MAY_BE ")");

    query_text(&q, fork);
    return query_run(&q, NULL, err);
}

int store_merge_base(struct store *store, struct arena *arena, const char *fork, const char *into,
                     const char **ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_MERGE_BASE,
                 "SELECT m.snapshot FROM " WITH_PLANS " WHERE m.fork = ? AND m.target = ? AND "
                 "(" APPLIED ") ORDER BY m.place DESC LIMIT 1");

    query_text(&q, fork);
    query_text(&q, into);
    int rc = query_step(&q, err);
    if (rc <= 0)
        return rc;
    *ret = query_column_text(&q, 0, arena);
    return query_row_done(&q, err);
}

int store_merge_snapshots(struct store *store, struct arena *arena, const char *fork,
                          void (*each)(void *context, const char *snapshot), void *context,
                          struct err *err)
{
    scoped_query struct query q = query_on(store, QUERY_MERGE_SNAPSHOTS,
                                           "SELECT DISTINCT snapshot FROM merges WHERE fork = ?");
    int rc;

    query_text(&q, fork);
    while ((rc = query_step(&q, err)) > 0) {
        const char *snapshot = query_column_text(&q, 0, arena);
        if (!snapshot)
            return err_set(err, ERR_LIMIT, ENOMEM, "list the merges of a fork");
        each(context, snapshot);
    }
    return rc;
}
