/* SPDX-License-Identifier: Apache-2.0 */
/* Becoming part of a sandbox, from outside: its users, mounts and network, but not its processes
 * and control groups, so that nothing inside can end, stop or starve this process. */
#include "protocol/files_join.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/fds.h"
#include "sys/uapi.h"

enum {
    JOIN_FDS = 5 /* at most */
};

static int receive(int socket, struct files_join *join, int fds[JOIN_FDS])
{
    size_t count = JOIN_FDS;
    ssize_t n = fds_receive(socket, join, sizeof(*join), fds, &count, 0);

    if (n <= 0)
        return n < 0 ? (int)n : -EPIPE;
    size_t want = 3U + (join->has_lease ? 1U : 0U) + (join->has_hidden ? 1U : 0U);
    return n == sizeof(*join) && count == want && join->filter_length != 0 &&
                   join->filter_length <= JOIN_MOST_FILTER
               ? 0
               : -EPROTO;
}

static int become(const struct files_join *join)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};

    /* Where only one id is mapped the kernel refuses to change groups: they stay those of the user
     * who started all this, as they do for the commands. With ids of its own none may stay. */
    if (setgroups(0, NULL) < 0 && (join->has_lease || errno != EPERM))
        return -errno;
    if (setresgid(join->gid, join->gid, join->gid) < 0 ||
        setresuid(join->uid, join->uid, join->uid) < 0)
        return -errno;
    unsigned long cap = 0;
    while (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
        cap++;
    if (cap <= CAP_CHECKPOINT_RESTORE || syscall(SYS_capset, &head, none) < 0)
        return errno ? -errno : -EPERM;
    if (getuid() != join->uid || geteuid() != join->uid || getgid() != join->gid)
        return -EPERM;
    return 0;
}

/* Commands may trace their own. We trace nobody: our processes are the host's to the kernel. */
static int refuse_tracing(void)
{
    static const unsigned refused[] = {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev};

    enum {
        CALLS = sizeof(refused) / sizeof(refused[0]),
        LENGTH = 1 + 2 * CALLS + 1
    };
    struct sock_filter code[LENGTH] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    struct sock_fprog program = {.len = LENGTH, .filter = code};

    for (unsigned i = 0; i < CALLS; i++) {
        code[1 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], 0, 1);
        code[2 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[LENGTH - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

/* As for the commands: a call that would be asked about is answered with the error beside the
 * question, as nobody listens here. */
static int filter_calls(struct files_join *join)
{
    struct sock_filter *filter = (struct sock_filter *)(void *)join->filter;
    struct sock_fprog program = {.len = (unsigned short)join->filter_length, .filter = filter};

    _Static_assert(sizeof(struct sock_filter) == sizeof(join->filter[0]), "same size");
    for (size_t i = 0; i < join->filter_length; i++) {
        unsigned error = filter[i].k & SECCOMP_RET_DATA;
        if (filter[i].code == (BPF_RET | BPF_K) &&
            (filter[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF)
            filter[i].k = error ? SECCOMP_RET_ERRNO | error : SECCOMP_RET_ALLOW;
    }
    int r = refuse_tracing();
    if (r < 0)
        return r;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

/* Our processes are the host's to the kernel, and rootless we are the very user who started all of
 * them: signals go to our own children only, as the commands' go to theirs. */
static int wall_in(void)
{
    const struct carrel_landlock_ruleset rules = {
        .scoped = CARREL_LANDLOCK_SCOPE_SIGNAL | CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET};
    scoped_fd int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);

    if (fd < 0) /* before Linux 6.12 there are no scopes */
        return errno == E2BIG || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP ? 0
                                                                                           : -errno;
    return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
}

/* All calls together: none of it is counted to the sandbox. What is not there is told as ENOMEM. */
int files_bound_memory(size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__ /* whose shadow is larger than any bound */
    (void)bytes;
    return 0;
#else
    const struct rlimit memory = {bytes, bytes};

    return setrlimit(RLIMIT_DATA, &memory) < 0 ? -errno : 0;
#endif
}

static int enter(struct files_join *join, int pidfd)
{
    pid_t parent = getppid();

    if (setns(pidfd, (int)join->namespaces) < 0)
        return -errno;
    int r = become(join);
    if (r < 0)
        return r;
    /* After the ids, whose change clears these. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
        chdir("/") < 0)
        return -errno;
    if (getppid() != parent)
        return -EPIPE;
    (void)umask(022);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    r = wall_in();
    if (r == 0)
        r = files_bound_memory(JOIN_MEMORY);
    return r < 0 ? r : filter_calls(join);
}

static int map_activity(int fd, struct files_activity **ret)
{
    void *memory = mmap(NULL, sizeof(**ret), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return -errno;
    *ret = memory;
    return 0;
}

int files_join(int socket, struct files_joined *ret)
{
    static struct files_join join;
    int fds[5] = {-1, -1, -1, -1, -1};
    int r = receive(socket, &join, fds);

    if (r == 0)
        r = map_activity(fds[1], &ret->activity);
    if (r == 0)
        r = enter(&join, fds[0]);
    scope_close(&fds[0]);
    scope_close(&fds[1]);
    /* The lease stays open: nobody else is given these uids while this process lives. */
    ret->wake = fds[2];
    ret->hidden = join.has_hidden ? fds[join.has_lease ? 4 : 3] : -1;
    ret->sweeps = join.sweeps;
    int answer = -r;
    if (r != -EPIPE && send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
        return -errno;
    return r;
}
