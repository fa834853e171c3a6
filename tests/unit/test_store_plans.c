/* SPDX-License-Identifier: Apache-2.0 */
/* store/: templates, plans and commands: what is made of workspaces, and done in them. */
#include "store_scene.h"

/* --- templates --- */

static bool note_template(void *context, const struct store_template *t)
{
    size_t used = strlen(list);

    (void)context;
    snprintf(list + used, sizeof(list) - used, "%s%s=%s", used ? " " : "", t->name, t->state);
    return true;
}

static const char *templates(bool unfinished)
{
    new_list();
    return store_templates(store, unfinished, NULL, 100, note_template, NULL, &err) < 0 ? err.msg
                                                                                        : list;
}

TEST(a_workspace_becomes_a_template_in_one_step)
{
    struct store_template t;
    struct arena arena;

    arena_init(&arena, 1 << 20);
    CHECK(new_store() == 0 && add_workspace("build", "alice") == 0);
    CHECK(add_template("t1", "office", "build") == 0);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 0);
    CHECK(strcmp(templates(false), "") == 0 && strcmp(templates(true), "office=freezing") == 0);
    CHECK(add_on("early", "t1") < 0 && err.code == ERR_NOT_FOUND);
    CHECK(store_template_removing(store, "t1", &err) == 0);
    CHECK(make_ready("t1", "office", "build") == 0);
    CHECK(make_ready("t1", "office", "build") < 0 && err.code == ERR_CONFLICT);
    CHECK(number_of("SELECT count(*) FROM workspaces") == 0);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 1);
    CHECK(strcmp(t.id, "t1") == 0 && t.bytes == 4096 && t.files == 7 && t.created_ms == 5);
    CHECK(strcmp(t.state, "ready") == 0 && strcmp(t.owner, "alice") == 0 && t.share_cache);
    CHECK(reopen() == 0 && strcmp(templates(false), "office=ready") == 0);
    arena_clear(&arena);
    return 0;
}

TEST(a_templates_name_is_of_one_build_at_a_time)
{
    struct store_workspace w = {.id = "b1", .trash = "5", .deleted_ms = 5};
    struct store_workspace rows[4];
    struct store_template t;
    struct arena arena;

    arena_init(&arena, 1 << 20);
    CHECK(new_store() == 0 && add_workspace("plain", "alice") == 0);
    CHECK(add_build("b1", "office") == 0 && add_build("other", "lab") == 0);
    CHECK(add_build("b2", "office") < 0 && err.code == ERR_CONFLICT);
    CHECK(store_build_of(store, &arena, "office", &rows[0], &err) == 1);
    CHECK(strcmp(rows[0].id, "b1") == 0 && strcmp(rows[0].builds, "office") == 0);
    CHECK(store_build_of(store, &arena, "", &rows[0], &err) == 0);
    CHECK(store_builds(store, &arena, rows, 4, &err) == 2 && strcmp(rows[0].id, "other") == 0);
    /* Frozen is the one that builds it, and one of a name at a time. */
    CHECK(add_template("t1", "office", "plain") < 0 && err.code == ERR_CONFLICT);
    CHECK(add_template("t1", "office", "b1") == 0);
    CHECK(add_template("t2", "office", "b1") < 0 && err.code == ERR_CONFLICT);
    CHECK(store_template_freezing(store, &arena, "office", &t, &err) == 1);
    CHECK(store_template_frozen(store, &arena, "b1", &t, &err) == 1 && strcmp(t.id, "t1") == 0);
    CHECK(store_template_frozen(store, &arena, "plain", &t, &err) == 0);
    CHECK(store_template_remove(store, "t1", &err) == 0);
    /* In the trash it has none, nor when it is back. */
    CHECK(store_workspace_move(store, &w, 0, &err) == 0 && add_build("b2", "office") == 0);
    w.deleted_ms = 0;
    w.trash = "";
    CHECK(store_workspace_move(store, &w, 5, &err) == 0);
    CHECK(store_build_of(store, &arena, "office", &rows[0], &err) == 1 &&
          !strcmp(rows[0].id, "b2"));
    CHECK(add_template("t3", "office", "b2") == 0 && make_ready("t3", "office", "b2") == 0);
    CHECK(store_build_of(store, &arena, "office", &rows[0], &err) == 0);
    arena_clear(&arena);
    return 0;
}

TEST(a_template_goes_when_nobody_uses_it_and_a_name_means_the_newest)
{
    struct store_template t;
    struct arena arena;
    uint64_t users = 9;
    const char *names[2];

    arena_init(&arena, 1 << 20);
    CHECK(new_store() == 0);
    CHECK(add_template("t1", "office", "b1") == 0 && make_ready("t1", "office", "b1") == 0);
    CHECK(add_on("w1", "t1") == 0 && add_on("w2", "t1") == 0 && add_on("w3", "t1") == 0);
    CHECK(add_on("none", "tx") < 0 && err.code == ERR_NOT_FOUND);
    CHECK(add_on("plain", "") == 0 && add_on("w1", "") < 0 && err.code == ERR_CONFLICT);
    CHECK(store_template_users(store, "t1", NULL, &users, &err) == 0 && users == 3);
    CHECK(store_template_users(store, "t1", "bob", &users, &err) == 0 && users == 0);
    CHECK(store_template_user_names(store, &arena, "t1", names, 2, &err) == 2);
    CHECK(strcmp(names[0], "w1") == 0 && strcmp(names[1], "w2") == 0);
    CHECK(store_template_removing(store, "t1", &err) == 0);
    CHECK(add_template("t2", "office", "b2") == 0 && make_ready("t2", "office", "b2") == 0);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 1 && !strcmp(t.id, "t2"));
    CHECK(strcmp(templates(false), "office=ready") == 0);
    CHECK(strcmp(templates(true), "office=retired") == 0);
    CHECK(store_template_remove(store, "t2", &err) == 0); /* it can be used: it stays */
    CHECK(store_template_get(store, &arena, "t2", &t, &err) == 1);
    CHECK(run_sql("DELETE FROM workspaces WHERE template = 't1'"));
    CHECK(store_template_removing(store, "t1", &err) == 1);
    CHECK(add_on("late", "t1") < 0 && err.code == ERR_NOT_FOUND);
    CHECK(store_template_remove(store, "t1", &err) == 0);
    CHECK(store_template_get(store, &arena, "t1", &t, &err) == 0);
    CHECK(store_template_removing(store, "t2", &err) == 1);
    CHECK(store_template_named(store, &arena, "office", &t, &err) == 0);
    arena_clear(&arena);
    return 0;
}

/* --- plans --- */

enum {
    PLAN_DISK = 5000
};

static const char *plans_key = "k1";

static int add_plan(const char *id, const char *workspace, const char *state, int64_t due_ms)
{
    struct store_plan p = {.id = id,
                           .workspace = workspace,
                           .owner = "alice",
                           .state = plan_state_from_name(state),
                           .origin = "run",
                           .key = plans_key,
                           .actor = "key:k1",
                           .principal = "alice",
                           .details = "{}",
                           .bytes = PLAN_DISK - 1,
                           .disk_bytes = PLAN_DISK,
                           .created_ms = 1,
                           .due_ms = due_ms};

    return store_plan_add(store, &p, &err);
}

static char plans_seen[256];

static bool see_plan(void *context, const struct store_plan *p)
{
    (void)context;
    strncat(plans_seen, p->id, sizeof(plans_seen) - strlen(plans_seen) - 1);
    strncat(plans_seen, " ", sizeof(plans_seen) - strlen(plans_seen) - 1);
    return true;
}

static const char *plans_of(const char *workspace, const char *state, const char *before)
{
    plans_seen[0] = '\0';
    return store_plans(store, workspace, state, before, 100, see_plan, NULL, &err) < 0 ? "failed"
                                                                                       : plans_seen;
}

TEST(plans_are_added_changed_listed_and_go_with_their_workspace)
{
    struct store_plan p;
    struct arena arena;

    CHECK(new_store() == 0);
    CHECK(add_plan("p1", "nobodys", "open", 0) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    CHECK(add_plan("p1", "w1", "open", 0) == 0 && add_plan("p2", "w1", "pending", 50) == 0);
    CHECK(add_plan("p3", "w2", "queued", 20) == 0);
    CHECK(add_plan("p1", "w1", "open", 0) < 0 && err.code == ERR_CONFLICT);
    CHECK(add_plan("p4", "w1", "strange", 0) < 0 && err.code == ERR_INVALID);
    CHECK(strcmp(plans_of(NULL, NULL, NULL), "p3 p2 p1 ") == 0);
    CHECK(strcmp(plans_of("w1", NULL, NULL), "p2 p1 ") == 0);
    CHECK(strcmp(plans_of("w1", NULL, "p2"), "p1 ") == 0);
    CHECK(strcmp(plans_of(NULL, "pending", NULL), "p2 ") == 0);
    plans_seen[0] = '\0';
    CHECK(store_plans_due(store, 40, see_plan, NULL, &err) == 0 && strcmp(plans_seen, "p3 ") == 0);
    arena_init(&arena, 1 << 20);
    CHECK(store_plan_get(store, &arena, "p2", &p, &err) == 1 && p.due_ms == 50);
    p.state = PLAN_APPROVED;
    p.hash = "ab";
    CHECK(store_plan_change(store, &p, PLAN_OPEN, &err) < 0 && err.code == ERR_CONFLICT);
    CHECK(store_plan_change(store, &p, PLAN_PENDING, &err) == 0);
    CHECK(store_plan_change(store, &p, PLAN_PENDING, &err) < 0); /* once */
    CHECK(store_plan_get(store, &arena, "p2", &p, &err) == 1 && p.state == PLAN_APPROVED);
    CHECK(store_plan_undecided(store, &arena, "w1", &p, &err) == 1 && strcmp(p.id, "p2") == 0);
    CHECK(run_sql("UPDATE plans SET state = 'discarded'"));
    CHECK(store_plan_undecided(store, &arena, "w1", &p, &err) == 0);
    arena_clear(&arena);
    CHECK(run_sql("PRAGMA foreign_keys = 1; DELETE FROM workspaces WHERE id = 'w1'"));
    CHECK(strcmp(plans_of(NULL, NULL, NULL), "p3 ") == 0);
    CHECK(store_plan_remove(store, "p3", &err) == 0 && *plans_of(NULL, NULL, NULL) == '\0');
    return 0;
}

TEST(a_key_has_one_shared_plan_while_it_is_open)
{
    struct store_plan p;
    struct arena arena;

    arena_init(&arena, 1 << 20);
    CHECK(new_store() == 0 && add_workspace("w1", "alice") == 0 &&
          add_workspace("w2", "alice") == 0);
    CHECK(add_plan("p1", "w1", "open", 0) == 0); /* k1's, and kept open or not: not that one */
    CHECK(store_plan_shared(store, &arena, "w1", "k1", &p, &err) == 0);
    CHECK(store_plan_get(store, &arena, "p1", &p, &err) == 1 && !p.shared);
    p.id = "p2";
    p.keep_open = p.shared = true;
    CHECK(store_plan_add(store, &p, &err) == 0);
    CHECK(store_plan_shared(store, &arena, "w1", "k1", &p, &err) == 1 && strcmp(p.id, "p2") == 0);
    CHECK(p.shared && p.keep_open);
    CHECK(store_plan_shared(store, &arena, "w1", "k2", &p, &err) == 0);
    CHECK(store_plan_shared(store, &arena, "w2", "k1", &p, &err) == 0);
    CHECK(store_plan_get(store, &arena, "p2", &p, &err) == 1);
    CHECK(store_plan_change(store, &p, PLAN_OPEN, &err) == 0); /* it stays what it is */
    CHECK(store_plan_shared(store, &arena, "w1", "k1", &p, &err) == 1);
    p.state = PLAN_CLOSED;
    CHECK(store_plan_change(store, &p, PLAN_OPEN, &err) == 0);
    CHECK(store_plan_shared(store, &arena, "w1", "k1", &p, &err) == 0);
    arena_clear(&arena);
    return 0;
}

TEST(of_the_plans_that_are_due_each_workspace_has_its_oldest)
{
    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    CHECK(add_plan("p0", "w1", "queued", 99) == 0); /* not yet */
    CHECK(add_plan("p1", "w1", "queued", 10) == 0 && add_plan("p2", "w1", "queued", 10) == 0);
    CHECK(add_plan("p3", "w2", "queued", 20) == 0 && add_plan("p4", "w1", "queued", 5) == 0);
    plans_seen[0] = '\0';
    CHECK(store_plans_due(store, 40, see_plan, NULL, &err) == 0);
    CHECK(strcmp(plans_seen, "p1 p3 ") == 0);
    return 0;
}

static bool is_over(enum plan_state state)
{
    switch (state) {
    case PLAN_REJECTED:
    case PLAN_EXPIRED:
    case PLAN_APPLIED:
    case PLAN_UNDONE:
    case PLAN_STALE:
    case PLAN_FAILED:
        return true;
    case PLAN_NONE:
    case PLAN_OPEN:
    case PLAN_CLOSED:
    case PLAN_PENDING:
    case PLAN_APPROVED:
    case PLAN_QUEUED:
    case PLAN_APPLYING:
    case PLAN_UNDOING:
    case PLAN_DISCARDED:
    case PLAN_STATE_COUNT_:
    default:
        return false;
    }
}

/* The lists of states in SQL name every one that there is. */
TEST(a_plan_that_is_not_discarded_is_over_or_undecided)
{
    struct store_undecided n;
    char expected[32];

    for (enum plan_state state = PLAN_OPEN; state < PLAN_STATE_COUNT_; state++) {
        const char *name = plan_state_name(state);
        CHECK_FOR(name, new_store() == 0 && add_workspace("w1", "alice") == 0);
        CHECK_FOR(name, add_plan("p1", "w1", name, 0) == 0);
        snprintf(expected, sizeof(expected), "%s", is_over(state) ? "p1 " : "");
        plans_seen[0] = '\0';
        CHECK_FOR(name, store_plans_over(store, "w1", see_plan, NULL, &err) == 0);
        CHECK_FOR(name, strcmp(plans_seen, expected) == 0);
        CHECK_FOR(name, store_plans_count_undecided(store, "w1", NULL, &n, &err) == 0);
        CHECK_FOR(name, n.plans == (is_over(state) || state == PLAN_DISCARDED ? 0 : 1));
    }
    return 0;
}

TEST(plans_are_counted_and_those_without_files_forgotten)
{
    struct store_undecided n;

    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    CHECK(add_plan("p1", "w1", "applied", 0) == 0 && add_plan("p2", "w1", "discarded", 0) == 0);
    CHECK(add_plan("p3", "w1", "stale", 0) == 0 && add_plan("p4", "w1", "open", 0) == 0);
    CHECK(add_plan("p5", "w1", "queued", 1) == 0 && add_plan("p6", "w2", "open", 0) == 0);
    CHECK(store_plans_count_undecided(store, "w1", NULL, &n, &err) == 0);
    CHECK(n.plans == 2 && n.bytes == 2 * PLAN_DISK);
    plans_key = "";
    CHECK(add_plan("p7", "w1", "pending", 0) == 0);
    plans_key = "k1";
    CHECK(store_plans_count_undecided(store, "w1", NULL, &n, &err) == 0);
    CHECK(n.plans == 3 && n.bytes == 3 * PLAN_DISK);
    CHECK(store_plans_count_undecided(store, "w1", "", &n, &err) == 0);
    CHECK(n.plans == 1 && n.bytes == PLAN_DISK);
    CHECK(store_plans_count_undecided(store, "w1", "k1", &n, &err) == 0 && n.plans == 2);
    CHECK(store_plans_count_undecided(store, "w1", "k2", &n, &err) == 0);
    CHECK(n.plans == 0 && n.bytes == 0);
    CHECK(store_plan_remove(store, "p7", &err) == 0);
    CHECK(store_plan_drop(store, "p1", &err) == 0);
    plans_seen[0] = '\0';
    CHECK(store_plans_over(store, "w1", see_plan, NULL, &err) == 0);
    CHECK(strcmp(plans_seen, "p3 ") == 0);
    CHECK(store_plans_forget(store, "w1", 1, INT64_MIN, &err) == 0);
    CHECK(strcmp(plans_of("w1", NULL, NULL), "p5 p4 p3 p2 ") == 0);
    CHECK(store_plans_forget(store, "w1", 5, INT64_MAX, &err) == 0);
    CHECK(strcmp(plans_of("w1", NULL, NULL), "p5 p4 p3 ") == 0);
    CHECK(strcmp(plans_of("w2", NULL, NULL), "p6 ") == 0);
    return 0;
}

/* --- commands --- */

TEST(a_command_ends_once_and_lists_are_newest_first)
{
    struct store_exec e;
    char id[32];

    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0 && add_workspace("w2", "alice") == 0);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof(id), "x%02d", (i * 7) % 40); /* ids say nothing about the order */
        CHECK(add_exec(id, i % 4 ? "w1" : "w2") == 0);
    }
    CHECK(strcmp(execs(NULL, NULL, NULL, 4), "x33,x26,x19,x12") == 0);
    CHECK(strcmp(execs(NULL, NULL, "x19", 2), "x12,x05") == 0);
    CHECK(strcmp(execs("w2", NULL, NULL, 2), "x12,x24") == 0);
    CHECK(strcmp(execs("w2", NULL, "x24", 2), "x36,x08") == 0);
    CHECK(strlen(execs("w1", "running", NULL, 99)) == 30 * 4 - 1);
    CHECK(strcmp(execs("w1", "ended", NULL, 99), "") == 0);
    CHECK(store_exec_end(store, "x26", "{\"exit_code\":3}", 55, &err) == 1);
    CHECK(store_exec_end(store, "x26", "{\"exit_code\":4}", 66, &err) == 0);
    CHECK(store_exec_end(store, "none", "{}", 66, &err) == 0);
    CHECK(store_exec_get(store, &arena, "x26", &e, &err) == 1);
    CHECK(strcmp(e.state, "ended") == 0 && e.ended_ms == 55 && e.tty && e.started_ms == 7);
    CHECK(strcmp(e.result, "{\"exit_code\":3}") == 0 && strcmp(e.workspace, "w1") == 0);
    CHECK(store_exec_get(store, &arena, "none", &e, &err) == 0);
    CHECK(strcmp(execs(NULL, "ended", NULL, 9), "x26") == 0);
    CHECK(strcmp(execs(NULL, "running", NULL, 2), "x33,x19") == 0);
    CHECK(strcmp(execs(NULL, NULL, "gone", 9), "") == 0);
    CHECK(strstr(execs(NULL, "odd", NULL, 9), "'running' or 'ended'") && err.code == ERR_INVALID);
    CHECK(add_exec("x26", "w1") < 0 && err.code == ERR_CONFLICT);
    return 0;
}

TEST(what_ended_long_ago_is_forgotten_once_somebody_has_seen_it)
{
    struct store_exec e;
    char id[32];

    CHECK(new_store() == 0);
    CHECK(add_workspace("w1", "alice") == 0);
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "x%02d", i);
        CHECK(add_exec(id, "w1") == 0);
        if (i < 45)
            CHECK(store_exec_end(store, id, "{}", 100 + i, &err) == 1);
    }
    new_list();
    stop_after = 3; /* whoever removes the files may fail: then the row stays */
    CHECK(store_execs_expire(store, 140, note_exec, NULL, &err) == 0);
    CHECK(strcmp(list, "x00,x01,x02") == 0);
    CHECK(store_exec_get(store, &arena, "x01", &e, &err) == 0);
    CHECK(store_exec_get(store, &arena, "x02", &e, &err) == 1);
    new_list();
    CHECK(store_execs_expire(store, 140, note_exec, NULL, &err) == 0);
    CHECK(strlen(list) == 38 * 4 - 1);
    CHECK(number_of("SELECT count(*) FROM execs") == 10);
    CHECK(strcmp(execs("w1", "ended", NULL, 9), "x44,x43,x42,x41,x40") == 0);
    return 0;
}

TEST(a_row_too_long_is_refused_and_the_store_goes_on)
{
    char *big = malloc(STORE_ROW_MAX + 10);

    CHECK(new_store() == 0);
    memset(big, 'x', STORE_ROW_MAX + 9);
    big[STORE_ROW_MAX + 9] = '\0';
    CHECK(add_key(big, "aa", "alice") < 0 && err.code == ERR_INVALID);
    big[1 << 20] = '\0';
    CHECK(add_workspace("w1", "alice") == 0);
    CHECK(add_exec("x1", "w1") == 0 && store_exec_end(store, "x1", big, 1, &err) == 1);
    struct store_exec e;
    struct arena small;
    arena_init(&small, 1000);
    CHECK(store_exec_get(store, &small, "x1", &e, &err) < 0 && err.code == ERR_LIMIT);
    arena_clear(&small);
    CHECK(store_exec_get(store, &arena, "x1", &e, &err) == 1 && strlen(e.result) == 1 << 20);
    free(big);
    return 0;
}
