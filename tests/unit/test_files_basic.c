/* SPDX-License-Identifier: Apache-2.0 */
/* The basic operations of the file server, in a directory of their own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "files/call.h"
#include "files/paths.h"
#include "unit.h"

enum {
    GIVEN = 1 << 20
};

static char top[64];
static int hidden = -1;

static const char *at(const char *name)
{
    static char paths[8][FILES_PATH];
    static unsigned next;
    char *path = paths[next++ % 8];

    (void)snprintf(path, FILES_PATH, "%s%s%s", top, *name ? "/" : "", name);
    return path;
}

/* --- calling --- */

struct answer {
    struct files_head head;
    char *body; /* with a NUL */
    size_t n;
    bool cut;
};

static struct answer got;

struct job {
    struct files_call call;
    files_operation *operation;
};

static void *work(void *context)
{
    struct job *job = context;

    job->operation(&job->call);
    (void)close(job->call.stream);
    return NULL;
}

static bool read_all(int fd, void *bytes, size_t n)
{
    for (size_t at_ = 0; at_ < n;) {
        ssize_t r = read(fd, (char *)bytes + at_, n - at_);
        if (r <= 0)
            return false;
        at_ += (size_t)r;
    }
    return true;
}

static void send_body(int fd, const char *body, size_t n, bool whole)
{
    uint32_t end = 0;

    while (n > 0) {
        uint32_t piece = n < 50000 ? (uint32_t)n : 50000;
        if (send(fd, &piece, sizeof(piece), MSG_NOSIGNAL) < 0 ||
            send(fd, body, piece, MSG_NOSIGNAL) < 0)
            return;
        body += piece;
        n -= piece;
    }
    if (whole)
        ignore(send(fd, &end, sizeof(end), MSG_NOSIGNAL));
    (void)shutdown(fd, SHUT_WR);
}

static void read_answer(int fd)
{
    free(got.body);
    got = (struct answer){0};
    got.cut = !read_all(fd, &got.head, sizeof(got.head));
    got.body = calloc(1, 1);
    for (uint64_t left = got.head.size; !got.cut;) {
        static char bytes[65536];
        uint32_t piece = left < sizeof(bytes) ? (uint32_t)left : sizeof(bytes);
        if (got.head.size == FILES_MOST)
            got.cut = !read_all(fd, &piece, sizeof(piece));
        if (piece == 0 || got.cut)
            break;
        got.cut = !read_all(fd, bytes, piece);
        if (got.cut)
            break;
        got.body = realloc(got.body, got.n + piece + 1);
        memcpy(got.body + got.n, bytes, piece);
        got.n += piece;
        got.body[got.n] = '\0';
        left -= piece;
    }
}

static unsigned call_with(files_operation *operation, struct files_message m, const char *body,
                          size_t n, bool whole)
{
    static const char *const none[] = {NULL};
    int pair[2];
    pthread_t thread;

    m.globs = none;
    m.other = m.other ? m.other : "";
    m.cursor = m.cursor ? m.cursor : "";
    m.pattern = "";
    m.if_match = m.if_match ? m.if_match : "";
    m.if_none_match = m.if_none_match ? m.if_none_match : "";
    m.mode = m.mode & GIVEN ? m.mode & ~(uint64_t)GIVEN : FILES_MOST;
    if (m.to == 0 && m.from != FILES_MOST)
        m.to = FILES_MOST;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 0;
    struct job job = {{.m = &m, .stream = pair[1], .hidden = hidden}, operation};
    if (pthread_create(&thread, NULL, work, &job) != 0)
        return 0;
    send_body(pair[0], body, n, whole);
    read_answer(pair[0]);
    (void)close(pair[0]);
    (void)pthread_join(thread, NULL);
    return got.head.status;
}

static unsigned call(files_operation *operation, struct files_message m)
{
    return call_with(operation, m, "", 0, true);
}

/* --- checking --- */

static bool says(const char *part)
{
    return got.body && strstr(got.body, part);
}

static bool is_error(unsigned status, const char *code)
{
    char words[64];

    (void)snprintf(words, sizeof(words), "\"code\":\"%s\"", code);
    if (got.head.status == status && says(words))
        return true;
    printf("    got %u %s\n", got.head.status, got.body);
    return false;
}

#define MSG(...) ((struct files_message){__VA_ARGS__})
#define AS(mode) ((mode) | GIVEN) /* a mode that is not the usual */
#define PUT(name_, text)                                                                           \
    call_with(files_write, MSG(.path = at(name_), .flags = FILES_PARENTS), text, strlen(text), true)

static bool holds(const char *name, const char *text)
{
    char bytes[4096];
    scoped_fd int fd = open(at(name), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

    return n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n - 2;
}

static void make(const char *name, const char *text, mode_t mode)
{
    scoped_fd int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (write(fd, text, strlen(text)) < 0 || fchmod(fd, mode) < 0)
        perror("make");
}

static void clean(void)
{
    scoped_fd int above = open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (*top)
        ignore(files_remove_tree(above, strrchr(top, '/') + 1));
    top[0] = '\0';
}

/* A directory for this test; also a hidden one, or none. */
static void fresh(bool with_hidden)
{
    clean();
    (void)snprintf(top, sizeof(top), "/var/tmp/test_files_XXXXXX");
    if (!mkdtemp(top))
        abort();
    scope_close(&hidden);
    if (!with_hidden)
        return;
    (void)mkdir(at(".hidden"), 0700);
    hidden = open(at(".hidden"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool no_litter(int expected)
{
    int n = entries(top) - (hidden >= 0);

    if (n != expected || (hidden >= 0 && entries(at(".hidden")) != 0))
        printf("    %d entries, %d hidden\n", n, hidden >= 0 ? entries(at(".hidden")) : 0);
    return n == expected && (hidden < 0 || entries(at(".hidden")) == 0);
}

static mode_t mode_of(const char *name)
{
    struct stat st = {0};

    (void)lstat(at(name), &st);
    return st.st_mode;
}

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
