/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, how an older database comes to have them, and which files are refused. */
#include "front/store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"

enum {
    BUSY_MS = 2000, /* somebody looks at it with another program */
};

/* Never changed once released: a new version is a new step. Rows of lists are found by an index
 * that holds them in the order of the list. */
const char *const db_steps[STORE_VERSION] = {
    "CREATE TABLE keys ("
    "  id TEXT NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 128),"
    "  hash TEXT NOT NULL UNIQUE, name TEXT NOT NULL, owner TEXT NOT NULL,"
    "  scopes INTEGER NOT NULL, made_by TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    "  revoked_ms INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX keys_owner ON keys (owner, id);"
    "CREATE TABLE workspaces ("
    "  id TEXT NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 128),"
    "  owner TEXT NOT NULL, bucket TEXT NOT NULL, policy TEXT NOT NULL, links TEXT NOT NULL,"
    "  labels TEXT NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
    "  deleted_ms INTEGER NOT NULL, trash TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX workspaces_live ON workspaces (id) WHERE deleted_ms = 0;"
    "CREATE INDEX workspaces_live_owner ON workspaces (owner, id) WHERE deleted_ms = 0;"
    "CREATE INDEX workspaces_trash ON workspaces (id) WHERE deleted_ms <> 0;"
    "CREATE INDEX workspaces_trash_owner ON workspaces (owner, id) WHERE deleted_ms <> 0;"
    "CREATE TABLE execs ("
    "  place INTEGER PRIMARY KEY,"
    "  id TEXT NOT NULL UNIQUE CHECK (length(id) BETWEEN 1 AND 128),"
    "  workspace TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,"
    "  owner TEXT NOT NULL, actor TEXT NOT NULL, command TEXT NOT NULL,"
    "  state TEXT NOT NULL CHECK (state IN ('running', 'ended')), result TEXT NOT NULL,"
    "  started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, tty INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX execs_workspace ON execs (workspace);"
    "CREATE INDEX execs_running ON execs (workspace) WHERE state = 'running';"
    "CREATE INDEX execs_ended ON execs (ended_ms) WHERE state = 'ended';"
    "PRAGMA application_id = 1668443724;" /* "crrL" */
    "PRAGMA user_version = 1;",
    "CREATE TABLE ports ("
    "  workspace TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,"
    "  port INTEGER NOT NULL CHECK (port BETWEEN 1 AND 65535),"
    "  hash TEXT NOT NULL UNIQUE, token TEXT NOT NULL,"
    "  access TEXT NOT NULL CHECK (access IN ('key', 'token')),"
    "  made_by TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    "  PRIMARY KEY (workspace, port)"
    ") STRICT, WITHOUT ROWID;"
    "PRAGMA user_version = 2;",
    "CREATE TABLE plans ("
    "  place INTEGER PRIMARY KEY,"
    "  id TEXT NOT NULL UNIQUE CHECK (length(id) BETWEEN 1 AND 128),"
    "  workspace TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,"
    "  owner TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('open', 'closed', 'pending',"
    "    'approved', 'rejected', 'expired', 'queued', 'applying', 'applied', 'undoing', 'undone',"
    "    'stale', 'failed', 'discarded')),"
    "  origin TEXT NOT NULL CHECK (origin IN ('run', 'submitted')),"
    "  key TEXT NOT NULL, actor TEXT NOT NULL, principal TEXT NOT NULL, exec TEXT NOT NULL,"
    "  keep_open INTEGER NOT NULL, hash TEXT NOT NULL, operations INTEGER NOT NULL,"
    "  bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    "  updated_ms INTEGER NOT NULL, due_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,"
    "  dropped INTEGER NOT NULL, details TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX plans_workspace ON plans (workspace, place);"
    "CREATE INDEX plans_state ON plans (state, place);"
    "CREATE INDEX plans_due ON plans (due_ms) WHERE due_ms > 0;"
    "PRAGMA user_version = 3;",
    "CREATE TABLE templates ("
    "  place INTEGER PRIMARY KEY,"
    "  id TEXT NOT NULL UNIQUE CHECK (length(id) BETWEEN 1 AND 128),"
    "  name TEXT NOT NULL, owner TEXT NOT NULL, spec TEXT NOT NULL,"
    "  bytes INTEGER NOT NULL, files INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    "  workspace TEXT NOT NULL, share_cache INTEGER NOT NULL,"
    "  state TEXT NOT NULL CHECK (state IN ('freezing', 'ready', 'retired', 'removing'))"
    ") STRICT;"
    "CREATE INDEX templates_name ON templates (name, place) WHERE state = 'ready';"
    "CREATE INDEX templates_unfinished ON templates (place) WHERE state <> 'ready';"
    "ALTER TABLE workspaces ADD COLUMN template TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX workspaces_template ON workspaces (template, id) WHERE template <> '';"
    "PRAGMA user_version = 4;",
    "ALTER TABLE workspaces ADD COLUMN builds TEXT NOT NULL DEFAULT '';"
    "CREATE UNIQUE INDEX workspaces_builds ON workspaces (builds)"
    "  WHERE builds <> '' AND deleted_ms = 0;"
    "PRAGMA user_version = 5;",
    "ALTER TABLE keys ADD COLUMN workspaces TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE keys ADD COLUMN template TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE keys ADD COLUMN policy TEXT NOT NULL DEFAULT '';"
    "PRAGMA user_version = 6;",
    "ALTER TABLE workspaces ADD COLUMN lifetime TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE workspaces ADD COLUMN token TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE workspaces ADD COLUMN ends_ms INTEGER NOT NULL DEFAULT 0;"
    "CREATE UNIQUE INDEX workspaces_token ON workspaces (token) WHERE token <> '';"
    "CREATE INDEX workspaces_ends ON workspaces (ends_ms)"
    "  WHERE ends_ms > 0 AND deleted_ms = 0;"
    "PRAGMA user_version = 7;",
    "ALTER TABLE workspaces ADD COLUMN store TEXT NOT NULL DEFAULT ''; PRAGMA user_version = 8;",
    "ALTER TABLE workspaces ADD COLUMN base TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX workspaces_base ON workspaces (base, id) WHERE base <> '';"
    "PRAGMA user_version = 9;",
    "CREATE TABLE merges ("
    "  place INTEGER PRIMARY KEY,"
    "  plan TEXT NOT NULL UNIQUE,"
    "  fork TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,"
    "  target TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,"
    "  snapshot TEXT NOT NULL, applied INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX merges_fork ON merges (fork, target, place);"
    "PRAGMA user_version = 10;",
};

/* --- errors --- */

/* What SQLite's own number for the whole family means to us. */
static int fail_as(int primary, int os_errno, const char *words, struct err *err)
{
    switch (primary) {
    case SQLITE_FULL:
        return err_set(err, ERR_IO, ENOSPC, "write the database");
    case SQLITE_NOMEM:
        return err_set(err, ERR_LIMIT, ENOMEM, "use the database");
    case SQLITE_TOOBIG:
        return err_set(err, ERR_INVALID, 0, "too long for the database");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, ERR_CONFLICT, 0, "the database is in use by another program");
    case SQLITE_NOTADB:
        return err_set(err, ERR_IO, 0, "the file is not a database");
    case SQLITE_CORRUPT:
        return err_set(err, ERR_IO, 0, "the database is damaged: %s", words);
    case SQLITE_READONLY:
        return err_set(err, ERR_DENIED, EACCES, "write the database");
    default:
        return err_set(err, ERR_IO, os_errno, "the database: %s", words);
    }
}

int db_fail(sqlite3 *db, int rc, struct err *err)
{
    int os_errno = db ? sqlite3_system_errno(db) : 0;

    switch (rc) {
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_UNIQUE:
        return err_set(err, ERR_CONFLICT, 0, "the id is already in use");
    case SQLITE_CONSTRAINT_FOREIGNKEY:
        return err_set(err, ERR_NOT_FOUND, 0, "there is no such workspace");
    case SQLITE_CONSTRAINT_CHECK:
        return err_set(err, ERR_INVALID, 0, "not a possible value: %s", sqlite3_errmsg(db));
    default:
        break;
    }
    int primary = rc & 0xff;
    if (primary == SQLITE_IOERR &&
        (os_errno == ENOSPC || os_errno == EDQUOT || os_errno == EFBIG)) /* the last by ulimit */
        primary = SQLITE_FULL;
    if (primary != SQLITE_IOERR && primary != SQLITE_CANTOPEN)
        os_errno = 0; /* of some earlier call */
    return fail_as(primary, os_errno, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc), err);
}

/* --- opening --- */

static int run(sqlite3 *db, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : db_fail(db, rc, err);
}

/* Made here and not by SQLite, so that there is no moment in which others may read it; its other
 * files take their mode from this one. */
static int make_file(const char *path, struct err *err)
{
    struct stat st;

    scoped_fd int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "open '%s'", path);
    if (fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at '%s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_IO, 0, "'%s' is not a file", path);
    return 0;
}

/* A database that somebody else has made must not make us run anything of theirs. */
static int configure(sqlite3 *db, const char *synchronous, struct err *err)
{
    static const struct {
        int what;
        int value;
    } settings[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_DQS_DML, 0},        {SQLITE_DBCONFIG_DQS_DDL, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1},
    };

    int rc = SQLITE_OK;

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]) && rc == SQLITE_OK; i++)
        rc = sqlite3_db_config(db, settings[i].what, settings[i].value, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(db, BUSY_MS);
    if (rc != SQLITE_OK)
        return db_fail(db, rc, err);
    (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, STORE_ROW_MAX);
    (void)sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    /* Files for sorting are kept in memory: the front may write nowhere else. */
    if (run(db,
            "PRAGMA cache_size = -2048; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;"
            "PRAGMA journal_size_limit = 4194304;",
            err) < 0)
        return -1;
    return run(db,
               strcmp(synchronous, "FULL") == 0 ? "PRAGMA synchronous = FULL"
                                                : "PRAGMA synchronous = NORMAL",
               err);
}

static int keep_path(sqlite3_vfs *vfs, const char *path, int size, char *ret)
{
    size_t n = strlen(path);

    (void)vfs;
    if (size <= 0 || n >= (size_t)size)
        return SQLITE_CANTOPEN;
    memcpy(ret, path, n + 1);
    return SQLITE_OK;
}

/* The usual files, by the path that was given. SQLite would make a full one of it, and the
 * directories above the current one may be closed to us. */
static const char *files_by_path(void)
{
    static sqlite3_vfs vfs;
    const sqlite3_vfs *usual = sqlite3_vfs_find(NULL);

    if (vfs.zName || !usual)
        return vfs.zName;
    vfs = *usual;
    vfs.pNext = NULL;
    vfs.zName = "by-path";
    vfs.xFullPathname = keep_path;
    return sqlite3_vfs_register(&vfs, 0) == SQLITE_OK ? vfs.zName : NULL;
}

int db_open(sqlite3 **ret, const char *path, const char *synchronous, struct err *err)
{
    sqlite3 *db = NULL;

    if (make_file(path, err) < 0)
        return -1;
    int rc = sqlite3_open_v2(path, &db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                             files_by_path());
    if (rc != SQLITE_OK) {
        db_fail(db, rc, err);
        (void)sqlite3_close(db);
        return err_wrap(err, "open '%s'", path);
    }
    if (configure(db, synchronous, err) < 0) {
        (void)sqlite3_close(db);
        return err_wrap(err, "open '%s'", path);
    }
    *ret = db;
    return 0;
}

/* --- versions --- */

static int ask(sqlite3 *db, const char *sql, int64_t *ret, struct err *err)
{
    sqlite3_stmt *stmt = NULL;

    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *ret = sqlite3_column_int64(stmt, 0);
    else
        db_fail(db, rc, err);
    (void)sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : -1;
}

/* Runs what answers with one word: 0 when it is the wanted one. */
static int want(sqlite3 *db, const char *sql, const char *wanted, const char *complaint,
                struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int result = -1;

    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    const char *words = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
    if (words && strcmp(words, wanted) == 0)
        result = 0;
    else if (words)
        err_set(err, ERR_IO, 0, "%s: %s", complaint, words);
    else
        db_fail(db, rc, err);
    (void)sqlite3_finalize(stmt);
    return result;
}

static int check_ours(sqlite3 *db, int64_t version, int count, struct err *err)
{
    int64_t tables;

    if (version > count)
        return err_set(err, ERR_CONFLICT, 0,
                       "the database was written by a newer Carrel (schema %jd, this one knows %d)",
                       (intmax_t)version, count);
    if (version < 0)
        return err_set(err, ERR_CONFLICT, 0, "the database is not Carrel's");
    if (version > 0)
        return 0;
    if (ask(db, "SELECT count(*) FROM sqlite_schema", &tables, err) < 0)
        return -1;
    return tables ? err_set(err, ERR_CONFLICT, 0, "the database is not Carrel's") : 0;
}

/* In a transaction: another process may have been here first. */
static int take_steps(sqlite3 *db, const char *const *steps, int count, struct err *err)
{
    int64_t version;

    if (ask(db, "PRAGMA user_version", &version, err) < 0 ||
        check_ours(db, version, count, err) < 0)
        return -1;
    for (; version < count; version++)
        if (run(db, steps[version], err) < 0)
            return err_wrap(err, "migrate the database to schema %jd", (intmax_t)version + 1);
    return run(db, "COMMIT", err);
}

int db_prepare(sqlite3 *db, const char *const *steps, int count, struct err *err)
{
    int64_t version;

    /* Only then is anything written: a file that is refused stays as it was. */
    if (ask(db, "PRAGMA user_version", &version, err) < 0 ||
        check_ours(db, version, count, err) < 0 ||
        want(db, "PRAGMA quick_check(1)", "ok", "the database is damaged", err) < 0 ||
        want(db, "PRAGMA journal_mode = WAL", "wal", "the database cannot have a write-ahead log",
             err) < 0)
        return -1;
    if (version == count)
        return 0;
    if (run(db, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    if (take_steps(db, steps, count, err) == 0)
        return 0;
    (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL); /* what failed is said already */
    return -1;
}
