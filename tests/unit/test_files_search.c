/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "files/call.h"
#include "files/glob.h"
#include "files/grep.h"

/* --- patterns --- */

TEST(glob_matches_as_people_expect)
{
    static const struct row {
        const char *pattern;
        const char *path;
        bool matches;
    } rows[] = {
        {"a", "a", true},
        {"a", "b", false},
        {"a", "x/a", true}, /* no "/": any depth */
        {"a", "a/x", false},
        {"*.py", "x.py", true},
        {"*.py", "a/b/c/x.py", true},
        {"*.py", "x.pyc", false},
        {"*.py", ".x.py", false}, /* a dot must be written */
        {"*.py", ".git/x.py", false},
        {".*.py", ".x.py", true},
        {".*", "a/.env", true},
        {".env", "a/b/.env", true},
        {".env", ".git/.env", false},
        {"[.]env", ".env", false},
        {"?env", ".env", false},
        {"/*.py", "x.py", true}, /* anchored */
        {"/*.py", "a/x.py", false},
        {"src/*.py", "src/x.py", true},
        {"src/*.py", "a/src/x.py", false},
        {"./src/*.py", "src/x.py", true},
        {"src//x", "src/x", true},
        {"src/*.py", "src/a/x.py", false},
        {"src/**/*.py", "src/x.py", true},
        {"src/**/*.py", "src/a/b/x.py", true},
        {"src/**/*.py", "src/.a/x.py", false},
        {"**/*.py", "x.py", true},
        {"**/*.py", "a/x.py", true},
        {"**", "a/b/c", true},
        {"**", "a/.b", false},
        {"**/.b", "a/.b", true},
        {"a/**", "a", false},
        {"a/**", "a/b", true},
        {"a/**", "a/b/c", true},
        {"a/", "a/b/c", true},
        {"a/**/b/**/c", "a/b/c", true},
        {"a/**/b/**/c", "a/x/b/y/z/c", true},
        {"a/**/b/**/c", "a/x/c", false},
        {"a/**/**/b", "a/b", true},
        {"a**b", "axxb", true},
        {"a**b", "a/b", false},
        {"/a**b", "a/b", false},
        {"?", "a", true},
        {"?", "ab", false},
        {"/a?b", "a/b", false},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[a-c]x", "bx", true},
        {"[!a-c]x", "bx", false},
        {"[^a-c]x", "dx", true},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[a-]", "-", true},
        {"[-a]", "-", true},
        {"[a", "[a", true}, /* never closed: itself */
        {"a[", "a[", true},
        {"[]", "[]", true},
        {"[!]", "[!]", true},
        {"[z-a]", "z", false},
        {"[\xe9]", "\xe9", true},
        {"{a,b}", "b", true},
        {"{a,b}", "{a,b}", false},
        {"x{a,b}y{c,d}", "xbyc", true},
        {"x{a,b}y{c,d}", "xbyb", false},
        {"{a,b{c,d}}", "bd", true},
        {"{a,b{c,d}}", "b", false},
        {"{a,b{c,d}}", "a", true},
        {"a{,b}", "a", true},
        {"a{,b}", "ab", true},
        {"{a}", "{a}", true},
        {"{a}", "a", false},
        {"{a,b", "{a,b", true},
        {"a,b}", "a,b}", true},
        {"{a{,b}", "{ab", true},
        {"{}", "{}", true},
        {"*.{js,ts,{j,t}sx}", "a/x.tsx", true},
        {"{src,lib}/**/*.c", "lib/a/x.c", true},
        {"{src/x,y}.c", "a/y.c", true}, /* each for itself: this one has no "/" */
        {"{src/x,y}.c", "a/src/x.c", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\{a,b\\}", "{a,b}", true},
        {"a\\", "a\\", true},
        {"*", "a/b/c", true},
        {"*a*b*c*", "xxaxxbxxcxx", true},
        {"*a*b*c*", "xxaxxcxxbxx", false},
        {"*ab", "aab", true},
        {"*aab", "aaab", true},
        {"**/b", "b", true},
        {"*/b", "b", false},
        {"*/b", "a/b", true},
        {"*/b", "a/a/b", false},
        {"...", "...", true},
        {"a/..b", "a/..b", true},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        const char *why = NULL;
        struct glob *glob = glob_make(rows[i].pattern, &why);
        CHECK_FOR(rows[i].pattern, glob);
        CHECK_FOR(rows[i].pattern, glob_match(glob, rows[i].path) == rows[i].matches);
        glob_free(glob);
    }
    return 0;
}

TEST(glob_takes_dots_where_that_is_asked_for)
{
    const char *why = NULL;
    struct glob *glob = glob_make("*.py", &why);

    glob_take_dots(glob);
    CHECK(glob_match(glob, ".git/.x.py"));
    glob_free(glob);
    return 0;
}

TEST(glob_knows_where_nothing_can_match)
{
    static const struct row {
        const char *pattern;
        const char *directory;
        bool may;
    } rows[] = {
        {"*.py", "a", true},         {"*.py", ".git", false},      {"src/*.py", "src", true},
        {"src/*.py", "lib", false},  {"src/*.py", "src/a", false}, {"src/**/x", "src/a/b", true},
        {"**/.git/*", ".git", true}, {"/x", "a", false},           {"{a,b}/x", "b", true},
        {"{a,b}/x", "c", false},     {"a/b/c", "a/b", true},       {"a/b/c", "a/b/c", false},
        {"*/*/x", "q", true},        {"*/*/x", "q/r", true},       {"*/*/x", "q/r/s", false},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        const char *why = NULL;
        struct glob *glob = glob_make(rows[i].pattern, &why);
        CHECK_FOR(rows[i].pattern, glob);
        CHECK_FOR(rows[i].pattern, glob_may_match_below(glob, rows[i].directory) == rows[i].may);
        glob_free(glob);
    }
    return 0;
}

TEST(glob_refuses_what_is_none)
{
    static const struct row {
        const char *pattern;
        const char *why;
    } rows[] = {
        {"", "invalid_pattern"},
        {"..", "invalid_pattern"},
        {"../x", "invalid_pattern"},
        {"a/../b", "invalid_pattern"},
        {"a/..", "invalid_pattern"},
        {"/", "invalid_pattern"},
        {".", "invalid_pattern"},
        {"{a,../b}", "invalid_pattern"},
        {"{.,.}{.,.}", "invalid_pattern"},
        {"{,}", "invalid_pattern"},
        {"\\.\\.", "invalid_pattern"},
        {"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "pattern_too_broad"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        const char *why = NULL;
        CHECK_FOR(rows[i].pattern, glob_make(rows[i].pattern, &why) == NULL);
        CHECK_FOR(rows[i].pattern, strcmp(why, rows[i].why) == 0);
    }
    return 0;
}

static char *repeat(const char *text, size_t times, const char *end)
{
    size_t n = strlen(text);
    char *all = malloc(n * times + strlen(end) + 1);

    for (size_t i = 0; i < times; i++)
        memcpy(all + n * i, text, n);
    memcpy(all + n * times, end, strlen(end) + 1);
    return all;
}

TEST(glob_never_takes_long)
{
    static const struct row {
        const char *piece;
        size_t times;
        const char *end;
        const char *in_path;
        size_t path_times;
    } rows[] = {
        {"*a", 10000, "b", "a", 255},   {"a*", 100, "b", "a", 255},
        {"**/", 4000, "b", "a/", 2000}, {"**/a/", 2000, "b", "a/", 2000},
        {"[", 32000, "", "[", 255},     {"*[", 16000, "", "[", 255},
        {"{", 32000, "", "{", 255},     {"{a,", 8000, "", "a", 255},
        {"{a,b", 800, "", "a", 255},    {"*/", 2000, "b", "a/", 2000},
        {"[a-z]*", 5000, "", "a", 255}, {"*?", 16000, "", "a", 255},
        {"\\", 32000, "", "a", 10},
    };

    uint64_t start = now_ms();

    for (size_t i = 0; i < LENGTH(rows); i++) {
        char *pattern = repeat(rows[i].piece, rows[i].times, rows[i].end);
        char *path = repeat(rows[i].in_path, rows[i].path_times, "x");
        const char *why = NULL;
        struct glob *glob = glob_make(pattern, &why);
        CHECK_FOR(rows[i].piece, glob || why);
        if (glob)
            (void)(glob_match(glob, path) | glob_may_match_below(glob, path));
        glob_free(glob);
        free(pattern);
        free(path);
    }
    CHECK(now_ms() - start < 10000);
    return 0;
}

/* --- trees --- */

static char top[64];

static const char *in(const char *path)
{
    static char whole[8][4096];
    static unsigned next;
    char *at = whole[next++ % 8];

    (void)snprintf(at, sizeof(whole[0]), "%s%s%s", top, *path ? "/" : "", path);
    return at;
}

static void put(const char *path, const char *text)
{
    int fd = open(in(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
    (void)close(fd);
}

static void make(const char *path)
{
    if (mkdir(in(path), 0755) < 0 && errno != EEXIST)
        abort();
}

static int shell(const char *command)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, &status, 0);
    return status;
}

static void clear_scene(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf %s", top);
    (void)shell(command);
}

static void set_scene(void)
{
    (void)snprintf(top, sizeof(top), "/tmp/files-search-XXXXXX");
    if (!mkdtemp(top))
        abort();
}

struct gathered {
    struct buf b;
    size_t n;
    size_t failures;
    unsigned deepest;
    unsigned stop_after;
    int most_fds;
};

static int open_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static enum walk_answer gather(void *context, const struct walk_entry *entry)
{
    struct gathered *g = context;

    if (g->b.max) {
        buf_str(&g->b, entry->path);
        buf_str(&g->b, S_ISDIR(entry->st.st_mode) ? "/\n" : "\n");
    }
    g->n++;
    if (entry->depth > g->deepest)
        g->deepest = entry->depth;
    if (g->n % 64 == 0) {
        int fds = open_fds();
        g->most_fds = fds > g->most_fds ? fds : g->most_fds;
    }
    if (strcmp(entry->name, "past") == 0)
        return WALK_PAST;
    return g->stop_after && g->n >= g->stop_after ? WALK_STOP : WALK_ON;
}

static void gather_failure(void *context, const char *path, int error)
{
    struct gathered *g = context;

    (void)path;
    (void)error;
    g->failures++;
}

TEST(walk_goes_in_order_and_past_what_it_is_told)
{
    struct gathered g = {0};

    set_scene();
    buf_init(&g.b, 4096);
    make("b");
    make("b/past");
    put("b/past/x", "");
    put("b/z", "");
    put("a", "");
    put("b-", "");
    put("\xff\nodd", "");
    CHECK(symlink("/etc", in("b/link")) == 0);
    CHECK(files_walk(in(""), UINT32_MAX, gather, NULL, &g) == 0);
    CHECK(strcmp(g.b.p, "a\nb/\nb/link\nb/past/\nb/z\nb-\n\xff\nodd\n") == 0);
    g.b.n = 0;
    CHECK(files_walk(in(""), 1, gather, NULL, &g) == 0);
    CHECK(strcmp(g.b.p, "a\nb/\nb-\n\xff\nodd\n") == 0);
    g = (struct gathered){.b = g.b, .stop_after = 2};
    g.b.n = 0;
    CHECK(files_walk(in(""), UINT32_MAX, gather, NULL, &g) == 1);
    CHECK(strcmp(g.b.p, "a\nb/\n") == 0);
    CHECK(files_walk(in("nothing"), 1, gather, NULL, &g) == -ENOENT);
    CHECK(files_walk(in("a"), 1, gather, NULL, &g) == -ENOTDIR);
    buf_clear(&g.b);
    clear_scene();
    return 0;
}

TEST(walk_goes_ten_thousand_deep_with_few_descriptors)
{
    struct gathered g = {0};
    int before = open_fds();

    set_scene();
    scoped_fd int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 10000; i++) {
        CHECK(mkdirat(dir, "deep", 0755) == 0);
        CHECK(mkdirat(dir, "zlast", 0755) == 0); /* it is seen on the way back up */
        scoped_fd int next = openat(dir, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        scope_close(&dir);
        dir = take_fd(&next);
    }
    scope_close(&dir);
    CHECK(files_walk(in(""), UINT32_MAX, gather, gather_failure, &g) == 0);
    CHECK(g.n == 20000 && g.deepest == 10000 && g.failures == 0);
    CHECK(g.most_fds - before <= 16);
    CHECK(open_fds() == before);
    clear_scene();
    return 0;
}

/* Swaps directories for links that lead out, and moves them away, as fast as it can. */
static bool stop_swapping;

static void *swap(void *nothing)
{
    char a[128];
    char b[128];
    char c[128];

    (void)snprintf(a, sizeof(a), "%s/tree/a", top);
    (void)snprintf(b, sizeof(b), "%s/tree/link", top);
    (void)snprintf(c, sizeof(c), "%s/away", top);
    for (unsigned i = 0; !__atomic_load_n(&stop_swapping, __ATOMIC_RELAXED); i++) {
        (void)renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
        if (i % 3 == 0) {
            (void)rename(a, c);
            (void)rename(c, a);
        }
    }
    return nothing;
}

static enum walk_answer see_no_secret(void *context, const struct walk_entry *entry)
{
    size_t *seen = context;

    *seen += strncmp(entry->name, "secret", 6) == 0;
    return WALK_ON;
}

TEST(walk_is_never_led_out_by_swapped_directories)
{
    pthread_t thread;
    size_t seen = 0;

    set_scene();
    make("tree");
    make("out");
    put("out/secret", "x");
    make("out/secretdir");
    make("tree/a");
    for (int i = 0, n = 0; i < 20; i++) {
        char path[256];
        n += snprintf(path, sizeof(path), "tree/a%.*s", 0, "");
        (void)n;
        (void)snprintf(path, sizeof(path), "tree/a/%d", i);
        make(path);
        (void)snprintf(path, sizeof(path), "tree/a/%d/b", i);
        make(path);
    }
    CHECK(symlink("../out", in("tree/link")) == 0);
    stop_swapping = false;
    CHECK(pthread_create(&thread, NULL, swap, NULL) == 0);
    uint64_t until = now_ms() + 2000;
    size_t walks = 0;
    for (; now_ms() < until; walks++)
        (void)files_walk(in("tree"), UINT32_MAX, see_no_secret, NULL, &seen);
    __atomic_store_n(&stop_swapping, true, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(seen == 0 && walks > 100);
    clear_scene();
    return 0;
}

/* --- calls --- */

static const char *const no_globs[] = {NULL};

struct answered {
    struct files_head head;
    json_t *json; /* the body; of NDJSON a list of its lines */
};

struct reader {
    int fd;
    struct buf b;
};

static void *read_all(void *argument)
{
    struct reader *r = argument;
    char bytes[65536];
    ssize_t n;

    while ((n = read(r->fd, bytes, sizeof(bytes))) > 0)
        buf_add(&r->b, bytes, (size_t)n);
    return NULL;
}

static json_t *lines_of(const char *at, size_t n)
{
    json_t *all = json_array();

    while (n > 0) {
        const char *end = memchr(at, '\n', n);
        size_t length = end ? (size_t)(end - at) : n;
        json_t *line = json_loadb(at, length, JSON_ALLOW_NUL, NULL);
        if (!line)
            abort();
        (void)json_array_append_new(all, line);
        at += length + (end != NULL);
        n -= length + (end != NULL);
    }
    return all;
}

/* Takes the pieces of an answer together, in place. */
static size_t join_pieces(char *bytes, size_t n)
{
    size_t to = 0;

    for (size_t at = 0; at + 4 <= n;) {
        uint32_t piece;
        memcpy(&piece, bytes + at, 4);
        memmove(bytes + to, bytes + at + 4, piece);
        to += piece;
        at += 4 + piece;
    }
    return to;
}

static const char *engine;
static bool engine_chosen;

static void run_grep(struct files_call *call)
{
    if (engine_chosen)
        grep_with(call, engine);
    else
        files_grep(call);
}

static struct answered ask(files_operation *operation, const struct files_message *m)
{
    struct answered a = {0};
    struct reader r = {0};
    pthread_t thread;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    (void)shutdown(pair[1], SHUT_WR);
    r.fd = pair[1];
    buf_init(&r.b, 256 << 20);
    if (pthread_create(&thread, NULL, read_all, &r) != 0)
        abort();
    struct files_call call = {.m = m, .stream = pair[0], .hidden = -1};
    operation(&call);
    (void)close(pair[0]);
    (void)pthread_join(thread, NULL);
    (void)close(pair[1]);
    if (r.b.n >= sizeof(a.head)) {
        char *body = r.b.p + sizeof(a.head);
        size_t n = r.b.n - sizeof(a.head);
        memcpy(&a.head, r.b.p, sizeof(a.head));
        if (a.head.size == FILES_MOST)
            n = join_pieces(body, n);
        a.json = a.head.type == FILES_TYPE_NDJSON ? lines_of(body, n)
                                                  : json_loadb(body, n, JSON_ALLOW_NUL, NULL);
    }
    buf_clear(&r.b);
    return a;
}

static struct files_message message(const char *path, const char *pattern)
{
    return (struct files_message){.path = path,
                                  .other = "",
                                  .pattern = pattern,
                                  .globs = no_globs,
                                  .cursor = "",
                                  .if_match = "",
                                  .if_none_match = "",
                                  .limit = 10000,
                                  .mode = FILES_MOST};
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static const char *code_of(const struct answered *a)
{
    return text_of(json_object_get(a->json, "error"), "code");
}

static const json_t *match(const struct answered *a, size_t i)
{
    return json_array_get(json_object_get(a->json, "matches"), i);
}

static size_t match_count(const struct answered *a)
{
    return json_array_size(json_object_get(a->json, "matches"));
}

static bool truncated(const struct answered *a)
{
    return json_is_true(json_object_get(a->json, "truncated"));
}

static void make_project(void)
{
    set_scene();
    make("src");
    make("src/deep");
    make(".git");
    make("node_modules");
    put("src/a.py", "one\nneedle two\nthree\nfour\nNeedle five\n");
    put("src/deep/b.py", "x\ny\nz\nneedle\nneedle\nw\n");
    put("src/c.txt", "needle without an end");
    put(".git/config", "needle hidden\n");
    put("node_modules/m.py", "needle module\n");
    put("src/\xff\xfe.py", "needle odd\n");
    put("src/new\nline", "needle \"quoted\"\n");
    put("empty", "");
    int fd = open(in("src/binary"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (write(fd, "needle\0\n", 8) != 8 || mkfifo(in("src/fifo"), 0644) < 0 ||
        symlink("a.py", in("src/link.py")) < 0)
        abort();
    (void)close(fd);
}

TEST(glob_call_gives_files_in_order_with_absolute_paths)
{
    make_project();
    struct files_message m = message(top, "*.py");
    struct answered a = ask(files_glob, &m);
    CHECK(a.head.status == 200 && match_count(&a) == 4 && !truncated(&a));
    CHECK(strcmp(text_of(match(&a, 0), "path"), in("node_modules/m.py")) == 0);
    CHECK(strcmp(text_of(match(&a, 0), "type"), "file") == 0);
    CHECK(strcmp(text_of(match(&a, 1), "path"), in("src/a.py")) == 0);
    CHECK(strcmp(text_of(match(&a, 2), "path"), in("src/deep/b.py")) == 0);
    CHECK(*text_of(match(&a, 3), "path_b64"));
    json_decref(a.json);
    m.limit = 4;
    a = ask(files_glob, &m);
    CHECK(match_count(&a) == 4 && !truncated(&a));
    json_decref(a.json);
    m.limit = 3;
    a = ask(files_glob, &m);
    CHECK(match_count(&a) == 3 && truncated(&a));
    json_decref(a.json);
    m.pattern = "a/../b";
    a = ask(files_glob, &m);
    CHECK(a.head.status == 400 && strcmp(code_of(&a), "invalid_pattern") == 0);
    json_decref(a.json);
    m = message(in("nothing"), "*");
    a = ask(files_glob, &m);
    CHECK(a.head.status == 404 && strcmp(code_of(&a), "file_not_found") == 0);
    json_decref(a.json);
    clear_scene();
    return 0;
}

TEST(glob_call_passes_the_trees_of_the_kernel)
{
    struct files_message m = message("/", "/{proc,sys,dev}/**");
    struct answered a = ask(files_glob, &m);

    CHECK(a.head.status == 200 && match_count(&a) == 0 && !truncated(&a));
    json_decref(a.json);
    m = message("/proc/self", "/status");
    a = ask(files_glob, &m);
    CHECK(match_count(&a) == 1);
    json_decref(a.json);
    return 0;
}

/* The same for both engines. */
static int check_grep(void)
{
    make_project();
    struct files_message m = message(top, "needle");
    struct answered a = ask(run_grep, &m);
    CHECK(a.head.status == 200 && !truncated(&a));
    CHECK(match_count(&a) == 8);
    CHECK(strcmp(text_of(match(&a, 0), "path"), in(".git/config")) == 0);
    CHECK(strcmp(text_of(match(&a, 2), "text"), "needle two") == 0);
    CHECK(json_integer_value(json_object_get(match(&a, 2), "line")) == 2);
    CHECK(strcmp(text_of(match(&a, 3), "text"), "needle without an end") == 0);
    CHECK(strcmp(text_of(match(&a, 6), "path"), in("src/new\nline")) == 0);
    CHECK(strcmp(text_of(match(&a, 6), "text"), "needle \"quoted\"") == 0);
    CHECK(*text_of(match(&a, 7), "path_b64"));
    json_decref(a.json);

    m.flags = FILES_IGNORE_CASE;
    a = ask(run_grep, &m);
    CHECK(match_count(&a) == 9);
    json_decref(a.json);

    m.flags = FILES_REGEX;
    m.pattern = "^needle( two|$)";
    a = ask(run_grep, &m);
    CHECK(match_count(&a) == 3);
    json_decref(a.json);
    m.pattern = "a(b";
    a = ask(run_grep, &m);
    CHECK(a.head.status == 400 && strcmp(code_of(&a), "invalid_pattern") == 0);
    CHECK(strlen(text_of(json_object_get(a.json, "error"), "message")) > 5);
    json_decref(a.json);
    m.flags = 0;
    a = ask(run_grep, &m); /* literally it is fine */
    CHECK(a.head.status == 200 && match_count(&a) == 0);
    json_decref(a.json);
    m.pattern = "a\nb";
    a = ask(run_grep, &m);
    CHECK(a.head.status == 400);
    json_decref(a.json);
    m.pattern = "-e";
    a = ask(run_grep, &m);
    CHECK(a.head.status == 200 && match_count(&a) == 0);
    json_decref(a.json);
    clear_scene();
    return 0;
}

static int check_grep_globs(void)
{
    static const struct row {
        const char *globs[4];
        size_t n;
    } rows[] = {
        {{"*.py"}, 5},           {{"*.py", "*.txt"}, 6}, {{"/*.py"}, 0},
        {{"src/*.py"}, 2},       {{"src/**/*.py"}, 4},   {{"src/"}, 6},
        {{"{src,x}/?.py"}, 1},   {{"[ab].py"}, 3},       {{"*.py", "!node_modules"}, 4},
        {{"!node_modules/"}, 7}, {{"!src"}, 2},          {{"!*.[pq]y"}, 3},
        {{"config"}, 1},         {{"*\xff*"}, 1},        {{".git/**"}, 1},
    };

    make_project();
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct files_message m = message(top, "needle");
        m.globs = rows[i].globs;
        struct answered a = ask(run_grep, &m);
        CHECK_FOR(rows[i].globs[0], a.head.status == 200);
        CHECK_FOR(rows[i].globs[0], match_count(&a) == rows[i].n);
        json_decref(a.json);
    }
    const char *bad[] = {"../x", NULL};
    struct files_message m = message(top, "needle");
    m.globs = bad;
    struct answered a = ask(run_grep, &m);
    CHECK(a.head.status == 400);
    json_decref(a.json);
    clear_scene();
    return 0;
}

static int check_grep_context_and_limits(void)
{
    make_project();
    char deep[128];
    (void)snprintf(deep, sizeof(deep), "%s/src/deep", top);
    struct files_message m = message(deep, "needle");
    m.context = 2;
    struct answered a = ask(run_grep, &m);
    CHECK(match_count(&a) == 2);
    CHECK(json_array_size(json_object_get(match(&a, 0), "before")) == 2);
    CHECK(json_array_size(json_object_get(match(&a, 0), "after")) == 2);
    CHECK(json_array_size(json_object_get(match(&a, 1), "after")) == 1);
    const json_t *before = json_object_get(match(&a, 1), "before");
    CHECK(strcmp(json_string_value(json_array_get(before, 0)), "z") == 0);
    CHECK(strcmp(json_string_value(json_array_get(before, 1)), "needle") == 0);
    json_decref(a.json);
    m.context = 0;
    m.limit = 2;
    a = ask(run_grep, &m);
    CHECK(match_count(&a) == 2 && !truncated(&a));
    json_decref(a.json);
    m.limit = 1;
    a = ask(run_grep, &m);
    CHECK(match_count(&a) == 1 && truncated(&a));
    json_decref(a.json);
    m = message(in("src/a.py"), "needle"); /* a file */
    a = ask(run_grep, &m);
    CHECK(match_count(&a) == 1 && strcmp(text_of(match(&a, 0), "path"), in("src/a.py")) == 0);
    json_decref(a.json);
    m = message(in("src/binary"), "needle");
    a = ask(run_grep, &m);
    CHECK(a.head.status == 200 && match_count(&a) == 0);
    json_decref(a.json);
    m = message(in("src/fifo"), "needle");
    a = ask(run_grep, &m);
    CHECK(a.head.status == 409);
    json_decref(a.json);

    char *line = repeat("\xc3\xa9", 50000, "needle\n");
    put("src/deep/long", line);
    free(line);
    m = message(deep, "needle");
    a = ask(run_grep, &m);
    CHECK(match_count(&a) == 3);
    const json_t *text = json_object_get(match(&a, 2), "text");
    CHECK(json_is_string(text) && json_string_length(text) == 65536);
    CHECK(json_is_true(json_object_get(match(&a, 2), "cut")));
    json_decref(a.json);
    line = repeat("x", 3000000, "needle\n");
    put("src/deep/long", line);
    free(line);
    a = ask(run_grep, &m);
    CHECK(match_count(&a) == 3 && !truncated(&a));
    json_decref(a.json);
    clear_scene();
    return 0;
}

/* Many files of every size, and what the system's grep finds in them. */
static int check_grep_against_grep(void)
{
    char command[512];
    size_t lines = 0;
    char *text = NULL;
    size_t cap = 0;

    set_scene();
    (void)snprintf(command, sizeof(command),
                   "cd %s && for d in a b c; do mkdir -p $d/$d && for i in 1 2 3 4 5 6 7 8; do "
                   "seq $((i*i*i*500)) > $d/$i; seq $((i*70)) | tr 1 . > $d/$d/$i; done; done",
                   top);
    CHECK(shell(command) == 0);
    struct files_message m = message(top, "77");
    m.limit = 1000000;
    struct answered a = ask(run_grep, &m);
    CHECK(a.head.status == 200);
    (void)snprintf(command, sizeof(command),
                   "cd %s && LC_ALL=C grep -rnF -e 77 a b c > /tmp/%s.out", top, top + 5);
    CHECK(shell(command) == 0);
    (void)snprintf(command, sizeof(command), "/tmp/%s.out", top + 5);
    FILE *f = fopen(command, "re");
    CHECK(f);
    json_t *set = json_object();
    while (getline(&text, &cap, f) > 0) {
        text[strcspn(text, "\n")] = '\0';
        (void)json_object_set_new(set, text, json_true());
        lines++;
    }
    (void)fclose(f);
    (void)unlink(command);
    free(text);
    CHECK(lines > 1000 && match_count(&a) == lines);
    for (size_t i = 0; i < lines; i++) {
        char key[512];
        (void)snprintf(key, sizeof(key), "%s:%lld:%s",
                       text_of(match(&a, i), "path") + strlen(top) + 1,
                       json_integer_value(json_object_get(match(&a, i), "line")),
                       text_of(match(&a, i), "text"));
        CHECK_FOR(key, json_object_get(set, key));
    }
    json_decref(set);
    json_decref(a.json);
    clear_scene();
    return 0;
}

static int check_both(int (*check)(void))
{
    const char *ripgrep = getenv("RIPGREP") ? getenv("RIPGREP") : "/usr/bin/rg";
    int r;

    engine_chosen = true;
    engine = NULL;
    r = check();
    if (r == 0 && access(ripgrep, X_OK) == 0) {
        engine = ripgrep;
        r = check();
    }
    engine_chosen = false;
    return r;
}

TEST(grep_finds_lines)
{
    return check_both(check_grep);
}

TEST(grep_keeps_to_its_globs)
{
    return check_both(check_grep_globs);
}

TEST(grep_tells_context_and_keeps_its_limits)
{
    return check_both(check_grep_context_and_limits);
}

TEST(grep_finds_what_grep_finds)
{
    return check_both(check_grep_against_grep);
}

TEST(grep_without_ripgrep_refuses_what_would_never_end)
{
    static char many[2048]; /* a long thing, often */
    static char deep[2048];
    const char *const rows[] = {"((a{1,255}){1,255}){1,255}",
                                "(a)(b)\\1",
                                "a{99999}",
                                "((((((((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+",
                                "[[:alpha:](]((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+",
                                "a{1000}{1000}",
                                many,
                                deep};
    const char *const fine[] = {"(need)+(le)+( t)*(w)*(o)*", "[{(+]*needle{1,200}", "\\(*needle"};

    memset(many, 'a', 1500);
    memcpy(many, "(", 1);
    memcpy(many + 1500, "){900}", sizeof("){900}"));
    memset(deep, '(', 1000);
    memset(deep + 1000, ')', 1000);
    make_project();
    engine_chosen = true;
    engine = NULL;
    for (size_t i = 0; i < LENGTH(fine); i++) {
        struct files_message m = message(top, fine[i]);
        m.flags = FILES_REGEX;
        struct answered a = ask(run_grep, &m);
        CHECK_FOR(fine[i], a.head.status == 200 && match_count(&a) > 0);
        json_decref(a.json);
    }
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct files_message m = message(top, rows[i]);
        m.flags = FILES_REGEX;
        struct answered a = ask(run_grep, &m);
        CHECK_FOR(rows[i], a.head.status == 400 && strcmp(code_of(&a), "invalid_pattern") == 0);
        json_decref(a.json);
    }
    engine = "/nonexistent/rg"; /* one that cannot be started is done without */
    struct files_message m = message(top, "needle");
    struct answered a = ask(run_grep, &m);
    CHECK(a.head.status == 200);
    CHECK(match_count(&a) == 8);
    json_decref(a.json);
    engine_chosen = false;
    clear_scene();
    return 0;
}

TEST(grep_child_ends_when_the_client_leaves)
{
    int pair[2];

    /* A stand-in for ripgrep that never says anything and never ends. */
    set_scene();
    put("rg", "#!/bin/sh\nexec sleep 1000\n");
    CHECK(chmod(in("rg"), 0755) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    (void)close(pair[1]);
    struct files_message m = message(top, "needle");
    struct files_call call = {.m = &m, .stream = pair[0], .hidden = -1};
    char program[128];
    (void)snprintf(program, sizeof(program), "%s/rg", top);
    uint64_t start = now_ms();
    grep_with(&call, program);
    CHECK(now_ms() - start < 5000);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    (void)close(pair[0]);
    clear_scene();
    return 0;
}

TEST(inventory_tells_all_and_what_is_the_same)
{
    make_project();
    put("copy of a", "one\nneedle two\nthree\nfour\nNeedle five\n");
    struct files_message m = message(top, "");
    m.flags = FILES_HASH;
    struct answered a = ask(files_inventory, &m);
    CHECK(a.head.status == 200 && a.head.type == FILES_TYPE_NDJSON);
    size_t n = json_array_size(a.json);
    const json_t *summary = json_object_get(json_array_get(a.json, n - 1), "summary");
    CHECK(json_integer_value(json_object_get(summary, "files")) == 10);
    CHECK(json_integer_value(json_object_get(summary, "directories")) == 4);
    CHECK(json_integer_value(json_object_get(summary, "others")) == 2);
    CHECK(n == 17);
    const json_t *same = json_object_get(summary, "duplicates");
    CHECK(json_array_size(same) == 1);
    CHECK(json_array_size(json_object_get(json_array_get(same, 0), "paths")) == 2);
    for (size_t i = 0; i < n - 1; i++) {
        const json_t *line = json_array_get(a.json, i);
        bool is_file = strcmp(text_of(line, "type"), "file") == 0;
        CHECK((strlen(text_of(line, "sha256")) == 64) == is_file);
        if (strcmp(text_of(line, "path"), in("empty")) == 0)
            CHECK(strncmp(text_of(line, "sha256"), "e3b0c44298fc1c14", 16) == 0);
    }
    json_decref(a.json);
    m.flags = 0;
    a = ask(files_inventory, &m);
    CHECK(json_array_size(a.json) == n && !*text_of(json_array_get(a.json, 3), "sha256"));
    json_decref(a.json);
    m.path = in("empty");
    a = ask(files_inventory, &m);
    CHECK(a.head.status == 409);
    json_decref(a.json);
    clear_scene();
    return 0;
}

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
