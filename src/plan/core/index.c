/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* NULL: it has none. */
static const char *final_path(const struct plan_operation *operation)
{
    return operation->kind == PLAN_DELETE ? NULL : operation->path;
}

struct entry {
    const char *name;
    uint32_t operation;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    int r = plan_compare_paths(x->name, y->name);

    return r ? r : x->operation < y->operation ? -1 : x->operation > y->operation;
}

/* In this order everything below a directory follows it, so the one before, or one above that, is
 * the nearest above. */
static void find_above(struct plan_order *order)
{
    for (size_t i = 0; i < order->count; i++) {
        int32_t above = (int32_t)i - 1;
        while (above >= 0 && (strcmp(order->name[above], order->name[i]) == 0 ||
                              !plan_is_below(order->name[i], order->name[above])))
            above = order->above[above];
        order->above[i] = above;
    }
}

static int order_make(struct plan_order *ret, const struct plan *plan,
                      const char *(*path_of)(const struct plan_operation *))
{
    size_t most = plan->count + 1;
    struct entry *entries = calloc(most, sizeof(*entries));

    *ret = (struct plan_order){.at = calloc(most, sizeof(*ret->at)),
                               .above = calloc(most, sizeof(*ret->above)),
                               .name = calloc(most, sizeof(*ret->name))};
    if (!entries || !ret->at || !ret->above || !ret->name) {
        free(entries);
        return -1;
    }
    for (size_t i = 0; i < plan->count; i++) {
        const char *name = path_of(&plan->operations[i]);
        if (name)
            entries[ret->count++] = (struct entry){name, (uint32_t)i};
    }
    qsort(entries, ret->count, sizeof(*entries), compare_entries);
    for (size_t i = 0; i < ret->count; i++) {
        ret->name[i] = entries[i].name;
        ret->at[i] = entries[i].operation;
    }
    free(entries);
    find_above(ret);
    return 0;
}

static void order_clear(struct plan_order *order)
{
    free(order->at);
    free(order->above);
    free(order->name);
    *order = (struct plan_order){0};
}

int plan_index_make(struct plan_index *ret, const struct plan *plan, struct err *err)
{
    *ret = (struct plan_index){.plan = plan};
    if (plan->count > PLAN_MAX_OPERATIONS)
        return err_set(err, ERR_LIMIT, 0, "the plan has more than %d operations",
                       PLAN_MAX_OPERATIONS);
    if (order_make(&ret->after, plan, final_path) < 0 ||
        order_make(&ret->before, plan, plan_base_path) < 0) {
        plan_index_clear(ret);
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    }
    return 0;
}

void plan_index_clear(struct plan_index *index)
{
    order_clear(&index->after);
    order_clear(&index->before);
}

/* The last one that is not behind `path`, or -1. */
static ssize_t last_before(const struct plan_order *order, const char *path)
{
    size_t low = 0;
    size_t high = order->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan_compare_paths(order->name[middle], path) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return (ssize_t)low - 1;
}

static ssize_t exactly(const struct plan_order *order, const char *path)
{
    ssize_t i = last_before(order, path);

    return i >= 0 && strcmp(order->name[i], path) == 0 ? (ssize_t)order->at[i] : PLAN_NOBODY;
}

ssize_t plan_after(const struct plan_index *index, const char *path)
{
    return exactly(&index->after, path);
}

ssize_t plan_before(const struct plan_index *index, const char *path)
{
    return exactly(&index->before, path);
}

/* The operation nearest above `path`, not at it. Lengths are compared, not names, on the way up:
 * what lies above the neighbour and is not longer than what the two have in common is above both.
 */
static ssize_t nearest_above(const struct plan_order *order, const char *path)
{
    ssize_t i = last_before(order, path);
    size_t common = 0;

    while (i >= 0 && strcmp(order->name[i], path) == 0)
        i = order->above[i];
    if (i < 0)
        return PLAN_NOBODY;
    while (path[common] && path[common] == order->name[i][common])
        common++;
    for (; i >= 0; i = order->above[i]) {
        size_t n = strlen(order->name[i]);
        if (n <= common && path[n] == '/')
            return (ssize_t)order->at[i];
    }
    return PLAN_NOBODY;
}

ssize_t plan_before_or_above(const struct plan_index *index, const char *path)
{
    ssize_t by = plan_before(index, path);

    return by == PLAN_NOBODY ? nearest_above(&index->before, path) : by;
}

/* `path` with `old` at its front replaced; false: too long. */
static bool rebase(char *ret, const char *path, const char *old, const char *new)
{
    const char *rest = path + strlen(old);
    size_t n = strlen(new);
    size_t more = strlen(rest);

    if (n + more > PLAN_MAX_PATH)
        return false;
    memcpy(ret, new, n);
    memcpy(ret + n, rest, more);
    ret[n + more] = '\0';
    return true;
}

enum plan_place plan_place_of(const struct plan_index *index, const char *path, char *origin,
                              ssize_t *by)
{
    const struct plan_operation *operations = index->plan->operations;
    ssize_t above = nearest_above(&index->after, path);

    *by = above;
    origin[0] = '\0';
    if (above == PLAN_NOBODY) {
        if (strlen(path) > PLAN_MAX_PATH)
            return PLACE_GONE;
        memcpy(origin, path, strlen(path) + 1);
    } else {
        const struct plan_operation *parent = &operations[above];
        if (parent->kind == PLAN_MKDIR)
            return PLACE_NEW;
        if (!S_ISDIR(parent->mode))
            return PLACE_BLOCKED;
        const char *base = plan_base_path(parent);
        if (!base || !rebase(origin, path, parent->path, base))
            return PLACE_GONE;
    }
    ssize_t leads = nearest_above(&index->before, origin);
    if (leads != above) {
        *by = leads;
        return PLACE_GONE;
    }
    ssize_t named = plan_before(index, origin);
    if (named == PLAN_NOBODY)
        return PLACE_BASE;
    *by = named;
    bool stays = operations[named].kind != PLAN_DELETE && strcmp(operations[named].path, path) == 0;
    return stays ? PLACE_HELD : PLACE_VACATED;
}

bool plan_follow(const struct plan_index *index, const char *path, char *final)
{
    ssize_t by = plan_before_or_above(index, path);

    if (by == PLAN_NOBODY)
        return rebase(final, path, "", "");
    const struct plan_operation *operation = &index->plan->operations[by];
    if (operation->kind == PLAN_DELETE)
        return false;
    const char *base = plan_base_path(operation);
    return base && rebase(final, path, base, operation->path);
}
