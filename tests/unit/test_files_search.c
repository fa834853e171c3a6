/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that search: glob, grep with either engine, inventory. */
#include "search_scene.h"

#include "base/clock.h"
#include "files/search/grep.h"
#include "unit.h"

static const char *engine;
static bool engine_chosen;

static void run_grep(struct files_call *call)
{
    if (engine_chosen)
        grep_with(call, engine);
    else
        files_grep(call);
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
