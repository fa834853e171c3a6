/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns, and walks of trees. */
#include "search_scene.h"

#include "base/clock.h"
#include "base/fd.h"
#include "policy/glob.h"
#include "unit.h"

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
        if (glob) {
            (void)glob_match(glob, path);
            (void)glob_may_match_below(glob, path);
        }
        glob_free(glob);
        free(pattern);
        free(path);
    }
    CHECK(now_ms() - start < 10000);
    return 0;
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

static enum walk_answer gather(void *context, const struct tree_entry *entry)
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

static enum walk_answer see_no_secret(void *context, const struct tree_entry *entry)
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
