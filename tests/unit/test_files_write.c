/* SPDX-License-Identifier: Apache-2.0 */
/* Writing, appending and editing: whole or not at all, whoever else writes, and whatever the disk
 * and the permissions are. */
#include "files_scene.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* --- writing --- */

TEST(writes_with_and_without_a_hidden_directory)
{
    for (int i = 0; i < 2; i++) {
        fresh(i == 0);
        CHECK(PUT("a/b/c", "hello") == 201 && holds("a/b/c", "hello"));
        CHECK(says("\"type\":\"file\"") && says("\"size\":5") && says("\"mode\":\"0644\""));
        CHECK(strstr(got.body, "etag") && got.head.etag[0] == '"');
        char etag[FILES_ETAG];
        memcpy(etag, got.head.etag, sizeof(etag));
        CHECK(call(files_read, MSG(.path = at("a/b/c"), .if_none_match = etag)) == 304);
        CHECK(chmod(at("a/b/c"), 0751) == 0);
        CHECK(PUT("a/b/c", "") == 200 && holds("a/b/c", "") && mode_of("a/b/c") == 0100751);
        CHECK(call_with(files_write, MSG(.path = at("a/b/c"), .mode = AS(06600)), "x", 1, true) ==
              200);
        CHECK(mode_of("a/b/c") == 0100600);
        (void)call_with(files_write, MSG(.path = at("no/x")), "x", 1, true);
        CHECK(is_error(404, "file_not_found"));
        (void)PUT("a/b/c/d", "x");
        CHECK(is_error(409, "not_a_directory"));
        CHECK(entries(at("a/b")) == 1 && no_litter(1));
    }
    return 0;
}

TEST(a_body_that_is_broken_off_changes_nothing)
{
    char *big = calloc(1, 3 << 20);

    memset(big, 'x', (3 << 20) - 1);
    for (int i = 0; i < 2; i++) {
        fresh(i == 0);
        make("a", "old", 0644);
        (void)call_with(files_write, MSG(.path = at("a")), "new", 3, false);
        CHECK(is_error(400, "incomplete_body"));
        (void)call_with(files_write, MSG(.path = at("b")), big, 3 << 20, false);
        CHECK(is_error(400, "incomplete_body"));
        (void)call_with(files_append, MSG(.path = at("a")), "new", 3, false);
        CHECK(is_error(400, "incomplete_body"));
        (void)call_with(files_append, MSG(.path = at("a")), big, 3 << 20, false);
        CHECK(is_error(400, "incomplete_body"));
        (void)call_with(files_edit, MSG(.path = at("a")), "\3\0\0\0\0\0\0\0oldn", 12, false);
        CHECK(is_error(400, "incomplete_body"));
        CHECK(holds("a", "old") && no_litter(1));
    }
    free(big);
    return 0;
}

TEST(conditions_hold)
{
    for (int i = 0; i < 2; i++) {
        fresh(i == 0);
        CHECK(call_with(files_write, MSG(.path = at("a"), .if_none_match = "*"), "1", 1, true) ==
              201);
        (void)call_with(files_write, MSG(.path = at("a"), .if_none_match = "*"), "2", 1, true);
        CHECK(is_error(412, "precondition_failed"));
        (void)call_with(files_write, MSG(.path = at("b"), .if_match = "*"), "2", 1, true);
        CHECK(is_error(412, "precondition_failed"));
        (void)call_with(files_write, MSG(.path = at("a"), .if_match = "\"no\""), "2", 1, true);
        CHECK(is_error(412, "precondition_failed") && holds("a", "1"));
        CHECK(call_with(files_write, MSG(.path = at("a"), .if_match = "*"), "2", 1, true) == 200);
        char etag[FILES_ETAG];
        memcpy(etag, got.head.etag, sizeof(etag));
        CHECK(call_with(files_write, MSG(.path = at("a"), .if_match = etag), "3", 1, true) == 200);
        (void)call_with(files_write, MSG(.path = at("a"), .if_match = etag), "4", 1, true);
        CHECK(is_error(412, "precondition_failed") && holds("a", "3") && no_litter(1));
        (void)call_with(files_append, MSG(.path = at("a"), .if_match = etag), "4", 1, true);
        CHECK(is_error(412, "precondition_failed") && holds("a", "3"));
        (void)call_with(files_append, MSG(.path = at("a"), .if_none_match = "*"), "4", 1, true);
        CHECK(is_error(412, "precondition_failed") && holds("a", "3"));
        (void)call_with(files_append, MSG(.path = at("b"), .if_match = "*"), "4", 1, true);
        CHECK(is_error(412, "precondition_failed") && no_litter(1));
        CHECK(call_with(files_append, MSG(.path = at("a"), .if_match = "*"), "4", 1, true) == 200);
        CHECK(holds("a", "34"));
    }
    return 0;
}

struct race {
    const char *path;
    int won;
};

static void *write_if_same(void *context)
{
    struct race *race = context;
    struct files_message m = MSG(.path = race->path);
    struct files_call c = {.m = &m, .hidden = hidden};

    for (int i = 0; i < 100; i++) {
        struct files_new new;
        struct stat st;
        char etag[FILES_ETAG];
        char text[16];
        scoped_fd int fd = files_open(race->path, true, &st);
        ssize_t n = read(fd, text, sizeof(text) - 1);
        text[n > 0 ? n : 0] = '\0';
        files_etag(&st, etag);
        if (files_new_begin(&c, race->path, FILES_MOST, false, &new) < 0)
            continue;
        new.if_match = etag;
        (void)snprintf(text, sizeof(text), "%d", (int)strtol(text, NULL, 10) + 1);
        ignore(files_write_all(new.fd, text, strlen(text)));
        struct dirty *dirs = dirty_new();
        race->won += files_new_commit(&c, &new, dirs) == 0;
        ignore(dirty_sync(dirs) == 0);
    }
    return NULL;
}

TEST(of_those_who_write_what_they_read_none_is_lost)
{
    pthread_t threads[4];
    struct race races[4];
    char path[FILES_PATH];
    char text[16];
    int won = 0;

    fresh(true);
    make("count", "0", 0644);
    (void)snprintf(path, sizeof(path), "%s", at("count"));
    for (int i = 0; i < 4; i++) {
        races[i] = (struct race){path, 0};
        CHECK(pthread_create(&threads[i], NULL, write_if_same, &races[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        (void)pthread_join(threads[i], NULL);
        won += races[i].won;
    }
    (void)snprintf(text, sizeof(text), "%d", won);
    CHECK(won > 0 && holds("count", text) && no_litter(1));
    return 0;
}

/* One inside who puts whole files there by rename. None of them is lost by a write that was for
 * another, as far as can be seen: what is there has always a number that was put there. */
static void *put_by_rename(void *context)
{
    const char *path = context;
    char temp[FILES_PATH + 8];

    (void)snprintf(temp, sizeof(temp), "%s.tmp", path);
    for (int i = 0; i < 2000; i++) {
        scoped_fd int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0 || write(fd, "inside", 6) != 6 || rename(temp, path) < 0)
            return context;
    }
    scoped_fd int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, "last", 4) != 4 || rename(temp, path) < 0)
        return context;
    return NULL;
}

static void *write_if_inside(void *context)
{
    struct race *race = context;
    struct files_message m = MSG(.path = race->path);
    struct files_call c = {.m = &m, .hidden = hidden};
    struct dirty *dirs = dirty_new();

    for (int i = 0; i < 600; i++) {
        struct files_new new;
        struct stat st;
        char etag[FILES_ETAG];
        char text[16] = "";
        scoped_fd int fd = files_open(race->path, true, &st);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0 || strcmp(text, "last") == 0)
            continue;
        files_etag(&st, etag);
        if (files_new_begin(&c, race->path, FILES_MOST, false, &new) < 0)
            continue;
        new.if_match = etag;
        ignore(files_write_all(new.fd, "outside", 7));
        race->won += files_new_commit(&c, &new, dirs) == 0;
    }
    ignore(dirty_sync(dirs) == 0);
    return NULL;
}

TEST(nothing_that_is_put_there_from_inside_is_lost)
{
    pthread_t threads[3];
    struct race races[2];
    char path[FILES_PATH];
    void *failed = NULL;

    fresh(true);
    make("a", "inside", 0644);
    (void)snprintf(path, sizeof(path), "%s", at("a"));
    for (int i = 0; i < 2; i++) {
        races[i] = (struct race){path, 0};
        CHECK(pthread_create(&threads[i], NULL, write_if_inside, &races[i]) == 0);
    }
    CHECK(pthread_create(&threads[2], NULL, put_by_rename, path) == 0);
    for (int i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_join(threads[2], &failed);
    CHECK(!failed && races[0].won + races[1].won > 0);
    CHECK(holds("a", "last") && no_litter(1));
    return 0;
}

TEST(links_are_written_through_and_other_names_are_not)
{
    fresh(true);
    CHECK(mkdir(at("d"), 0755) == 0 && symlink("d/real", at("link")) == 0);
    CHECK(PUT("link", "one") == 201 && holds("d/real", "one"));
    CHECK(S_ISLNK(mode_of("link")));
    char abs[FILES_PATH];
    (void)snprintf(abs, sizeof(abs), "%s", at("link"));
    CHECK(symlink(abs, at("link2")) == 0);
    CHECK(PUT("link2", "two") == 200 && holds("d/real", "two"));
    CHECK(call_with(files_append, MSG(.path = at("link2")), "!", 1, true) == 200);
    CHECK(holds("d/real", "two!"));
    CHECK(symlink("d/.", at("dots")) == 0 && symlink("d/", at("slash")) == 0);
    (void)PUT("dots", "x");
    CHECK(is_error(409, "is_directory"));
    (void)PUT("slash", "x");
    CHECK(is_error(409, "is_directory"));
    CHECK(symlink("none/x", at("far")) == 0);
    (void)PUT("far", "x");
    CHECK(is_error(404, "file_not_found"));
    /* /lib32 or another that this host has not: a way round is no way. */
    CHECK(symlink("/libx32", at("round")) == 0 && symlink("/", at("root")) == 0);
    if (access("/libx32", F_OK) < 0) {
        (void)PUT("round", "x");
        CHECK(is_error(409, "reserved"));
        (void)PUT("root/libx32", "x");
        CHECK(is_error(409, "reserved"));
        (void)PUT("root/libx32/a", "x");
        CHECK(is_error(409, "reserved"));
        (void)call_with(files_append, MSG(.path = at("round")), "x", 1, true);
        CHECK(is_error(409, "reserved"));
    }
    CHECK(link(at("d/real"), at("other")) == 0);
    CHECK(PUT("d/real", "three") == 200 && holds("other", "two!"));
    return 0;
}

TEST(appends_small_and_large)
{
    for (int i = 0; i < 2; i++) {
        char *big = calloc(1, 3 << 20);
        fresh(i == 0);
        memset(big, 'x', (3 << 20) - 1);
        CHECK(call_with(files_append, MSG(.path = at("d/a"), .flags = FILES_PARENTS), "1", 1,
                        true) == 201);
        CHECK(call_with(files_append, MSG(.path = at("d/a")), "23", 2, true) == 200);
        CHECK(holds("d/a", "123") && says("\"size\":3"));
        CHECK(call_with(files_append, MSG(.path = at("d/a")), big, (3 << 20) - 1, true) == 200);
        struct stat st;
        CHECK(stat(at("d/a"), &st) == 0 && st.st_size == (3 << 20) + 2);
        CHECK(entries(at("d")) == 1 && no_litter(1));
        free(big);
    }
    return 0;
}

TEST(names_are_any_bytes_up_to_255)
{
    static const char *const names[] = {"new\nline",  "\xff\xfe", "-rf",
                                        " trailing ", "\\back",   "\xf0\x9f\x98\x80",
                                        "\"quote\"",  "%2e%2e",   "\xed\xa0\x80"};
    char longest[300];

    fresh(true);
    for (size_t i = 0; i < LENGTH(names); i++) {
        CHECK_FOR(names[i], PUT(names[i], names[i]) == 201 && holds(names[i], names[i]));
        CHECK_FOR(names[i], call(files_read, MSG(.path = at(names[i]))) == 200 &&
                                strcmp(got.body, names[i]) == 0);
        CHECK_FOR(names[i], call(files_remove, MSG(.path = at(names[i]))) == 204);
    }
    memset(longest, 'n', sizeof(longest));
    longest[255] = '\0';
    CHECK(PUT(longest, "x") == 201);
    longest[255] = 'n';
    longest[256] = '\0';
    static files_operation *const all[] = {files_read,   files_text,  files_write,
                                           files_append, files_stat,  files_mkdir,
                                           files_remove, files_chmod, files_list};
    for (size_t i = 0; i < LENGTH(all); i++) {
        (void)call_with(all[i], MSG(.path = at(longest), .mode = AS(0755)), "x", 1, true);
        CHECK(is_error(400, "invalid_path"));
    }
    CHECK(no_litter(1));
    return 0;
}

/* --- editing --- */

static unsigned edit(const char *name, const char *old, const char *by, uint64_t flags)
{
    char body[4096];
    uint64_t length = strlen(old);

    memcpy(body, &length, sizeof(length));
    memcpy(body + 8, old, strlen(old));
    memcpy(body + 8 + strlen(old), by, strlen(by));
    return call_with(files_edit, MSG(.path = at(name), .flags = flags), body,
                     8 + strlen(old) + strlen(by), true);
}

TEST(edits_one_or_all_and_says_why_not)
{
    fresh(true);
    make("a", "one two two", 0751);
    CHECK(edit("a", "one", "1", 0) == 200 && holds("a", "1 two two") && says("\"occurrences\":1"));
    CHECK(mode_of("a") == 0100751 && says("\"etag\":\""));
    (void)edit("a", "two", "2", 0);
    CHECK(is_error(409, "multiple_occurrences") && says("(2)") && holds("a", "1 two two"));
    CHECK(edit("a", "two", "", FILES_ALL) == 200 && holds("a", "1  ") && says("\"occurrences\":2"));
    (void)edit("a", "nine", "9", 0);
    CHECK(is_error(409, "string_not_found"));
    (void)edit("a", "", "9", 0);
    CHECK(is_error(400, "invalid_request"));
    (void)edit("b", "x", "9", 0);
    CHECK(is_error(404, "file_not_found"));
    make("c", "aaaa", 0644);
    CHECK(edit("c", "aa", "b", FILES_ALL) == 200 && holds("c", "bb"));
    scoped_fd int fd = open(at("bin"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(write(fd, "a\0b", 3) == 3);
    (void)edit("bin", "a", "b", 0);
    CHECK(is_error(409, "not_a_text_file"));
    CHECK(ftruncate(fd, (64 << 20) + 1) == 0);
    (void)edit("bin", "a", "b", 0);
    CHECK(is_error(413, "too_large"));
    CHECK(no_litter(3));
    return 0;
}

TEST(edits_keep_line_endings)
{
    fresh(true);
    make("crlf", "a\r\nb\r\nc\r\n", 0644);
    CHECK(edit("crlf", "a\nb", "x\ny\nz", 0) == 200 && holds("crlf", "x\r\ny\r\nz\r\nc\r\n"));
    CHECK(edit("crlf", "c", "d\ne", 0) == 200 && holds("crlf", "x\r\ny\r\nz\r\nd\r\ne\r\n"));
    make("lf", "a\nb\n", 0644);
    CHECK(edit("lf", "a\r\nb", "x\r\ny", 0) == 200 && holds("lf", "x\ny\n"));
    make("mixed", "a\r\nb\nc", 0644);
    CHECK(edit("mixed", "b\nc", "d\ne", 0) == 200 && holds("mixed", "a\r\nd\ne"));
    return 0;
}

/* --- as an ordinary user, and on small and closed disks --- */

static int in_child(int (*run)(void))
{
    int status;

    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(run());
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int as_user(void)
{
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    make("mine", "1", 0444);
    (void)PUT("mine", "2");
    CHECK(is_error(403, "permission_denied") && holds("mine", "1"));
    (void)edit("mine", "1", "2", 0);
    CHECK(is_error(403, "permission_denied"));
    CHECK(chmod(at("mine"), 0) == 0);
    (void)call(files_read, MSG(.path = at("mine")));
    CHECK(is_error(403, "permission_denied"));
    CHECK(PUT("d/e/f", "1") == 201 && PUT("d/e/g/h", "1") == 201);
    CHECK(chmod(at("d/e/g"), 0) == 0 && chmod(at("d/e"), 0500) == 0);
    (void)PUT("d/e/f2", "1");
    CHECK(is_error(403, "permission_denied"));
    (void)call(files_remove, MSG(.path = at("d/e/f")));
    CHECK(is_error(403, "permission_denied"));
    CHECK(chmod(at("d/e"), 0) == 0);
    CHECK(call(files_chmod, MSG(.path = at("d"), .mode = AS(0755), .flags = FILES_RECURSIVE)) ==
          200);
    CHECK(holds("d/e/g/h", "1"));
    CHECK(call(files_chmod, MSG(.path = at("d"), .mode = AS(0), .flags = FILES_RECURSIVE)) == 200);
    CHECK(call(files_remove, MSG(.path = at("d"), .flags = FILES_RECURSIVE)) == 204);
    /* A directory to write to and not to read. */
    CHECK(mkdir(at("box"), 0700) == 0 && chmod(at("box"), 0300) == 0);
    CHECK(PUT("box/a", "1") == 201 && PUT("box/a", "2") == 200 && holds("box/a", "2"));
    CHECK(call(files_copy, MSG(.path = at("box/a"), .other = at("box/b"))) == 200);
    CHECK(call(files_remove, MSG(.path = at("box/a"))) == 204);
    (void)call(files_list, MSG(.path = at("box")));
    CHECK(is_error(403, "permission_denied"));
    /* A closed directory is copied as one that is closed. */
    CHECK(PUT("c/x", "1") == 201 && chmod(at("c"), 0555) == 0);
    CHECK(call(files_copy, MSG(.path = at("c"), .other = at("c2"), .flags = FILES_RECURSIVE)) ==
          200);
    CHECK(holds("c2/x", "1") && mode_of("c2") == 040555);
    CHECK(chmod(at("c/x"), 0) == 0);
    (void)call(files_copy, MSG(.path = at("c"), .other = at("c3"), .flags = FILES_RECURSIVE));
    CHECK(is_error(403, "permission_denied"));
    CHECK(no_litter(4));
    return 0;
}

TEST(an_ordinary_user_gets_what_permissions_say)
{
    for (int i = 0; i < 2; i++) {
        fresh(i == 0);
        if (geteuid() != 0)
            return 0;
        CHECK(chown(top, 65534, 65534) == 0 && chmod(top, 0755) == 0);
        if (i == 0)
            CHECK(chown(at(".hidden"), 65534, 65534) == 0);
        CHECK(in_child(as_user) == 0);
    }
    return 0;
}

static int on_small_disk(void)
{
    char *big = calloc(1, 3 << 20);

    memset(big, 'x', (3 << 20) - 1);
    CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir(at("small"), 0755) == 0);
    CHECK(mount("none", at("small"), "tmpfs", 0, "size=1m") == 0);
    CHECK(PUT("small/a", "old") == 201);
    (void)PUT("small/a", big);
    CHECK(is_error(507, "disk_full") && holds("small/a", "old"));
    (void)call_with(files_append, MSG(.path = at("small/a")), big, 3 << 20, true);
    CHECK(is_error(507, "disk_full") && holds("small/a", "old"));
    CHECK(PUT("big", big) == 201);
    (void)call(files_copy, MSG(.path = at("big"), .other = at("small/b")));
    CHECK(is_error(507, "disk_full"));
    CHECK(entries(at("small")) == 1);
    /* What is mounted on is not removed, and nothing in it is. */
    CHECK(PUT("m/x", "1") == 201 && mkdir(at("m/on"), 0755) == 0);
    CHECK(mount(at("small"), at("m/on"), NULL, MS_BIND, NULL) == 0);
    (void)call(files_remove, MSG(.path = at("m"), .flags = FILES_RECURSIVE));
    CHECK(is_error(409, "reserved") && holds("small/a", "old"));
    /* The same disk, another mount: renamed to from elsewhere it is not. */
    CHECK(mkdir(at("bound"), 0755) == 0 && mkdir(at("src"), 0755) == 0);
    CHECK(mount(at("src"), at("bound"), NULL, MS_BIND, NULL) == 0);
    CHECK(PUT("bound/a", "1") == 201 && PUT("bound/a", "2") == 200 && holds("src/a", "2"));
    CHECK(call(files_move, MSG(.path = at("bound/a"), .other = at("moved"))) == 200);
    CHECK(holds("moved", "2") && entries(at("src")) == 0);
    CHECK(PUT("bound/a", "1") == 201);
    CHECK(mount("none", at("bound"), NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0);
    (void)PUT("bound/a", "2");
    CHECK(is_error(403, "read_only"));
    (void)call_with(files_append, MSG(.path = at("bound/a")), "x", 1, true);
    CHECK(is_error(403, "read_only"));
    (void)call(files_remove, MSG(.path = at("bound/a")));
    CHECK(is_error(403, "read_only"));
    (void)call(files_mkdir, MSG(.path = at("bound/d")));
    CHECK(is_error(403, "read_only"));
    free(big);
    return 0;
}

TEST(full_and_closed_disks_leave_the_old_content_and_nothing_else)
{
    fresh(true);
    if (geteuid() != 0)
        return 0;
    CHECK(in_child(on_small_disk) == 0);
    return 0;
}

/* --- against one who swaps --- */

static atomic_bool stop;

static void *swap(void *context)
{
    (void)context;
    scoped_fd int dir = open(top, O_PATH | O_CLOEXEC);
    while (!stop)
        ignore(renameat2(dir, "one", dir, "two", RENAME_EXCHANGE));
    return NULL;
}

TEST(no_byte_of_a_link_that_is_swapped_in_goes_elsewhere)
{
    pthread_t thread;

    fresh(true);
    make("one", "1", 0644);
    CHECK(mkfifo(at("two"), 0600) == 0);
    stop = false;
    CHECK(pthread_create(&thread, NULL, swap, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        (void)call(files_read, MSG(.path = at("one")));
        CHECK(got.head.status == 409 || (got.head.status == 200 && got.n == 1));
        (void)call_with(files_append, MSG(.path = at("one")), "", 0, true);
        CHECK(got.head.status == 409 || got.head.status == 200);
    }
    stop = true;
    (void)pthread_join(thread, NULL);
    CHECK(no_litter(2));
    clean();
    return 0;
}
