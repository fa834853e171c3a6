/* SPDX-License-Identifier: Apache-2.0 */
/* Path by path:
 *
 *   judge    what only one side has changed is taken from it; of files that both have, content,
 *            mode and attributes each by itself, and text by its lines
 *   settle   from the last path to the first: a directory with something in it stays, and no file
 *            is above another
 *   plan     what has to be done to the tree for that
 *
 * Where both have changed the same in different ways, that is a conflict: somebody has to say which
 * side is taken, for all or by path. Times alone are no change. A name is a name: what was renamed
 * is gone there and new here. */
#include "plan/trees/merge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fd.h"
#include "plan/core/attributes.h"
#include "plan/core/content.h"
#include "plan/core/tree_digest.h"
#include "plan/derive/staged.h"
#include "plan/trees/lines.h"
#include "sys/path.h"

enum {
    PERMISSIONS = 0777,
    MOST_TOLD = 1000, /* conflicts */
    PIECE = 256 << 10,
};

enum which {
    BASE,
    OURS,
    THEIRS,
    SIDES,
};

/* What becomes of one path. */
struct outcome {
    const char *path;
    const struct version_entry *of[SIDES]; /* NULL: not there */
    const char *conflict;                  /* what it is about, where nobody has decided yet */
    bool is_told;                          /* it is among the conflicts */
    enum which content;                    /* whose; `of` it NULL: the path is gone */
    enum which attributes;
    uint32_t mode;
    char *text; /* content of both */
    size_t text_n;
};

struct merging {
    const struct merge_wish *wish;
    struct merge_outcome *ret;
    struct outcome *at;
    size_t count;
    const struct version *versions[SIDES];
    uint64_t holes;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "merge two trees");
}

static struct version_at at_side(const struct merging *m, const struct outcome *o, enum which side)
{
    return (struct version_at){m->versions[side], o->of[side]};
}

static bool is_there(const struct outcome *o)
{
    return o->text || o->of[o->content];
}

static bool is_kind(const struct outcome *o, enum which side, mode_t type)
{
    return o->of[side] && (o->of[side]->st.mode & S_IFMT) == type;
}

static void take_side(struct outcome *o, enum which side)
{
    free(o->text);
    o->text = NULL;
    o->content = o->attributes = side;
    o->mode = o->of[side] ? o->of[side]->st.mode & (S_IFMT | PERMISSIONS) : 0;
    o->conflict = NULL;
}

/* --- conflicts --- */

static enum merge_side decision(const struct merging *m, const struct outcome *o)
{
    const char *word = json_string_value(json_object_get(m->wish->decided, o->path));

    if (!word)
        return m->wish->prefer;
    return strcmp(word, "ours") == 0 ? MERGE_OURS : MERGE_THEIRS;
}

static int tell(struct merging *m, struct outcome *o, const char *about, const char *taken,
                struct err *err)
{
    if (o->is_told || m->ret->conflict_count++ >= MOST_TOLD)
        return 0;
    o->is_told = true;
    json_t *told = json_pack("{s:s, s:s?}", "conflict", about, "taken", taken);
    if (told && version_set_path(told, o->path) == 0 &&
        json_array_append(m->ret->conflicts, told) == 0) {
        json_decref(told);
        return 0;
    }
    json_decref(told);
    return no_memory(err);
}

/* Either a side is taken, or the path waits for a decision, with ours in its place. */
static int conflict(struct merging *m, struct outcome *o, const char *about, struct err *err)
{
    enum merge_side side = decision(m, o);

    if (side == MERGE_UNDECIDED) {
        m->ret->undecided += !o->is_told;
        take_side(o, o->of[OURS] ? OURS : THEIRS);
        o->conflict = about;
        return tell(m, o, about, NULL, err);
    }
    take_side(o, side == MERGE_OURS ? OURS : THEIRS);
    return tell(m, o, about, side == MERGE_OURS ? "ours" : "theirs", err);
}

/* --- files that all three have --- */

static int read_text(const struct merging *m, const struct outcome *o, enum which side,
                     struct lines_text *ret, struct err *err)
{
    size_t n = (size_t)o->of[side]->st.size;

    *ret = (struct lines_text){NULL, o->of[side]->st.size};
    if (o->of[side]->st.size > LINES_LARGEST)
        return 0;
    scoped_fd int fd = version_open(at_side(m, o, side), err);
    char *bytes = fd < 0 ? NULL : malloc(n + 1);
    if (fd < 0 || !bytes)
        return fd < 0 ? -1 : no_memory(err);
    ret->bytes = bytes;
    for (size_t at = 0; at < n;) {
        ssize_t got = pread(fd, bytes + at, n - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_set(err, ERR_CONFLICT, 0, "'%.300s' is being changed; try again", o->path);
        at += (size_t)got;
    }
    return 0;
}

/* 1: `o` has the text of both; 0: it cannot be merged. */
static int merge_text(struct merging *m, struct outcome *o, struct err *err)
{
    struct lines_text of[SIDES] = {{0}};
    scoped_buf struct buf text = {0};
    int r = 1;

    buf_init(&text, 2UL * LINES_LARGEST + 1);
    for (enum which side = BASE; side < SIDES && r > 0; side++) {
        r = read_text(m, o, side, &of[side], err) < 0 ? -1 : 1;
        if (r > 0 && !lines_is_text(&of[side]))
            r = 0;
    }
    if (r > 0) {
        r = lines_merge(&text, &of[BASE], &of[OURS], &of[THEIRS]);
        if (r < 0)
            (void)no_memory(err);
    }
    for (enum which side = BASE; side < SIDES; side++)
        free((void *)(uintptr_t)of[side].bytes);
    if (r <= 0)
        return r;
    o->text = malloc(text.n + 1);
    if (!o->text)
        return no_memory(err);
    memcpy(o->text, text.p ? text.p : "", text.n);
    o->text_n = text.n;
    m->ret->merged++;
    return 1;
}

/* Which side's it is, where at most one has changed it, or both alike; SIDES: neither. */
static enum which pick(bool ours_is_base, bool theirs_is_base, bool are_same)
{
    return theirs_is_base || are_same ? OURS : ours_is_base ? THEIRS : SIDES;
}

static int judge_files(struct merging *m, struct outcome *o, struct err *err)
{
    struct version_parts ours;
    struct version_parts theirs;
    struct version_parts both = {false, false};
    uint32_t modes[SIDES];

    if (version_compare_files(at_side(m, o, BASE), at_side(m, o, OURS), &ours, err) < 0 ||
        version_compare_files(at_side(m, o, BASE), at_side(m, o, THEIRS), &theirs, err) < 0)
        return -1;
    bool differ = (!ours.content && !theirs.content) || (!ours.attributes && !theirs.attributes);
    if (differ && version_compare_files(at_side(m, o, OURS), at_side(m, o, THEIRS), &both, err) < 0)
        return -1;
    for (enum which side = BASE; side < SIDES; side++)
        modes[side] = o->of[side]->st.mode & PERMISSIONS;
    enum which mode = pick(modes[OURS] == modes[BASE], modes[THEIRS] == modes[BASE],
                           modes[OURS] == modes[THEIRS]);
    o->attributes = pick(ours.attributes, theirs.attributes, both.attributes);
    o->content = pick(ours.content, theirs.content, both.content);
    if (mode == SIDES || o->attributes == SIDES)
        return conflict(m, o, mode == SIDES ? "mode" : "attributes", err);
    o->mode = S_IFREG | modes[mode];
    if (o->content != SIDES)
        return 0;
    o->content = OURS;
    int r = merge_text(m, o, err);
    return r < 0 ? -1 : r > 0 ? 0 : conflict(m, o, "content", err);
}

/* --- one path --- */

static int judge_directories(struct merging *m, struct outcome *o, struct err *err)
{
    const uint32_t ours = o->of[OURS]->st.mode & PERMISSIONS;
    const uint32_t theirs = o->of[THEIRS]->st.mode & PERMISSIONS;

    take_side(o, OURS); /* and of two new ones, too */
    if (!is_kind(o, BASE, S_IFDIR))
        return 0;
    uint32_t base = o->of[BASE]->st.mode & PERMISSIONS;
    enum which mode = pick(ours == base, theirs == base, ours == theirs);
    if (mode == SIDES)
        return conflict(m, o, "mode", err);
    take_side(o, mode);
    return 0;
}

static const char *what_both_did(const struct outcome *o)
{
    return !o->of[OURS]     ? "deleted here, changed there"
           : !o->of[THEIRS] ? "changed here, deleted there"
           : !o->of[BASE]   ? "new in both"
                            : "changed in both";
}

static int judge(struct merging *m, struct outcome *o, struct err *err)
{
    if (!m->wish->base) {
        take_side(o, THEIRS);
        return 0;
    }
    if (is_kind(o, OURS, S_IFDIR) && is_kind(o, THEIRS, S_IFDIR))
        return judge_directories(m, o, err);
    if (is_kind(o, BASE, S_IFREG) && is_kind(o, OURS, S_IFREG) && is_kind(o, THEIRS, S_IFREG))
        return judge_files(m, o, err);
    int ours = version_is_same(at_side(m, o, BASE), at_side(m, o, OURS), err);
    int theirs = ours < 0 ? -1 : version_is_same(at_side(m, o, BASE), at_side(m, o, THEIRS), err);
    int both = theirs < 0 ? -1
               : ours > 0 || theirs > 0
                   ? 0
                   : version_is_same(at_side(m, o, OURS), at_side(m, o, THEIRS), err);
    if (both < 0)
        return -1;
    enum which side = pick(ours > 0, theirs > 0, both > 0);
    if (side == SIDES)
        return conflict(m, o, what_both_did(o), err);
    take_side(o, side);
    return 0;
}

/* The paths of all three, in order. */
static int gather(struct merging *m, struct err *err)
{
    size_t next[SIDES] = {0};
    size_t most = 0;

    for (enum which side = BASE; side < SIDES; side++)
        most += m->versions[side] ? m->versions[side]->count : 0;
    m->at = calloc(most + 1, sizeof(m->at[0]));
    if (!m->at)
        return no_memory(err);
    for (;; m->count++) {
        struct outcome *o = &m->at[m->count];
        for (enum which side = BASE; side < SIDES; side++) {
            const struct version *v = m->versions[side];
            if (v && next[side] < v->count &&
                (!o->path || plan_compare_paths(v->at[next[side]].path, o->path) < 0))
                o->path = v->at[next[side]].path;
        }
        if (!o->path)
            return 0;
        for (enum which side = BASE; side < SIDES; side++) {
            const struct version *v = m->versions[side];
            if (v && next[side] < v->count && strcmp(v->at[next[side]].path, o->path) == 0)
                o->of[side] = &v->at[next[side]++];
        }
        if (judge(m, o, err) < 0) {
            m->count++;
            return -1;
        }
    }
}

/* --- what is above what --- */

static int compare_to_outcome(const void *path, const void *outcome)
{
    return plan_compare_paths(path, ((const struct outcome *)outcome)->path);
}

static struct outcome *find_above(const struct merging *m, const struct outcome *o)
{
    char above[PLAN_MAX_PATH + 1];
    const char *slash = strrchr(o->path, '/');

    if (!slash)
        return NULL;
    memcpy(above, o->path, (size_t)(slash - o->path));
    above[slash - o->path] = '\0';
    return bsearch(above, m->at, m->count, sizeof(m->at[0]), compare_to_outcome);
}

/* All below it goes. */
static void drop_below(struct merging *m, const struct outcome *o)
{
    for (struct outcome *below = &m->at[o - m->at + 1];
         below < m->at + m->count && plan_is_below(below->path, o->path); below++) {
        free(below->text);
        *below = (struct outcome){.path = below->path, .of = {NULL, below->of[OURS], NULL}};
        below->content = THEIRS; /* which has nothing here */
    }
}

/* Something in it stays. One side has a directory there, as it has that in it. */
static int settle_above(struct merging *m, struct outcome *o, struct err *err)
{
    bool is_ours = is_kind(o, OURS, S_IFDIR);

    if (is_there(o) && S_ISDIR(o->mode))
        return 0;
    if (!is_there(o)) {
        take_side(o, is_ours ? OURS : THEIRS);
        return 0;
    }
    if (o->conflict) /* told already */
        return 0;
    if (conflict(m, o, "a file there, files below it here", err) < 0)
        return -1;
    if (!o->conflict && !S_ISDIR(o->mode))
        drop_below(m, o);
    return 0;
}

static int settle(struct merging *m, struct err *err)
{
    for (size_t i = m->count; i-- > 0;) {
        struct outcome *above = is_there(&m->at[i]) ? find_above(m, &m->at[i]) : NULL;
        if (above && settle_above(m, above, err) < 0)
            return -1;
    }
    return 0;
}

/* --- the plan --- */

static struct plan_operation *add(struct merging *m, enum plan_kind kind, const struct outcome *o,
                                  struct err *err)
{
    struct plan *plan = &m->ret->plan;
    const char *path = arena_copy(&plan->arena, o->path, strlen(o->path));
    struct plan_operation *made = path ? plan_add(plan, err) : NULL;

    if (!made) {
        if (!path)
            (void)no_memory(err);
        return NULL;
    }
    made->kind = kind;
    made->path = path;
    made->mode = kind == PLAN_DELETE ? o->of[OURS]->st.mode : o->mode;
    made->mtime_ns = o->of[o->content] ? o->of[o->content]->st.mtime_ns : 0;
    made->has_base = o->of[OURS] && kind != PLAN_CREATE && kind != PLAN_MKDIR;
    if (made->has_base)
        made->base = o->of[OURS]->st;
    return made;
}

static int copy_content(int in, int out, uint64_t size)
{
    char *piece = malloc(PIECE);
    int r = piece ? 0 : -ENOMEM;

    for (uint64_t at = 0; r == 0 && at < size;) {
        loff_t from = (loff_t)at;
        loff_t to = (loff_t)at;
        ssize_t n = copy_file_range(in, &from, out, &to, (size_t)(size - at), 0);
        if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP)) {
            n = pread(in, piece, PIECE, (off_t)at);
            if (n > 0)
                n = pwrite(out, piece, (size_t)n, (off_t)at);
        }
        if (n <= 0)
            r = n < 0 ? -errno : -ESTALE;
        else
            at += (uint64_t)n;
    }
    free(piece);
    return r;
}

static int note_content(struct merging *m, const struct outcome *o, struct plan_operation *made,
                        int out, struct err *err)
{
    int r = 0;

    made->has_hash = true;
    if (o->text) {
        made->size = o->text_n;
        r = fd_write_all(out, o->text, o->text_n);
        if (r == 0)
            r = digest_bytes(o->text, o->text_n, made->hash);
    } else {
        scoped_fd int in = version_open(at_side(m, o, o->content), err);
        if (in < 0)
            return -1;
        made->size = o->of[o->content]->st.size;
        r = copy_content(in, out, made->size);
        if (r == 0)
            r = content_hash(out, made->size, &m->holes, made->hash);
    }
    return r < 0 ? err_set(err, r == -ESTALE ? ERR_CONFLICT : ERR_IO, -r,
                           "keep the content of '%.300s'", o->path)
                 : 0;
}

static int note_attributes(struct merging *m, const struct outcome *o, struct plan_operation *made,
                           struct err *err)
{
    scoped_buf struct buf text = {0};
    enum which side = o->of[o->attributes] ? o->attributes : o->content;
    scoped_fd int fd = version_open(at_side(m, o, side), err);

    if (fd < 0)
        return -1;
    buf_init(&text, ATTRIBUTES_LARGEST);
    int r = attributes_read(fd, NULL, &text);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "read the attributes of '%.300s'", o->path);
    if (text.n > 0 && !(made->attributes = arena_copy(&m->ret->plan.arena, text.p, text.n)))
        return no_memory(err);
    return 0;
}

static int bring(struct merging *m, enum plan_kind kind, const struct outcome *o, int upper,
                 struct err *err)
{
    struct plan_operation *made = add(m, kind, o, err);
    struct timespec now;

    if (!made)
        return -1;
    if (o->text) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        made->mtime_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    scoped_fd int out = staged_make(upper, o->path);
    if (out < 0)
        return err_set(err, ERR_IO, -out, "keep the content of '%.300s'", o->path);
    if (note_content(m, o, made, out, err) < 0 || note_attributes(m, o, made, err) < 0)
        return -1;
    if (fchmod(out, o->mode & PERMISSIONS) < 0)
        return err_set(err, ERR_IO, errno, "keep the content of '%.300s'", o->path);
    return 0;
}

static int link_to(struct merging *m, const struct outcome *o, struct err *err)
{
    char target[PLAN_MAX_PATH + 1];
    struct plan_operation *made = add(m, PLAN_SYMLINK, o, err);

    if (!made || version_target(at_side(m, o, o->content), target, err) < 0)
        return -1;
    made->mode = S_IFLNK | PERMISSIONS;
    made->target = arena_copy(&m->ret->plan.arena, target, strlen(target));
    return made->target ? 0 : no_memory(err);
}

static int make_new(struct merging *m, struct outcome *o, int upper, struct err *err)
{
    if (S_ISDIR(o->mode))
        return add(m, PLAN_MKDIR, o, err) ? 0 : -1;
    if (!S_ISLNK(o->mode))
        return bring(m, PLAN_CREATE, o, upper, err);
    const struct version_entry *ours = o->of[OURS];
    o->of[OURS] = NULL; /* it is no change of what is deleted there */
    int r = link_to(m, o, err);
    o->of[OURS] = ours;
    return r;
}

/* What the tree has of a file, beside what one of the sides has. */
static int compare_with(const struct merging *m, const struct outcome *o, enum which side,
                        struct version_parts *ret, struct err *err)
{
    *ret = (struct version_parts){true, true};
    return side == OURS ? 0
                        : version_compare_files(at_side(m, o, OURS), at_side(m, o, side), ret, err);
}

static int change_file(struct merging *m, const struct outcome *o, int upper, struct err *err)
{
    struct version_parts content;
    struct version_parts attributes;

    if (compare_with(m, o, o->content, &content, err) < 0)
        return -1;
    attributes = content;
    if (o->attributes != o->content && compare_with(m, o, o->attributes, &attributes, err) < 0)
        return -1;
    if (o->text || !content.content || !attributes.attributes)
        return bring(m, PLAN_WRITE, o, upper, err);
    bool has_mode = ((o->mode ^ o->of[OURS]->st.mode) & PERMISSIONS) == 0;
    return has_mode || add(m, PLAN_CHMOD, o, err) ? 0 : -1;
}

/* Both are of one type. */
static int change(struct merging *m, const struct outcome *o, int upper, struct err *err)
{
    if (S_ISREG(o->mode))
        return change_file(m, o, upper, err);
    if (S_ISLNK(o->mode)) {
        int same = version_is_same(at_side(m, o, OURS), at_side(m, o, o->content), err);
        return same != 0 ? (same < 0 ? -1 : 0) : link_to(m, o, err);
    }
    bool has_mode = ((o->mode ^ o->of[OURS]->st.mode) & PERMISSIONS) == 0;
    return has_mode || add(m, PLAN_CHMOD, o, err) ? 0 : -1;
}

static int plan_one(struct merging *m, struct outcome *o, const char **gone, int upper,
                    struct err *err)
{
    const struct version_entry *ours = o->of[OURS];
    bool covered = ours && *gone && plan_is_below(o->path, *gone);

    if (ours && is_there(o) && ((ours->st.mode ^ o->mode) & S_IFMT) == 0)
        return change(m, o, upper, err);
    if (ours && !covered) {
        if (!add(m, PLAN_DELETE, o, err))
            return -1;
        if (S_ISDIR(ours->st.mode))
            *gone = o->path;
    }
    return is_there(o) ? make_new(m, o, upper, err) : 0;
}

static int count_deleted(struct merging *m, struct err *err)
{
    struct plan *plan = &m->ret->plan;
    struct plan_bases bases;
    int r = 0;

    if (plan_bases_make(&bases, plan, err) < 0)
        return -1;
    for (size_t i = 0; i < plan->count && r == 0; i++) {
        struct plan_operation *o = &plan->operations[i];
        struct tree_digest digest;
        if (o->kind != PLAN_DELETE || !S_ISDIR(o->mode))
            continue;
        r = tree_digest_except(&digest, m->versions[OURS]->root, o->path, &bases, err);
        o->entries = digest.entries;
        o->bytes = digest.bytes;
        memcpy(o->below, digest.below, PLAN_HASH);
    }
    plan_bases_clear(&bases);
    return r;
}

static int make_plan(struct merging *m, struct err *err)
{
    const char *gone = NULL;
    scoped_fd int upper = staged_open(m->wish->dir);

    if (upper < 0)
        return err_set(err, ERR_IO, -upper, "open the place for the plan's content");
    for (size_t i = 0; i < m->count; i++) {
        if (plan_one(m, &m->at[i], &gone, upper, err) < 0)
            return -1;
    }
    if (plan_put_in_order(&m->ret->plan, err) < 0 || count_deleted(m, err) < 0)
        return -1;
    return syncfs(upper) < 0 ? err_set(err, ERR_IO, errno, "keep the plan's content") : 0;
}

int merge_plan(struct merge_outcome *ret, const struct merge_wish *wish, struct err *err)
{
    struct merging m = {.wish = wish,
                        .ret = ret,
                        .versions = {wish->base, wish->ours, wish->theirs},
                        .holes = CONTENT_HOLES};

    *ret = (struct merge_outcome){.conflicts = json_array()};
    plan_init(&ret->plan);
    int r = gather(&m, err);
    if (r == 0)
        r = settle(&m, err);
    if (r == 0 && ret->undecided == 0)
        r = make_plan(&m, err);
    for (size_t i = 0; i < m.count; i++)
        free(m.at[i].text);
    free(m.at);
    if (r < 0)
        merge_clear(ret);
    return r;
}

void merge_clear(struct merge_outcome *outcome)
{
    plan_clear(&outcome->plan);
    json_decref(outcome->conflicts);
    outcome->conflicts = NULL;
}
