/* SPDX-License-Identifier: Apache-2.0 */
/* What carrel-egress keeps: sockets, pipes, and the files in which the host says how names are
 * found. Who started it has given it its uid. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "egress/egress.h"
#include "sys/calls.h"
#include "sys/landlock.h"
#include "sys/privileges.h"

#ifdef __SANITIZE_ADDRESS__
/* What looks for leaks at the end would trace the process, which is not allowed. */
int __lsan_is_turned_off(void); // NOLINT(bugprone-reserved-identifier)

int __lsan_is_turned_off(void) // NOLINT(bugprone-reserved-identifier)
{
    return 1;
}
#endif

static int confine_limits(struct err *err)
{
    static const struct rlimit none = {0, 0};
    int r = privileges_give_up();

    if (r == 0 && setrlimit(RLIMIT_MEMLOCK, &none) < 0)
        r = -errno;
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "give up privileges") : 0;
}

/* The directory of the resolver's settings: who changes them puts another file there. */
static const char *place_of_settings(char path[PATH_MAX])
{
    char *slash = realpath("/etc/resolv.conf", path) ? strrchr(path, '/') : NULL;

    if (!slash || slash == path)
        return "/etc";
    *slash = '\0';
    return path;
}

/* What the resolver reads whenever it looks for a name. */
static int confine_files(struct err *err)
{
    char path[PATH_MAX];
    const struct landlock_place places[] = {{.path = place_of_settings(path), .may_lack = true},
                                            {.path = "/etc/hosts", .may_lack = true},
                                            {.path = "/etc/nsswitch.conf", .may_lack = true},
                                            {.path = "/etc/host.conf", .may_lack = true}};
    int r = landlock_confine(places, sizeof(places) / sizeof(places[0]), NULL, LANDLOCK_ANY_PORT);

    if (r == -ENOSYS) {
        log_warning("no_landlock", "message",
                    "this kernel has no Landlock; files are bounded by the list of system "
                    "calls, which only reads, and by the uid",
                    NULL);
        return 0;
    }
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "enter the Landlock domain") : 0;
}

/* The frequent ones first: they are looked for in this order. */
static const int allowed[] = {
    SYS_epoll_wait,  SYS_epoll_pwait,   SYS_recvfrom,        SYS_splice,
    SYS_epoll_ctl,   SYS_read,          SYS_write,           SYS_recvmsg,
    SYS_accept4,     SYS_close,         SYS_connect,         SYS_getsockname,
    SYS_getpeername, SYS_getsockopt,    SYS_setsockopt,      SYS_shutdown,
    SYS_pipe2,       SYS_writev,        SYS_readv,           SYS_fcntl,
    SYS_fstat,       SYS_newfstatat,    SYS_lseek,           SYS_munmap,
    SYS_mremap,      SYS_brk,           SYS_madvise,         SYS_futex,
    SYS_getrandom,   SYS_clock_gettime, SYS_gettimeofday,    SYS_getpid,
    SYS_gettid,      SYS_rt_sigreturn,  SYS_rt_sigaction,    SYS_rt_sigprocmask,
    SYS_exit,        SYS_exit_group,    SYS_restart_syscall, SYS_uname,
    SYS_sched_yield, SYS_geteuid,       SYS_getuid,          SYS_getegid,
    SYS_getgid,
#ifdef __SANITIZE_ADDRESS__ /* which looks at its stacks before it ends */
    SYS_sigaltstack,
#endif
#ifdef __x86_64__
    SYS_poll,
#endif
    SYS_ppoll,
};

/* Sockets are of IPv4 and IPv6, of which raw ones need a privilege; files are only read; no code
 * can be made, and no process. */
static int confine_calls(struct err *err)
{
    static const uint32_t families[] = {AF_INET, AF_INET6};
    static const uint32_t writes = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
    struct calls calls;

    calls_begin(&calls);
    calls_allow(&calls, allowed, sizeof(allowed) / sizeof(allowed[0]));
    calls_allow_sending(&calls);
    calls_allow_values(&calls, SYS_socket, 0, families, sizeof(families) / sizeof(families[0]));
    calls_allow_without(&calls, SYS_openat, 2, writes);
#ifdef __x86_64__
    calls_allow_without(&calls, SYS_open, 1, writes);
#endif
    calls_allow_data(&calls);
    int r = calls_enter(&calls);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "filter its system calls") : 0;
}

int egress_confine(struct err *err)
{
    return confine_limits(err) < 0 || confine_files(err) < 0 ? -1 : confine_calls(err);
}
