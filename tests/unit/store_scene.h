/* SPDX-License-Identifier: Apache-2.0 */
/* A database in a directory of its own, and rows for it. */
#pragma once

#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "front/store/db.h"
#include "front/store/store.h"
#include "unit.h"

/* A program need not use all of it. Not inline: sanitized, that compiles half as fast. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

/* --- scene --- */

static char dir[64];
static char path[80];
static struct store *store;
static struct arena arena;
static struct err err;

static void remove_scene(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};

    store_close(store);
    store = NULL;
    arena_clear(&arena);
    for (size_t i = 0; i < LENGTH(ends); i++) {
        char name[100];
        snprintf(name, sizeof(name), "%s%s", path, ends[i]);
        (void)unlink(name);
    }
    (void)rmdir(dir);
}

/* A place for a database; of an earlier test nothing is left. */
static void new_path(void)
{
    if (dir[0])
        remove_scene();
    snprintf(dir, sizeof(dir), "store-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof(path), "%s/carrel.db", dir);
    arena_init(&arena, 1 << 24);
    err = (struct err){0};
}

__attribute__((destructor)) static void leave_nothing(void)
{
    if (dir[0])
        remove_scene();
}

static int new_store(void)
{
    new_path();
    return store_open(&store, path, &err);
}

static int reopen(void)
{
    store_close(store);
    store = NULL;
    return store_open(&store, path, &err);
}

static int add_key(const char *id, const char *hash, const char *owner)
{
    return store_key_add(store,
                         &(struct store_key){.id = id,
                                             .hash = hash,
                                             .name = "of a person",
                                             .owner = owner,
                                             .scopes = SCOPE_USER | SCOPE_APPROVE,
                                             .made_by = "",
                                             .created_ms = 1234567890123},
                         &err);
}

static int add_workspace(const char *id, const char *owner)
{
    return store_workspace_add(
        store,
        &(struct store_workspace){.id = id,
                                  .owner = owner,
                                  .bucket = "main",
                                  .policy = "{\"network\":\"none\"}",
                                  .links = "{}",
                                  .labels = "{\"a\":\"'; DROP TABLE keys;--\"}",
                                  .created_ms = 1,
                                  .updated_ms = 2,
                                  .trash = ""},
        &err);
}

static int add_exec(const char *id, const char *workspace)
{
    return store_exec_add(store,
                          &(struct store_exec){.id = id,
                                               .workspace = workspace,
                                               .owner = "alice",
                                               .actor = "key:k1",
                                               .command = "{\"argv\":[\"true\"]}",
                                               .state = "running",
                                               .result = "",
                                               .started_ms = 7,
                                               .tty = true},
                          &err);
}

/* The ids of a list, joined by commas. */
static char list[4096];
static size_t stop_after;

static bool note(const char *id)
{
    size_t n = strlen(list);

    snprintf(list + n, sizeof(list) - n, "%s%s", n ? "," : "", id);
    return --stop_after > 0;
}

static bool note_key(void *context, const struct store_key *key)
{
    (void)context;
    return note(key->id);
}

static bool note_exec(void *context, const struct store_exec *e)
{
    (void)context;
    return note(e->id);
}

static void new_list(void)
{
    list[0] = '\0';
    stop_after = SIZE_MAX;
}

static const char *keys(const char *owner, const char *after, size_t limit)
{
    new_list();
    return store_keys(store, owner, after, limit, note_key, NULL, &err) < 0 ? err.msg : list;
}

static const char *execs(const char *workspace, const char *state, const char *before, size_t limit)
{
    new_list();
    return store_execs(store, workspace, state, before, limit, note_exec, NULL, &err) < 0 ? err.msg
                                                                                          : list;
}

static int64_t number_of(const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t number = -1;

    if (sqlite3_open(path, &db) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        number = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return number;
}

static bool run_sql(const char *sql)
{
    sqlite3 *db = NULL;
    bool is_done = sqlite3_open(path, &db) == SQLITE_OK &&
                   sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;

    sqlite3_close(db);
    return is_done;
}

static int add_template(const char *id, const char *name, const char *workspace)
{
    struct store_template t = {.id = id,
                               .name = name,
                               .owner = "alice",
                               .spec = "{\"env\":{}}",
                               .workspace = workspace,
                               .state = "freezing",
                               .share_cache = true,
                               .created_ms = 5};

    return store_template_add(store, &t, &err);
}

static int make_ready(const char *id, const char *name, const char *workspace)
{
    return store_template_ready(
        store,
        &(struct store_template){
            .id = id, .name = name, .workspace = workspace, .bytes = 4096, .files = 7},
        &err);
}

static int add_on(const char *id, const char *template)
{
    struct store_workspace w = {.id = id,
                                .owner = "alice",
                                .bucket = "main",
                                .policy = "{}",
                                .links = "{}",
                                .labels = "{}",
                                .trash = "",
                                .template = template};

    return store_workspace_add(store, &w, &err);
}

static int add_build(const char *id, const char *name)
{
    struct store_workspace w = {.id = id,
                                .owner = "alice",
                                .bucket = "main",
                                .policy = "{}",
                                .links = "{}",
                                .labels = "{}",
                                .trash = "",
                                .template = "",
                                .builds = name};

    return store_workspace_add(store, &w, &err);
}

#pragma GCC diagnostic pop
