/* SPDX-License-Identifier: Apache-2.0 */
/* store/: the file. Strange ones are refused, older ones brought up to date, and what was
 * acknowledged is there after the end of the process, or of the disk. */
#include "store_scene.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
    char below[300];

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
    CHECK(snprintf(below, sizeof(below), "%s/carrel.db", path) < (int)sizeof(below));
    CHECK(store_open(&store, below, &err) < 0 && err.os_errno == ENOENT);
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
    const int last = STORE_VERSION + 2;
    const char *good[STORE_VERSION + 2];
    const char *bad[STORE_VERSION + 2];
    char second[128];
    char third[128];
    char complaint[64];
    sqlite3 *db;

    (void)snprintf(second, sizeof(second),
                   "ALTER TABLE keys ADD COLUMN more TEXT NOT NULL DEFAULT 'x';"
                   "PRAGMA user_version = %d;",
                   last - 1);
    (void)snprintf(third, sizeof(third),
                   "CREATE TABLE third (a TEXT) STRICT; PRAGMA user_version = %d;", last);
    (void)snprintf(complaint, sizeof(complaint), "migrate the database to schema %d", last);
    for (size_t i = 0; i < STORE_VERSION; i++)
        good[i] = bad[i] = db_steps[i];
    good[STORE_VERSION] = bad[STORE_VERSION] = second;
    good[STORE_VERSION + 1] = third;
    bad[STORE_VERSION + 1] = "CREATE TABLE third (a TEXT) STRICT; nonsense;";
    CHECK(new_store() == 0);
    CHECK(add_key("k1", "aa", "alice") == 0);
    store_close(store);
    store = NULL;
    CHECK(db_open(&db, path, "FULL", &err) == 0);
    CHECK(db_prepare(db, bad, last, &err) < 0 && strstr(err.msg, complaint));
    CHECK(number_of("PRAGMA user_version") == STORE_VERSION);
    CHECK(number_of("SELECT count(*) FROM sqlite_schema WHERE name = 'third'") == 0);
    CHECK(number_of("SELECT count(*) FROM pragma_table_info('keys') WHERE name = 'more'") == 0);
    CHECK(db_prepare(db, good, last, &err) == 0 && db_prepare(db, good, last, &err) == 0);
    CHECK(number_of("PRAGMA user_version") == last);
    CHECK(number_of("SELECT count(*) FROM keys WHERE more = 'x'") == 1);
    CHECK(sqlite3_close(db) == SQLITE_OK);
    CHECK(store_open(&store, path, &err) < 0 && strstr(err.msg, strstr(complaint, "schema")));
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

TEST(a_database_of_the_fifth_version_has_the_same_keys_afterwards_for_all_of_their_owners)
{
    struct store_key key;
    sqlite3 *db;

    new_path();
    CHECK(db_open(&db, path, "FULL", &err) == 0);
    CHECK(db_prepare(db, db_steps, 5, &err) == 0 && sqlite3_close(db) == SQLITE_OK);
    CHECK(run_sql("INSERT INTO keys VALUES ('k1', 'aa', 'laptop', 'alice', 6, 'k0', 1, 0)"));
    CHECK(store_open(&store, path, &err) == 0);
    CHECK(number_of("PRAGMA user_version") == STORE_VERSION);
    CHECK(store_key_by_hash(store, &arena, "aa", &key, &err) == 1);
    CHECK(key.scopes == (SCOPE_USER | SCOPE_APPROVE) && strcmp(key.owner, "alice") == 0);
    CHECK(strcmp(key.made_by, "k0") == 0 && strcmp(key.name, "laptop") == 0);
    CHECK(!*key.workspaces && !*key.template && !*key.policy);
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
