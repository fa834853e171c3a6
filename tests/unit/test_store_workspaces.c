/* SPDX-License-Identifier: Apache-2.0 */
/* store/: keys and workspaces, in order, found by an index, kept in memory until they change. */
#include "store_scene.h"

#include <errno.h>

#include "front/core/scope.h"

static bool note_workspace(void *context, const struct store_workspace *w)
{
    (void)context;
    return note(w->id);
}

static const char *workspaces(const char *owner, bool deleted, const char *after, size_t limit)
{
    const struct store_whose whose = {.owner = owner};

    new_list();
    return store_workspaces(store, &whose, deleted, after, limit, note_workspace, NULL, &err) < 0
               ? err.msg
               : list;
}

/* --- keys --- */

TEST(a_key_is_found_by_its_hash_until_it_is_revoked)
{
    struct store_key key;

    CHECK(new_store() == 0);
    CHECK(add_key("k1", "aa", "alice") == 0 && add_key("k2", "bb", "bob") == 0);
    CHECK(store_key_by_hash(store, &arena, "aa", &key, &err) == 1);
    CHECK(strcmp(key.id, "k1") == 0 && strcmp(key.owner, "alice") == 0);
    CHECK(strcmp(key.name, "of a person") == 0 && key.scopes == (SCOPE_USER | SCOPE_APPROVE));
    CHECK(key.created_ms == 1234567890123 && key.revoked_ms == 0 && key.made_by[0] == '\0');
    CHECK(store_key_by_hash(store, &arena, "cc", &key, &err) == 0);
    CHECK(store_key_revoke(store, "k1", 5, &err) == 1);
    CHECK(store_key_revoke(store, "k1", 6, &err) == 0 &&
          store_key_revoke(store, "no", 6, &err) == 0);
    CHECK(store_key_by_hash(store, &arena, "aa", &key, &err) == 0);
    CHECK(store_key_get(store, &arena, "k1", &key, &err) == 1 && key.revoked_ms == 5);
    CHECK(store_key_get(store, &arena, "no", &key, &err) == 0);
    CHECK(store_key_revoke(store, "k2", 0, &err) == 1); /* also by a clock that says 1970 */
    CHECK(store_key_by_hash(store, &arena, "bb", &key, &err) == 0);
    CHECK(add_key("k1", "dd", "x") < 0 && err.code == ERR_CONFLICT);
    CHECK(add_key("k3", "aa", "x") < 0 && err.code == ERR_CONFLICT); /* a revoked key stays one */
    CHECK(add_key("", "ee", "x") < 0 && err.code == ERR_INVALID);
    CHECK(add_key("k4", "dd", "x") == 0); /* nothing of the refused ones is left */
    return 0;
}

TEST(lists_of_keys_go_by_id_and_owner_from_a_cursor)
{
    char id[32];
    char hash[32];

    CHECK(new_store() == 0);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof(id), "k%02d", (i * 7) % 40);
        snprintf(hash, sizeof(hash), "h%d", i);
        CHECK(add_key(id, hash, i % 2 ? "alice" : "bob") == 0);
    }
    CHECK(strcmp(keys(NULL, NULL, 3), "k00,k01,k02") == 0);
    CHECK(strcmp(keys(NULL, "k02", 3), "k03,k04,k05") == 0);
    CHECK(strcmp(keys(NULL, "k37", 100), "k38,k39") == 0);
    CHECK(strcmp(keys("alice", "k35", 100), "k37,k39") == 0);
    CHECK(strcmp(keys("nobody", NULL, 100), "") == 0 && strcmp(keys(NULL, NULL, 0), "") == 0);
    CHECK(strlen(keys(NULL, NULL, 40)) == 40 * 4 - 1 &&
          strlen(keys("bob", NULL, 99)) == 20 * 4 - 1);
    new_list();
    stop_after = 18; /* in the middle of the second page */
    CHECK(store_keys(store, NULL, NULL, 99, note_key, NULL, &err) == 0 &&
          strlen(list) == 18 * 4 - 1);
    return 0;
}

/* --- workspaces --- */

TEST(a_workspace_is_added_once_changed_and_removed_with_its_commands)
{
    struct store_workspace w;
    uint64_t count;

    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    CHECK(add_workspace("w1", "bob") < 0 && err.code == ERR_CONFLICT);
    CHECK(store_workspace_get(store, &arena, "w1", &w, &err) == 1);
    CHECK(strcmp(w.owner, "alice") == 0 && strcmp(w.bucket, "main") == 0 && w.updated_ms == 2);
    CHECK(strcmp(w.labels, "{\"a\":\"'; DROP TABLE keys;--\"}") == 0 && w.deleted_ms == 0);
    CHECK(store_workspace_remove(store, "w1", &err) < 0 && err.code == ERR_CONFLICT);
    w.policy = "{}";
    w.updated_ms = 3;
    w.deleted_ms = 4;
    w.trash = "stamp";
    CHECK(store_workspace_update(store, &w, &err) == 0);
    CHECK(store_workspace_get(store, &arena, "w1", &w, &err) == 1);
    CHECK(strcmp(w.policy, "{}") == 0 && w.updated_ms == 3 && w.deleted_ms == 0);
    w.deleted_ms = 4;
    w.trash = "stamp";
    CHECK(store_workspace_move(store, &w, 5, &err) < 0 && err.code == ERR_CONFLICT);
    CHECK(store_workspace_move(store, &w, 0, &err) == 0);
    CHECK(store_workspace_move(store, &w, 0, &err) < 0 && err.code == ERR_CONFLICT);
    w.policy = "late";
    CHECK(store_workspace_update(store, &w, &err) < 0 && err.code == ERR_CONFLICT);
    CHECK(store_workspace_get(store, &arena, "w1", &w, &err) == 1);
    CHECK(strcmp(w.policy, "{}") == 0 && w.deleted_ms == 4 && strcmp(w.trash, "stamp") == 0);
    CHECK(add_workspace("w1", "bob") < 0 && err.code == ERR_CONFLICT); /* in the trash as well */
    CHECK(store_count_workspaces(store, "alice", &count, &err) == 0 && count == 1);
    CHECK(store_count_workspaces(store, NULL, &count, &err) == 0 && count == 1);
    CHECK(add_exec("x1", "w1") == 0 && add_exec("x2", "w2") == 0);
    CHECK(store_workspace_remove(store, "w1", &err) == 0);
    CHECK(strcmp(execs(NULL, NULL, NULL, 9), "x2") == 0);
    CHECK(store_workspace_get(store, &arena, "w1", &w, &err) == 0);
    CHECK(store_workspace_remove(store, "w1", &err) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(store_workspace_update(store, &w, &err) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(store_workspace_move(store, &w, 4, &err) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(add_exec("x3", "w1") < 0 && err.code == ERR_NOT_FOUND);
    return 0;
}

TEST(a_port_has_one_address_and_goes_with_its_workspace)
{
    struct store_port port = {.workspace = "w1",
                              .port = 8000,
                              .hash = "aa",
                              .token = "t",
                              .access = "key",
                              .made_by = "admin",
                              .created_ms = 5};
    struct store_port found[STORE_PORTS_MOST];

    CHECK(new_store() == 0);
    CHECK(store_port_put(store, &port, &err) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(add_workspace("w1", "alice") == 0 && store_port_put(store, &port, &err) == 0);
    CHECK(store_port_by_hash(store, &arena, "aa", &found[0], &err) == 1);
    CHECK(found[0].port == 8000 && strcmp(found[0].token, "t") == 0 && found[0].created_ms == 5);
    port.hash = "bb";
    port.token = "";
    port.access = "token";
    CHECK(store_port_put(store, &port, &err) == 0);
    CHECK(store_port_by_hash(store, &arena, "aa", &found[0], &err) == 0);
    port.port = 80;
    CHECK(store_port_put(store, &port, &err) < 0 && err.code == ERR_CONFLICT);
    port.hash = "cc";
    CHECK(store_port_put(store, &port, &err) == 0);
    CHECK(store_ports(store, &arena, "w1", found, &err) == 2);
    CHECK(found[0].port == 80 && found[1].port == 8000 && strcmp(found[1].access, "token") == 0);
    CHECK(store_ports(store, &arena, "w2", found, &err) == 0);
    port.port = 65536;
    port.hash = "dd";
    CHECK(store_port_put(store, &port, &err) < 0 && err.code == ERR_INVALID);
    CHECK(store_port_remove(store, "w1", 80, &err) == 1);
    CHECK(store_port_remove(store, "w1", 80, &err) == 0);
    CHECK(number_of("SELECT count(*) FROM ports") == 1);
    CHECK(run_sql("UPDATE workspaces SET deleted_ms = -1"));
    CHECK(store_workspace_remove(store, "w1", &err) == 0);
    CHECK(number_of("SELECT count(*) FROM ports") == 0);
    return 0;
}

TEST(lists_of_workspaces_tell_owners_and_the_trash_apart)
{
    struct store_workspace w;
    char id[32];

    CHECK(new_store() == 0);
    for (int i = 0; i < 60; i++) {
        snprintf(id, sizeof(id), "w%02d", i);
        CHECK(add_workspace(id, i % 3 ? "alice" : "bob") == 0);
        if (i % 2)
            continue;
        CHECK(store_workspace_get(store, &arena, id, &w, &err) == 1);
        w.deleted_ms = i % 4 ? 9 : -9;
        CHECK(store_workspace_move(store, &w, 0, &err) == 0);
    }
    CHECK(strcmp(workspaces(NULL, false, NULL, 3), "w01,w03,w05") == 0);
    CHECK(strcmp(workspaces(NULL, true, "w04", 2), "w06,w08") == 0);
    CHECK(strcmp(workspaces("bob", false, "w45", 9), "w51,w57") == 0);
    CHECK(strcmp(workspaces("alice", true, "w51", 9), "w52,w56,w58") == 0);
    CHECK(strlen(workspaces(NULL, false, NULL, 999)) == 30 * 4 - 1);
    return 0;
}

static bool change_while_listing(void *context, const struct store_workspace *w)
{
    struct store_workspace changed = *w;
    char id[64];

    (void)context;
    changed.updated_ms = 77;
    snprintf(id, sizeof(id), "x-%s", w->id);
    return store_workspace_update(store, &changed, &err) == 0 && add_exec(id, w->id) == 0 &&
           store_exec_end(store, id, "{}", 5, &err) == 1;
}

static const char *among(const char *ids, const char *after, size_t limit)
{
    const struct store_whose whose = {.owner = "alice", .ids = ids};

    new_list();
    return store_workspaces(store, &whose, false, after, limit, note_workspace, NULL, &err) < 0
               ? err.msg
               : list;
}

TEST(a_list_of_some_ids_and_patterns_has_full_pages_of_those_and_is_as_the_owner_check_says)
{
    static const char *const ids[] = {"Thread-9", "a",        "a.b",      "desk",
                                      "thread",   "thread-1", "thread-2", "thread-22"};
    static const char *const lists[] = {"[\"thread-*\"]", "[\"desk\",\"a?b\"]", "[\"*\"]",
                                        "[\"*-?\"]",      "[\"*a*\"]",          "[\"none\"]"};
    char expected[200];

    CHECK(new_store() == 0);
    for (size_t i = 0; i < LENGTH(ids); i++)
        CHECK(add_workspace(ids[i], "alice") == 0);
    CHECK(add_workspace("thread-of-bob", "bob") == 0);
    for (size_t k = 0; k < LENGTH(lists); k++) {
        expected[0] = '\0';
        for (size_t i = 0; i < LENGTH(ids); i++)
            if (scope_list_has(lists[k], ids[i]))
                snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%s%s",
                         *expected ? "," : "", ids[i]);
        CHECK_FOR(lists[k], strcmp(among(lists[k], NULL, 100), expected) == 0);
    }
    CHECK(strcmp(among("[\"thread-*\"]", NULL, 2), "thread-1,thread-2") == 0);
    CHECK(strcmp(among("[\"thread-*\"]", "thread-2", 2), "thread-22") == 0);
    return 0;
}

TEST(who_is_called_by_a_list_may_use_the_store)
{
    char id[32];

    CHECK(new_store() == 0);
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "w%02d", i);
        CHECK(add_workspace(id, "alice") == 0);
    }
    CHECK(store_workspaces(store, NULL, false, NULL, 100, change_while_listing, NULL, &err) == 0);
    CHECK(number_of("SELECT count(*) FROM workspaces WHERE updated_ms = 77") == 50);
    CHECK(number_of("SELECT count(*) FROM execs WHERE state = 'ended'") == 50);
    return 0;
}

/* Every list, as the planner means to answer it. */
TEST(no_list_reads_a_whole_table_or_sorts_one)
{
    CHECK(new_store() == 0);
    keys(NULL, NULL, 1);
    keys("a", NULL, 1);
    for (int i = 0; i < 4; i++)
        workspaces(i & 1 ? "a" : NULL, i & 2, NULL, 1);
    execs(NULL, NULL, NULL, 1);
    execs("w", NULL, NULL, 1);
    execs("w", "running", NULL, 1);
    execs("w", "ended", NULL, 1);
    CHECK(store_execs_expire(store, 1, note_exec, NULL, &err) == 0);
    struct store_port ports[STORE_PORTS_MOST];
    CHECK(store_ports(store, &arena, "w", ports, &err) == 0);
    CHECK(store_port_by_hash(store, &arena, "aa", ports, &err) == 0);
    for (int i = 0; i < QUERY_COUNT_; i++) {
        sqlite3_stmt *stmt;
        char sql[1000];
        if (!store->queries[i])
            continue;
        snprintf(sql, sizeof(sql), "EXPLAIN QUERY PLAN %s", sqlite3_sql(store->queries[i]));
        CHECK(sqlite3_prepare_v2(store->durable, sql, -1, &stmt, NULL) == SQLITE_OK);
        while (sqlite3_step(stmt) == SQLITE_ROW) {
            const char *plan = (const char *)sqlite3_column_text(stmt, 3);
            CHECK_FOR(sql, strncmp(plan, "SEARCH", 6) == 0);
        }
        sqlite3_finalize(stmt);
    }
    return 0;
}

TEST(ten_thousand_workspaces_cost_no_memory)
{
    char id[32];

    CHECK(new_store() == 0);
    CHECK(sqlite3_exec(store->durable, "BEGIN", NULL, NULL, NULL) == SQLITE_OK);
    for (int i = 0; i < 10000; i++) {
        snprintf(id, sizeof(id), "w%05d", i);
        CHECK(add_workspace(id, "alice") == 0);
    }
    CHECK(sqlite3_exec(store->durable, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(strlen(workspaces(NULL, false, "w09000", 500)) > 0);
    new_list();
    stop_after = 10001;
    CHECK(store_workspaces(store, NULL, false, NULL, 10000, note_workspace, NULL, &err) == 0);
    CHECK(stop_after == 1); /* all were seen */
    CHECK(sqlite3_memory_used() < 6 << 20);
    return 0;
}

/* --- what was read is kept, until something changes --- */

/* The workspace as the store tells it, and as the database has it. */
static bool is_as_in_database(const char *id)
{
    char told[1000] = "none";
    char sql[1500];
    struct store_workspace w;

    if (store_workspace_get(store, &arena, id, &w, &err) == 1)
        snprintf(told, sizeof(told), "%s|%s|%s|%s|%s|%s|%jd|%jd|%jd|%s|%s|%s", w.id, w.owner,
                 w.bucket, w.policy, w.links, w.labels, (intmax_t)w.created_ms,
                 (intmax_t)w.updated_ms, (intmax_t)w.deleted_ms, w.trash, w.template, w.builds);
    sqlite3_snprintf(
        sizeof(sql), sql,
        "SELECT %Q = coalesce((SELECT id||'|'||owner||'|'||bucket||'|'||policy||'|'||links||'|'||"
        "labels||'|'||created_ms||'|'||updated_ms||'|'||deleted_ms||'|'||trash||'|'||template||'|'"
        "||builds FROM workspaces WHERE id = %Q), 'none')",
        told, id);
    return number_of(sql) == 1;
}

static int update(const char *id, const char *policy, const char *labels)
{
    return store_workspace_update(
        store,
        &(struct store_workspace){
            .id = id, .policy = policy, .links = "{}", .labels = labels, .updated_ms = 9},
        &err);
}

static int move(const char *id, int64_t from, int64_t to)
{
    return store_workspace_move(
        store,
        &(struct store_workspace){
            .id = id, .deleted_ms = to, .trash = to ? "stamp" : "", .updated_ms = 10},
        from, &err);
}

#define CHANGE(change) CHECK((change) == 0 && is_as_in_database("w1") && is_as_in_database("b1"))

TEST(no_change_leaves_an_older_row_in_memory)
{
    struct store_workspace w;

    CHECK(new_store() == 0 && is_as_in_database("w1") && is_as_in_database("b1"));
    CHANGE(add_on("w1", "")); /* nor that there was none */
    CHANGE(add_build("b1", "office"));
    CHANGE(update("w1", "{\"network\":\"host\"}", "{\"a\":1}"));
    CHANGE(update("w1", "{}", "{}"));
    CHANGE(move("b1", 0, 5));
    CHANGE(move("b1", 5, 0)); /* builds nothing any more */
    CHANGE(add_template("t1", "office", "b1"));
    CHANGE(make_ready("t1", "office", "b1"));
    CHECK(store_workspace_get(store, &arena, "b1", &w, &err) == 0);
    CHANGE(add_on("b1", "t1"));
    CHANGE(add_template("t2", "office", "w1"));
    CHECK(make_ready("t0", "office", "w1") < 0 && is_as_in_database("w1")); /* taken back */
    CHANGE(store_template_remove(store, "t2", &err));
    CHANGE(move("w1", 0, 6));
    CHANGE(move("w1", 6, -6));
    CHANGE(add_exec("x1", "w1"));
    CHANGE(store_workspace_remove(store, "w1", &err));
    CHECK(store_workspace_get(store, &arena, "w1", &w, &err) == 0);
    CHANGE(add_workspace("w1", "bob"));
    CHANGE(reopen());
    return 0;
}

TEST(what_was_read_in_a_transaction_that_is_taken_back_is_not_kept)
{
    CHECK(new_store() == 0 && add_workspace("w1", "alice") == 0 && is_as_in_database("w1"));
    CHECK(sqlite3_exec(store->durable, "BEGIN", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(update("w1", "{}", "{}") == 0 && !is_as_in_database("w1"));
    CHECK(sqlite3_exec(store->durable, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(is_as_in_database("w1"));
    return 0;
}

/* What another program writes is not seen, so that shows what was answered from memory. */
TEST(a_row_is_read_once_and_handed_out_as_a_copy)
{
    struct store_workspace w;
    struct store_workspace again;
    struct store_key key;
    struct arena other;

    arena_init(&other, 1 << 20);
    CHECK(new_store() == 0 && add_workspace("w1", "alice") == 0 && add_key("k1", "aa", "al") == 0);
    CHECK(store_workspace_get(store, &other, "w1", &w, &err) == 1);
    CHECK(store_key_by_hash(store, &other, "aa", &key, &err) == 1);
    arena_clear(&other);
    CHECK(run_sql("UPDATE workspaces SET owner = 'bob'; UPDATE keys SET owner = 'bob'"));
    CHECK(add_exec("x1", "w1") == 0 && store_exec_end(store, "x1", "{}", 1, &err) == 1);
    CHECK(store_workspace_get(store, &other, "w1", &w, &err) == 1 && !strcmp(w.owner, "alice"));
    CHECK(store_workspace_get(store, &arena, "w1", &again, &err) == 1 && w.owner != again.owner);
    CHECK(strcmp(w.labels, again.labels) == 0 && strcmp(again.template, "") == 0);
    CHECK(store_key_by_hash(store, &other, "aa", &key, &err) == 1 && !strcmp(key.owner, "al"));
    CHECK(strcmp(key.id, "k1") == 0 && strcmp(key.hash, "aa") == 0 && key.made_by[0] == '\0');
    arena_clear(&other);
    arena_init(&other, 20);
    CHECK(store_workspace_get(store, &other, "w1", &w, &err) < 0 && err.code == ERR_LIMIT);
    arena_clear(&other);
    CHECK(add_workspace("w2", "alice") == 0 && is_as_in_database("w1"));
    CHECK(store_key_by_hash(store, &arena, "aa", &key, &err) == 1 && !strcmp(key.owner, "bob"));
    return 0;
}

TEST(a_key_that_is_revoked_is_forgotten_at_once)
{
    struct store_key key;

    CHECK(new_store() == 0 && store_key_by_hash(store, &arena, "aa", &key, &err) == 0);
    CHECK(add_key("k1", "aa", "alice") == 0 && add_key("k2", "bb", "bob") == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(store_key_by_hash(store, &arena, "aa", &key, &err) == 1 && !strcmp(key.id, "k1"));
        CHECK(store_key_by_hash(store, &arena, "bb", &key, &err) == 1 && !strcmp(key.id, "k2"));
    }
    CHECK(store_key_revoke(store, "k1", 5, &err) == 1);
    CHECK(store_key_by_hash(store, &arena, "aa", &key, &err) == 0);
    CHECK(store_key_by_hash(store, &arena, "bb", &key, &err) == 1);
    return 0;
}

TEST(of_many_or_large_rows_little_is_kept_and_each_is_told_right)
{
    static char policy[CACHE_ROW_MAX + 100];
    struct store_workspace w;
    size_t kept = 0;
    char id[32];

    CHECK(new_store() == 0 && add_workspace("large", "alice") == 0);
    memset(policy, 'x', sizeof(policy) - 1);
    CHECK(update("large", policy, "{}") == 0);
    CHECK(sqlite3_exec(store->durable, "BEGIN", NULL, NULL, NULL) == SQLITE_OK);
    for (int i = 0; i < 3 * CACHE_SLOTS; i++) {
        snprintf(id, sizeof(id), "w%d", i);
        CHECK(add_workspace(id, id) == 0);
    }
    CHECK(sqlite3_exec(store->durable, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    for (int i = 0; i < 6 * CACHE_SLOTS; i++) {
        snprintf(id, sizeof(id), "w%d", i / 2);
        CHECK(store_workspace_get(store, &arena, id, &w, &err) == 1 && strcmp(w.owner, id) == 0);
    }
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        kept += store->workspaces.slots[i].texts.n > 0;
    CHECK(kept > CACHE_SLOTS / 2); /* names fall on all places */
    for (int i = 0; i < 2; i++)
        CHECK(store_workspace_get(store, &arena, "large", &w, &err) == 1 &&
              strcmp(w.policy, policy) == 0);
    CHECK(run_sql("UPDATE workspaces SET policy = 'y' WHERE id = 'large'"));
    CHECK(store_workspace_get(store, &arena, "large", &w, &err) == 1 && *w.policy == 'y');
    return 0;
}
