/* SPDX-License-Identifier: Apache-2.0 */
/* The workspaces' directories:  DIR/<bucket>/threads/<workspace>  and, deleted,
 * DIR/<bucket>/.carrel/trash/<workspace>.<stamp>. An image with a workspace's disk lies beside it
 * (NAME.carrel-img) and goes where it goes. Every name is opened beneath DIR, following nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "broker/broker.h"
#include "broker/log.h"
#include "sys/path.h"
#include "sys/process.h"

enum {
    NAME_ROOM = 2 * PROTOCOL_ID + 32,
    PLACE_ROOM = PROTOCOL_ID + 32,
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

int tree_scan(const struct broker *b, const char *bucket, struct buf *names, struct err *err)
{
    static const char *list[PROTOCOL_NAMES + 1];
    size_t n = 0;
    int threads = open_place(b, bucket, "threads", err);
    DIR *dir = threads < 0 ? NULL : fdopendir(threads);
    struct arena arena;
    struct dirent *entry;

    if (!dir)
        return -1;
    arena_init(&arena, 2UL << 20);
    while (n < PROTOCOL_NAMES && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
        struct stat st;
        if (protocol_id_is_valid(entry->d_name) &&
            fstatat(threads, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
            list[n] = arena_copy(&arena, entry->d_name, strlen(entry->d_name));
            n += list[n] != NULL;
        }
    }
    list[n] = NULL;
    pack_list(names, list);
    arena_clear(&arena);
    (void)closedir(dir);
    return 0;
}

/* The directory and its owner, all or nothing. */
/* For people who open a shell in it. HOME is /, so this is the file that bash reads. */
static int write_bashrc(const struct broker *b, int tree)
{
    static const char text[] =
        "# Read by interactive shells in this workspace. It is yours to change.\n"
        "PS1='\\[\\e[36m\\]carrel\\[\\e[0m\\]:\\w\\$ '\n"
        "alias ls='ls --color=auto' ll='ls -l' grep='grep --color=auto'\n"
        "[ -z \"$VIRTUAL_ENV\" ] || PS1=\"(${VIRTUAL_ENV##*/}) $PS1\"\n";
    scoped_fd int fd =
        openat(tree, ".bashrc", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0 || (b->owner_uid != geteuid() && fchown(fd, b->owner_uid, b->owner_gid) < 0))
        return -errno;
    ssize_t n = write(fd, text, sizeof(text) - 1);
    if (n != (ssize_t)sizeof(text) - 1)
        return n < 0 ? -errno : -ENOSPC;
    return fsync(fd) < 0 ? -errno : 0;
}

static int make(const struct broker *b, int threads, const char *name, struct err *err)
{
    if (mkdirat(threads, name, 0700) < 0)
        return err_set(err, errno == EEXIST ? ERR_CONFLICT : ERR_IO, errno,
                       "make the workspace's directory");
    scoped_fd int fd = path_open_beneath(threads, name, O_RDONLY | O_DIRECTORY, 0);
    bool owned =
        fd >= 0 && (b->owner_uid == geteuid() || fchown(fd, b->owner_uid, b->owner_gid) == 0);
    int r = fd < 0 ? fd : owned ? write_bashrc(b, fd) : -errno;
    if (r == 0 && fsync(fd) == 0 && fsync(threads) == 0)
        return 0;
    err_set(err, ERR_IO, r < 0 ? -r : errno, "make the workspace's directory");
    if (fd >= 0)
        ignore(unlinkat(fd, ".bashrc", 0) == 0); /* nothing else is in it */
    ignore(unlinkat(threads, name, AT_REMOVEDIR) == 0);
    return -1;
}

static void answer(struct broker *b, uint64_t tag, int r, const struct err *err)
{
    if (r < 0)
        link_send_error(b, tag, err);
    else
        link_send_ok(b, tag);
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

void tree_check(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct err err;
    scoped_fd int fd = tree_open(b, m->texts[0], m->texts[1], &err);

    answer(b, tag, fd < 0 ? -1 : 0, &err);
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
    snprintf(ret->image, sizeof(ret->image), "%s.carrel-img", ret->name);
    snprintf(ret->trashed_image, sizeof(ret->trashed_image), "%s.carrel-img", ret->trashed);
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

static int trash(const struct two_places *p, struct err *err)
{
    int r = move(p->threads, p->name, p->trash, p->trashed);

    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, 0, "the workspace's directory has vanished");
    if (r < 0)
        return err_set(err, ERR_IO, -r, "move the workspace to the trash");
    r = move(p->threads, p->image, p->trash, p->trashed_image);
    if (r < 0 && r != -ENOENT) {
        ignore(move(p->trash, p->trashed, p->threads, p->name) == 0); /* as it was, if possible */
        return err_set(err, ERR_IO, -r, "move the workspace's image to the trash");
    }
    return sync_both(p, err);
}

void tree_trash(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct two_places p = {.threads = -1, .trash = -1};
    struct err err;
    int r;

    if (desk_find(b, m->texts[1]))
        r = err_set(&err, ERR_CONFLICT, 0, "the workspace is awake; let it sleep first");
    else
        r = open_both(b, m, &p, &err);
    if (r == 0)
        r = trash(&p, &err);
    answer(b, tag, r, &err);
    close_both(&p);
}

static int bring_back(const struct two_places *p, struct err *err)
{
    int r = move(p->trash, p->trashed, p->threads, p->name);

    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, 0, "the workspace is not in the trash any more");
    if (r < 0)
        return err_set(err, r == -EEXIST ? ERR_CONFLICT : ERR_IO, -r,
                       "take the workspace from the trash");
    r = move(p->trash, p->trashed_image, p->threads, p->image);
    if (r < 0 && r != -ENOENT) {
        ignore(move(p->threads, p->name, p->trash, p->trashed) == 0); /* as it was, if possible */
        return err_set(err, ERR_IO, -r, "take the workspace's image from the trash");
    }
    return sync_both(p, err);
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

/* A process that removes a tree: that may take long. */
struct removal {
    struct removal *next;
    struct broker *broker;
    struct watch watch;
    pid_t pid;
    uint64_t tag;
    uint64_t generation;
};

static void unlink_removal(struct removal *removal)
{
    struct removal **at = &removal->broker->removals;

    while (*at != removal)
        at = &(*at)->next;
    *at = removal->next;
}

static void finish_removal(struct removal *removal, int status)
{
    struct broker *b = removal->broker;
    struct err err;
    int r = 0;

    if (!WIFEXITED(status))
        r = err_set(&err, ERR_IO, 0, "removing the workspace was interrupted");
    else if (WEXITSTATUS(status) != 0)
        r = err_set(&err, ERR_IO, WEXITSTATUS(status), "remove the workspace");
    if (r < 0)
        log_err("purge_failed", NULL, &err);
    if (removal->generation == b->generation)
        answer(b, removal->tag, r, &err);
    int fd = removal->watch.fd;
    events_forget(b->events, &removal->watch);
    scope_close(&fd);
    unlink_removal(removal);
    free(removal);
}

static void removed(struct watch *watch, uint32_t what)
{
    struct removal *removal =
        (struct removal *)(void *)((char *)watch - offsetof(struct removal, watch));
    int status = 0;

    (void)what;
    if (waitpid(removal->pid, &status, WNOHANG) == removal->pid)
        finish_removal(removal, status);
}

/* In the child: only system calls, as other threads of the broker may have held locks. */
static _Noreturn void remove_here(const struct two_places *p)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    int r = tree_remove(p->trash, p->trashed);
    if (r == 0 && unlinkat(p->trash, p->trashed_image, 0) < 0 && errno != ENOENT)
        r = -errno;
    if (r == 0 && fsync(p->trash) < 0)
        r = -errno;
    _exit(r < 0 && -r < 256 ? -r : r < 0 ? EIO : 0);
}

static int start_removal(struct broker *b, uint64_t tag, const struct two_places *p,
                         struct err *err)
{
    struct removal *removal = calloc(1, sizeof(*removal));

    if (!removal)
        return err_set(err, ERR_LIMIT, ENOMEM, "remove the workspace");
    *removal = (struct removal){.broker = b,
                                .watch = {.ready = removed, .fd = -1},
                                .tag = tag,
                                .generation = b->generation};
    removal->pid = fork();
    if (removal->pid == 0)
        remove_here(p);
    int pidfd = removal->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, removal->pid, 0);
    if (pidfd < 0 || events_watch(b->events, &removal->watch, pidfd, EPOLLIN) < 0) {
        err_set(err, ERR_IO, errno, "start a process to remove the workspace");
        if (removal->pid > 0) {
            (void)kill(removal->pid, SIGKILL);
            (void)waitpid(removal->pid, NULL, 0);
        }
        scope_close(&pidfd);
        free(removal);
        return -1;
    }
    removal->next = b->removals;
    b->removals = removal;
    return 0;
}

/* One that is gone already is what was asked for: an interrupted purge is asked for again. */
void tree_purge(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct two_places p;
    struct err err;
    int r = open_both(b, m, &p, &err);

    if (r == 0)
        r = start_removal(b, tag, &p, &err);
    if (r < 0)
        link_send_error(b, tag, &err);
    close_both(&p);
}

void trees_close(struct broker *b)
{
    for (struct removal *removal = b->removals, *next; removal; removal = next) {
        int status = 0;
        next = removal->next;
        (void)kill(removal->pid, SIGKILL);
        (void)waitpid(removal->pid, &status, 0);
        finish_removal(removal, status);
    }
}
