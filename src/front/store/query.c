/* SPDX-License-Identifier: Apache-2.0 */
#include "front/store/db.h"

#include <errno.h>
#include <string.h>

struct query query_on(struct store *store, enum query_name name, const char *sql)
{
    struct query q = {.db = name < QUERY_EXEC_ADD ? store->durable : store->quick};

    if (!store->queries[name])
        q.rc = sqlite3_prepare_v3(q.db, sql, -1, SQLITE_PREPARE_PERSISTENT, &store->queries[name],
                                  NULL);
    q.stmt = store->queries[name];
    return q;
}

static void note(struct query *q, int rc)
{
    if (q->rc == SQLITE_OK)
        q->rc = rc;
}

void query_text(struct query *q, const char *text)
{
    /* The text outlives the step, and query_end lets go of it. */
    if (q->rc == SQLITE_OK)
        note(q, sqlite3_bind_text(q->stmt, ++q->bound, text ? text : "", -1, SQLITE_STATIC));
}

void query_number(struct query *q, int64_t number)
{
    if (q->rc == SQLITE_OK)
        note(q, sqlite3_bind_int64(q->stmt, ++q->bound, number));
}

int query_step(struct query *q, struct err *err)
{
    if (q->rc == SQLITE_OK) {
        int rc = sqlite3_step(q->stmt);
        if (rc == SQLITE_ROW)
            return 1;
        if (rc == SQLITE_DONE)
            return 0;
        q->rc = rc;
    }
    return db_fail(q->db, q->rc, err);
}

int query_run(struct query *q, int *ret_changed, struct err *err)
{
    int rc = query_step(q, err);

    if (rc == 0 && ret_changed)
        *ret_changed = sqlite3_changes(q->db);
    return rc < 0 ? -1 : 0;
}

const char *query_column_text(struct query *q, int column, struct arena *arena)
{
    const char *text = (const char *)sqlite3_column_text(q->stmt, column);
    char *copy =
        text ? arena_copy(arena, text, (size_t)sqlite3_column_bytes(q->stmt, column)) : NULL;

    q->is_short |= !copy;
    return copy;
}

int64_t query_column_number(struct query *q, int column)
{
    return sqlite3_column_int64(q->stmt, column);
}

int query_row_done(const struct query *q, struct err *err)
{
    return q->is_short ? err_set(err, ERR_LIMIT, ENOMEM, "read from the database") : 1;
}

void query_end(struct query *q)
{
    if (!q->stmt)
        return;
    (void)sqlite3_reset(q->stmt); /* repeats what the step has said already */
    (void)sqlite3_clear_bindings(q->stmt);
}
