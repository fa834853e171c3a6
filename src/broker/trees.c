/* SPDX-License-Identifier: Apache-2.0 */
/* The workspaces' directories:  DIR/<bucket>/threads/<workspace>  and, deleted,
 * DIR/<bucket>/.carrel/trash/<workspace>.<stamp>. An image with a workspace's disk lies beside it
 * (NAME.carrel-img) and goes where it goes. Every name is opened beneath DIR, following nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/pack.h"
#include "broker/channel.h"
#include "broker/chores.h"
#include "broker/files.h"
#include "broker/files_asleep.h"
#include "broker/plans.h"
#include "broker/sandboxes.h"
#include "broker/state.h"
#include "broker/tree_locks.h"
#include "broker/trees.h"
#include "sandbox/identity.h"
#include "sys/path.h"
#include "sys/tree_remove.h"

#define IMAGE_SUFFIX ".carrel-img"

enum {
    NAME_ROOM = 2 * PROTOCOL_ID + 32,
    PLACE_ROOM = PROTOCOL_ID + 32,
    BASHRC_ROOM = 2048,
};

/* Names in DIR that are no buckets. */
static bool is_a_bucket(const char *bucket)
{
    static const char *const others[] = {"audit", "db", "execs", "lock", "admin.key"};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(bucket, others[i]) == 0)
            return false;
    }
    return true;
}

static int open_place(const struct broker *b, const char *bucket, const char *place,
                      struct err *err)
{
    char path[PLACE_ROOM];

    snprintf(path, sizeof(path), "%s/%s", bucket, place);
    int fd = is_a_bucket(bucket) ? path_open_beneath(b->state, path, O_RDONLY | O_DIRECTORY, 0)
                                 : -ENOENT;
    if (fd < 0)
        return err_set(err, fd == -ENOENT ? ERR_NOT_FOUND : ERR_IO, -fd, "open '%s'", path);
    return fd;
}

int tree_open(const struct broker *b, const char *bucket, const char *workspace, struct err *err)
{
    scoped_fd int threads = open_place(b, bucket, "threads", err);

    if (threads < 0)
        return -1;
    int fd = path_open_beneath(threads, workspace, O_PATH | O_DIRECTORY, 0);
    if (fd == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, 0, "the workspace's directory has vanished");
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open the workspace's directory");
    return fd;
}

/* No link is followed, and nothing is opened but a directory. */
static enum tree_look look_at(int tree, const char *path, char *target, size_t size)
{
    struct stat st;
    scoped_fd int fd = path_open_beneath(tree, path, O_PATH, 1);

    if (fd == -ENOENT)
        return TREE_ENTRY_NONE;
    if (fd < 0 || fstat(fd, &st) < 0)
        return TREE_ENTRY_CLOSED;
    if (S_ISDIR(st.st_mode)) {
        scoped_fd int dir = path_open_beneath(fd, ".", O_RDONLY | O_DIRECTORY, 1);
        return dir >= 0 && path_dir_is_empty(dir) == 1 ? TREE_ENTRY_EMPTY : TREE_ENTRY_DIR;
    }
    ssize_t n = S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, size) : -1;
    if (n <= 0 || (size_t)n == size)
        return TREE_ENTRY_OTHER; /* or a link that leads further than anybody's tree */
    target[n] = '\0';
    return TREE_ENTRY_LINK;
}

void tree_look(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    char target[PROTOCOL_TEXT + 1] = "";
    struct err err;
    scoped_fd int tree = tree_open(b, m->texts[0], m->texts[1], &err);

    if (tree < 0) {
        channel_send_error(b, tag, &err);
        return;
    }
    enum tree_look entry = look_at(tree, m->texts[2], target, sizeof(target));
    bool is_link = entry == TREE_ENTRY_LINK;
    channel_send_plain(b, ANSWER_ENTRY, tag,
                       &(struct plain_message){.texts = {is_link ? target : ""}, .number = entry});
}

static bool is_tree(int threads, const char *name)
{
    struct stat st;

    return protocol_id_is_valid(name) && fstatat(threads, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

/* 1: there are more than fit. */
static int list_trees(DIR *dir, struct arena *arena, const char *list[PROTOCOL_NAMES + 1],
                      struct err *err)
{
    struct dirent *entry;
    size_t n = 0;

    list[0] = NULL;
    errno = 0;
    while ((entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
        if (is_tree(dirfd(dir), entry->d_name)) {
            if (n == PROTOCOL_NAMES)
                return 1;
            list[n] = arena_copy(arena, entry->d_name, strlen(entry->d_name));
            if (!list[n])
                return err_set(err, ERR_LIMIT, ENOMEM, "list the workspaces' directories");
            list[++n] = NULL;
        }
        errno = 0;
    }
    return errno ? err_set(err, ERR_IO, errno, "list the workspaces' directories") : 0;
}

int tree_scan(const struct broker *b, const char *bucket, struct buf *names, struct err *err)
{
    static const char *list[PROTOCOL_NAMES + 1];
    scoped_fd int threads = open_place(b, bucket, "threads", err);
    struct arena arena;

    if (threads < 0)
        return -1;
    DIR *dir = fdopendir(threads);
    if (!dir)
        return err_set(err, ERR_IO, errno, "list the workspaces' directories");
    (void)take_fd(&threads); /* closed with it */
    arena_init(&arena, 2UL << 20);
    int r = list_trees(dir, &arena, list, err);
    if (r > 0)
        log_warning("scan_cut", "bucket", bucket, "then",
                    "the first 10000 directories are told; there are more", NULL);
    if (r >= 0)
        pack_list(names, list);
    arena_clear(&arena);
    (void)closedir(dir);
    if (r >= 0 && buf_done(names) < 0)
        r = err_set(err, ERR_LIMIT, ENOMEM, "list the workspaces' directories");
    return r < 0 ? -1 : 0;
}

/* For people who open a shell in it. HOME is /, so this is the file that bash reads. */
static int make_bashrc(const char *workspace, char *text, size_t size)
{
    return snprintf(
        text, size,
        "# Read by interactive shells in this workspace. It is yours to change.\n"
        "case $- in *i*) ;; *) return ;; esac\n"
        "PS1='%s:\\w\\$ '\n"
        "case $TERM in '' | dumb) ;; *) PS1='\\[\\e[36m\\]%s\\[\\e[0m\\]:\\w\\$ ' ;; esac\n"
        "[ -z \"$VIRTUAL_ENV\" ] || PS1=\"(${VIRTUAL_ENV##*/}) $PS1\"\n"
        "alias ls='ls --color=auto' ll='ls -l' grep='grep --color=auto'\n",
        workspace, workspace); /* an id: nothing in it means anything to a shell */
}

static int write_bashrc(const struct broker *b, int tree, const char *workspace)
{
    char text[BASHRC_ROOM];
    int length = make_bashrc(workspace, text, sizeof(text));
    scoped_fd int fd =
        openat(tree, ".bashrc", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0)
        return errno == EEXIST ? 0 : -errno; /* of one that is taken over */
    if (b->owner_uid != geteuid() && fchown(fd, b->owner_uid, b->owner_gid) < 0)
        return -errno;
    ssize_t n = write(fd, text, (size_t)length);
    if (n != length)
        return n < 0 ? -errno : -ENOSPC;
    return fsync(fd) < 0 ? -errno : 0;
}

void tree_drop_bashrc(int tree, const char *workspace)
{
    char own[BASHRC_ROOM];
    char text[BASHRC_ROOM];
    int n = make_bashrc(workspace, own, sizeof(own));
    scoped_fd int fd = path_open_beneath(tree, ".bashrc", O_RDONLY | O_NONBLOCK, 1);

    if (fd >= 0 && read(fd, text, sizeof(text)) == n && memcmp(text, own, (size_t)n) == 0)
        ignore(unlinkat(tree, ".bashrc", 0) == 0);
}

/* Whether a directory is what an interrupted make has left: ours, and empty but for .bashrc. One
 * that has been large is not: a look through what is left of it could take long. */
static bool is_bare(const struct broker *b, int tree)
{
    struct stat st;
    struct dirent *entry;
    int copy = fcntl(tree, F_DUPFD_CLOEXEC, 3);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    bool bare = dir && fstat(tree, &st) == 0 &&
                (st.st_uid == b->owner_uid || st.st_uid == geteuid()) &&
                st.st_size <= PATH_SMALL_DIR;

    if (!dir) {
        scope_close(&copy);
        return false;
    }
    errno = 0;
    while (bare && (entry = readdir(dir))) /* NOLINT(concurrency-mt-unsafe) */
        bare = path_is_dots(entry->d_name) || strcmp(entry->d_name, ".bashrc") == 0;
    bare = bare && errno == 0;
    (void)closedir(dir);
    return bare;
}

void tree_empty_for_image(const struct broker *b, int tree, const char *workspace)
{
    scoped_fd int fd = path_open_beneath(tree, ".", O_RDONLY | O_DIRECTORY, 0);

    if (fd >= 0 && is_bare(b, fd))
        tree_drop_bashrc(fd, workspace);
}

/* Its owner and its first file. */
static int furnish(const struct broker *b, int tree, const char *workspace)
{
    if (b->owner_uid != geteuid() && fchown(tree, b->owner_uid, b->owner_gid) < 0)
        return -errno;
    int r = write_bashrc(b, tree, workspace);
    if (r < 0)
        return r;
    return fsync(tree) < 0 ? -errno : 0;
}

/* A name that is some other workspace's image, or the disk of one that is no more. */
static int check_name(int threads, const char *name, struct err *err)
{
    static const char suffix[] = IMAGE_SUFFIX;
    char image[NAME_ROOM + 16];
    struct stat st;
    size_t n = strlen(name);

    if (n >= sizeof(suffix) - 1 && strcmp(name + n - (sizeof(suffix) - 1), suffix) == 0)
        return err_set(err, ERR_INVALID, 0, "names that end in " IMAGE_SUFFIX " are Carrel's own");
    snprintf(image, sizeof(image), "%s" IMAGE_SUFFIX, name);
    if (fstatat(threads, image, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return err_set(err, ERR_CONFLICT, 0, "the disk of another workspace of this id is there");
    return 0;
}

/* All or nothing. One that was made for nobody, as the front died before it could write its row, is
 * taken over. */
static int make(const struct broker *b, int threads, const char *name, struct err *err)
{
    if (check_name(threads, name, err) < 0)
        return -1;
    bool made = mkdirat(threads, name, 0700) == 0;
    if (!made && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make the workspace's directory");
    scoped_fd int fd = path_open_beneath(threads, name, O_RDONLY | O_DIRECTORY, 0);
    if (!made && (fd < 0 || !is_bare(b, fd)))
        return err_set(err, ERR_CONFLICT, 0,
                       "a directory of this name exists, has files in it, and is not a workspace");
    int r = fd < 0 ? fd : furnish(b, fd, name);
    if (r == 0 && fsync(threads) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    err_set(err, ERR_IO, -r, "make the workspace's directory");
    if (made && fd >= 0)
        ignore(unlinkat(fd, ".bashrc", 0) == 0); /* nothing else is in it */
    if (made)
        ignore(unlinkat(threads, name, AT_REMOVEDIR) == 0);
    return -1;
}

static void answer(struct broker *b, uint64_t tag, int r, const struct err *err)
{
    if (r < 0)
        channel_send_error(b, tag, err);
    else
        channel_send_ok(b, tag);
}

void tree_make(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct err err;
    int r = 0;

    if (strcmp(m->texts[0], b->settings.bucket) == 0)
        r = state_make_bucket(b, m->texts[0], &err);
    scoped_fd int threads = r < 0 ? -1 : open_place(b, m->texts[0], "threads", &err);
    r = threads < 0 ? -1 : make(b, threads, m->texts[1], &err);
    answer(b, tag, r, &err);
}

static int move(int from, const char *old, int to, const char *new)
{
    if (syscall(SYS_renameat2, from, old, to, new, RENAME_NOREPLACE) == 0)
        return 0;
    return -errno;
}

struct two_places {
    int threads;
    int trash;
    char name[PROTOCOL_ID + 1];
    char trashed[NAME_ROOM];
    char image[NAME_ROOM + 16];
    char trashed_image[NAME_ROOM + 16];
};

static int open_both(struct broker *b, const struct plain_message *m, struct two_places *ret,
                     struct err *err)
{
    const char *bucket = m->texts[0];

    *ret = (struct two_places){.threads = -1, .trash = -1};
    snprintf(ret->name, sizeof(ret->name), "%s", m->texts[1]);
    snprintf(ret->trashed, sizeof(ret->trashed), "%s.%s", m->texts[1], m->texts[2]);
    snprintf(ret->image, sizeof(ret->image), "%s" IMAGE_SUFFIX, ret->name);
    snprintf(ret->trashed_image, sizeof(ret->trashed_image), "%s" IMAGE_SUFFIX, ret->trashed);
    if (is_a_bucket(bucket) && state_make_bucket(b, bucket, err) < 0)
        return -1;
    ret->threads = open_place(b, bucket, "threads", err);
    ret->trash = ret->threads < 0 ? -1 : open_place(b, bucket, ".carrel/trash", err);
    return ret->trash < 0 ? -1 : 0;
}

static void close_both(struct two_places *places)
{
    scope_close(&places->threads);
    scope_close(&places->trash);
}

static int sync_both(const struct two_places *p, struct err *err)
{
    if (fsync(p->threads) < 0 || fsync(p->trash) < 0)
        return err_set(err, ERR_IO, errno, "write the directories to disk");
    return 0;
}

static bool is_there(int dir, const char *name, mode_t kind)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) == kind;
}

/* An image is a file: a directory of such a name is somebody's tree. 0 also for none. */
static int move_image(int from, const char *old, int to, const char *new)
{
    int r = is_there(from, old, S_IFREG) ? move(from, old, to, new) : 0;

    return r == -ENOENT ? 0 : r;
}

/* One that has moved already is what was asked for: whoever died before it heard so asks again. */
static int trash(const struct two_places *p, struct err *err)
{
    int r = move(p->threads, p->name, p->trash, p->trashed);
    bool moved = r == 0;

    if (r == -ENOENT && !is_there(p->trash, p->trashed, S_IFDIR))
        return err_set(err, ERR_NOT_FOUND, 0, "the workspace's directory has vanished");
    if (r < 0 && r != -ENOENT)
        return err_set(err, ERR_IO, -r, "move the workspace to the trash");
    r = move_image(p->threads, p->image, p->trash, p->trashed_image);
    if (r < 0) {
        if (moved) /* as it was, if possible */
            ignore(move(p->trash, p->trashed, p->threads, p->name) == 0);
        return err_set(err, ERR_IO, -r, "move the workspace's image to the trash");
    }
    /* If that was not on disk, it is found and moved again at the next start. */
    return moved ? sync_both(p, err) : 0;
}

void tree_trash(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct two_places p = {.threads = -1, .trash = -1};
    struct err err;
    int r;

    if (sandbox_find_any(b, m->texts[1]))
        r = err_set(&err, ERR_CONFLICT, 0, "the workspace is awake; let it sleep first");
    else if (plans_use(b, m->texts[1]))
        r = err_set(&err, ERR_CONFLICT, 0,
                    "a plan of the workspace is being worked on; wait until that is over");
    else if (lock_is_held(b, m->texts[1]))
        r = err_set(&err, ERR_CONFLICT, 0, "the workspace's tree is being worked on; try again");
    else
        r = open_both(b, m, &p, &err);
    files_end_leaving(b, m->texts[1]);
    asleep_end(b, m->texts[1]);
    if (r == 0)
        r = trash(&p, &err);
    answer(b, tag, r, &err);
    close_both(&p);
}

/* Likewise for one that is back already. */
static int bring_back(const struct two_places *p, struct err *err)
{
    int r = move(p->trash, p->trashed, p->threads, p->name);
    bool moved = r == 0;

    if (r == -ENOENT && !is_there(p->threads, p->name, S_IFDIR))
        return err_set(err, ERR_NOT_FOUND, 0, "the workspace is not in the trash any more");
    if (r < 0 && r != -ENOENT)
        return err_set(err, r == -EEXIST ? ERR_CONFLICT : ERR_IO, -r,
                       "take the workspace from the trash");
    r = move_image(p->trash, p->trashed_image, p->threads, p->image);
    if (r < 0) {
        if (moved) /* as it was, if possible */
            ignore(move(p->threads, p->name, p->trash, p->trashed) == 0);
        return err_set(err, ERR_IO, -r, "take the workspace's image from the trash");
    }
    return sync_both(p, err); /* the row that follows must not be the first on disk */
}

void tree_back(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct two_places p;
    struct err err;
    int r = open_both(b, m, &p, &err);

    if (r == 0)
        r = bring_back(&p, &err);
    answer(b, tag, r, &err);
    close_both(&p);
}

int tree_remove_lent(int dir, const char *name)
{
    struct err err;
    int r = tree_remove(dir, name);

    return r == -EACCES && geteuid() != 0 && identity_enter_subids(&err) == 0
               ? tree_remove(dir, name)
               : r;
}

enum {
    KEPT, /* what a process works with */
    PLANS,
};

/* What is removed below a directory; an image is a file. */
struct remains {
    const char *name;
    const char *image; /* or NULL */
    const char *copy;  /* not removed, but copied to this one; or NULL */
    const char *workspace;
    const char *plan; /* that is made or removed by it; or NULL */
};

static int remove_all(const int *fds, const struct remains *p)
{
    int r = 0;

    if (fds[PLANS] >= 0) /* before the row goes, which is all that leads to them */
        r = tree_remove_lent(fds[PLANS], p->workspace);
    if (r == 0)
        r = p->copy ? tree_copy(fds[KEPT], p->name, p->copy) : tree_remove_lent(fds[KEPT], p->name);
    return r;
}

static int remove_here(const int *fds, const void *what, struct chore_report *report)
{
    const struct remains *p = what;
    int r = remove_all(fds, p);

    if (r == 0 && p->image && unlinkat(fds[KEPT], p->image, 0) < 0 && errno != ENOENT)
        r = -errno;
    if (r == 0 && fsync(fds[KEPT]) < 0)
        r = -errno;
    return r < 0 ? err_set(&report->err, ERR_IO, -r, "remove or copy files") : 0;
}

static int start_removal(struct broker *b, uint64_t tag, const struct remains *p,
                         const int places[2], struct err *err)
{
    return chore_start(b,
                       &(struct chore_work){.fds = {places[KEPT], places[PLANS], -1, -1},
                                            .work = remove_here,
                                            .what = p,
                                            .tag = tag,
                                            .plan = p->plan,
                                            .can_wait = p->plan && !p->copy},
                       err);
}

/* One that is gone already is what was asked for: an interrupted purge is asked for again. */
void tree_purge(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct two_places p;
    struct err err;
    int r = open_both(b, m, &p, &err);
    scoped_fd int plans = r < 0 ? -1 : plan_open_workspaces(b, m->texts[0]);
    struct remains remains = {.name = p.trashed, .image = p.trashed_image, .workspace = p.name};

    if (r == 0 && plans < 0 && plans != -ENOENT)
        r = err_set(&err, ERR_IO, -plans, "open the directory of the workspace's plans");
    if (r == 0)
        r = start_removal(b, tag, &remains, (int[]){p.trash, plans}, &err);
    if (r < 0)
        channel_send_error(b, tag, &err);
    close_both(&p);
}

bool tree_has_image(const struct broker *b, const char *bucket, const char *workspace)
{
    struct err err;
    scoped_fd int threads = open_place(b, bucket, "threads", &err);
    char image[NAME_ROOM + 16];

    snprintf(image, sizeof(image), "%s" IMAGE_SUFFIX, workspace);
    return threads >= 0 && is_there(threads, image, S_IFREG);
}

/* Whether anybody may be writing in the plan's directory. */
static bool is_used(const struct broker *b, const struct plan_id *at)
{
    return sandbox_find_plan(b, at->workspace, at->plan) || plan_is_worked_on(b, at->plan) ||
           chore_has_plan(b, at->plan);
}

void tree_copy_plan(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct plan_id at = {.plan = ""};
    struct err err;

    snprintf(at.bucket, sizeof(at.bucket), "%s", m->texts[0]);
    snprintf(at.workspace, sizeof(at.workspace), "%s", m->texts[1]);
    snprintf(at.plan, sizeof(at.plan), "%s", m->texts[3]);
    if (is_used(b, &at)) {
        err_set(&err, ERR_CONFLICT, 0, "the plan that is to be the copy is in use");
        channel_send_error(b, tag, &err);
        return;
    }
    scoped_fd int plans = plan_open_parent(b, m->texts[0], m->texts[1], &err);
    scoped_fd int made = plans < 0 ? -1 : plan_open_dir(b, &at, true, &err);
    struct remains remains = {.name = m->texts[2], .copy = at.plan, .plan = at.plan};

    if (made < 0 || start_removal(b, tag, &remains, (int[]){plans, -1}, &err) < 0)
        channel_send_error(b, tag, &err);
}

void tree_drop_plan(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct err err;
    struct sandbox *s = sandbox_find_plan(b, m->texts[1], m->texts[2]);
    scoped_fd int plans = plan_open_parent(b, m->texts[0], m->texts[1], &err);
    struct remains remains = {.name = m->texts[2], .plan = m->texts[2]};

    if (plans < 0) { /* nothing of it is there, which is what was asked for */
        answer(b, tag, err.code == ERR_NOT_FOUND ? 0 : -1, &err);
        return;
    }
    if (s)
        sandbox_end(s, "the plan was discarded");
    if (s || plan_is_worked_on(b, m->texts[2]) || chore_has_plan(b, m->texts[2])) {
        err_set(&err, ERR_CONFLICT, 0, "a process of the plan still runs; try again");
        channel_send_error(b, tag, &err);
    } else if (start_removal(b, tag, &remains, (int[]){plans, -1}, &err) < 0) {
        channel_send_error(b, tag, &err);
    }
}
