/* SPDX-License-Identifier: Apache-2.0 */
/* Layers made by hand, as a mount in a user namespace leaves them;
 * tests/integration/plan_derived.py has real ones of both kinds. */
#include "plan_ground.h"
#include "unit.h"

#include "plan/core/tree_digest.h"

static int derive(struct ground *g, bool closing)
{
    struct plan_derivation how = {.tree = g->tree, .dir = g->dir, .closing = closing};

    plan_clear(&g->plan);
    return plan_derive(&g->plan, &how, &g->err);
}

#define MAKE(condition) CHECK_FOR("setting up", (condition) == 0)

TEST(what_is_in_the_layer_becomes_operations)
{
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(ground_write(&g, "tree/same", "same"));
    MAKE(ground_write(&g, "plan/upper/same", "same"));
    MAKE(ground_write(&g, "tree/edited", "old"));
    MAKE(ground_write(&g, "plan/upper/edited", "new"));
    MAKE(ground_write(&g, "tree/gone", "gone"));
    MAKE(ground_whiteout(&g, "plan/upper/gone"));
    MAKE(ground_whiteout(&g, "plan/upper/never"));
    MAKE(ground_write(&g, "tree/mode", "m"));
    MAKE(ground_write(&g, "plan/upper/mode", "m"));
    MAKE(chmod(ground_path(&g, "plan/upper/mode"), 0600));
    MAKE(symlink("x", ground_path(&g, "tree/link")));
    MAKE(symlink("y", ground_path(&g, "plan/upper/link")));
    MAKE(mkdir(ground_path(&g, "plan/upper/usr"), 0755));
    MAKE(mkdir(ground_path(&g, "plan/upper/new"), 0755));
    MAKE(ground_write(&g, "plan/upper/new/file", "content"));
    CHECK_FOR(g.err.msg, derive(&g, false) == 0);
    CHECK_FOR(ground_list(&g.plan),
              strcmp(ground_list(&g.plan), "write edited\ndelete gone\nsymlink link\nchmod mode\n"
                                           "mkdir new\ncreate new/file\n") == 0);
    CHECK(g.plan.bytes == 10 && g.plan.flaw_count == 0);
    ground_close(&g);
    return 0;
}

TEST(what_was_copied_and_deleted_has_moved)
{
    struct ground g;
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 5}};

    MAKE(ground_open(&g));
    MAKE(mkdir(ground_path(&g, "tree/d"), 0755));
    MAKE(mkdir(ground_path(&g, "plan/upper/e"), 0755));
    MAKE(ground_write(&g, "tree/d/x", "content of x"));
    MAKE(ground_write(&g, "plan/upper/e/x", "content of x"));
    MAKE(ground_write(&g, "tree/d/empty", ""));
    MAKE(ground_write(&g, "plan/upper/e/empty", ""));
    static const char *const copies[] = {"tree/d/x", "plan/upper/e/x", "tree/d/empty",
                                         "plan/upper/e/empty"};
    for (size_t i = 0; i < LENGTH(copies); i++)
        MAKE(utimensat(AT_FDCWD, ground_path(&g, copies[i]), times, 0));
    MAKE(ground_whiteout(&g, "plan/upper/d"));
    CHECK(derive(&g, false) == 0);
    CHECK_FOR(ground_list(&g.plan), strcmp(ground_list(&g.plan), "move e<d\n") == 0);
    CHECK(g.plan.operations[0].copied && !g.plan.operations[0].has_hash && g.plan.bytes == 0);

    /* With another time in it the directory is not quite the same: its files are. */
    MAKE(utimensat(AT_FDCWD, ground_path(&g, "plan/upper/e/x"), NULL, 0));
    CHECK(derive(&g, false) == 0);
    CHECK_FOR(ground_list(&g.plan),
              strcmp(ground_list(&g.plan), "delete d\nmkdir e\nmove "
                                           "e/empty<d/empty\nmove e/x<d/x\n") == 0);
    CHECK(g.plan.operations[0].entries == 0 && g.plan.operations[3].has_hash);
    ground_close(&g);
    return 0;
}

/* A hole costs nothing to make, and all the time that its zeros take to be hashed. */
TEST(holes_are_hashed_as_far_as_they_are_few)
{
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(ground_write(&g, "plan/upper/few", "x"));
    MAKE(truncate(ground_path(&g, "plan/upper/few"), 1 << 20));
    MAKE(ground_write(&g, "plan/upper/many", "x"));
    MAKE(truncate(ground_path(&g, "plan/upper/many"), (off_t)60 << 30));
    CHECK_FOR(g.err.msg, derive(&g, false) == 0);
    CHECK_FOR(ground_list(&g.plan), strcmp(ground_list(&g.plan), "create few\n") == 0);
    CHECK(g.plan.flaw_count == 1 && g.plan.flaws[0].kind == PLAN_FLAW_TOO_LARGE);
    ground_close(&g);
    return 0;
}

TEST(of_several_alike_the_same_name_has_moved)
{
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(ground_write(&g, "tree/a", "twins"));
    MAKE(ground_write(&g, "tree/b", "twins"));
    MAKE(ground_whiteout(&g, "plan/upper/a"));
    MAKE(ground_whiteout(&g, "plan/upper/b"));
    MAKE(mkdir(ground_path(&g, "plan/upper/n"), 0755));
    MAKE(ground_write(&g, "plan/upper/n/b", "twins"));
    MAKE(ground_write(&g, "plan/upper/n/c", "twins"));
    CHECK(derive(&g, false) == 0);
    CHECK_FOR(ground_list(&g.plan),
              strcmp(ground_list(&g.plan), "mkdir n\nmove n/b<b\nmove n/c<a\n") == 0);
    ground_close(&g);
    return 0;
}

TEST(a_closed_plan_stages_files_without_marks)
{
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(ground_write(&g, "plan/upper/f", "1"));
    if (setxattr(ground_path(&g, "plan/upper/f"), "user.overlay.origin", "", 0, 0) < 0) {
        ground_close(&g); /* no such attributes on this file system */
        return 0;
    }
    MAKE(setxattr(ground_path(&g, "plan/upper/f"), "user.mine", "1", 1, 0));
    MAKE(chmod(ground_path(&g, "plan/upper/f"), 0444));
    CHECK(derive(&g, false) == 0);
    CHECK(getxattr(ground_path(&g, "plan/upper/f"), "user.overlay.origin", NULL, 0) == 0);
    CHECK(derive(&g, true) == 0);
    CHECK(getxattr(ground_path(&g, "plan/upper/f"), "user.overlay.origin", NULL, 0) < 0);
    CHECK(getxattr(ground_path(&g, "plan/upper/f"), "user.mine", NULL, 0) == 1);
    struct stat st;
    MAKE(stat(ground_path(&g, "plan/upper/f"), &st));
    CHECK((st.st_mode & 07777) == 0444);
    ground_close(&g);
    return 0;
}

TEST(what_no_plan_carries_is_a_flaw)
{
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(mkfifo(ground_path(&g, "plan/upper/pipe"), 0600));
    MAKE(ground_write(&g, "plan/upper/suid", "1"));
    MAKE(chmod(ground_path(&g, "plan/upper/suid"), 04755));
    MAKE(ground_write(&g, "plan/upper/etc", "1"));
    CHECK(derive(&g, true) == 0);
    CHECK(g.plan.flaw_count == 3);
    CHECK(g.plan.flaws[0].kind == PLAN_FLAW_RESERVED && g.plan.flaws[1].kind == PLAN_FLAW_FIFO &&
          g.plan.flaws[2].kind == PLAN_FLAW_SETID);
    CHECK_FOR(ground_list(&g.plan), strcmp(ground_list(&g.plan), "create suid\n") == 0);
    CHECK(g.plan.operations[0].mode == (S_IFREG | 0755));
    ground_close(&g);
    return 0;
}

TEST(what_a_killed_file_server_has_left_is_none)
{
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(mkdir(ground_path(&g, "plan/upper/.cache"), 0755));
    MAKE(ground_write(&g, "plan/upper/.cache/.carrel-0123456789abcdef0123456789abcdef", "half"));
    MAKE(
        mkdir(ground_path(&g, "plan/upper/.cache/.carrel-fedcba9876543210fedcba9876543210"), 0755));
    MAKE(ground_write(&g, "plan/upper/.cache/.carrel-fedcba9876543210fedcba9876543210/f", "half"));
    MAKE(ground_write(&g, "plan/upper/f", "1"));
    CHECK(derive(&g, true) == 0);
    CHECK(g.plan.flaw_count == 0);
    CHECK_FOR(ground_list(&g.plan), strcmp(ground_list(&g.plan), "create f\n") == 0);
    MAKE(ground_write(&g, "plan/upper/.cache/other", "1"));
    CHECK(derive(&g, true) == 0);
    CHECK(g.plan.flaw_count == 1 && g.plan.flaws[0].kind == PLAN_FLAW_RESERVED);
    ground_close(&g);
    return 0;
}

static bool tells_births(const struct ground *g)
{
    struct statx s;

    return statx(g->dir, "upper", 0, STATX_BTIME, &s) == 0 && (s.stx_mask & STATX_BTIME);
}

TEST(what_the_owner_changes_in_an_open_plan_is_no_longer_known)
{
    static const char *const changed[] = {"both", "d", "kept", "link", "mode", "old"};
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(ground_later());
    static const char *const files[] = {"both", "only", "kept", "mode", "old", "out"};
    for (size_t i = 0; i < LENGTH(files); i++) {
        char path[32];
        snprintf(path, sizeof(path), "tree/%s", files[i]);
        MAKE(ground_write(&g, path, files[i]));
    }
    MAKE(symlink("x", ground_path(&g, "tree/link")));
    static const char *const directories[] = {"tree/d", "tree/e", "tree/m", "plan/upper/m"};
    for (size_t i = 0; i < LENGTH(directories); i++)
        MAKE(mkdir(ground_path(&g, directories[i]), 0755));
    MAKE(ground_write(&g, "tree/d/x", "1"));
    MAKE(ground_write(&g, "tree/e/x", "1"));

    MAKE(ground_later());
    MAKE(ground_write(&g, "plan/upper/both", "mine"));
    MAKE(ground_write(&g, "plan/upper/only", "mine"));
    MAKE(ground_write(&g, "plan/upper/mode", "mode"));
    MAKE(chmod(ground_path(&g, "plan/upper/mode"), 0600));
    MAKE(chmod(ground_path(&g, "plan/upper/m"), 0700));
    MAKE(symlink("y", ground_path(&g, "plan/upper/link")));
    static const char *const gone[] = {"kept", "old", "out", "d", "e"};
    for (size_t i = 0; i < LENGTH(gone); i++) {
        char path[32];
        snprintf(path, sizeof(path), "plan/upper/%s", gone[i]);
        MAKE(ground_whiteout(&g, path));
    }
    MAKE(ground_write(&g, "plan/upper/new", "old"));

    MAKE(ground_later());
    MAKE(ground_write(&g, "tree/both", "theirs"));
    MAKE(ground_write(&g, "tree/kept", "theirs"));
    MAKE(chmod(ground_path(&g, "tree/mode"), 0640));
    MAKE(chmod(ground_path(&g, "tree/old"), 0600));
    MAKE(unlink(ground_path(&g, "tree/link")));
    MAKE(symlink("z", ground_path(&g, "tree/link")));
    MAKE(ground_write(&g, "tree/d/new", "theirs"));
    MAKE(ground_write(&g, "tree/m/new", "theirs"));
    CHECK(derive(&g, false) == 0);
    CHECK_FOR(ground_list(&g.plan),
              strcmp(ground_list(&g.plan),
                     "write both\ndelete d\ndelete e\ndelete kept\nsymlink link\nchmod m\n"
                     "chmod mode\nmove new<old\nwrite only\ndelete out\n") == 0);
    for (size_t i = 0; i < g.plan.count && tells_births(&g); i++) {
        const struct plan_operation *o = &g.plan.operations[i];
        bool wanted = false;
        for (size_t k = 0; k < LENGTH(changed); k++)
            wanted = wanted || strcmp(plan_base_path(o), changed[k]) == 0;
        CHECK_FOR(o->path, wanted == (o->base.ino == PLAN_FORGOTTEN));
    }
    ground_close(&g);
    return 0;
}

TEST(a_base_with_a_symlink_in_the_way_is_not_followed)
{
    struct ground g;

    MAKE(ground_open(&g));
    MAKE(symlink("/etc", ground_path(&g, "tree/d")));
    MAKE(mkdir(ground_path(&g, "plan/upper/d"), 0755));
    MAKE(ground_write(&g, "plan/upper/d/passwd", "mine"));
    CHECK(derive(&g, true) == 0);
    CHECK_FOR(ground_list(&g.plan),
              strcmp(ground_list(&g.plan), "mkdir d\ndelete d\ncreate d/passwd\n") == 0);
    ground_close(&g);
    return 0;
}

TEST(a_layer_deeper_than_paths_are_is_refused)
{
    struct ground g;
    int at = -1;

    MAKE(ground_open(&g));
    at = open(ground_path(&g, "plan/upper"), O_PATH | O_CLOEXEC);
    for (int i = 0; i < 2100 && at >= 0; i++) {
        int next = mkdirat(at, "d", 0755) < 0 ? -1 : openat(at, "d", O_PATH | O_CLOEXEC);
        (void)close(at);
        at = next;
    }
    CHECK(at >= 0);
    (void)close(at);
    CHECK(derive(&g, false) < 0 && g.err.code == ERR_LIMIT);
    for (int i = 0; i < 2100; i++) {
        /* From the top: each is put in the place of its parent. */
        MAKE(rename(ground_path(&g, "plan/upper/d"), ground_path(&g, "plan/old")));
        (void)rename(ground_path(&g, "plan/old/d"), ground_path(&g, "plan/upper/d"));
        MAKE(rmdir(ground_path(&g, "plan/old")));
    }
    ground_close(&g);
    return 0;
}

TEST(a_digest_sees_what_changed_below_and_leaves_out_what_is_named)
{
    struct ground g;
    struct tree_digest before;
    struct tree_digest after;
    struct plan_operation *o;

    MAKE(ground_open(&g));
    MAKE(mkdir(ground_path(&g, "tree/d"), 0755));
    MAKE(mkdir(ground_path(&g, "tree/d/e"), 0755));
    MAKE(ground_write(&g, "tree/d/e/f", "123"));
    MAKE(ground_write(&g, "tree/d/g", "4567"));
    CHECK(tree_digest(&before, g.tree, "d", NULL, &g.err) == 0);
    CHECK(before.entries == 3 && before.bytes == 7);
    MAKE(ground_write(&g, "tree/d/e/f", "124"));
    CHECK(tree_digest(&after, g.tree, "d", NULL, &g.err) == 0);
    CHECK(memcmp(before.below, after.below, PLAN_HASH) != 0);
    plan_init(&g.plan);
    CHECK((o = plan_add(&g.plan, &g.err)) != NULL);
    *o = (struct plan_operation){.kind = PLAN_MOVE, .path = "x", .from = "d/e", .has_base = true};
    CHECK(tree_digest(&before, g.tree, "d", &g.plan, &g.err) == 0);
    CHECK(before.entries == 1 && before.bytes == 4);
    MAKE(rename(ground_path(&g, "tree/d/e"), ground_path(&g, "tree/x")));
    CHECK(tree_digest(&after, g.tree, "d", NULL, &g.err) == 0);
    CHECK(memcmp(before.below, after.below, PLAN_HASH) == 0);
    ground_close(&g);
    return 0;
}
