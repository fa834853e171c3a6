/* SPDX-License-Identifier: Apache-2.0 */
/* store/: what was acknowledged is there, in order, found by an index; strange files are refused.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "store/db.h"
#include "store/store.h"

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

static bool note_workspace(void *context, const struct store_workspace *w)
{
    (void)context;
    return note(w->id);
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

static const char *workspaces(const char *owner, bool deleted, const char *after, size_t limit)
{
    new_list();
    return store_workspaces(store, owner, deleted, after, limit, note_workspace, NULL, &err) < 0
               ? err.msg
               : list;
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

/* --- files --- */

TEST(a_database_is_made_private_and_opened_again)
{
    struct stat st;
    char wal[100];

    CHECK(new_store() == 0);
    CHECK(add_key("k1", "aa", "alice") == 0);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    snprintf(wal, sizeof(wal), "%s-wal", path);
    CHECK(stat(wal, &st) == 0 && (st.st_mode & 07777) == 0600);
    CHECK(reopen() == 0);
    CHECK(strcmp(keys(NULL, NULL, 10), "k1") == 0);
    CHECK(number_of("PRAGMA user_version") == STORE_VERSION);
    store_close(NULL);
    return 0;
}

TEST(a_newer_database_is_refused_and_left_alone)
{
    CHECK(new_store() == 0);
    CHECK(add_key("k1", "aa", "alice") == 0);
    store_close(store);
    store = NULL;
    CHECK(run_sql("PRAGMA user_version = 99"));
    CHECK(store_open(&store, path, &err) < 0 && err.code == ERR_CONFLICT);
    CHECK(strstr(err.msg, "was written by a newer Carrel (schema 99"));
    CHECK(number_of("PRAGMA user_version") == 99 && number_of("SELECT count(*) FROM keys") == 1);
    return 0;
}

TEST(files_that_are_no_database_of_ours_are_refused)
{
    static const char text[] =
        "this is a text, and not a database at all, however long it may be\n";

    new_path();
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 100; i++)
        CHECK(write(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    CHECK(store_open(&store, path, &err) < 0 && err.code == ERR_IO);
    CHECK(strstr(err.msg, "is not a database"));

    new_path();
    CHECK(run_sql("CREATE TABLE other (a)"));
    CHECK(store_open(&store, path, &err) < 0 && err.code == ERR_CONFLICT);
    CHECK(strstr(err.msg, "not Carrel's") && number_of("SELECT count(*) FROM sqlite_schema") == 1);
    CHECK(access(path, F_OK) == 0 && number_of("SELECT count(*) FROM pragma_journal_mode"
                                               " WHERE journal_mode = 'delete'") == 1);

    new_path();
    CHECK(store_open(&store, "/nonexistent/carrel.db", &err) < 0 && err.os_errno == ENOENT);
    CHECK(symlink("/etc/hostname", path) == 0);
    CHECK(store_open(&store, path, &err) < 0 && err.os_errno == ELOOP);
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK(store_open(&store, path, &err) < 0 && strstr(err.msg, "is not a file"));
    return 0;
}

TEST(a_damaged_database_is_refused_in_words)
{
    char id[32];
    char byte[4096];

    CHECK(new_store() == 0);
    for (int i = 0; i < 500; i++) {
        snprintf(id, sizeof(id), "w%d", i);
        CHECK(add_workspace(id, "alice") == 0);
    }
    store_close(store);
    store = NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    memset(byte, 0x5a, sizeof(byte));
    for (off_t at = 40960; at < 61440; at += 4096)
        CHECK(pwrite(fd, byte, sizeof(byte), at) == sizeof(byte));
    close(fd);
    CHECK(store_open(&store, path, &err) < 0 && err.code == ERR_IO);
    CHECK(strstr(err.msg, "damaged"));
    return 0;
}

/* --- migrations --- */

TEST(migrations_take_the_missing_steps_all_or_none)
{
    _Static_assert(STORE_VERSION == 5, "the steps after the last one");
    const char *const good[] = {db_steps[0],
                                db_steps[1],
                                db_steps[2],
                                db_steps[3],
                                db_steps[4],
                                "ALTER TABLE keys ADD COLUMN more TEXT NOT NULL DEFAULT 'x';"
                                "PRAGMA user_version = 6;",
                                "CREATE TABLE third (a TEXT) STRICT; PRAGMA user_version = 7;"};
    const char *const bad[] = {good[0],
                               good[1],
                               good[2],
                               good[3],
                               good[4],
                               good[5],
                               "CREATE TABLE third (a TEXT) STRICT; nonsense;"};
    sqlite3 *db;

    CHECK(new_store() == 0);
    CHECK(add_key("k1", "aa", "alice") == 0);
    store_close(store);
    store = NULL;
    CHECK(db_open(&db, path, "FULL", &err) == 0);
    CHECK(db_prepare(db, bad, 7, &err) < 0 && strstr(err.msg, "migrate the database to schema 7"));
    CHECK(number_of("PRAGMA user_version") == STORE_VERSION);
    CHECK(number_of("SELECT count(*) FROM sqlite_schema WHERE name = 'third'") == 0);
    CHECK(number_of("SELECT count(*) FROM pragma_table_info('keys') WHERE name = 'more'") == 0);
    CHECK(db_prepare(db, good, 7, &err) == 0 && db_prepare(db, good, 7, &err) == 0);
    CHECK(number_of("PRAGMA user_version") == 7);
    CHECK(number_of("SELECT count(*) FROM keys WHERE more = 'x'") == 1);
    CHECK(sqlite3_close(db) == SQLITE_OK);
    CHECK(store_open(&store, path, &err) < 0 && strstr(err.msg, "schema 7"));
    return 0;
}

TEST(a_database_of_the_first_version_has_ports_afterwards)
{
    sqlite3 *db;

    new_path();
    CHECK(db_open(&db, path, "FULL", &err) == 0);
    CHECK(db_prepare(db, db_steps, 1, &err) == 0 && sqlite3_close(db) == SQLITE_OK);
    CHECK(store_open(&store, path, &err) == 0);
    CHECK(number_of("PRAGMA user_version") == STORE_VERSION);
    CHECK(number_of("SELECT count(*) FROM ports") == 0);
    return 0;
}

TEST(a_database_of_the_second_version_has_plans_afterwards_and_keeps_its_rows)
{
    sqlite3 *db;

    new_path();
    CHECK(db_open(&db, path, "FULL", &err) == 0);
    CHECK(db_prepare(db, db_steps, 2, &err) == 0 && sqlite3_close(db) == SQLITE_OK);
    CHECK(run_sql("INSERT INTO keys VALUES ('k1', 'aa', '', 'alice', 2, '', 1, 0)"));
    CHECK(store_open(&store, path, &err) == 0);
    CHECK(number_of("PRAGMA user_version") == STORE_VERSION);
    CHECK(number_of("SELECT count(*) FROM plans") == 0);
    CHECK(number_of("SELECT count(*) FROM keys WHERE owner = 'alice'") == 1);
    return 0;
}

TEST(a_database_of_the_third_version_has_templates_afterwards_and_its_workspaces_are_on_none)
{
    struct store_workspace w;
    struct arena arena;
    sqlite3 *db;

    new_path();
    CHECK(db_open(&db, path, "FULL", &err) == 0);
    CHECK(db_prepare(db, db_steps, 3, &err) == 0 && sqlite3_close(db) == SQLITE_OK);
    CHECK(run_sql("INSERT INTO workspaces VALUES ('w1', 'alice', 'main', '{}', '{}', '{}', 1, 2,"
                  " 0, '')"));
    CHECK(store_open(&store, path, &err) == 0);
    CHECK(number_of("PRAGMA user_version") == STORE_VERSION);
    CHECK(number_of("SELECT count(*) FROM templates") == 0);
    arena_init(&arena, 1 << 20);
    CHECK(store_workspace_get(store, &arena, "w1", &w, &err) == 1 && *w.template == '\0');
    arena_clear(&arena);
    return 0;
}

/* --- templates --- */

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

static bool note_template(void *context, const struct store_template *t)
{
    size_t used = strlen(list);

    (void)context;
    snprintf(list + used, sizeof(list) - used, "%s%s=%s", used ? " " : "", t->name, t->state);
    return true;
}

static const char *templates(bool unfinished)
{
    new_list();
    return store_templates(store, unfinished, NULL, 100, note_template, NULL, &err) < 0 ? err.msg
                                                                                        : list;
}

TEST(a_workspace_becomes_a_template_in_one_step)
{
    struct store_template t;
    struct arena arena;

    arena_init(&arena, 1 << 20);
    CHECK(new_store() == 0 && add_workspace("build", "alice") == 0);
    CHECK(add_template("t1", "office", "build") == 0);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 0);
    CHECK(strcmp(templates(false), "") == 0 && strcmp(templates(true), "office=freezing") == 0);
    CHECK(add_on("early", "t1") < 0 && err.code == ERR_NOT_FOUND);
    CHECK(store_template_removing(store, "t1", &err) == 0);
    CHECK(make_ready("t1", "office", "build") == 0);
    CHECK(make_ready("t1", "office", "build") < 0 && err.code == ERR_CONFLICT);
    CHECK(number_of("SELECT count(*) FROM workspaces") == 0);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 1);
    CHECK(strcmp(t.id, "t1") == 0 && t.bytes == 4096 && t.files == 7 && t.created_ms == 5);
    CHECK(strcmp(t.state, "ready") == 0 && strcmp(t.owner, "alice") == 0 && t.share_cache);
    CHECK(reopen() == 0 && strcmp(templates(false), "office=ready") == 0);
    arena_clear(&arena);
    return 0;
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

TEST(a_templates_name_is_of_one_build_at_a_time)
{
    struct store_workspace w = {.id = "b1", .trash = "5", .deleted_ms = 5};
    struct store_workspace rows[4];
    struct store_template t;
    struct arena arena;

    arena_init(&arena, 1 << 20);
    CHECK(new_store() == 0 && add_workspace("plain", "alice") == 0);
    CHECK(add_build("b1", "office") == 0 && add_build("other", "lab") == 0);
    CHECK(add_build("b2", "office") < 0 && err.code == ERR_CONFLICT);
    CHECK(store_build_of(store, &arena, "office", &rows[0], &err) == 1);
    CHECK(strcmp(rows[0].id, "b1") == 0 && strcmp(rows[0].builds, "office") == 0);
    CHECK(store_build_of(store, &arena, "", &rows[0], &err) == 0);
    CHECK(store_builds(store, &arena, rows, 4, &err) == 2 && strcmp(rows[0].id, "other") == 0);
    /* Frozen is the one that builds it, and one of a name at a time. */
    CHECK(add_template("t1", "office", "plain") < 0 && err.code == ERR_CONFLICT);
    CHECK(add_template("t1", "office", "b1") == 0);
    CHECK(add_template("t2", "office", "b1") < 0 && err.code == ERR_CONFLICT);
    CHECK(store_template_freezing(store, &arena, "office", &t, &err) == 1);
    CHECK(store_template_frozen(store, &arena, "b1", &t, &err) == 1 && strcmp(t.id, "t1") == 0);
    CHECK(store_template_frozen(store, &arena, "plain", &t, &err) == 0);
    CHECK(store_template_remove(store, "t1", &err) == 0);
    /* In the trash it has none, nor when it is back. */
    CHECK(store_workspace_move(store, &w, 0, &err) == 0 && add_build("b2", "office") == 0);
    w.deleted_ms = 0;
    w.trash = "";
    CHECK(store_workspace_move(store, &w, 5, &err) == 0);
    CHECK(store_build_of(store, &arena, "office", &rows[0], &err) == 1 &&
          !strcmp(rows[0].id, "b2"));
    CHECK(add_template("t3", "office", "b2") == 0 && make_ready("t3", "office", "b2") == 0);
    CHECK(store_build_of(store, &arena, "office", &rows[0], &err) == 0);
    arena_clear(&arena);
    return 0;
}

TEST(a_template_goes_when_nobody_uses_it_and_a_name_means_the_newest)
{
    struct store_template t;
    struct arena arena;
    uint64_t users = 9;
    const char *names[2];

    arena_init(&arena, 1 << 20);
    CHECK(new_store() == 0);
    CHECK(add_template("t1", "office", "b1") == 0 && make_ready("t1", "office", "b1") == 0);
    CHECK(add_on("w1", "t1") == 0 && add_on("w2", "t1") == 0 && add_on("w3", "t1") == 0);
    CHECK(add_on("none", "tx") < 0 && err.code == ERR_NOT_FOUND);
    CHECK(add_on("plain", "") == 0 && add_on("w1", "") < 0 && err.code == ERR_CONFLICT);
    CHECK(store_template_users(store, "t1", NULL, &users, &err) == 0 && users == 3);
    CHECK(store_template_users(store, "t1", "bob", &users, &err) == 0 && users == 0);
    CHECK(store_template_user_names(store, &arena, "t1", names, 2, &err) == 2);
    CHECK(strcmp(names[0], "w1") == 0 && strcmp(names[1], "w2") == 0);
    CHECK(store_template_removing(store, "t1", &err) == 0);
    CHECK(add_template("t2", "office", "b2") == 0 && make_ready("t2", "office", "b2") == 0);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 1 && !strcmp(t.id, "t2"));
    CHECK(strcmp(templates(false), "office=ready") == 0);
    CHECK(strcmp(templates(true), "office=retired") == 0);
    CHECK(store_template_remove(store, "t2", &err) == 0); /* it can be used: it stays */
    CHECK(store_template_get(store, &arena, "t2", &t, &err) == 1);
    CHECK(run_sql("DELETE FROM workspaces WHERE template = 't1'"));
    CHECK(store_template_removing(store, "t1", &err) == 1);
    CHECK(add_on("late", "t1") < 0 && err.code == ERR_NOT_FOUND);
    CHECK(store_template_remove(store, "t1", &err) == 0);
    CHECK(store_template_get(store, &arena, "t1", &t, &err) == 0);
    CHECK(store_template_removing(store, "t2", &err) == 1);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 0);
    arena_clear(&arena);
    return 0;
}

/* --- plans --- */

enum {
    PLAN_DISK = 5000
};

static int add_plan(const char *id, const char *workspace, const char *state, int64_t due_ms)
{
    struct store_plan p = {.id = id,
                           .workspace = workspace,
                           .owner = "alice",
                           .state = state,
                           .origin = "run",
                           .key = "k1",
                           .actor = "key:k1",
                           .principal = "alice",
                           .details = "{}",
                           .bytes = PLAN_DISK - 1,
                           .disk_bytes = PLAN_DISK,
                           .created_ms = 1,
                           .due_ms = due_ms};

    return store_plan_add(store, &p, &err);
}

static char plans_seen[256];

static bool see_plan(void *context, const struct store_plan *p)
{
    (void)context;
    strncat(plans_seen, p->id, sizeof(plans_seen) - strlen(plans_seen) - 1);
    strncat(plans_seen, " ", sizeof(plans_seen) - strlen(plans_seen) - 1);
    return true;
}

static const char *plans_of(const char *workspace, const char *state, const char *before)
{
    plans_seen[0] = '\0';
    return store_plans(store, workspace, state, before, 100, see_plan, NULL, &err) < 0 ? "failed"
                                                                                       : plans_seen;
}

TEST(plans_are_added_changed_listed_and_go_with_their_workspace)
{
    struct store_plan p;
    struct arena arena;

    CHECK(new_store() == 0);
    CHECK(add_plan("p1", "nobodys", "open", 0) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    CHECK(add_plan("p1", "w1", "open", 0) == 0 && add_plan("p2", "w1", "pending", 50) == 0);
    CHECK(add_plan("p3", "w2", "queued", 20) == 0);
    CHECK(add_plan("p1", "w1", "open", 0) < 0 && err.code == ERR_CONFLICT);
    CHECK(add_plan("p4", "w1", "strange", 0) < 0 && err.code == ERR_INVALID);
    CHECK(strcmp(plans_of(NULL, NULL, NULL), "p3 p2 p1 ") == 0);
    CHECK(strcmp(plans_of("w1", NULL, NULL), "p2 p1 ") == 0);
    CHECK(strcmp(plans_of("w1", NULL, "p2"), "p1 ") == 0);
    CHECK(strcmp(plans_of(NULL, "pending", NULL), "p2 ") == 0);
    plans_seen[0] = '\0';
    CHECK(store_plans_due(store, 40, see_plan, NULL, &err) == 0 && strcmp(plans_seen, "p3 ") == 0);
    arena_init(&arena, 1 << 20);
    CHECK(store_plan_get(store, &arena, "p2", &p, &err) == 1 && p.due_ms == 50);
    p.state = "approved";
    p.hash = "ab";
    CHECK(store_plan_change(store, &p, "open", &err) < 0 && err.code == ERR_CONFLICT);
    CHECK(store_plan_change(store, &p, "pending", &err) == 0);
    CHECK(store_plan_change(store, &p, "pending", &err) < 0); /* once */
    CHECK(store_plan_get(store, &arena, "p2", &p, &err) == 1 && strcmp(p.state, "approved") == 0);
    CHECK(store_plan_undecided(store, &arena, "w1", &p, &err) == 1 && strcmp(p.id, "p2") == 0);
    CHECK(run_sql("UPDATE plans SET state = 'discarded'"));
    CHECK(store_plan_undecided(store, &arena, "w1", &p, &err) == 0);
    arena_clear(&arena);
    CHECK(run_sql("PRAGMA foreign_keys = 1; DELETE FROM workspaces WHERE id = 'w1'"));
    CHECK(strcmp(plans_of(NULL, NULL, NULL), "p3 ") == 0);
    CHECK(store_plan_remove(store, "p3", &err) == 0 && *plans_of(NULL, NULL, NULL) == '\0');
    return 0;
}

TEST(of_the_plans_that_are_due_each_workspace_has_its_oldest)
{
    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    CHECK(add_plan("p0", "w1", "queued", 99) == 0); /* not yet */
    CHECK(add_plan("p1", "w1", "queued", 10) == 0 && add_plan("p2", "w1", "queued", 10) == 0);
    CHECK(add_plan("p3", "w2", "queued", 20) == 0 && add_plan("p4", "w1", "queued", 5) == 0);
    plans_seen[0] = '\0';
    CHECK(store_plans_due(store, 40, see_plan, NULL, &err) == 0);
    CHECK(strcmp(plans_seen, "p1 p3 ") == 0);
    return 0;
}

TEST(plans_are_counted_and_those_without_files_forgotten)
{
    uint64_t bytes = 0;
    size_t n = 0;

    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    CHECK(add_plan("p1", "w1", "applied", 0) == 0 && add_plan("p2", "w1", "discarded", 0) == 0);
    CHECK(add_plan("p3", "w1", "stale", 0) == 0 && add_plan("p4", "w1", "open", 0) == 0);
    CHECK(add_plan("p5", "w1", "queued", 1) == 0 && add_plan("p6", "w2", "open", 0) == 0);
    CHECK(store_plans_count_undecided(store, "w1", &n, &bytes, &err) == 0 && n == 2);
    CHECK(bytes == 2 * PLAN_DISK);
    CHECK(store_plan_drop(store, "p1", &err) == 0);
    plans_seen[0] = '\0';
    CHECK(store_plans_over(store, "w1", see_plan, NULL, &err) == 0);
    CHECK(strcmp(plans_seen, "p3 ") == 0);
    CHECK(store_plans_forget(store, "w1", 1, INT64_MIN, &err) == 0);
    CHECK(strcmp(plans_of("w1", NULL, NULL), "p5 p4 p3 p2 ") == 0);
    CHECK(store_plans_forget(store, "w1", 5, INT64_MAX, &err) == 0);
    CHECK(strcmp(plans_of("w1", NULL, NULL), "p5 p4 p3 ") == 0);
    CHECK(strcmp(plans_of("w2", NULL, NULL), "p6 ") == 0);
    return 0;
}

TEST(the_settings_are_those_that_keep_it_safe_and_small)
{
    static const struct {
        const char *sql;
        int64_t value;
    } settings[] = {{"PRAGMA cache_size", -2048},
                    {"PRAGMA foreign_keys", 1},
                    {"PRAGMA trusted_schema", 0},
                    {"PRAGMA mmap_size", 0},
                    {"PRAGMA temp_store", 2}};

    CHECK(new_store() == 0);
    for (int i = 0; i < 2; i++) {
        sqlite3 *db = i ? store->quick : store->durable;
        for (size_t k = 0; k <= LENGTH(settings); k++) {
            bool is_last = k == LENGTH(settings);
            sqlite3_stmt *stmt;
            CHECK(sqlite3_prepare_v2(db, is_last ? "PRAGMA synchronous" : settings[k].sql, -1,
                                     &stmt, NULL) == SQLITE_OK);
            CHECK(sqlite3_step(stmt) == SQLITE_ROW);
            CHECK(sqlite3_column_int64(stmt, 0) == (is_last ? 2 - i : settings[k].value));
            sqlite3_finalize(stmt);
        }
        CHECK(sqlite3_exec(db, "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema", NULL, NULL,
                           NULL) != SQLITE_OK);
        CHECK(sqlite3_exec(db, "ATTACH '/tmp/x' AS x", NULL, NULL, NULL) != SQLITE_OK);
    }
    return 0;
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

/* --- commands --- */

TEST(a_command_ends_once_and_lists_are_newest_first)
{
    struct store_exec e;
    char id[32];

    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof(id), "x%02d", (i * 7) % 40); /* ids say nothing about the order */
        CHECK(add_exec(id, i % 4 ? "w1" : "w2") == 0);
    }
    CHECK(strcmp(execs(NULL, NULL, NULL, 4), "x33,x26,x19,x12") == 0);
    CHECK(strcmp(execs(NULL, NULL, "x19", 2), "x12,x05") == 0);
    CHECK(strcmp(execs("w2", NULL, NULL, 2), "x12,x24") == 0);
    CHECK(strcmp(execs("w2", NULL, "x24", 2), "x36,x08") == 0);
    CHECK(strlen(execs("w1", "running", NULL, 99)) == 30 * 4 - 1);
    CHECK(strcmp(execs("w1", "ended", NULL, 99), "") == 0);
    CHECK(store_exec_end(store, "x26", "{\"exit_code\":3}", 55, &err) == 1);
    CHECK(store_exec_end(store, "x26", "{\"exit_code\":4}", 66, &err) == 0);
    CHECK(store_exec_end(store, "none", "{}", 66, &err) == 0);
    CHECK(store_exec_get(store, &arena, "x26", &e, &err) == 1);
    CHECK(strcmp(e.state, "ended") == 0 && e.ended_ms == 55 && e.tty && e.started_ms == 7);
    CHECK(strcmp(e.result, "{\"exit_code\":3}") == 0 && strcmp(e.workspace, "w1") == 0);
    CHECK(store_exec_get(store, &arena, "none", &e, &err) == 0);
    CHECK(strcmp(execs(NULL, "ended", NULL, 9), "x26") == 0);
    CHECK(strcmp(execs(NULL, "running", NULL, 2), "x33,x19") == 0);
    CHECK(strcmp(execs(NULL, NULL, "gone", 9), "") == 0);
    CHECK(strstr(execs(NULL, "odd", NULL, 9), "'running' or 'ended'") && err.code == ERR_INVALID);
    CHECK(add_exec("x26", "w1") < 0 && err.code == ERR_CONFLICT);
    return 0;
}

TEST(what_ended_long_ago_is_forgotten_once_somebody_has_seen_it)
{
    struct store_exec e;
    char id[32];

    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0);
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "x%02d", i);
        CHECK(add_exec(id, "w1") == 0);
        if (i < 45)
            CHECK(store_exec_end(store, id, "{}", 100 + i, &err) == 1);
    }
    new_list();
    stop_after = 3; /* whoever removes the files may fail: then the row stays */
    CHECK(store_execs_expire(store, 140, note_exec, NULL, &err) == 0);
    CHECK(strcmp(list, "x00,x01,x02") == 0);
    CHECK(store_exec_get(store, &arena, "x01", &e, &err) == 0);
    CHECK(store_exec_get(store, &arena, "x02", &e, &err) == 1);
    new_list();
    CHECK(store_execs_expire(store, 140, note_exec, NULL, &err) == 0);
    CHECK(strlen(list) == 38 * 4 - 1);
    CHECK(number_of("SELECT count(*) FROM execs") == 10);
    CHECK(strcmp(execs("w1", "ended", NULL, 9), "x44,x43,x42,x41,x40") == 0);
    return 0;
}

TEST(a_row_too_long_is_refused_and_the_store_goes_on)
{
    char *big = malloc(STORE_ROW_MAX + 10);

    CHECK(new_store() == 0);
    memset(big, 'x', STORE_ROW_MAX + 9);
    big[STORE_ROW_MAX + 9] = '\0';
    CHECK(add_key(big, "aa", "alice") < 0 && err.code == ERR_INVALID);
    big[1 << 20] = '\0';
    CHECK(add_workspace("w1", "alice") == 0);
    CHECK(add_exec("x1", "w1") == 0 && store_exec_end(store, "x1", big, 1, &err) == 1);
    struct store_exec e;
    struct arena small;
    arena_init(&small, 1000);
    CHECK(store_exec_get(store, &small, "x1", &e, &err) < 0 && err.code == ERR_LIMIT);
    arena_clear(&small);
    CHECK(store_exec_get(store, &arena, "x1", &e, &err) == 1 && strlen(e.result) == 1 << 20);
    free(big);
    return 0;
}

/* --- the end of the process, and of the disk --- */

/* Adds rows until it is killed, and says so after each. */
static void add_until_killed(int pipe_fd)
{
    char id[32];

    if (store_open(&store, path, &err) < 0 || add_workspace("w", "alice") < 0)
        _exit(1);
    for (unsigned i = 0;; i++) {
        snprintf(id, sizeof(id), "%u", i);
        if (add_workspace(id, "alice") < 0 || add_exec(id, "w") < 0 ||
            (i % 2 && store_exec_end(store, id, "{}", 1, &err) != 1) ||
            write(pipe_fd, &i, sizeof(i)) != sizeof(i))
            _exit(1);
    }
}

TEST(everything_acknowledged_is_there_after_the_process_was_killed)
{
    for (int round = 0; round < 5; round++) {
        int ends[2];
        unsigned last = 0;
        unsigned got;

        new_path();
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        pid_t child = fork();
        if (child == 0)
            add_until_killed(ends[1]);
        close(ends[1]);
        while (read(ends[0], &got, sizeof(got)) == sizeof(got)) {
            last = got;
            if (last == 40U + (unsigned)round * 7)
                CHECK(kill(child, SIGKILL) == 0); /* in the middle of whatever comes next */
        }
        close(ends[0]);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && last >= 40);
        CHECK(store_open(&store, path, &err) == 0);
        for (unsigned i = 0; i <= last; i++) {
            struct store_workspace w;
            struct store_exec e;
            char id[32];
            snprintf(id, sizeof(id), "%u", i);
            CHECK(store_workspace_get(store, &arena, id, &w, &err) == 1);
            CHECK(store_exec_get(store, &arena, id, &e, &err) == 1);
            CHECK(strcmp(e.state, i % 2 ? "ended" : "running") == 0);
        }
    }
    return 0;
}

TEST(a_disk_that_takes_no_more_is_an_error_and_leaves_nothing_half)
{
    struct rlimit before;
    char id[32];
    int added = 0;

    CHECK(new_store() == 0);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    struct rlimit limit = {.rlim_cur = 500000, .rlim_max = before.rlim_max};
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (; added < 5000; added++) {
        snprintf(id, sizeof(id), "w%05d", added);
        if (add_workspace(id, "alice") < 0)
            break;
    }
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(added > 10 && added < 5000 && err.code == ERR_IO);
    CHECK(number_of("SELECT count(*) FROM workspaces") == added);
    CHECK(add_workspace(id, "alice") == 0); /* and it goes on when there is room again */
    CHECK(reopen() == 0);
    CHECK(number_of("SELECT count(*) FROM workspaces") == added + 1);
    return 0;
}

TEST(full_disks_are_called_that)
{
    CHECK(new_store() == 0);
    CHECK(db_fail(store->durable, SQLITE_FULL, &err) == -1 && err.code == ERR_IO);
    CHECK(err.os_errno == ENOSPC);
    CHECK(db_fail(NULL, SQLITE_NOMEM, &err) == -1 && err.code == ERR_LIMIT);
    CHECK(db_fail(NULL, SQLITE_BUSY_SNAPSHOT, &err) == -1 && err.code == ERR_CONFLICT);
    CHECK(db_fail(NULL, SQLITE_CORRUPT_VTAB, &err) == -1 && strstr(err.msg, "damaged"));
    CHECK(db_fail(NULL, SQLITE_READONLY, &err) == -1 && err.code == ERR_DENIED);
    return 0;
}
