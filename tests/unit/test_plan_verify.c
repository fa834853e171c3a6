/* SPDX-License-Identifier: Apache-2.0 */
/* plan/verify, plan/rules: each rule fires on what it is for, and on nothing beside it. The facts
 * are made up here; a base where everything is as the plan noted it, but for what a row changes. */
#include "unit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "plan/core/rules.h"
#include "plan/core/verify.h"
#include "policy/policy.h"

#define FILE_MODE (S_IFREG | 0644)
#define BASED(m)  .has_base = true, .base = {.mode = (m), .ino = 7}

#define MKDIR(p)                                                                                   \
    {                                                                                              \
        .kind = PLAN_MKDIR, .path = (p), .mode = S_IFDIR | 0755                                    \
    }
#define CREATE(p)                                                                                  \
    {                                                                                              \
        .kind = PLAN_CREATE, .path = (p), .mode = FILE_MODE, .has_hash = true, .size = 10          \
    }
#define CREATE_AS(p, m)                                                                            \
    {                                                                                              \
        .kind = PLAN_CREATE, .path = (p), .mode = (m), .has_hash = true, .size = 10                \
    }
#define WRITE(p)                                                                                   \
    {                                                                                              \
        .kind = PLAN_WRITE, .path = (p), .mode = FILE_MODE, .has_hash = true, .size = 10,          \
        BASED(FILE_MODE)                                                                           \
    }
#define SYMLINK(p, t)                                                                              \
    {                                                                                              \
        .kind = PLAN_SYMLINK, .path = (p), .mode = S_IFLNK | 0777, .target = (t)                   \
    }
#define MOVE_AS(f, p, m)                                                                           \
    {                                                                                              \
        .kind = PLAN_MOVE, .path = (p), .from = (f), .mode = (m), BASED(m)                         \
    }
#define MOVE(f, p)     MOVE_AS(f, p, FILE_MODE)
#define MOVE_DIR(f, p) MOVE_AS(f, p, S_IFDIR | 0755)
#define DELETE(p)                                                                                  \
    {                                                                                              \
        .kind = PLAN_DELETE, .path = (p), .mode = FILE_MODE, BASED(FILE_MODE)                      \
    }
#define DELETE_DIR(p)                                                                              \
    {                                                                                              \
        .kind = PLAN_DELETE, .path = (p), .mode = S_IFDIR | 0755, BASED(S_IFDIR | 0755)            \
    }
#define CHMOD(p, m)                                                                                \
    {                                                                                              \
        .kind = PLAN_CHMOD, .path = (p), .mode = S_IFREG | (m), BASED(FILE_MODE)                   \
    }
#define LINK(p, l)                                                                                 \
    {                                                                                              \
        .kind = PLAN_CREATE, .path = (p), .mode = FILE_MODE, .link = (l)                           \
    }
#define LINK_STAGED(p, l)                                                                          \
    {                                                                                              \
        .kind = PLAN_CREATE, .path = (p), .mode = FILE_MODE, .link = (l), .has_hash = true,        \
        .size = 10                                                                                 \
    }

struct desk {
    struct plan plan;
    struct plan_index index;
    struct plan_facts facts;
    struct policy policy;
    struct arena arena;
    struct plan_findings findings;
    struct err err;
    char rules[512]; /* "stale stale allow?": in order; "?" is a review */
    char message[PLAN_MESSAGE];
};

static void desk_clear(struct desk *d)
{
    plan_index_clear(&d->index);
    plan_facts_clear(&d->facts);
    plan_clear(&d->plan);
    arena_clear(&d->arena);
}

#define scoped_desk __attribute__((cleanup(desk_clear))) struct desk d = {.arena = {.max = 1 << 20}}

static void take(void *context, const struct plan_finding *finding)
{
    struct desk *d = context;
    size_t n = strlen(d->rules);

    snprintf(d->rules + n, sizeof(d->rules) - n, "%s%s%s", n ? " " : "", finding->rule,
             finding->severity == PLAN_REVIEW ? "?" : "");
    memcpy(d->message, finding->message, sizeof(d->message));
}

static void assume(struct plan_fact *fact, const struct plan_operation *operation)
{
    fact->base = (struct plan_sight){SIGHT_PRESENT, operation->base.mode, 1};
    fact->same = true;
    fact->there.state = SIGHT_ABSENT;
    fact->parent = (struct plan_sight){SIGHT_PRESENT, S_IFDIR | 0755, 0};
    fact->staged = (struct plan_sight){SIGHT_PRESENT, FILE_MODE, operation->size};
    fact->linked = (struct plan_sight){SIGHT_PRESENT, FILE_MODE, 1};
}

static int begin(struct desk *d, const struct plan_operation *operations, size_t count)
{
    plan_init(&d->plan);
    for (size_t i = 0; i < count; i++) {
        struct plan_operation *operation = plan_add(&d->plan, &d->err);
        if (!operation)
            return -1;
        *operation = operations[i];
        d->plan.bytes += operation->size;
    }
    d->facts = (struct plan_facts){.at = calloc(count + 1, sizeof(struct plan_fact)),
                                   .count = count,
                                   .free_bytes = 1ULL << 40,
                                   .free_files = 1ULL << 30};
    for (size_t i = 0; d->facts.at && i < count; i++)
        assume(&d->facts.at[i], &d->plan.operations[i]);
    return d->facts.at ? plan_index_make(&d->index, &d->plan, &d->err) : -1;
}

/* What is found, as text. */
static const char *judge(struct desk *d, const char *policy)
{
    char text[4096];

    snprintf(text, sizeof(text), "{\"plan\":%s}", policy ? policy : "{}");
    d->findings = (struct plan_findings){.take = take, .context = d};
    d->rules[0] = '\0';
    if (policy_parse(&d->policy, &d->arena, text, strlen(text), &d->err) < 0 ||
        plan_judge(&d->findings, &d->index, &d->policy.plan, &d->facts, &d->err) < 0)
        return d->err.msg;
    return d->rules;
}

struct row {
    const char *name;
    const char *policy;
    struct plan_operation operations[4];
    const char *rules;
};

static const struct row rows[] = {
    {"a plan of nothing", NULL, {{0}}, ""},
    {"each kind alone is clean", NULL, {MKDIR("a"), CREATE("b"), WRITE("c"), DELETE("d")}, ""},
    {"...", NULL, {SYMLINK("a", "b"), MOVE("c", "d"), CHMOD("e", 0600), LINK("f", "g")}, ""},

    {"write without base",
     NULL,
     {{.kind = PLAN_WRITE, .path = "a", .mode = FILE_MODE, .has_hash = true}},
     "shape"},
    {"create without content",
     NULL,
     {{.kind = PLAN_CREATE, .path = "a", .mode = FILE_MODE}},
     "shape"},
    {"move to itself", NULL, {MOVE("a", "a")}, "shape"},

    {"setuid", NULL, {CREATE_AS("a", S_IFREG | S_ISUID | 0644)}, "special"},
    {"setgid directory",
     NULL,
     {{.kind = PLAN_MKDIR, .path = "a", .mode = S_IFDIR | S_ISGID | 0755}},
     "special"},
    {"sticky by chmod", NULL, {CHMOD("a", 01644)}, "special"},
    {"device", NULL, {CREATE_AS("a", S_IFCHR | 0644)}, "special"},
    {"fifo", NULL, {CREATE_AS("a", S_IFIFO | 0644)}, "special"},
    {"a setuid file that goes",
     NULL,
     {{.kind = PLAN_DELETE, .path = "a", .mode = S_IFREG | 04755, BASED(S_IFREG | 04755)}},
     ""},
    {"a fifo that goes",
     NULL,
     {{.kind = PLAN_DELETE, .path = "a", .mode = S_IFIFO | 0600, BASED(S_IFIFO | 0600)}},
     ""},

    {"dots", NULL, {CREATE("../a")}, "path"},
    {"dots within", NULL, {CREATE("a/../b")}, "path"},
    {"absolute", NULL, {CREATE("/etc/passwd")}, "path"},
    {"empty part", NULL, {CREATE("a//b")}, "path"},
    {"from outside", NULL, {MOVE("../a", "b")}, "path"},
    {"reserved", NULL, {CREATE("usr/bin/x")}, "reserved"},
    {"an environment that waits", NULL, {MKDIR(".venv.carrel-next")}, "reserved"},
    {"reserved source", NULL, {MOVE("etc/x", "y")}, "reserved"},
    {"reserved names below are names", NULL, {CREATE("a/usr")}, ""},

    {"two for one place", NULL, {CREATE("a"), CREATE("a")}, "contradiction contradiction"},
    {"two of one thing", NULL, {MOVE("a", "b"), MOVE("a", "c")}, "contradiction contradiction"},
    {"replaced", NULL, {DELETE("a"), MKDIR("a"), CREATE("a/b")}, ""},
    {"below a new symlink", NULL, {SYMLINK("a", "b"), CREATE("a/c")}, "contradiction"},
    {"below a new file", NULL, {CREATE("a"), CREATE("a/c")}, "contradiction"},
    {"below a moved symlink",
     NULL,
     {{.kind = PLAN_MOVE,
       .path = "a",
       .from = "b",
       .target = "x",
       .mode = S_IFLNK | 0777,
       BASED(S_IFLNK | 0777)},
      MKDIR("a/c")},
     "contradiction"},
    {"below what is deleted", NULL, {DELETE_DIR("a"), WRITE("a/b")}, "contradiction"},
    {"saved from what is deleted", NULL, {DELETE_DIR("a"), MOVE("a/b", "c")}, ""},
    {"deleted twice", NULL, {DELETE_DIR("a"), DELETE("a/b/c")}, "contradiction"},
    {"in a directory that has left", NULL, {MOVE_DIR("a", "b"), CREATE("a/c")}, "contradiction"},
    {"in a directory that has come", NULL, {MOVE_DIR("a", "b"), CREATE("b/c")}, ""},
    {"in one that left and was made anew",
     NULL,
     {MOVE_DIR("a", "b"), MKDIR("a"), CREATE("a/c")},
     ""},
    {"into itself", NULL, {MOVE_DIR("a", "a/b")}, "contradiction"},
    {"into its successor", NULL, {MKDIR("a"), MOVE_DIR("a", "a/b")}, ""},
    {"into each other",
     NULL,
     {MOVE_DIR("a", "b/x"), MOVE_DIR("b", "a/y")},
     "contradiction contradiction"},
    {"swapped", NULL, {MOVE("a", "b"), MOVE("b", "a")}, ""},
    {"a directory is missing", NULL, {MKDIR("a"), CREATE("a/b/c")}, "contradiction"},
    {"in a directory that is made and closed",
     NULL,
     {{.kind = PLAN_MKDIR, .path = "a", .mode = S_IFDIR | 0600}, MKDIR("a/b"), CREATE("a/b/c")},
     "closed closed"},
    {"in one that is left closed",
     NULL,
     {{.kind = PLAN_CHMOD, .path = "a", .mode = S_IFDIR, BASED(S_IFDIR | 0755)}, CREATE("a/b")},
     "closed"},
    {"gone from one that is left closed",
     NULL,
     {{.kind = PLAN_CHMOD, .path = "a", .mode = S_IFDIR, BASED(S_IFDIR | 0755)}, DELETE("a/b")},
     ""},
    {"in one that may be entered only",
     NULL,
     {{.kind = PLAN_MKDIR, .path = "a", .mode = S_IFDIR | 0100}, CREATE("a/b")},
     ""},
    {"hard link to new content", NULL, {CREATE("a"), LINK_STAGED("b", "a")}, ""},
    {"hard link to nothing", NULL, {LINK_STAGED("b", "a")}, "contradiction"},
    {"hard link to a directory", NULL, {MKDIR("a"), LINK("b", "a")}, "contradiction"},

    {"kind not allowed", "{\"operations\":[\"create\"]}", {DELETE("a")}, "operations"},
    {"kind allowed", "{\"operations\":[\"create\",\"delete\"]}", {DELETE("a")}, ""},
    {"no kind allowed", "{\"operations\":[]}", {CREATE("a")}, "operations"},
    {"outside", "{\"allow\":[\"work/**\"]}", {CREATE("other/a")}, "allow"},
    {"moved out", "{\"allow\":[\"work/**\"]}", {MOVE("work/a", "b")}, "allow"},
    {"moved in", "{\"allow\":[\"work/**\"]}", {MOVE("b", "work/a")}, "allow"},
    {"linked in", "{\"allow\":[\"work/**\"]}", {LINK("work/a", "secret")}, "allow"},
    {"inside", "{\"allow\":[\"work/**\"]}", {MOVE("work/a", "work/b/c")}, ""},
    {"a directory by name is what is in it", "{\"allow\":[\"work\"]}", {CREATE("work/a/b")}, ""},
    {"dots are names", "{\"allow\":[\"work/**\"]}", {CREATE("work/.a/.b")}, ""},
    {"nothing allowed", "{\"allow\":[]}", {CREATE("a")}, "allow"},
    {"a comma is a letter", "{\"allow\":[\"a,b\"]}", {CREATE("a"), CREATE("a,b")}, "allow"},
    {"protected", "{\"protect\":[\"contracts/**\"]}", {WRITE("contracts/a")}, "protect"},
    {"protected at any depth", "{\"protect\":[\"*.key\"]}", {CREATE("a/b/x.key")}, "protect"},
    {"below protected", "{\"protect\":[\"contracts\"]}", {CREATE("contracts/a/b")}, "protect"},
    {"moved from protected",
     "{\"protect\":[\"contracts\"]}",
     {MOVE("contracts/a", "b")},
     "protect"},
    {"linked from protected",
     "{\"protect\":[\"contracts\"]}",
     {LINK("b", "contracts/a")},
     "protect"},
    {"beside protected", "{\"protect\":[\"contracts\"]}", {CREATE("contracts2")}, ""},
    {"too large", "{\"max_file_bytes\":9}", {CREATE("a")}, "max_file_bytes"},
    {"large enough", "{\"max_file_bytes\":10}", {CREATE("a")}, ""},
    {"too much", "{\"max_bytes\":19}", {CREATE("a"), CREATE("b")}, "max_bytes"},
    {"enough", "{\"max_bytes\":20}", {CREATE("a"), CREATE("b")}, ""},
    {"too many", "{\"max_operations\":1}", {CREATE("a"), CREATE("b")}, "max_operations"},
    {"as many", "{\"max_operations\":2}", {CREATE("a"), CREATE("b")}, ""},
    {"denied by name", "{\"types\":{\"deny\":[\".exe\"]}}", {CREATE("a.exe")}, "types"},
    {"denied in capitals", "{\"types\":{\"deny\":[\".exe\"]}}", {MOVE("a", "A.ExE")}, "types"},
    {"a directory of that name", "{\"types\":{\"deny\":[\".exe\"]}}", {MKDIR("a.exe")}, ""},
    {"another name", "{\"types\":{\"deny\":[\".exe\"]}}", {CREATE("a.exe.txt")}, ""},

    {"new executable", NULL, {CREATE_AS("a", S_IFREG | 0755)}, "executables?"},
    {"executable by chmod", NULL, {CHMOD("a", 0711)}, "executables?"},
    {"executable by move",
     NULL,
     {{.kind = PLAN_MOVE, .path = "a", .from = "b", .mode = S_IFREG | 0755, BASED(FILE_MODE)}},
     "executables?"},
    {"was executable",
     NULL,
     {{.kind = PLAN_WRITE,
       .path = "a",
       .mode = S_IFREG | 0755,
       .has_hash = true,
       .size = 10,
       BASED(S_IFREG | 0700)}},
     ""},
    {"directories are no programs", NULL, {MKDIR("a")}, ""},
    {"executables allowed", "{\"executables\":\"allow\"}", {CREATE_AS("a", S_IFREG | 0755)}, ""},
    {"executables refused",
     "{\"executables\":\"refuse\"}",
     {CREATE_AS("a", S_IFREG | 0755)},
     "executables"},
    {"twins", NULL, {CREATE("a/Read"), CREATE("a/read")}, "case_twins case_twins"},
    {"twins of directories", NULL, {MKDIR("A"), MKDIR("a")}, "case_twins case_twins"},
    {"twins allowed", "{\"case_twins\":\"allow\"}", {CREATE("A"), CREATE("a")}, ""},
    {"twins reviewed",
     "{\"case_twins\":\"review\"}",
     {CREATE("A"), CREATE("a")},
     "case_twins? case_twins?"},
    {"renamed by case", NULL, {MOVE("A", "a")}, ""},
    {"a link out", NULL, {SYMLINK("a", "/etc/passwd")}, "link_out?"},
    {"a link above", NULL, {SYMLINK("a/b", "../../x")}, "link_out?"},
    {"a link above by a way round", NULL, {SYMLINK("a/b", "c/../../../x")}, "link_out?"},
    {"a link to the top", NULL, {SYMLINK("a/b", "../x")}, ""},
    {"a link moved up",
     NULL,
     {{.kind = PLAN_MOVE,
       .path = "b",
       .from = "a/b",
       .target = "../x",
       .mode = S_IFLNK | 0777,
       BASED(S_IFLNK | 0777)}},
     "link_out?"},
};

TEST(each_rule_fires_on_what_it_is_for_and_on_nothing_else)
{
    for (size_t i = 0; i < LENGTH(rows); i++) {
        scoped_desk;
        size_t n = 0;
        while (n < 4 && rows[i].operations[n].path)
            n++;
        CHECK_FOR(rows[i].name, begin(&d, rows[i].operations, n) == 0);
        const char *rules = judge(&d, rows[i].policy);
        if (strcmp(rules, rows[i].rules) != 0)
            printf("    found: \"%s\"\n", rules);
        CHECK_FOR(rows[i].name, strcmp(rules, rows[i].rules) == 0);
        CHECK_FOR(rows[i].name,
                  strcmp(plan_verdict(&d.findings), !*rules              ? "clean"
                                                    : d.findings.refused ? "refused"
                                                                         : "review") == 0);
        CHECK_FOR(rows[i].name, !*rules || d.message[0]);
    }
    return 0;
}

TEST(every_operation_is_judged_by_some_rule)
{
    for (unsigned kind = 0; kind < PLAN_KIND_COUNT_; kind++) {
        bool judged = false;
        for (size_t i = 0; i < plan_rule_count; i++)
            judged = judged || plan_rules[i].kinds & 1U << kind;
        CHECK_FOR(plan_kind_names[kind], judged);
        CHECK(strcmp(plan_kind_names[kind], plan_policy_kinds[kind]) == 0);
    }
    return 0;
}

TEST(what_no_rule_knows_is_refused)
{
    static const struct plan_operation unknown[] = {
        {.kind = (enum plan_kind)PLAN_KIND_COUNT_, .path = "a", .mode = FILE_MODE},
        {.kind = (enum plan_kind)200, .path = "b", .mode = FILE_MODE},
    };
    static const struct plan_operation known[] = {CREATE("a")};
    scoped_desk;

    CHECK(begin(&d, unknown, 2) == 0);
    CHECK(strcmp(judge(&d, NULL), "unjudged unjudged") == 0);
    desk_clear(&d);
    CHECK(begin(&d, known, 1) == 0);
    d.facts.count = 0; /* nothing is known of the base */
    CHECK(strcmp(judge(&d, NULL), "unjudged") == 0);
    return 0;
}

/* A change of one fact, and what it is found by. */
static const struct {
    const char *name;
    struct plan_operation operation;
    struct plan_fact fact; /* of which `base`, `there`, `parent`, `staged`, `linked` are set */
    bool changed;
    const char *rules;
} fact_rows[] = {
    {"changed", WRITE("a"), {.base = {SIGHT_PRESENT, FILE_MODE, 1}}, true, "stale"},
    {"gone", WRITE("a"), {.base = {.state = SIGHT_ABSENT}}, false, "stale"},
    {"reached by a link", DELETE("a/b"), {.base = {.state = SIGHT_LINK_ABOVE}}, false, "stale"},
    {"below a file", MOVE("a/b", "c"), {.base = {.state = SIGHT_FILE_ABOVE}}, false, "stale"},
    {"on another mount", CHMOD("a/b", 0600), {.base = {.state = SIGHT_ELSEWHERE}}, false, "stale"},
    {"not looked at", CHMOD("a/b", 0600), {.base = {.state = SIGHT_NONE}}, true, "stale"},
    {"a directory with news",
     DELETE_DIR("a"),
     {.base = {SIGHT_PRESENT, S_IFDIR, 1}},
     true,
     "stale"},
    {"taken", CREATE("a"), {.there = {SIGHT_PRESENT, FILE_MODE, 1}}, false, "occupied"},
    {"taken by a directory", MKDIR("a"), {.there = {SIGHT_PRESENT, S_IFDIR, 1}}, false, "occupied"},
    {"destination taken",
     MOVE("a", "b"),
     {.there = {SIGHT_PRESENT, FILE_MODE, 1}},
     false,
     "occupied"},
    {"its own place", WRITE("a"), {.there = {SIGHT_PRESENT, FILE_MODE, 1}}, false, ""},
    {"parent is a link", CREATE("a/b"), {.parent = {SIGHT_PRESENT, S_IFLNK, 1}}, false, "parent"},
    {"parent is a file", CREATE("a/b"), {.parent = {SIGHT_PRESENT, FILE_MODE, 1}}, false, "parent"},
    {"parent is gone", CREATE("a/b"), {.parent = {.state = SIGHT_ABSENT}}, false, "parent"},
    {"place unseen", CREATE("a/b"), {.there = {.state = SIGHT_DENIED}}, false, "parent"},
    {"content lost", CREATE("a"), {.staged = {.state = SIGHT_ABSENT}}, false, "content"},
    {"content a fifo", CREATE("a"), {.staged = {SIGHT_PRESENT, S_IFIFO, 10}}, false, "content"},
    {"content grown", CREATE("a"), {.staged = {SIGHT_PRESENT, FILE_MODE, 11}}, false, "content"},
    {"linked to a directory",
     LINK("a", "b"),
     {.linked = {SIGHT_PRESENT, S_IFDIR, 1}},
     false,
     "contradiction"},
    {"a protected file below", DELETE_DIR("a"), {.protected_path = "a/b"}, false, "protect"},
    {"a twin beside", CREATE("a"), {.twin = "A"}, false, "case_twins"},
    {"nothing special", CREATE("a"), {.same = false}, false, ""},
};

static void put(struct plan_sight *sight, const struct plan_sight *other, bool always)
{
    if (always || other->state != SIGHT_NONE)
        *sight = *other;
}

TEST(each_fact_counts)
{
    for (size_t i = 0; i < LENGTH(fact_rows); i++) {
        scoped_desk;
        const struct plan_fact *other = &fact_rows[i].fact;
        CHECK(begin(&d, &fact_rows[i].operation, 1) == 0);
        struct plan_fact *fact = &d.facts.at[0];
        put(&fact->base, &other->base, fact_rows[i].changed);
        put(&fact->there, &other->there, false);
        put(&fact->parent, &other->parent, false);
        put(&fact->staged, &other->staged, false);
        put(&fact->linked, &other->linked, false);
        fact->same = !fact_rows[i].changed;
        fact->twin = other->twin;
        fact->protected_path = other->protected_path;
        const char *rules = judge(&d, NULL);
        if (strcmp(rules, fact_rows[i].rules) != 0)
            printf("    found: \"%s\"\n", rules);
        CHECK_FOR(fact_rows[i].name, strcmp(rules, fact_rows[i].rules) == 0);
    }
    return 0;
}

TEST(the_first_bytes_of_content_count_where_the_policy_asks)
{
    static const struct plan_operation one[] = {CREATE("a.txt")};
    scoped_desk;

    CHECK(begin(&d, one, 1) == 0);
    d.facts.at[0].magic = PLAN_MAGIC_ELF;
    CHECK(strcmp(judge(&d, "{\"types\":{\"deny\":[\"elf\"]}}"), "types") == 0);
    CHECK(strcmp(judge(&d, "{\"types\":{\"deny\":[\"pe\",\".exe\"]}}"), "") == 0);
    CHECK(strcmp(judge(&d, NULL), "") == 0);
    return 0;
}

TEST(a_full_disk_and_too_many_names_are_told_once)
{
    static const struct plan_operation one[] = {CREATE("a")};
    scoped_desk;

    CHECK(begin(&d, one, 1) == 0);
    d.facts.free_bytes = 4096;
    CHECK(strcmp(judge(&d, NULL), "space") == 0);
    d.facts.free_bytes = 1ULL << 40;
    d.facts.free_files = 0;
    CHECK(strcmp(judge(&d, NULL), "space") == 0);
    d.facts.free_files = 1 << 20;
    d.facts.twins_unknown = true;
    CHECK(strcmp(judge(&d, NULL), "case_twins") == 0);
    CHECK(strcmp(judge(&d, "{\"case_twins\":\"refuse\"}"), "case_twins") == 0);
    CHECK(strcmp(judge(&d, "{\"case_twins\":\"allow\"}"), "") == 0);
    return 0;
}

TEST(every_flaw_refuses_the_plan)
{
    scoped_desk;

    CHECK(begin(&d, NULL, 0) == 0);
    for (unsigned kind = 0; kind < PLAN_FLAW_COUNT_; kind++)
        CHECK(plan_add_flaw(&d.plan, (enum plan_flaw_kind)kind, "x", &d.err) == 0);
    (void)judge(&d, NULL);
    CHECK(d.findings.refused == PLAN_FLAW_COUNT_);
    CHECK(strncmp(d.rules, "flaw flaw", 9) == 0);
    return 0;
}

TEST(places_that_programs_obey_are_known_in_any_case_and_depth)
{
    static const char *const sensitive[] = {
        ".git",
        ".git/hooks",
        ".git/hooks/pre-commit",
        ".GIT/Hooks/x",
        "a/.git/config",
        ".gitmodules",
        ".bashrc",
        "home/.ZSHRC",
        ".eslintrc.js",
        ".bash_profile",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        "Jenkinsfile",
        ".vscode/tasks.json",
        ".claude/settings.json",
        "a/b/AGENTS.md",
        "CLAUDE.md",
        ".codex",
        ".envrc",
        "web/package.json",
        "setup.py",
        ".ssh/authorized_keys",
        "crontab",
        "etc2/cron.d/x",
        ".npmrc",
        ".git/modules/sub/hooks/x",
        ".config/systemd/user/a.service",
        "x.pth",
        ".husky/pre-commit",
        ".cursorrules",
        ".netrc",
        ".git/modules/a/b/c/d/hooks/x",
        ".git/modules/a/b/c/d/config",
        ".git/worktrees/w/commondir",
        ".git/worktrees/w/gitdir",
        ".hg/hgrc",
        ".jj/repo/config.toml",
        ".jj/config.toml",
        ".Rprofile",
        ".emacs",
        ".nvim.lua",
        "home/.config/nvim/init.lua",
        "tests/conftest.py",
        ".yarn/releases/yarn.cjs",
        "mise.toml",
        ".zed/tasks.json",
        ".clinerules",
        ".roo/rules/x.md",
        ".kiro/hooks/x",
        "opencode.json",
    };
    static const char *const plain[] = {
        "git",
        ".gitignore",
        ".git/objects/ab/cdef",
        ".git/index",
        "a/hooks/x",
        "Makefile",
        "src/main.c",
        "bashrc",
        "rc",
        "package.json.md",
        "config",
        ".config/x",
        "AGENTS.md.txt",
        "ssh",
        "notes/.hidden",
        ".gitconfigs",
        ".git/modules/a/objects/ab",
        ".git/worktrees/w/HEAD",
        ".jj/repo/store/x",
        ".hg/store",
        ".yarn/cache/x",
        "config.toml",
    };

    for (size_t i = 0; i < LENGTH(sensitive); i++)
        CHECK_FOR(sensitive[i], plan_sensitive(sensitive[i], false));
    for (size_t i = 0; i < LENGTH(plain); i++)
        CHECK_FOR(plain[i], !plan_sensitive(plain[i], false));
    CHECK(!plan_sensitive("a/.config", false) && plan_sensitive("a/.config", true));
    return 0;
}

TEST(sensitive_places_are_reviewed_as_the_policy_says)
{
    static const struct plan_operation one[] = {DELETE_DIR(".git"), MOVE("a/.bashrc", "b")};
    scoped_desk;

    CHECK(begin(&d, one, 2) == 0);
    CHECK(strcmp(judge(&d, NULL), "sensitive? sensitive?") == 0);
    CHECK(strcmp(judge(&d, "{\"sensitive\":\"refuse\"}"), "sensitive sensitive") == 0);
    CHECK(strcmp(judge(&d, "{\"sensitive\":\"allow\"}"), "") == 0);
    return 0;
}

TEST(a_pattern_that_is_none_stops_the_judgement)
{
    static const struct plan_operation one[] = {CREATE("a")};
    scoped_desk;
    char policy[1200] = "{\"protect\":[\"";

    CHECK(begin(&d, one, 1) == 0);
    for (int i = 0; i < 12; i++)
        strncat(policy, "{a,b}", sizeof(policy) - strlen(policy) - 1);
    strncat(policy, "\"]}", sizeof(policy) - strlen(policy) - 1);
    CHECK(strstr(judge(&d, policy), "pattern"));
    return 0;
}

/* --- where things are --- */

TEST(places_are_found_through_moves_and_deletes)
{
    static const struct plan_operation operations[] = {
        MOVE_DIR("old", "new"), MKDIR("made"),        DELETE_DIR("gone"),
        WRITE("kept"),          SYMLINK("link", "x"), MOVE("new2", "made/in"),
    };

    static const struct {
        const char *path;
        enum plan_place place;
        const char *origin;
    } places[] = {
        {"new/a/b", PLACE_BASE, "old/a/b"}, {"old/a", PLACE_GONE, NULL},
        {"old", PLACE_VACATED, "old"},      {"made/x", PLACE_NEW, NULL},
        {"gone/x", PLACE_GONE, NULL},       {"gone", PLACE_VACATED, "gone"},
        {"kept", PLACE_HELD, "kept"},       {"kept/x", PLACE_BLOCKED, NULL},
        {"link/x", PLACE_BLOCKED, NULL},    {"other/x", PLACE_BASE, "other/x"},
        {"new2", PLACE_VACATED, "new2"},    {"new.txt", PLACE_BASE, "new.txt"},
    };

    char origin[PLAN_MAX_PATH + 1];
    ssize_t by;
    scoped_desk;

    CHECK(begin(&d, operations, LENGTH(operations)) == 0);
    for (size_t i = 0; i < LENGTH(places); i++) {
        CHECK_FOR(places[i].path,
                  plan_place_of(&d.index, places[i].path, origin, &by) == places[i].place);
        CHECK_FOR(places[i].path, !places[i].origin || strcmp(origin, places[i].origin) == 0);
    }
    CHECK(plan_follow(&d.index, "old/a/b", origin) && strcmp(origin, "new/a/b") == 0);
    CHECK(plan_follow(&d.index, "new2", origin) && strcmp(origin, "made/in") == 0);
    CHECK(plan_follow(&d.index, "other", origin) && strcmp(origin, "other") == 0);
    CHECK(!plan_follow(&d.index, "gone/deep/down", origin));
    return 0;
}

/* Against the definition, taken by the letter, over random plans of few names. */
static bool follow_slowly(const struct plan *plan, const char *path, char *final)
{
    char prefix[256];

    for (size_t n = strlen(path); n > 0; n--) {
        if (path[n] != '\0' && path[n] != '/')
            continue;
        snprintf(prefix, sizeof(prefix), "%.*s", (int)n, path);
        for (size_t i = 0; i < plan->count; i++) {
            const char *base = plan_base_path(&plan->operations[i]);
            if (!base || strcmp(base, prefix) != 0)
                continue;
            snprintf(final, 256, "%s%s", plan->operations[i].path, path + n);
            return plan->operations[i].kind != PLAN_DELETE;
        }
    }
    snprintf(final, 256, "%s", path);
    return true;
}

static const char *some_path(unsigned *seed, char *room)
{
    unsigned depth = (unsigned)rand_r(seed) % 4 + 1;

    room[0] = '\0';
    for (unsigned i = 0; i < depth; i++)
        snprintf(room + strlen(room), 16, "%s%c", i ? "/" : "", "ab."[rand_r(seed) % 2]);
    return room;
}

TEST(following_agrees_with_the_definition)
{
    static char names[12][2][32];
    struct plan_operation operations[12];
    char fast[PLAN_MAX_PATH + 1];
    char slow[256];
    char path[32];
    unsigned seed = 1;

    for (int round = 0; round < 3000; round++) {
        scoped_desk;
        size_t count = (size_t)rand_r(&seed) % 6;
        for (size_t i = 0; i < count; i++) {
            some_path(&seed, names[i][0]);
            some_path(&seed, names[i][1]);
            bool moves = rand_r(&seed) % 2;
            operations[i] = moves ? (struct plan_operation)MOVE_DIR(names[i][0], names[i][1])
                                  : (struct plan_operation)DELETE_DIR(names[i][0]);
            for (size_t j = 0; j < i; j++) {
                if (strcmp(plan_base_path(&operations[j]), names[i][0]) == 0)
                    operations[i].path = operations[i].from = NULL;
            }
            if (!operations[i].path) { /* one operation for one thing */
                i--;
                count--;
            }
        }
        CHECK(begin(&d, operations, count) == 0);
        for (int i = 0; i < 20; i++) {
            some_path(&seed, path);
            bool a = plan_follow(&d.index, path, fast);
            bool b = follow_slowly(&d.plan, path, slow);
            CHECK_FOR(path, a == b && (!a || strcmp(fast, slow) == 0));
        }
    }
    return 0;
}

/* F1 63: what is too much is refused before it is held. */
TEST(more_operations_than_a_plan_may_have_are_refused)
{
    scoped_desk;

    plan_init(&d.plan);
    for (size_t i = 0; i < PLAN_MAX_OPERATIONS; i++)
        CHECK(plan_add(&d.plan, &d.err) != NULL);
    CHECK(plan_add(&d.plan, &d.err) == NULL && d.err.code == ERR_LIMIT);
    d.plan.count++;
    CHECK(plan_index_make(&d.index, &d.plan, &d.err) < 0 && d.err.code == ERR_LIMIT);
    d.plan.count = 0;
    return 0;
}
