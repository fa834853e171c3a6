/* SPDX-License-Identifier: Apache-2.0 */
/* A written plan held against the tree.
 *
 * All that it says is about one moment: the sources of moves and what is deleted lie in the base,
 * all other paths are in the tree as it will be. So two names can be exchanged, and the order of
 * the operations means nothing.
 *
 *   gather   sources of moves, patterns expanded; what leaves its place
 *   add      operations whose base is known by their own paths
 *   settle   directories to be made that are there; content and modes for what is in its final
 * place; collisions; parents that are missing stage    content goes to upper/, deleted directories
 * are counted */
#include "plan/derive/submit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fd.h"
#include "plan/core/content.h"
#include "plan/core/index.h"
#include "plan/core/plan.h"
#include "plan/core/tree_digest.h"
#include "plan/derive/derive.h"
#include "plan/derive/staged.h"
#include "policy/glob.h"
#include "sys/path.h"

enum {
    MOST_PATTERNS = 1000,
    MOST_LOOKED_AT = 5000000, /* names, for all patterns together */
};

/* A base object that is to leave its place. */
struct leaving {
    const char *path;
    uint32_t submitted;
    struct plan_identity identity;
};

struct submitting {
    struct plan *plan;
    struct submission submission;
    int tree;
    int dir;
    int64_t now_ns;
    struct leaving *leaving; /* sorted by path once all are known */
    size_t count;
    size_t patterns;
    size_t looked_at;
    const char **made; /* final paths of directories to be made, sorted */
    size_t made_count;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "hold the written plan against the tree");
}

/* --- the base --- */

static bool is_carried(mode_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

/* 0, or 1: there is nothing of that name. */
static int look(const struct submitting *s, const char *path, struct plan_identity *ret,
                struct err *err)
{
    scoped_fd int fd = path_open_beneath(s->tree, path, O_PATH, 1);
    struct stat st;

    if (fd == -ENOENT)
        return 1;
    if (fd == -ELOOP || fd == -ENOTDIR)
        return err_set(err, ERR_INVALID, 0, "'%s' lies behind something that is no directory%s",
                       path, fd == -ELOOP ? " but a symlink" : "");
    if (fd == -EXDEV)
        return err_set(err, ERR_INVALID, 0, "'%s' lies behind a mount", path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, fd < 0 ? -fd : errno, "look at '%s'", path);
    if (!is_carried(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "'%s' is neither a file nor a directory nor a symlink",
                       path);
    plan_identify(ret, &st);
    return 0;
}

/* The same, and something has to be there. */
static int find(const struct submitting *s, const char *path, struct plan_identity *ret,
                struct err *err)
{
    int missing = look(s, path, ret, err);

    return missing > 0 ? err_set(err, ERR_CONFLICT, 0, "'%s' is not in the tree", path) : missing;
}

/* --- what leaves its place --- */

static int add_leaving(struct submitting *s, const char *path, size_t submitted,
                       const struct plan_identity *identity, struct err *err)
{
    if (s->count >= PLAN_MAX_OPERATIONS)
        return err_set(err, ERR_LIMIT, 0, "a plan has at most %d operations", PLAN_MAX_OPERATIONS);
    if (s->count % 1024 == 0) {
        struct leaving *all = reallocarray(s->leaving, s->count + 1024, sizeof(all[0]));
        if (!all)
            return no_memory(err);
        s->leaving = all;
    }
    s->leaving[s->count++] = (struct leaving){path, (uint32_t)submitted, *identity};
    return 0;
}

struct expansion {
    struct submitting *s;
    const struct glob *glob;
    size_t submitted;
};

static int visit(void *context, struct plan_entry *entry, struct err *err)
{
    const struct expansion *e = context;
    struct plan_identity identity = {0};

    if (++e->s->looked_at > MOST_LOOKED_AT)
        return err_set(err, ERR_LIMIT, 0, "the plan's patterns look at too many files");
    if (plan_is_reserved(entry->path)) {
        entry->skip_below = true;
        return 0;
    }
    if (!glob_match(e->glob, entry->path)) {
        entry->skip_below =
            S_ISDIR(entry->st->st_mode) && !glob_may_match_below(e->glob, entry->path);
        return 0;
    }
    entry->skip_below = true;
    if (!is_carried(entry->st->st_mode))
        return 0;
    const char *copy = arena_copy(&e->s->plan->arena, entry->path, strlen(entry->path));
    plan_identify(&identity, entry->st);
    return copy ? add_leaving(e->s, copy, e->submitted, &identity, err) : no_memory(err);
}

static int expand(struct submitting *s, size_t submitted, struct err *err)
{
    const char *pattern = s->submission.all[submitted].source;
    const char *why = NULL;
    size_t before = s->count;

    if (++s->patterns > MOST_PATTERNS)
        return err_set(err, ERR_LIMIT, 0, "a plan has at most %d patterns", MOST_PATTERNS);
    struct glob *glob = glob_make(pattern, &why);
    if (!glob)
        return err_set(err, ERR_INVALID, 0, "the pattern '%s' cannot be read: %s", pattern, why);
    struct expansion e = {.s = s, .glob = glob, .submitted = submitted};
    struct plan_walk walk = {.root = s->tree, .top = "", .visit = visit, .context = &e};
    int r = plan_walk(&walk, err);
    glob_free(glob);
    if (r == 0 && s->count == before)
        return err_set(err, ERR_CONFLICT, 0, "nothing in the tree matches '%s'", pattern);
    return r;
}

static int gather_move(struct submitting *s, size_t submitted, struct err *err)
{
    const char *source = s->submission.all[submitted].source;
    struct plan_identity identity = {0};
    int missing = look(s, source, &identity, err);

    if (missing < 0)
        return -1;
    if (!missing)
        return add_leaving(s, source, submitted, &identity, err);
    if (!strpbrk(source, "*?[{"))
        return err_set(err, ERR_CONFLICT, 0, "'%s' is not in the tree", source);
    return expand(s, submitted, err);
}

static int compare_leaving(const void *a, const void *b)
{
    return plan_compare_paths(((const struct leaving *)a)->path, ((const struct leaving *)b)->path);
}

static int compare_texts(const void *a, const void *b)
{
    return plan_compare_paths(*(const char *const *)a, *(const char *const *)b);
}

static int gather(struct submitting *s, struct err *err)
{
    s->made = reallocarray(NULL, s->submission.count + 1, sizeof(s->made[0]));
    if (!s->made)
        return no_memory(err);
    for (size_t i = 0; i < s->submission.count; i++) {
        const struct submitted *submitted = &s->submission.all[i];
        struct plan_identity identity = {0};
        if (submitted->kind == SUBMITTED_MOVE && gather_move(s, i, err) < 0)
            return -1;
        if (submitted->kind == SUBMITTED_DELETE &&
            (find(s, submitted->path, &identity, err) < 0 ||
             add_leaving(s, submitted->path, i, &identity, err) < 0))
            return -1;
        if (submitted->kind == SUBMITTED_MKDIR)
            s->made[s->made_count++] = submitted->path;
    }
    if (s->count > 0)
        qsort(s->leaving, s->count, sizeof(s->leaving[0]), compare_leaving);
    qsort(s->made, s->made_count, sizeof(s->made[0]), compare_texts);
    return 0;
}

/* Whether it, or a directory that it is in, leaves its place. */
static bool leaves(const struct submitting *s, const char *path)
{
    char above[PLAN_MAX_PATH + 1];
    struct leaving key = {.path = above};
    size_t n = strlen(path);

    while (n > 0 && s->count > 0) {
        memcpy(above, path, n);
        above[n] = '\0';
        if (bsearch(&key, s->leaving, s->count, sizeof(key), compare_leaving))
            return true;
        const char *slash = memrchr(path, '/', n);
        n = slash ? (size_t)(slash - path) : 0;
    }
    return false;
}

/* --- operations that stand by themselves --- */

static struct plan_operation *add(struct submitting *s, enum plan_kind kind, const char *path,
                                  uint32_t mode, struct err *err)
{
    const char *copy = arena_copy(&s->plan->arena, path, strlen(path));

    if (!copy) {
        (void)no_memory(err);
        return NULL;
    }
    struct plan_operation *o = plan_add(s->plan, err);
    if (o) {
        o->kind = kind;
        o->path = copy;
        o->mode = mode;
        o->mtime_ns = s->now_ns;
    }
    return o;
}

/* Whether what is moved goes into it; else it gets that name. */
static bool is_directory_then(const struct submitting *s, const struct submitted *submitted)
{
    struct plan_identity identity = {0};
    struct err ignored; /* what is behind something else is told when parents are looked at */

    if (submitted->into ||
        bsearch(&submitted->path, s->made, s->made_count, sizeof(s->made[0]), compare_texts))
        return true;
    if (leaves(s, submitted->path))
        return false;
    return look(s, submitted->path, &identity, &ignored) == 0 && S_ISDIR(identity.mode);
}

static int destination(struct submitting *s, const struct leaving *leaving, const char **ret,
                       struct err *err)
{
    const struct submitted *submitted = &s->submission.all[leaving->submitted];
    const char *slash = strrchr(leaving->path, '/');
    const char *name = slash ? slash + 1 : leaving->path;

    *ret = submitted->path;
    bool into = is_directory_then(s, submitted);
    if (!into && strcmp(submitted->source, leaving->path) != 0)
        return err_set(err, ERR_INVALID, 0,
                       "'%s' is a pattern, so '%s' has to be a directory: end it with '/'",
                       submitted->source, submitted->path);
    if (into)
        *ret = arena_printf(&s->plan->arena, "%s%s%s", submitted->path, *submitted->path ? "/" : "",
                            name);
    if (!*ret)
        return no_memory(err);
    if (plan_check_path(*ret, strlen(*ret), err) < 0)
        return -1;
    if (S_ISDIR(leaving->identity.mode) && plan_is_below(*ret, leaving->path))
        return err_set(err, ERR_INVALID, 0, "'%s' cannot be moved into itself", leaving->path);
    if (strcmp(*ret, leaving->path) == 0)
        return err_set(err, ERR_INVALID, 0, "'%s' would be moved to where it is", leaving->path);
    return 0;
}

static int add_move(struct submitting *s, const struct leaving *leaving, struct err *err)
{
    const char *path = NULL;
    const char *target = NULL;
    char text[PLAN_MAX_PATH + 1];

    if (destination(s, leaving, &path, err) < 0)
        return -1;
    if (S_ISLNK(leaving->identity.mode)) {
        int n = content_target(s->tree, leaving->path, text);
        target = n < 0 ? NULL : arena_copy(&s->plan->arena, text, (size_t)n);
        if (!target)
            return err_set(err, ERR_IO, n < 0 ? -n : ENOMEM, "read the symlink '%s'",
                           leaving->path);
    }
    struct plan_operation *o =
        add(s, PLAN_MOVE, path, leaving->identity.mode & (S_IFMT | 0777), err);
    const char *from = o ? arena_copy(&s->plan->arena, leaving->path, strlen(leaving->path)) : NULL;
    if (!from)
        return o ? no_memory(err) : -1;
    o->from = from;
    o->target = target;
    o->has_base = true;
    o->base = leaving->identity;
    return 0;
}

static int add_leavers(struct submitting *s, struct err *err)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct leaving *leaving = &s->leaving[i];
        if (s->submission.all[leaving->submitted].kind == SUBMITTED_MOVE) {
            if (add_move(s, leaving, err) < 0)
                return -1;
            continue;
        }
        struct plan_operation *o = add(s, PLAN_DELETE, leaving->path, leaving->identity.mode, err);
        if (!o)
            return -1;
        o->has_base = true;
        o->base = leaving->identity;
    }
    return 0;
}

static int set_content(struct plan_operation *o, const struct submitted *submitted, struct err *err)
{
    o->size = submitted->size;
    o->has_hash = true;
    return digest_bytes(submitted->content, submitted->size, o->hash) < 0
               ? err_set(err, ERR_IO, 0, "hash the content of '%s'", submitted->path)
               : 0;
}

static int add_new(struct submitting *s, struct err *err)
{
    for (size_t i = 0; i < s->submission.count; i++) {
        const struct submitted *submitted = &s->submission.all[i];
        struct plan_operation *o = NULL;
        if (submitted->kind == SUBMITTED_MKDIR) {
            o = add(s, PLAN_MKDIR, submitted->path, S_IFDIR | submitted->mode, err);
        } else if (submitted->kind == SUBMITTED_SYMLINK) {
            o = add(s, PLAN_SYMLINK, submitted->path, S_IFLNK | 0777, err);
            if (o)
                o->target =
                    arena_copy(&s->plan->arena, submitted->target, strlen(submitted->target));
            if (o && !o->target)
                return no_memory(err);
        } else if (submitted->kind == SUBMITTED_CREATE) {
            o = add(s, PLAN_CREATE, submitted->path, S_IFREG | submitted->mode, err);
            if (o && set_content(o, submitted, err) < 0)
                return -1;
        } else {
            continue;
        }
        if (!o)
            return -1;
    }
    return 0;
}

/* --- operations on what is in its final place --- */

/* The base object at a final path that no operation brings something to: 0 and where it is in the
 * base, 1 nothing, -1. */
static int find_final(const struct submitting *s, const struct plan_index *index, const char *path,
                      char *origin, struct plan_identity *ret, struct err *err)
{
    ssize_t by = PLAN_NOBODY;

    switch (plan_place_of(index, path, origin, &by)) {
    case PLACE_BASE:
    case PLACE_HELD:
        return look(s, origin, ret, err);
    case PLACE_BLOCKED:
        return err_set(err, ERR_INVALID, 0, "'%s' would lie in '%s', which is no directory then",
                       path, s->plan->operations[by].path);
    case PLACE_VACATED:
    case PLACE_NEW:
    case PLACE_GONE:
        break;
    }
    return 1;
}

static int add_to_final(struct submitting *s, const struct plan_index *index,
                        const struct submitted *submitted, struct err *err)
{
    char origin[PLAN_MAX_PATH + 1];
    struct plan_identity identity = {0};
    ssize_t same = plan_after(index, submitted->path);
    bool is_write = submitted->kind == SUBMITTED_WRITE;

    if (same != PLAN_NOBODY && !is_write && s->plan->operations[same].kind == PLAN_MOVE &&
        !S_ISLNK(s->plan->operations[same].mode)) {
        struct plan_operation *o = &s->plan->operations[same];
        o->mode = (o->mode & S_IFMT) | submitted->mode;
        return 0;
    }
    int missing = find_final(s, index, submitted->path, origin, &identity, err);
    if (missing < 0)
        return -1;
    if (missing && !is_write)
        return err_set(err, ERR_CONFLICT, 0, "'%s' is not in the tree", submitted->path);
    if (!missing && (is_write ? !S_ISREG(identity.mode) : S_ISLNK(identity.mode)))
        return err_set(err, ERR_CONFLICT, 0, "'%s' is %s", submitted->path,
                       is_write ? "in the tree, and is no file" : "a symlink");
    uint32_t type = missing ? S_IFREG : identity.mode & S_IFMT;
    struct plan_operation *o = add(s,
                                   missing    ? PLAN_CREATE
                                   : is_write ? PLAN_WRITE
                                              : PLAN_CHMOD,
                                   submitted->path, type | submitted->mode, err);
    if (!o)
        return -1;
    if (!missing) {
        o->has_base = true;
        o->base = identity;
        if (strcmp(origin, submitted->path) != 0 &&
            !(o->from = arena_copy(&s->plan->arena, origin, strlen(origin))))
            return no_memory(err);
    }
    return is_write ? set_content(o, submitted, err) : 0;
}

/* Two new things in one place are told by plan_put_in_order; here what the base has there. */
static int refuse_collisions(struct submitting *s, const struct plan_index *index, bool *dropped,
                             struct err *err)
{
    char origin[PLAN_MAX_PATH + 1];
    struct plan_identity identity = {0};

    for (size_t i = 0; i < s->plan->count; i++) {
        struct plan_operation *o = &s->plan->operations[i];
        if (o->kind == PLAN_DELETE)
            continue;
        int missing = find_final(s, index, o->path, origin, &identity, err);
        if (missing < 0)
            return -1;
        if (missing)
            continue;
        if (o->kind != PLAN_MKDIR || !S_ISDIR(identity.mode))
            return err_set(err, ERR_CONFLICT, 0, "'%s' is in the tree already", o->path);
        o->kind = (enum plan_kind)DROPPED; /* it is there */
        *dropped = true;
    }
    return 0;
}

/* --- parents --- */

/* 1: to be made, 0: it is there. */
static int needs_parent(const struct submitting *s, const struct plan_index *index,
                        const char *parent, struct err *err)
{
    char origin[PLAN_MAX_PATH + 1];
    struct plan_identity identity = {0};
    ssize_t by = plan_after(index, parent);

    if (by != PLAN_NOBODY)
        return S_ISDIR(s->plan->operations[by].mode)
                   ? 0
                   : err_set(err, ERR_INVALID, 0,
                             "'%s' is no directory in the plan, and cannot hold "
                             "anything",
                             parent);
    int missing = find_final(s, index, parent, origin, &identity, err);
    if (missing != 0)
        return missing;
    return S_ISDIR(identity.mode)
               ? 0
               : err_set(err, ERR_INVALID, 0, "'%s' is %s, and cannot hold anything", parent,
                         S_ISLNK(identity.mode) ? "a symlink" : "no directory");
}

/* Every directory above `path`, from the top; those above `known` too are done already. */
static int make_parents(struct submitting *s, const struct plan_index *index, const char *path,
                        const char *known, struct err *err)
{
    char parent[PLAN_MAX_PATH + 1];
    bool make = false;

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);
        memcpy(parent, path, n);
        parent[n] = '\0';
        bool done = known && strncmp(known, parent, n) == 0 && known[n] == '/';
        if (done && !make)
            continue;
        int needed = make ? 1 : needs_parent(s, index, parent, err);
        if (needed < 0)
            return -1;
        make = needed && plan_after(index, parent) == PLAN_NOBODY;
        if (make && !add(s, PLAN_MKDIR, parent, S_IFDIR | 0755, err))
            return -1;
    }
    return 0;
}

static int add_parents(struct submitting *s, const struct plan_index *index, struct err *err)
{
    size_t n = s->plan->count;
    const char **paths = reallocarray(NULL, n + 1, sizeof(paths[0]));
    size_t count = 0;
    int r = 0;

    if (!paths)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (s->plan->operations[i].kind != PLAN_DELETE)
            paths[count++] = s->plan->operations[i].path;
    }
    qsort(paths, count, sizeof(paths[0]), compare_texts);
    for (size_t i = 0; i < count && r == 0; i++)
        r = make_parents(s, index, paths[i], i > 0 ? paths[i - 1] : NULL, err);
    free(paths);
    return r;
}

/* --- content --- */

static int write_staged(const struct submitting *s, int upper, const struct submitted *submitted)
{
    struct timespec time = {.tv_sec = s->now_ns / 1000000000, .tv_nsec = s->now_ns % 1000000000};
    scoped_fd int fd = staged_make(upper, submitted->path);

    if (fd < 0)
        return fd;
    for (size_t at = 0; at < submitted->size;) {
        ssize_t wrote = write(fd, submitted->content + at, submitted->size - at);
        if (wrote < 0 && errno != EINTR)
            return -errno;
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    if (fchmod(fd, submitted->mode) < 0 || futimens(fd, (const struct timespec[2]){time, time}) < 0)
        return -errno;
    return 0;
}

/* Nobody but us has been in upper/, and nothing of the tree is in it. */
static int stage(const struct submitting *s, struct err *err)
{
    scoped_fd int upper = staged_open(s->dir);

    if (upper < 0)
        return err_set(err, ERR_IO, -upper, "open the place for the plan's content");
    for (size_t i = 0; i < s->submission.count; i++) {
        const struct submitted *submitted = &s->submission.all[i];
        if (submitted->kind != SUBMITTED_CREATE && submitted->kind != SUBMITTED_WRITE)
            continue;
        int r = write_staged(s, upper, submitted);
        if (r < 0)
            return err_set(err, ERR_IO, -r, "keep the content of '%s'", submitted->path);
    }
    return syncfs(upper) < 0 ? err_set(err, ERR_IO, errno, "keep the plan's content") : 0;
}

static bool is_recursive(const struct submitting *s, const char *path)
{
    struct leaving key = {.path = path};
    const struct leaving *found = bsearch(&key, s->leaving, s->count, sizeof(key), compare_leaving);

    return found && s->submission.all[found->submitted].recursive;
}

/* A directory that everything else has left goes without being asked twice. */
static int count_deleted(struct submitting *s, struct err *err)
{
    struct plan_bases bases;
    int r = 0;

    if (plan_bases_make(&bases, s->plan, err) < 0)
        return -1;
    for (size_t i = 0; i < s->plan->count && r == 0; i++) {
        struct plan_operation *o = &s->plan->operations[i];
        struct tree_digest digest;
        if (o->kind != PLAN_DELETE || !S_ISDIR(o->mode))
            continue;
        r = tree_digest_except(&digest, s->tree, o->path, &bases, err);
        if (r == 0 && digest.entries > 0 && !is_recursive(s, o->path))
            r = err_set(err, ERR_INVALID, 0,
                        "'%s' is a directory that is not empty: say \"recursive\": true", o->path);
        o->entries = digest.entries;
        o->bytes = digest.bytes;
        memcpy(o->below, digest.below, PLAN_HASH);
    }
    plan_bases_clear(&bases);
    return r;
}

/* --- all of it --- */

static int settle(struct submitting *s, struct err *err)
{
    scoped_index struct plan_index index = {0};
    bool dropped = false;

    if (plan_put_in_order(s->plan, err) < 0 || plan_index_make(&index, s->plan, err) < 0 ||
        refuse_collisions(s, &index, &dropped, err) < 0)
        return -1;
    if (dropped) {
        plan_index_clear(&index);
        derive_drop(s->plan);
        /* In what was thought to be new there may be something. */
        dropped = false;
        if (plan_index_make(&index, s->plan, err) < 0 ||
            refuse_collisions(s, &index, &dropped, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < s->submission.count; i++) {
        const struct submitted *submitted = &s->submission.all[i];
        if ((submitted->kind == SUBMITTED_WRITE || submitted->kind == SUBMITTED_CHMOD) &&
            add_to_final(s, &index, submitted, err) < 0)
            return -1;
    }
    if (add_parents(s, &index, err) < 0)
        return -1;
    return plan_put_in_order(s->plan, err);
}

static int submit(struct submitting *s, struct err *err)
{
    if (gather(s, err) < 0 || add_leavers(s, err) < 0 || add_new(s, err) < 0 ||
        settle(s, err) < 0 || count_deleted(s, err) < 0)
        return err_wrap(err, "the written plan");
    if (s->submission.validations) {
        s->plan->validations = arena_copy(&s->plan->arena, s->submission.validations,
                                          strlen(s->submission.validations));
        if (!s->plan->validations)
            return no_memory(err);
    }
    return stage(s, err);
}

int plan_derive_written(struct plan *ret, int tree, int dir, const char *json, size_t n,
                        struct err *err)
{
    struct submitting s = {.plan = ret, .tree = tree, .dir = dir};
    struct timespec now;

    if (submission_read(&s.submission, json, n, err) < 0)
        return -1;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    s.now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    plan_init(ret);
    int r = submit(&s, err);
    submission_clear(&s.submission);
    free(s.leaving);
    free(s.made);
    if (r < 0)
        plan_clear(ret);
    return r;
}
