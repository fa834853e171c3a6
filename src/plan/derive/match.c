/* SPDX-License-Identifier: Apache-2.0 */
/* Moves without a mark: where the kernel cannot move inside the layer, tools copy and delete. What
 * was deleted and what was made with the same content are one move: files by size and SHA-256,
 * symlinks by their target, of several alike those of the same name first. A directory has moved
 * when all that was in it has, to the same places below another.
 *
 * Only deleted files are read that have the size of one that was made. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "plan/core/content.h"
#include "plan/core/tree_digest.h"
#include "plan/derive/derive.h"

enum {
    MOST_GONE = PLAN_MAX_OPERATIONS,
    PERMISSIONS = 0777,
    NOBODY = -1,
};

/* An object of the base that is not in the final tree. */
struct gone {
    const char *path;
    struct plan_identity identity;
    int32_t operation; /* its own deletion; NOBODY: that of a directory above */
    int32_t became;    /* the operation that it is now, or NOBODY */
};

/* What one is known again by. */
struct key {
    unsigned char hash[PLAN_HASH];
    uint32_t type;
    uint32_t at; /* in `gone`, or among the operations */
    const char *path;
    bool empty; /* says nothing by its content alone */
    bool taken;
};

struct keys {
    struct key *all;
    size_t count;
};

struct matching {
    struct deriving *d;
    struct plan *plan;
    struct gone *gone; /* a directory before what was in it */
    size_t count;
    bool incomplete; /* more is gone than is kept here */
    struct keys old;
    struct keys new;
    uint64_t *sizes; /* of what was made */
    size_t size_count;
    const char **links; /* what others are links to */
    size_t link_count;
    const struct plan_bases *bases;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "look for what has moved");
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* --- what is gone --- */

static int add_gone(struct matching *m, const char *path, const struct plan_identity *identity,
                    int32_t operation, struct err *err)
{
    if (m->count == MOST_GONE) {
        m->incomplete = true;
        return 0;
    }
    if (m->count % 1024 == 0) {
        struct gone *gone = reallocarray(m->gone, m->count + 1024, sizeof(gone[0]));
        if (!gone)
            return no_memory(err);
        m->gone = gone;
    }
    const char *copy = derive_keep(m->d, path, err);
    if (!copy)
        return -1;
    m->gone[m->count++] = (struct gone){copy, *identity, operation, NOBODY};
    return 0;
}

static int visit_gone(void *context, struct plan_entry *entry, struct err *err)
{
    struct matching *m = context;
    struct plan_identity identity;

    if (m->incomplete || plan_bases_has(m->bases, entry->path)) {
        entry->skip_below = true;
        return 0;
    }
    plan_identify(&identity, entry->st);
    return add_gone(m, entry->path, &identity, NOBODY, err);
}

static int collect_gone(struct matching *m, struct err *err)
{
    struct plan_bases bases;
    int r = 0;

    if (plan_bases_make(&bases, m->plan, err) < 0)
        return -1;
    m->bases = &bases;
    for (size_t i = 0; i < m->plan->count && r == 0 && !m->incomplete; i++) {
        const struct plan_operation *o = &m->plan->operations[i];
        struct plan_walk walk = {
            .root = m->d->how->tree, .top = o->path, .visit = visit_gone, .context = m};
        if (o->kind != PLAN_DELETE)
            continue;
        r = add_gone(m, o->path, &o->base, (int32_t)i, err);
        if (r == 0 && S_ISDIR(o->mode))
            r = plan_walk(&walk, err);
        if (r < 0 && err->code == ERR_DENIED) {
            m->incomplete = true; /* the digest tells it */
            r = 0;
        }
    }
    plan_bases_clear(&bases);
    m->bases = NULL;
    return r;
}

/* --- what is known of both --- */

static struct key *add_key(struct keys *keys, struct err *err)
{
    if (keys->count % 1024 == 0) {
        struct key *all = reallocarray(keys->all, keys->count + 1024, sizeof(all[0]));
        if (!all) {
            (void)no_memory(err);
            return NULL;
        }
        keys->all = all;
    }
    keys->all[keys->count] = (struct key){0};
    return &keys->all[keys->count++];
}

static int key_new(struct matching *m, struct err *err)
{
    m->sizes = reallocarray(NULL, m->plan->count + 1, sizeof(m->sizes[0]));
    if (!m->sizes)
        return no_memory(err);
    for (size_t i = 0; i < m->plan->count; i++) {
        const struct plan_operation *o = &m->plan->operations[i];
        bool is_file = o->kind == PLAN_CREATE && o->has_hash && !o->link;
        if (!is_file && (o->kind != PLAN_SYMLINK || o->has_base))
            continue;
        struct key *key = add_key(&m->new, err);
        if (!key)
            return -1;
        key->type = o->mode & S_IFMT;
        key->at = (uint32_t)i;
        key->path = o->path;
        key->empty = is_file && o->size == 0;
        if (is_file)
            memcpy(key->hash, o->hash, PLAN_HASH);
        else if (digest_bytes(o->target, strlen(o->target), key->hash) < 0)
            return no_memory(err);
        if (is_file)
            m->sizes[m->size_count++] = o->size;
    }
    return 0;
}

static int compare_sizes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* 0, or negative: it is nothing that could be known again. */
static int hash_gone(const struct matching *m, const struct gone *gone, unsigned char *hash)
{
    char target[PLAN_MAX_PATH + 1];
    int tree = m->d->how->tree;

    if (S_ISLNK(gone->identity.mode)) {
        int n = content_target(tree, gone->path, target);
        return n < 0 ? n : digest_bytes(target, (size_t)n, hash);
    }
    if (!S_ISREG(gone->identity.mode) ||
        !bsearch(&gone->identity.size, m->sizes, m->size_count, sizeof(m->sizes[0]), compare_sizes))
        return -1;
    int fd = content_open(tree, gone->path);
    if (fd < 0)
        return fd;
    int r = content_hash(fd, gone->identity.size, m->d->holes, hash);
    (void)close(fd);
    return r;
}

static int key_old(struct matching *m, struct err *err)
{
    qsort(m->sizes, m->size_count, sizeof(m->sizes[0]), compare_sizes);
    for (size_t i = 0; i < m->count; i++) {
        const struct gone *gone = &m->gone[i];
        unsigned char hash[PLAN_HASH];
        if (hash_gone(m, gone, hash) < 0)
            continue;
        struct key *key = add_key(&m->old, err);
        if (!key)
            return -1;
        key->type = gone->identity.mode & S_IFMT;
        key->at = (uint32_t)i;
        key->path = gone->path;
        key->empty = S_ISREG(gone->identity.mode) && gone->identity.size == 0;
        memcpy(key->hash, hash, PLAN_HASH);
    }
    return 0;
}

/* --- pairs --- */

static int compare_content(const struct key *a, const struct key *b)
{
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    return memcmp(a->hash, b->hash, PLAN_HASH);
}

static int compare_named(const void *a, const void *b)
{
    const struct key *x = a;
    const struct key *y = b;
    int order = compare_content(x, y);

    return order ? order : strcmp(name_of(x->path), name_of(y->path));
}

static int compare_in_order(const void *a, const void *b)
{
    const struct key *x = a;
    const struct key *y = b;
    int order = compare_named(a, b);

    return order ? order : plan_compare_paths(x->path, y->path);
}

static int compare_unnamed(const void *a, const void *b)
{
    return compare_content(a, b);
}

static void pair(struct matching *m, struct key *old, struct key *new)
{
    struct gone *gone = &m->gone[old->at];
    struct plan_operation *o = &m->plan->operations[new->at];

    old->taken = new->taken = true;
    gone->became = (int32_t) new->at;
    o->kind = PLAN_MOVE;
    o->from = gone->path;
    o->has_base = true;
    o->base = gone->identity;
    o->copied = o->has_hash;
    if (gone->operation != NOBODY)
        m->plan->operations[gone->operation].kind = (enum plan_kind)DROPPED;
}

/* Both are sorted by what is compared: goes through them side by side. */
static void pair_all(struct matching *m, int (*compare)(const void *, const void *), bool named)
{
    size_t i = 0;
    size_t j = 0;

    while (i < m->old.count && j < m->new.count) {
        struct key *old = &m->old.all[i];
        struct key *new = &m->new.all[j];
        int order = old->taken ? -1 : new->taken ? 1 : compare(old, new);
        bool fits = order == 0 && (named || !old->empty) && strcmp(old->path, new->path) != 0;
        if (fits)
            pair(m, old, new);
        i += order <= 0;
        j += order > 0 || fits;
    }
}

/* --- directories --- */

static size_t end_of(const struct matching *m, size_t first)
{
    size_t end = first + 1;

    while (end < m->count && plan_is_below(m->gone[end].path, m->gone[first].path))
        end++;
    return end;
}

/* The directory that it would be now, by the first file below it that is known again. */
static char *guess(const struct matching *m, size_t first, size_t end)
{
    size_t prefix = strlen(m->gone[first].path);

    for (size_t i = first + 1; i < end; i++) {
        const struct gone *gone = &m->gone[i];
        if (!S_ISREG(gone->identity.mode))
            continue;
        if (gone->became == NOBODY)
            return NULL;
        const char *now = m->plan->operations[gone->became].path;
        const char *below = gone->path + prefix;
        size_t n = strlen(now);
        size_t tail = strlen(below);
        bool fits = n > tail && strcmp(now + n - tail, below) == 0;
        return fits ? strndup(now, n - tail) : NULL;
    }
    return NULL;
}

/* The operation for what is at `directory` + `below` now. */
static struct plan_operation *find_now(const struct matching *m, const char *directory,
                                       const char *below)
{
    char path[PLAN_MAX_PATH + 1];
    int n = snprintf(path, sizeof(path), "%s%s", directory, below);
    const struct plan_operation *found =
        n > 0 && n <= PLAN_MAX_PATH ? plan_find_final(m->plan, path) : NULL;

    return found ? &m->plan->operations[found - m->plan->operations] : NULL;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int collect_links(struct matching *m, struct err *err)
{
    m->links = reallocarray(NULL, m->plan->count + 1, sizeof(m->links[0]));
    if (!m->links)
        return no_memory(err);
    for (size_t i = 0; i < m->plan->count; i++) {
        if (m->plan->operations[i].link)
            m->links[m->link_count++] = m->plan->operations[i].link;
    }
    qsort(m->links, m->link_count, sizeof(m->links[0]), compare_texts);
    return 0;
}

static bool is_linked_to(const struct matching *m, const char *path)
{
    return m->link_count > 0 &&
           bsearch(&path, m->links, m->link_count, sizeof(m->links[0]), compare_texts);
}

static bool has_become(const struct matching *m, const struct gone *gone,
                       const struct plan_operation *now)
{
    if (!now)
        return false;
    if (S_ISDIR(gone->identity.mode))
        return now->kind == PLAN_MKDIR && content_same_attributes(m->d->layer.upper, now->path,
                                                                  m->d->how->tree, gone->path) == 1;
    if (now->kind != PLAN_MOVE || strcmp(now->from, gone->path) != 0)
        return false;
    if (S_ISLNK(gone->identity.mode))
        return true;
    return now->mtime_ns == gone->identity.mtime_ns &&
           content_same_attributes(m->d->layer.upper, now->path, m->d->how->tree, gone->path) == 1;
}

static bool has_moved(const struct matching *m, size_t first, size_t end, const char *to)
{
    size_t prefix = strlen(m->gone[first].path);

    for (size_t i = first; i < end; i++) {
        if (!has_become(m, &m->gone[i], find_now(m, to, m->gone[i].path + prefix)))
            return false;
    }
    return true;
}

/* What was one operation for each file becomes one for all of them. */
static void move_whole(struct matching *m, size_t first, size_t end, const char *to)
{
    size_t prefix = strlen(m->gone[first].path);

    for (size_t i = first; i < end; i++) {
        const struct gone *gone = &m->gone[i];
        struct plan_operation *o = find_now(m, to, gone->path + prefix);
        bool chmod = !S_ISLNK(o->mode) && ((o->mode ^ gone->identity.mode) & PERMISSIONS);
        *o = (struct plan_operation){.kind = i == first ? PLAN_MOVE
                                             : chmod    ? PLAN_CHMOD
                                                        : (enum plan_kind)DROPPED,
                                     .mode = o->mode,
                                     .path = o->path,
                                     .from = gone->path,
                                     .base = gone->identity,
                                     .has_base = true,
                                     .copied = i == first};
        if (gone->operation != NOBODY)
            m->plan->operations[gone->operation].kind = (enum plan_kind)DROPPED;
    }
}

static bool any_links(const struct matching *m, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        const struct gone *gone = &m->gone[i];
        if (gone->became != NOBODY && is_linked_to(m, m->plan->operations[gone->became].path))
            return true;
    }
    return false;
}

static void match_directories(struct matching *m)
{
    for (size_t i = 0; i < m->count && !m->incomplete;) {
        size_t end = S_ISDIR(m->gone[i].identity.mode) ? end_of(m, i) : i + 1;
        char *to = end > i + 1 ? guess(m, i, end) : NULL;
        bool moved = to && has_moved(m, i, end, to) && !any_links(m, i, end);
        if (moved)
            move_whole(m, i, end, to);
        free(to);
        i = moved ? end : i + 1;
    }
}

static int match(struct matching *m, struct err *err)
{
    if (key_new(m, err) < 0)
        return -1;
    if (m->new.count == 0)
        return 0;
    if (collect_gone(m, err) < 0 || key_old(m, err) < 0)
        return -1;
    if (m->old.count == 0)
        return 0;
    qsort(m->old.all, m->old.count, sizeof(m->old.all[0]), compare_in_order);
    qsort(m->new.all, m->new.count, sizeof(m->new.all[0]), compare_in_order);
    pair_all(m, compare_named, true);
    pair_all(m, compare_unnamed, false);
    if (collect_links(m, err) < 0)
        return -1;
    match_directories(m);
    return 0;
}

int derive_match(struct deriving *d, struct err *err)
{
    struct matching m = {.d = d, .plan = d->plan};
    int r = match(&m, err);

    free(m.gone);
    free(m.old.all);
    free(m.new.all);
    free(m.sizes);
    free(m.links);
    return r;
}
