/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-plan diff: {"path":"a/b"}, or of everything. Text: for each operation a line in words, and
 * for text files the differences between the base, if it is still the noted one, and the content
 * that the plan's hash stands for. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/escape.h"
#include "base/fd.h"
#include "plan/core/attributes.h"
#include "plan/core/content.h"
#include "plan/core/findings.h"
#include "plan/core/journal.h"
#include "plan/core/reach.h"
#include "plan/core/verbs.h"
#include "plan/verbs/diff.h"

enum {
    MOST_OF_ONE = 2 << 20,
    MOST_OF_ALL = 16 << 20,
    MOST_MS = 60000,               /* for all; then the rest is named only */
    LABEL = 4 * PLAN_MAX_PATH + 8, /* every byte escaped */
};

struct diff_view {
    int tree;
    int dir;
    uint64_t dev; /* of the tree */
    uint64_t deadline_ms;
    const struct plan *plan;
    struct journal journal;
    struct buf b;
};

/* --- names: one line each, whatever bytes they have --- */

static void add_name(struct buf *b, const char *name)
{
    text_escape(b, name, strlen(name));
}

static void label(char *ret, size_t size, const char *side, const char *path)
{
    scoped_buf struct buf b = {0};

    buf_init(&b, size - 1);
    buf_str(&b, side);
    add_name(&b, path);
    snprintf(ret, size, "%s", buf_done(&b) < 0 ? "?" : b.p);
}

/* --- content --- */

/* Up to DIFF_LARGEST bytes into `ret`; what to say instead, or NULL. */
static const char *read_text(int fd, uint64_t size, struct buf *ret)
{
    char piece[16384];
    ssize_t n;

    if (size > DIFF_LARGEST)
        return "too large to be compared";
    while ((n = read(fd, piece, sizeof(piece))) != 0) {
        if (n < 0 && errno != EINTR)
            return "cannot be read";
        buf_add(ret, piece, n > 0 ? (size_t)n : 0);
        if (ret->failed)
            return "too large to be compared";
    }
    if (buf_done(ret) < 0)
        return "too large to be compared";
    return memchr(ret->p, '\0', ret->n) ? "binary" : NULL;
}

/* As the plan noted it, or as an apply that was taken back left it. */
static bool is_base(const struct diff_view *view, const struct plan_operation *operation,
                    const struct stat *st)
{
    int64_t ctime_ns = view->journal.ctimes[operation - view->plan->operations];

    return reach_is_same(&operation->base, st, view->dev, ctime_ns);
}

static const char *read_base(const struct diff_view *view, const struct plan_operation *operation,
                             struct buf *ret)
{
    static const char changed[] = "the base has changed since: what was there cannot be shown";
    scoped_fd int fd = content_open(view->tree, plan_base_path(operation));
    struct stat st;

    if (fd == -EACCES)
        return "what was there cannot be read";
    if (fd < 0 || fstat(fd, &st) < 0 || !is_base(view, operation, &st))
        return changed;
    const char *why = read_text(fd, (uint64_t)st.st_size, ret);
    /* Also written to meanwhile. */
    if (fstat(fd, &st) < 0 || !is_base(view, operation, &st))
        return changed;
    return why;
}

static const char *read_staged(const struct diff_view *view, const struct plan_operation *operation,
                               struct buf *ret)
{
    static const char changed[] = "the content is not what the plan was closed with";
    char path[PLAN_MAX_PATH + 8];
    unsigned char hash[PLAN_HASH];
    struct stat st;

    snprintf(path, sizeof(path), "upper/%s", operation->path);
    scoped_fd int fd = content_open(view->dir, path);
    if (fd == -EACCES)
        return "the new content cannot be read";
    if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size != operation->size)
        return changed;
    const char *why = read_text(fd, operation->size, ret);
    if (!why &&
        (digest_bytes(ret->p, ret->n, hash) < 0 || memcmp(hash, operation->hash, PLAN_HASH) != 0))
        return changed;
    return why;
}

static bool has_old_text(const struct plan_operation *operation)
{
    return operation->has_base && S_ISREG(operation->base.mode) &&
           (operation->kind == PLAN_DELETE || operation->has_hash);
}

static int add_texts(struct diff_view *view, const struct plan_operation *operation, struct buf *b,
                     struct err *err)
{
    char labels[2][LABEL];
    scoped_buf struct buf old = {0};
    scoped_buf struct buf new = {0};
    const char *why = NULL;
    bool has_new = operation->has_hash && !operation->link;

    buf_init(&old, DIFF_LARGEST + 1);
    buf_init(&new, DIFF_LARGEST + 1);
    if (!has_new && operation->kind != PLAN_DELETE)
        return 0;
    if (has_new)
        why = read_staged(view, operation, &new);
    if (!why && has_old_text(operation))
        why = read_base(view, operation, &old);
    if (why) {
        buf_printf(b, "  (%s)\n", why);
        return 0;
    }
    snprintf(labels[0], LABEL, "/dev/null");
    snprintf(labels[1], LABEL, "/dev/null");
    if (has_old_text(operation))
        label(labels[0], LABEL, "a/", plan_base_path(operation));
    if (has_new)
        label(labels[1], LABEL, "b/", operation->path);
    return diff_texts(b, &(struct diff_side){labels[0], old.p, old.n},
                      &(struct diff_side){labels[1], new.p, new.n}, err);
}

/* --- one operation in words --- */

static void add_target(const struct diff_view *view, const struct plan_operation *operation,
                       struct buf *b)
{
    char target[PLAN_MAX_PATH + 1];

    buf_str(b, " -> ");
    add_name(b, operation->target);
    if (operation->kind != PLAN_SYMLINK || !operation->has_base)
        return;
    int n = content_target(view->tree, plan_base_path(operation), target);
    buf_str(b, n < 0 ? ", and the base has changed since" : ", was -> ");
    add_name(b, n < 0 ? "" : target);
}

static void add_mode(const struct plan_operation *operation, struct buf *b)
{
    uint32_t mode = operation->mode & 07777;
    uint32_t was = operation->base.mode & 07777;

    if (S_ISLNK(operation->mode) || operation->kind == PLAN_DELETE)
        return;
    if (!operation->has_base)
        buf_printf(b, ", mode %04o", mode);
    else if (mode != was)
        buf_printf(b, ", mode %04o -> %04o", was, mode);
}

static void add_attributes(const char *text, struct buf *b)
{
    scoped_buf struct buf names = {0};

    buf_init(&names, ATTRIBUTES_LARGEST);
    attributes_add_names(&names, text);
    buf_str(b, ", attributes ");
    add_name(b, buf_done(&names) < 0 ? "?" : names.p);
}

static void add_words(const struct diff_view *view, const struct plan_operation *operation,
                      struct buf *b)
{
    buf_printf(b, "%s ", plan_kind_names[operation->kind]);
    add_name(b, operation->path);
    if (operation->from) {
        buf_str(b, " from ");
        add_name(b, operation->from);
    }
    if (operation->target)
        add_target(view, operation, b);
    if (operation->link) {
        buf_str(b, ", the same file as ");
        add_name(b, operation->link);
    }
    add_mode(operation, b);
    if (operation->attributes)
        add_attributes(operation->attributes, b);
    if (operation->has_hash)
        buf_printf(b, ", %" PRIu64 " bytes", operation->size);
    if (operation->kind == PLAN_DELETE && S_ISDIR(operation->mode))
        buf_printf(b, ", a directory of %" PRIu64 " entries and %" PRIu64 " bytes",
                   operation->entries, operation->bytes);
    buf_str(b, "\n");
}

static int add_operation(struct diff_view *view, const struct plan_operation *operation,
                         struct err *err)
{
    scoped_buf struct buf one = {0};
    struct err why = {0};

    buf_init(&one, MOST_OF_ONE);
    add_words(view, operation, &view->b);
    int r = now_ms() < view->deadline_ms
                ? add_texts(view, operation, &one, &why)
                : err_set(&why, ERR_LIMIT, 0, "there are too many to compare them all at once");
    if (r < 0 && why.code != ERR_LIMIT) {
        *err = why;
        return -1;
    }
    if (r < 0)
        buf_printf(&view->b, "  (%s: ask for this path alone)\n", why.msg);
    else if (one.n > 0)
        buf_add(&view->b, one.p, one.n);
    return view->b.failed ? err_set(err, ERR_LIMIT, 0,
                                    "the differences are too long: ask for one path at a time")
                          : 0;
}

/* --- all that was asked for --- */

static int add_all(struct diff_view *view, const struct plan *plan, const char *path,
                   struct err *err)
{
    size_t found = 0;

    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_operation *operation = &plan->operations[i];
        if (path && !plan_is_below(operation->path, path))
            continue;
        found++;
        if (add_operation(view, operation, err) < 0)
            return -1;
    }
    if (path && found == 0)
        return err_set(err, ERR_NOT_FOUND, 0, "the plan does nothing with '%.200s'", path);
    return 0;
}

static int print_diff(const struct verb_call *call, const struct plan *plan,
                      const unsigned char hash[PLAN_HASH], const char *path, struct err *err)
{
    struct diff_view view = {
        .tree = call->tree, .dir = call->dir, .deadline_ms = now_ms() + MOST_MS, .plan = plan};
    struct stat st;

    if (fstat(call->tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the tree");
    view.dev = st.st_dev;
    buf_init(&view.b, MOST_OF_ALL);
    int r = journal_open(&view.journal, call->dir, hash, plan->count, err);
    if (r == 0)
        r = add_all(&view, plan, path, err);
    if (r == 0 && view.b.n > 0 && fwrite(view.b.p, 1, view.b.n, stdout) != view.b.n)
        r = err_set(err, ERR_IO, errno, "write the answer");
    journal_clear(&view.journal);
    buf_clear(&view.b);
    return r;
}

int verb_diff(const struct verb_call *call, json_t *answer, struct err *err)
{
    char decoded[PLAN_MAX_PATH + 4] = "";
    const char *path = NULL;
    const char *encoded = NULL;
    unsigned char hash[PLAN_HASH];
    struct plan plan;

    (void)answer;
    if (verb_read(call, err, "{s?s, s?s}", "path", &path, "path_b64", &encoded) < 0)
        return -1;
    if (encoded) {
        size_t n = strlen(encoded);
        ssize_t got = n / 4 * 3 > PLAN_MAX_PATH ? -1 : bytes_from_base64(encoded, n, decoded);
        if (got < 0 || path)
            return err_set(err, ERR_INVALID, 0, "\"path_b64\" is no path");
        decoded[got] = '\0';
        path = decoded;
    }
    if (plan_load_any(&plan, call->dir, hash, err) < 0)
        return -1;
    int r = print_diff(call, &plan, hash, path, err);
    plan_clear(&plan);
    return r;
}
