/* SPDX-License-Identifier: Apache-2.0 */
/* Reading files whole, by parts and by pages of text. */
#include "files_scene.h"

#include <signal.h>
#include <sys/un.h>
#include <sys/wait.h>

/* --- reading --- */

TEST(reads_whole_parts_and_not_what_is_known)
{
    fresh(true);
    make("a", "0123456789", 0640);
    CHECK(call(files_read, MSG(.path = at("a"))) == 200);
    CHECK(got.n == 10 && got.head.type == FILES_TYPE_BYTES && got.head.mtime_ms > 0);
    char etag[FILES_ETAG];
    memcpy(etag, got.head.etag, sizeof(etag));
    CHECK(etag[0] == '"' && etag[strlen(etag) - 1] == '"');
    CHECK(call(files_read, MSG(.path = at("a"), .if_none_match = etag)) == 304 && got.n == 0);
    CHECK(call(files_read, MSG(.path = at("a"), .if_none_match = "\"x\"")) == 200);
    CHECK(call(files_read, MSG(.path = at("a"), .if_match = "\"x\"")) == 412);
    CHECK(call(files_read, MSG(.path = at("a"), .from = 2, .to = 5)) == 206);
    CHECK(strcmp(got.body, "234") == 0 && got.head.first == 2 && got.head.total == 10);
    CHECK(call(files_read, MSG(.path = at("a"), .from = 8, .to = 500)) == 206);
    CHECK(strcmp(got.body, "89") == 0);
    CHECK(call(files_read, MSG(.path = at("a"), .from = FILES_MOST, .to = 3)) == 206);
    CHECK(strcmp(got.body, "789") == 0);
    CHECK(call(files_read, MSG(.path = at("a"), .from = FILES_MOST, .to = 30)) == 206 &&
          got.n == 10);
    CHECK(call(files_read, MSG(.path = at("a"), .from = FILES_MOST)) == 416);
    CHECK(call(files_read, MSG(.path = at("a"), .from = 10, .to = 11)) == 416);
    CHECK(is_error(416, "invalid_range"));
    make("a", "0123456780", 0640);
    CHECK(call(files_read, MSG(.path = at("a"), .if_none_match = etag)) == 200);
    return 0;
}

TEST(reads_no_pipe_socket_device_or_directory_and_waits_for_none)
{
    fresh(true);
    CHECK(mkfifo(at("fifo"), 0600) == 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", at("socket"));
    scoped_fd int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(s, (struct sockaddr *)&address, sizeof(address)) == 0);
    static const char *const names[] = {"fifo", "socket"};
    static files_operation *const all[] = {files_read, files_text, files_write, files_append,
                                           files_edit};
    for (size_t i = 0; i < LENGTH(names); i++) {
        for (size_t j = 0; j < LENGTH(all); j++) {
            (void)call_with(all[j], MSG(.path = at(names[i])), "\1\0\0\0\0\0\0\0ab", 10, true);
            CHECK_FOR(names[i], is_error(409, "not_a_file"));
        }
    }
    (void)call(files_read, MSG(.path = "/dev/null"));
    CHECK(is_error(409, "not_a_file"));
    for (size_t j = 0; j < LENGTH(all); j++) {
        (void)call_with(all[j], MSG(.path = at("")), "\1\0\0\0\0\0\0\0ab", 10, true);
        CHECK(is_error(409, "is_directory"));
        (void)call_with(all[j], MSG(.path = "/"), "\1\0\0\0\0\0\0\0ab", 10, true);
        CHECK(is_error(409, "is_directory"));
    }
    CHECK(symlink("nowhere", at("dangling")) == 0 && symlink("loop", at("loop")) == 0);
    (void)call(files_read, MSG(.path = at("dangling")));
    CHECK(is_error(404, "file_not_found"));
    (void)call(files_read, MSG(.path = at("loop")));
    CHECK(is_error(400, "invalid_path"));
    (void)PUT("loop", "x");
    CHECK(is_error(400, "invalid_path"));
    CHECK(no_litter(4));
    return 0;
}

/* A lease of another process: opening waits for up to 45 s, unless one says not
 * to. */
TEST(what_is_leased_is_locked_and_can_still_be_replaced)
{
    int ready[2];
    char c;

    fresh(true);
    make("leased", "old", 0644);
    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGIO, SIG_IGN);
        int fd = open(at("leased"), O_RDWR | O_CLOEXEC);
        if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0)
            ignore(write(ready[1], "x", 1));
        (void)pause();
        _exit(0);
    }
    (void)close(ready[1]);
    CHECK(read(ready[0], &c, 1) == 1);
    (void)call(files_read, MSG(.path = at("leased")));
    CHECK(is_error(423, "locked"));
    (void)call_with(files_append, MSG(.path = at("leased")), "x", 1, true);
    CHECK(is_error(423, "locked"));
    CHECK(PUT("leased", "new") == 200 && holds("leased", "new"));
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)close(ready[0]);
    return 0;
}

TEST(a_small_file_that_is_replaced_is_freed_after_the_answer)
{
    struct stat old;
    char etag[FILES_ETAG];

    fresh(true);
    CHECK(PUT("f", "first") == 201 && replaced.st_ino == 0);
    CHECK(stat(at("f"), &old) == 0);
    CHECK(PUT("f", "second") == 200);
    CHECK(replaced.st_ino == old.st_ino && replaced.st_nlink == 0);
    CHECK(stat(at("f"), &old) == 0);
    files_etag(&old, etag);
    CHECK(call_with(files_write, MSG(.path = at("f"), .if_match = etag), "third", 5, true) == 200);
    CHECK(replaced.st_ino == old.st_ino && holds("f", "third"));
    CHECK(call_with(files_write, MSG(.path = at("f"), .if_match = etag), "x", 1, true) == 412);
    CHECK(replaced.st_ino == 0 && holds("f", "third"));
    int fd = open(at("f"), O_WRONLY | O_CLOEXEC);
    CHECK(fallocate(fd, 0, 0, 1 << 20) == 0 && close(fd) == 0);
    CHECK(PUT("f", "fourth") == 200 && replaced.st_ino == 0);
    CHECK(no_litter(1));
    return 0;
}

TEST(a_huge_sparse_file_is_streamed)
{
    fresh(true);
    make("huge", "begin\nmore\n", 0644);
    CHECK(truncate(at("huge"), (16LL << 40) - 4096) == 0);
    CHECK(call(files_read, MSG(.path = at("huge"), .from = (15LL << 40), .to = (15LL << 40) + 9)) ==
          206);
    CHECK(got.n == 9 && got.head.total == (16ULL << 40) - 4096);
    (void)call(files_text, MSG(.path = at("huge"), .limit = 10));
    CHECK(is_error(413, "too_large"));
    /* Text at first sight: the holes are passed over. */
    scoped_fd int fd = open(at("huge"), O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < 4096; i++)
        CHECK(write(fd, "a\n", 2) == 2);
    (void)call(files_text, MSG(.path = at("huge"), .limit = 10, .offset = 1000000));
    CHECK(is_error(416, "invalid_range") && says("exceeds file length (4097 lines)"));
    return 0;
}

TEST(what_shrinks_cuts_the_answer_off)
{
    fresh(true);
    make("a", "", 0644);
    CHECK(truncate(at("a"), 64 << 20) == 0);
    int pair[2];
    pthread_t thread;
    struct files_message m =
        MSG(.path = at("a"), .other = "", .if_match = "", .if_none_match = "", .to = FILES_MOST);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    struct job job = {{.m = &m, .stream = pair[1], .hidden = -1}, files_read};
    CHECK(pthread_create(&thread, NULL, work, &job) == 0);
    CHECK(read_all(pair[0], &got.head, sizeof(got.head)) && got.head.size == 64 << 20);
    CHECK(truncate(at("a"), 10) == 0);
    static char bytes[65536];
    size_t n = 0;
    for (ssize_t r; (r = read(pair[0], bytes, sizeof(bytes))) > 0;)
        n += (size_t)r;
    CHECK(n < 64 << 20);
    (void)pthread_join(thread, NULL);
    (void)close(pair[0]);
    return 0;
}

TEST(files_of_proc_have_their_content)
{
    CHECK(call(files_read, MSG(.path = "/proc/meminfo")) == 200 && says("MemTotal"));
    CHECK(got.head.size == got.n);
    CHECK(call(files_text, MSG(.path = "/proc/meminfo", .limit = 1)) == 200 && says("MemTotal"));
    return 0;
}

/* --- text --- */

static bool page(const char *name, uint64_t offset, uint64_t limit, const char *parts)
{
    char part[512];

    (void)call(files_text, MSG(.path = at(name), .offset = offset, .limit = limit));
    for (const char *p = parts; *p;) {
        size_t n = strcspn(p, "|");
        (void)snprintf(part, sizeof(part), "%.*s", (int)n, p);
        if (!says(part)) {
            printf("    no %s in %.300s\n", part, got.body);
            return false;
        }
        p += n + (p[n] == '|');
    }
    return got.head.status == 200;
}

TEST(text_comes_by_pages_of_lines)
{
    fresh(true);
    make("a", "one\r\ntwo\nthr\ree\r\n\nfive", 0644);
    CHECK(page("a", 0, 2,
               "\"content\":\"one\\ntwo\\n\"|\"total_lines\":5|\"start_line\":1|"
               "\"end_line\":2|\"next_offset\":2|\"truncated\":false|\"utf-8\"|"
               "\"binary\":false"));
    CHECK(page("a", 2, 9,
               "\"content\":\"thr\\u000dee\\n\\nfive\"|\"end_line\":5|"
               "\"next_offset\":null"));
    CHECK(page("a", 4, 1, "\"content\":\"five\"|\"start_line\":5|\"next_offset\":null"));
    CHECK(page("a", 0, 0, "\"content\":\"\"|\"start_line\":null|\"end_line\":null"));
    (void)call(files_text, MSG(.path = at("a"), .offset = 5, .limit = 1));
    CHECK(is_error(416, "invalid_range") && says("Line offset 5 exceeds file length (5 lines)"));
    make("empty", "", 0644);
    CHECK(page("empty", 0, 10, "\"content\":\"\"|\"total_lines\":0|\"start_line\":null"));
    make("cr", "a\r", 0644);
    CHECK(page("cr", 0, 10, "\"content\":\"a\\u000d\"|\"total_lines\":1"));
    return 0;
}

TEST(pages_put_together_are_the_file)
{
    static char text[3 << 20];
    size_t n = 0;

    fresh(true);
    srand(7);
    while (n < sizeof(text) - 3000) {
        size_t line = (size_t)rand() % 2500;
        for (size_t i = 0; i < line; i += 3)
            memcpy(text + n + i, "\xe2\x82\xac", 3);
        n += (line + 2) / 3 * 3;
        text[n++] = '\n';
    }
    scoped_fd int fd = open(at("big"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(files_write_all(fd, text, n) == 0);
    struct buf all;
    buf_init(&all, 8 << 20);
    uint64_t offset = 0;
    for (int pages = 0;; pages++) {
        CHECK(pages < 100);
        CHECK(call(files_text, MSG(.path = at("big"), .offset = offset, .limit = 777)) == 200);
        const char *at_ = strstr(got.body, "\"content\":\"") + 11;
        for (; *at_ != '"'; at_++) {
            if (*at_ == '\\') {
                buf_add(&all, "\n", 1);
                at_++;
            } else {
                buf_add(&all, at_, 1);
            }
        }
        const char *next = strstr(at_, "\"next_offset\":") + 14;
        bool last = strncmp(next, "null", 4) == 0;
        CHECK(last || says("\"total_lines\":null"));
        if (last)
            break;
        CHECK(strtoull(next, NULL, 10) > offset);
        offset = strtoull(next, NULL, 10);
    }
    CHECK(all.n == n && memcmp(all.p, text, n) == 0);
    buf_clear(&all);
    return 0;
}

TEST(a_line_longer_than_a_page_is_cut_and_passed)
{
    char *text = malloc(1300000);

    fresh(true);
    memset(text, 'x', 1300000);
    memcpy(text + 1200000, "\nlast\n", 7);
    CHECK(PUT("long", text) == 201);
    CHECK(page("long", 0, 10,
               "\"truncated\":true|\"start_line\":1|\"end_line\":1|"
               "\"next_offset\":1"));
    CHECK(got.n > 512000 && got.n < 513000);
    CHECK(page("long", 1, 10, "\"content\":\"last\\n\"|\"next_offset\":null|\"total_lines\":2"));
    text[1200000] = '\0'; /* one line, and nothing behind it */
    CHECK(PUT("long", text) == 200);
    CHECK(page("long", 0, 10, "\"truncated\":true|\"next_offset\":null|\"total_lines\":1"));
    text[100] = '\n';
    CHECK(PUT("long", text) == 200);
    CHECK(page("long", 0, 10,
               "\"truncated\":true|\"start_line\":1|\"end_line\":1|"
               "\"next_offset\":1"));
    free(text);
    return 0;
}

TEST(what_is_no_text_comes_as_base64_and_not_if_large)
{
    fresh(true);
    make("bin", "\xff\xfe", 0644);
    CHECK(page("bin", 0, 10,
               "\"content_b64\":\"//4=\"|\"encoding\":\"base64\"|\"binary\":true|"
               "\"total_lines\":null"));
    CHECK(truncate(at("bin"), 512000) == 0);
    CHECK(page("bin", 0, 10, "\"binary\":true"));
    CHECK(truncate(at("bin"), 512001) == 0);
    (void)call(files_text, MSG(.path = at("bin"), .limit = 1));
    CHECK(is_error(413, "too_large"));
    CHECK(says("Binary file exceeds maximum preview size of 512000 bytes"));
    /* A character on the edge of what is looked at is whole. */
    char text[9000];
    memset(text, 'a', sizeof(text));
    memcpy(text + 8191, "\xe2\x82\xac\n", 5);
    make("edge", text, 0644);
    CHECK(page("edge", 0, 10, "\"binary\":false|\"total_lines\":1"));
    return 0;
}
