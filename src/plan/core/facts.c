/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/facts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/reach.h"
#include "plan/core/rules.h"
#include "plan/core/tree_digest.h"
#include "sys/path.h"

enum {
    MOST_TEXT = 64 << 20,    /* of the names that facts keep */
    MOST_NAMES = 1 << 20,    /* looked through for protected ones, in all */
    MOST_LOOKED_AT = 200000, /* ... for sensitive ones, and links */
    MOST_FOLLOWED = 2000000, /* on the ways that links lead */
};

struct gathering {
    struct plan_facts *facts;
    const struct plan_index *index;
    const struct plan_policy *policy;
    int tree;
    int dir;
    uint64_t dev;   /* of the tree */
    uint64_t names; /* that may still be looked at */
    uint64_t looks; /* ... for sensitive ones, and links */
    const int64_t *ctimes;
    struct patterns protect;
    struct plan_bases bases;
    struct plan_leads leads;
    struct err *err;
};

static enum plan_sight_state state_of(int error)
{
    static const struct {
        int error;
        enum plan_sight_state state;
    } states[] = {
        {ENOENT, SIGHT_ABSENT},   {ENOTDIR, SIGHT_FILE_ABOVE}, {ELOOP, SIGHT_LINK_ABOVE},
        {EXDEV, SIGHT_ELSEWHERE}, {EACCES, SIGHT_DENIED},      {EPERM, SIGHT_DENIED},
    };

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        if (states[i].error == error)
            return states[i].state;
    }
    return SIGHT_FAILED;
}

/* An O_PATH descriptor, which opens nothing, or -1. */
static int look_at(int tree, const char *path, struct plan_sight *ret, struct stat *st)
{
    int fd = path_open_beneath(tree, *path ? path : ".", O_PATH | O_NOFOLLOW, 1);

    *ret = (struct plan_sight){.state = SIGHT_PRESENT};
    if (fd < 0) {
        ret->state = state_of(-fd);
        return -1;
    }
    if (fstat(fd, st) < 0) {
        ret->state = SIGHT_FAILED;
        (void)close(fd);
        return -1;
    }
    ret->mode = st->st_mode;
    ret->size = (uint64_t)st->st_size;
    return fd;
}

void plan_look(int tree, const char *path, struct plan_sight *ret)
{
    struct stat st;
    scoped_fd int fd = look_at(tree, path, ret, &st);

    (void)fd;
}

/* --- of one operation --- */

/* A directory that goes is the noted one only with what lies in it. */
static bool is_same_below(struct gathering *g, const struct plan_operation *operation)
{
    struct tree_digest digest;
    struct err err = {0};

    return tree_digest_except(&digest, g->tree, operation->path, &g->bases, &err) == 0 &&
           memcmp(digest.below, operation->below, PLAN_HASH) == 0;
}

static void look_at_base(struct gathering *g, const struct plan_operation *operation,
                         struct plan_fact *fact)
{
    const char *path = plan_base_path(operation);
    struct stat st;

    if (!path)
        return;
    scoped_fd int fd = look_at(g->tree, path, &fact->base, &st);
    if (fd < 0)
        return;
    fact->names = st.st_nlink;
    fact->same = reach_is_same(&operation->base, &st, g->dev,
                               g->ctimes ? g->ctimes[operation - g->index->plan->operations] : 0);
    if (fact->same && operation->kind == PLAN_DELETE && S_ISDIR(st.st_mode))
        fact->same = is_same_below(g, operation);
}

/* The directory of the final path, where the base has it: else the plan says all there is. */
static void look_at_parent(struct gathering *g, const char *path, struct plan_fact *fact)
{
    char parent[PLAN_MAX_PATH + 1] = "";
    char origin[PLAN_MAX_PATH + 1] = "";
    const char *slash = strrchr(path, '/');
    ssize_t by;

    if (slash && (size_t)(slash - path) < sizeof(parent)) {
        memcpy(parent, path, (size_t)(slash - path));
        if (plan_after(g->index, parent) != PLAN_NOBODY ||
            plan_place_of(g->index, parent, origin, &by) != PLACE_BASE)
            return;
    }
    plan_look(g->tree, origin, &fact->parent);
}

static void look_at_place(struct gathering *g, const struct plan_operation *operation,
                          struct plan_fact *fact)
{
    char origin[PLAN_MAX_PATH + 1];
    ssize_t by;

    if (operation->kind == PLAN_DELETE)
        return;
    if (plan_place_of(g->index, operation->path, origin, &by) == PLACE_BASE)
        plan_look(g->tree, origin, &fact->there);
    look_at_parent(g, operation->path, fact);
    if (operation->link && !operation->has_hash && plan_after(g->index, operation->link) < 0 &&
        plan_place_of(g->index, operation->link, origin, &by) == PLACE_BASE)
        plan_look(g->tree, origin, &fact->linked);
}

static enum plan_magic magic_of(const unsigned char *bytes, size_t n)
{
    static const struct {
        enum plan_magic magic;
        unsigned char n;
        unsigned char bytes[4];
    } magics[] = {
        {PLAN_MAGIC_ELF, 4, {0x7f, 'E', 'L', 'F'}},
        {PLAN_MAGIC_PE, 2, {'M', 'Z'}},
        {PLAN_MAGIC_MACH, 4, {0xfe, 0xed, 0xfa, 0xce}},
        {PLAN_MAGIC_MACH, 4, {0xfe, 0xed, 0xfa, 0xcf}},
        {PLAN_MAGIC_MACH, 4, {0xce, 0xfa, 0xed, 0xfe}},
        {PLAN_MAGIC_MACH, 4, {0xcf, 0xfa, 0xed, 0xfe}},
        {PLAN_MAGIC_MACH, 4, {0xca, 0xfe, 0xba, 0xbe}},
        {PLAN_MAGIC_SCRIPT, 2, {'#', '!'}},
    };

    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
        if (n >= magics[i].n && memcmp(bytes, magics[i].bytes, magics[i].n) == 0)
            return magics[i].magic;
    }
    return PLAN_MAGIC_NONE;
}

/* The content is in the plan's own directory, and regular by now. */
static void look_at_content(struct gathering *g, const struct plan_operation *operation,
                            struct plan_fact *fact)
{
    char path[PLAN_MAX_PATH + 8];
    unsigned char bytes[4];
    struct stat st;

    if (!operation->has_hash || operation->link)
        return;
    if ((size_t)snprintf(path, sizeof(path), "upper/%s", operation->path) >= sizeof(path))
        return;
    scoped_fd int there = look_at(g->dir, path, &fact->staged, &st);
    if (there < 0 || !S_ISREG(st.st_mode) || !g->policy->magics)
        return;
    scoped_fd int fd = path_open_beneath(g->dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 1);
    ssize_t n = fd < 0 ? -1 : pread(fd, bytes, sizeof(bytes), 0);
    if (n < 0)
        fact->staged.state = SIGHT_DENIED;
    else
        fact->magic = magic_of(bytes, (size_t)n);
}

/* --- what lies in a directory that goes --- */

struct hunt {
    struct gathering *g;
    struct plan_fact *fact;
    bool for_sensitive; /* besides links that lead out */
};

/* By its path in the base and by the one it will have; what an operation of its own takes out of
 * the directory is judged there. */
static int hunt_protected(void *context, struct plan_entry *entry, struct err *err)
{
    struct hunt *hunt = context;
    struct gathering *g = hunt->g;
    char final[PLAN_MAX_PATH + 1];

    if (g->names == 0)
        return err_set(err, ERR_LIMIT, 0, "there are more than %d", MOST_NAMES);
    g->names--;
    if (plan_before(g->index, entry->path) != PLAN_NOBODY) {
        entry->skip_below = true;
        return 0;
    }
    if (!patterns_match(&g->protect, entry->path) &&
        (!plan_follow(g->index, entry->path, final) || !patterns_match(&g->protect, final)))
        return 0;
    hunt->fact->protected_path = arena_copy(&g->facts->arena, entry->path, strlen(entry->path));
    return hunt->fact->protected_path ? err_set(err, ERR_CONFLICT, 0, "found")
                                      : err_set(err, ERR_LIMIT, ENOMEM, "keep a name");
}

static int look_below(struct gathering *g, const struct plan_operation *operation,
                      struct plan_fact *fact)
{
    struct hunt hunt = {.g = g, .fact = fact};
    const char *base = plan_base_path(operation);

    if ((operation->kind != PLAN_MOVE && operation->kind != PLAN_DELETE) || !base || !fact->same ||
        !S_ISDIR(fact->base.mode))
        return 0;
    if (!patterns_may_match_below(&g->protect, base) &&
        (operation->kind == PLAN_DELETE || !patterns_may_match_below(&g->protect, operation->path)))
        return 0;
    struct plan_walk walk = {
        .root = g->tree, .top = base, .visit = hunt_protected, .context = &hunt};
    if (plan_walk(&walk, g->err) < 0 && !fact->protected_path)
        return err_wrap(g->err, "look for protected files below '%.200s'", base);
    return 0;
}

/* What programs obey, by the path it has and by the one it will have ("": none). */
static void look_if_sensitive(struct hunt *hunt, const char *path, const char *final)
{
    struct plan_fact *fact = hunt->fact;
    const char *why = plan_sensitive(path, false);

    if (!why && *final)
        why = plan_sensitive(final, false);
    if (!why)
        return;
    fact->sensitive_why = why;
    fact->sensitive_path = arena_copy(&hunt->g->facts->arena, path, strlen(path));
}

/* A link means something else in another directory, though no operation names it. */
static void look_if_it_leads_out(struct hunt *hunt, const char *path, const char *final)
{
    struct plan_fact *fact = hunt->fact;
    char through[PLAN_MAX_PATH + 1];

    fact->lead = plan_lead_of_moved(&hunt->g->leads, path, final, through);
    if (fact->lead != PLAN_LEAD_INSIDE)
        fact->lead_path = arena_copy(&hunt->g->facts->arena, path, strlen(path));
}

static int hunt_brought(void *context, struct plan_entry *entry, struct err *err)
{
    struct hunt *hunt = context;
    struct gathering *g = hunt->g;
    char final[PLAN_MAX_PATH + 1];

    if (g->looks == 0)
        return err_set(err, ERR_LIMIT, 0, "there are more than %d", MOST_LOOKED_AT);
    g->looks--;
    if (plan_before(g->index, entry->path) != PLAN_NOBODY) {
        entry->skip_below = true;
        return 0;
    }
    if (!plan_follow(g->index, entry->path, final))
        final[0] = '\0';
    if (hunt->for_sensitive && !hunt->fact->sensitive_path)
        look_if_sensitive(hunt, entry->path, final);
    if (S_ISLNK(entry->st->st_mode) && *final && hunt->fact->lead == PLAN_LEAD_INSIDE)
        look_if_it_leads_out(hunt, entry->path, final);
    return hunt->fact->lead != PLAN_LEAD_INSIDE &&
                   (!hunt->for_sensitive || hunt->fact->sensitive_path)
               ? err_set(err, ERR_CONFLICT, 0, "found")
               : 0;
}

/* A moved directory brings all that is in it to where somebody may open it. What cannot be looked
 * through is no failure: somebody else has to look. */
static void look_at_brought(struct gathering *g, const struct plan_operation *operation,
                            struct plan_fact *fact)
{
    struct hunt hunt = {.g = g, .fact = fact};
    const char *base = plan_base_path(operation);
    struct err err = {0};

    if (operation->kind != PLAN_MOVE || !base || !fact->same || !S_ISDIR(fact->base.mode))
        return;
    hunt.for_sensitive = g->policy->sensitive != PLAN_CARE_ALLOW &&
                         !plan_sensitive(operation->path, true) && !plan_sensitive(base, true);
    struct plan_walk walk = {.root = g->tree, .top = base, .visit = hunt_brought, .context = &hunt};
    if (plan_walk(&walk, &err) == 0)
        return;
    fact->is_unsearched = hunt.for_sensitive && !fact->sensitive_path;
    if (fact->lead == PLAN_LEAD_INSIDE)
        fact->lead = PLAN_LEAD_UNKNOWN;
}

/* Of a link that is moved, the plan knows the target too. */
static void look_where_it_leads(struct gathering *g, const struct plan_operation *operation,
                                struct plan_fact *fact)
{
    char through[PLAN_MAX_PATH + 1];

    if (operation->kind == PLAN_DELETE || !S_ISLNK(operation->mode) || !operation->target)
        return;
    fact->lead = plan_lead_of(&g->leads, operation->path, operation->target, through);
    if (fact->lead == PLAN_LEAD_OUT && through[0])
        fact->lead_through = arena_copy(&g->facts->arena, through, strlen(through));
}

static int look_at_tree(struct gathering *g)
{
    struct plan_facts *facts = g->facts;
    struct statvfs fs;
    struct stat st;

    if (fstatvfs(g->tree, &fs) < 0 || fstat(g->tree, &st) < 0)
        return err_set(g->err, ERR_IO, errno, "look at the tree");
    g->dev = st.st_dev;
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &facts->free_bytes))
        facts->free_bytes = UINT64_MAX;
    /* A file system that makes inodes as it goes has no number of them. */
    facts->free_files = fs.f_files == 0 ? UINT64_MAX : fs.f_favail;
    return 0;
}

static int gather_all(struct gathering *g)
{
    const struct plan *plan = g->index->plan;

    if (look_at_tree(g) < 0)
        return -1;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_operation *operation = &plan->operations[i];
        struct plan_fact *fact = &g->facts->at[i];
        look_at_base(g, operation, fact);
        if (look_below(g, operation, fact) < 0)
            return -1;
        look_at_brought(g, operation, fact);
        look_at_place(g, operation, fact);
        look_at_content(g, operation, fact);
        look_where_it_leads(g, operation, fact);
    }
    if (g->policy->case_twins == PLAN_CARE_ALLOW)
        return 0;
    return plan_facts_twins(g->facts, g->index, g->tree, g->err);
}

int plan_facts_gather(struct plan_facts *ret, const struct plan_index *index,
                      const struct plan_policy *policy, const struct plan_sources *from,
                      struct err *err)
{
    struct gathering g = {.facts = ret,
                          .index = index,
                          .policy = policy,
                          .tree = from->tree,
                          .dir = from->dir,
                          .names = MOST_NAMES,
                          .looks = MOST_LOOKED_AT,
                          .ctimes = from->ctimes,
                          .err = err};
    size_t count = index->plan->count;

    *ret = (struct plan_facts){.at = calloc(count + 1, sizeof(ret->at[0])), .count = count};
    arena_init(&ret->arena, MOST_TEXT);
    int r = ret->at ? patterns_make(&g.protect, &policy->protect, err)
                    : err_set(err, ERR_LIMIT, ENOMEM, "look at the base");
    if (r == 0)
        r = plan_bases_make(&g.bases, index->plan, err);
    plan_leads_init(&g.leads, index, from->tree, MOST_FOLLOWED);
    if (r == 0)
        r = gather_all(&g);
    plan_leads_clear(&g.leads);
    plan_bases_clear(&g.bases);
    patterns_clear(&g.protect);
    if (r < 0)
        plan_facts_clear(ret);
    return r;
}

void plan_facts_clear(struct plan_facts *facts)
{
    free(facts->at);
    arena_clear(&facts->arena);
    *facts = (struct plan_facts){0};
}
