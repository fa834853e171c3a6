/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "sys/calls.h"
#include "sys/privileges.h"
#include "sys/uapi.h"

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

static int confine_to_places(bool shares_user, struct err *err)
{
    struct carrel_landlock_ruleset attr = {.handled_access_fs = ACCESS_ALL};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    if (abi < 0 && shares_user)
        return err_set(err, ERR_KERNEL, 0,
                       "this kernel has no Landlock, the wall between the daemon's two halves when "
                       "both are one user: boot with lsm=landlock,... or start it as root");
    if (abi < 0) {
        log_warning("no_landlock", "message",
                    "this kernel has no Landlock; files are bounded by the front's uid alone",
                    NULL);
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

/* No code can be made: mmap and mprotect without PROT_EXEC. ioctl sets the size of terminals and
 * asks how much is in a pipe. */
int confine_calls(struct err *err)
{
    static const uint32_t directions[] = {SHUT_WR};
    static const uint32_t requests[] = {TIOCSWINSZ, FIONREAD};
    struct calls calls;

    calls_begin(&calls);
    calls_allow(&calls, allowed, sizeof(allowed) / sizeof(allowed[0]));
    calls_allow_sending(&calls);
    /* The listening sockets are the next front's, too. */
    calls_allow_values(&calls, SYS_shutdown, 1, directions, 1);
    calls_allow_values(&calls, SYS_ioctl, 1, requests, sizeof(requests) / sizeof(requests[0]));
    calls_allow_data(&calls);
    int r = calls_enter(&calls);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "filter the front's system calls") : 0;
}

int confine_files(bool shares_user, struct err *err)
{
    int r = privileges_give_up();

    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "give up privileges");
    return confine_to_places(shares_user, err);
}
