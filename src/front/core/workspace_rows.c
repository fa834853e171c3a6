/* SPDX-License-Identifier: Apache-2.0 */
#include "front/store/store.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "front/store/db.h"

#define COLUMNS                                                                                    \
    "id, owner, bucket, policy, links, labels, created_ms, updated_ms, deleted_ms, trash, "        \
    "template, builds, lifetime, token, ends_ms, store, base"

enum {
    BASE_ROOM = 160, /* "WORKSPACE/SNAPSHOT" */
};

static const size_t texts[] = {
    offsetof(struct store_workspace, id),     offsetof(struct store_workspace, owner),
    offsetof(struct store_workspace, bucket), offsetof(struct store_workspace, policy),
    offsetof(struct store_workspace, links),  offsetof(struct store_workspace, labels),
    offsetof(struct store_workspace, trash),  offsetof(struct store_workspace, template),
    offsetof(struct store_workspace, builds), offsetof(struct store_workspace, lifetime),
    offsetof(struct store_workspace, token),  offsetof(struct store_workspace, store),
    offsetof(struct store_workspace, base),
};

static const struct cache_kind kind = {.size = sizeof(struct store_workspace),
                                       .name = offsetof(struct store_workspace, id),
                                       .texts = texts,
                                       .count = sizeof(texts) / sizeof(texts[0])};

static int read_workspace(struct query *q, struct arena *arena, struct store_workspace *ret,
                          struct err *err)
{
    struct store_workspace w = {
        .id = query_column_text(q, 0, arena),
        .owner = query_column_text(q, 1, arena),
        .bucket = query_column_text(q, 2, arena),
        .policy = query_column_text(q, 3, arena),
        .links = query_column_text(q, 4, arena),
        .labels = query_column_text(q, 5, arena),
        .created_ms = query_column_number(q, 6),
        .updated_ms = query_column_number(q, 7),
        .deleted_ms = query_column_number(q, 8),
        .trash = query_column_text(q, 9, arena),
        .template = query_column_text(q, 10, arena),
        .builds = query_column_text(q, 11, arena),
        .lifetime = query_column_text(q, 12, arena),
        .token = query_column_text(q, 13, arena),
        .ends_ms = query_column_number(q, 14),
        .store = query_column_text(q, 15, arena),
        .base = query_column_text(q, 16, arena),
    };

    int rc = query_row_done(q, err);
    if (rc > 0)
        *ret = w;
    return rc;
}

int store_workspace_add(struct store *store, const struct store_workspace *w, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_ADD,
                 "INSERT INTO workspaces (" COLUMNS ") SELECT ?,?,?,?,?,?,?,?,?,?,?11,?12,?13,?14,"
                 " ?15, ?16, ?17"
                 " WHERE ?11 = '' OR EXISTS (SELECT 1 FROM templates WHERE id = ?11"
                 " AND state IN ('ready', 'retired'))");
    int changed = 0;

    query_text(&q, w->id);
    query_text(&q, w->owner);
    query_text(&q, w->bucket);
    query_text(&q, w->policy);
    query_text(&q, w->links);
    query_text(&q, w->labels);
    query_number(&q, w->created_ms);
    query_number(&q, w->updated_ms);
    query_number(&q, w->deleted_ms);
    query_text(&q, w->trash);
    query_text(&q, w->template);
    query_text(&q, w->builds ? w->builds : "");
    query_text(&q, w->lifetime);
    query_text(&q, w->token);
    query_number(&q, w->ends_ms);
    query_text(&q, w->store ? w->store : "");
    query_text(&q, w->base ? w->base : "");
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, 0, "the template has just been deleted");
}

int store_workspace_get(struct store *store, struct arena *arena, const char *id,
                        struct store_workspace *ret, struct err *err)
{
    if (cache_find(store, &store->workspaces, &kind, id, arena, ret))
        return 1;
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_GET, "SELECT " COLUMNS " FROM workspaces WHERE id = ?");
    query_text(&q, id);
    int rc = query_step(&q, err);
    if (rc > 0)
        rc = read_workspace(&q, arena, ret, err);
    if (rc > 0)
        cache_keep(store, &store->workspaces, &kind, ret);
    return rc;
}

/* No row was as it should have been: there is none, or somebody else has changed it before. */
static int unchanged(struct store *store, const char *id, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_GET, "SELECT " COLUMNS " FROM workspaces WHERE id = ?");

    query_text(&q, id);
    int rc = query_step(&q, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, 0, "there is no such workspace");
    return err_set(err, ERR_CONFLICT, 0,
                   "another request has just changed the workspace; try again");
}

int store_workspace_update(struct store *store, const struct store_workspace *w, struct err *err)
{
    int changed = 0;
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_UPDATE,
                 "UPDATE workspaces SET policy = ?, links = ?, labels = ?, lifetime = ?,"
                 " token = ?, ends_ms = ?, updated_ms = ?, store = ?"
                 " WHERE id = ? AND deleted_ms = 0");

    query_text(&q, w->policy);
    query_text(&q, w->links);
    query_text(&q, w->labels);
    query_text(&q, w->lifetime);
    query_text(&q, w->token);
    query_number(&q, w->ends_ms);
    query_number(&q, w->updated_ms);
    query_text(&q, w->store ? w->store : "");
    query_text(&q, w->id);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : unchanged(store, w->id, err);
}

int store_workspace_move(struct store *store, const struct store_workspace *w,
                         int64_t was_deleted_ms, struct err *err)
{
    int changed = 0;
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_MOVE,
                 "UPDATE workspaces SET deleted_ms = ?, trash = ?, updated_ms = ?,"
                 " builds = iif(deleted_ms > 0, '', builds) WHERE id = ? AND deleted_ms = ?");

    query_number(&q, w->deleted_ms);
    query_text(&q, w->trash);
    query_number(&q, w->updated_ms);
    query_text(&q, w->id);
    query_number(&q, was_deleted_ms);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : unchanged(store, w->id, err);
}

int store_workspace_remove(struct store *store, const char *id, struct err *err)
{
    int changed = 0;
    scoped_query struct query q = /* its commands go with it: ON DELETE CASCADE */
        query_on(store, QUERY_WORKSPACE_REMOVE,
                 "DELETE FROM workspaces WHERE id = ? AND deleted_ms <> 0");

    query_text(&q, id);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : unchanged(store, id, err);
}

/* Part of a list. The query has ended before anybody is called back, so they may use the store. */
struct page {
    struct arena arena;
    struct store_workspace rows[STORE_PAGE];
    size_t count;
    char after[STORE_ID_MAX + 1];
};

#define LIST     "SELECT " COLUMNS " FROM workspaces WHERE deleted_ms "
#define OF_OWNER " AND id > ?1 AND owner = ?2"
#define AMONG    " AND EXISTS (SELECT 1 FROM among WHERE workspaces.id GLOB among.value)"
#define WITH     "WITH among AS MATERIALIZED (SELECT value FROM json_each(?3)) "
#define IN_ORDER " ORDER BY id LIMIT ?4"

static const struct {
    enum query_name name;
    const char *sql;
} lists[2][3] = {
    {{QUERY_WORKSPACES, LIST "= 0 AND id > ?1" IN_ORDER},
     {QUERY_WORKSPACES_OF, LIST "= 0" OF_OWNER IN_ORDER},
     {QUERY_WORKSPACES_AMONG, WITH LIST "= 0" OF_OWNER AMONG IN_ORDER}},
    {{QUERY_TRASH, LIST "<> 0 AND id > ?1" IN_ORDER},
     {QUERY_TRASH_OF, LIST "<> 0" OF_OWNER IN_ORDER},
     {QUERY_TRASH_AMONG, WITH LIST "<> 0" OF_OWNER AMONG IN_ORDER}},
};

static int read_page(struct store *store, const struct store_whose *whose, bool deleted,
                     size_t limit, struct page *page, struct err *err)
{
    const char *owner = whose ? whose->owner : NULL;
    const char *ids = owner && whose->ids ? whose->ids : "";
    size_t narrow = !owner ? 0 : !*ids ? 1 : 2;
    scoped_query struct query q =
        query_on(store, lists[deleted][narrow].name, lists[deleted][narrow].sql);
    int rc;

    query_text(&q, page->after);
    query_text(&q, owner);
    query_text(&q, ids);
    query_number(&q, limit < STORE_PAGE ? (int64_t)limit : STORE_PAGE);
    page->count = 0;
    while ((rc = query_step(&q, err)) > 0) {
        if (read_workspace(&q, &page->arena, &page->rows[page->count], err) < 0)
            return -1;
        page->count++;
    }
    return rc;
}

/* False when nobody wants more. */
static bool give_page(struct page *page, bool (*each)(void *, const struct store_workspace *),
                      void *context)
{
    for (size_t i = 0; i < page->count; i++)
        if (!each(context, &page->rows[i]))
            return false;
    if (page->count < STORE_PAGE)
        return false;
    snprintf(page->after, sizeof(page->after), "%s", page->rows[page->count - 1].id);
    return true;
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the filters of the list */
int store_workspaces(struct store *store, const struct store_whose *whose, bool deleted,
                     const char *after, size_t limit,
                     bool (*each)(void *, const struct store_workspace *), void *context,
                     struct err *err)
{
    struct page page;

    arena_init(&page.arena, STORE_PAGE_MAX);
    snprintf(page.after, sizeof(page.after), "%s", after ? after : "");
    for (bool more = true; more && limit;) {
        if (read_page(store, whose, deleted, limit, &page, err) < 0) {
            arena_clear(&page.arena);
            return -1;
        }
        limit -= page.count;
        more = give_page(&page, each, context);
        arena_clear(&page.arena);
    }
    return 0;
}

int store_count_workspaces(struct store *store, const char *owner, uint64_t *ret, struct err *err)
{
    scoped_query struct query q =
        owner
            ? query_on(store, QUERY_COUNT_OF,
                       "SELECT count(*) FROM workspaces WHERE deleted_ms = 0 AND owner = ?")
            : query_on(store, QUERY_COUNT, "SELECT count(*) FROM workspaces WHERE deleted_ms = 0");

    if (owner)
        query_text(&q, owner);
    if (query_step(&q, err) < 0)
        return -1;
    *ret = (uint64_t)query_column_number(&q, 0);
    return 0;
}

/* --- forks --- */

int store_workspace_forks(struct store *store, struct arena *arena, const char *workspace,
                          const char *snapshot, const char **ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_FORKS,
                 "SELECT id, count(*) OVER () FROM workspaces WHERE base <> '' AND (base = ?1 OR"
                 " (?2 = '' AND base > ?1 AND base < ?3)) ORDER BY id LIMIT 3");
    char base[BASE_ROOM];
    char behind[BASE_ROOM];
    const char *names = NULL;
    int total = 0;
    int n = 0;
    int rc;

    snprintf(base, sizeof(base), "%s/%s", workspace, snapshot);
    snprintf(behind, sizeof(behind), "%s0", workspace); /* '0' comes after '/' */
    query_text(&q, base);
    query_text(&q, snapshot);
    query_text(&q, behind);
    while ((rc = query_step(&q, err)) > 0) {
        const char *id = query_column_text(&q, 0, arena);
        names = n++ ? arena_printf(arena, "%s, %s", names, id) : id;
        if (!names)
            return err_set(err, ERR_LIMIT, ENOMEM, "keep the names of forks");
        total = (int)query_column_number(&q, 1);
    }
    *ret = total > n ? arena_printf(arena, "%s, ...", names) : names;
    if (rc == 0 && total && !*ret)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep the names of forks");
    return rc < 0 ? -1 : total;
}

int store_workspace_bases(struct store *store, struct arena *arena, const char *workspace,
                          void (*each)(void *context, const char *snapshot), void *context,
                          struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_BASES,
                 "SELECT DISTINCT substr(base, length(?1) + 1) FROM workspaces WHERE base > ?1"
                 " AND base < ?2");
    char base[BASE_ROOM];
    char behind[BASE_ROOM];
    int rc;

    snprintf(base, sizeof(base), "%s/", workspace);
    snprintf(behind, sizeof(behind), "%s0", workspace); /* '0' comes after '/' */
    query_text(&q, base);
    query_text(&q, behind);
    while ((rc = query_step(&q, err)) > 0) {
        const char *snapshot = query_column_text(&q, 0, arena);
        if (!snapshot)
            return err_set(err, ERR_LIMIT, ENOMEM, "list what forks stand on");
        each(context, snapshot);
    }
    return rc;
}

/* --- those that are to become templates --- */

int store_build_of(struct store *store, struct arena *arena, const char *name,
                   struct store_workspace *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_BUILD_OF,
                 "SELECT " COLUMNS " FROM workspaces WHERE builds = ? AND builds <> ''"
                 " AND deleted_ms = 0");

    query_text(&q, name);
    int rc = query_step(&q, err);
    return rc > 0 ? read_workspace(&q, arena, ret, err) : rc;
}

int store_builds(struct store *store, struct arena *arena, struct store_workspace *ret, size_t most,
                 struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_BUILDS,
                 "SELECT " COLUMNS " FROM workspaces WHERE builds <> '' AND deleted_ms = 0"
                 " ORDER BY builds LIMIT ?");
    int n = 0;
    int rc;

    query_number(&q, (int64_t)most);
    while ((rc = query_step(&q, err)) > 0) {
        if (read_workspace(&q, arena, &ret[n], err) < 0)
            return -1;
        n++;
    }
    return rc < 0 ? -1 : n;
}

/* --- those that are there for a time --- */

int store_workspace_by_token(struct store *store, struct arena *arena, const char *hash,
                             struct store_workspace *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_BY_TOKEN,
                 "SELECT " COLUMNS " FROM workspaces WHERE token = ? AND token <> ''"
                 " AND deleted_ms = 0");

    query_text(&q, hash);
    int rc = query_step(&q, err);
    return rc > 0 ? read_workspace(&q, arena, ret, err) : rc;
}

int store_workspace_ends(struct store *store, struct arena *arena, struct store_workspace *ret,
                         struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_WORKSPACE_ENDS,
                 "SELECT " COLUMNS " FROM workspaces WHERE ends_ms > 0 AND deleted_ms = 0"
                 " ORDER BY ends_ms LIMIT 1");

    int rc = query_step(&q, err);
    return rc > 0 ? read_workspace(&q, arena, ret, err) : rc;
}
