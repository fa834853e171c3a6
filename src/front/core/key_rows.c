/* SPDX-License-Identifier: Apache-2.0 */
#include "front/store/store.h"

#include <stddef.h>
#include <stdio.h>

#include "front/store/db.h"

#define COLUMNS                                                                                    \
    "id, hash, name, owner, scopes, made_by, created_ms, revoked_ms, workspaces, template, policy"

static const size_t texts[] = {
    offsetof(struct store_key, id),       offsetof(struct store_key, hash),
    offsetof(struct store_key, name),     offsetof(struct store_key, owner),
    offsetof(struct store_key, made_by),  offsetof(struct store_key, workspaces),
    offsetof(struct store_key, template), offsetof(struct store_key, policy),
};

static const struct cache_kind kind = {.size = sizeof(struct store_key),
                                       .name = offsetof(struct store_key, hash),
                                       .texts = texts,
                                       .count = sizeof(texts) / sizeof(texts[0])};

static int read_key(struct query *q, struct arena *arena, struct store_key *ret, struct err *err)
{
    struct store_key key = {
        .id = query_column_text(q, 0, arena),
        .hash = query_column_text(q, 1, arena),
        .name = query_column_text(q, 2, arena),
        .owner = query_column_text(q, 3, arena),
        .scopes = (unsigned)query_column_number(q, 4),
        .made_by = query_column_text(q, 5, arena),
        .created_ms = query_column_number(q, 6),
        .revoked_ms = query_column_number(q, 7),
        .workspaces = query_column_text(q, 8, arena),
        .template = query_column_text(q, 9, arena),
        .policy = query_column_text(q, 10, arena),
    };

    int rc = query_row_done(q, err);
    if (rc > 0)
        *ret = key;
    return rc;
}

int store_key_add(struct store *store, const struct store_key *key, struct err *err)
{
    scoped_query struct query q = query_on(
        store, QUERY_KEY_ADD, "INSERT INTO keys (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?)");

    query_text(&q, key->id);
    query_text(&q, key->hash);
    query_text(&q, key->name);
    query_text(&q, key->owner);
    query_number(&q, key->scopes);
    query_text(&q, key->made_by);
    query_number(&q, key->created_ms);
    query_number(&q, key->revoked_ms);
    query_text(&q, key->workspaces);
    query_text(&q, key->template);
    query_text(&q, key->policy);
    return query_run(&q, NULL, err);
}

int store_key_by_hash(struct store *store, struct arena *arena, const char *hash,
                      struct store_key *ret, struct err *err)
{
    /* How long it takes says something about the hash only, and that says nothing about the key. */
    if (cache_find(store, &store->keys, &kind, hash, arena, ret))
        return 1;
    scoped_query struct query q = query_on(
        store, QUERY_KEY_BY_HASH, "SELECT " COLUMNS " FROM keys WHERE hash = ? AND revoked_ms = 0");
    query_text(&q, hash);
    int rc = query_step(&q, err);
    if (rc > 0)
        rc = read_key(&q, arena, ret, err);
    if (rc > 0)
        cache_keep(store, &store->keys, &kind, ret);
    return rc;
}

int store_key_get(struct store *store, struct arena *arena, const char *id, struct store_key *ret,
                  struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_KEY_GET, "SELECT " COLUMNS " FROM keys WHERE id = ?");

    query_text(&q, id);
    int rc = query_step(&q, err);
    return rc > 0 ? read_key(&q, arena, ret, err) : rc;
}

int store_key_revoke(struct store *store, const char *id, int64_t now_ms, struct err *err)
{
    int changed = 0;
    scoped_query struct query q =
        query_on(store, QUERY_KEY_REVOKE,
                 "UPDATE keys SET revoked_ms = max(?, 1) WHERE id = ? AND revoked_ms = 0");

    query_number(&q, now_ms);
    query_text(&q, id);
    return query_run(&q, &changed, err) < 0 ? -1 : changed;
}

/* Part of a list. The query has ended before anybody is called back, so they may use the store. */
struct page {
    struct arena arena;
    struct store_key rows[STORE_PAGE];
    size_t count;
    char after[STORE_ID_MAX + 1];
};

static int read_page(struct store *store, const char *owner, size_t limit, struct page *page,
                     struct err *err)
{
    scoped_query struct query q =
        owner ? query_on(store, QUERY_KEYS_OF,
                         "SELECT " COLUMNS
                         " FROM keys WHERE id > ? AND owner = ? ORDER BY id LIMIT ?")
              : query_on(store, QUERY_KEYS,
                         "SELECT " COLUMNS " FROM keys WHERE id > ? ORDER BY id LIMIT ?");
    int rc;

    query_text(&q, page->after);
    if (owner)
        query_text(&q, owner);
    query_number(&q, limit < STORE_PAGE ? (int64_t)limit : STORE_PAGE);
    page->count = 0;
    while ((rc = query_step(&q, err)) > 0) {
        if (read_key(&q, &page->arena, &page->rows[page->count], err) < 0)
            return -1;
        page->count++;
    }
    return rc;
}

/* False when nobody wants more. */
static bool give_page(struct page *page, bool (*each)(void *, const struct store_key *),
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
int store_keys(struct store *store, const char *owner, const char *after, size_t limit,
               bool (*each)(void *, const struct store_key *), void *context, struct err *err)
{
    struct page page;

    arena_init(&page.arena, STORE_PAGE_MAX);
    snprintf(page.after, sizeof(page.after), "%s", after ? after : "");
    for (bool more = true; more && limit;) {
        if (read_page(store, owner, limit, &page, err) < 0) {
            arena_clear(&page.arena);
            return -1;
        }
        limit -= page.count;
        more = give_page(&page, each, context);
        arena_clear(&page.arena);
    }
    return 0;
}
