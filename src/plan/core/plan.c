/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"

enum {
    MOST_TEXT = 2 * PLAN_MAX_BYTES, /* of all names in memory */
    MOST_FLAWS = 10000,
};

const char *const plan_kind_names[PLAN_KIND_COUNT_] = {
    [PLAN_MKDIR] = "mkdir",     [PLAN_CREATE] = "create", [PLAN_WRITE] = "write",
    [PLAN_SYMLINK] = "symlink", [PLAN_MOVE] = "move",     [PLAN_DELETE] = "delete",
    [PLAN_CHMOD] = "chmod",
};

const char *const plan_flaw_names[PLAN_FLAW_COUNT_] = {
    [PLAN_FLAW_FIFO] = "fifo",
    [PLAN_FLAW_SOCKET] = "socket",
    [PLAN_FLAW_DEVICE] = "device",
    [PLAN_FLAW_SETID] = "setid",
    [PLAN_FLAW_CAPABILITY] = "capability",
    [PLAN_FLAW_RESERVED] = "reserved",
    [PLAN_FLAW_UNREADABLE] = "unreadable",
    [PLAN_FLAW_TOO_LARGE] = "too_large",
    [PLAN_FLAW_LOST] = "lost",
    [PLAN_FLAW_ATTRIBUTES] = "attributes",
    [PLAN_FLAW_OTHER_NAME] = "other_name",
};

const char *const plan_flaw_words[PLAN_FLAW_COUNT_] = {
    [PLAN_FLAW_FIFO] = "is a FIFO, which no plan carries: remove it and derive the plan again",
    [PLAN_FLAW_SOCKET] = "is a socket, which no plan carries: remove it and derive the plan again",
    [PLAN_FLAW_DEVICE] = "is a device, which no plan carries: remove it and derive the plan again",
    [PLAN_FLAW_SETID] = "has a setuid, setgid or sticky bit: take it off and derive the plan again",
    [PLAN_FLAW_CAPABILITY] =
        "grants capabilities to the user who runs it: write the file again without them",
    [PLAN_FLAW_RESERVED] = "is a name that Carrel keeps for itself: choose another",
    [PLAN_FLAW_UNREADABLE] = "cannot be read by its owner: give it a mode that lets it be read",
    [PLAN_FLAW_TOO_LARGE] = ("is larger than a plan carries (64 GiB, and 8 GiB of holes in all its "
                             "files): keep it out of the workspace"),
    [PLAN_FLAW_LOST] =
        "has content that cannot be told from this layer: discard the plan and run it again",
    [PLAN_FLAW_ATTRIBUTES] =
        "is a directory of the base with other attributes, which no plan carries: set them back",
    [PLAN_FLAW_OTHER_NAME] =
        "was changed through another name, which is gone: discard the plan and use one that stays",
};

void plan_init(struct plan *plan)
{
    *plan = (struct plan){0};
    arena_init(&plan->arena, MOST_TEXT);
}

void plan_clear(struct plan *plan)
{
    free(plan->operations);
    free(plan->flaws);
    arena_clear(&plan->arena);
    *plan = (struct plan){0};
}

/* Doubles: at 16, 32, 64 … of them there is room for as many again. */
static void *grown(void *items, size_t count, size_t size)
{
    if (count != 0 && (count < 16 || (count & (count - 1)) != 0))
        return items;
    return reallocarray(items, count == 0 ? 16 : 2 * count, size);
}

struct plan_operation *plan_add(struct plan *plan, struct err *err)
{
    if (plan->count >= PLAN_MAX_OPERATIONS) {
        (void)err_set(err, ERR_LIMIT, 0, "a plan has at most %d operations", PLAN_MAX_OPERATIONS);
        return NULL;
    }
    struct plan_operation *all = grown(plan->operations, plan->count, sizeof(plan->operations[0]));
    if (!all) {
        (void)err_set(err, ERR_LIMIT, ENOMEM, "keep the plan's operations");
        return NULL;
    }
    plan->operations = all;
    all[plan->count] = (struct plan_operation){0};
    return &all[plan->count++];
}

int plan_add_flaw(struct plan *plan, enum plan_flaw_kind kind, const char *path, struct err *err)
{
    if (plan->flaw_count >= MOST_FLAWS)
        return err_set(err, ERR_LIMIT, 0,
                       "the layer holds more than %d things that no plan carries, '%s' among them",
                       MOST_FLAWS, path);
    struct plan_flaw *all = grown(plan->flaws, plan->flaw_count, sizeof(plan->flaws[0]));
    if (all)
        plan->flaws = all;
    char *copy = all ? arena_copy(&plan->arena, path, strlen(path)) : NULL;
    if (!copy)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep the plan's flaws");
    all[plan->flaw_count++] = (struct plan_flaw){.path = copy, .kind = kind};
    return 0;
}

const char *plan_base_path(const struct plan_operation *operation)
{
    if (!operation->has_base)
        return NULL;
    return operation->from ? operation->from : operation->path;
}

int plan_compare_paths(const char *a, const char *b)
{
    const unsigned char *x = (const unsigned char *)a;
    const unsigned char *y = (const unsigned char *)b;

    while (*x && *x == *y) {
        x++;
        y++;
    }
    int left = *x == '/' ? 1 : *x ? *x + 1 : 0;
    int right = *y == '/' ? 1 : *y ? *y + 1 : 0;
    return left - right;
}

bool plan_is_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);

    return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Deletes behind what comes in their place: a search finds the first of a path. */
static int compare_operations(const void *a, const void *b)
{
    const struct plan_operation *x = a;
    const struct plan_operation *y = b;
    int order = plan_compare_paths(x->path, y->path);

    return order ? order : (int)x->kind - (int)y->kind;
}

const struct plan_operation *plan_find_final(const struct plan *plan, const char *path)
{
    size_t from = 0;
    size_t to = plan->count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (plan_compare_paths(plan->operations[middle].path, path) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    for (; from < plan->count && strcmp(plan->operations[from].path, path) == 0; from++) {
        if (plan->operations[from].kind != PLAN_DELETE)
            return &plan->operations[from];
    }
    return NULL;
}

static int compare_flaws(const void *a, const void *b)
{
    const struct plan_flaw *x = a;
    const struct plan_flaw *y = b;
    int order = plan_compare_paths(x->path, y->path);

    return order ? order : (int)x->kind - (int)y->kind;
}

static int compare_texts(const void *a, const void *b)
{
    return plan_compare_paths(*(const char *const *)a, *(const char *const *)b);
}

static int refuse_twins(const struct plan *plan, struct err *err)
{
    const char **bases = reallocarray(NULL, plan->count + 1, sizeof(bases[0]));
    const struct plan_operation *last = NULL; /* that is no delete */
    size_t n = 0;
    int r = 0;

    if (!bases)
        return err_set(err, ERR_LIMIT, ENOMEM, "compare the plan's operations");
    for (size_t i = 0; i < plan->count && r == 0; i++) {
        const struct plan_operation *operation = &plan->operations[i];
        const char *base = plan_base_path(operation);
        if (base)
            bases[n++] = base;
        if (operation->kind == PLAN_DELETE)
            continue;
        if (last && plan_compare_paths(last->path, operation->path) == 0)
            r = err_set(err, ERR_INVALID, 0, "two operations of the plan are for '%s'",
                        operation->path);
        last = operation;
    }
    qsort(bases, n, sizeof(bases[0]), compare_texts);
    for (size_t i = 1; i < n && r == 0; i++) {
        if (plan_compare_paths(bases[i - 1], bases[i]) == 0)
            r = err_set(err, ERR_INVALID, 0, "two operations of the plan take '%s'", bases[i]);
    }
    free(bases);
    return r;
}

int plan_put_in_order(struct plan *plan, struct err *err)
{
    if (plan->count > 0)
        qsort(plan->operations, plan->count, sizeof(plan->operations[0]), compare_operations);
    if (plan->flaw_count > 0)
        qsort(plan->flaws, plan->flaw_count, sizeof(plan->flaws[0]), compare_flaws);
    plan->bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_operation *operation = &plan->operations[i];
        if (operation->has_hash && !operation->link &&
            __builtin_add_overflow(plan->bytes, operation->size, &plan->bytes))
            return err_set(err, ERR_LIMIT, 0, "the plan's content has no size");
    }
    return refuse_twins(plan, err);
}

bool plan_is_unfinished(const char *path)
{
    static const char unfinished[] = CARREL_HIDDEN "/" CARREL_UNFINISHED;

    return strncmp(path, unfinished, sizeof(unfinished) - 1) == 0;
}

bool plan_is_reserved(const char *path)
{
    return name_kind(path) != NAME_FREE;
}

int plan_check_path(const char *path, size_t n, struct err *err)
{
    if (n == 0 || memchr(path, '\0', n))
        return err_set(err, ERR_INVALID, 0, "a path of the plan is %s",
                       n == 0 ? "empty" : "not a path: it has a NUL in it");
    if (n > PLAN_MAX_PATH)
        return err_set(err, ERR_INVALID, 0, "the path '%.40s…' is longer than %d bytes", path,
                       PLAN_MAX_PATH);
    for (const char *name = path; name <= path + n;) {
        const char *end = memchr(name, '/', (size_t)(path + n - name));
        size_t length = (size_t)((end ? end : path + n) - name);
        if (length == 0 || (length == 1 && name[0] == '.') ||
            (length == 2 && memcmp(name, "..", 2) == 0))
            return err_set(err, ERR_INVALID, 0,
                           "the path '%.*s' has an empty, '.' or '..' component", (int)n, path);
        if (length > PLAN_MAX_NAME)
            return err_set(err, ERR_INVALID, 0,
                           "a name in the path '%.40s…' is longer than %d bytes", path,
                           PLAN_MAX_NAME);
        name += length + 1;
    }
    const char *slash = memchr(path, '/', n);
    size_t top = slash ? (size_t)(slash - path) : n;
    if (name_kind_n(path, top) != NAME_FREE)
        return err_set(err, ERR_INVALID, 0,
                       "'%.*s' is a name that Carrel keeps for itself: no plan can touch '%.*s'",
                       (int)top, path, (int)n, path);
    return 0;
}

static int64_t nanoseconds(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

int64_t plan_mtime(const struct stat *st)
{
    return nanoseconds(&st->st_mtim);
}

void plan_identify(struct plan_identity *ret, const struct stat *st)
{
    *ret = (struct plan_identity){.dev = st->st_dev,
                                  .ino = st->st_ino,
                                  .size = (uint64_t)st->st_size,
                                  .mtime_ns = nanoseconds(&st->st_mtim),
                                  .ctime_ns = nanoseconds(&st->st_ctim),
                                  .mode = st->st_mode};
}
