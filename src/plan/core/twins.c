/* SPDX-License-Identifier: Apache-2.0 */
/* Names that differ in case only are one name on other systems, and for some programs on this one.
 * The new names of each directory are sorted without regard to case, and what the base has there is
 * looked up among them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/core/facts.h"
#include "plan/core/fold.h"
#include "plan/core/tree_digest.h"

enum {
    MOST_NAMES = 1 << 20, /* of the base, looked through in all */
};

struct newcomer {
    const char *path;
    uint32_t operation;
};

struct hunt {
    struct plan_facts *facts;
    const struct plan_index *index;
    const struct newcomer *among; /* those of one directory */
    size_t count;
    uint64_t *names; /* that may still be looked at */
};

static size_t parent_length(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) : 0;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int compare_parents(const char *a, const char *b)
{
    size_t x = parent_length(a);
    size_t y = parent_length(b);

    return x != y ? (x < y ? -1 : 1) : memcmp(a, b, x);
}

/* By directory, then by name without case. */
static int compare_newcomers(const void *a, const void *b)
{
    const struct newcomer *x = a;
    const struct newcomer *y = b;
    int r = compare_parents(x->path, y->path);

    return r ? r : fold_compare(name_of(x->path), name_of(y->path));
}

static int keep_twin(struct hunt *hunt, size_t i, const char *final, struct err *err)
{
    struct plan_fact *fact = &hunt->facts->at[hunt->among[i].operation];

    if (fact->twin || strcmp(hunt->among[i].path, final) == 0)
        return 0;
    fact->twin = arena_copy(&hunt->facts->arena, final, strlen(final));
    return fact->twin ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "keep a name");
}

/* Whether the i-th has this name but for its case. */
static int compare_name(const struct hunt *hunt, size_t i, const char *name)
{
    return fold_compare(name_of(hunt->among[i].path), name);
}

/* One name of the base; it counts only where it stays. */
static int meet(void *context, struct plan_entry *entry, struct err *err)
{
    struct hunt *hunt = context;
    const char *name = name_of(entry->path);
    char final[PLAN_MAX_PATH + 1];
    size_t low = 0;
    size_t high = hunt->count;
    int r = 0;

    entry->skip_below = true;
    if (*hunt->names == 0)
        return err_set(err, ERR_LIMIT, 0, "more than %d names", MOST_NAMES);
    --*hunt->names;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_name(hunt, middle, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == hunt->count || compare_name(hunt, low, name) != 0 ||
        !plan_follow(hunt->index, entry->path, final) || strcmp(name_of(final), name) != 0 ||
        compare_parents(final, hunt->among[low].path) != 0)
        return 0;
    for (; r == 0 && low < hunt->count && compare_name(hunt, low, name) == 0; low++)
        r = keep_twin(hunt, low, final, err);
    return r;
}

static int hunt_directory(struct hunt *hunt, int tree)
{
    char parent[PLAN_MAX_PATH + 1];
    char origin[PLAN_MAX_PATH + 1] = "";
    const char *path = hunt->among[0].path;
    size_t n = parent_length(path);
    struct err err = {0};
    ssize_t by;

    if (n > PLAN_MAX_PATH)
        return 0;
    memcpy(parent, path, n);
    parent[n] = '\0';
    ssize_t made = n > 0 ? plan_after(hunt->index, parent) : PLAN_NOBODY;
    if (made != PLAN_NOBODY) {
        const char *base = plan_base_path(&hunt->index->plan->operations[made]);
        if (!base || strlen(base) > PLAN_MAX_PATH)
            return 0; /* a new directory: the plan has all its names */
        memcpy(origin, base, strlen(base) + 1);
    } else if (n > 0 && plan_place_of(hunt->index, parent, origin, &by) != PLACE_BASE) {
        return 0;
    }
    struct plan_walk walk = {.root = tree, .top = origin, .visit = meet, .context = hunt};
    /* A directory that is none any more is found by a rule of its own. */
    return plan_walk(&walk, &err) == 0 || err.os_errno == ENOENT || err.os_errno == ENOTDIR ||
                   err.os_errno == ELOOP
               ? 0
               : -1;
}

static bool brings_a_name(const struct plan_operation *operation)
{
    const char *base = plan_base_path(operation);

    return operation->kind != PLAN_DELETE && (!base || strcmp(base, operation->path) != 0);
}

int plan_facts_twins(struct plan_facts *facts, const struct plan_index *index, int tree,
                     struct err *err)
{
    const struct plan *plan = index->plan;
    struct newcomer *all = calloc(plan->count + 1, sizeof(*all));
    uint64_t names = MOST_NAMES;
    size_t n = 0;

    if (!all)
        return err_set(err, ERR_LIMIT, ENOMEM, "look for names that differ in case only");
    for (size_t i = 0; i < plan->count; i++) {
        if (brings_a_name(&plan->operations[i]))
            all[n++] = (struct newcomer){plan->operations[i].path, (uint32_t)i};
    }
    qsort(all, n, sizeof(*all), compare_newcomers);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && compare_parents(all[from].path, all[to].path) == 0; to++)
            ;
        struct hunt hunt = {.facts = facts,
                            .index = index,
                            .among = all + from,
                            .count = to - from,
                            .names = &names};
        if (hunt_directory(&hunt, tree) < 0)
            facts->twins_unknown = true;
    }
    free(all);
    return 0;
}
