/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/files_asleep.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"
#include "files/serve.h"
#include "protocol/files_join.h"
#include "sys/calls.h"
#include "sys/fds.h"
#include "sys/path.h"
#include "sys/privileges.h"
#include "sys/process.h"
#include "sys/uapi.h"

enum {
    READERS = 4,             /* that wait, for as many workspaces at once */
    MEMORY = 256 << 20,      /* bytes, of each */
    PAUSE_NS = 2000000,      /* before the next is made: not while somebody waits for an answer */
    AGAIN_MS = 1000,         /* after one that could not be made */
    MOST_FAILED = 5,         /* ... in a row */
    MAKER = JOIN_SOCKET + 1, /* the pipe by which one says that it waits, then has a job */
};

/* --- which calls --- */

/* Names on which the sandbox has mounts, whoever asks. */
static bool is_reserved(const char *path)
{
    const char *rest = path + 1;
    char top[256];

    return files_next_name(&rest, top) < 0 || top[0] == '\0' || files_is_reserved_name(top);
}

/* What is at the path, opened name by name; -errno, also where a link is on the way. */
static int reach(const char *path)
{
    scoped_fd int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char name[256];

    for (const char *rest = path + 1; at >= 0 && *rest;) {
        if (files_next_name(&rest, name) < 0)
            return -ENAMETOOLONG;
        int next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        scope_close(&at);
        at = next;
    }
    return at < 0 ? -errno : take_fd(&at);
}

bool files_asleep_can(const struct files_message *m)
{
    struct stat st;

    if (!files_reads_one(m->op) || is_reserved(m->path))
        return false;
    scoped_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int fd = reach(m->path);
    if (root < 0 || fd < 0 || fstat(fd, &st) < 0 || !path_same_mount(root, fd))
        return false;
    return !S_ISLNK(st.st_mode) || (m->op == FILES_STAT && !(m->flags & FILES_FOLLOW));
}

/* --- giving up everything else --- */

/* Nothing can be changed, started, connected to or signalled, whatever its owner may do. */
static int wall_in(void)
{
    const uint64_t reads = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    unsigned known = abi >= 5 ? 16 : abi >= 3 ? 15 : abi == 2 ? 14 : 13; /* rights on files */
    const struct carrel_landlock_ruleset rules = {
        .handled_access_fs = ((1ULL << known) - 1) & ~reads,
        .handled_access_net = 3, /* bind, connect */
        .scoped = CARREL_LANDLOCK_SCOPE_SIGNAL | CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET};

    if (abi < 0) /* the list of calls says the same, in its way */
        return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
    size_t size = abi >= CARREL_LANDLOCK_ABI_SCOPES ? sizeof(rules) : abi >= 4 ? 16 : 8;
    scoped_fd int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
    return fd < 0 || syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
}

static const int allowed[] = {
    SYS_recvmsg,
    SYS_newfstatat,
    SYS_fstat,
    SYS_pread64,
    SYS_sendmsg,
    SYS_sendto,
    SYS_close,
    SYS_read,
    SYS_write,
    SYS_sendfile,
    SYS_statx,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_fstatfs,
    SYS_lseek,
    SYS_recvfrom,
    SYS_ppoll,
    SYS_futex,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_rt_sigprocmask,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_rt_sigaction,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_gettid,
    SYS_getpid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_setsockopt,
    SYS_shutdown,
    /* Once, to enter the tree; what of these needs rights fails later. */
    SYS_fchdir,
    SYS_chdir,
    SYS_chroot,
    SYS_setgroups,
    SYS_setresgid,
    SYS_setresuid,
    SYS_capset,
    SYS_prctl,
#ifdef __x86_64__
    SYS_stat,
    SYS_lstat,
    SYS_poll,
    SYS_readlink,
#endif
};

/* Threads can be made, processes and code cannot, and files are opened to be read. clone3, which
 * cannot be looked into, is answered so that the C library takes clone; fcntl can have signals sent
 * to others, and so has only what is used. */
static int filter_calls(void)
{
    static const uint32_t harmless[] = {F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL};
    const uint32_t writes = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
    struct calls calls;

    calls_begin(&calls);
    calls_allow(&calls, allowed, sizeof(allowed) / sizeof(allowed[0]));
    calls_allow_without(&calls, SYS_openat, 2, writes);
#ifdef __x86_64__
    calls_allow_without(&calls, SYS_open, 1, writes);
#endif
    calls_allow_data(&calls);
    calls_allow_with(&calls, SYS_clone, 0, CLONE_THREAD);
    calls_allow_values(&calls, SYS_fcntl, 1, harmless, sizeof(harmless) / sizeof(harmless[0]));
    calls_refuse(&calls, SYS_clone3, ENOSYS);
    return calls_enter(&calls);
}

/* Ahead of the job. To make the tree its root an ordinary user needs a user namespace; nobody is
 * mapped in it, and to files it remains who it is. That before there ever was a second thread: one
 * that has been joined may still be on its way out, and the kernel refuses then. */
static int confine(void)
{
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) < 0)
        return -errno;
    files_serve_rehearse();
    int r = privileges_give_up();
    if (r == 0)
        r = files_bound_memory(MEMORY);
    if (r == 0)
        r = wall_in();
    return r < 0 ? r : filter_calls();
}

static int drop(const struct asleep_job *job)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};

    if (job->has_ids && (setgroups(0, NULL) < 0 || setresgid(job->gid, job->gid, job->gid) < 0 ||
                         setresuid(job->uid, job->uid, job->uid) < 0 || geteuid() != job->uid))
        return errno ? -errno : -EPERM;
    return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

static int enter(const struct asleep_job *job, int tree)
{
    if (fchdir(tree) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return -errno;
    int r = drop(job);
    /* After the ids, whose change clears this. From now on the leash ends it, and not its maker. */
    if (r == 0 &&
        (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0))
        r = -errno;
    return r;
}

/* --- jobs --- */

static int receive(int jobs, struct asleep_job *job, int fds[ASLEEP_FDS])
{
    size_t count = ASLEEP_FDS;
    ssize_t n = fds_receive(jobs, job, sizeof(*job), fds, &count, 0);

    return n == sizeof(*job) && count == ASLEEP_FDS ? 0 : -EPIPE;
}

/* The socket for jobs is closed before the first call is read: whoever took this process over would
 * otherwise be given other trees. The maker hears of the job before anything that may hang. */
static _Noreturn void be_reader(int jobs, pid_t parent)
{
    struct asleep_job job;
    int fds[ASLEEP_FDS];

    if (confine() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent ||
        write(MAKER, "", 1) != 1 || receive(jobs, &job, fds) < 0)
        _exit(1);
    (void)close(jobs);
    (void)close(MAKER);
    int r = enter(&job, fds[0]);
    (void)close(fds[0]);
    emit_own_id(geteuid());
    if (r == 0)
        (void)files_serve_asleep(fds[1], fds[2]);
    _exit(1);
}

/* The pipe by which it is heard. */
static int add_reader(int jobs)
{
    int pair[2];
    pid_t parent = getpid();

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    scoped_fd int heard = pair[0];
    scoped_fd int said = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        if (dup2(said, MAKER) < 0 || process_close_from(MAKER + 1, CLOSE_NOW) < 0)
            _exit(1);
        be_reader(jobs, parent);
    }
    return take_fd(&heard);
}

struct waiting {
    int pipe;        /* from it; -1: there is none */
    bool said_ready; /* it has got so far as to wait for a job */
};

/* What is missing is made. 0 or -errno. */
static int fill(struct waiting waiting[READERS], int jobs)
{
    for (size_t i = 0; i < READERS; i++) {
        if (waiting[i].pipe >= 0)
            continue;
        waiting[i] = (struct waiting){.pipe = add_reader(jobs)};
        if (waiting[i].pipe < 0)
            return waiting[i].pipe;
    }
    return 0;
}

/* Waits for a word or an end. How many ended before they were ready; -1: one has become so. */
static int hear(struct waiting waiting[READERS])
{
    struct pollfd all[READERS];
    int failed = 0;
    bool ready = false;
    char byte;

    for (size_t i = 0; i < READERS; i++)
        all[i] = (struct pollfd){.fd = waiting[i].pipe, .events = POLLIN};
    if (poll(all, READERS, -1) < 0)
        return 0;
    for (size_t i = 0; i < READERS; i++) {
        if (!all[i].revents)
            continue;
        if (read(waiting[i].pipe, &byte, 1) == 1) {
            ready = waiting[i].said_ready = true;
            continue;
        }
        failed += !waiting[i].said_ready;
        scope_close(&waiting[i].pipe);
    }
    return ready ? -1 : failed;
}

int files_asleep(int jobs)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct waiting waiting[READERS];
    int failed = 0;

    (void)prctl(PR_SET_NAME, "carrel-asleep", 0, 0, 0); /* for people who look at processes */
    (void)signal(SIGCHLD, SIG_IGN);
    for (size_t i = 0; i < READERS; i++)
        waiting[i].pipe = -1;
    while (failed < MOST_FAILED) {
        int r = fill(waiting, jobs);
        int worse = r < 0 ? 1 : hear(waiting);
        failed = worse < 0 ? 0 : failed + worse;
        if (worse > 0)
            (void)poll(NULL, 0, AGAIN_MS);
        else
            (void)nanosleep(&pause, NULL);
    }
    return -ECHILD;
}
