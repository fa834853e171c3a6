/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/layout.h"

#include <stdlib.h>
#include <string.h>

static int by_path(const void *a, const void *b, void *plan)
{
    const struct plan_operation *operations = ((const struct plan *)plan)->operations;

    return plan_compare_paths(operations[*(const uint32_t *)a].path,
                              operations[*(const uint32_t *)b].path);
}

static int by_base(const void *a, const void *b, void *plan)
{
    const struct plan_operation *operations = ((const struct plan *)plan)->operations;

    return plan_compare_paths(plan_base_path(&operations[*(const uint32_t *)a]),
                              plan_base_path(&operations[*(const uint32_t *)b]));
}

static const char *path_of(const struct plan_operation *operation)
{
    return operation->path;
}

/* In this order everything below a directory follows it, so the one before, or one above that, is
 * the nearest above. */
static void find_above(struct layout_order *order, const struct plan *plan)
{
    for (size_t i = 0; i < order->count; i++) {
        const char *path = order->key(&plan->operations[order->at[i]]);
        int32_t above = (int32_t)i - 1;
        while (above >= 0 && !plan_is_below(path, order->key(&plan->operations[order->at[above]])))
            above = order->above[above];
        order->above[i] = above;
        order->lengths[i] = (uint16_t)strlen(path);
    }
}

static bool order_make(struct layout_order *order, size_t count)
{
    order->at = calloc(count + 1, sizeof(order->at[0]));
    order->above = calloc(count + 1, sizeof(order->above[0]));
    order->lengths = calloc(count + 1, sizeof(order->lengths[0]));
    return order->at && order->above && order->lengths;
}

static void order_clear(struct layout_order *order)
{
    free(order->at);
    free(order->above);
    free(order->lengths);
}

int layout_init(struct layout *layout, const struct plan *plan, struct err *err)
{
    struct plan shallow = *plan; /* qsort_r wants it without const */

    *layout = (struct layout){.plan = plan, .paths.key = path_of, .bases.key = plan_base_path};
    if (!order_make(&layout->paths, plan->count) || !order_make(&layout->bases, plan->count)) {
        layout_clear(layout);
        return err_set(err, ERR_LIMIT, 0, "no memory for a plan of %zu operations", plan->count);
    }
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->operations[i].kind != PLAN_DELETE)
            layout->paths.at[layout->paths.count++] = (uint32_t)i;
        if (plan_base_path(&plan->operations[i]))
            layout->bases.at[layout->bases.count++] = (uint32_t)i;
    }
    qsort_r(layout->paths.at, layout->paths.count, sizeof(uint32_t), by_path, &shallow);
    qsort_r(layout->bases.at, layout->bases.count, sizeof(uint32_t), by_base, &shallow);
    find_above(&layout->paths, plan);
    find_above(&layout->bases, plan);
    return 0;
}

void layout_clear(struct layout *layout)
{
    order_clear(&layout->paths);
    order_clear(&layout->bases);
    *layout = (struct layout){0};
}

/* How many in the order are before the path, `with_below` also at it or below it. */
static size_t count_before(const struct layout *l, const struct layout_order *order,
                           const char *path, bool with_below)
{
    size_t low = 0;
    size_t high = order->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *there = order->key(&l->plan->operations[order->at[middle]]);
        if (plan_compare_paths(there, path) < 0 || (with_below && plan_is_below(there, path)))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct layout_range layout_below(const struct layout *layout, const struct layout_order *order,
                                 const char *path)
{
    return (struct layout_range){count_before(layout, order, path, false),
                                 count_before(layout, order, path, true)};
}

/* The operations at a path and above it, the nearest first. One search finds them all: each is
 * above the last that is not behind the path. Then only lengths are compared. */
struct climb {
    const struct layout_order *order;
    const char *path;
    int32_t next;
    size_t common; /* so much of the path that first one has too */
};

static struct climb climb_from(const struct layout *l, const struct layout_order *order,
                               const char *path)
{
    struct climb climb = {.order = order, .path = path};
    size_t n = count_before(l, order, path, false);

    if (n < order->count && strcmp(order->key(&l->plan->operations[order->at[n]]), path) == 0)
        n++;
    climb.next = (int32_t)n - 1;
    if (climb.next < 0)
        return climb;
    const char *there = order->key(&l->plan->operations[order->at[climb.next]]);
    while (path[climb.common] && path[climb.common] == there[climb.common])
        climb.common++;
    return climb;
}

/* LAYOUT_NONE at the end; `ret_length` of the path is what the operation is at. */
static long climb_next(struct climb *climb, size_t *ret_length)
{
    while (climb->next >= 0) {
        int32_t i = climb->next;
        size_t n = climb->order->lengths[i];
        climb->next = climb->order->above[i];
        if (n <= climb->common && (climb->path[n] == '/' || climb->path[n] == '\0')) {
            *ret_length = n;
            return (long)climb->order->at[i];
        }
    }
    return LAYOUT_NONE;
}

static long find(const struct layout *l, const struct layout_order *order, const char *path)
{
    size_t n = count_before(l, order, path, false);

    if (n == order->count)
        return LAYOUT_NONE;
    return strcmp(order->key(&l->plan->operations[order->at[n]]), path) == 0 ? (long)order->at[n]
                                                                             : LAYOUT_NONE;
}

long layout_at_path(const struct layout *layout, const char *path)
{
    return find(layout, &layout->paths, path);
}

long layout_at_base(const struct layout *layout, const char *base)
{
    return find(layout, &layout->bases, base);
}

/* How long the path is that holds this one: "a/b" of "a/b/c", then "a", then 0. */
static size_t shorter(const char *path, size_t n)
{
    while (n > 0 && path[n - 1] != '/')
        n--;
    return n > 0 ? n - 1 : 0;
}

static bool join(const char *top, const char *rest, char *path)
{
    if (strlen(top) + strlen(rest) > PLAN_MAX_PATH)
        return false;
    (void)stpcpy(stpcpy(path, top), rest); /* fits: see above */
    return true;
}

bool layout_locate(const struct layout *layout, const char *set, const char *base, char *path)
{
    struct climb climb = climb_from(layout, &layout->bases, base);
    size_t n;

    for (long i; (i = climb_next(&climb, &n)) >= 0;) {
        if (!set[i])
            continue;
        const struct plan_operation *operation = &layout->plan->operations[i];
        return operation->kind != PLAN_DELETE && join(operation->path, base + n, path);
    }
    return join("", base, path);
}

bool layout_origin(const struct layout *layout, const char *set, const char *path, char *base)
{
    struct climb climb = climb_from(layout, &layout->paths, path);
    size_t n;

    for (long i; (i = climb_next(&climb, &n)) >= 0;) {
        if (!set[i])
            continue;
        const char *origin = plan_base_path(&layout->plan->operations[i]);
        return origin && join(origin, path + n, base);
    }
    return join("", path, base);
}

void layout_parent(const char *path, char *parent)
{
    size_t n = shorter(path, strlen(path));

    memmove(parent, path, n); /* may be the same place */
    parent[n] = '\0';
}

const char *layout_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The directory that holds `path` in the final tree of the whole plan, by its path in the base. */
static bool origin_of_parent(const struct layout *l, const char *path, char *base)
{
    struct climb climb = climb_from(l, &l->paths, path);
    size_t n;

    for (long i; (i = climb_next(&climb, &n)) >= 0;) {
        if (path[n] == '\0')
            continue; /* what is there itself */
        const char *origin = plan_base_path(&l->plan->operations[i]);
        if (!origin || !join(origin, path + n, base))
            return false;
        *strrchr(base + strlen(origin), '/') = '\0';
        return true;
    }
    layout_parent(path, base);
    return true;
}

bool layout_same_place(const struct layout *layout, size_t operation)
{
    const struct plan_operation *o = &layout->plan->operations[operation];
    const char *base = plan_base_path(o);
    char parent[PLAN_MAX_PATH + 1];
    char held_by[PLAN_MAX_PATH + 1];

    if (!base || strcmp(layout_name(base), layout_name(o->path)) != 0)
        return false;
    if (!origin_of_parent(layout, o->path, held_by))
        return false;
    layout_parent(base, parent);
    return strcmp(parent, held_by) == 0;
}

/* Those to be taken out for one that was; each at most once on the stack. */
struct exclusion {
    const struct layout *layout;
    char *set;
    uint32_t *why;
    uint32_t *stack;
    size_t depth;
};

static void take_out(struct exclusion *x, long operation, size_t because)
{
    if (operation < 0 || !x->set[operation])
        return;
    x->set[operation] = 0;
    if (x->why)
        x->why[operation] = (uint32_t)because;
    x->stack[x->depth++] = (uint32_t)operation;
}

static void take_out_below(struct exclusion *x, size_t operation)
{
    const struct layout_order *order = &x->layout->paths;
    struct layout_range range =
        layout_below(x->layout, order, x->layout->plan->operations[operation].path);

    for (size_t at = range.from; at < range.to; at++) {
        if (order->at[at] != operation)
            take_out(x, (long)order->at[at], operation);
    }
}

static void take_out_deletions_above(struct exclusion *x, size_t operation, const char *base)
{
    struct climb climb = climb_from(x->layout, &x->layout->bases, base);
    size_t n;

    for (long i; (i = climb_next(&climb, &n)) >= 0;) {
        if (base[n] != '\0' && x->layout->plan->operations[i].kind == PLAN_DELETE)
            take_out(x, i, operation);
    }
}

int layout_exclude(const struct layout *layout, char *set, const char *out, uint32_t *why,
                   struct err *err)
{
    const struct plan *plan = layout->plan;
    struct exclusion x = {.layout = layout, .set = set, .why = why};
    char path[PLAN_MAX_PATH + 1];

    x.stack = calloc(plan->count + 1, sizeof(uint32_t));
    if (!x.stack)
        return err_set(err, ERR_LIMIT, 0, "no memory for a plan of %zu operations", plan->count);
    for (size_t i = 0; i < plan->count; i++) {
        if (!out[i])
            continue;
        set[i] = 1; /* also for one that was never in: its consequences are looked at */
        take_out(&x, (long)i, i);
    }
    while (x.depth > 0) {
        size_t i = x.stack[--x.depth];
        const struct plan_operation *o = &plan->operations[i];
        const char *base = plan_base_path(o);
        if (o->kind == PLAN_MKDIR || o->kind == PLAN_MOVE)
            take_out_below(&x, i);
        if (!base)
            continue;
        take_out_deletions_above(&x, i, base);
        if (layout_locate(layout, set, base, path)) {
            long there = layout_at_path(layout, path);
            if (there >= 0 && (size_t)there != i)
                take_out(&x, there, i);
        }
    }
    free(x.stack);
    return 0;
}
