/* SPDX-License-Identifier: Apache-2.0 */
#include "front/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/uapi.h"

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITES                                                                                     \
    (READS | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |                         \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                                \
     LANDLOCK_ACCESS_FS_REMOVE_DIR | ACCESS_TRUNCATE)
#define ACCESS_TRUNCATE (1ULL << 14) /* ABI 3 */
#define ACCESS_ALL      ((1ULL << 13) - 1)
#define NET_ALL         3ULL /* ABI 4: bind and connect */

static const struct {
    const char *name;
    uint64_t access;
} places[] = {
    {"db", WRITES}, {"execs", WRITES}, {"audit", READS}, {"heads", READS}, {"export", READS}};

static int allow_place(int rules, const char *path, uint64_t access)
{
    scoped_fd int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};

    if (fd < 0)
        return -errno;
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return -errno;
    return 0;
}

static int confine_files(bool shares_user, struct err *err)
{
    struct carrel_landlock_ruleset attr = {.handled_access_fs = ACCESS_ALL};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    if (abi < 0 && shares_user)
        return err_set(err, ERR_KERNEL, 0,
                       "this kernel has no Landlock, the wall between the daemon's two halves when "
                       "both are one user: boot with lsm=landlock,... or start it as root");
    if (abi < 0) {
        fputs("level=warning event=no_landlock message='this kernel has no Landlock; the front's "
              "files are bounded by its uid alone'\n",
              stderr);
        return 0;
    }
    size_t size = abi >= CARREL_LANDLOCK_ABI_SCOPES ? sizeof(attr) : abi >= 4 ? 16 : 8;
    uint64_t truncate = abi >= 3 ? ACCESS_TRUNCATE : 0;
    attr.handled_access_fs |= truncate | (abi >= 2 ? 1ULL << 13 : 0);
    attr.handled_access_net = NET_ALL;
    attr.scoped = CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | CARREL_LANDLOCK_SCOPE_SIGNAL;
    scoped_fd int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (rules < 0)
        return err_set(err, ERR_KERNEL, errno, "make a Landlock ruleset");
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        uint64_t access = places[i].access & (~ACCESS_TRUNCATE | truncate);
        int r = allow_place(rules, places[i].name, access);
        if (r < 0)
            return err_set(err, ERR_IO, -r, "allow '%s'", places[i].name);
    }
    /* How much memory it has, for /metrics; what a library looks at is refused. */
    ignore(allow_place(rules, "/proc/self/statm", LANDLOCK_ACCESS_FS_READ_FILE));
    if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        return err_set(err, ERR_KERNEL, errno, "enter the Landlock domain");
    return 0;
}

/* The frequent ones first: they are looked for in this order. */
static const int allowed[] = {
    SYS_epoll_wait,   SYS_epoll_pwait,   SYS_read,
    SYS_write,        SYS_recvfrom,      SYS_recvmsg,
    SYS_splice,       SYS_pread64,       SYS_pwrite64,
    SYS_epoll_ctl,    SYS_writev,        SYS_readv,
    SYS_close,        SYS_accept4,       SYS_openat,
    SYS_fcntl,        SYS_fstat,         SYS_newfstatat,
    SYS_lseek,        SYS_fdatasync,     SYS_fsync,
    SYS_ftruncate,    SYS_fallocate,     SYS_mkdirat,
    SYS_unlinkat,     SYS_munmap,        SYS_mremap,
    SYS_brk,          SYS_madvise,       SYS_futex,
    SYS_getrandom,    SYS_clock_gettime, SYS_clock_nanosleep,
    SYS_nanosleep,    SYS_getsockopt,    SYS_socketpair, /* a stream to a file server */
    SYS_setsockopt,   SYS_getsockname,   SYS_getpeername,
    SYS_getpid,       SYS_gettid,        SYS_getuid,
    SYS_geteuid,      SYS_getgid,        SYS_getegid,
    SYS_rt_sigreturn, SYS_rt_sigaction,  SYS_rt_sigprocmask,
    SYS_exit,         SYS_exit_group,    SYS_restart_syscall,
    SYS_ppoll,        SYS_statx,         SYS_getcwd,
    SYS_readlinkat,   SYS_faccessat,     SYS_getdents64,
    SYS_statfs,       SYS_fstatfs,       SYS_sysinfo,
    SYS_uname,        SYS_sched_yield,   SYS_fchown,
    SYS_gettimeofday,
#ifdef __x86_64__
    SYS_poll,         SYS_open,          SYS_stat,
    SYS_lstat,        SYS_unlink,        SYS_access,
    SYS_readlink,     SYS_mkdir,         SYS_rmdir,
#endif
};

enum {
    ALLOWED = sizeof(allowed) / sizeof(allowed[0]),
    CHECKED = 40, /* instructions around them */
};

/* No code can be made: mmap and mprotect without PROT_EXEC. ioctl sets the size of terminals and
 * asks how much is in a pipe. */
static int confine_calls(struct err *err)
{
    struct sock_filter code[2 * ALLOWED + CHECKED];
    size_t n = 0;
    const uint32_t number = offsetof(struct seccomp_data, nr);
    const uint32_t third = offsetof(struct seccomp_data, args[2]);
    const uint32_t second = offsetof(struct seccomp_data, args[1]);
    const uint32_t fourth = offsetof(struct seccomp_data, args[3]);

#define STATEMENT(c, v)  code[n++] = (struct sock_filter)BPF_STMT(c, v)
#define JUMP(c, v, t, f) code[n++] = (struct sock_filter)BPF_JUMP(c, v, t, f)
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, number);
    for (size_t i = 0; i < ALLOWED; i++) {
        JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1);
        STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    /* Not as a way to connect. */
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 3);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, third);
    JUMP(BPF_JMP | BPF_JSET | BPF_K, MSG_FASTOPEN, 5, 0);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 4);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, fourth);
    JUMP(BPF_JMP | BPF_JSET | BPF_K, MSG_FASTOPEN, 1, 0);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    /* The listening sockets are the next front's, too. */
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shutdown, 0, 4);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, second);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SHUT_WR, 0, 1);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4);
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, second);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSWINSZ, 6, 0);
    JUMP(BPF_JMP | BPF_JEQ | BPF_K, FIONREAD, 5, 0);
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
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_set(err, ERR_KERNEL, errno, "filter the front's system calls");
    return 0;
}

int confine_front(bool shares_user, struct err *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_set(err, ERR_KERNEL, errno, "give up privileges");
    return confine_files(shares_user, err) < 0 || confine_calls(err) < 0 ? -1 : 0;
}
