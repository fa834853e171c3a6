/* SPDX-License-Identifier: Apache-2.0 */
/* Takes an applied plan back, or the chosen paths of it with what cannot stand without them. What
 * was changed since is refused; with `force` it is kept aside in the plan's slots and never
 * destroyed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "plan/apply/act.h"
#include "plan/core/outcome.h"
#include "plan/core/verbs.h"
#include "sys/path.h"

enum seen {
    SEEN_SAME,
    SEEN_CHANGED,  /* the same object, or another in its place */
    SEEN_REPLACED, /* another object is there */
    SEEN_ABSENT,
};

struct undoing {
    struct act act;
    struct reach tree;
    struct reach dir;
    char *target;
    char *sights; /* of what each operation has put there */
    char *taken;  /* the place to which the base's object returns is taken by something else */
    struct plan_identity *expected;
    struct steps steps;
    size_t kept; /* number of the next object put aside */
    size_t changed;
    bool force;
};

static bool is_undone(const struct undoing *u, size_t i)
{
    return u->act.journal.in_force[i] && !u->target[i];
}

/* --- choosing --- */

/* Both orders of the operations, with what is chosen in each as differences: a path costs a search,
 * however much lies below it. */
struct choice {
    const struct layout_order *order;
    uint32_t *in_force; /* how many are, before each place of the order */
    int32_t *marks;
};

static int choice_make(struct choice *choice, const struct undoing *u,
                       const struct layout_order *order)
{
    *choice = (struct choice){.order = order,
                              .in_force = calloc(order->count + 1, sizeof(uint32_t)),
                              .marks = calloc(order->count + 1, sizeof(int32_t))};
    if (!choice->in_force || !choice->marks)
        return -1;
    for (size_t i = 0; i < order->count; i++)
        choice->in_force[i + 1] =
            choice->in_force[i] + (u->act.journal.in_force[order->at[i]] ? 1 : 0);
    return 0;
}

static void choice_end(struct choice *choice, const struct undoing *u, char *out)
{
    int32_t open = 0;

    for (size_t i = 0; choice->marks && out && i < choice->order->count; i++) {
        uint32_t operation = choice->order->at[i];
        open += choice->marks[i];
        if (open > 0 && u->act.journal.in_force[operation])
            out[operation] = 1;
    }
    free(choice->in_force);
    free(choice->marks);
}

static int choose_path(const struct undoing *u, struct choice choices[2], const char *path,
                       struct err *err)
{
    size_t found = 0;

    for (int i = 0; i < 2; i++) {
        struct layout_range range = layout_below(&u->act.layout, choices[i].order, path);
        found += choices[i].in_force[range.to] - choices[i].in_force[range.from];
        choices[i].marks[range.from]++;
        choices[i].marks[range.to]--;
    }
    return found ? 0
                 : err_set(err, ERR_NOT_FOUND, 0, "nothing that the plan did to '%s' is in force",
                           path);
}

/* A text, or {"path_b64": …} for a name that is none. */
static int choose_named(const struct undoing *u, struct choice choices[2], const json_t *item,
                        struct err *err)
{
    char path[PLAN_MAX_PATH + 4];
    const json_t *coded = json_object_get(item, "path_b64");
    const char *text = json_string_value(coded ? coded : item);
    ssize_t n = -1;

    if (text && !coded)
        return choose_path(u, choices, text, err);
    if (text && strlen(text) <= sizeof(path) / 3 * 4)
        n = bytes_from_base64(text, strlen(text), path);
    if (n < 0 || n > PLAN_MAX_PATH || memchr(path, '\0', (size_t)n))
        return err_set(err, ERR_INVALID, 0, "the job: a path to undo is no path");
    path[n] = '\0';
    return choose_path(u, choices, path, err);
}

static int choose_number(const struct undoing *u, const json_t *item, char *out, struct err *err)
{
    json_int_t i = json_is_integer(item) ? json_integer_value(item) : -1;

    if (i < 0 || (size_t)i >= u->act.plan.count || !u->act.journal.in_force[i])
        return err_set(err, ERR_NOT_FOUND, 0, "an operation to undo is not in force");
    out[i] = 1;
    return 0;
}

static int choose_listed(const struct undoing *u, const json_t *paths, const json_t *numbers,
                         char *out, struct err *err)
{
    struct choice choices[2] = {0};
    int r = 0;

    if (choice_make(&choices[0], u, &u->act.layout.paths) < 0 ||
        choice_make(&choices[1], u, &u->act.layout.bases) < 0)
        r = err_set(err, ERR_LIMIT, 0, "no memory for the plan");
    for (size_t i = 0; r == 0 && i < json_array_size(paths); i++)
        r = choose_named(u, choices, json_array_get(paths, i), err);
    for (size_t i = 0; r == 0 && i < json_array_size(numbers); i++)
        r = choose_number(u, json_array_get(numbers, i), out, err);
    choice_end(&choices[0], u, r == 0 ? out : NULL);
    choice_end(&choices[1], u, r == 0 ? out : NULL);
    return r;
}

static int choose(struct undoing *u, const json_t *paths, const json_t *numbers, struct err *err)
{
    size_t count = u->act.plan.count;
    char *out = calloc(count + 1, 1);

    if (!out)
        return err_set(err, ERR_LIMIT, 0, "no memory for the plan");
    int r = choose_listed(u, paths, numbers, out, err);
    if (r == 0 && !paths && !numbers)
        memcpy(out, u->act.journal.in_force, count);
    memcpy(u->target, u->act.journal.in_force, count);
    if (r == 0)
        r = layout_exclude(&u->act.layout, u->target, out, NULL, err);
    free(out);
    return r;
}

/* --- looking --- */

/* Whether there is something in it that is not undone as well. */
static int holds_more(struct undoing *u, const char *path)
{
    char below[PLAN_MAX_PATH + 256];
    int fd = reach_open(&u->tree, path, O_RDONLY | O_DIRECTORY);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    int more = 0;

    if (!stream) {
        int error = fd < 0 ? fd : -errno;
        scope_close(&fd);
        return error;
    }
    const struct dirent *entry;
    while (!more && (entry = readdir(stream))) { /* NOLINT(concurrency-mt-unsafe) */
        if (path_is_dots(entry->d_name))
            continue;
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        long i = layout_at_path(&u->act.layout, below);
        more = i < 0 || !is_undone(u, (size_t)i);
    }
    (void)closedir(stream);
    return more;
}

static enum seen look(struct undoing *u, size_t i)
{
    const struct plan_operation *o = &u->act.plan.operations[i];
    const struct plan_identity *after = &u->act.journal.after[i];
    struct stat st;

    u->expected[i] = *after;
    if (o->kind == PLAN_DELETE)
        return SEEN_SAME;
    int r = reach_stat(&u->tree, o->path, &st);
    if (r == -EACCES)
        return SEEN_SAME; /* in a directory that is unlocked first: compared on the way out */
    if (r < 0)
        return SEEN_ABSENT;
    plan_identify(&u->expected[i], &st);
    if (st.st_ino != after->ino || st.st_dev != u->act.dev)
        return SEEN_REPLACED;
    if (!reach_is_same(after, &st, u->act.dev, 0))
        return SEEN_CHANGED;
    if (o->kind == PLAN_CHMOD && (st.st_mode & 07777) != (after->mode & 07777))
        return SEEN_CHANGED;
    if (o->kind != PLAN_MKDIR)
        return SEEN_SAME;
    /* Counted on the way out, where it has been unlocked; by force it is kept whatever it holds. */
    if ((st.st_mode & 0500) != 0500)
        return u->force ? SEEN_CHANGED : SEEN_SAME;
    if (holds_more(u, o->path) != 0)
        return SEEN_CHANGED;
    return SEEN_SAME;
}

/* The place to which the base's object goes back is free, or becomes so. */
static bool is_place_taken(struct undoing *u, size_t i)
{
    const struct layout *layout = &u->act.layout;
    const struct plan_operation *o = &u->act.plan.operations[i];
    char place[PLAN_MAX_PATH + 1];
    char parent[PLAN_MAX_PATH + 1];
    char base[2 * PLAN_MAX_PATH];
    struct stat st;

    if (!o->has_base || o->kind == PLAN_CHMOD ||
        (o->kind != PLAN_DELETE && layout_same_place(layout, i)))
        return false;
    if (!layout_locate(layout, u->target, plan_base_path(o), place))
        return false;
    /* Where that place is now: its directory may itself come back by this undo. */
    layout_parent(plan_base_path(o), parent);
    if (!layout_locate(layout, u->act.journal.in_force, parent, base))
        return false;
    size_t n = strlen(base);
    snprintf(base + n, sizeof(base) - n, "%s%s", n ? "/" : "", layout_name(plan_base_path(o)));
    long other = layout_at_path(layout, base);
    if (other >= 0 && is_undone(u, (size_t)other))
        return false;
    return reach_stat(&u->tree, base, &st) == 0;
}

static int refuse(const struct undoing *u, size_t i, struct err *err)
{
    static const char *const words[] = {
        [SEEN_SAME] = "the place where it was is taken",
        [SEEN_CHANGED] = "it was changed since",
        [SEEN_REPLACED] = "something else is there now",
        [SEEN_ABSENT] = "it is not there any more",
    };
    const struct plan_operation *o = &u->act.plan.operations[i];

    return err_set(err, ERR_CONFLICT, 0,
                   "%s '%s' cannot be undone: %s (%zu such; with force what is in the way is kept "
                   "aside)",
                   plan_kind_names[o->kind], o->path, words[(int)u->sights[i]], u->changed);
}

static int look_at_all(struct undoing *u, struct err *err)
{
    size_t first = 0;

    for (size_t i = 0; i < u->act.plan.count; i++) {
        if (!is_undone(u, i))
            continue;
        u->sights[i] = (char)look(u, i);
        u->taken[i] = is_place_taken(u, i);
        if (u->sights[i] == SEEN_SAME && !u->taken[i])
            continue;
        if (u->changed++ == 0)
            first = i;
    }
    return u->changed > 0 && !u->force ? refuse(u, first, err) : 0;
}

/* --- by force --- */

static const char *next_kept(struct undoing *u)
{
    char home[64];
    struct stat st;

    do {
        snprintf(home, sizeof(home), STEPS_KEPT "%zu", u->kept++);
    } while (reach_stat(&u->dir, home, &st) == 0);
    return arena_copy(&u->steps.arena, home, strlen(home));
}

/* Returns false for a step that is left out. */
static bool bend(struct undoing *u, struct step *step, bool *ret_exchange_by_hand)
{
    const struct plan_operation *o = &u->act.plan.operations[step->operation];
    enum seen sight = (enum seen)u->sights[step->operation];
    bool is_own = o->kind == PLAN_MOVE && !o->has_hash; /* the base's object itself */

    if (sight == SEEN_SAME)
        return true;
    if (step->kind == STEP_MODE)
        return sight == SEEN_CHANGED;
    if (is_own)
        return sight == SEEN_CHANGED; /* it goes back as it is now; otherwise it is not ours */
    if (step->kind == STEP_EXCHANGE) {
        *ret_exchange_by_hand = sight != SEEN_ABSENT;
        step->kind = STEP_IN;
        return true;
    }
    if (step->kind != STEP_OUT)
        return true;
    step->home = next_kept(u);
    return sight != SEEN_ABSENT;
}

static int add_out(struct undoing *u, const char *path, struct err *err)
{
    struct stat st;
    struct step *step = steps_add(&u->steps, err);

    if (!step)
        return -1;
    *step = (struct step){.kind = STEP_OUT,
                          .operation = STEP_NO_OPERATION,
                          .path = arena_copy(&u->steps.arena, path, strlen(path)),
                          .home = next_kept(u)};
    if (reach_stat(&u->tree, path, &st) == 0) {
        step->ino = st.st_ino;
        step->is_directory = S_ISDIR(st.st_mode);
    }
    return step->path && step->home ? 0 : err_set(err, ERR_LIMIT, 0, "no memory");
}

static int clear_place(struct undoing *u, size_t i, struct err *err)
{
    char parent[PLAN_MAX_PATH + 1];
    char now[2 * PLAN_MAX_PATH];
    const char *base = plan_base_path(&u->act.plan.operations[i]);

    layout_parent(base, parent);
    if (!layout_locate(&u->act.layout, u->act.journal.in_force, parent, now))
        return 0;
    size_t n = strlen(now);
    snprintf(now + n, sizeof(now) - n, "%s%s", n ? "/" : "", layout_name(base));
    return add_out(u, now, err);
}

/* What is not ours stays in its directory: one that the plan made is then kept with it. */
static void leave_in_place(struct undoing *u, const struct step *step)
{
    char parent[PLAN_MAX_PATH + 1];

    if (step->kind != STEP_OUT || u->sights[step->operation] != SEEN_REPLACED)
        return;
    layout_parent(step->path, parent);
    long made = layout_at_path(&u->act.layout, parent);
    if (made >= 0 && is_undone(u, (size_t)made) && u->sights[made] == SEEN_SAME &&
        u->act.plan.operations[made].kind == PLAN_MKDIR)
        u->sights[made] = SEEN_CHANGED; /* its own step comes later: deepest first */
}

static int bend_steps(struct undoing *u, struct err *err)
{
    size_t planned = u->steps.count;
    size_t n = 0;
    int r = 0;

    for (size_t i = 0; i < planned && r == 0; i++) {
        struct step step = u->steps.items[i];
        bool by_hand = false;
        if (step.operation != STEP_NO_OPERATION && !bend(u, &step, &by_hand)) {
            leave_in_place(u, &step);
            continue;
        }
        u->steps.items[n++] = step;
        if (by_hand)
            u->steps.items[n - 1].now = step.path; /* its place is cleared below */
    }
    u->steps.count = n;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (u->steps.items[i].kind == STEP_IN && u->steps.items[i].now)
            r = add_out(u, u->steps.items[i].path, err);
    }
    for (size_t i = 0; i < u->act.plan.count && r == 0; i++) {
        if (u->taken[i])
            r = clear_place(u, i, err);
    }
    steps_sort(&u->steps);
    return r;
}

/* --- doing --- */

/* Directories below a deleted one, unlocked when something was taken out of them. */
static int add_locks(struct undoing *u, struct err *err)
{
    const struct journal *j = &u->act.journal;
    char path[PLAN_MAX_PATH + 1];
    int r = 0;

    for (size_t i = 0; i < j->lock_count && r == 0; i++) {
        long own = layout_at_base(&u->act.layout, j->locks[i].base);
        if (own >= 0 && u->act.plan.operations[own].kind == PLAN_DELETE)
            continue;
        if (layout_locate(&u->act.layout, u->target, j->locks[i].base, path))
            r = steps_add_lock(&u->steps, path, j->locks[i].mode, j->locks[i].ino, err);
    }
    steps_sort(&u->steps);
    return r;
}

static int open_all(struct undoing *u, const struct verb_call *call, const char *hash,
                    struct err *err)
{
    struct act_outcome did;
    bool taken_back;

    if (act_open(&u->act, call->tree, call->dir, hash, err) < 0)
        return -1;
    reach_init(&u->tree, call->tree);
    reach_init(&u->dir, call->dir);
    steps_init(&u->steps);
    size_t n = u->act.plan.count + 1;
    u->target = calloc(n, 1);
    u->sights = calloc(n, 1);
    u->taken = calloc(n, 1);
    u->expected = calloc(n, sizeof(u->expected[0]));
    if (!u->target || !u->sights || !u->taken || !u->expected)
        return err_set(err, ERR_LIMIT, 0, "no memory for the plan");
    if (u->act.journal.open && act_recover(&u->act, &did, &taken_back, err) < 0)
        return -1;
    if (!journal_has_in_force(&u->act.journal))
        return err_set(err, ERR_CONFLICT, 0, "nothing of the plan is in force");
    return 0;
}

static void close_all(struct undoing *u)
{
    steps_clear(&u->steps);
    reach_forget(&u->tree);
    reach_forget(&u->dir);
    free(u->target);
    free(u->sights);
    free(u->taken);
    free(u->expected);
    act_clear(&u->act);
}

static int undo(struct undoing *u, int progress, struct act_outcome *did, struct err *err)
{
    if (look_at_all(u, err) < 0)
        return -1;
    if (steps_compile(&u->steps, &u->act.layout, u->act.journal.in_force, u->target, err) < 0 ||
        add_locks(u, err) < 0)
        return -1;
    if (u->changed > 0 && bend_steps(u, err) < 0)
        return -1;
    reach_forget(&u->tree);
    reach_forget(&u->dir);
    const struct act_change change = {
        .target = u->target, .steps = &u->steps, .expected = u->expected, .progress = progress};
    return act_commit(&u->act, &change, did, err);
}

static const char *word_for(const struct undoing *u, size_t i)
{
    if (u->sights[i] == SEEN_SAME && !u->taken[i])
        return NULL;
    if (u->act.plan.operations[i].kind == PLAN_MOVE && u->sights[i] >= SEEN_REPLACED)
        return "what was moved is not there any more: nothing could be moved back";
    return "was changed since; what was in the way is kept in the plan's slots";
}

static int answer_all(const struct undoing *u, const char *was, const struct act_outcome *did,
                      json_t *answer, struct err *err)
{
    json_t *list = json_array();
    size_t undone = 0;
    size_t left = 0;
    int r = list ? 0 : -1;

    for (size_t i = 0; i < u->act.plan.count && r == 0; i++) {
        left += u->target[i] ? 1 : 0;
        if (!was[i] || u->target[i])
            continue;
        if (undone++ < OUTCOMES_TOLD)
            r = json_array_append_new(list,
                                      outcome_entry(&u->act.plan, i, "undone", word_for(u, i)));
    }
    if (json_object_set_new(answer, "operations", list) < 0 || r < 0 ||
        json_object_set_new(answer, "operations_untold",
                            json_integer((json_int_t)(undone - json_array_size(list)))) < 0 ||
        json_object_set_new(answer, "undone", json_integer((json_int_t)undone)) < 0 ||
        json_object_set_new(answer, "in_force", json_integer((json_int_t)left)) < 0 ||
        json_object_set_new(answer, "steps", json_integer((json_int_t)did->steps)) < 0)
        return err_set(err, ERR_LIMIT, 0, "no memory for the answer");
    return 0;
}

int verb_undo(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct undoing u = {.tree.parent = -1, .dir.parent = -1};
    struct act_outcome did = {0};
    const char *hash = NULL;
    json_t *paths = NULL;
    json_t *operations = NULL;
    int force = 0;

    if (verb_read(call, err, "{s?s, s?b, s?o, s?o}", "hash", &hash, "force", &force, "paths",
                  &paths, "operations", &operations) < 0)
        return -1;
    if ((paths && !json_is_array(paths)) || (operations && !json_is_array(operations)))
        return err_set(err, ERR_INVALID, 0, "the job: paths and operations are lists");
    u.force = force;
    int r = open_all(&u, call, hash, err);
    if (r == 0)
        r = choose(&u, paths, operations, err);
    char *was = calloc(u.act.plan.count + 1, 1);
    if (!was)
        r = err_set(err, ERR_LIMIT, 0, "no memory for the plan");
    else if (r == 0)
        memcpy(was, u.act.journal.in_force, u.act.plan.count);
    if (r == 0)
        r = undo(&u, call->steps, &did, err);
    if (r == 0)
        r = answer_all(&u, was, &did, answer, err);
    free(was);
    close_all(&u);
    return r;
}
