/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-mover, started for a job each: it is shown the workspace's tree, read-only, whose owner
 * looks like its user; and what it keeps between jobs. It is killed with the front, which hears it,
 * and with us: what it had half done the next one finds in what it keeps. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "broker/channel.h"
#include "broker/forks.h"
#include "broker/mover_process.h"
#include "broker/movers.h"
#include "broker/trees.h"
#include "protocol/store_job.h"
#include "sandbox/identity.h"
#include "sys/mount.h"
#include "sys/path.h"

enum {
    MOST_MOVERS = 64,
    ROOM = 4096,
    MOST_ARGS = 32,
};

struct mover {
    struct mover *next;
    struct broker *broker;
    uint64_t tag;
    uint64_t generation;
    pid_t pid;
    struct watch gone;
};

/* What is prepared for a start; descriptors are the mounts, or of the directories themselves. */
struct start {
    int conf;
    int report; /* where it tells */
    int tree;   /* -1: none */
    int state;
    char tree_path[ROOM];
    char state_path[ROOM];
    char daemon[65];
    const char *argv[MOST_ARGS + 2 * STORE_EXCLUDES];
    int program;
    uid_t uid;
    bool as_root;
};

/* --- what it is shown --- */

/* The directory as a mount whose owner looks like the mover's user. */
static int show_tree(const struct broker *b, int tree, bool writes, int *ret, struct err *err)
{
    struct identity id;
    struct stat st;
    int userns = -1;

    if (fstat(tree, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at the workspace's directory");
    identity_init(&id);
    id.range = true; /* not leased: the mover's user is nobody else's */
    id.base = b->mover_uid;
    id.inside_uid = id.inside_gid = 0;
    int r = identity_idmap(&id, IDENTITY_MAP_OWNER, st.st_uid, st.st_gid, &userns, err);
    if (r == 0) {
        *ret = mount_clone(tree, false);
        r = *ret < 0
                ? *ret
                : mount_set(*ret,
                            (writes ? 0 : MOUNT_RDONLY) | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC,
                            false, userns);
        if (r < 0)
            err_set(err, ERR_KERNEL, -r,
                    "show the workspace's files to carrel-mover: the file system must have "
                    "id-mapped mounts");
    }
    identity_settle(&id);
    identity_clear(&id);
    return r < 0 ? -1 : 0;
}

/* .carrel/workspaces/WS/mirror, the mover's. */
static int open_state(const struct broker *b, const struct store_job *job, struct err *err)
{
    char path[ROOM];
    const char *const names[] = {"workspaces", job->workspace, "mirror"};

    snprintf(path, sizeof(path), "%s/.carrel", job->bucket);
    int fd = path_open_beneath(b->state, path, O_RDONLY | O_DIRECTORY, 0);
    for (size_t i = 0; fd >= 0 && i < sizeof(names) / sizeof(names[0]); i++) {
        scoped_fd int above = fd;
        if (mkdirat(above, names[i], 0700) < 0 && errno != EEXIST)
            return err_set(err, ERR_IO, errno, "make the directory of the mirror");
        fd = path_open_beneath(above, names[i], O_RDONLY | O_DIRECTORY, 0);
    }
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open the directory of the mirror");
    if (geteuid() == 0 && fchown(fd, b->mover_uid, b->mover_uid) < 0) {
        err_set(err, ERR_IO, errno, "give the directory of the mirror to its user");
        scope_close(&fd);
    }
    return fd;
}

static int show_job(const struct broker *b, const struct store_job *job, struct start *s,
                    struct err *err)
{
    if (tree_has_image(b, job->bucket, job->workspace))
        return err_set(err, ERR_KERNEL, 0,
                       "the workspace's files are in a disk image, which is not mirrored; use a "
                       "policy with a disk limit that is not an image");
    if (fork_refuse(b, job->bucket, job->workspace, "and is not mirrored", err) < 0)
        return -1;
    scoped_fd int tree = tree_open(b, job->bucket, job->workspace, err);
    scoped_fd int state = tree < 0 ? -1 : open_state(b, job, err);
    if (state < 0)
        return -1;
    if (!s->as_root) {
        int r = path_of_fd(tree, s->tree_path, sizeof(s->tree_path));
        r = r < 0 ? r : path_of_fd(state, s->state_path, sizeof(s->state_path));
        return r < 0 ? err_set(err, ERR_IO, -r, "find the workspace's directory") : 0;
    }
    if (show_tree(b, tree, strcmp(job->verb, "hydrate") == 0, &s->tree, err) < 0)
        return -1;
    s->state = mount_clone(state, false);
    int r = s->state < 0
                ? s->state
                : mount_set(s->state, MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC, false, -1);
    snprintf(s->tree_path, sizeof(s->tree_path), MOVER_TREE);
    snprintf(s->state_path, sizeof(s->state_path), MOVER_STATE);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "show carrel-mover what it keeps") : 0;
}

static void make_arguments(const struct broker *b, struct start *s, const struct store_job *job)
{
    const char *const pairs[][2] = {{"--daemon", s->daemon},
                                    {"--rclone", b->settings.rclone},
                                    {"--workspace", job->workspace},
                                    {"--tree", s->tree_path},
                                    {"--state", s->state_path}};
    size_t n = 0;

    s->argv[n++] = "carrel-mover";
    s->argv[n++] = job->verb;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        s->argv[n++] = pairs[i][0];
        s->argv[n++] = pairs[i][1];
    }
    if (job->take_over)
        s->argv[n++] = "--take-over";
    for (size_t i = 0; job->exclude && job->exclude[i] && i < STORE_EXCLUDES; i++) {
        s->argv[n++] = "--exclude";
        s->argv[n++] = job->exclude[i];
    }
    s->argv[n] = NULL;
}

/* --- a job --- */

static void forget(struct mover *mover)
{
    struct mover **at = &mover->broker->movers;
    int fd = mover->gone.fd;

    while (*at != mover)
        at = &(*at)->next;
    *at = mover->next;
    events_forget(mover->broker->events, &mover->gone);
    scope_close(&fd);
    free(mover);
}

static void has_gone(struct watch *watch, uint32_t what)
{
    struct mover *mover = container_of(watch, struct mover, gone);
    struct broker *b = mover->broker;
    int status = 0;

    (void)what;
    if (waitpid(mover->pid, &status, WNOHANG) != mover->pid)
        return;
    if (mover->generation == b->generation && b->resumed)
        channel_send_plain(b, ANSWER_STORE_ENDED, mover->tag,
                           &(struct plain_message){.number = WIFEXITED(status)
                                                                 ? (uint64_t)WEXITSTATUS(status)
                                                                 : STORE_KILLED});
    forget(mover);
}

static int run(struct broker *b, struct mover *mover, const struct start *s, struct err *err)
{
    mover->pid = mover_fork(&(struct mover_start){.program = s->program,
                                                  .conf = s->conf,
                                                  .report = s->report,
                                                  .tree = s->tree,
                                                  .state = s->state,
                                                  .argv = s->argv,
                                                  .uid = s->uid});
    scoped_fd int pidfd = mover->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, mover->pid, 0);
    mover->gone = (struct watch){.ready = has_gone, .fd = -1};
    if (pidfd >= 0 && events_watch(b->events, &mover->gone, pidfd, EPOLLIN) == 0) {
        (void)take_fd(&pidfd); /* the watch's */
        return 0;
    }
    err_set(err, ERR_LIMIT, errno, "start carrel-mover");
    if (mover->pid > 0) {
        (void)kill(mover->pid, SIGKILL);
        (void)waitpid(mover->pid, NULL, 0);
    }
    return -1;
}

static int prepare(const struct broker *b, const struct store_job *job, struct start *s,
                   struct err *err)
{
    s->program = b->mover_program;
    s->uid = b->mover_uid;
    s->as_root = geteuid() == 0;
    s->conf = store_open_conf(b, job->store, err);
    if (s->conf < 0 || store_daemon_name(b, s->daemon, err) < 0 ||
        (*job->workspace && show_job(b, job, s, err) < 0))
        return -1;
    make_arguments(b, s, job);
    return 0;
}

static int check_count(const struct broker *b, struct err *err)
{
    size_t n = 0;

    for (const struct mover *each = b->movers; each; each = each->next)
        n++;
    return n >= MOST_MOVERS
               ? err_set(err, ERR_LIMIT, 0, "%d jobs with stores are under way", MOST_MOVERS)
               : 0;
}

static int begin(struct broker *b, uint64_t tag, const struct store_job *job, int *ret_report,
                 struct err *err)
{
    struct start s = {.conf = -1, .report = -1, .tree = -1, .state = -1};
    struct mover *mover = calloc(1, sizeof(*mover));
    int ends[2] = {-1, -1};

    if (!mover)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep the request");
    *mover = (struct mover){.broker = b, .tag = tag, .generation = b->generation};
    int r = check_count(b, err);
    if (r == 0 && pipe2(ends, O_CLOEXEC) < 0)
        r = err_set(err, ERR_LIMIT, errno, "make a pipe");
    s.report = ends[1];
    if (r == 0 && (r = prepare(b, job, &s, err)) == 0)
        r = run(b, mover, &s, err);
    if (r == 0) {
        mover->next = b->movers;
        b->movers = mover;
        *ret_report = take_fd(&ends[0]);
    } else {
        free(mover);
    }
    scope_close(&ends[0]);
    scope_close(&ends[1]);
    scope_close(&s.conf);
    scope_close(&s.tree);
    scope_close(&s.state);
    return r;
}

bool mover_request(struct broker *b, char *bytes, size_t n)
{
    struct store_job job;
    struct arena arena;
    uint64_t tag = 0;
    struct err err;
    int report = -1;

    arena_init(&arena, 1 << 18);
    bool good = store_job_unpack(bytes, n, &arena, &tag, &job) && tag;
    if (good && b->stopping)
        err_set(&err, ERR_CONFLICT, 0, "the daemon is stopping");
    if (good && (b->stopping || begin(b, tag, &job, &report, &err) < 0)) {
        channel_send_error(b, tag, &err);
    } else if (good) {
        scoped_buf struct buf message;
        buf_init(&message, 4096);
        protocol_pack_plain(&message, tag, &(struct plain_message){.number = 0});
        channel_send(b, ANSWER_STORE, &message, &report, 1);
    }
    scope_close(&report);
    arena_clear(&arena);
    return good;
}

void mover_cancel(struct broker *b, uint64_t tag)
{
    for (const struct mover *mover = b->movers; mover; mover = mover->next) {
        if (mover->tag == tag && mover->generation == b->generation)
            (void)kill(mover->pid, SIGKILL);
    }
}

void movers_end_all(struct broker *b)
{
    for (const struct mover *mover = b->movers; mover; mover = mover->next)
        (void)kill(mover->pid, SIGKILL);
}

void movers_close(struct broker *b)
{
    movers_end_all(b);
    for (struct mover *mover = b->movers, *next; mover; mover = next) {
        next = mover->next;
        (void)waitpid(mover->pid, NULL, 0);
        forget(mover);
    }
}
