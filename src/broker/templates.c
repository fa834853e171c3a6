/* SPDX-License-Identifier: Apache-2.0 */
/* Templates:  DIR/.carrel/templates/<template>/tree  is the tree of a workspace that was frozen,
 * and never written again. Workspaces on it are shown its environments below layers of their own
 * (sandbox_spec.c), and begin with copies of its other files. .../system is what it has changed of
 * a base (bases.c).
 *
 * Freezing moves the tree by one rename, after which there is no workspace any more and there is a
 * template. Before it nothing has changed; what comes after it may be repeated:
 *
 *   look, sync --> rename --> the caches' files to all, if wanted --> its system's layer comes too
 *   --> other layers and plans go
 */
#include "broker/templates.h"
#include "broker/channel.h"
#include "broker/forks.h"
#include "broker/plans.h"
#include "broker/sandboxes.h"
#include "broker/tree_locks.h"
#include "broker/trees.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/chores.h"
#include "sandbox/identity.h"
#include "sys/path.h"
#include "sys/tree_remove.h"

enum {
    LOOK_MS = 5,       /* whether what is in the way has gone */
    PATIENT_MS = 3000, /* with calls on files */
    BEGIN_MS = 30000,  /* until nobody is in the way */
    MOST_FILES = 10000,
    PATH_ROOM = 2 * PROTOCOL_ID + 64,
};

#define MOST_BYTES (256ULL << 20)

static int open_templates(const struct broker *b, struct err *err)
{
    scoped_fd int top = path_open_beneath(b->state, ".carrel", O_RDONLY | O_DIRECTORY, 0);

    if (top >= 0 && mkdirat(top, "templates", 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the directory of templates");
    int fd = top < 0 ? top : path_open_beneath(top, "templates", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? err_set(err, ERR_IO, -fd, "open the directory of templates") : fd;
}

int template_open_part(const struct broker *b, const char *id, const char *part)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), ".carrel/templates/%s/tree", id);
    scoped_fd int tree = path_open_beneath(b->state, path, O_PATH | O_DIRECTORY, 0);
    if (tree < 0)
        return tree == -ENOENT ? -ESTALE : tree;
    return path_open_beneath(tree, part, O_RDONLY | O_DIRECTORY, 0);
}

int template_open_system(const struct broker *b, const char *id)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), ".carrel/templates/%s/system", id);
    return path_open_beneath(b->state, path, O_RDONLY | O_DIRECTORY, 0);
}

/* --- a new workspace's files --- */

enum {
    FILL_FROM,
    FILL_TO,
};

static int fill_here(const int *fds, const void *what, struct chore_report *report)
{
    int r = tree_fill_from(fds[FILL_FROM], fds[FILL_TO]);

    (void)what;
    return r < 0 ? err_set(&report->err, ERR_IO, -r, "copy the template's files") : 0;
}

/* From the request until its process has ended; it has the workspace alone. */
struct fill {
    char workspace[PROTOCOL_ID + 1];
    uint64_t tag;
    uint64_t generation;
};

static void end_fill(struct broker *b, struct fill *f, const struct err *failed)
{
    if (f->generation == b->generation && failed)
        channel_send_error(b, f->tag, failed);
    else if (f->generation == b->generation)
        channel_send_ok(b, f->tag);
    lock_release(b, f->workspace, f);
    free(f);
}

static void filled(struct broker *b, void *context, const struct err *failed,
                   const struct chore_report *report)
{
    (void)report;
    end_fill(b, context, failed);
}

static int start_fill(struct broker *b, struct fill *f, const struct plain_message *m,
                      struct err *err)
{
    scoped_fd int handle = tree_open(b, m->texts[0], m->texts[1], err);
    scoped_fd int tree =
        handle < 0 ? -1 : path_open_beneath(handle, ".", O_RDONLY | O_DIRECTORY, 0);
    scoped_fd int from = template_open_part(b, m->texts[2], ".");

    if (handle < 0)
        return -1;
    if (sandbox_find_any(b, m->texts[1]))
        return err_set(err, ERR_CONFLICT, 0, "the workspace is awake");
    if (tree < 0)
        return err_set(err, ERR_IO, -tree, "open the workspace's directory");
    if (from < 0)
        return err_set(err, ERR_NOT_FOUND, 0, "the template's files are gone");
    return chore_start(
        b,
        &(struct chore_work){
            .fds = {from, tree, -1, -1}, .work = fill_here, .done = filled, .context = f},
        err);
}

void template_fill(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct fill *f = calloc(1, sizeof(*f));
    struct err err;

    if (!f) {
        err_set(&err, ERR_LIMIT, ENOMEM, "copy the template's files");
        channel_send_error(b, tag, &err);
        return;
    }
    f->tag = tag;
    f->generation = b->generation;
    snprintf(f->workspace, sizeof(f->workspace), "%s", m->texts[1]);
    if (lock_take(b, f->workspace, LOCK_FILL, f, &err) < 0 || start_fill(b, f, m, &err) < 0)
        end_fill(b, f, &err);
}

/* --- freezing: in a process of its own --- */

enum {
    THREADS,
    TEMPLATES,
    CACHE,
    WORKSPACES, /* of their layers and plans; -1: none has any */
};

struct freezing {
    const char *workspace;
    const char *template;
    uint64_t flags;
};

static bool is_there(int dir, const char *name)
{
    struct stat st;

    return dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What will be shown below layers, and where Carrel mounts in every workspace. */
static int check_parts(int tree, struct err *err)
{
    static const char *const parts[] = {".venv", "node_modules", "opt", "opt/carrel"};
    struct stat st;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (fstatat(tree, parts[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
            return err_set(err, ERR_CONFLICT, 0,
                           "'/%s' of the workspace is not a directory, and cannot be shared",
                           parts[i]);
    }
    return 0;
}

static int count(int tree, bool partly, uint64_t *files, uint64_t *bytes, struct err *err)
{
    scoped_fd int fd = path_open_beneath(tree, ".", O_RDONLY | O_DIRECTORY, 0);
    int r = fd < 0 ? fd : tree_count(fd, partly, files, bytes);

    if (r == -ENAMETOOLONG || r == -EACCES)
        return err_set(err, ERR_CONFLICT, -r,
                       "the workspace has directories too deep inside each other, or shut to their "
                       "owner");
    return r < 0 ? err_set(err, ERR_IO, -r, "count the workspace's files") : 0;
}

static int check_size(int tree, struct err *err)
{
    uint64_t files = 0;
    uint64_t bytes = 0;

    if (count(tree, true, &files, &bytes, err) < 0)
        return -1;
    if (files <= MOST_FILES && bytes <= MOST_BYTES)
        return 0;
    return err_set(err, ERR_CONFLICT, 0,
                   "beside /.venv and /node_modules the workspace has %" PRIu64
                   " files with %" PRIu64
                   " MiB, which each workspace on the template would begin with a copy of; delete "
                   "some (at most %d files, %llu MiB)",
                   files, bytes >> 20, MOST_FILES, MOST_BYTES >> 20);
}

/* Up to here nothing has happened, and from here on it is a template. */
static int move_tree(const int *fds, const struct freezing *f, int home, struct err *err)
{
    if (fsync(home) < 0 || fsync(fds[TEMPLATES]) < 0)
        return err_set(err, ERR_IO, errno, "write the template's directory to disk");
    if (syscall(SYS_renameat2, fds[THREADS], f->workspace, home, "tree", RENAME_NOREPLACE) < 0)
        return err_set(err, ERR_IO, errno, "make the workspace's tree the template's");
    if (fsync(home) < 0 || fsync(fds[THREADS]) < 0)
        return err_set(err, ERR_IO, errno, "write the template's directory to disk");
    return 0;
}

static int open_home(const int *fds, const struct freezing *f, struct err *err)
{
    if (mkdirat(fds[TEMPLATES], f->template, 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the template's directory");
    int home = path_open_beneath(fds[TEMPLATES], f->template, O_RDONLY | O_DIRECTORY, 0);
    return home < 0 ? err_set(err, ERR_IO, -home, "open the template's directory") : home;
}

static int begin_freezing(const int *fds, const struct freezing *f, struct err *err)
{
    scoped_fd int tree = path_open_beneath(fds[THREADS], f->workspace, O_RDONLY | O_DIRECTORY, 0);

    if (tree < 0)
        return err_set(err, tree == -ENOENT ? ERR_NOT_FOUND : ERR_IO, -tree,
                       "open the workspace's directory");
    uint64_t files;
    uint64_t bytes;
    /* All of it is counted, also to see that it can be read: afterwards it would be too late. */
    if (check_parts(tree, err) < 0 || check_size(tree, err) < 0 ||
        count(tree, false, &files, &bytes, err) < 0)
        return -1;
    /* What installers have written they have not sent to the disk. */
    int r = tree_sync(tree);
    if (r == 0 && fds[WORKSPACES] >= 0 && syncfs(fds[WORKSPACES]) < 0)
        r = -errno; /* of a system not all files could be opened by us */
    if (r < 0)
        return err_set(err, ERR_IO, -r, "write the workspace to disk");
    scoped_fd int home = open_home(fds, f, err);
    if (home < 0)
        return -1;
    if (move_tree(fds, f, home, err) < 0) {
        ignore(unlinkat(fds[TEMPLATES], f->template, AT_REMOVEDIR) == 0); /* if it is empty */
        return -1;
    }
    return 0;
}

/* 0, also where it has none, or has come already. */
static int move_system(const int *fds, const struct freezing *f)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), "%s/env", f->workspace);
    scoped_fd int from = path_open_beneath(fds[WORKSPACES], path, O_RDONLY | O_DIRECTORY, 0);
    scoped_fd int to = path_open_beneath(fds[TEMPLATES], f->template, O_RDONLY | O_DIRECTORY, 0);
    if (from == -ENOENT)
        return 0;
    if (from < 0 || to < 0)
        return from < 0 ? from : to;
    if (syscall(SYS_renameat2, from, "system", to, "system", RENAME_NOREPLACE) < 0)
        return errno == ENOENT ? 0 : -errno;
    return fsync(to) < 0 || fsync(from) < 0 ? -errno : 0;
}

/* Last, as it may take the ids of its files, which are not ours. What cannot be read is not told.
 */
static void count_system(const int *fds, const struct freezing *f, struct chore_report *report)
{
    char path[PATH_ROOM];
    uint64_t files = 0;
    uint64_t bytes = 0;
    struct err err;

    snprintf(path, sizeof(path), "%s/system/upper", f->template);
    scoped_fd int upper = path_open_beneath(fds[TEMPLATES], path, O_RDONLY | O_DIRECTORY, 0);
    if (upper < 0)
        return;
    if (tree_count(upper, false, &files, &bytes) == -EACCES && geteuid() != 0 &&
        identity_enter_subids(&err) == 0)
        ignore(tree_count(upper, false, &files, &bytes) == 0);
    report->files += files;
    report->bytes += bytes;
}

static int finish_freezing(const int *fds, const struct freezing *f, struct chore_report *report)
{
    struct err *err = &report->err;
    char path[PATH_ROOM];
    int r = 0;

    snprintf(path, sizeof(path), "%s/tree", f->template);
    scoped_fd int tree = path_open_beneath(fds[TEMPLATES], path, O_RDONLY | O_DIRECTORY, 0);
    if (tree < 0)
        return err_set(err, ERR_IO, -tree, "open the template's directory");
    tree_drop_bashrc(tree, f->workspace); /* those on the template get their own */
    /* It is a template by now, and stays one whatever becomes of the rest. */
    if (count(tree, false, &report->files, &report->bytes, err) < 0)
        log_err("template_not_counted", f->workspace, err);
    if (fds[WORKSPACES] >= 0 && (f->flags & FREEZE_SHARE_CACHE))
        r = cache_add_layers(fds[CACHE], fds[WORKSPACES], f->workspace);
    if (r < 0) {
        err_set(err, ERR_IO, -r, "add the workspace's packages to the shared cache");
        log_err("cache_not_shared", f->workspace, err);
        r = 0;
    }
    if (fds[WORKSPACES] >= 0 && (r = move_system(fds, f)) < 0)
        return err_set(err, ERR_IO, -r, "make the workspace's system the template's");
    if (fds[WORKSPACES] >= 0)
        r = tree_remove(fds[WORKSPACES], f->workspace);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "remove what the workspace had beside its tree");
    count_system(fds, f, report);
    return 0;
}

static int freeze_here(const int *fds, const void *what, struct chore_report *report)
{
    const struct freezing *f = what;
    struct err *err = &report->err;
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), "%s/tree", f->template);
    bool moved = is_there(fds[TEMPLATES], path);
    if (moved && is_there(fds[THREADS], f->workspace))
        return err_set(err, ERR_CONFLICT, 0, "both the template and the workspace are there");
    if (!moved && (f->flags & FREEZE_ONLY_FINISH)) {
        ignore(unlinkat(fds[TEMPLATES], f->template, AT_REMOVEDIR) == 0); /* if it was made */
        return err_set(err, ERR_NOT_FOUND, 0, "the workspace is not a template yet");
    }
    if (!moved && begin_freezing(fds, f, err) < 0)
        return -1;
    return finish_freezing(fds, f, report);
}

/* --- freezing: here --- */

/* From the request until its process has ended; it has the workspace alone. */
struct freeze {
    struct freeze *next;
    struct broker *broker;
    char bucket[PROTOCOL_ID + 1];
    char workspace[PROTOCOL_ID + 1];
    char template[PROTOCOL_EXEC_ID + 1];
    uint64_t flags;
    uint64_t tag;
    uint64_t generation;
    uint64_t asked_ms;
    struct timer timer;
};

static void end_freeze(struct freeze *f, const struct err *failed,
                       const struct chore_report *report)
{
    struct broker *b = f->broker;
    struct freeze **at = &b->freezes;
    char bytes[24];
    char files[24];

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    timer_stop(b->events, &f->timer);
    if (failed && f->generation == b->generation) {
        channel_send_error(b, f->tag, failed);
    } else if (f->generation == b->generation) {
        snprintf(bytes, sizeof(bytes), "%" PRIu64, report->bytes);
        snprintf(files, sizeof(files), "%" PRIu64, report->files);
        channel_send_plain(b, ANSWER_TEMPLATE, f->tag,
                           &(struct plain_message){.texts = {f->template, bytes, files}});
    }
    lock_release(b, f->workspace, f);
    free(f);
}

static void frozen(struct broker *b, void *context, const struct err *failed,
                   const struct chore_report *report)
{
    end_freeze(context, failed, report);
    if (b->stopping)
        return;
    cache_look(b);
    b->cache_has_old = true; /* perhaps */
    cache_tidy(b);
}

static int open_bucket(const struct broker *b, const char *bucket, const char *place)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), "%s/%s", bucket, place);
    return path_open_beneath(b->state, path, O_RDONLY | O_DIRECTORY, 0);
}

static int start(struct freeze *f, struct err *err)
{
    struct broker *b = f->broker;
    struct freezing what = {.workspace = f->workspace, .template = f->template, .flags = f->flags};
    scoped_fd int threads = open_bucket(b, f->bucket, "threads");
    scoped_fd int workspaces = open_bucket(b, f->bucket, ".carrel/workspaces");
    scoped_fd int templates = open_templates(b, err);
    scoped_fd int cache = templates < 0 ? -1 : cache_open_all(b, err);

    if (threads < 0 || (workspaces < 0 && workspaces != -ENOENT))
        return err_set(err, ERR_IO, threads < 0 ? -threads : -workspaces, "open the bucket");
    if (cache < 0)
        return -1;
    if (tree_has_image(b, f->bucket, f->workspace))
        return err_set(err, ERR_CONFLICT, 0,
                       "the workspace's disk is in an image; make it with a policy that bounds the "
                       "disk in another way, or not at all");
    return chore_start(b,
                       &(struct chore_work){.fds = {threads, templates, cache, workspaces},
                                            .work = freeze_here,
                                            .what = &what,
                                            .done = frozen,
                                            .context = f},
                       err);
}

static void look(struct timer *timer)
{
    struct freeze *f = container_of(timer, struct freeze, timer);
    struct broker *b = f->broker;
    struct err err;
    int r;

    if (f->generation != b->generation) /* nobody wants it any more */
        r = err_set(&err, ERR_CONFLICT, 0, "the front that asked for it has ended");
    else
        r = lock_settle(b, f->workspace, now_ms() < f->asked_ms + PATIENT_MS, &err);
    if (r > 0 && now_ms() > f->asked_ms + BEGIN_MS)
        r = err_set(&err, ERR_CONFLICT, EBUSY,
                    "a process of the workspace does not end; try again later");
    if (r > 0 && timer_set(b->events, &f->timer, now_ms() + LOOK_MS) < 0)
        r = err_set(&err, ERR_LIMIT, ENOMEM, "set a timer");
    if (r == 0)
        r = start(f, &err);
    if (r < 0)
        end_freeze(f, &err, NULL);
}

/* Whoever only wants to know gets to, whatever lives in the workspace: 0, it may be finished. */
static int check_moved(const struct broker *b, const struct freeze *f, struct err *err)
{
    char path[PATH_ROOM];
    scoped_fd int templates = open_templates(b, err);

    if (templates < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/tree", f->template);
    if (is_there(templates, path))
        return 0;
    ignore(unlinkat(templates, f->template, AT_REMOVEDIR) == 0); /* if it was made */
    return err_set(err, ERR_NOT_FOUND, 0, "the workspace is not a template yet");
}

static int begin(struct broker *b, struct freeze *f, struct err *err)
{
    bool only_finish = f->flags & FREEZE_ONLY_FINISH;

    if (fork_refuse(b, f->bucket, f->workspace, "and cannot become a template", err) < 0)
        return -1;
    if (only_finish && !lock_is_held(b, f->workspace) && check_moved(b, f, err) < 0)
        return -1;
    if (plans_use(b, f->workspace))
        return err_set(err, ERR_CONFLICT, EBUSY,
                       "a plan of the workspace is being worked on; wait until that is over");
    return lock_take(b, f->workspace, LOCK_FREEZE, f, err);
}

void template_freeze(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct freeze *f = calloc(1, sizeof(*f));
    struct err err;

    if (!f) {
        err_set(&err, ERR_LIMIT, ENOMEM, "freeze the workspace");
        channel_send_error(b, tag, &err);
        return;
    }
    f->broker = b;
    f->tag = tag;
    f->generation = b->generation;
    f->asked_ms = now_ms();
    f->timer.ring = look;
    f->flags = m->number;
    snprintf(f->bucket, sizeof(f->bucket), "%s", m->texts[0]);
    snprintf(f->workspace, sizeof(f->workspace), "%s", m->texts[1]);
    snprintf(f->template, sizeof(f->template), "%s", m->texts[2]);
    int r = begin(b, f, &err);
    if (r < 0) {
        channel_send_error(b, tag, &err);
        free(f);
        return;
    }
    f->next = b->freezes;
    b->freezes = f;
    look(&f->timer);
}

/* --- removing --- */

static bool is_shown(const struct broker *b, const char *id)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (strcmp(s->template, id) == 0)
                return true;
        }
    }
    return false;
}

static int remove_here(const int *fds, const void *what, struct chore_report *report)
{
    int r = tree_remove_lent(fds[0], what);

    if (r == 0 && fsync(fds[0]) < 0)
        r = -errno;
    return r < 0 ? err_set(&report->err, ERR_IO, -r, "remove the template") : 0;
}

void template_erase(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct err err;
    scoped_fd int templates = open_templates(b, &err);
    int r = templates < 0 ? -1 : 0;

    if (r == 0 && is_shown(b, m->texts[0]))
        r = err_set(&err, ERR_CONFLICT, EBUSY, "a sandbox that shows the template lives");
    if (r == 0)
        r = chore_start(b,
                        &(struct chore_work){.fds = {templates, -1, -1, -1},
                                             .work = remove_here,
                                             .what = m->texts[0],
                                             .tag = tag},
                        &err);
    if (r < 0)
        channel_send_error(b, tag, &err);
}
