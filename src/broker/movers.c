/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-mover, started: a process for each job. As root it is a user of its own in a mount
 * namespace of its own, in which /tmp is a file system with two directories: the workspace's tree,
 * read-only, whose owner looks like that user; and what it keeps between jobs. It has no right that
 * an ordinary user lacks. It is killed with the front, which hears it, and with us: what it had
 * half done the next one finds in what it keeps. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "broker/channel.h"
#include "broker/forks.h"
#include "broker/movers.h"
#include "broker/trees.h"
#include "protocol/store_job.h"
#include "sandbox/identity.h"
#include "sys/mount.h"
#include "sys/path.h"
#include "sys/process.h"

enum {
    MOST_MOVERS = 64,
    FIRST_FD = 3, /* the store's configuration */
    HIGH = 64,
    ROOM = 4096,
    MOST_ARGS = 32,
};

#define PLACE_TREE  "/tmp/tree"
#define PLACE_STATE "/tmp/state"

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
    pid_t parent;
};

/* --- in the child of a process with threads: system calls only --- */

static int enter_namespace(const struct start *s)
{
    const struct tmpfs_options room = {.bytes = 1 << 20,
                                       .inodes = 16,
                                       .mode = 0755,
                                       .attrs = MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC};

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    if (mount_tmpfs_at("/tmp", &room) < 0 || mkdir(PLACE_TREE, 0755) < 0 ||
        mkdir(PLACE_STATE, 0755) < 0)
        return -1;
    if (s->tree >= 0 && mount_attach_at(s->tree, AT_FDCWD, PLACE_TREE) < 0)
        return -1;
    return s->state >= 0 && mount_attach_at(s->state, AT_FDCWD, PLACE_STATE) < 0 ? -1 : 0;
}

static int drop_rights(const struct start *s)
{
    for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
        if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0)
            return -1;
    }
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, s->uid, s->uid, s->uid) < 0)
        return -1;
    return (int)syscall(SYS_setresuid, s->uid, s->uid, s->uid);
}

static _Noreturn void become(const struct start *s)
{
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    const struct rlimit none = {0, 0};
    int program = fcntl(s->program, F_DUPFD_CLOEXEC, HIGH);
    int conf = fcntl(s->conf, F_DUPFD_CLOEXEC, HIGH);
    int report = fcntl(s->report, F_DUPFD_CLOEXEC, HIGH);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t empty;

    (void)sigemptyset(&empty);
    (void)pthread_sigmask(SIG_SETMASK, &empty, NULL);
    if (s->as_root && enter_namespace(s) < 0)
        _exit(119);
    if (program < 0 || dup2(null, 0) < 0 || dup2(report, 1) < 0 || dup2(conf, FIRST_FD) < 0 ||
        process_close_from(FIRST_FD + 1, CLOSE_AT_EXEC) < 0)
        _exit(120);
    if (setrlimit(RLIMIT_CORE, &none) < 0 || (s->as_root && drop_rights(s) < 0) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || chdir("/") < 0)
        _exit(121);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != s->parent)
        _exit(122);
    (void)syscall(SYS_execveat, program, "", s->argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

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
    snprintf(s->tree_path, sizeof(s->tree_path), PLACE_TREE);
    snprintf(s->state_path, sizeof(s->state_path), PLACE_STATE);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "show carrel-mover what it keeps") : 0;
}

static void make_arguments(struct start *s, const struct store_job *job)
{
    const char *const pairs[][2] = {{"--daemon", s->daemon},
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
    mover->pid = fork();
    if (mover->pid == 0)
        become(s);
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
    s->parent = getpid();
    s->conf = store_open_conf(b, job->store, err);
    if (s->conf < 0 || store_daemon_name(b, s->daemon, err) < 0 ||
        (*job->workspace && show_job(b, job, s, err) < 0))
        return -1;
    make_arguments(s, job);
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
