/* SPDX-License-Identifier: Apache-2.0 */
/* Watching directories and files. */
#include "search_scene.h"

#include <poll.h>
#include <sys/inotify.h>

#include "base/clock.h"
#include "base/fd.h"
#include "unit.h"

/* --- watching --- */

struct watcher {
    struct files_message m;
    struct files_call call;
    pthread_t thread;
    int client;
    FILE *in;
    struct buf lines;
};

static void *run_watch(void *argument)
{
    struct watcher *w = argument;

    files_watch(&w->call);
    (void)close(w->call.stream);
    return NULL;
}

static bool read_exactly(int fd, void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 5000) <= 0)
            return false;
        ssize_t got = read(fd, (char *)bytes + at, n - at);
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

/* The next event that is not about attributes or content, as "event path [to]". */
static char *next_event(struct watcher *w, bool all)
{
    static char words[9000];

    for (;;) {
        char *end = w->lines.n > 0 ? memchr(w->lines.p, '\n', w->lines.n) : NULL;
        if (!end) {
            uint32_t n;
            char bytes[FILES_PIECE];
            if (!read_exactly(w->client, &n, 4) || n == 0 || n > sizeof(bytes) ||
                !read_exactly(w->client, bytes, n))
                return NULL;
            buf_add(&w->lines, bytes, n);
            continue;
        }
        size_t length = (size_t)(end - w->lines.p);
        json_t *line = json_loadb(w->lines.p, length, JSON_ALLOW_NUL, NULL);
        const char *event = text_of(line, "event");
        const char *path = text_of(line, "path");
        const char *to = text_of(line, "to");
        bool minor = strcmp(event, "attrib") == 0 || strcmp(event, "modify") == 0;
        size_t skip = strlen(top) + 1;
        (void)snprintf(words, sizeof(words), "%s %s%s%s", event,
                       strlen(path) >= skip ? path + skip : "", *to ? " " : "",
                       *to ? to + skip : "");
        json_decref(line);
        memmove(w->lines.p, end + 1, w->lines.n - length - 1);
        w->lines.n -= length + 1;
        if (all || !minor)
            return words;
    }
}

static int start_watch(struct watcher *w, const char *path, uint64_t flags)
{
    struct files_head head;
    int pair[2];

    *w = (struct watcher){0};
    buf_init(&w->lines, 64 << 20);
    w->m = message(strdup(path), "");
    w->m.flags = flags;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(shutdown(pair[1], SHUT_WR) == 0);
    w->call = (struct files_call){.m = &w->m, .stream = pair[0], .hidden = -1};
    w->client = pair[1];
    CHECK(pthread_create(&w->thread, NULL, run_watch, w) == 0);
    CHECK(read_exactly(w->client, &head, sizeof(head)) && head.status == 200);
    const char *ready = next_event(w, true);
    CHECK(ready && strncmp(ready, "ready", 5) == 0);
    return 0;
}

static int end_watch(struct watcher *w)
{
    uint64_t start = now_ms();

    (void)close(w->client);
    CHECK(pthread_join(w->thread, NULL) == 0);
    CHECK(now_ms() - start < 2000);
    buf_clear(&w->lines);
    free((void *)(uintptr_t)w->m.path);
    return 0;
}

#define NEXT(words)                                                                                \
    do {                                                                                           \
        const char *got = next_event(&w, false);                                                   \
        CHECK_FOR(got ? got : "(nothing)", got &&strcmp(got, words) == 0);                         \
    } while (0)

TEST(watch_tells_what_happens_in_a_tree)
{
    struct watcher w;

    set_scene();
    make("tree");
    make("tree/a");
    make("out");
    make("out/d");
    put("out/d/f", "x");
    CHECK(start_watch(&w, in("tree"), FILES_RECURSIVE) == 0);
    put("tree/x", "1");
    NEXT("create tree/x");
    CHECK(strcmp(next_event(&w, true), "modify tree/x") == 0);
    CHECK(chmod(in("tree/x"), 0600) == 0);
    CHECK(strcmp(next_event(&w, true), "attrib tree/x") == 0);
    put("tree/a/y", "1");
    NEXT("create tree/a/y");
    CHECK(rename(in("tree/x"), in("tree/a/z")) == 0);
    NEXT("move tree/x tree/a/z");
    CHECK(rename(in("tree/a"), in("tree/b")) == 0);
    NEXT("move tree/a tree/b");
    put("tree/b/after", "1"); /* the names below have changed */
    NEXT("create tree/b/after");
    CHECK(rename(in("out/d"), in("tree/d")) == 0);
    NEXT("create tree/d");
    NEXT("create tree/d/f");
    put("tree/d/g", "1");
    NEXT("create tree/d/g");
    CHECK(rename(in("tree/d"), in("out/d")) == 0);
    NEXT("delete tree/d");
    put("out/d/h", "1"); /* nobody's business any more */
    CHECK(unlink(in("tree/b/y")) == 0);
    NEXT("delete tree/b/y");
    put("tree/\xff", "");
    NEXT("create ");
    CHECK(unlink(in("tree/\xff")) == 0);
    NEXT("delete ");
    CHECK(end_watch(&w) == 0);
    clear_scene();
    return 0;
}

TEST(watch_tells_no_end_of_what_another_has_taken_the_place_of)
{
    struct watcher w;

    set_scene();
    make("tree");
    make("tree/d");
    make("out");
    make("out/d");
    put("out/d/f", "x");
    put("tree/x", "1");
    put("out/x", "2");
    CHECK(start_watch(&w, in("tree"), FILES_RECURSIVE) == 0);
    CHECK(renameat2(AT_FDCWD, in("out/x"), AT_FDCWD, in("tree/x"), RENAME_EXCHANGE) == 0);
    NEXT("create tree/x");
    CHECK(rename(in("tree/x"), in("out/y")) == 0); /* and then another is made at once */
    put("tree/x", "3");
    NEXT("create tree/x");
    CHECK(renameat2(AT_FDCWD, in("out/d"), AT_FDCWD, in("tree/d"), RENAME_EXCHANGE) == 0);
    NEXT("create tree/d");
    NEXT("create tree/d/f");
    NEXT("delete tree/d"); /* its watches with it, and so it is told anew */
    NEXT("create tree/d");
    NEXT("create tree/d/f");
    put("tree/d/g", "1");
    NEXT("create tree/d/g");
    CHECK(end_watch(&w) == 0);
    clear_scene();
    return 0;
}

TEST(watch_leaves_out_what_carrel_has_not_finished)
{
    static const char temp[] = "tree/.carrel-0123456789abcdef0123456789abcdef";
    struct watcher w;

    set_scene();
    make("tree");
    CHECK(start_watch(&w, in("tree"), FILES_RECURSIVE) == 0);
    put(temp, "1");
    CHECK(rename(in(temp), in("tree/x")) == 0);
    CHECK(strcmp(next_event(&w, true), "create tree/x") == 0);
    scoped_fd int unnamed = open(in("tree"), O_TMPFILE | O_RDWR, 0600);
    CHECK(unnamed < 0 || fchmod(unnamed, 0644) == 0);
    put("tree/.carrel-mine", "");
    CHECK(strcmp(next_event(&w, true), "create tree/.carrel-mine") == 0);
    put("tree/#1", "");
    NEXT("create tree/#1");
    CHECK(rename(in("tree/#1"), in("tree/#2")) == 0);
    NEXT("move tree/#1 tree/#2");
    CHECK(unlink(in("tree/#2")) == 0);
    NEXT("delete tree/#2");
    CHECK(end_watch(&w) == 0);
    clear_scene();
    return 0;
}

TEST(watch_misses_nothing_in_directories_that_appear)
{
    enum {
        DIRS = 300
    };
    struct watcher w;
    bool seen[DIRS] = {0};
    int count = 0;

    set_scene();
    make("tree");
    CHECK(start_watch(&w, in("tree"), FILES_RECURSIVE) == 0);
    for (int i = 0; i < DIRS; i++) { /* at once, deeper than the watch can follow */
        char path[128];
        (void)snprintf(path, sizeof(path), "tree/%d", i);
        make(path);
        (void)snprintf(path, sizeof(path), "tree/%d/a", i);
        make(path);
        (void)snprintf(path, sizeof(path), "tree/%d/a/b", i);
        make(path);
        (void)snprintf(path, sizeof(path), "tree/%d/a/b/file", i);
        put(path, "x");
    }
    while (count < 4 * DIRS) {
        const char *event = next_event(&w, false);
        int number = 0;
        int at = 0;
        CHECK(event && strncmp(event, "create ", 7) == 0);
        if (sscanf(event, "create tree/%d/a/b/file%n", &number, &at) == 1 && at > 0) {
            CHECK_FOR(event, !seen[number]); /* once each */
            seen[number] = true;
        }
        count++;
    }
    for (int i = 0; i < DIRS; i++)
        CHECK(seen[i]);
    CHECK(end_watch(&w) == 0);
    clear_scene();
    return 0;
}

TEST(watch_of_one_directory_or_file_tells_no_more)
{
    struct watcher w;

    set_scene();
    make("tree");
    make("tree/a");
    CHECK(start_watch(&w, in("tree"), 0) == 0);
    put("tree/a/deep", "x");
    make("tree/new");
    put("tree/new/deep", "x");
    put("tree/x", "x");
    NEXT("create tree/new");
    NEXT("create tree/x");
    CHECK(end_watch(&w) == 0);
    CHECK(start_watch(&w, in("tree/x"), 0) == 0);
    put("tree/y", "x");
    put("tree/x", "y");
    CHECK(strcmp(next_event(&w, true), "modify tree/x") == 0);
    CHECK(unlink(in("tree/x")) == 0);
    NEXT("delete tree/x");
    CHECK(next_event(&w, false) == NULL); /* and the answer has ended */
    CHECK(end_watch(&w) == 0);
    struct files_message m = message(in("nothing"), "");
    struct answered a = ask(files_watch, &m);
    CHECK(a.head.status == 404);
    json_decref(a.json);
    clear_scene();
    return 0;
}

TEST(watch_says_when_there_are_too_many)
{
    enum {
        MOST = 4096
    };

    static int held[MOST];
    int n = 0;

    /* No instance is left for this user. */
    while (n < MOST && (held[n] = inotify_init1(IN_CLOEXEC)) >= 0)
        n++;
    struct files_message m = message("/tmp", "");
    struct answered a = ask(files_watch, &m);
    for (int i = 0; i < n; i++)
        (void)close(held[i]);
    CHECK(n < MOST);
    CHECK(a.head.status == 507 && strcmp(code_of(&a), "too_many_watches") == 0);
    json_decref(a.json);
    return 0;
}
