/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out a plan, or the chosen operations of it: everything is looked at first, then all of it
 * happens or nothing (act.c). With `keep_going` operations that cannot be carried out, and those
 * that make no sense without them, are left out and told. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/apply/act.h"
#include "plan/apply/stage.h"
#include "plan/core/outcome.h"
#include "plan/core/tree_digest.h"
#include "plan/core/verbs.h"

enum {
    MOST_TRIES = 8, /* with keep_going, when something changes while it is carried out */
};

struct applying {
    struct act act;
    struct outcome outcome;
    struct plan_bases bases;
    struct reach tree;
    struct reach dir;
    char *target;
    bool keep_going;
};

static bool is_wanted(const struct applying *a, size_t i)
{
    return a->target[i] && !a->act.journal.in_force[i];
}

/* --- what must hold before anything is done --- */

static int conflict(const struct plan_operation *o, const char *path, const char *words,
                    struct err *err)
{
    return err_set(err, ERR_CONFLICT, 0, "%s '%s': '%s' %s", plan_kind_names[o->kind], o->path,
                   path, words);
}

static int unreachable(const struct plan_operation *o, const char *path, int error, struct err *err)
{
    if (error == -ENOENT)
        return conflict(o, path, "is not there any more", err);
    if (error == -ENOTDIR || error == -ELOOP)
        return conflict(o, path, "lies below something that is no directory", err);
    if (error == -EXDEV)
        return conflict(o, path, "lies on another file system", err);
    return err_set(err, ERR_IO, -error, "%s '%s': look at '%s'", plan_kind_names[o->kind], o->path,
                   path);
}

static int check_below(struct applying *a, const struct plan_operation *o, struct err *err)
{
    struct tree_digest digest;

    if (tree_digest_except(&digest, a->act.tree, o->path, &a->bases, err) < 0)
        /* What its owner cannot read yet is counted when it has been unlocked and taken out. */
        return err->code == ERR_DENIED ? 0 : err_wrap(err, "delete '%s'", o->path);
    if (digest.entries != o->entries || memcmp(digest.below, o->below, PLAN_HASH) != 0)
        return conflict(o, o->path, "holds something else than when the plan was made", err);
    return 0;
}

static int check_base(struct applying *a, size_t i, struct err *err)
{
    const struct plan_operation *o = &a->act.plan.operations[i];
    const char *base = plan_base_path(o);
    char path[PLAN_MAX_PATH + 1];
    struct stat st;

    if (!base)
        return 0;
    if (!layout_locate(&a->act.layout, a->act.journal.in_force, base, path))
        return conflict(o, base, "has been deleted", err);
    int r = reach_stat(&a->tree, path, &st);
    if (r == -EACCES)
        return 0; /* in a directory that is unlocked first: compared when it is taken out */
    if (r < 0)
        return unreachable(o, path, r, err);
    if (!reach_is_same(&o->base, &st, a->act.dev, a->act.journal.ctimes[i]))
        return conflict(o, path, "has changed since the plan was made", err);
    return o->kind == PLAN_DELETE && S_ISDIR(st.st_mode) ? check_below(a, o, err) : 0;
}

/* The place is free, or will be cleared by another operation. */
static int check_place(struct applying *a, size_t i, struct err *err)
{
    const struct plan_operation *o = &a->act.plan.operations[i];
    const struct layout *layout = &a->act.layout;
    char parent[PLAN_MAX_PATH + 1];
    char base[2 * PLAN_MAX_PATH];
    char now[2 * PLAN_MAX_PATH];
    struct stat st;

    if (o->kind == PLAN_DELETE || o->kind == PLAN_CHMOD || layout_same_place(layout, i))
        return 0;
    layout_parent(o->path, parent);
    if (!layout_origin(layout, a->target, parent, base))
        return 0; /* in a directory that the plan makes */
    if (!layout_locate(layout, a->act.journal.in_force, base, now))
        return conflict(o, base, "has been deleted", err);
    size_t n = strlen(now);
    snprintf(now + n, sizeof(now) - n, "%s%s", n ? "/" : "", layout_name(o->path));
    n = strlen(base);
    snprintf(base + n, sizeof(base) - n, "%s%s", n ? "/" : "", layout_name(o->path));
    long other = layout_at_base(layout, base);
    if (other >= 0 && is_wanted(a, (size_t)other))
        return 0;
    int r = reach_stat(&a->tree, now, &st);
    if (r == 0)
        return conflict(o, now, "is there already", err);
    if (r == -ENOENT) {
        n = strlen(now) - strlen(layout_name(o->path));
        now[n > 0 ? n - 1 : 0] = '\0';
        r = reach_stat(&a->tree, now, &st);
        return r < 0 ? unreachable(o, now, r, err) : 0;
    }
    return r == -EACCES ? 0 : unreachable(o, now, r, err);
}

static int check_content(struct applying *a, size_t i, struct err *err)
{
    const struct plan_operation *o = &a->act.plan.operations[i];

    if (!o->has_hash)
        return 0;
    if (o->link) {
        long other = layout_at_path(&a->act.layout, o->link);
        if (other >= 0 && is_wanted(a, (size_t)other))
            return 0; /* proved there */
    }
    return stage_prove(&a->dir, o, o->link ? o->link : o->path, err);
}

typedef int check_function(struct applying *a, size_t i, struct err *err);

/* The dear one last. */
static check_function *const checks[] = {check_base, check_place, check_content};

static int leave_out(struct applying *a, const char *out, struct err *err)
{
    return layout_exclude(&a->act.layout, a->target, out, a->outcome.why, err);
}

/* Each in its turn over all, so that nothing is read for a plan that has gone stale. */
static int check_all(struct applying *a, struct err *err)
{
    char *out = calloc(a->act.plan.count + 1, 1);
    int r = 0;

    if (!out)
        return err_set(err, ERR_LIMIT, 0, "no memory to check the plan");
    for (size_t c = 0; r == 0 && c < sizeof(checks) / sizeof(checks[0]); c++) {
        size_t failed = 0;
        memset(out, 0, a->act.plan.count);
        for (size_t i = 0; r == 0 && i < a->act.plan.count; i++) {
            struct err why;
            if (!is_wanted(a, i) || checks[c](a, i, &why) == 0)
                continue;
            failed++;
            out[i] = 1;
            outcome_fail(&a->outcome, i, &why);
            if (!a->keep_going) {
                *err = why;
                r = -1;
            }
        }
        if (r == 0 && failed > 0)
            r = leave_out(a, out, err);
    }
    free(out);
    return r;
}

/* --- choosing --- */

static int take_choice(struct applying *a, const json_t *chosen, char *out, struct err *err)
{
    size_t at;
    const json_t *item;

    memset(out, 1, a->act.plan.count);
    json_array_foreach(chosen, at, item)
    {
        json_int_t i = json_is_integer(item) ? json_integer_value(item) : -1;
        if (i < 0 || (size_t)i >= a->act.plan.count)
            return err_set(err, ERR_INVALID, 0, "the plan has no operation number %zu of the list",
                           at);
        out[i] = 0;
    }
    return 0;
}

static int choose(struct applying *a, const json_t *chosen, struct err *err)
{
    size_t count = a->act.plan.count;
    char *out = calloc(count + 1, 1);

    a->target = calloc(count + 1, 1);
    if (!a->target || !out) {
        free(out);
        return err_set(err, ERR_LIMIT, 0, "no memory for the plan");
    }
    memset(a->target, 1, count);
    int r = chosen ? take_choice(a, chosen, out, err) : 0;
    if (r == 0)
        r = leave_out(a, out, err);
    for (size_t i = 0; i < count && r == 0; i++) {
        if (out[i])
            outcome_not_chosen(&a->outcome, i);
        else if (!a->target[i] && !a->keep_going)
            r = err_set(err, ERR_INVALID, 0,
                        "'%s' cannot be done without operation %u, '%s', which was not chosen",
                        a->act.plan.operations[i].path, a->outcome.why[i],
                        a->act.plan.operations[a->outcome.why[i]].path);
        if (a->act.journal.in_force[i])
            a->target[i] = 1;
    }
    free(out);
    return r;
}

/* --- doing --- */

static int make_all(struct applying *a, struct err *err)
{
    if (mkdirat(a->act.dir, "slots", 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the plan's slots");
    for (size_t i = 0; i < a->act.plan.count; i++) {
        const struct plan_operation *o = &a->act.plan.operations[i];
        if (!is_wanted(a, i) || !steps_is_made(o) || (o->link && !o->has_hash))
            continue;
        if (stage_make(&a->dir, &a->act.plan, i, err) < 0)
            return -1;
    }
    return 0;
}

static int carry_out(struct applying *a, int progress, struct act_outcome *did, struct err *err)
{
    struct plan_identity *expected = calloc(a->act.plan.count + 1, sizeof(*expected));
    struct steps steps;
    const struct act_change change = {
        .target = a->target, .steps = &steps, .expected = expected, .progress = progress};

    *did = (struct act_outcome){.failed = STEP_NO_OPERATION};
    if (!expected)
        return err_set(err, ERR_LIMIT, 0, "no memory for the plan");
    for (size_t i = 0; i < a->act.plan.count; i++)
        expected[i] = a->act.plan.operations[i].base;
    steps_init(&steps);
    reach_forget(&a->tree);
    reach_forget(&a->dir);
    int r = make_all(a, err);
    if (r == 0)
        r = steps_compile(&steps, &a->act.layout, a->act.journal.in_force, a->target, err);
    if (r == 0)
        r = act_commit(&a->act, &change, did, err);
    steps_clear(&steps);
    free(expected);
    return r;
}

static bool has_work(const struct applying *a)
{
    for (size_t i = 0; i < a->act.plan.count; i++) {
        if (is_wanted(a, i))
            return true;
    }
    return false;
}

/* Something changed between the look and the deed: without it, once more. */
static int retry(struct applying *a, uint32_t failed, const struct err *why, struct err *err)
{
    char *out = calloc(a->act.plan.count + 1, 1);

    if (!out)
        return err_set(err, ERR_LIMIT, 0, "no memory for the plan");
    out[failed] = 1;
    outcome_fail(&a->outcome, failed, why);
    int r = leave_out(a, out, err);
    free(out);
    return r;
}

static int apply(struct applying *a, const struct verb_call *call, struct act_outcome *did,
                 struct err *err)
{
    for (int i = 0; i < MOST_TRIES; i++) {
        if (check_all(a, err) < 0)
            return -1;
        if (!has_work(a))
            return 0;
        if (carry_out(a, call->steps, did, err) == 0)
            return 0;
        struct err why = *err;
        if (!a->keep_going || err->code != ERR_CONFLICT || did->failed == STEP_NO_OPERATION ||
            a->act.journal.open || retry(a, did->failed, &why, err) < 0)
            return -1;
    }
    return err_set(err, ERR_CONFLICT, 0, "the tree changes all the time while the plan is applied");
}

static int open_all(struct applying *a, const struct verb_call *call, const char *hash,
                    struct err *err)
{
    struct act_outcome did;
    bool taken_back;

    if (act_open(&a->act, call->tree, call->dir, hash, err) < 0)
        return -1;
    reach_init(&a->tree, call->tree);
    reach_init(&a->dir, call->dir);
    if (a->act.plan.flaw_count > 0)
        return err_set(err, ERR_DENIED, 0, "'%s' %s: no such plan is applied",
                       a->act.plan.flaws[0].path, plan_flaw_words[a->act.plan.flaws[0].kind]);
    if (a->act.journal.open && act_recover(&a->act, &did, &taken_back, err) < 0)
        return -1;
    return plan_bases_make(&a->bases, &a->act.plan, err) < 0 ||
                   outcome_init(&a->outcome, &a->act.plan, err) < 0
               ? -1
               : 0;
}

int verb_apply(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct applying a = {.tree.parent = -1, .dir.parent = -1};
    struct act_outcome did = {0};
    const char *hash = NULL;
    json_t *chosen = NULL;
    int keep_going = 0;

    if (verb_read(call, err, "{s:s, s?b, s?o}", "hash", &hash, "keep_going", &keep_going,
                  "operations", &chosen) < 0)
        return -1;
    if (chosen && !json_is_array(chosen))
        return err_set(err, ERR_INVALID, 0, "the job: operations is no list of numbers");
    a.keep_going = keep_going;
    int r = open_all(&a, call, hash, err);
    if (r == 0)
        r = choose(&a, chosen, err);
    if (r == 0 && !has_work(&a))
        r = err_set(err, ERR_CONFLICT, 0, "there is nothing left of the plan to apply");
    if (r == 0)
        r = apply(&a, call, &did, err);
    if (r == 0)
        r = outcome_tell(&a.outcome, a.target, a.keep_going, answer, err);
    if (r == 0)
        r = json_object_set_new(answer, "steps", json_integer((json_int_t)did.steps)) < 0 ? -1 : 0;
    outcome_clear(&a.outcome);
    plan_bases_clear(&a.bases);
    reach_forget(&a.tree);
    reach_forget(&a.dir);
    free(a.target);
    act_clear(&a.act);
    return r;
}
