/* SPDX-License-Identifier: Apache-2.0 */
#include "files/asleep.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/join.h"
#include "files/protocol.h"
#include "files/serve.h"
#include "sys/process.h"
#include "sys/uapi.h"

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

enum {
    ONLOOKERS = 4, /* that wait, for as many workspaces at once */
    PAUSE_NS = 200000,
    MAKER = JOIN_SOCKET + 1, /* to whom an onlooker says that it waits, and then has a job */
};

/* --- which calls --- */

bool files_asleep_can(const struct files_message *m)
{
    static const bool reads[FILES_OP_COUNT_] = {
        [FILES_READ] = true, [FILES_TEXT] = true, [FILES_STAT] = true, [FILES_LIST] = true};
    const struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    struct stat st;

    if (!reads[m->op])
        return false;
    scoped_fd int fd = (int)syscall(SYS_openat2, AT_FDCWD, m->path, &how, sizeof(how));
    return fd >= 0 && fstat(fd, &st) == 0 &&
           (!S_ISLNK(st.st_mode) || (m->op == FILES_STAT && !(m->flags & FILES_FOLLOW)));
}

/* --- giving up everything else --- */

/* Nothing can be changed, started or connected to, whatever its owner may do. */
static int wall_in(void)
{
    const uint64_t reads = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    unsigned known = abi >= 5 ? 16 : abi >= 3 ? 15 : abi == 2 ? 14 : 13; /* rights on files */
    const struct carrel_landlock_ruleset rules = {
        .handled_access_fs = ((1ULL << known) - 1) & ~reads,
        .handled_access_net = 3, /* bind, connect */
        .scoped = CARREL_LANDLOCK_SCOPE_SIGNAL | CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET};

    if (abi < 0) /* the list of calls has to do */
        return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
    size_t size = abi >= CARREL_LANDLOCK_ABI_SCOPES ? sizeof(rules) : abi >= 4 ? 16 : 8;
    scoped_fd int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
    return fd < 0 || syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
}

static const int allowed[] = {
    SYS_recvmsg,
    SYS_newfstatat,
    SYS_openat,
    SYS_openat2,
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
    SYS_fcntl,
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
    SYS_sched_yield,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_gettid,
    SYS_getpid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_setsockopt,
    SYS_prctl,
    SYS_prlimit64,
    SYS_sched_getaffinity,
    /* Once, to enter the tree; later without effect, for want of the rights. */
    SYS_fchdir,
    SYS_chdir,
    SYS_chroot,
    SYS_setgroups,
    SYS_setresgid,
    SYS_setresuid,
    SYS_capset,
    SYS_close_range,
#ifdef __x86_64__
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_poll,
    SYS_pause,
    SYS_readlink,
#endif
};

enum {
    ALLOWED = sizeof(allowed) / sizeof(allowed[0]),
    CHECKED = 24, /* instructions around them */
};

/* Threads can be made, processes and code cannot. clone3, which is not looked into, is answered so
 * that the C library takes clone. */
static int filter_calls(void)
{
    struct sock_filter code[2 * ALLOWED + CHECKED];
    size_t n = 0;
    const uint32_t first = offsetof(struct seccomp_data, args[0]);
    const uint32_t third = offsetof(struct seccomp_data, args[2]);

#define STATEMENT(c, v)  code[n++] = (struct sock_filter)BPF_STMT(c, v)
#define JUMP(c, v, t, f) code[n++] = (struct sock_filter)BPF_JUMP(c, v, t, f)
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < ALLOWED; i++) {
        JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1);
        STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, first);
    JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, third);
    JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
#undef STATEMENT
#undef JUMP
    struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

/* Ahead of the job. To make the tree its root an ordinary user needs a user namespace; nobody is
 * mapped in it, and to files it remains who it is. */
static int confine(void)
{
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) < 0)
        return -errno;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return -errno;
    int r = files_bound_memory();
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

static int enter(const struct asleep_job *job, int tree, pid_t parent)
{
    if (fchdir(tree) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return -errno;
    int r = drop(job);
    if (r < 0)
        return r;
    /* After the ids, whose change clears these. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    return getppid() == parent ? 0 : -EPIPE;
}

/* --- jobs --- */

static int receive(int jobs, struct asleep_job *job, int fds[2])
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {job, sizeof(*job)};
    struct msghdr msg = {.msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t n;

    do {
        n = recvmsg(jobs, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (n != sizeof(*job) || !c || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return -EPIPE;
    memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
    return 0;
}

/* The socket for jobs is closed before the first call is read: whoever took this process over would
 * otherwise be given other trees. */
static _Noreturn void look_on(int jobs, pid_t parent)
{
    struct asleep_job job;
    int fds[2] = {-1, -1};

    files_serve_rehearse();
    if (confine() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent ||
        write(MAKER, "", 1) != 1 || receive(jobs, &job, fds) < 0)
        _exit(1);
    (void)close(jobs);
    int r = enter(&job, fds[0], parent);
    scope_close(&fds[0]);
    if (r == 0)
        (void)files_serve_asleep(fds[1], MAKER);
    _exit(1);
}

/* Where its word is heard, and its end. */
static int add_onlooker(int jobs)
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
        look_on(jobs, parent);
    }
    return take_fd(&heard);
}

struct waiting {
    struct pollfd at;
    bool can; /* it has got so far as to wait for a job */
};

/* A word, or the end. -ECHILD: it could not give up its rights, and so the next one could not. */
static int hear(struct waiting *w)
{
    char byte;

    if (!w->at.revents)
        return 0;
    if (read(w->at.fd, &byte, 1) == 1) {
        w->can = true;
        return 0;
    }
    scope_close(&w->at.fd);
    return w->can ? 0 : -ECHILD;
}

int files_asleep(int jobs)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct waiting waiting[ONLOOKERS];
    struct pollfd all[ONLOOKERS];
    int r = 0;

    (void)prctl(PR_SET_NAME, "carrel-asleep", 0, 0, 0); /* for people who look at processes */
    (void)signal(SIGCHLD, SIG_IGN);
    for (size_t i = 0; i < ONLOOKERS; i++)
        waiting[i].at.fd = -1;
    while (r == 0) {
        for (size_t i = 0; i < ONLOOKERS; i++) {
            if (waiting[i].at.fd < 0)
                waiting[i] = (struct waiting){{add_onlooker(jobs), POLLIN, 0}, false};
            if (waiting[i].at.fd < 0)
                return waiting[i].at.fd;
            all[i] = waiting[i].at;
        }
        if (poll(all, ONLOOKERS, -1) < 0)
            continue;
        for (size_t i = 0; i < ONLOOKERS && r == 0; i++) {
            waiting[i].at.revents = all[i].revents;
            r = hear(&waiting[i]);
        }
        (void)nanosleep(&pause, NULL); /* not while somebody waits for an answer */
    }
    return r;
}
