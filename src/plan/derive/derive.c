/* SPDX-License-Identifier: Apache-2.0 */
/* From a layer to a plan.
 *
 *   layer.c      entries: what lies in the layer, which base object it hides, which it comes from
 *   claim        which entry is which base object, moved
 *   judge        entry by entry: one operation, none, or a deletion beside it
 *   hardlinks.c  names of one file
 *   match.c      moves that the kernel has no mark for, by content
 *   tidy         mount points, the facts about deleted directories, canonical order
 *   changed.c    what has changed in the base since the layer had it
 *
 * What is compared is what a plan carries: content, permissions, targets and user.* attributes of
 * files. Times alone are no change. */
#include "plan/derive/derive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/core/attributes.h"
#include "plan/core/content.h"
#include "plan/core/tree_digest.h"

enum {
    PERMISSIONS = 0777
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "derive the plan");
}

/* --- who is where --- */

static int compare_lookups(const void *a, const void *b)
{
    const struct lookup *x = a;
    const struct lookup *y = b;
    int order = plan_compare_paths(x->path, y->path);

    return order ? order : x->entry < y->entry ? -1 : x->entry > y->entry;
}

static int compare_to_lookup(const void *path, const void *lookup)
{
    return plan_compare_paths(path, ((const struct lookup *)lookup)->path);
}

static const struct layer_entry *find(const struct deriving *d, const struct lookup *all,
                                      size_t count, const char *path)
{
    const struct lookup *found =
        count ? bsearch(path, all, count, sizeof(all[0]), compare_to_lookup) : NULL;

    return found ? &d->layer.entries[found->entry] : NULL;
}

const struct layer_entry *derive_place(const struct deriving *d, const char *path)
{
    return find(d, d->places, d->place_count, path);
}

const struct layer_entry *derive_claim(const struct deriving *d, const char *path)
{
    return find(d, d->claims, d->claim_count, path);
}

static bool is_kept(const struct deriving *d, const char *path)
{
    const struct layer_entry *at = derive_place(d, path);

    return at && at->from && !at->redirected;
}

/* Whether the base object is still seen where it was, or in a directory that has moved with it. */
static bool stays(const struct deriving *d, const char *path)
{
    char final[PLAN_MAX_PATH + 1];

    return derive_place(d, path) ? is_kept(d, path) : derive_follow(d, path, final);
}

/* Who claims first: a directory that is not where it was has moved; then files without data of
 * their own, which are nothing without it; then those that have been written too. */
static int rank(const struct layer_entry *entry)
{
    return entry->type != LAYER_FILE ? 0 : entry->empty ? 1 : 2;
}

/* Each base object is moved at most once: of several the first in order is it. */
static int claim(struct deriving *d, struct err *err)
{
    size_t n = d->layer.count;

    d->places = reallocarray(NULL, n + 1, sizeof(d->places[0]));
    d->claims = reallocarray(NULL, n + 1, sizeof(d->claims[0]));
    if (!d->places || !d->claims)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (d->layer.entries[i].has_base)
            d->places[d->place_count++] = (struct lookup){d->layer.entries[i].place, (uint32_t)i};
    }
    qsort(d->places, d->place_count, sizeof(d->places[0]), compare_lookups);
    for (int turn = 0; turn < 3; turn++) {
        size_t after = d->claim_count;
        for (size_t i = 0; i < n; i++) {
            const struct layer_entry *entry = &d->layer.entries[i];
            if (entry->redirected && rank(entry) == turn &&
                !(turn == 0 ? is_kept(d, entry->from) : stays(d, entry->from)) &&
                !derive_claim(d, entry->from))
                d->claims[after++] = (struct lookup){entry->from, (uint32_t)i};
        }
        d->claim_count = after;
        qsort(d->claims, d->claim_count, sizeof(d->claims[0]), compare_lookups);
        size_t kept = 0;
        for (size_t i = 0; i < d->claim_count; i++) {
            if (kept == 0 || strcmp(d->claims[kept - 1].path, d->claims[i].path) != 0)
                d->claims[kept++] = d->claims[i];
        }
        d->claim_count = kept;
    }
    return 0;
}

/* --- operations --- */

const char *derive_keep(struct deriving *d, const char *text, struct err *err)
{
    const char *copy = arena_copy(&d->plan->arena, text, strlen(text));

    if (!copy)
        (void)no_memory(err);
    return copy;
}

int derive_add(struct deriving *d, enum plan_kind kind, const char *path, const char *base,
               const struct plan_identity *identity, struct err *err)
{
    struct plan_operation *operation = plan_add(d->plan, err);

    if (!operation)
        return -1;
    operation->kind = kind;
    operation->path = derive_keep(d, path, err);
    /* A move says where from even when that is the same path: of a directory of the same name. */
    bool has_from = base && (kind == PLAN_MOVE || strcmp(base, path) != 0);
    if (has_from)
        operation->from = derive_keep(d, base, err);
    if (!operation->path || (has_from && !operation->from))
        return -1;
    if (base) {
        operation->has_base = true;
        operation->base = *identity;
    }
    return (int)(d->plan->count - 1);
}

static int add_for(struct deriving *d, const struct layer_entry *entry, enum plan_kind kind,
                   const char *base, const struct plan_identity *identity, struct err *err)
{
    int index = derive_add(d, kind, entry->path, base, identity, err);

    if (index < 0)
        return -1;
    struct plan_operation *operation = &d->plan->operations[index];
    operation->mode = entry->st.mode & (S_IFMT | PERMISSIONS);
    if (S_ISLNK(operation->mode))
        operation->mode |= PERMISSIONS;
    operation->mtime_ns = entry->st.mtime_ns;
    d->outcomes[entry - d->layer.entries].operation = index;
    return index;
}

/* Whether the entry hides a base object that nothing else is. */
static bool hides(const struct deriving *d, const struct layer_entry *entry)
{
    return entry->has_base && !derive_claim(d, entry->place);
}

static int add_delete(struct deriving *d, const struct layer_entry *entry, struct err *err)
{
    if (!hides(d, entry))
        return 0;
    int index = derive_add(d, PLAN_DELETE, entry->place, entry->place, &entry->base, err);
    if (index < 0)
        return -1;
    d->plan->operations[index].mode = entry->base.mode;
    return 0;
}

static int add_chmod(struct deriving *d, const struct layer_entry *entry, struct err *err)
{
    if (((entry->st.mode ^ entry->was.mode) & PERMISSIONS) == 0)
        return 0;
    return add_for(d, entry, PLAN_CHMOD, entry->from, &entry->was, err) < 0 ? -1 : 0;
}

/* --- directories and symlinks --- */

/* One of the base keeps its attributes: where they have changed, that is told. */
static int compare_attributes(struct deriving *d, const struct layer_entry *entry, struct err *err)
{
    int same = content_same_attributes(d->layer.upper, entry->path, d->how->tree, entry->from);

    if (same == 1 || same == -EACCES || same == -EPERM)
        return 0; /* what nobody can read nobody has changed */
    if (same < 0)
        return err_set(err, ERR_IO, -same, "read the attributes of '%s'", entry->path);
    return plan_add_flaw(d->plan, PLAN_FLAW_ATTRIBUTES, entry->path, err);
}

static int judge_directory(struct deriving *d, const struct layer_entry *entry, struct err *err)
{
    if (entry->from && compare_attributes(d, entry, err) < 0)
        return -1;
    if (entry->from && !entry->redirected)
        return add_chmod(d, entry, err);
    if (add_delete(d, entry, err) < 0)
        return -1;
    if (!entry->from)
        return add_for(d, entry, PLAN_MKDIR, NULL, NULL, err) < 0 ? -1 : 0;
    if (derive_claim(d, entry->from) != entry) {
        /* Two directories cannot be one. */
        return plan_add_flaw(d->plan, PLAN_FLAW_LOST, entry->path, err);
    }
    return add_for(d, entry, PLAN_MOVE, entry->from, &entry->was, err) < 0 ? -1 : 0;
}

static int judge_symlink(struct deriving *d, const struct layer_entry *entry, struct err *err)
{
    char target[PLAN_MAX_PATH + 1];
    char old[PLAN_MAX_PATH + 1];
    bool replaces = hides(d, entry) && S_ISLNK(entry->base.mode);

    int n = content_target(d->layer.upper, entry->path, target);
    if (n < 0)
        return err_set(err, ERR_IO, -n, "read the symlink '%s'", entry->path);
    if (replaces && content_target(d->how->tree, entry->place, old) == n &&
        strcmp(target, old) == 0)
        return 0;
    if (!replaces && add_delete(d, entry, err) < 0)
        return -1;
    int index = add_for(d, entry, PLAN_SYMLINK, replaces ? entry->place : NULL,
                        replaces ? &entry->base : NULL, err);
    if (index < 0)
        return -1;
    const char *copy = derive_keep(d, target, err);
    d->plan->operations[index].target = copy;
    return copy ? 0 : -1;
}

/* --- files --- */

/* What is wrong with a file that cannot be hashed; 0 when that is told as a flaw. */
static int unreadable(struct deriving *d, const struct layer_entry *entry, int error,
                      struct err *err)
{
    enum plan_flaw_kind kind = error == -EFBIG ? PLAN_FLAW_TOO_LARGE : PLAN_FLAW_UNREADABLE;

    if (error == -ESTALE)
        return err_set(err, ERR_CONFLICT, 0, "'%s' changes while it is read: a process still runs",
                       entry->path);
    if (error != -EFBIG && error != -EACCES && error != -EPERM)
        return err_set(err, ERR_IO, -error, "read '%s'", entry->path);
    d->outcomes[entry - d->layer.entries].fate = FATE_GONE;
    return plan_add_flaw(d->plan, kind, entry->path, err);
}

static int hash_at(const struct deriving *d, int root, const char *path, uint64_t size,
                   unsigned char *hash)
{
    int fd = root == d->layer.upper ? content_open_own(root, path) : content_open(root, path);

    if (fd < 0)
        return fd;
    int r = content_hash(fd, size, d->holes, hash);
    (void)close(fd);
    return r;
}

/* An operation that brings content; a write, to the base's file that the entry comes from. */
static int add_content(struct deriving *d, const struct layer_entry *entry, enum plan_kind kind,
                       const unsigned char hash[PLAN_HASH], struct err *err)
{
    bool is_write = kind == PLAN_WRITE;
    int index =
        add_for(d, entry, kind, is_write ? entry->from : NULL, is_write ? &entry->was : NULL, err);

    if (index < 0)
        return -1;
    struct plan_operation *operation = &d->plan->operations[index];
    operation->size = entry->st.size;
    operation->has_hash = true;
    memcpy(operation->hash, hash, PLAN_HASH);
    d->outcomes[entry - d->layer.entries].fate = FATE_NEW;
    return 0;
}

/* It has the data of the base's file: whether anything else of it is another's. 1, 0 or -1. */
static int is_otherwise_same(const struct deriving *d, const struct layer_entry *entry,
                             struct err *err)
{
    int same = content_same_attributes(d->layer.upper, entry->path, d->how->tree, entry->from);

    if (same == -EACCES || same == -EPERM)
        return 1; /* what nobody can read nobody has changed */
    if (same < 0)
        return err_set(err, ERR_IO, -same, "read the attributes of '%s'", entry->path);
    return same;
}

/* One of several names of another base file, which only happens to have the same data. Those that
 * the layer has no entry for are this file as well: it is told as new, and they as links to it. */
static bool is_anothers(const struct deriving *d, const struct layer_entry *entry)
{
    struct origin origin;

    if (!entry->shared)
        return false;
    derive_origin(d->layer.upper, entry->path, &origin);
    return origin.n > 0 && !derive_is_origin(d, entry->from, &origin);
}

/* An entry that is the base's file `from`, with its data, here or elsewhere. */
static int judge_same(struct deriving *d, const struct layer_entry *entry, struct err *err)
{
    unsigned char hash[PLAN_HASH];
    int same = is_otherwise_same(d, entry, err);

    if (same < 0)
        return -1;
    if (same && !is_anothers(d, entry)) {
        d->outcomes[entry - d->layer.entries].fate = FATE_BASE;
        if (!entry->redirected)
            return add_chmod(d, entry, err);
        return add_for(d, entry, PLAN_MOVE, entry->from, &entry->was, err) < 0 ? -1 : 0;
    }
    int r = hash_at(d, d->how->tree, entry->from, entry->was.size, hash);
    if (r == 0 && entry->empty && d->how->closing)
        r = content_fill(d->layer.upper, entry->path, d->how->tree, entry->from);
    if (r < 0)
        return unreadable(d, entry, r, err);
    return add_content(d, entry, PLAN_WRITE, hash, err);
}

/* Another name of a file that is the base's, and is here or has moved there. */
static int judge_link(struct deriving *d, const struct layer_entry *entry, const char *of,
                      struct err *err)
{
    bool replaces = hides(d, entry) && S_ISREG(entry->base.mode);

    d->outcomes[entry - d->layer.entries].fate = FATE_LINK;
    if (replaces && entry->base.ino == entry->was.ino && entry->base.dev == entry->was.dev)
        return 0; /* it is another name of it in the base too */
    if (!replaces && add_delete(d, entry, err) < 0)
        return -1;
    int index = add_for(d, entry, replaces ? PLAN_WRITE : PLAN_CREATE,
                        replaces ? entry->place : NULL, replaces ? &entry->base : NULL, err);
    if (index < 0)
        return -1;
    const char *copy = derive_keep(d, of, err);
    d->plan->operations[index].link = copy;
    return copy ? 0 : -1;
}

static int judge_empty(struct deriving *d, const struct layer_entry *entry, struct err *err)
{
    if (!entry->redirected)
        return judge_same(d, entry, err);
    if (derive_claim(d, entry->from) != entry) {
        char of[PLAN_MAX_PATH + 1];
        if (!derive_follow(d, entry->from, of))
            return plan_add_flaw(d->plan, PLAN_FLAW_LOST, entry->path, err);
        return judge_link(d, entry, of, err);
    }
    return add_delete(d, entry, err) < 0 ? -1 : judge_same(d, entry, err);
}

/* Whether the base's file has this content. What cannot be read has not. */
static bool has_content(const struct deriving *d, const char *path,
                        const struct plan_identity *base, const struct layer_entry *entry,
                        const unsigned char hash[PLAN_HASH])
{
    unsigned char old[PLAN_HASH];

    return base->size == entry->st.size && hash_at(d, d->how->tree, path, base->size, old) == 0 &&
           memcmp(old, hash, PLAN_HASH) == 0;
}

static int judge_file(struct deriving *d, struct layer_entry *entry, struct err *err)
{
    unsigned char hash[PLAN_HASH];
    bool moved = entry->redirected && derive_claim(d, entry->from) == entry;
    bool replaces = !moved && hides(d, entry) && S_ISREG(entry->base.mode);

    if (entry->empty)
        return judge_empty(d, entry, err);
    if (!replaces && add_delete(d, entry, err) < 0)
        return -1;
    int r = hash_at(d, d->layer.upper, entry->path, entry->st.size, hash);
    if (r < 0)
        return unreadable(d, entry, r, err);
    if (!moved && !replaces)
        return add_content(d, entry, PLAN_CREATE, hash, err);
    if (replaces) {
        entry->from = entry->place;
        entry->was = entry->base;
        entry->redirected = false;
    }
    if (!(replaces && entry->parted) && has_content(d, entry->from, &entry->was, entry, hash))
        return judge_same(d, entry, err);
    return add_content(d, entry, PLAN_WRITE, hash, err);
}

static int judge(struct deriving *d, struct err *err)
{
    d->outcomes = reallocarray(NULL, d->layer.count + 1, sizeof(d->outcomes[0]));
    if (!d->outcomes)
        return no_memory(err);
    for (size_t i = 0; i < d->layer.count; i++)
        d->outcomes[i] = (struct path_fate){NO_OPERATION, FATE_OTHER};
    int r = 0;
    for (size_t i = 0; i < d->layer.count && r == 0; i++) {
        struct layer_entry *entry = &d->layer.entries[i];
        switch (entry->type) {
        case LAYER_WHITEOUT:
            d->outcomes[i].fate = FATE_GONE;
            r = add_delete(d, entry, err);
            break;
        case LAYER_DIRECTORY:
            r = judge_directory(d, entry, err);
            break;
        case LAYER_SYMLINK:
            r = judge_symlink(d, entry, err);
            break;
        case LAYER_FILE:
            r = judge_file(d, entry, err);
            break;
        }
    }
    return r;
}

/* --- tidying --- */

static bool is_mount_point(const struct deriving *d, const char *path)
{
    for (size_t i = 0; i < d->how->mount_point_count; i++) {
        if (strcmp(d->how->mount_points[i], path) == 0)
            return true;
    }
    return false;
}

void derive_drop(struct plan *plan)
{
    size_t kept = 0;

    for (size_t i = 0; i < plan->count; i++) {
        if ((int)plan->operations[i].kind != DROPPED)
            plan->operations[kept++] = plan->operations[i];
    }
    plan->count = kept;
}

/* From the end, so that a directory comes after what is in it. */
static void drop_mount_points(struct deriving *d)
{
    struct plan *plan = d->plan;
    const char *later = NULL; /* the path of the operation behind, kept */

    for (size_t i = plan->count; i-- > 0 && d->how->mount_point_count > 0;) {
        struct plan_operation *operation = &plan->operations[i];
        bool is_empty = operation->kind == PLAN_MKDIR
                            ? !later || !plan_is_below(later, operation->path)
                            : operation->kind == PLAN_CREATE && operation->size == 0;
        if (is_empty && is_mount_point(d, operation->path))
            operation->kind = (enum plan_kind)DROPPED;
        else
            later = operation->path;
    }
    derive_drop(plan);
}

static int64_t newer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int count_deleted(struct deriving *d, struct err *err)
{
    struct plan_bases bases;
    struct plan *plan = d->plan;
    size_t count = plan->count;
    int r = 0;

    if (plan_bases_make(&bases, plan, err) < 0)
        return -1;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct plan_operation *operation = &plan->operations[i];
        struct tree_digest digest;
        if (operation->kind != PLAN_DELETE || !S_ISDIR(operation->mode))
            continue;
        r = tree_digest_except(&digest, d->how->tree, operation->path, &bases, err);
        if (r < 0 && err->code == ERR_DENIED)
            r = plan_add_flaw(plan, PLAN_FLAW_UNREADABLE, operation->path, err);
        if (r == 0)
            derive_forget_if_changed(d, operation,
                                     newer(operation->base.ctime_ns, digest.newest_ns));
        operation->entries = digest.entries;
        operation->bytes = digest.bytes;
        memcpy(operation->below, digest.below, PLAN_HASH);
    }
    plan_bases_clear(&bases);
    return r;
}

/* What goes into the tree as it is must bear none of the layer's marks. Where no operation carries
 * an entry its marks stay: they make the planned view what it is. */
static int strip(struct deriving *d, struct err *err)
{
    for (size_t i = 0; i < d->plan->count; i++) {
        const struct plan_operation *operation = &d->plan->operations[i];
        bool staged = (operation->has_hash && !operation->link) || operation->kind == PLAN_SYMLINK;
        int r = staged ? content_strip(d->layer.upper, operation->path) : 0;
        if (r < 0)
            return err_set(err, ERR_IO, -r, "take the layer's marks off '%s'", operation->path);
    }
    return 0;
}

/* After strip: what is there comes along. */
static int read_attributes(struct deriving *d, struct err *err)
{
    for (size_t i = 0; i < d->plan->count; i++) {
        struct plan_operation *operation = &d->plan->operations[i];
        scoped_buf struct buf text = {0};
        if (operation->kind != PLAN_MKDIR && (!operation->has_hash || operation->link))
            continue;
        buf_init(&text, ATTRIBUTES_LARGEST);
        int r = content_attributes(d->layer.upper, operation->path, &text);
        if (r < 0)
            return err_set(err, r == -E2BIG ? ERR_LIMIT : ERR_IO, -r, "read the attributes of '%s'",
                           operation->path);
        operation->attributes = text.n > 0 ? arena_copy(&d->plan->arena, text.p, text.n) : NULL;
        if (text.n > 0 && !operation->attributes)
            return err_set(err, ERR_LIMIT, ENOMEM, "keep attributes");
    }
    return 0;
}

static int derive(struct deriving *d, struct err *err)
{
    if (layer_read(&d->layer, d->how, d->plan, err) < 0 || claim(d, err) < 0 || judge(d, err) < 0 ||
        derive_links(d, err) < 0)
        return -1;
    derive_drop(d->plan);
    if (plan_put_in_order(d->plan, err) < 0 || derive_match(d, err) < 0)
        return -1;
    derive_drop(d->plan);
    drop_mount_points(d);
    if (count_deleted(d, err) < 0 || plan_put_in_order(d->plan, err) < 0)
        return -1;
    derive_forget_changed(d);
    if (d->how->closing && strip(d, err) < 0)
        return -1;
    return read_attributes(d, err);
}

int plan_derive(struct plan *ret, const struct plan_derivation *how, struct err *err)
{
    uint64_t holes = CONTENT_HOLES;
    struct deriving d = {.plan = ret, .how = how, .layer = {.upper = -1}, .holes = &holes};

    plan_init(ret);
    int r = derive(&d, err);
    layer_clear(&d.layer);
    free(d.outcomes);
    free(d.places);
    free(d.claims);
    if (r < 0)
        plan_clear(ret);
    return r;
}
