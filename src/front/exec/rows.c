/* SPDX-License-Identifier: Apache-2.0 */
/* Commands. `place` is the order in which they were added, and what lists go by. */
#include "front/store/store.h"

#include <string.h>

#include "front/store/db.h"

#define COLUMNS "id, workspace, owner, actor, command, state, result, started_ms, ended_ms, tty"

static int read_exec(struct query *q, struct arena *arena, struct store_exec *ret, struct err *err)
{
    struct store_exec e = {
        .id = query_column_text(q, 0, arena),
        .workspace = query_column_text(q, 1, arena),
        .owner = query_column_text(q, 2, arena),
        .actor = query_column_text(q, 3, arena),
        .command = query_column_text(q, 4, arena),
        .state = query_column_text(q, 5, arena),
        .result = query_column_text(q, 6, arena),
        .started_ms = query_column_number(q, 7),
        .ended_ms = query_column_number(q, 8),
        .tty = query_column_number(q, 9) != 0,
    };

    int rc = query_row_done(q, err);
    if (rc > 0)
        *ret = e;
    return rc;
}

static int run(struct store *store, enum query_name name, const char *sql, struct err *err)
{
    scoped_query struct query q = query_on(store, name, sql);

    return query_run(&q, NULL, err);
}

int store_execs_begin(struct store *store, struct err *err)
{
    return run(store, QUERY_EXECS_BEGIN, "BEGIN IMMEDIATE", err);
}

int store_execs_commit(struct store *store, struct err *err)
{
    struct err unused;

    if (run(store, QUERY_EXECS_COMMIT, "COMMIT", err) == 0)
        return 0;
    (void)run(store, QUERY_EXECS_ROLLBACK, "ROLLBACK", &unused); /* it may be over already */
    return -1;
}

int store_exec_add(struct store *store, const struct store_exec *e, struct err *err)
{
    scoped_query struct query q = query_on(
        store, QUERY_EXEC_ADD, "INSERT INTO execs (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?)");

    query_text(&q, e->id);
    query_text(&q, e->workspace);
    query_text(&q, e->owner);
    query_text(&q, e->actor);
    query_text(&q, e->command);
    query_text(&q, e->state);
    query_text(&q, e->result);
    query_number(&q, e->started_ms);
    query_number(&q, e->ended_ms);
    query_number(&q, e->tty);
    return query_run(&q, NULL, err);
}

int store_exec_end(struct store *store, const char *id, const char *result, int64_t ended_ms,
                   struct err *err)
{
    int changed = 0;
    scoped_query struct query q =
        query_on(store, QUERY_EXEC_END,
                 "UPDATE execs SET state = 'ended', result = ?, ended_ms = ?"
                 " WHERE id = ? AND state = 'running'");

    query_text(&q, result);
    query_number(&q, ended_ms);
    query_text(&q, id);
    return query_run(&q, &changed, err) < 0 ? -1 : changed;
}

int store_exec_get(struct store *store, struct arena *arena, const char *id, struct store_exec *ret,
                   struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_EXEC_GET, "SELECT " COLUMNS " FROM execs WHERE id = ?");

    query_text(&q, id);
    int rc = query_step(&q, err);
    return rc > 0 ? read_exec(&q, arena, ret, err) : rc;
}

/* --- lists --- */

/* Part of a list. The query has ended before anybody is called back, so they may use the store. */
struct page {
    struct arena arena;
    struct store_exec rows[STORE_PAGE];
    size_t count;
    int64_t place; /* of the last row */
};

enum states {
    STATES_ANY,
    STATES_RUNNING,
    STATES_ENDED,
    STATES_COUNT_,
};

static struct query list_query(struct store *store, bool is_of_workspace, enum states states)
{
    static const char *const sql[2][STATES_COUNT_] = {
        {"SELECT " COLUMNS ", place FROM execs WHERE place < ? ORDER BY place DESC LIMIT ?",
         "SELECT " COLUMNS ", place FROM execs WHERE place < ? AND state = 'running'"
         " ORDER BY place DESC LIMIT ?",
         "SELECT " COLUMNS ", place FROM execs WHERE place < ? AND state = 'ended'"
         " ORDER BY place DESC LIMIT ?"},
        {"SELECT " COLUMNS ", place FROM execs WHERE place < ? AND workspace = ?"
         " ORDER BY place DESC LIMIT ?",
         "SELECT " COLUMNS ", place FROM execs WHERE place < ? AND workspace = ?"
         " AND state = 'running' ORDER BY place DESC LIMIT ?",
         "SELECT " COLUMNS ", place FROM execs WHERE place < ? AND workspace = ?"
         " AND state = 'ended' ORDER BY place DESC LIMIT ?"},
    };

    static const enum query_name names[2][STATES_COUNT_] = {
        {QUERY_EXECS, QUERY_EXECS_RUNNING, QUERY_EXECS_ENDED},
        {QUERY_EXECS_OF, QUERY_EXECS_OF_RUNNING, QUERY_EXECS_OF_ENDED},
    };

    return query_on(store, names[is_of_workspace][states], sql[is_of_workspace][states]);
}

static int read_rows(struct query *q, struct page *page, struct err *err)
{
    int rc;

    page->count = 0;
    while ((rc = query_step(q, err)) > 0) {
        if (read_exec(q, &page->arena, &page->rows[page->count], err) < 0)
            return -1;
        page->place = query_column_number(q, 10);
        page->count++;
    }
    return rc;
}

static int read_page(struct store *store, const char *workspace, enum states states, size_t limit,
                     struct page *page, struct err *err)
{
    scoped_query struct query q = list_query(store, workspace != NULL, states);

    query_number(&q, page->place);
    if (workspace)
        query_text(&q, workspace);
    query_number(&q, limit < STORE_PAGE ? (int64_t)limit : STORE_PAGE);
    return read_rows(&q, page, err);
}

/* 1 and where the list begins; 0: what it should begin after is gone. */
static int find_place(struct store *store, const char *before, int64_t *ret, struct err *err)
{
    if (!before || !before[0]) {
        *ret = INT64_MAX;
        return 1;
    }
    scoped_query struct query q =
        query_on(store, QUERY_EXEC_PLACE, "SELECT place FROM execs WHERE id = ?");
    query_text(&q, before);
    int rc = query_step(&q, err);
    if (rc > 0)
        *ret = query_column_number(&q, 0);
    return rc;
}

static int which_states(const char *state, enum states *ret, struct err *err)
{
    if (!state)
        *ret = STATES_ANY;
    else if (strcmp(state, "running") == 0)
        *ret = STATES_RUNNING;
    else if (strcmp(state, "ended") == 0)
        *ret = STATES_ENDED;
    else
        return err_set(err, ERR_INVALID, 0, "a command is 'running' or 'ended'");
    return 0;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the filters of the list */
int store_execs(struct store *store, const char *workspace, const char *state, const char *before,
                size_t limit, bool (*each)(void *, const struct store_exec *), void *context,
                struct err *err)
{
    enum states states = STATES_ANY;
    struct page page;

    if (which_states(state, &states, err) < 0)
        return -1;
    int rc = find_place(store, before, &page.place, err);
    if (rc <= 0)
        return rc;
    arena_init(&page.arena, STORE_PAGE_MAX);
    for (bool more = true; more && limit;) {
        if (read_page(store, workspace, states, limit, &page, err) < 0) {
            arena_clear(&page.arena);
            return -1;
        }
        limit -= page.count;
        more = page.count == STORE_PAGE;
        for (size_t i = 0; i < page.count; i++)
            if (!each(context, &page.rows[i])) {
                more = false;
                break;
            }
        arena_clear(&page.arena);
    }
    return 0;
}

static int read_old(struct store *store, int64_t ended_before_ms, struct page *page,
                    struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_EXECS_OLD,
                 "SELECT " COLUMNS ", place FROM execs WHERE state = 'ended' AND ended_ms < ?"
                 " ORDER BY ended_ms LIMIT ?");

    query_number(&q, ended_before_ms);
    query_number(&q, STORE_PAGE);
    return read_rows(&q, page, err);
}

static int remove_exec(struct store *store, const char *id, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_EXEC_REMOVE, "DELETE FROM execs WHERE id = ?");

    query_text(&q, id);
    return query_run(&q, NULL, err);
}

/* 1: go on, 0: nobody wants more, or there is no more. */
static int forget_page(struct store *store, struct page *page,
                       bool (*each)(void *, const struct store_exec *), void *context,
                       struct err *err)
{
    for (size_t i = 0; i < page->count; i++) {
        if (!each(context, &page->rows[i]))
            return 0;
        if (remove_exec(store, page->rows[i].id, err) < 0)
            return -1;
    }
    return page->count == STORE_PAGE;
}

int store_execs_expire(struct store *store, int64_t ended_before_ms,
                       bool (*each)(void *, const struct store_exec *), void *context,
                       struct err *err)
{
    struct page page;
    int rc;

    arena_init(&page.arena, STORE_PAGE_MAX);
    do {
        rc = read_old(store, ended_before_ms, &page, err);
        if (rc == 0)
            rc = forget_page(store, &page, each, context, err);
        arena_clear(&page.arena);
    } while (rc > 0);
    return rc;
}
