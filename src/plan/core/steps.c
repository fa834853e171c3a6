/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/steps.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MOST_TEXT = 512 << 20, /* of all paths: bounded by what a plan may hold, twice over */
    UNLOCKED = 0700,
    SPECIAL = 07000,
    PERMISSIONS = 0777,
};

void steps_init(struct steps *steps)
{
    *steps = (struct steps){0};
    arena_init(&steps->arena, MOST_TEXT);
}

void steps_clear(struct steps *steps)
{
    free(steps->items);
    free(steps->directories);
    arena_clear(&steps->arena);
    *steps = (struct steps){0};
}

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, 0, "no memory for the plan's steps");
}

struct step *steps_add(struct steps *steps, struct err *err)
{
    if (steps->count == steps->room) {
        size_t room = steps->room ? 2 * steps->room : 64;
        struct step *items = reallocarray(steps->items, room, sizeof(*items));
        if (!items) {
            (void)no_memory(err);
            return NULL;
        }
        steps->items = items;
        steps->room = room;
    }
    struct step *step = &steps->items[steps->count++];
    *step = (struct step){.operation = STEP_NO_OPERATION};
    return step;
}

bool steps_is_made(const struct plan_operation *operation)
{
    return operation->kind == PLAN_MKDIR || operation->kind == PLAN_SYMLINK ||
           ((operation->kind == PLAN_CREATE || operation->kind == PLAN_WRITE) && operation->link);
}

/* A plain move: the base's object itself goes in. */
static bool carries_base(const struct plan_operation *operation)
{
    return operation->kind == PLAN_MOVE && !operation->has_hash;
}

/* Where the object that the operation makes waits; "slots/N.base" for a plain move. */
static const char *find_new_home(struct arena *arena, const struct plan *plan, size_t operation)
{
    const struct plan_operation *o = &plan->operations[operation];

    if (carries_base(o))
        return arena_printf(arena, "slots/%zu.base", operation);
    if (steps_is_made(o))
        return arena_printf(arena, "slots/%zu", operation);
    return arena_printf(arena, "upper/%s", o->path);
}

static bool is_exchange(const struct layout *layout, size_t operation)
{
    const struct plan_operation *o = &layout->plan->operations[operation];

    return (o->kind == PLAN_WRITE || o->kind == PLAN_SYMLINK) && o->has_base &&
           layout_same_place(layout, operation);
}

static const char *find_base_home(struct arena *arena, const struct layout *layout,
                                  size_t operation)
{
    if (is_exchange(layout, operation))
        return find_new_home(arena, layout->plan, operation);
    return arena_printf(arena, "slots/%zu.base", operation);
}

struct compilation {
    struct steps *steps;
    const struct layout *layout;
    const char *from;
    const char *to;
    struct err *err;
    const char *last; /* directory whose needs are noted */
    uint32_t last_bits;
};

static int add(struct compilation *c, const struct step *like)
{
    struct step *step = steps_add(c->steps, c->err);

    if (!step)
        return -1;
    *step = *like;
    return like->path && like->home ? 0 : no_memory(c->err);
}

static char *keep(struct compilation *c, const char *text)
{
    return arena_copy(&c->steps->arena, text, strlen(text));
}

static uint32_t special_bits(const struct plan_operation *o)
{
    return S_ISDIR(o->base.mode) ? o->base.mode & SPECIAL : 0;
}

static int add_mode(struct compilation *c, size_t i, const char *path, const char *now,
                    const uint32_t modes[2])
{
    struct step step = {.kind = STEP_MODE,
                        .operation = (uint32_t)i,
                        .old_mode = modes[0],
                        .mode = modes[1],
                        .path = path,
                        .home = "",
                        .now = now};

    step.completes = c->layout->plan->operations[i].kind == PLAN_CHMOD;
    return add(c, &step);
}

/* The mode that the object has in the end, where the rename does not bring it along. */
static int compile_mode(struct compilation *c, size_t i, const char *now, const char *next)
{
    const struct plan_operation *o = &c->layout->plan->operations[i];
    bool forward = c->to[i];
    uint32_t base = o->base.mode & (SPECIAL | PERMISSIONS);
    uint32_t final = (o->mode & PERMISSIONS) | special_bits(o);

    if (o->kind == PLAN_MKDIR && forward)
        return add_mode(c, i, next, NULL, (uint32_t[]){UNLOCKED, o->mode & PERMISSIONS});
    if (carries_base(o) && base != final)
        return add_mode(c, i, next, now,
                        forward ? (uint32_t[]){base, final} : (uint32_t[]){final, base});
    /* It has been unlocked to be taken out. */
    if (o->kind == PLAN_DELETE && !forward && S_ISDIR(o->base.mode) && (base & 0300) != 0300)
        return add_mode(c, i, next, NULL, (uint32_t[]){base | UNLOCKED, base});
    return 0;
}

static int compile_chmod(struct compilation *c, size_t i)
{
    const struct plan_operation *o = &c->layout->plan->operations[i];
    uint32_t base = o->base.mode & (SPECIAL | PERMISSIONS);
    uint32_t final = (o->mode & PERMISSIONS) | special_bits(o);
    char now[PLAN_MAX_PATH + 1];
    char next[PLAN_MAX_PATH + 1];

    if (!layout_same_place(c->layout, i))
        return err_set(c->err, ERR_INVALID, 0, "the plan changes the mode of '%s' and its place",
                       o->path);
    if (!layout_locate(c->layout, c->from, plan_base_path(o), now) ||
        !layout_locate(c->layout, c->to, plan_base_path(o), next))
        return err_set(c->err, ERR_INVALID, 0, "the plan changes the mode of '%s' and deletes it",
                       o->path);
    return add_mode(c, i, keep(c, next), keep(c, now),
                    c->to[i] ? (uint32_t[]){base, final} : (uint32_t[]){final, base});
}

static int compile_link(struct compilation *c, size_t i)
{
    const struct plan_operation *o = &c->layout->plan->operations[i];
    char base[PLAN_MAX_PATH + 1];
    char now[PLAN_MAX_PATH + 1];

    if (!layout_origin(c->layout, c->to, o->link, base) ||
        !layout_locate(c->layout, c->from, base, now))
        return err_set(c->err, ERR_INVALID, 0, "'%s' is to be the same file as '%s', which is none",
                       o->path, o->link);
    struct step step = {.kind = STEP_LINK,
                        .operation = (uint32_t)i,
                        .path = keep(c, now),
                        .home = find_new_home(&c->steps->arena, c->layout->plan, i)};
    return add(c, &step);
}

static int compile_exchange(struct compilation *c, size_t i, const char *path, const char *home)
{
    struct step exchange = {.kind = STEP_EXCHANGE,
                            .operation = (uint32_t)i,
                            .completes = true,
                            .path = path,
                            .home = home};

    return add(c, &exchange);
}

static int compile_operation(struct compilation *c, size_t i)
{
    const struct plan_operation *o = &c->layout->plan->operations[i];
    struct arena *arena = &c->steps->arena;
    bool forward = c->to[i];
    const char *base = plan_base_path(o);
    char place[PLAN_MAX_PATH + 1];

    if (o->kind == PLAN_CHMOD)
        return compile_chmod(c, i);
    if (base && !layout_locate(c->layout, forward ? c->from : c->to, base, place))
        return err_set(c->err, ERR_INVALID, 0, "the plan takes '%s' out of what it deletes", base);
    const char *old = base ? keep(c, place) : NULL;
    const char *new = o->kind == PLAN_DELETE ? NULL : o->path;
    const char *old_home = base ? find_base_home(arena, c->layout, i) : NULL;
    const char *new_home = new ? find_new_home(arena, c->layout->plan, i) : NULL;
    struct step out = {.kind = STEP_OUT, .operation = (uint32_t)i};
    struct step in = {.kind = STEP_IN, .operation = (uint32_t)i};

    if (is_exchange(c->layout, i))
        return compile_exchange(c, i, forward ? old : new, new_home);
    out.path = forward ? old : new;
    out.home = forward ? old_home : new_home;
    out.is_directory = S_ISDIR(forward ? o->base.mode : o->mode);
    in.path = forward ? new : old;
    in.home = forward ? new_home : old_home;
    in.is_directory = S_ISDIR(forward ? o->mode : o->base.mode);
    if (carries_base(o))
        out.home = in.home = old_home;
    in.completes = in.path != NULL;
    out.completes = !in.completes;
    if (out.path && add(c, &out) < 0)
        return -1;
    if (in.path && add(c, &in) < 0)
        return -1;
    return in.path ? compile_mode(c, i, out.path, in.path) : 0;
}

/* Deepest first where something leaves or gets its last mode. */
static int by_phase(const void *a, const void *b)
{
    const struct step *x = a;
    const struct step *y = b;

    if (x->kind != y->kind)
        return (int)x->kind - (int)y->kind;
    int order = plan_compare_paths(x->path, y->path);
    return x->kind == STEP_OUT || x->kind == STEP_MODE ? -order : order;
}

void steps_sort(struct steps *steps)
{
    if (steps->count > 0)
        qsort(steps->items, steps->count, sizeof(steps->items[0]), by_phase);
}

static int need(struct compilation *c, const char *path, uint32_t bits)
{
    struct steps *s = c->steps;

    if (s->directory_count == s->directory_room) {
        size_t room = s->directory_room ? 2 * s->directory_room : 64;
        struct step_directory *all = reallocarray(s->directories, room, sizeof(*all));
        if (!all)
            return no_memory(c->err);
        s->directories = all;
        s->directory_room = room;
    }
    char *copy = keep(c, path);
    if (!copy)
        return no_memory(c->err);
    s->directories[s->directory_count++] = (struct step_directory){.path = copy, .need = bits};
    return 0;
}

/* A directory, where it lies now, and those above it. Neighbours share one. */
static int need_directory(struct compilation *c, const char *path, uint32_t bits)
{
    char above[PLAN_MAX_PATH + 1];

    if (c->last && c->last_bits == bits && strcmp(c->last, path) == 0)
        return 0;
    if (need(c, path, bits) < 0)
        return -1;
    c->last = c->steps->directories[c->steps->directory_count - 1].path;
    c->last_bits = bits;
    for (path = c->last; path[0] != '\0'; path = above) {
        layout_parent(path, above);
        if (need(c, above, 0100) < 0)
            return -1;
    }
    return 0;
}

static int need_parent(struct compilation *c, const char *path, uint32_t bits)
{
    char parent[PLAN_MAX_PATH + 1];

    layout_parent(path, parent);
    return need_directory(c, parent, bits);
}

/* A directory that changes its parent is written, too: its "..". One that the plan made is counted
 * when it goes. */
static uint32_t bits_to_leave(const struct compilation *c, const struct step *step)
{
    return step->operation != STEP_NO_OPERATION &&
                   c->layout->plan->operations[step->operation].kind == PLAN_MKDIR
               ? 0700
               : 0300;
}

static int need_for_step(struct compilation *c, const struct step *step)
{
    char base[PLAN_MAX_PATH + 1];
    char parent[PLAN_MAX_PATH + 1];

    switch (step->kind) {
    case STEP_LINK:
    case STEP_EXCHANGE:
        return need_parent(c, step->path, step->kind == STEP_LINK ? 0100 : 0300);
    case STEP_OUT:
        if (step->is_directory && need(c, step->path, bits_to_leave(c, step)) < 0)
            return -1;
        return need_parent(c, step->path, 0300);
    case STEP_IN:
        layout_parent(step->path, parent);
        if (!layout_origin(c->layout, c->to, parent, base))
            return 0; /* made by the plan itself: unlocked until the end */
        if (!layout_locate(c->layout, c->from, base, parent))
            return 0; /* restored: it was unlocked when it was taken out */
        return need_directory(c, parent, 0300);
    case STEP_MODE:
        return step->now ? need_parent(c, step->now, 0100) : 0;
    case STEP_UNLOCK:
    case STEP_MARK:
    case STEP_COUNT_:
        break;
    }
    return 0;
}

static int by_directory(const void *a, const void *b)
{
    return plan_compare_paths(((const struct step_directory *)a)->path,
                              ((const struct step_directory *)b)->path);
}

static void merge_directories(struct steps *s)
{
    size_t n = 0;

    if (s->directory_count > 0)
        qsort(s->directories, s->directory_count, sizeof(s->directories[0]), by_directory);
    for (size_t i = 0; i < s->directory_count; i++) {
        if (n > 0 && strcmp(s->directories[n - 1].path, s->directories[i].path) == 0)
            s->directories[n - 1].need |= s->directories[i].need;
        else
            s->directories[n++] = s->directories[i];
    }
    s->directory_count = n;
}

int steps_compile(struct steps *steps, const struct layout *layout, const char *from,
                  const char *to, struct err *err)
{
    struct compilation c = {.steps = steps, .layout = layout, .from = from, .to = to, .err = err};
    struct step mark = {
        .kind = STEP_MARK, .operation = STEP_NO_OPERATION, .path = "", .home = "slots/mark"};

    for (size_t i = 0; i < layout->plan->count; i++) {
        const struct plan_operation *o = &layout->plan->operations[i];
        if (from[i] == to[i])
            continue;
        if (to[i] && steps_is_made(o) && o->link && !o->has_hash && compile_link(&c, i) < 0)
            return -1;
        if (compile_operation(&c, i) < 0)
            return -1;
    }
    if (steps->count == 0)
        return 0;
    if (add(&c, &mark) < 0)
        return -1;
    steps_sort(steps);
    for (size_t i = 0; i < steps->count; i++) {
        if (need_for_step(&c, &steps->items[i]) < 0)
            return -1;
    }
    merge_directories(steps);
    return 0;
}

static const struct step_directory *directory_at(const struct steps *s, const char *path)
{
    struct step_directory key = {.path = path};

    if (!path || s->directory_count == 0)
        return NULL;
    return bsearch(&key, s->directories, s->directory_count, sizeof(key), by_directory);
}

/* What it had, at the end, where it lies then. */
static int relock(struct compilation *c, const struct step_directory *d)
{
    char base[PLAN_MAX_PATH + 1];
    char next[PLAN_MAX_PATH + 1];
    struct step step = {.kind = STEP_MODE,
                        .operation = STEP_NO_OPERATION,
                        .mode = d->mode,
                        .old_mode = d->mode | UNLOCKED,
                        .ino = d->ino,
                        .home = ""};

    if (layout_origin(c->layout, c->from, d->path, base)) {
        if (!layout_locate(c->layout, c->to, base, next))
            return 0; /* goes away */
        step.path = keep(c, next);
    } else {
        long made = layout_at_path(c->layout, d->path);
        if (made < 0 || !c->to[made])
            return 0;
        step.path = d->path; /* stays where it is: its place in the final tree */
    }
    return add(c, &step);
}

static int unlock(struct compilation *c, const struct step_directory *d, bool has_own_mode)
{
    struct step step = {.kind = STEP_UNLOCK,
                        .operation = STEP_NO_OPERATION,
                        .old_mode = d->mode,
                        .mode = d->mode | UNLOCKED,
                        .ino = d->ino,
                        .path = d->path,
                        .home = ""};

    if ((d->mode & d->need) == d->need)
        return 0;
    if (add(c, &step) < 0)
        return -1;
    return has_own_mode ? 0 : relock(c, d);
}

int steps_unlock(struct steps *steps, const struct layout *layout, const char *from, const char *to,
                 struct err *err)
{
    struct compilation c = {.steps = steps, .layout = layout, .from = from, .to = to, .err = err};
    bool *own = calloc(steps->directory_count + 1, sizeof(*own)); /* gets its mode by operation */
    int r = 0;

    if (!own)
        return no_memory(err);
    for (size_t i = 0; i < steps->count; i++) {
        struct step *step = &steps->items[i];
        const struct step_directory *d =
            step->kind == STEP_MODE ? directory_at(steps, step->now) : NULL;
        if (!d)
            continue;
        own[d - steps->directories] = true;
        if ((d->mode & d->need) != d->need)
            step->old_mode = d->mode | UNLOCKED;
    }
    for (size_t at = 0; at < steps->directory_count && r == 0; at++)
        r = unlock(&c, &steps->directories[at], own[at]);
    free(own);
    steps_sort(steps);
    return r;
}

int steps_add_lock(struct steps *steps, const char *path, uint32_t mode, uint64_t ino,
                   struct err *err)
{
    struct step *step = steps_add(steps, err);
    char *copy = arena_copy(&steps->arena, path, strlen(path));

    if (!step || !copy)
        return no_memory(err);
    *step = (struct step){.kind = STEP_MODE,
                          .operation = STEP_NO_OPERATION,
                          .mode = mode,
                          .old_mode = mode | UNLOCKED,
                          .ino = ino,
                          .path = copy,
                          .home = ""};
    return 0;
}
