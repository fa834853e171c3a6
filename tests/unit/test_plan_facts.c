/* SPDX-License-Identifier: Apache-2.0 */
/* plan/facts, plan/validations, plan/diff: plans against a real tree, which is changed under them.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/digest.h"
#include "plan/core/content.h"
#include "plan/core/tree_digest.h"
#include "plan/core/validations.h"
#include "plan/core/verify.h"
#include "plan/verbs/confine.h"
#include "plan/verbs/diff.h"
#include "policy/policy.h"

struct desk {
    char folder[256]; /* with tree/ and plan/upper/ */
    int tree;
    int dir;
    struct plan plan;
    struct plan_index index;
    struct plan_facts facts;
    struct policy policy;
    struct arena arena;
    struct plan_findings findings;
    struct err err;
    char rules[512];
    char message[PLAN_MESSAGE];
};

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void desk_clear(struct desk *d)
{
    plan_index_clear(&d->index);
    plan_facts_clear(&d->facts);
    plan_clear(&d->plan);
    arena_clear(&d->arena);
    (void)close(d->tree);
    (void)close(d->dir);
    (void)nftw(d->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *at(const struct desk *d, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % LENGTH(paths)];

    snprintf(path, sizeof(paths[0]), "%s/%s", d->folder, name);
    return path;
}

static int put(const struct desk *d, const char *name, const char *content)
{
    int fd = open(at(d, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ssize_t n = fd < 0 ? -1 : write(fd, content, strlen(content));

    return fd < 0 || close(fd) < 0 || n != (ssize_t)strlen(content) ? -1 : 0;
}

static int desk_open(struct desk *d)
{
    const char *folder = getenv("TMPDIR");

    *d = (struct desk){.arena = {.max = 1 << 20}, .tree = -1, .dir = -1};
    plan_init(&d->plan);
    snprintf(d->folder, sizeof(d->folder), "%s/carrel-unit.XXXXXX", folder ? folder : "/tmp");
    if (!mkdtemp(d->folder) || mkdir(at(d, "tree"), 0755) < 0 || mkdir(at(d, "plan"), 0755) < 0 ||
        mkdir(at(d, "plan/upper"), 0755) < 0 || mkdir(at(d, "tree/dir"), 0755) < 0 ||
        mkdir(at(d, "tree/dir/sub"), 0755) < 0 || put(d, "tree/file", "old\n") < 0 ||
        put(d, "tree/dir/a", "a") < 0 || put(d, "tree/dir/sub/b", "b") < 0)
        return -1;
    d->tree = open(at(d, "tree"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    d->dir = open(at(d, "plan"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return d->tree < 0 || d->dir < 0 ? -1 : 0;
}

#define DESK                                                                                       \
    __attribute__((cleanup(desk_clear))) struct desk d;                                            \
    CHECK(desk_open(&d) == 0)

static struct plan_operation *add(struct desk *d, enum plan_kind kind, const char *from,
                                  const char *path)
{
    struct plan_operation *operation = plan_add(&d->plan, &d->err);
    const char *base = from ? from : path;
    bool makes = kind == PLAN_MKDIR || kind == PLAN_CREATE || kind == PLAN_SYMLINK;
    char whole[512];
    struct stat st;

    if (!operation)
        abort();
    *operation = (struct plan_operation){.kind = kind, .path = path, .from = from};
    operation->mode = kind == PLAN_MKDIR     ? S_IFDIR | 0755
                      : kind == PLAN_SYMLINK ? S_IFLNK | 0777
                                             : S_IFREG | 0644;
    snprintf(whole, sizeof(whole), "%s/tree/%s", d->folder, base);
    if (!makes && lstat(whole, &st) == 0) {
        operation->has_base = true;
        plan_identify(&operation->base, &st);
        operation->mode = st.st_mode & (S_IFMT | 0777);
    }
    return operation;
}

static void add_content(struct desk *d, const char *path, const char *content)
{
    struct plan_operation *operation = add(d, PLAN_CREATE, NULL, path);
    char name[512];

    snprintf(name, sizeof(name), "plan/upper/%s", path);
    if (put(d, name, content) < 0)
        abort();
    operation->has_hash = true;
    operation->size = strlen(content);
    (void)digest_bytes(content, operation->size, operation->hash);
}

static void add_delete_of_dir(struct desk *d, const char *path)
{
    struct plan_operation *operation = add(d, PLAN_DELETE, NULL, path);
    struct tree_digest digest;

    if (tree_digest(&digest, d->tree, path, &d->plan, &d->err) < 0)
        abort();
    operation->entries = digest.entries;
    memcpy(operation->below, digest.below, PLAN_HASH);
}

static void take(void *context, const struct plan_finding *finding)
{
    struct desk *d = context;
    size_t n = strlen(d->rules);

    snprintf(d->rules + n, sizeof(d->rules) - n, "%s%s%s", n ? " " : "", finding->rule,
             finding->severity == PLAN_REVIEW ? "?" : "");
    memcpy(d->message, finding->message, sizeof(d->message));
}

static const char *judge(struct desk *d, const char *policy, const char *validations)
{
    const struct plan_sources from = {.tree = d->tree, .dir = d->dir};
    char text[1024];

    plan_index_clear(&d->index);
    plan_facts_clear(&d->facts);
    snprintf(text, sizeof(text), "{\"plan\":%s}", policy ? policy : "{}");
    d->findings = (struct plan_findings){.take = take, .context = d};
    d->rules[0] = '\0';
    if (policy_parse(&d->policy, &d->arena, text, strlen(text), &d->err) < 0 ||
        plan_put_in_order(&d->plan, &d->err) < 0 ||
        plan_index_make(&d->index, &d->plan, &d->err) < 0 ||
        plan_facts_gather(&d->facts, &d->index, &d->policy.plan, &from, &d->err) < 0 ||
        plan_judge(&d->findings, &d->index, &d->policy.plan, &d->facts, &d->err) < 0 ||
        validations_run(&d->findings, &d->index, &d->facts, d->tree, validations, &d->err) < 0)
        return d->err.msg;
    return d->rules;
}

#define FOUND(policy, expected) CHECK_FOR(d.rules, strcmp(judge(&d, policy, NULL), expected) == 0)

TEST(a_plan_of_nothing_is_clean)
{
    DESK;

    FOUND(NULL, "");
    return 0;
}

TEST(what_is_as_noted_is_clean)
{
    DESK;

    (void)add(&d, PLAN_MOVE, "file", "dir/file");
    (void)add(&d, PLAN_MKDIR, NULL, "new");
    add_delete_of_dir(&d, "dir/sub");
    FOUND(NULL, "");
    return 0;
}

/* F1 62: the base changes between plan and judgement, in each of the ways it can. */
TEST(a_base_that_changed_is_stale)
{
    static const char *const ways[] = {"write", "touch", "replace", "remove",
                                       "chmod", "fifo",  "symlink"};

    for (size_t i = 0; i < LENGTH(ways); i++) {
        DESK;
        (void)add(&d, PLAN_DELETE, NULL, "file");
        FOUND(NULL, "");
        struct timeval times[2] = {{1, 0}, {1, 0}};
        if (i == 0)
            CHECK(put(&d, "tree/file", "other\n") == 0);
        if (i == 1)
            CHECK(utimes(at(&d, "tree/file"), times) == 0);
        if (i == 2)
            CHECK(put(&d, "tree/twin", "old\n") == 0 &&
                  rename(at(&d, "tree/twin"), at(&d, "tree/file")) == 0);
        if (i == 4)
            CHECK(chmod(at(&d, "tree/file"), 0600) == 0);
        if (i == 3 || i > 4)
            CHECK(unlink(at(&d, "tree/file")) == 0);
        if (i == 5)
            CHECK(mkfifo(at(&d, "tree/file"), 0600) == 0); /* opened, it would wait for ever */
        if (i == 6)
            CHECK(symlink("/etc/passwd", at(&d, "tree/file")) == 0);
        CHECK_FOR(ways[i], strcmp(judge(&d, NULL, NULL), "stale") == 0);
    }
    return 0;
}

TEST(a_directory_that_goes_is_stale_when_something_came_into_it)
{
    DESK;

    add_delete_of_dir(&d, "dir");
    FOUND(NULL, "");
    CHECK(put(&d, "tree/dir/sub/news", "x") == 0);
    FOUND(NULL, "stale");
    CHECK(unlink(at(&d, "tree/dir/sub/news")) == 0 && put(&d, "tree/dir/a", "changed") == 0);
    FOUND(NULL, "stale");
    return 0;
}

/* F1 60, from the side of the base: a directory on the way becomes a link. */
TEST(a_link_on_the_way_is_never_followed)
{
    DESK;

    (void)add(&d, PLAN_DELETE, NULL, "dir/a");
    add_content(&d, "fresh", "x");
    d.plan.operations[1].path = "dir/fresh";
    CHECK(mkdir(at(&d, "plan/upper/dir"), 0755) == 0);
    CHECK(rename(at(&d, "plan/upper/fresh"), at(&d, "plan/upper/dir/fresh")) == 0);
    FOUND(NULL, "");
    CHECK(rename(at(&d, "tree/dir"), at(&d, "tree/real")) == 0);
    CHECK(symlink("real", at(&d, "tree/dir")) == 0);
    FOUND(NULL, "stale parent");
    return 0;
}

TEST(a_place_that_is_taken_is_occupied_by_whatever_is_there)
{
    DESK;

    (void)add(&d, PLAN_MKDIR, NULL, "new");
    FOUND(NULL, "");
    CHECK(mkfifo(at(&d, "tree/new"), 0600) == 0);
    FOUND(NULL, "occupied");
    CHECK(unlink(at(&d, "tree/new")) == 0 && symlink("x", at(&d, "tree/new")) == 0);
    FOUND(NULL, "occupied");
    return 0;
}

TEST(names_beside_it_that_differ_in_case_are_found_unless_they_leave)
{
    DESK;

    add_content(&d, "FILE", "x");
    FOUND(NULL, "case_twins");
    FOUND("{\"case_twins\":\"review\"}", "case_twins?");
    FOUND("{\"case_twins\":\"allow\"}", "");
    (void)add(&d, PLAN_MOVE, "file", "elsewhere");
    FOUND(NULL, "");
    return 0;
}

TEST(a_directory_with_something_protected_in_it_stays)
{
    DESK;

    add_delete_of_dir(&d, "dir");
    FOUND("{\"protect\":[\"b\"]}", "protect");
    FOUND("{\"protect\":[\"dir/sub\"]}", "protect");
    FOUND("{\"protect\":[\"c\"]}", "");
    d.plan.count = 0;
    (void)add(&d, PLAN_MOVE, "dir", "moved");
    FOUND("{\"protect\":[\"dir/sub/b\"]}", "protect");
    FOUND("{\"protect\":[\"moved/a\"]}", "protect");
    FOUND("{\"protect\":[\"other/a\"]}", "");
    return 0;
}

TEST(content_is_looked_at_where_the_plan_keeps_it)
{
    DESK;

    add_content(&d, "x",
                "\x7f"
                "ELF...");
    add_content(&d, "y", "#!/bin/sh\n");
    FOUND(NULL, "");
    FOUND("{\"types\":{\"deny\":[\"elf\"]}}", "types");
    FOUND("{\"types\":{\"deny\":[\"elf\",\"script\"]}}", "types types");
    FOUND("{\"types\":{\"deny\":[\"pe\"]}}", "");
    CHECK(put(&d, "plan/upper/y", "longer than before") == 0);
    FOUND(NULL, "content");
    CHECK(unlink(at(&d, "plan/upper/y")) == 0 && mkfifo(at(&d, "plan/upper/y"), 0600) == 0);
    FOUND("{\"types\":{\"deny\":[\"elf\"]}}", "types content");
    return 0;
}

TEST(names_of_any_bytes_are_judged)
{
    DESK;

    add_content(&d, "\xff\x01\n", "x");
    FOUND(NULL, "");
    CHECK(put(&d, "tree/\xff\x01\n", "x") == 0);
    FOUND(NULL, "occupied");
    return 0;
}

TEST(a_way_of_too_many_links_is_not_known_to_stay_inside)
{
    char name[32];
    char next[32];
    DESK;

    for (int i = 0; i < 41; i++) {
        snprintf(name, sizeof(name), "tree/l%d", i);
        snprintf(next, sizeof(next), "l%d", i + 1);
        CHECK(symlink(i == 40 ? "file" : next, at(&d, name)) == 0);
    }
    add(&d, PLAN_SYMLINK, NULL, "new")->target = "l1";
    FOUND(NULL, "");
    d.plan.operations[0].target = "l0";
    FOUND(NULL, "link_out?");
    CHECK_FOR(d.message, strstr(d.message, "too long to follow"));
    return 0;
}

TEST(links_in_a_moved_directory_are_followed_from_where_they_come_to)
{
    DESK;

    CHECK(symlink("../../file", at(&d, "tree/dir/sub/l")) == 0);
    struct plan_operation *move = add(&d, PLAN_MOVE, "dir/sub", "dir/moved");
    FOUND(NULL, "");
    move->path = "moved";
    FOUND(NULL, "link_out?");
    CHECK_FOR(d.message, strstr(d.message, "'dir/sub/l' in it"));
    FOUND("{\"sensitive\":\"allow\"}", "link_out?");
    CHECK(symlink("x", at(&d, "tree/dir/sub/.envrc")) == 0);
    d.plan.count = 0;
    (void)add(&d, PLAN_MOVE, "dir/sub", "moved");
    FOUND(NULL, "sensitive? link_out?");
    d.plan.count = 0;
    (void)add(&d, PLAN_MOVE, "dir/sub", "moved");
    (void)add(&d, PLAN_DELETE, NULL, "dir/sub/l");
    FOUND("{\"sensitive\":\"allow\"}", "");
    return 0;
}

/* --- the process --- */

/* By errors that the kernel itself would not give: it looks at the arguments only after the filter.
 */
static bool is_filtered(void)
{
    if (ioctl(-1, TCGETS, NULL) != -1 || errno != EPERM)
        return false;
    if (syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, 0, 0, 0) != -1 || errno != EPERM)
        return false;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid > 0 && waitpid(pid, NULL, 0) == pid;
}

TEST(who_runs_diff_makes_processes_and_no_namespaces)
{
    bool is_within;
    int status;
    DESK;

    pid_t pid = fork();
    if (pid == 0)
        _exit(plan_confine(PLAN_CONFINED_DIFF, &(struct plan_within){d.tree, d.dir, {-1, -1}},
                           &is_within, &d.err) < 0
                  ? 2
              : is_filtered() ? 0
                              : 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}

/* --- validations --- */

/* The plan: file -> dir/file, dir/sub deleted, new/x ("x") made. */
static const struct {
    const char *text;
    bool holds;
} validations[] = {
    {"{\"check\":\"exists\",\"path\":\"file\"}", true},
    {"{\"check\":\"exists\",\"path\":\"/file\",\"when\":\"before\"}", true},
    {"{\"check\":\"exists\",\"path\":\"file\",\"when\":\"after\"}", false},
    {"{\"check\":\"exists\",\"path\":\"dir/file\",\"when\":\"after\"}", true},
    {"{\"check\":\"exists\",\"path\":\"dir/a\",\"when\":\"after\"}", true},
    {"{\"check\":\"exists\",\"path\":\"dir/sub/b\"}", true},
    {"{\"check\":\"exists\",\"path\":\"dir/sub/b\",\"when\":\"after\"}", false},
    {"{\"check\":\"exists\",\"path\":\"dir\",\"type\":\"directory\"}", true},
    {"{\"check\":\"exists\",\"path\":\"dir\",\"type\":\"file\"}", false},
    {"{\"check\":\"exists\",\"path\":\"new\",\"type\":\"directory\",\"when\":\"after\"}", true},
    {"{\"check\":\"absent\",\"path\":\"new\"}", true},
    {"{\"check\":\"absent\",\"path\":\"new\",\"when\":\"after\"}", false},
    {"{\"check\":\"absent\",\"path\":\"file\",\"when\":\"after\"}", true},
    {"{\"check\":\"absent\",\"path\":\"file/below\"}", true},
    {"{\"check\":\"hash\",\"path\":\"dir/a\",\"sha256\":"
     "\"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\"}",
     true},
    {"{\"check\":\"hash\",\"path\":\"dir/a\",\"when\":\"after\",\"sha256\":"
     "\"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\"}",
     true},
    {"{\"check\":\"hash\",\"path\":\"new/x\",\"when\":\"after\",\"sha256\":"
     "\"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"}",
     true},
    {"{\"check\":\"hash\",\"path\":\"dir/file\",\"when\":\"after\",\"sha256\":"
     "\"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"}",
     false},
    {"{\"check\":\"hash\",\"path\":\"dir\",\"sha256\":"
     "\"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"}",
     false},
    {"{\"check\":\"count\",\"path\":\"**\",\"count\":3}", true},
    {"{\"check\":\"count\",\"path\":\"**\",\"count\":3,\"when\":\"after\"}", true},
    {"{\"check\":\"count\",\"path\":\"dir\",\"count\":2}", true},
    {"{\"check\":\"count\",\"path\":\"dir\",\"min\":2,\"max\":2,\"when\":\"after\"}", true},
    {"{\"check\":\"count\",\"path\":\"dir/sub\",\"max\":0,\"when\":\"after\"}", true},
    {"{\"check\":\"count\",\"path\":\"dir/sub\",\"max\":0}", false},
    {"{\"check\":\"count\",\"path\":\"new/*\",\"min\":1}", false},
    {"{\"check\":\"count\",\"path\":\"new/*\",\"min\":1,\"when\":\"after\"}", true},
    {"{\"check\":\"free_space\",\"bytes\":1}", true},
    {"{\"check\":\"free_space\",\"bytes\":9000000000000000000}", false},
};

TEST(validations_hold_or_are_found)
{
    char text[512];
    DESK;

    (void)add(&d, PLAN_MOVE, "file", "dir/file");
    add_delete_of_dir(&d, "dir/sub");
    (void)add(&d, PLAN_MKDIR, NULL, "new");
    CHECK(mkdir(at(&d, "plan/upper/new"), 0755) == 0);
    add_content(&d, "new/x", "x");
    for (size_t i = 0; i < LENGTH(validations); i++) {
        snprintf(text, sizeof(text), "[%s]", validations[i].text);
        const char *rules = judge(&d, NULL, text);
        CHECK_FOR(text, strcmp(rules, validations[i].holds ? "" : "validation") == 0);
        CHECK_FOR(text, validations[i].holds || strstr(d.message, "does not hold"));
    }
    return 0;
}

TEST(validations_that_are_not_understood_in_full_are_refused)
{
    static const char *const texts[] = {
        "{}",
        "[1]",
        "[{}]",
        "[{\"check\":\"exists\"}]",
        "[{\"check\":\"is\",\"path\":\"a\"}]",
        "[{\"check\":\"exists\",\"path\":\"a\",\"more\":1}]",
        "[{\"check\":\"exists\",\"path\":\"../a\"}]",
        "[{\"check\":\"exists\",\"path\":\"\"}]",
        "[{\"check\":\"exists\",\"path\":\"a\",\"type\":\"fifo\"}]",
        "[{\"check\":\"exists\",\"path\":\"a\",\"when\":\"later\"}]",
        "[{\"check\":\"absent\",\"path\":\"a\",\"type\":\"file\"}]",
        "[{\"check\":\"absent\",\"path\":\"a\",\"sha256\":\"00\"}]",
        "[{\"check\":\"hash\",\"path\":\"a\"}]",
        "[{\"check\":\"hash\",\"path\":\"a\",\"sha256\":\"00\"}]",
        "[{\"check\":\"count\",\"path\":\"a\"}]",
        "[{\"check\":\"count\",\"path\":\"a\",\"count\":1,\"min\":1}]",
        "[{\"check\":\"count\",\"path\":\"a\",\"count\":-5}]",
        "[{\"check\":\"count\",\"path\":\"a\",\"count\":1.5}]",
        "[{\"check\":\"count\",\"path\":\"*/..\",\"count\":1}]",
        "[{\"check\":\"free_space\"}]",
        "[{\"check\":\"free_space\",\"bytes\":0}]",
        "[{\"check\":\"free_space\",\"bytes\":1,\"path\":\"a\"}]",
        "[",
    };
    DESK;

    for (size_t i = 0; i < LENGTH(texts); i++) {
        d.err = (struct err){0};
        (void)judge(&d, NULL, texts[i]);
        CHECK_FOR(texts[i], d.err.code == ERR_INVALID);
    }
    return 0;
}

/* --- differences --- */

static const char *differences(const char *old, const char *new, struct buf *b, struct err *err)
{
    struct diff_side sides[2] = {{"a/x", old, strlen(old)}, {"b/x", new, strlen(new)}};

    buf_clear(b);
    buf_init(b, 1 << 20);
    return diff_texts(b, &sides[0], &sides[1], err) < 0 ? err->msg : buf_done(b) < 0 ? "?" : b->p;
}

TEST(texts_are_compared_line_by_line)
{
    scoped_buf struct buf b = {0};
    struct err err = {0};

    CHECK(strcmp(differences("a\nb\n", "a\nc\n", &b, &err),
                 "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n") == 0);
    CHECK(strcmp(differences("", "a\nb", &b, &err),
                 "--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n") == 0);
    CHECK(strcmp(differences("a\n", "", &b, &err), "--- a/x\n+++ b/x\n@@ -1,1 +0,0 @@\n-a\n") == 0);
    CHECK(strcmp(differences("same\n", "same\n", &b, &err), "") == 0);
    return 0;
}

TEST(differences_that_do_not_fit_are_refused_in_words)
{
    struct diff_side sides[2] = {{"a", NULL, 1 << 20}, {"b", NULL, 1 << 20}};
    char *text = malloc(1 << 20);
    scoped_buf struct buf b;
    struct err err = {0};

    CHECK(text != NULL);
    memset(text, 'x', 1 << 20);
    sides[0].bytes = text;
    sides[1].bytes = text;
    sides[1].n--;
    buf_init(&b, 1000);
    int r = diff_texts(&b, &sides[0], &sides[1], &err);
    free(text);
    CHECK(r < 0 && err.code == ERR_LIMIT);
    return 0;
}
