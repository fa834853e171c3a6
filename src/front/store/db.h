/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite, as the files of this layer use it. SQL is constant text; all that comes from outside is
 * bound. A query is named, bound, stepped and ended; failure sticks until it is stepped:
 *
 *     scoped_query struct query q = query_on(store, QUERY_KEY_GET, "SELECT ... WHERE id = ?");
 *     query_text(&q, id);
 *     int rc = query_step(&q, err);      1 a row, 0 no more, -1
 */
#pragma once

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "front/store/store.h"

enum {
    STORE_VERSION = 10,
    STORE_PAGE = 16,         /* rows of a list that are in memory at once */
    STORE_ROW_MAX = 4 << 20, /* bytes of the largest row */
    STORE_ID_MAX = 512,      /* bytes of an id: 128 characters */
    STORE_PAGE_MAX = STORE_PAGE * STORE_ROW_MAX
};

enum query_name {
    QUERY_KEY_ADD,
    QUERY_KEY_BY_HASH,
    QUERY_KEY_GET,
    QUERY_KEY_REVOKE,
    QUERY_KEYS,
    QUERY_KEYS_OF,
    QUERY_WORKSPACE_ADD,
    QUERY_WORKSPACE_FORKS,
    QUERY_WORKSPACE_GET,
    QUERY_WORKSPACE_UPDATE,
    QUERY_WORKSPACE_MOVE,
    QUERY_WORKSPACE_REMOVE,
    QUERY_WORKSPACES,
    QUERY_WORKSPACES_OF,
    QUERY_WORKSPACES_AMONG,
    QUERY_TRASH,
    QUERY_TRASH_OF,
    QUERY_TRASH_AMONG,
    QUERY_COUNT,
    QUERY_COUNT_OF,
    QUERY_PORT_PUT,
    QUERY_PORT_BY_HASH,
    QUERY_PORT_REMOVE,
    QUERY_PORTS,
    QUERY_PLAN_ADD,
    QUERY_PLAN_GET,
    QUERY_PLAN_SHARED,
    QUERY_PLAN_CHANGE,
    QUERY_PLAN_REMOVE,
    QUERY_PLAN_PLACE,
    QUERY_PLANS,
    QUERY_PLANS_OF,
    QUERY_PLANS_DUE,
    QUERY_PLANS_UNDECIDED,
    QUERY_PLAN_DROP,
    QUERY_PLANS_FORGET,
    QUERY_PLANS_COUNT,
    QUERY_PLANS_OVER,
    QUERY_WORKSPACE_BASES,
    QUERY_MERGE_ADD,
    QUERY_MERGE_NOTE,
    QUERY_MERGE_TIDY,
    QUERY_MERGE_BASE,
    QUERY_MERGE_SNAPSHOTS,
    QUERY_TEMPLATE_ADD,
    QUERY_TEMPLATE_GET,
    QUERY_TEMPLATE_NAMED,
    QUERY_TEMPLATE_FREEZING,
    QUERY_TEMPLATE_FROZEN,
    QUERY_TEMPLATE_BEGIN,
    QUERY_TEMPLATE_READY,
    QUERY_TEMPLATE_RETIRE_OTHERS,
    QUERY_TEMPLATE_TAKE_WORKSPACE,
    QUERY_TEMPLATE_COMMIT,
    QUERY_TEMPLATE_ROLLBACK,
    QUERY_TEMPLATE_REMOVING,
    QUERY_TEMPLATE_REMOVE,
    QUERY_TEMPLATES,
    QUERY_TEMPLATES_UNFINISHED,
    QUERY_TEMPLATE_USERS,
    QUERY_TEMPLATE_USERS_OF,
    QUERY_TEMPLATE_USER_NAMES,
    QUERY_BUILD_OF,
    QUERY_BUILDS,
    QUERY_WORKSPACE_BY_TOKEN,
    QUERY_WORKSPACE_ENDS,
    /* From here on with the connection that does not wait for the disk. */
    QUERY_EXEC_ADD,
    QUERY_EXECS_BEGIN,
    QUERY_EXECS_COMMIT,
    QUERY_EXECS_ROLLBACK,
    QUERY_EXEC_END,
    QUERY_EXEC_GET,
    QUERY_EXEC_PLACE,
    QUERY_EXECS, /* these six in this order */
    QUERY_EXECS_RUNNING,
    QUERY_EXECS_ENDED,
    QUERY_EXECS_OF,
    QUERY_EXECS_OF_RUNNING,
    QUERY_EXECS_OF_ENDED,
    QUERY_EXECS_OLD,
    QUERY_EXEC_REMOVE,
    QUERY_COUNT_,
};

/* cache.c: rows that were read, by name. */
enum {
    CACHE_SLOTS = 256,
    CACHE_ROW_MAX = 8192, /* bytes of the texts of one; a larger row is not kept */
};

/* Where the texts are in the struct of a row, and which of them it is found by. */
struct cache_kind {
    size_t size;
    size_t name;
    const size_t *texts;
    size_t count;
};

struct cache_slot {
    sqlite3_int64 changes; /* that the durable connection had made when it was read */
    struct buf texts;      /* one after another; empty: there is no row here */

    union {
        struct store_key key;
        struct store_workspace workspace;
    } row;
};

struct cache {
    struct cache_slot slots[CACHE_SLOTS];
};

struct store {
    sqlite3 *durable; /* a change is on disk when it returns */
    sqlite3 *quick;   /* a change is safe from our own death when it returns */
    sqlite3_stmt *queries[QUERY_COUNT_];
    struct cache keys; /* by hash; never a revoked one */
    struct cache workspaces;
    char log_path[PATH_MAX]; /* of SQLite's write-ahead log */
    int log;                 /* -1: it was not there yet */
    int64_t log_end;
    int64_t log_reserved; /* up to there it has room */
};

/* True and the row of that name, its texts copied; false: ask the database. */
bool cache_find(struct store *store, struct cache *cache, const struct cache_kind *kind,
                const char *name, struct arena *arena, void *ret);
/* What the database has just said. */
void cache_keep(struct store *store, struct cache *cache, const struct cache_kind *kind,
                const void *row);
void cache_clear(struct cache *cache);

/* schema.c */
/* Opens the file with all settings; `synchronous` is "FULL" or "NORMAL". */
int db_open(sqlite3 **ret, const char *path, const char *synchronous, struct err *err);
/* Not some other program's, not a newer one's, whole; then takes the steps that are missing, in one
 * transaction. Step n makes version n + 1. */
int db_prepare(sqlite3 *db, const char *const *steps, int count, struct err *err);
extern const char *const db_steps[STORE_VERSION];
/* Says in words what SQLite says in numbers; returns -1. */
int db_fail(sqlite3 *db, int rc, struct err *err);

/* query.c */
struct query {
    sqlite3 *db;
    sqlite3_stmt *stmt;
    int bound;
    int rc;        /* the first failure, or SQLITE_OK */
    bool is_short; /* the arena had no room for a column */
};

struct query query_on(struct store *store, enum query_name name, const char *sql);
void query_text(struct query *q, const char *text); /* NULL is "" */
void query_number(struct query *q, int64_t number);
int query_step(struct query *q, struct err *err);
/* For a change: 0, and how many rows it was. */
int query_run(struct query *q, int *ret_changed, struct err *err);
const char *query_column_text(struct query *q, int column, struct arena *arena);
int64_t query_column_number(struct query *q, int column);
/* After the columns of a row were read: 1, or -1 when they did not fit. */
int query_row_done(const struct query *q, struct err *err);
void query_end(struct query *q);

#define scoped_query __attribute__((cleanup(query_end)))
