/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: made, listed, moved, copied and removed. */
#include "files_scene.h"

#include <errno.h>
#include <sys/syscall.h>

/* --- trees --- */

TEST(stat_tells_what_is_there)
{
    fresh(true);
    make("a", "12", 0640);
    CHECK(symlink("a", at("link")) == 0);
    CHECK(call(files_stat, MSG(.path = at("link"))) == 200 && says("\"type\":\"symlink\"") &&
          says("\"target\":\"a\""));
    CHECK(call(files_stat, MSG(.path = at("link"), .flags = FILES_FOLLOW)) == 200 &&
          says("\"type\":\"file\"") && says("\"size\":2") && got.head.etag[0]);
    CHECK(call(files_stat, MSG(.path = "/")) == 200 && says("\"type\":\"directory\""));
    (void)call(files_stat, MSG(.path = at("b")));
    CHECK(is_error(404, "file_not_found"));
    (void)call(files_stat, MSG(.path = at("a/b")));
    CHECK(is_error(409, "not_a_directory"));
    return 0;
}

TEST(mkdir_chmod_and_symlink)
{
    fresh(true);
    CHECK(call(files_mkdir, MSG(.path = at("d"))) == 201 && mode_of("d") == 040755);
    (void)call(files_mkdir, MSG(.path = at("d")));
    CHECK(is_error(409, "already_exists"));
    CHECK(call(files_mkdir, MSG(.path = at("d"), .flags = FILES_PARENTS)) == 200);
    CHECK(call(files_mkdir, MSG(.path = at("d/e/f"), .flags = FILES_PARENTS, .mode = AS(0777))) ==
          201);
    CHECK(mode_of("d/e/f") == 040777 && mode_of("d/e") == 040755);
    make("d/x", "", 0644);
    (void)call(files_mkdir, MSG(.path = at("d/x"), .flags = FILES_PARENTS));
    CHECK(is_error(409, "already_exists"));
    CHECK(call(files_chmod, MSG(.path = at("d/x"), .mode = AS(07700))) == 200 &&
          mode_of("d/x") == 0100700);
    (void)call(files_chmod, MSG(.path = at("d/x")));
    CHECK(is_error(400, "invalid_request"));
    CHECK(call(files_chmod, MSG(.path = at("d"), .mode = AS(0), .flags = FILES_RECURSIVE)) == 200);
    CHECK(mode_of("d") == 040000);
    CHECK(call(files_chmod, MSG(.path = at("d"), .mode = AS(0755), .flags = FILES_RECURSIVE)) ==
          200);
    CHECK(mode_of("d/e/f") == 040755 && mode_of("d/x") == 0100755);
    CHECK(call(files_symlink, MSG(.path = at("l"), .other = "d/\xff")) == 201 &&
          says("\"target_b64\""));
    (void)call(files_symlink, MSG(.path = at("l"), .other = "x"));
    CHECK(is_error(409, "already_exists"));
    CHECK(call(files_symlink, MSG(.path = at("l"), .other = "x", .flags = FILES_REPLACE)) == 201);
    (void)call(files_symlink, MSG(.path = at("d"), .other = "x", .flags = FILES_REPLACE));
    CHECK(is_error(409, "is_directory"));
    (void)call(files_symlink, MSG(.path = at("m"), .other = ""));
    CHECK(is_error(400, "invalid_path"));
    CHECK(no_litter(2));
    return 0;
}

TEST(lists_in_order_by_pages_and_depth)
{
    static const char *const want[] = {"a", "a/b", "a/b/c", "a/z", "a-b", "a-b/1", "b"};
    char cursor[FILES_CURSOR] = "";
    size_t told = 0;

    fresh(false);
    CHECK(PUT("a/b/c", "1") == 201 && PUT("a/z", "1") == 201 && PUT("a-b/1", "1") == 201 &&
          PUT("b", "1") == 201);
    CHECK(call(files_list, MSG(.path = at(""), .depth = 1, .limit = 10)) == 200);
    CHECK(says("/a\"") && says("/a-b\"") && !says("/a/b\"") && says("\"next\":null"));
    for (size_t limit = 1; limit <= 8; limit++) {
        cursor[0] = '\0';
        told = 0;
        for (int pages = 0; pages < 20; pages++) {
            CHECK(call(files_list,
                       MSG(.path = at(""), .depth = 9, .limit = limit, .cursor = cursor)) == 200);
            char *entry = strstr(got.body, "\"entries\"");
            for (size_t i = 0; (entry = strstr(entry, "\"path\":\"")); entry++, i++) {
                CHECK(i < limit && told < LENGTH(want));
                char full[FILES_PATH];
                (void)snprintf(full, sizeof(full), "\"path\":\"%s\"", at(want[told]));
                CHECK_FOR(want[told], strncmp(entry, full, strlen(full)) == 0);
                told++;
            }
            const char *next = strstr(got.body, "\"next\":\"");
            if (!next)
                break;
            (void)snprintf(cursor, sizeof(cursor), "%.*s", (int)strcspn(next + 8, "\""), next + 8);
        }
        CHECK(told == LENGTH(want));
    }
    (void)call(files_list, MSG(.path = at("b"), .limit = 10));
    CHECK(is_error(409, "not_a_directory"));
    (void)call(files_list, MSG(.path = at("b"), .limit = 10, .cursor = "!"));
    CHECK(is_error(400, "invalid_request"));
    (void)call(files_list, MSG(.path = at("none"), .limit = 10));
    CHECK(is_error(404, "file_not_found"));
    CHECK(call(files_list, MSG(.path = "/", .limit = 1000)) == 200);
    CHECK(!says("\"/usr\"") && !says("\"/proc\"") && !says("\"/tmp\"") && says("\"/var\""));
    return 0;
}

TEST(brief_lists_have_names_and_types_in_the_order_of_their_bytes)
{
    /* Some differ within their first eight bytes, some behind them, some by their end alone. */
    static const char *const want[][2] = {
        {"1234567", "file"}, {"12345678", "file"}, {"123456789", "file"},  {"12345678a", "file"},
        {"A", "file"},       {"a", "directory"},   {"a/12345678", "file"}, {"a/12345679", "file"},
        {"a-b", "symlink"},  {"z", "file"},        {"\xc3\xa9", "file"}};
    char entry[FILES_PATH];

    fresh(false);
    CHECK(symlink("nowhere", at("a-b")) == 0);
    for (size_t i = LENGTH(want); i-- > 0;) {
        if (strcmp(want[i][1], "file") == 0)
            CHECK(PUT(want[i][0], "1") == 201);
    }
    for (size_t limit = 1; limit <= LENGTH(want); limit++) {
        CHECK(call(files_list,
                   MSG(.path = at(""), .depth = 9, .limit = limit, .flags = FILES_BRIEF)) == 200);
        const char *rest = strstr(got.body, "[") + 1;
        for (size_t i = 0; i < limit; i++) {
            (void)snprintf(entry, sizeof(entry), "%s{\"path\":\"%s\",\"type\":\"%s\"}",
                           i > 0 ? "," : "", at(want[i][0]), want[i][1]);
            CHECK_FOR(want[i][0], strncmp(rest, entry, strlen(entry)) == 0);
            rest += strlen(entry);
        }
        CHECK(rest[0] == ']');
    }
    return 0;
}

/* As some file systems have directories: each name twice, of no type, or of one that is none. */
static struct {
    bool twice;
    int type; /* -1: as it is */
} odd = {.type = -1};

/* Instead of the library's. NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
ssize_t getdents64(int fd, void *bytes, size_t size)
{
    ssize_t n = syscall(SYS_getdents64, fd, bytes, odd.twice ? size / 2 : size);

    for (ssize_t at = 0; odd.type >= 0 && at < n;) {
        struct dirent64 *entry = (struct dirent64 *)(void *)((char *)bytes + at);
        entry->d_type = (unsigned char)odd.type;
        at += entry->d_reclen;
    }
    if (!odd.twice || n <= 0)
        return n;
    memcpy((char *)bytes + n, bytes, (size_t)n);
    return 2 * n;
}

/* How often the name is told, by pages of one entry; -1: they do not go on. */
static int count_told(const char *name, uint64_t flags)
{
    char cursor[FILES_CURSOR] = "";
    char entry[FILES_PATH];
    int told = 0;

    (void)snprintf(entry, sizeof(entry), "\"path\":\"%s\",\"type\":\"file\"", at(name));
    for (int pages = 0; pages < 20; pages++) {
        (void)call(files_list, MSG(.path = at(""), .limit = 1, .cursor = cursor, .flags = flags));
        told += says(entry);
        const char *next = strstr(got.body, "\"next\":\"");
        if (!next)
            return told;
        (void)snprintf(cursor, sizeof(cursor), "%.*s", (int)strcspn(next + 8, "\""), next + 8);
    }
    return -1;
}

TEST(odd_directories_are_listed_all_the_same)
{
    static const int types[] = {-1, DT_UNKNOWN, 3, 200};

    fresh(false);
    CHECK(PUT("a", "1") == 201 && PUT("b", "1") == 201 && PUT("c", "1") == 201);
    for (size_t i = 0; i < LENGTH(types); i++) {
        for (int twice = 0; twice < 2; twice++) {
            odd.type = types[i];
            odd.twice = twice;
            int told = count_told("a", FILES_BRIEF) * 100 + count_told("b", FILES_BRIEF) * 10 +
                       count_told("c", 0);
            odd.type = -1;
            odd.twice = false;
            CHECK(told == 111);
        }
    }
    return 0;
}

TEST(times_at_the_ends_of_time_are_told_as_none)
{
    static const time_t ends[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX};

    for (size_t i = 0; i < LENGTH(ends); i++) {
        const struct stat st = {.st_mode = S_IFREG, .st_mtim.tv_sec = ends[i]};
        struct files_call none = {.stream = -1};
        struct emit e;
        emit_begin(&e, &none, false, FILES_TYPE_JSON);
        emit_entry(&e, "/a", &st, NULL);
        bool is_null = buf_done(&e.b) == 0 && strstr(e.b.p, "\"mtime\":null");
        buf_clear(&e.b);
        CHECK(is_null);
    }
    return 0;
}

TEST(lists_of_any_size_have_each_entry_once)
{
    static bool seen[5000];
    char cursor[FILES_CURSOR] = "";
    char name[32];

    fresh(false);
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        make(name, "", 0644);
    }
    for (int more = 1; more;) {
        CHECK(call(files_list, MSG(.path = at(""), .limit = 1999, .cursor = cursor)) == 200);
        char *entry = strstr(got.body, "\"entries\"");
        while ((entry = strstr(entry, "/test_files_"))) {
            entry = strchr(entry + 1, '/');
            long i = strtol(entry + 1, NULL, 10);
            CHECK(!seen[i]);
            seen[i] = true;
        }
        const char *next = strstr(got.body, "\"next\":\"");
        more = next != NULL;
        if (next)
            (void)snprintf(cursor, sizeof(cursor), "%.*s", (int)strcspn(next + 8, "\""), next + 8);
    }
    for (int i = 0; i < 5000; i++)
        CHECK(seen[i]);
    return 0;
}

TEST(moves_as_rename_does)
{
    fresh(true);
    CHECK(PUT("a", "1") == 201 && PUT("b", "2") == 201 && PUT("d/x", "3") == 201);
    (void)call(files_move, MSG(.path = at("a"), .other = at("b")));
    CHECK(is_error(409, "already_exists"));
    CHECK(call(files_move, MSG(.path = at("a"), .other = at("b"), .flags = FILES_REPLACE)) == 200);
    CHECK(holds("b", "1") && mode_of("a") == 0);
    (void)call(files_move, MSG(.path = at("a"), .other = at("new/place"), .flags = FILES_PARENTS));
    CHECK(is_error(404, "file_not_found") && mode_of("new") == 0);
    CHECK(call(files_move, MSG(.path = at("d"), .other = at("p/q"), .flags = FILES_PARENTS)) ==
          200);
    CHECK(holds("p/q/x", "3"));
    (void)call(files_move, MSG(.path = at("p"), .other = at("p/q/r")));
    CHECK(is_error(400, "invalid_path"));
    (void)call(files_move, MSG(.path = at("b"), .other = at("p"), .flags = FILES_REPLACE));
    CHECK(is_error(409, "is_directory"));
    (void)call(files_move, MSG(.path = at("p"), .other = at("b"), .flags = FILES_REPLACE));
    CHECK(is_error(409, "not_a_directory"));
    CHECK(mkdir(at("full"), 0755) == 0);
    make("full/x", "", 0644);
    (void)call(files_move, MSG(.path = at("p"), .other = at("full"), .flags = FILES_REPLACE));
    CHECK(is_error(409, "not_empty"));
    (void)call(files_move, MSG(.path = at("p"), .other = "/a/../b"));
    CHECK(is_error(400, "invalid_path"));
    return 0;
}

TEST(moves_to_another_mount_by_copying)
{
    struct stat shm;
    struct stat here;
    char other[64];

    fresh(true);
    (void)snprintf(other, sizeof(other), "/dev/shm/test_files_%d", (int)getpid());
    if (stat("/dev/shm", &shm) < 0 || stat(top, &here) < 0 || shm.st_dev == here.st_dev)
        return 0; /* nothing to try it with */
    CHECK(PUT("d/e/f", "1") == 201 && symlink("f", at("d/e/l")) == 0 && chmod(at("d"), 0500) == 0);
    CHECK(call(files_move, MSG(.path = at("d"), .other = other)) == 200);
    CHECK(mode_of("d") == 0 && says("\"mode\":\"0500\""));
    CHECK(call(files_move, MSG(.path = other, .other = at("back"))) == 200);
    CHECK(holds("back/e/f", "1") && S_ISLNK(mode_of("back/e/l")) && access(other, F_OK) < 0);
    CHECK(no_litter(1));
    /* A file there has no hidden directory, and leaves nothing behind either. */
    CHECK(call_with(files_write, MSG(.path = other), "abc", 3, true) == 201);
    CHECK(call_with(files_write, MSG(.path = other), "abc", 3, false) == 400);
    CHECK(call(files_remove, MSG(.path = other)) == 204);
    return 0;
}

TEST(copies_files_and_trees_whole_or_not_at_all)
{
    for (int i = 0; i < 2; i++) {
        fresh(i == 0);
        CHECK(PUT("a", "1") == 201 && PUT("d/e/f", "2") == 201 && chmod(at("a"), 0755) == 0);
        CHECK(symlink("e/f", at("d/l")) == 0 && mkfifo(at("d/p"), 0600) == 0);
        CHECK(chmod(at("d/e"), 0555) == 0);
        CHECK(call(files_copy, MSG(.path = at("a"), .other = at("b"))) == 200 && holds("b", "1"));
        CHECK(mode_of("b") == 0100755);
        (void)call(files_copy, MSG(.path = at("a"), .other = at("b")));
        CHECK(is_error(409, "already_exists"));
        CHECK(call(files_copy,
                   MSG(.path = at("d/e/f"), .other = at("b"), .flags = FILES_REPLACE)) == 200);
        CHECK(holds("b", "2"));
        (void)call(files_copy, MSG(.path = at("d"), .other = at("d2")));
        CHECK(is_error(409, "is_directory"));
        const uint64_t tree = FILES_RECURSIVE | FILES_REPLACE;
        CHECK(call(files_copy, MSG(.path = at("d"), .other = at("d2"), .flags = tree)) == 200);
        CHECK(holds("d2/e/f", "2") && S_ISLNK(mode_of("d2/l")) && S_ISFIFO(mode_of("d2/p")));
        CHECK(mode_of("d2/e") == 040555 && mode_of("d2") == 040755);
        (void)call(files_copy, MSG(.path = at("d"), .other = at("d2"), .flags = tree));
        CHECK(is_error(409, "not_empty"));
        /* Into itself: once, not without end. */
        CHECK(call(files_copy, MSG(.path = at("d"), .other = at("d/in"), .flags = tree)) == 200);
        CHECK(holds("d/in/e/f", "2") && mode_of("d/in/in") == 0);
        CHECK(symlink("/dev/null", at("n")) == 0);
        CHECK(call(files_copy, MSG(.path = at("n"), .other = at("n2"))) == 200 &&
              S_ISLNK(mode_of("n2")));
        CHECK(no_litter(6));
    }
    return 0;
}

TEST(copies_keep_holes)
{
    struct stat st;

    fresh(true);
    make("huge", "begin", 0644);
    CHECK(truncate(at("huge"), 1LL << 40) == 0);
    CHECK(call(files_copy, MSG(.path = at("huge"), .other = at("copy"))) == 200);
    CHECK(stat(at("copy"), &st) == 0 && st.st_size == 1LL << 40 && st.st_blocks < 1000);
    return 0;
}

/* --- removing --- */

TEST(removes_files_and_trees)
{
    fresh(true);
    CHECK(PUT("d/e/f", "1") == 201 && PUT("d/g", "1") == 201 && PUT("keep", "1") == 201);
    CHECK(symlink("../keep", at("d/l")) == 0 && symlink("d", at("dl")) == 0);
    (void)call(files_remove, MSG(.path = at("d")));
    CHECK(is_error(409, "not_empty"));
    (void)call(files_remove, MSG(.path = at("x")));
    CHECK(is_error(404, "file_not_found"));
    (void)call(files_remove, MSG(.path = at("x"), .flags = FILES_RECURSIVE));
    CHECK(is_error(404, "file_not_found"));
    CHECK(call(files_remove, MSG(.path = at("dl"), .flags = FILES_RECURSIVE)) == 204);
    CHECK(holds("d/g", "1"));
    CHECK(chmod(at("d/e"), 0) == 0 && chmod(at("d"), 0400) == 0);
    CHECK(call(files_remove, MSG(.path = at("d"), .flags = FILES_RECURSIVE)) == 204);
    CHECK(holds("keep", "1") && no_litter(1));
    CHECK(call(files_mkdir, MSG(.path = at("d"))) == 201);
    CHECK(call(files_remove, MSG(.path = at("d"))) == 204);
    return 0;
}

static bool dig(const char *name, int depth)
{
    scoped_fd int dir = open(top, O_PATH | O_CLOEXEC);

    for (int i = 0; i < depth; i++) {
        const char *as = i == 0 ? name : "dddddddddd";
        if (mkdirat(dir, as, 0755) < 0)
            return false;
        int next = openat(dir, as, O_PATH | O_DIRECTORY | O_CLOEXEC);
        (void)close(dir);
        dir = next;
        scoped_fd int fd = openat(dir, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || write(fd, "x", 1) != 1)
            return false;
    }
    return true;
}

/* Two thousand have five times the bytes of a path; files_hostile.py asks for all ten. */
TEST(trees_ten_thousand_deep_are_listed_copied_changed_and_removed)
{
    const char *all = getenv("LONG");

    fresh(true);
    CHECK(dig("deep", all && *all ? 10000 : 2000));
    const uint64_t tree = FILES_RECURSIVE;
    CHECK(call(files_copy, MSG(.path = at("deep"), .other = at("copy"), .flags = tree)) == 200);
    CHECK(call(files_chmod, MSG(.path = at("copy"), .mode = AS(0), .flags = tree)) == 200);
    CHECK(call(files_list, MSG(.path = at("deep"), .depth = 100000, .limit = 10000)) == 200);
    CHECK(!got.cut && says("\"next\":null"));
    CHECK(call(files_remove, MSG(.path = at("copy"), .flags = tree)) == 204);
    CHECK(call(files_remove, MSG(.path = at("deep"), .flags = tree)) == 204);
    CHECK(no_litter(0));
    return 0;
}

TEST(what_carrel_provides_is_reserved)
{
    static const char *const names[] = {
        "/", "/usr", "/proc", "/tmp", "/.cache", "/libx32", "/.venv.carrel-next"};
    const uint64_t all = FILES_RECURSIVE | FILES_REPLACE;

    fresh(true);
    make("a", "1", 0644);
    CHECK(symlink("/", at("root")) == 0);
    for (size_t i = 0; i < LENGTH(names); i++) {
        const char *name = names[i];
        CHECK_FOR(name, files_check_reserved(name) == -EBUSY);
        (void)call(files_remove, MSG(.path = name, .flags = FILES_RECURSIVE));
        CHECK_FOR(name, is_error(409, "reserved"));
        (void)call(files_move, MSG(.path = name, .other = at("x")));
        CHECK_FOR(name, is_error(409, "reserved"));
        (void)call(files_move, MSG(.path = at("a"), .other = name, .flags = all));
        CHECK_FOR(name, is_error(409, "reserved"));
        (void)call(files_copy, MSG(.path = at("a"), .other = name, .flags = all));
        CHECK_FOR(name, is_error(409, "reserved"));
        (void)call(files_symlink, MSG(.path = name, .other = "x", .flags = all));
        CHECK_FOR(name, is_error(409, "reserved"));
        (void)call(files_chmod, MSG(.path = name, .mode = AS(0755)));
        CHECK_FOR(name, is_error(409, "reserved"));
    }
    (void)call(files_remove, MSG(.path = at("root/usr"), .flags = FILES_RECURSIVE));
    CHECK(is_error(409, "reserved"));
    CHECK(files_check_reserved("/usr/x") == 0 && files_check_reserved("/home") == 0);
    CHECK(call(files_mkdir, MSG(.path = "/tmp", .flags = FILES_PARENTS)) == 200);
    return 0;
}
