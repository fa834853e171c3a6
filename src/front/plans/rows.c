/* SPDX-License-Identifier: Apache-2.0 */
/* Plans. `place` is the order in which they were made, and what lists go by. */
#include "front/store/store.h"

#include "front/store/db.h"

#define COLUMNS                                                                                    \
    "id, workspace, owner, state, origin, key, actor, principal, exec, hash, details, keep_open,"  \
    " operations, bytes, disk_bytes, created_ms, updated_ms, due_ms, attempts, dropped"

/* States in which somebody still has to do something, or does. */
#define UNDECIDED "('open', 'closed', 'pending', 'approved', 'queued', 'applying', 'undoing')"

enum {
    COLUMN_PLACE = 20
};

/* The column keep_open. */
enum {
    NOT_KEPT,
    KEPT,
    SHARED,
};

static int64_t kept(const struct store_plan *p)
{
    return p->shared ? SHARED : p->keep_open ? KEPT : NOT_KEPT;
}

static int read_plan(struct query *q, struct arena *arena, struct store_plan *ret, struct err *err)
{
    struct store_plan plan = {
        .id = query_column_text(q, 0, arena),
        .workspace = query_column_text(q, 1, arena),
        .owner = query_column_text(q, 2, arena),
        .state = plan_state_from_name(query_column_text(q, 3, arena)),
        .origin = query_column_text(q, 4, arena),
        .key = query_column_text(q, 5, arena),
        .actor = query_column_text(q, 6, arena),
        .principal = query_column_text(q, 7, arena),
        .exec_id = query_column_text(q, 8, arena),
        .hash = query_column_text(q, 9, arena),
        .details = query_column_text(q, 10, arena),
        .keep_open = query_column_number(q, 11) != NOT_KEPT,
        .shared = query_column_number(q, 11) == SHARED,
        .operations = query_column_number(q, 12),
        .bytes = query_column_number(q, 13),
        .disk_bytes = query_column_number(q, 14),
        .created_ms = query_column_number(q, 15),
        .updated_ms = query_column_number(q, 16),
        .due_ms = query_column_number(q, 17),
        .attempts = query_column_number(q, 18),
        .dropped = query_column_number(q, 19) != 0,
    };

    int rc = query_row_done(q, err);
    if (rc > 0)
        *ret = plan;
    return rc;
}

int store_plan_add(struct store *store, const struct store_plan *p, struct err *err)
{
    scoped_query struct query q = query_on(store, QUERY_PLAN_ADD,
                                           "INSERT INTO plans (" COLUMNS
                                           ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    const char *const texts[] = {p->id,      p->workspace, p->owner,  plan_state_name(p->state),
                                 p->origin,  p->key,       p->actor,  p->principal,
                                 p->exec_id, p->hash,      p->details};
    const int64_t numbers[] = {kept(p),       p->operations, p->bytes,
                               p->disk_bytes, p->created_ms, p->updated_ms,
                               p->due_ms,     p->attempts,   p->dropped};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        query_text(&q, texts[i]);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        query_number(&q, numbers[i]);
    return query_run(&q, NULL, err);
}

int store_plan_get(struct store *store, struct arena *arena, const char *id, struct store_plan *ret,
                   struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PLAN_GET, "SELECT " COLUMNS " FROM plans WHERE id = ?");

    query_text(&q, id);
    int rc = query_step(&q, err);
    return rc > 0 ? read_plan(&q, arena, ret, err) : rc;
}

int store_plan_shared(struct store *store, struct arena *arena, const char *workspace,
                      const char *key, struct store_plan *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PLAN_SHARED,
                 "SELECT " COLUMNS " FROM plans WHERE workspace = ? AND key = ? AND state = 'open'"
                 " AND keep_open = 2 LIMIT 1");

    query_text(&q, workspace);
    query_text(&q, key);
    int rc = query_step(&q, err);
    return rc > 0 ? read_plan(&q, arena, ret, err) : rc;
}

int store_plan_change(struct store *store, const struct store_plan *p, enum plan_state was,
                      struct err *err)
{
    int changed = 0;
    scoped_query struct query q = query_on(
        store, QUERY_PLAN_CHANGE,
        "UPDATE plans SET state = ?, exec = ?, hash = ?, details = ?, keep_open = ?,"
        " operations = ?, bytes = ?, disk_bytes = ?, updated_ms = ?, due_ms = ?, attempts = ?"
        " WHERE id = ? AND state = ?");

    query_text(&q, plan_state_name(p->state));
    query_text(&q, p->exec_id);
    query_text(&q, p->hash);
    query_text(&q, p->details);
    query_number(&q, kept(p));
    query_number(&q, p->operations);
    query_number(&q, p->bytes);
    query_number(&q, p->disk_bytes);
    query_number(&q, p->updated_ms);
    query_number(&q, p->due_ms);
    query_number(&q, p->attempts);
    query_text(&q, p->id);
    query_text(&q, plan_state_name(was));
    if (query_run(&q, &changed, err) < 0)
        return -1;
    if (!changed)
        return err_set(err, ERR_CONFLICT, 0, "the plan is no longer '%s'", plan_state_name(was));
    if (p->state == PLAN_APPLIED || p->state == PLAN_UNDONE) {
        struct err unused; /* the row has changed, and says so while it is there */
        (void)store_merge_note(store, p->id, p->state == PLAN_APPLIED, &unused);
    }
    return 0;
}

int store_plan_remove(struct store *store, const char *id, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PLAN_REMOVE, "DELETE FROM plans WHERE id = ?");

    query_text(&q, id);
    return query_run(&q, NULL, err);
}

int store_plan_drop(struct store *store, const char *id, struct err *err)
{
    scoped_query struct query q = query_on(
        store, QUERY_PLAN_DROP, "UPDATE plans SET dropped = 1, disk_bytes = 0 WHERE id = ?");

    query_text(&q, id);
    return query_run(&q, NULL, err);
}

int store_plans_forget(struct store *store, const char *workspace, size_t most, int64_t before_ms,
                       struct err *err)
{
    scoped_query struct query q = query_on(
        store, QUERY_PLANS_FORGET,
        "DELETE FROM plans WHERE workspace = ?1 AND (dropped = 1 OR state = 'discarded')"
        " AND (updated_ms < ?2 OR place <= (SELECT place FROM plans WHERE workspace = ?1"
        " AND (dropped = 1 OR state = 'discarded') ORDER BY place DESC LIMIT 1 OFFSET ?3))");

    query_text(&q, workspace);
    query_number(&q, before_ms);
    query_number(&q, (int64_t)most);
    return query_run(&q, NULL, err);
}

/* --- lists --- */

/* Part of a list. The query has ended before anybody is called back, so they may use the store. */
struct page {
    struct arena arena;
    struct store_plan rows[STORE_PAGE];
    size_t count;
    int64_t place; /* of the last row */
};

static int read_rows(struct query *q, struct page *page, struct err *err)
{
    int rc;

    page->count = 0;
    while ((rc = query_step(q, err)) > 0) {
        if (read_plan(q, &page->arena, &page->rows[page->count], err) < 0)
            return -1;
        page->place = query_column_number(q, COLUMN_PLACE);
        page->count++;
    }
    return rc;
}

static int read_page(struct store *store, const char *workspace, const char *state, size_t limit,
                     struct page *page, struct err *err)
{
    scoped_query struct query q =
        workspace ? query_on(store, QUERY_PLANS_OF,
                             "SELECT " COLUMNS ", place FROM plans WHERE place < ?"
                             " AND (? = '' OR state = ?) AND workspace = ?"
                             " ORDER BY place DESC LIMIT ?")
                  : query_on(store, QUERY_PLANS,
                             "SELECT " COLUMNS ", place FROM plans WHERE place < ?"
                             " AND (? = '' OR state = ?) ORDER BY place DESC LIMIT ?");

    query_number(&q, page->place);
    query_text(&q, state);
    query_text(&q, state);
    if (workspace)
        query_text(&q, workspace);
    query_number(&q, limit < STORE_PAGE ? (int64_t)limit : STORE_PAGE);
    return read_rows(&q, page, err);
}

/* 1 and where the list begins; 0: what it should begin after is gone. */
static int find_place(struct store *store, const char *before, int64_t *ret, struct err *err)
{
    *ret = INT64_MAX;
    if (!before || !before[0])
        return 1;
    scoped_query struct query q =
        query_on(store, QUERY_PLAN_PLACE, "SELECT place FROM plans WHERE id = ?");
    query_text(&q, before);
    int rc = query_step(&q, err);
    if (rc > 0)
        *ret = query_column_number(&q, 0);
    return rc;
}

/* False when nobody wants more. */
static bool give_page(const struct page *page, bool (*each)(void *, const struct store_plan *),
                      void *context)
{
    for (size_t i = 0; i < page->count; i++)
        if (!each(context, &page->rows[i]))
            return false;
    return page->count == STORE_PAGE;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the filters of the list */
int store_plans(struct store *store, const char *workspace, const char *state, const char *before,
                size_t limit, bool (*each)(void *, const struct store_plan *), void *context,
                struct err *err)
{
    struct page page;
    int rc = find_place(store, before, &page.place, err);

    if (rc <= 0)
        return rc;
    arena_init(&page.arena, STORE_PAGE_MAX);
    for (bool more = true; more && limit;) {
        if (read_page(store, workspace, state, limit, &page, err) < 0) {
            arena_clear(&page.arena);
            return -1;
        }
        limit -= page.count;
        more = give_page(&page, each, context);
        arena_clear(&page.arena);
    }
    return 0;
}

static int read_due(struct store *store, int64_t now_ms, struct page *page, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PLANS_DUE,
                 "SELECT " COLUMNS ", place FROM plans WHERE place IN (SELECT min(place)"
                 " FROM plans WHERE due_ms > 0 AND due_ms <= ? GROUP BY workspace)"
                 " AND place > ? ORDER BY place LIMIT ?");

    query_number(&q, now_ms);
    query_number(&q, page->place);
    query_number(&q, STORE_PAGE);
    return read_rows(&q, page, err);
}

int store_plans_due(struct store *store, int64_t now_ms,
                    bool (*each)(void *, const struct store_plan *), void *context, struct err *err)
{
    struct page page = {.place = 0};
    bool more = true;
    int rc = 0;

    arena_init(&page.arena, STORE_PAGE_MAX);
    while (more && rc == 0) {
        rc = read_due(store, now_ms, &page, err);
        more = rc == 0 && give_page(&page, each, context);
        arena_clear(&page.arena);
    }
    return rc;
}

int store_plan_undecided(struct store *store, struct arena *arena, const char *workspace,
                         struct store_plan *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PLANS_UNDECIDED,
                 "SELECT " COLUMNS " FROM plans WHERE workspace = ? AND state IN " UNDECIDED
                 " ORDER BY place DESC LIMIT 1");

    query_text(&q, workspace);
    int rc = query_step(&q, err);
    return rc > 0 ? read_plan(&q, arena, ret, err) : rc;
}

int store_plans_count_undecided(struct store *store, const char *workspace, const char *key,
                                struct store_undecided *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PLANS_COUNT,
                 "SELECT count(*), total(max(bytes, disk_bytes)) FROM plans WHERE workspace = ?"
                 " AND (? = 0 OR key = ?) AND state IN " UNDECIDED);

    *ret = (struct store_undecided){.plans = 0};
    query_text(&q, workspace);
    query_number(&q, key != NULL);
    query_text(&q, key ? key : "");
    int rc = query_step(&q, err);
    if (rc > 0) {
        ret->plans = (size_t)query_column_number(&q, 0);
        ret->bytes = (uint64_t)query_column_number(&q, 1);
    }
    return rc < 0 ? -1 : 0;
}

static int read_over(struct store *store, const char *workspace, struct page *page, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PLANS_OVER,
                 "SELECT id, workspace, owner, state, origin, key, actor, principal, exec, hash,"
                 " '{}', keep_open, operations, bytes, disk_bytes, created_ms, updated_ms, due_ms,"
                 " attempts, dropped, place FROM plans WHERE place < ? AND workspace = ?"
                 " AND dropped = 0 AND state IN ('applied', 'undone', 'rejected', 'expired',"
                 " 'failed', 'stale') ORDER BY place DESC LIMIT ?");

    query_number(&q, page->place);
    query_text(&q, workspace);
    query_number(&q, STORE_PAGE);
    return read_rows(&q, page, err);
}

int store_plans_over(struct store *store, const char *workspace,
                     bool (*each)(void *, const struct store_plan *), void *context,
                     struct err *err)
{
    struct page page = {.place = INT64_MAX};
    bool more = true;
    int rc = 0;

    arena_init(&page.arena, STORE_PAGE_MAX);
    while (more && rc == 0) {
        rc = read_over(store, workspace, &page, err);
        more = rc == 0 && give_page(&page, each, context);
        arena_clear(&page.arena);
    }
    return rc;
}
