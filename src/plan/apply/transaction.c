/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/apply/transaction.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "plan/core/layout.h"
#include "plan/core/tree_digest.h"

#define MARK "slots/mark"

enum {
    MOST_KEPT = 1000000,
    MOST_LINE = 6 * PLAN_MAX_PATH + 256,
};

int transaction_init(struct transaction *t, int tree, int dir, const struct plan *plan,
                     const struct steps *steps, struct err *err)
{
    struct stat st;

    *t = (struct transaction){
        .plan = plan, .steps = steps, .progress = -1, .failed = STEP_NO_OPERATION};
    reach_init(&t->tree, tree);
    reach_init(&t->dir, dir);
    if (fstat(tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the tree");
    t->dev = st.st_dev;
    if (fstat(dir, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the plan's directory");
    if (st.st_dev != t->dev)
        return err_set(err, ERR_KERNEL, 0,
                       "the plan and its tree are on two file systems: they must be on one, so "
                       "that files can be renamed between them");
    return 0;
}

void transaction_clear(struct transaction *t)
{
    reach_forget(&t->tree);
    reach_forget(&t->dir);
}

static void renamed(struct transaction *t, const struct step *step)
{
    if (step->is_directory) { /* a parent that is kept open may be somewhere else by now */
        reach_forget(&t->tree);
        reach_forget(&t->dir);
    }
}

static int fail(const struct step *step, int error, const char *doing, struct err *err)
{
    static const struct {
        int error;
        enum err_code code;
        const char *words;
    } known[] = {
        {ENOENT, ERR_CONFLICT, "is not there any more"},
        {EEXIST, ERR_CONFLICT, "is there already"},
        {ENOTEMPTY, ERR_CONFLICT, "is there already"},
        {ENOTDIR, ERR_CONFLICT, "has a parent that is no directory"},
        {ELOOP, ERR_CONFLICT, "has a symlink for a parent"},
        {ESTALE, ERR_CONFLICT, "has changed since the plan was made"},
        {EXDEV, ERR_KERNEL, "lies on another file system than the tree"},
        {EINVAL, ERR_KERNEL,
         "is on a file system that cannot exchange two files or keep from replacing one: plans "
         "cannot be applied there"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].error == error)
            return err_set(err, known[i].code, 0, "'%s' %s", step->path, known[i].words);
    }
    return err_set(err, ERR_IO, error, "%s '%s'", doing, step->path);
}

/* --- forwards --- */

static int set_mode(struct transaction *t, const struct step *step, uint32_t mode)
{
    struct stat st;
    scoped_fd int fd = reach_open(&t->tree, step->path, O_PATH);

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_ino != step->ino || st.st_dev != t->dev || S_ISLNK(st.st_mode))
        return -ESTALE;
    return (st.st_mode & 07777) == mode ? 0 : reach_chmod(fd, mode);
}

static int run_mode(struct transaction *t, const struct step *step, struct err *err)
{
    int r = set_mode(t, step, step->mode);

    return r < 0 ? fail(step, -r, "change the mode of", err) : 0;
}

static int run_link(struct transaction *t, const struct step *step, struct err *err)
{
    const char *name;
    const char *home;
    struct stat st;
    int parent = reach_parent(&t->tree, step->path, &name);
    int slots = reach_parent(&t->dir, step->home, &home);

    if (parent < 0 || slots < 0)
        return fail(step, parent < 0 ? -parent : -slots, "link", err);
    if (linkat(parent, name, slots, home, 0) < 0)
        return fail(step, errno, "link", err);
    if (fstatat(slots, home, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(step, errno, "link", err);
    return st.st_ino == step->ino ? 0 : fail(step, ESTALE, "link", err);
}

/* Whether the thing that has just been taken out is what it should be. */
static bool is_expected(struct transaction *t, const struct step *step)
{
    struct stat st;

    if (step->operation == STEP_NO_OPERATION || !t->expected)
        return true; /* only put out of the way */
    return reach_stat(&t->dir, step->home, &st) == 0 &&
           reach_is_same(&t->expected[step->operation], &st, t->dev, -1);
}

/* What a deleted directory holds, once more, now that nobody finds it any more by its name: only
 * the number, as times may be our own doing where files have several names. */
static int check_below(struct transaction *t, const struct step *step, struct err *err)
{
    const struct plan_operation *o = &t->plan->operations[step->operation];
    struct tree_digest digest;

    if (o->kind != PLAN_DELETE || !step->is_directory)
        return 0;
    if (tree_digest(&digest, t->dir.top, step->home, NULL, err) < 0)
        return err_wrap(err, "look into '%s'", step->path);
    if (digest.entries != o->entries || digest.bytes != o->bytes)
        return fail(step, ESTALE, "", err);
    return 0;
}

/* A directory that the plan made goes once everything of the plan's has left it: what is in it
 * still is somebody else's, and goes only where it is kept by force. */
static int check_empty(struct transaction *t, const struct step *step, struct err *err)
{
    struct tree_digest digest;

    if (t->plan->operations[step->operation].kind != PLAN_MKDIR ||
        strncmp(step->home, STEPS_KEPT, strlen(STEPS_KEPT)) == 0)
        return 0;
    if (tree_digest(&digest, t->dir.top, step->home, NULL, err) < 0)
        return err_wrap(err, "look into '%s'", step->path);
    return digest.entries == 0 ? 0
                               : err_set(err, ERR_CONFLICT, 0,
                                         "mkdir '%s' cannot be undone: it was changed since (with "
                                         "force, files in the way are moved aside)",
                                         step->path);
}

static int run_out(struct transaction *t, const struct step *step, struct err *err)
{
    int r = reach_rename(&t->tree, step->path, &t->dir, step->home, RENAME_NOREPLACE);

    if (r < 0)
        return fail(step, r == -EEXIST ? EIO : -r, "take away", err);
    renamed(t, step);
    if (!is_expected(t, step))
        return fail(step, ESTALE, "", err); /* and is put back */
    if (step->operation == STEP_NO_OPERATION)
        return 0;
    return check_below(t, step, err) < 0 ? -1 : check_empty(t, step, err);
}

static int run_in(struct transaction *t, const struct step *step, struct err *err)
{
    int r = reach_rename(&t->dir, step->home, &t->tree, step->path, RENAME_NOREPLACE);

    if (r < 0)
        return fail(step, -r, "put in place", err);
    renamed(t, step);
    return 0;
}

static int run_exchange(struct transaction *t, const struct step *step, struct err *err)
{
    int r = reach_rename(&t->dir, step->home, &t->tree, step->path, RENAME_EXCHANGE);

    if (r < 0)
        return fail(step, -r, "replace", err);
    return is_expected(t, step) ? 0 : fail(step, ESTALE, "", err);
}

static int run_mark(struct transaction *t, const struct step *step, struct err *err)
{
    if (mkdirat(t->dir.top, step->home, 0700) < 0)
        return err_set(err, ERR_IO, errno, "mark the middle of the plan");
    return 0;
}

static int (*const runners[STEP_COUNT_])(struct transaction *, const struct step *,
                                         struct err *) = {
    [STEP_UNLOCK] = run_mode, [STEP_LINK] = run_link, [STEP_EXCHANGE] = run_exchange,
    [STEP_OUT] = run_out,     [STEP_MARK] = run_mark, [STEP_IN] = run_in,
    [STEP_MODE] = run_mode,
};

static void tell(const struct transaction *t, size_t number)
{
    const struct step *step = &t->steps->items[number];
    scoped_buf struct buf line = {0};

    if (t->progress < 0 || !step->completes || step->operation == STEP_NO_OPERATION)
        return;
    const struct plan_operation *o = &t->plan->operations[step->operation];
    size_t n = strlen(o->path);
    bool is_text = bytes_are_utf8(o->path, n);
    buf_init(&line, MOST_LINE);
    buf_printf(&line, "{\"step\":%zu,\"of\":%zu,\"index\":%u,\"op\":\"%s\",\"path%s\":", number + 1,
               t->steps->count, step->operation, plan_kind_names[o->kind], is_text ? "" : "_b64");
    if (is_text) {
        bytes_add_json(&line, o->path, n);
    } else {
        buf_str(&line, "\"");
        bytes_add_base64(&line, o->path, n);
        buf_str(&line, "\"");
    }
    buf_str(&line, "}\n");
    if (buf_done(&line) == 0)
        ignore(write(t->progress, line.p, line.n)); /* who watches may have gone */
}

int transaction_run(struct transaction *t, size_t *ret_begun, struct err *err)
{
    for (size_t i = 0; i < t->steps->count; i++) {
        const struct step *step = &t->steps->items[i];
        if (runners[step->kind](t, step, err) < 0) {
            t->failed = step->operation;
            *ret_begun = i + 1;
            return -1;
        }
        tell(t, i);
    }
    return 0;
}

/* --- backwards --- */

/* Something that is not ours, in the way of what is to be put back. */
static int put_aside(struct transaction *t, const char *path)
{
    char home[64];
    int r = -EEXIST;

    for (size_t i = 0; r == -EEXIST && i < MOST_KEPT; i++) {
        snprintf(home, sizeof(home), STEPS_KEPT "%zu", i);
        r = reach_rename(&t->tree, path, &t->dir, home, RENAME_NOREPLACE);
    }
    if (r == 0)
        t->kept++;
    reach_forget(&t->tree);
    reach_forget(&t->dir);
    return r;
}

/* Its parent has gone, or is a symlink by now: somebody else's doing, and nothing to fail for. */
static bool is_out_of_reach(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EXDEV;
}

static int back_mode(struct transaction *t, const struct step *step)
{
    int r = set_mode(t, step, step->old_mode);

    return r == -ESTALE || is_out_of_reach(r) ? 0 : r;
}

static int back_link(struct transaction *t, const struct step *step)
{
    int r = reach_remove(&t->dir, step->home);

    return r == -ENOENT ? 0 : r;
}

/* Into the tree, where its place may be taken by now. */
static int put_back(struct transaction *t, const struct step *step)
{
    int r = reach_rename(&t->dir, step->home, &t->tree, step->path, RENAME_NOREPLACE);

    if (r == -EEXIST) {
        r = put_aside(t, step->path);
        if (r == 0)
            r = reach_rename(&t->dir, step->home, &t->tree, step->path, RENAME_NOREPLACE);
    }
    if (is_out_of_reach(r)) {
        t->lost++;
        r = 0;
    }
    renamed(t, step);
    return r;
}

static int back_exchange(struct transaction *t, const struct step *step)
{
    struct stat home;
    int r = reach_stat(&t->dir, step->home, &home);

    if (r < 0 || home.st_ino == step->ino)
        return r == -ENOENT ? 0 : r;
    r = reach_rename(&t->dir, step->home, &t->tree, step->path, RENAME_EXCHANGE);
    if (r == -ENOENT)
        return put_back(t, step);
    if (r == 0 && reach_stat(&t->dir, step->home, &home) == 0 && home.st_ino != step->ino) {
        /* Not what we had put there: somebody has replaced it. It is kept. */
        char kept[64];
        r = -EEXIST;
        for (size_t i = 0; r == -EEXIST && i < MOST_KEPT; i++) {
            snprintf(kept, sizeof(kept), STEPS_KEPT "%zu", i);
            r = reach_rename(&t->dir, step->home, &t->dir, kept, RENAME_NOREPLACE);
        }
        t->kept += r == 0;
    }
    if (is_out_of_reach(r)) {
        t->lost++;
        r = 0;
    }
    return r;
}

static int back_out(struct transaction *t, const struct step *step)
{
    struct stat home;
    int r = reach_stat(&t->dir, step->home, &home);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    return put_back(t, step);
}

static int back_mark(struct transaction *t, const struct step *step)
{
    if (unlinkat(t->dir.top, step->home, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return -errno;
    return 0;
}

static int back_in(struct transaction *t, const struct step *step)
{
    struct stat st;
    int r = reach_stat(&t->dir, step->home, &st);

    if (r != -ENOENT) /* still at home */
        return r;
    r = reach_stat(&t->tree, step->path, &st);
    if (r < 0 || st.st_ino != step->ino) {
        /* Somebody has taken it away, or put something else there, which may stay. */
        t->lost++;
        return r < 0 && !is_out_of_reach(r) ? r : 0;
    }
    r = reach_rename(&t->tree, step->path, &t->dir, step->home, RENAME_NOREPLACE);
    renamed(t, step);
    return r;
}

static int (*const backers[STEP_COUNT_])(struct transaction *, const struct step *) = {
    [STEP_UNLOCK] = back_mode, [STEP_LINK] = back_link, [STEP_EXCHANGE] = back_exchange,
    [STEP_OUT] = back_out,     [STEP_MARK] = back_mark, [STEP_IN] = back_in,
    [STEP_MODE] = back_mode,
};

static void restore_time(struct transaction *t, const struct journal_directory *d)
{
    struct stat st;
    scoped_fd int fd = reach_open(&t->tree, d->path, O_PATH | O_DIRECTORY);

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == d->ino && plan_mtime(&st) != d->mtime_ns)
        ignore(reach_set_mtime(fd, d->mtime_ns)); /* a time is not worth a failure */
}

int transaction_back(struct transaction *t, size_t count,
                     const struct journal_directory *directories, size_t directory_count,
                     struct err *err)
{
    struct stat st;
    bool marked = reach_stat(&t->dir, MARK, &st) == 0;

    reach_forget(&t->tree);
    reach_forget(&t->dir);
    for (size_t i = count; i-- > 0;) {
        const struct step *step = &t->steps->items[i];
        /* None was begun: an empty home is one whose object is still in the tree. */
        if ((step->kind == STEP_IN || step->kind == STEP_MODE) && !marked)
            continue;
        int r = backers[step->kind](t, step);
        if (r < 0)
            return err_set(err, ERR_IO, -r, "take back what was done to '%s'", step->path);
    }
    /* Those above last: their times are not touched by a change of a time below. */
    for (size_t i = directory_count; i-- > 0;)
        restore_time(t, &directories[i]);
    return 0;
}

int transaction_sync(const struct transaction *t, struct err *err)
{
    scoped_fd int fd = openat(t->dir.top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || syncfs(fd) < 0)
        return err_set(err, ERR_IO, errno, "write the tree to disk");
    return 0;
}
