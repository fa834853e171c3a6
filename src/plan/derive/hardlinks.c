/* SPDX-License-Identifier: Apache-2.0 */
/* Files with several names.
 *
 * Names that are one file in the layer become one operation with the content, or none where the
 * base has it, and links to that. Mounted by root, the layer also keeps the names of a base file
 * together: writing through one changes them all, but only that one is in the layer. The others are
 * looked for in the tree, which is the only time that it is read as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "plan/core/content.h"
#include "plan/core/tree_digest.h"
#include "plan/derive/derive.h"
#include "sys/path.h"

/* --- where a base object is now --- */

static bool append(char *ret, const char *directory, const char *rest)
{
    int n = snprintf(ret, PLAN_MAX_PATH + 1, "%s%s", directory, rest);

    return n > 0 && n <= PLAN_MAX_PATH;
}

bool derive_follow(const struct deriving *d, const char *base, char *ret)
{
    char above[PLAN_MAX_PATH + 1];
    size_t n = strlen(base);

    while (n > 0) {
        memcpy(above, base, n);
        above[n] = '\0';
        const struct layer_entry *moved = derive_claim(d, above);
        if (moved)
            return append(ret, moved->path, base + n);
        const struct layer_entry *here = derive_place(d, above);
        if (here)
            return here->from && !here->redirected && append(ret, here->path, base + n);
        const char *slash = memrchr(base, '/', n);
        n = slash ? (size_t)(slash - base) : 0;
    }
    return append(ret, base, "");
}

/* --- names in the layer --- */

/* Entries that are one file. */
struct group {
    const uint32_t *entries;
    size_t count;
    uint32_t leader;
};

static int compare_files(const void *a, const void *b, void *entries)
{
    const struct layer_entry *all = entries;
    const struct plan_identity *x = &all[*(const uint32_t *)a].st;
    const struct plan_identity *y = &all[*(const uint32_t *)b].st;

    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

static bool is_one_file(const struct layer_entry *a, const struct layer_entry *b)
{
    return a->st.dev == b->st.dev && a->st.ino == b->st.ino;
}

static int make_link(struct deriving *d, const struct group *group, uint32_t at, struct err *err)
{
    const struct layer_entry *entry = &d->layer.entries[at];
    const struct layer_entry *leader = &d->layer.entries[group->leader];
    const struct path_fate *to = &d->outcomes[group->leader];
    struct path_fate *outcome = &d->outcomes[at];

    if (to->fate == FATE_BASE && outcome->fate == FATE_BASE && leader->was.ino == entry->was.ino &&
        leader->was.dev == entry->was.dev)
        return 0; /* one file in the base too */
    if (outcome->operation == NO_OPERATION) {
        bool here = outcome->fate == FATE_LINK;
        outcome->operation =
            derive_add(d, PLAN_WRITE, entry->path, here ? entry->place : entry->from,
                       here ? &entry->base : &entry->was, err);
        if (outcome->operation < 0)
            return -1;
    }
    const char *link = derive_keep(d, leader->path, err);
    if (!link)
        return -1;
    struct plan_operation *o = &d->plan->operations[outcome->operation];
    o->kind = o->has_base ? PLAN_WRITE : PLAN_CREATE;
    o->mode = entry->st.mode & (S_IFMT | 0777);
    o->link = link;
    o->has_hash = to->fate == FATE_NEW;
    if (o->has_hash) {
        const struct plan_operation *content = &d->plan->operations[to->operation];
        o->size = content->size;
        o->mtime_ns = content->mtime_ns;
        memcpy(o->hash, content->hash, PLAN_HASH);
    }
    return 0;
}

/* The base's file leads, if it is one of them: then nothing has to be carried. False: none of them
 * can; they are links to something outside the layer already. */
static bool choose_leader(const struct deriving *d, struct group *group)
{
    bool found = false;

    for (int with_data = 0; with_data < 2 && !found; with_data++) {
        for (size_t i = 0; i < group->count && !found; i++) {
            group->leader = group->entries[i];
            found = d->outcomes[group->leader].fate == (with_data ? FATE_NEW : FATE_BASE);
        }
    }
    return found;
}

static int join_names(struct deriving *d, struct group *group, struct err *err)
{
    for (size_t i = 0; i < group->count; i++) {
        bool linked = d->outcomes[group->entries[i]].fate == FATE_LINK &&
                      d->outcomes[group->leader].fate == FATE_BASE;
        if (group->entries[i] != group->leader && !linked &&
            make_link(d, group, group->entries[i], err) < 0)
            return -1;
    }
    return 0;
}

/* --- names in the base --- */

enum {
    NO_LEADER = INT32_MAX,
    MOST_NAMELESS = 64, /* each is compared with every file that has several names */
};

struct missing {
    uint64_t dev;
    uint64_t ino;
    uint32_t leader;
};

struct nameless {
    struct origin origin;
    uint32_t leader;   /* NO_LEADER: the layer has no name of it at all */
    uint32_t mode;     /* then: as the layer has it, */
    bool written;      /* whether it has data of its own, */
    const char *index; /* and where it is in the plan's directory */
};

struct scan {
    struct deriving *d;
    struct missing *files;
    size_t count;
    struct nameless *nameless;
    size_t nameless_count;
    int index;
    uint64_t dev;
};

static struct nameless *add_nameless(struct scan *scan, struct err *err)
{
    struct nameless *all = reallocarray(scan->nameless, scan->nameless_count + 1, sizeof(all[0]));

    if (!all) {
        (void)err_set(err, ERR_LIMIT, ENOMEM, "look for the other names of files");
        return NULL;
    }
    scan->nameless = all;
    all[scan->nameless_count] = (struct nameless){.leader = NO_LEADER};
    return &all[scan->nameless_count];
}

static int note_nameless(struct scan *scan, const struct group *group, struct err *err)
{
    const struct layer_entry *leader = &scan->d->layer.entries[group->leader];
    struct nameless *added = add_nameless(scan, err);

    if (!added)
        return -1;
    added->leader = group->leader;
    derive_origin(scan->d->layer.upper, leader->path, &added->origin);
    if (added->origin.n == 0 || scan->nameless_count == MOST_NAMELESS)
        return plan_add_flaw(scan->d->plan, PLAN_FLAW_LOST, leader->path, err);
    scan->nameless_count++;
    return 0;
}

/* What was changed through a name that was deleted then lies in overlayfs' own index only: its
 * other names show it, and the layer has nothing to carry. */
static int visit_index(void *context, struct plan_entry *entry, struct err *err)
{
    struct scan *scan = context;
    char file[64 + PLAN_MAX_NAME];

    entry->skip_below = true;
    if (!S_ISREG(entry->st->st_mode) || entry->st->st_nlink != 1)
        return 0;
    if (scan->nameless_count == MOST_NAMELESS)
        return err_set(err, ERR_LIMIT, 0,
                       "too many files with several names were changed through "
                       "names that were deleted");
    struct nameless *added = add_nameless(scan, err);
    if (!added)
        return -1;
    snprintf(file, sizeof(file), "/proc/self/fd/%d/%s", scan->index, entry->path);
    added->mode = entry->st->st_mode;
    added->index = arena_printf(&scan->d->layer.arena, "work/index/%s", entry->path);
    if (!added->index)
        return err_set(err, ERR_LIMIT, ENOMEM, "read the layer's index");
    added->written = lgetxattr(file, "trusted.overlay.metacopy", NULL, 0) < 0;
    derive_origin(scan->index, entry->path, &added->origin);
    scan->nameless_count += added->origin.n > 0;
    return 0;
}

static int read_index(struct scan *scan, struct err *err)
{
    scoped_fd int fd = path_open_beneath(scan->d->how->dir, "work/index", O_PATH | O_DIRECTORY, 1);
    struct plan_walk walk = {.root = fd, .top = "", .visit = visit_index, .context = scan};

    if (!scan->d->how->privileged || fd == -ENOENT)
        return 0;
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open the layer's index");
    scan->index = fd;
    return plan_walk(&walk, err);
}

static int note_missing(struct scan *scan, const struct group *group, struct err *err)
{
    struct deriving *d = scan->d;
    const struct layer_entry *leader = &d->layer.entries[group->leader];
    struct origin origin;

    if (d->outcomes[group->leader].fate != FATE_NEW || leader->names <= (int64_t)group->count)
        return 0;
    derive_origin(d->layer.upper, leader->path, &origin);
    for (size_t i = 0; i < group->count; i++) {
        const struct plan_operation *o =
            &d->plan->operations[d->outcomes[group->entries[i]].operation];
        /* What it writes over may be another file than the one that it is. */
        if (!o->has_base || (origin.n > 0 && !derive_is_origin(d, plan_base_path(o), &origin)))
            continue;
        if (scan->count % 64 == 0) {
            struct missing *files =
                reallocarray(scan->files, scan->count + 64, sizeof(scan->files[0]));
            if (!files)
                return err_set(err, ERR_LIMIT, ENOMEM, "look for the other names of files");
            scan->files = files;
        }
        scan->files[scan->count++] = (struct missing){o->base.dev, o->base.ino, group->leader};
        return 0;
    }
    return note_nameless(scan, group, err);
}

static int compare_missing(const void *a, const void *b)
{
    const struct missing *x = a;
    const struct missing *y = b;

    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* Whether what only the index has is the base's file, as when one of its names was deleted. */
static bool is_unchanged(const struct deriving *d, const struct nameless *nameless,
                         const struct plan_entry *entry)
{
    return nameless->leader == NO_LEADER && !nameless->written &&
           nameless->mode == entry->st->st_mode &&
           content_same_attributes(d->how->dir, nameless->index, d->how->tree, entry->path) == 1;
}

/* The entry of the layer that this base file shows, or -1. */
static int64_t find_leader(const struct scan *scan, const struct plan_entry *entry)
{
    struct missing key = {.dev = entry->st->st_dev, .ino = entry->st->st_ino};
    const struct missing *found =
        scan->count ? bsearch(&key, scan->files, scan->count, sizeof(key), compare_missing) : NULL;

    if (found)
        return found->leader;
    for (size_t i = 0; i < scan->nameless_count; i++) {
        const struct nameless *nameless = &scan->nameless[i];
        if (!derive_is_origin(scan->d, entry->path, &nameless->origin))
            continue;
        return is_unchanged(scan->d, nameless, entry) ? -1 : (int64_t)nameless->leader;
    }
    return -1;
}

static int write_too(struct deriving *d, const struct plan_entry *entry, const char *final,
                     uint32_t leader, struct err *err)
{
    struct plan_identity identity;

    plan_identify(&identity, entry->st);
    int index = derive_add(d, PLAN_WRITE, final, entry->path, &identity, err);
    const char *link = index < 0 ? NULL : derive_keep(d, d->layer.entries[leader].path, err);
    if (!link)
        return -1;
    struct plan_operation *o = &d->plan->operations[index];
    const struct plan_operation *content = &d->plan->operations[d->outcomes[leader].operation];
    o->mode = content->mode;
    o->size = content->size;
    o->mtime_ns = content->mtime_ns;
    o->has_hash = true;
    memcpy(o->hash, content->hash, PLAN_HASH);
    o->link = link;
    return 0;
}

static int visit(void *context, struct plan_entry *entry, struct err *err)
{
    const struct scan *scan = context;
    struct deriving *d = scan->d;
    char final[PLAN_MAX_PATH + 1];

    entry->skip_below = plan_is_reserved(entry->path) || entry->st->st_dev != scan->dev;
    if (!S_ISREG(entry->st->st_mode) || entry->st->st_nlink < 2 || entry->skip_below)
        return 0;
    int64_t leader = find_leader(scan, entry);
    if (leader < 0 || derive_place(d, entry->path) || derive_claim(d, entry->path) ||
        !derive_follow(d, entry->path, final))
        return 0;
    if (leader == NO_LEADER)
        return plan_add_flaw(d->plan, PLAN_FLAW_OTHER_NAME, final, err);
    return write_too(d, entry, final, (uint32_t)leader, err);
}

static int find_missing(struct scan *scan, struct err *err)
{
    struct plan_walk walk = {
        .root = scan->d->how->tree, .top = "", .visit = visit, .context = scan};
    struct stat st;

    if (scan->count + scan->nameless_count == 0)
        return 0;
    if (fstat(scan->d->how->tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the tree");
    scan->dev = st.st_dev;
    if (scan->count > 0)
        qsort(scan->files, scan->count, sizeof(scan->files[0]), compare_missing);
    if (plan_walk(&walk, err) < 0)
        return err_wrap(err, "look for the other names of changed files");
    return 0;
}

/* --- both --- */

static int join_groups(struct deriving *d, uint32_t *shared, size_t n, struct scan *scan,
                       struct err *err)
{
    for (size_t first = 0, end = 0; first < n; first = end) {
        while (end < n &&
               is_one_file(&d->layer.entries[shared[first]], &d->layer.entries[shared[end]]))
            end++;
        struct group group = {.entries = shared + first, .count = end - first};
        if (!choose_leader(d, &group))
            continue;
        if (join_names(d, &group, err) < 0 || note_missing(scan, &group, err) < 0)
            return -1;
    }
    return 0;
}

int derive_links(struct deriving *d, struct err *err)
{
    uint32_t *shared = reallocarray(NULL, d->layer.count + 1, sizeof(shared[0]));
    struct scan scan = {.d = d};
    size_t n = 0;

    if (!shared)
        return err_set(err, ERR_LIMIT, ENOMEM, "sort the names of files");
    for (size_t i = 0; i < d->layer.count; i++) {
        const struct layer_entry *entry = &d->layer.entries[i];
        enum fate fate = d->outcomes[i].fate;
        if (entry->shared && (fate == FATE_NEW || fate == FATE_BASE || fate == FATE_LINK))
            shared[n++] = (uint32_t)i;
    }
    qsort_r(shared, n, sizeof(shared[0]), compare_files, d->layer.entries);
    int r = join_groups(d, shared, n, &scan, err);
    if (r == 0)
        r = read_index(&scan, err);
    if (r == 0)
        r = find_missing(&scan, err);
    free(shared);
    free(scan.files);
    free(scan.nameless);
    return r;
}
