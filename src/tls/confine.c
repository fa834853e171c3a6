/* SPDX-License-Identifier: Apache-2.0 */
/* What carrel-tls keeps: the sockets that it was started with and those that come by them. No file,
 * no address to connect to, no process, no code but its own. Who started it has given it its uid.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "sys/calls.h"
#include "sys/landlock.h"
#include "sys/privileges.h"
#include "tls/tls.h"

/* The frequent ones first: they are looked for in this order. */
static const int allowed[] = {
    SYS_epoll_wait,     SYS_epoll_pwait, SYS_recvfrom,      SYS_read,
    SYS_write,          SYS_epoll_ctl,   SYS_accept4,       SYS_getpeername,
    SYS_close,          SYS_recvmsg,     SYS_shutdown,      SYS_setsockopt,
    SYS_getsockopt,     SYS_getsockname, SYS_fcntl,         SYS_pread64,
    SYS_munmap,         SYS_mremap,      SYS_brk,           SYS_madvise,
    SYS_futex,          SYS_getrandom,   SYS_clock_gettime, SYS_gettimeofday,
    SYS_getpid,         SYS_gettid,      SYS_getuid,        SYS_geteuid,
    SYS_getgid,         SYS_getegid,     SYS_rt_sigreturn,  SYS_rt_sigaction,
    SYS_rt_sigprocmask, SYS_exit,        SYS_exit_group,    SYS_restart_syscall,
    SYS_sched_yield,    SYS_fstat,       SYS_newfstatat,    SYS_lseek,
#ifdef __SANITIZE_ADDRESS__ /* which looks at its stacks before it ends */
    SYS_sigaltstack,
#endif
#ifdef __x86_64__
    SYS_poll,
#endif
    SYS_ppoll,
};

static int confine_files(struct err *err)
{
    int r = landlock_confine(NULL, 0, NULL, 0);

    if (r == -ENOSYS) {
        log_warning("no_landlock", "message",
                    "this kernel has no Landlock; files are out of reach by the list of "
                    "system calls and by the uid",
                    NULL);
        return 0;
    }
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "enter the Landlock domain") : 0;
}

static int confine_calls(struct err *err)
{
    static const uint32_t families[] = {AF_UNIX};
    struct calls calls;

    calls_begin(&calls);
    calls_allow(&calls, allowed, sizeof(allowed) / sizeof(allowed[0]));
    calls_allow_sending(&calls);
    calls_allow_values(&calls, SYS_socketpair, 0, families, 1);
    calls_allow_data(&calls);
    int r = calls_enter(&calls);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "filter its system calls") : 0;
}

int tls_confine(struct err *err)
{
    int r = privileges_give_up();

    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "give up privileges");
    return confine_files(err) < 0 ? -1 : confine_calls(err);
}
