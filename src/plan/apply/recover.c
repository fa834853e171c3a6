/* SPDX-License-Identifier: Apache-2.0 */
/* After a crash. verb_recover takes back what was half done (act_recover does it), so that the tree
 * is the one before or the one after, and leaves nothing but what an undo needs. It reports how
 * many operations are in the tree, which decides the plan's state; so does verb_journal, which
 * changes nothing. verb_drop is the end of a plan: it empties its directory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/apply/act.h"
#include "plan/core/verbs.h"
#include "sys/path.h"

enum {
    MOST_DROPPED = 50000000, /* directories: an end, whatever the directory holds */
};

static size_t count_in_force(const struct act *act)
{
    size_t n = 0;

    for (size_t i = 0; i < act->plan.count; i++)
        n += act->journal.in_force[i] ? 1 : 0;
    return n;
}

/* Without a manifest nothing was ever begun. */
static bool has_manifest(const struct verb_call *call)
{
    struct stat st;

    return fstatat(call->dir, "manifest", &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

int verb_journal(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct act act;
    size_t n = 0;

    if (verb_read(call, err, "{}") < 0)
        return -1;
    if (has_manifest(call)) {
        int r = act_open(&act, call->dir, call->dir, NULL, err);
        if (r == 0 && act.journal.open)
            r = err_set(err, ERR_CONFLICT, 0, "the plan is half done: recover it first");
        n = r == 0 ? count_in_force(&act) : 0;
        act_clear(&act);
        if (r < 0)
            return -1;
    }
    if (json_object_set_new(answer, "in_force", json_integer((json_int_t)n)) < 0)
        return err_set(err, ERR_LIMIT, 0, "no memory for the answer");
    return 0;
}

int verb_recover(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct act act;
    struct act_outcome did = {0};
    bool taken_back = false;

    if (verb_read(call, err, "{}") < 0)
        return -1;
    if (!has_manifest(call))
        return json_object_set_new(answer, "taken_back", json_false()) < 0
                   ? err_set(err, ERR_LIMIT, 0, "no memory for the answer")
                   : 0;
    int r = act_open(&act, call->tree, call->dir, NULL, err);
    if (r == 0)
        r = act_recover(&act, &did, &taken_back, err);
    if (r == 0 &&
        (json_object_set_new(answer, "taken_back", json_boolean(taken_back)) < 0 ||
         json_object_set_new(answer, "in_force", json_integer((json_int_t)count_in_force(&act))) <
             0 ||
         json_object_set_new(answer, "operations", json_integer((json_int_t)act.plan.count)) < 0 ||
         json_object_set_new(answer, "kept", json_integer((json_int_t)did.kept)) < 0 ||
         json_object_set_new(answer, "lost", json_integer((json_int_t)did.lost)) < 0))
        r = err_set(err, ERR_LIMIT, 0, "no memory for the answer");
    act_clear(&act);
    return r;
}

/* --- drop --- */

struct dropping {
    struct reach dir;
    size_t lifted;  /* directories that were brought to the top */
    size_t removed; /* files and directories */
};

/* A directory in the one that is emptied comes up to the top, under a name of our own, and has its
 * turn later: no depth, no long path, one descriptor. */
static int lift(struct dropping *d, int from, const char *name)
{
    char up[64];
    struct stat st;
    scoped_fd int fd = path_open_beneath(from, name, O_PATH | O_DIRECTORY, 1);

    if (fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? fd : -errno;
    if ((st.st_mode & 0700) != 0700) {
        int r = reach_chmod(fd, 0700);
        if (r < 0)
            return r;
    }
    int r = -1;
    do {
        if (d->lifted >= MOST_DROPPED)
            return -EFBIG;
        snprintf(up, sizeof(up), "drop.%zu", d->lifted++);
        r = renameat2(from, name, d->dir.top, up, RENAME_NOREPLACE) < 0 ? -errno : 0;
    } while (r == -EEXIST);
    return r;
}

static int empty(struct dropping *d, int fd)
{
    DIR *stream = fdopendir(fd);
    int r = 0;

    if (!stream) {
        r = -errno;
        (void)close(fd);
        return r;
    }
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(stream))) { /* NOLINT(concurrency-mt-unsafe) */
        if (path_is_dots(entry->d_name))
            continue;
        if (unlinkat(fd, entry->d_name, 0) == 0)
            d->removed++;
        else if (errno == EISDIR || errno == EPERM)
            r = lift(d, fd, entry->d_name);
        else
            r = -errno;
    }
    (void)closedir(stream);
    return r;
}

static int drop_one(struct dropping *d, const char *name)
{
    struct stat st;

    if (fstatat(d->dir.top, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISDIR(st.st_mode)) {
        d->removed++;
        return unlinkat(d->dir.top, name, 0) < 0 ? -errno : 0;
    }
    scoped_fd int hidden = path_open_beneath(d->dir.top, name, O_PATH | O_DIRECTORY, 1);
    if (hidden < 0)
        return hidden;
    int r = (st.st_mode & 0700) == 0700 ? 0 : reach_chmod(hidden, 0700);
    if (r < 0)
        return r;
    int fd = openat(hidden, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = fd < 0 ? -errno : empty(d, fd);
    if (r < 0)
        return r;
    d->removed++;
    return unlinkat(d->dir.top, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* The manifest and the journal last: until they have gone, the plan is one that can be dropped. */
static bool is_last(const char *name)
{
    return strcmp(name, "manifest") == 0 || strcmp(name, "journal") == 0;
}

/* All that is at the top now; what is lifted meanwhile has its turn in the next pass. Returns how
 * many there were. */
static long drop_pass(struct dropping *d, bool last, struct err *err)
{
    int fd = openat(d->dir.top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    long found = 0;

    if (!stream) {
        scope_close(&fd);
        return err_set(err, ERR_IO, errno, "list the plan's directory");
    }
    const struct dirent *entry;
    while (found >= 0 && (entry = readdir(stream))) { /* NOLINT(concurrency-mt-unsafe) */
        if (path_is_dots(entry->d_name) || (!last && is_last(entry->d_name)))
            continue;
        found++;
        int r = drop_one(d, entry->d_name);
        if (r < 0)
            found = err_set(err, ERR_IO, -r, "remove '%s' of the plan", entry->d_name);
    }
    (void)closedir(stream);
    return found;
}

static int refuse_half_done(const struct verb_call *call, struct err *err)
{
    struct act act;
    struct err why;
    /* A plan that cannot be read cannot be taken back either: it may go. */
    int r = act_open(&act, call->dir, call->dir, NULL, &why);
    bool open = r == 0 && act.journal.open;

    act_clear(&act);
    return open ? err_set(err, ERR_CONFLICT, 0, "the plan is half done: recover it first") : 0;
}

int verb_drop(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct dropping d = {0};
    long found = 0;

    if (verb_read(call, err, "{}") < 0 || refuse_half_done(call, err) < 0)
        return -1;
    reach_init(&d.dir, call->dir);
    for (int last = 0; last < 2; last++) {
        while ((found = drop_pass(&d, last, err)) > 0)
            ;
        if (found < 0)
            return -1;
    }
    if (json_object_set_new(answer, "removed", json_integer((json_int_t)d.removed)) < 0)
        return err_set(err, ERR_LIMIT, 0, "no memory for the answer");
    return 0;
}
