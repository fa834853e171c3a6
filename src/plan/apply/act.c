/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/apply/act.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "plan/apply/note.h"
#include "plan/apply/stage.h"

enum {
    SPARE_BYTES = 64 << 10, /* for directories that grow */
};

int act_open(struct act *act, int tree, int dir, const char *hash, struct err *err)
{
    struct stat st;
    char hex[2 * PLAN_HASH + 1];
    scoped_fd int fd = openat(dir, "manifest", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    *act = (struct act){.tree = tree, .dir = dir, .journal.fd = -1};
    plan_init(&act->plan);
    if (fd < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open the plan's manifest");
    if (plan_read(&act->plan, fd, act->hash, err) < 0)
        return -1;
    bytes_to_hex(act->hash, PLAN_HASH, hex);
    if (hash && strcmp(hash, hex) != 0)
        return err_set(err, ERR_CONFLICT, 0, "the plan is %.16s…, not the %.16s… asked for", hex,
                       hash);
    if (fstat(tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the tree");
    act->dev = st.st_dev;
    if (layout_init(&act->layout, &act->plan, err) < 0)
        return -1;
    return journal_open(&act->journal, dir, act->hash, act->plan.count, err);
}

void act_clear(struct act *act)
{
    journal_clear(&act->journal);
    layout_clear(&act->layout);
    plan_clear(&act->plan);
}

static int check_space(const struct act *act, const struct steps *steps, struct err *err)
{
    struct statvfs fs;
    uint64_t need = journal_estimate(steps) + SPARE_BYTES;

    if (fstatvfs(act->tree, &fs) < 0)
        return err_set(err, ERR_IO, errno, "see how much space is free");
    if ((uint64_t)fs.f_bavail * fs.f_frsize < need)
        return err_set(err, ERR_LIMIT, ENOSPC, "%llu KiB must be free to carry out the plan",
                       (unsigned long long)(need >> 10));
    return 0;
}

/* Modes and times of all directories that are written in. */
static int look_at_directories(struct transaction *t, struct steps *steps,
                               struct journal_directory *found, struct err *err)
{
    for (size_t i = 0; i < steps->directory_count; i++) {
        struct step_directory *d = &steps->directories[i];
        struct stat st;
        int r = reach_stat(&t->tree, d->path, &st);
        if (r == -EACCES)
            return err_set(err, ERR_DENIED, 0,
                           "a directory above '%s' cannot be searched by its owner: chmod it first",
                           d->path);
        if (r == 0 && !S_ISDIR(st.st_mode))
            r = -ENOTDIR;
        if (r == 0 && st.st_dev != t->dev)
            r = -EXDEV;
        if (r < 0)
            return err_set(err,
                           r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? ERR_CONFLICT : ERR_IO, -r,
                           "the directory '%s'", d->path);
        d->mode = st.st_mode & 07777;
        d->ino = st.st_ino;
        found[i] = (struct journal_directory){
            .path = d->path, .ino = st.st_ino, .mtime_ns = plan_mtime(&st)};
    }
    return 0;
}

/* The inode of what waits at home; that of a base object which an OUT before it brings there. */
static int look_at_home(struct transaction *t, struct step *step, struct err *err)
{
    struct stat st;
    int r = reach_stat(&t->dir, step->home, &st);

    if (r == 0)
        step->ino = st.st_ino;
    else if (r == -ENOENT && step->kind == STEP_IN &&
             t->plan->operations[step->operation].kind == PLAN_MOVE)
        step->ino = t->expected[step->operation].ino;
    else
        return err_set(err, ERR_CONFLICT, -r, "what is planned for '%s' is not there", step->path);
    return 0;
}

static int look_at_link(struct transaction *t, struct step *step, struct err *err)
{
    struct stat st;
    int r = reach_stat(&t->tree, step->path, &st);

    if (r < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFLICT, 0, "'%s' is no file any more", step->path);
    step->ino = st.st_ino;
    return 0;
}

/* Each step says which object it is about. LINKs come before the INs of what they make. */
static int look_at_objects(struct transaction *t, struct steps *steps, struct err *err)
{
    uint64_t *linked = calloc(t->plan->count + 1, sizeof(*linked));
    int r = 0;

    if (!linked)
        return err_set(err, ERR_LIMIT, 0, "no memory for the plan's steps");
    for (size_t i = 0; i < steps->count && r == 0; i++) {
        struct step *step = &steps->items[i];
        if (step->operation == STEP_NO_OPERATION)
            continue;
        const struct plan_operation *o = &t->plan->operations[step->operation];
        if (step->kind == STEP_OUT) {
            step->ino = t->expected[step->operation].ino;
        } else if (step->kind == STEP_LINK) {
            r = look_at_link(t, step, err);
            linked[step->operation] = step->ino;
        } else if (step->kind == STEP_IN || step->kind == STEP_EXCHANGE) {
            if (linked[step->operation])
                step->ino = linked[step->operation];
            else
                r = look_at_home(t, step, err);
            if (o->kind == PLAN_MKDIR)
                linked[step->operation] = step->ino; /* for its MODE */
        } else if (step->kind == STEP_MODE) {
            step->ino = o->kind == PLAN_MKDIR ? linked[step->operation] : o->base.ino;
        }
    }
    free(linked);
    return r;
}

static int prepare(struct act *act, struct transaction *t, struct steps *steps, const char *target,
                   struct journal_directory **ret_directories, struct err *err)
{
    struct journal_directory *directories =
        calloc(steps->directory_count + 1, sizeof(*directories));

    *ret_directories = directories;
    if (!directories)
        return err_set(err, ERR_LIMIT, 0, "no memory for the plan's directories");
    if (look_at_directories(t, steps, directories, err) < 0 || look_at_objects(t, steps, err) < 0)
        return -1;
    if (steps_unlock(steps, &act->layout, act->journal.in_force, target, err) < 0 ||
        check_space(act, steps, err) < 0)
        return -1;
    if (unlinkat(act->dir, "slots/mark", AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_set(err, ERR_IO, errno, "make the plan's slots ready");
    /* What is staged is on disk before the journal says that it will be used. */
    return transaction_sync(t, err);
}

/* Made for operations that are not in force: nobody needs it, and it can be made again. A name less
 * changes a file's time, which is then noted. */
static int clean(struct act *act, struct transaction *t, struct err *err)
{
    uint64_t *inodes = calloc(act->plan.count + 1, sizeof(*inodes));
    size_t count = 0;
    bool is_open = false;

    ignore(unlinkat(act->dir, "slots/mark", AT_REMOVEDIR)); /* not there is as good */
    for (size_t i = 0; i < act->plan.count; i++) {
        uint64_t ino = act->journal.in_force[i] ? 0 : stage_unmake(&t->dir, &act->plan, i);
        if (ino != 0 && act->plan.operations[i].link && inodes)
            inodes[count++] = ino;
        is_open |= note_is_open(act, i);
    }
    if (inodes && (count > 0 || is_open))
        note_unlinked(act, t, inodes, count);
    free(inodes);
    return count > 0 || is_open ? journal_note(&act->journal, err) : 0;
}

/* The first `begun` steps; the journal says so when the tree is on disk. */
static int take_back(struct act *act, struct transaction *t, size_t begun,
                     const struct journal_directory *directories, size_t directory_count,
                     struct err *err)
{
    if (transaction_back(t, begun, directories, directory_count, err) < 0 ||
        transaction_sync(t, err) < 0)
        return -1;
    note_identities(act, t, act->journal.in_force);
    if (journal_end(&act->journal, false, err) < 0)
        return -1;
    return clean(act, t, err);
}

static int finish(struct act *act, struct transaction *t, const struct journal_directory *found,
                  struct err *err)
{
    struct note_times times = {0};

    note_prepare_times(act, t, found, &times);
    if (transaction_sync(t, err) < 0) {
        note_clear_times(&times);
        return -1;
    }
    note_identities(act, t, act->journal.target);
    note_times(act, t, &times);
    note_clear_times(&times);
    int r = journal_end(&act->journal, true, err);
    struct err why;
    if (r < 0 && journal_retract(&act->journal, &why) < 0)
        return -2; /* the disk may say either: only a reader of it can go on */
    return r;
}

static int run(struct act *act, struct transaction *t, const struct journal_directory *found,
               struct err *err)
{
    const struct steps *steps = t->steps;
    size_t begun = steps->count;
    struct err why;
    int r = transaction_run(t, &begun, err);

    if (r == 0)
        r = finish(act, t, found, err);
    if (r == 0) {
        ignore(clean(act, t, &why)); /* it is done; what is left recover removes */
        return 0;
    }
    if (r == -2)
        return err_wrap(err, "it is unknown whether the plan was carried out; recovery finds out");
    if (take_back(act, t, begun, found, steps->directory_count, &why) < 0)
        return err_wrap(err, "half done; recovery takes it back (%.100s)", why.msg);
    return -1;
}

int act_commit(struct act *act, const struct act_change *change, struct act_outcome *outcome,
               struct err *err)
{
    struct steps *steps = change->steps;
    struct transaction t;
    struct journal_directory *found = NULL;
    struct err why;

    *outcome = (struct act_outcome){.failed = STEP_NO_OPERATION};
    if (transaction_init(&t, act->tree, act->dir, &act->plan, steps, err) < 0)
        return -1;
    t.expected = change->expected;
    t.progress = change->progress;
    int r = prepare(act, &t, steps, change->target, &found, err);
    if (r == 0)
        r = journal_begin(&act->journal, change->target, steps, found, err);
    if (r == 0)
        r = run(act, &t, found, err);
    else
        ignore(clean(act, &t, &why)); /* the failure is told already */
    *outcome = (struct act_outcome){
        .failed = t.failed, .steps = steps->count, .kept = t.kept, .lost = t.lost};
    free(found);
    transaction_clear(&t);
    return r;
}

int act_recover(struct act *act, struct act_outcome *outcome, bool *ret_taken_back, struct err *err)
{
    struct journal *j = &act->journal;
    struct transaction t;

    *ret_taken_back = false;
    *outcome = (struct act_outcome){.failed = STEP_NO_OPERATION};
    if (transaction_init(&t, act->tree, act->dir, &act->plan, &j->steps, err) < 0)
        return -1;
    int r = 0;
    if (j->open) {
        *ret_taken_back = true;
        r = take_back(act, &t, j->steps.count, j->directories, j->directory_count, err);
    } else {
        r = clean(act, &t, err);
    }
    if (unlinkat(act->dir, "journal.new", 0) < 0 && errno != ENOENT && r == 0)
        r = err_set(err, ERR_IO, errno, "remove a journal that was never used");
    *outcome = (struct act_outcome){
        .failed = STEP_NO_OPERATION, .steps = j->steps.count, .kept = t.kept, .lost = t.lost};
    transaction_clear(&t);
    return r;
}
