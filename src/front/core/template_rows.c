/* SPDX-License-Identifier: Apache-2.0 */
/* Templates. `place` is the order in which they were made. */
#include "front/store/store.h"

#include <stdio.h>

#include "front/store/db.h"

#define COLUMNS "id, name, owner, spec, workspace, state, bytes, files, created_ms, share_cache"

static int read_template(struct query *q, struct arena *arena, struct store_template *ret,
                         struct err *err)
{
    struct store_template t = {
        .id = query_column_text(q, 0, arena),
        .name = query_column_text(q, 1, arena),
        .owner = query_column_text(q, 2, arena),
        .spec = query_column_text(q, 3, arena),
        .workspace = query_column_text(q, 4, arena),
        .state = query_column_text(q, 5, arena),
        .bytes = query_column_number(q, 6),
        .files = query_column_number(q, 7),
        .created_ms = query_column_number(q, 8),
        .share_cache = query_column_number(q, 9) != 0,
    };

    int rc = query_row_done(q, err);
    if (rc > 0)
        *ret = t;
    return rc;
}

int store_template_add(struct store *store, const struct store_template *t, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_ADD,
                 "INSERT INTO templates (" COLUMNS ") SELECT ?,?2,?,?,?5,?,?,?,?,?"
                 " WHERE NOT EXISTS (SELECT 1 FROM templates WHERE name = ?2"
                 " AND state = 'freezing') AND NOT EXISTS (SELECT 1 FROM workspaces"
                 " WHERE builds = ?2 AND builds <> '' AND deleted_ms = 0 AND id <> ?5)");
    int changed = 0;

    query_text(&q, t->id);
    query_text(&q, t->name);
    query_text(&q, t->owner);
    query_text(&q, t->spec);
    query_text(&q, t->workspace);
    query_text(&q, t->state);
    query_number(&q, t->bytes);
    query_number(&q, t->files);
    query_number(&q, t->created_ms);
    query_number(&q, t->share_cache);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0
                   : err_set(err, ERR_CONFLICT, 0, "another template of that name is being made");
}

int store_template_get(struct store *store, struct arena *arena, const char *id,
                       struct store_template *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_GET, "SELECT " COLUMNS " FROM templates WHERE id = ?");

    query_text(&q, id);
    int rc = query_step(&q, err);
    return rc > 0 ? read_template(&q, arena, ret, err) : rc;
}

int store_template_freezing(struct store *store, struct arena *arena, const char *name,
                            struct store_template *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_FREEZING,
                 "SELECT " COLUMNS " FROM templates WHERE name = ? AND state = 'freezing'");

    query_text(&q, name);
    int rc = query_step(&q, err);
    return rc > 0 ? read_template(&q, arena, ret, err) : rc;
}

int store_template_frozen(struct store *store, struct arena *arena, const char *workspace,
                          struct store_template *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_FROZEN,
                 "SELECT " COLUMNS " FROM templates WHERE workspace = ? AND state = 'freezing'");

    query_text(&q, workspace);
    int rc = query_step(&q, err);
    return rc > 0 ? read_template(&q, arena, ret, err) : rc;
}

int store_template_named(struct store *store, struct arena *arena, const char *name,
                         struct store_template *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_NAMED,
                 "SELECT " COLUMNS " FROM templates WHERE name = ? AND state = 'ready'"
                 " ORDER BY place DESC LIMIT 1");

    query_text(&q, name);
    int rc = query_step(&q, err);
    return rc > 0 ? read_template(&q, arena, ret, err) : rc;
}

/* --- when it is ready --- */

static int run_plain(struct store *store, enum query_name name, const char *sql, struct err *err)
{
    scoped_query struct query q = query_on(store, name, sql);

    return query_run(&q, NULL, err);
}

static int become_ready(struct store *store, const struct store_template *t, struct err *err)
{
    int changed = 0;
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_READY,
                 "UPDATE templates SET state = 'ready', bytes = ?, files = ?"
                 " WHERE id = ? AND state = 'freezing'");

    query_number(&q, t->bytes);
    query_number(&q, t->files);
    query_text(&q, t->id);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_CONFLICT, 0, "the template is no longer being made");
}

static int retire_others(struct store *store, const struct store_template *t, struct err *err)
{
    scoped_query struct query q = query_on(store, QUERY_TEMPLATE_RETIRE_OTHERS,
                                           "UPDATE templates SET state = 'retired'"
                                           " WHERE name = ? AND state = 'ready' AND id <> ?");

    query_text(&q, t->name);
    query_text(&q, t->id);
    return query_run(&q, NULL, err);
}

static int take_workspace(struct store *store, const struct store_template *t, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_TAKE_WORKSPACE, "DELETE FROM workspaces WHERE id = ?");

    query_text(&q, t->workspace);
    return query_run(&q, NULL, err);
}

int store_template_ready(struct store *store, const struct store_template *t, struct err *err)
{
    struct err unused;

    if (run_plain(store, QUERY_TEMPLATE_BEGIN, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    if (become_ready(store, t, err) == 0 && retire_others(store, t, err) == 0 &&
        take_workspace(store, t, err) == 0 &&
        run_plain(store, QUERY_TEMPLATE_COMMIT, "COMMIT", err) == 0)
        return 0;
    (void)run_plain(store, QUERY_TEMPLATE_ROLLBACK, "ROLLBACK", &unused); /* what failed is said */
    return -1;
}

/* --- its end --- */

int store_template_removing(struct store *store, const char *id, struct err *err)
{
    int changed = 0;
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_REMOVING,
                 "UPDATE templates SET state = 'removing' WHERE id = ?1 AND state <> 'freezing'"
                 " AND NOT EXISTS (SELECT 1 FROM workspaces WHERE template = ?1"
                 " AND template <> '')");

    query_text(&q, id);
    return query_run(&q, &changed, err) < 0 ? -1 : changed;
}

int store_template_remove(struct store *store, const char *id, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_REMOVE,
                 "DELETE FROM templates WHERE id = ? AND state IN ('freezing', 'removing')");

    query_text(&q, id);
    return query_run(&q, NULL, err);
}

/* --- lists --- */

/* Part of a list. The query has ended before anybody is called back, so they may use the store. */
struct page {
    struct arena arena;
    struct store_template rows[STORE_PAGE];
    size_t count;
    char after[STORE_ID_MAX + 1];
};

static int read_page(struct store *store, bool unfinished, size_t limit, struct page *page,
                     struct err *err)
{
    scoped_query struct query q =
        unfinished ? query_on(store, QUERY_TEMPLATES_UNFINISHED,
                              "SELECT " COLUMNS " FROM templates WHERE state <> 'ready'"
                              " AND id > ? ORDER BY id LIMIT ?")
                   : query_on(store, QUERY_TEMPLATES,
                              "SELECT " COLUMNS " FROM templates WHERE state = 'ready'"
                              " AND name > ? ORDER BY name LIMIT ?");
    int rc;

    query_text(&q, page->after);
    query_number(&q, limit < STORE_PAGE ? (int64_t)limit : STORE_PAGE);
    page->count = 0;
    while ((rc = query_step(&q, err)) > 0) {
        if (read_template(&q, &page->arena, &page->rows[page->count], err) < 0)
            return -1;
        page->count++;
    }
    return rc;
}

/* False when nobody wants more. */
static bool give_page(struct page *page, bool unfinished,
                      bool (*each)(void *, const struct store_template *), void *context)
{
    for (size_t i = 0; i < page->count; i++)
        if (!each(context, &page->rows[i]))
            return false;
    if (page->count < STORE_PAGE)
        return false;
    const struct store_template *last = &page->rows[page->count - 1];
    snprintf(page->after, sizeof(page->after), "%s", unfinished ? last->id : last->name);
    return true;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the filters of the list */
int store_templates(struct store *store, bool unfinished, const char *after, size_t limit,
                    bool (*each)(void *, const struct store_template *), void *context,
                    struct err *err)
{
    struct page page;

    arena_init(&page.arena, STORE_PAGE_MAX);
    snprintf(page.after, sizeof(page.after), "%s", after ? after : "");
    for (bool more = true; more && limit;) {
        if (read_page(store, unfinished, limit, &page, err) < 0) {
            arena_clear(&page.arena);
            return -1;
        }
        limit -= page.count;
        more = give_page(&page, unfinished, each, context);
        arena_clear(&page.arena);
    }
    return 0;
}

/* --- who uses it --- */

int store_template_users(struct store *store, const char *id, const char *owner, uint64_t *ret,
                         struct err *err)
{
    scoped_query struct query q =
        owner ? query_on(store, QUERY_TEMPLATE_USERS_OF,
                         "SELECT count(*) FROM workspaces WHERE template = ? AND template <> ''"
                         " AND owner = ?")
              : query_on(store, QUERY_TEMPLATE_USERS,
                         "SELECT count(*) FROM workspaces WHERE template = ? AND template <> ''");

    query_text(&q, id);
    if (owner)
        query_text(&q, owner);
    if (query_step(&q, err) < 0)
        return -1;
    *ret = (uint64_t)query_column_number(&q, 0);
    return 0;
}

int store_template_user_names(struct store *store, struct arena *arena, const char *id,
                              const char **ret, size_t most, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_TEMPLATE_USER_NAMES,
                 "SELECT id FROM workspaces WHERE template = ? AND template <> ''"
                 " ORDER BY id LIMIT ?");
    int n = 0;
    int rc;

    query_text(&q, id);
    query_number(&q, (int64_t)most);
    while ((rc = query_step(&q, err)) > 0) {
        ret[n] = query_column_text(&q, 0, arena);
        if (query_row_done(&q, err) < 0)
            return -1;
        n++;
    }
    return rc < 0 ? -1 : n;
}
