/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/apply/note.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define ANY_TIME (-1)

/* --- which objects the steps may have touched, under whatever name --- */

struct touched {
    uint64_t *inodes; /* sorted */
    size_t count;
    uint64_t *modes; /* those whose mode a step has set, sorted */
    size_t mode_count;
    uint64_t *doomed; /* those that will lose a name when the transaction has ended, sorted */
    size_t doomed_count;
};

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static struct touched collect(const struct act *act, const struct steps *steps)
{
    struct touched touched = {.inodes = calloc(3 * steps->count + 1, sizeof(uint64_t)),
                              .modes = calloc(steps->count + 1, sizeof(uint64_t))};

    for (size_t i = 0; touched.inodes && touched.modes && i < steps->count; i++) {
        const struct step *step = &steps->items[i];
        touched.inodes[touched.count++] = step->ino;
        if (step->kind == STEP_MODE)
            touched.modes[touched.mode_count++] = step->ino;
        if (step->operation == STEP_NO_OPERATION)
            continue;
        touched.inodes[touched.count++] = act->plan.operations[step->operation].base.ino;
        touched.inodes[touched.count++] = act->journal.after[step->operation].ino;
    }
    if (touched.count > 0)
        qsort(touched.inodes, touched.count, sizeof(uint64_t), by_number);
    if (touched.mode_count > 0)
        qsort(touched.modes, touched.mode_count, sizeof(uint64_t), by_number);
    return touched;
}

static bool is_among(uint64_t ino, const uint64_t *inodes, size_t count)
{
    return ino != 0 && count > 0 && bsearch(&ino, inodes, count, sizeof(ino), by_number);
}

static bool is_touched(const struct touched *touched, uint64_t ino)
{
    return is_among(ino, touched->inodes, touched->count);
}

/* In force already: a change that is not our own must stay visible, so only what we changed
 * ourselves, perhaps under another name of the same file, is noted anew: its time and its mode. */
static void note_in_force(struct act *act, struct transaction *t, const struct touched *touched,
                          size_t i)
{
    struct plan_identity old = act->journal.after[i];
    struct plan_identity now;
    struct stat st;

    if (act->plan.operations[i].kind == PLAN_DELETE ||
        reach_stat(&t->tree, act->plan.operations[i].path, &st) < 0)
        return;
    if (is_among(st.st_ino, touched->modes, touched->mode_count))
        old.mode = st.st_mode;
    if (act->journal.in_force[i] && !reach_is_same(&old, &st, t->dev, -1))
        return;
    plan_identify(&now, &st);
    if (is_among(st.st_ino, touched->doomed, touched->doomed_count))
        now.ctime_ns = ANY_TIME;
    journal_note_after(&act->journal, i, &now);
}

static void note_base(struct act *act, struct transaction *t, const char *set,
                      const struct touched *touched, size_t i)
{
    const struct plan_operation *o = &act->plan.operations[i];
    struct plan_identity now;
    struct stat st;
    char path[PLAN_MAX_PATH + 1];

    if (!o->has_base || S_ISDIR(o->base.mode) ||
        !layout_locate(&act->layout, set, plan_base_path(o), path) ||
        reach_stat(&t->tree, path, &st) < 0 || !reach_is_same(&o->base, &st, t->dev, -1))
        return;
    plan_identify(&now, &st);
    if (is_among(st.st_ino, touched->doomed, touched->doomed_count))
        now.ctime_ns = ANY_TIME;
    if (now.ctime_ns != o->base.ctime_ns)
        journal_note_ctime(&act->journal, i, now.ctime_ns);
}

bool note_is_open(const struct act *act, size_t operation)
{
    return act->journal.ctimes[operation] == ANY_TIME ||
           act->journal.after[operation].ctime_ns == ANY_TIME;
}

/* Further names that were made for operations that are not in force. */
static void collect_doomed(const struct act *act, struct transaction *t, const char *set,
                           struct touched *touched)
{
    char home[64];
    struct stat st;

    touched->doomed = calloc(act->plan.count + 1, sizeof(uint64_t));
    if (!touched->doomed)
        return;
    for (size_t i = 0; i < act->plan.count; i++) {
        if (set[i] || !act->plan.operations[i].link)
            continue;
        snprintf(home, sizeof(home), "slots/%zu", i);
        if (reach_stat(&t->dir, home, &st) == 0)
            touched->doomed[touched->doomed_count++] = st.st_ino;
    }
    if (touched->doomed_count > 0)
        qsort(touched->doomed, touched->doomed_count, sizeof(uint64_t), by_number);
}

static void note_touched(struct act *act, struct transaction *t, const char *set,
                         const struct touched *touched)
{
    reach_forget(&t->tree);
    for (size_t i = 0; i < act->plan.count; i++) {
        bool is_new = set[i] && !act->journal.in_force[i];
        if (!is_new && !note_is_open(act, i) &&
            !is_touched(touched, act->plan.operations[i].base.ino) &&
            !is_touched(touched, act->journal.after[i].ino))
            continue;
        if (set[i])
            note_in_force(act, t, touched, i);
        else
            note_base(act, t, set, touched, i);
    }
}

void note_identities(struct act *act, struct transaction *t, const char *set)
{
    struct touched touched = collect(act, t->steps);

    collect_doomed(act, t, set, &touched);
    note_touched(act, t, set, &touched);
    free(touched.inodes);
    free(touched.modes);
    free(touched.doomed);
}

void note_unlinked(struct act *act, struct transaction *t, uint64_t *inodes, size_t count)
{
    struct touched touched = {.inodes = inodes, .count = count};

    if (count > 0)
        qsort(inodes, count, sizeof(uint64_t), by_number);
    note_touched(act, t, act->journal.in_force, &touched);
}

/* --- times of directories --- */

static int by_base(const void *a, const void *b)
{
    return plan_compare_paths(((const struct journal_times *)a)->base,
                              ((const struct journal_times *)b)->base);
}

static struct journal_times *find_times(const struct note_times *times, const char *base)
{
    struct journal_times key = {.base = base};

    return times->count == 0 ? NULL
                             : bsearch(&key, times->items, times->count, sizeof(key), by_base);
}

static void set_time(struct transaction *t, const char *path, uint64_t ino, int64_t mtime_ns)
{
    struct stat st;
    scoped_fd int fd = reach_open(&t->tree, path, O_PATH | O_DIRECTORY);

    if (fd >= 0 && fstat(fd, &st) == 0 && (ino == 0 || st.st_ino == ino) &&
        plan_mtime(&st) != mtime_ns)
        ignore(reach_set_mtime(fd, mtime_ns)); /* a time is not worth a failure */
}

/* Those of the journal, and those that this transaction has found. */
static void merge_times(struct act *act, const struct steps *steps,
                        const struct journal_directory *found, struct note_times *times)
{
    const struct journal *j = &act->journal;
    char base[PLAN_MAX_PATH + 1];

    times->items = calloc(j->time_count + steps->directory_count + 1, sizeof(times->items[0]));
    if (!times->items)
        return;
    for (; times->count < j->time_count; times->count++) {
        times->items[times->count] = j->times[times->count];
        times->items[times->count].base = strdup(j->times[times->count].base);
    }
    if (times->count > 0)
        qsort(times->items, times->count, sizeof(times->items[0]), by_base);
    struct note_times old = *times;
    for (size_t i = 0; i < steps->directory_count; i++) {
        if (!(steps->directories[i].need & 0200) ||
            !layout_origin(&act->layout, j->in_force, found[i].path, base))
            continue;
        struct journal_times *known = find_times(&old, base);
        if (!known) {
            known = &times->items[times->count++];
            *known = (struct journal_times){.base = strdup(base)};
        }
        /* Somebody else has changed it since: what it had before us is the past's. */
        if (known->ino != found[i].ino || known->after_ns != found[i].mtime_ns)
            known->before_ns = found[i].mtime_ns;
        known->ino = found[i].ino;
    }
}

void note_prepare_times(struct act *act, struct transaction *t,
                        const struct journal_directory *found, struct note_times *times)
{
    const char *target = act->journal.target;
    bool is_base = memchr(target, 1, act->plan.count) == NULL;

    merge_times(act, t->steps, found, times);
    for (size_t i = 0; is_base && i < times->count; i++) {
        if (times->items[i].base)
            set_time(t, times->items[i].base, times->items[i].ino, times->items[i].before_ns);
    }
    for (size_t i = 0; i < act->plan.count; i++) {
        const struct plan_operation *o = &act->plan.operations[i];
        if (o->kind == PLAN_MKDIR && o->mtime_ns > 0 && target[i] && !act->journal.in_force[i])
            set_time(t, o->path, 0, o->mtime_ns);
    }
}

/* Directories that were unlocked and are not in the tree now. */
static void note_locks(struct act *act, const struct steps *steps)
{
    struct journal *j = &act->journal;
    char base[PLAN_MAX_PATH + 1];
    char path[PLAN_MAX_PATH + 1];

    for (size_t i = 0; i < j->lock_count; i++) {
        if (!layout_locate(&act->layout, j->target, j->locks[i].base, path))
            journal_note_lock(j, &j->locks[i]);
    }
    for (size_t i = 0; i < steps->count && steps->items[i].kind == STEP_UNLOCK; i++) {
        struct journal_lock lock = {
            .base = base, .mode = steps->items[i].old_mode, .ino = steps->items[i].ino};
        if (layout_origin(&act->layout, j->in_force, steps->items[i].path, base) &&
            !layout_locate(&act->layout, j->target, base, path))
            journal_note_lock(j, &lock);
    }
}

void note_times(struct act *act, struct transaction *t, const struct note_times *times)
{
    char path[PLAN_MAX_PATH + 1];

    for (size_t i = 0; i < times->count; i++) {
        struct journal_times *item = &times->items[i];
        struct stat st;
        if (!item->base)
            continue;
        if (layout_locate(&act->layout, act->journal.target, item->base, path) &&
            reach_stat(&t->tree, path, &st) == 0 && st.st_ino == item->ino)
            item->after_ns = plan_mtime(&st);
        journal_note_times(&act->journal, item);
    }
    note_locks(act, t->steps);
}

void note_clear_times(struct note_times *times)
{
    for (size_t i = 0; i < times->count; i++)
        free((void *)(uintptr_t)times->items[i].base);
    free(times->items);
    *times = (struct note_times){0};
}
