/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/verbs/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/calls.h"
#include "sys/uapi.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

#define ACCESS_BEFORE_REFER ((1ULL << 13) - 1) /* ABI 1 */
#define ACCESS_REFER        (1ULL << 13)       /* ABI 2 */
#define ACCESS_TRUNCATE     (1ULL << 14)       /* ABI 3 */
#define NET_ALL             3ULL               /* ABI 4 */
/* All but running programs and making devices, sockets and pipes. */
#define ACCESS_OURS                                                                                \
    ((ACCESS_BEFORE_REFER | ACCESS_REFER | ACCESS_TRUNCATE) &                                      \
     ~(uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |                       \
                 LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SOCK |                    \
                 LANDLOCK_ACCESS_FS_MAKE_FIFO))

/* Only looking, and starting programs. */
#define ACCESS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ACCESS_RUN  (ACCESS_READ | LANDLOCK_ACCESS_FS_EXECUTE)

/* What the verbs that need more than to carry out a plan get besides. */
static const struct leave {
    uint64_t capabilities; /* of those that the starter has left it */
    bool is_dumpable;      /* it opens what it has looked at by its own names in /proc */
    bool runs_diff;
    uint64_t of_tree;
    uint64_t of_dir;
    uint64_t of_others;
    int calls[40]; /* as well; ends with 0 */
} leaves[] = {
    [PLAN_CONFINED] = {.of_tree = ACCESS_OURS, .of_dir = ACCESS_OURS},
    [PLAN_CONFINED_LAYER] =
        {
            .capabilities = 1ULL << CAP_SYS_ADMIN | 1ULL << CAP_DAC_READ_SEARCH |
                            1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER,
            .is_dumpable = true,
            /* Landlock keeps it from changing content and names of the tree, not from setting
             * attributes, modes and times (fsetxattr, fchmod, utimensat): those it does not govern.
             * That these are set in the plan's directory only is up to the verbs. */
            .of_tree = ACCESS_READ,
            .of_dir = ACCESS_OURS | LANDLOCK_ACCESS_FS_MAKE_CHAR, /* marks of what is deleted */
            .calls = {SYS_getxattr, SYS_listxattr, SYS_removexattr, SYS_name_to_handle_at,
                      SYS_mknodat, SYS_copy_file_range, 0},
        },
    [PLAN_CONFINED_COPY] = {.capabilities = 1ULL << CAP_DAC_READ_SEARCH,
                            .of_tree = ACCESS_READ,
                            .of_dir = ACCESS_OURS,
                            .calls = {SYS_copy_file_range, SYS_clock_nanosleep, SYS_nanosleep, 0}},
    /* What a fork stands on is linked to, and Landlock lets that be only between places of which
     * the same may be done; that nothing is changed there is up to the verb. */
    [PLAN_CONFINED_FORK] = {.capabilities = 1ULL << CAP_SYS_ADMIN | 1ULL << CAP_DAC_READ_SEARCH,
                            .is_dumpable = true,
                            .of_tree = ACCESS_READ,
                            .of_dir = ACCESS_OURS,
                            .of_others = ACCESS_OURS,
                            .calls = {SYS_getxattr, SYS_listxattr, SYS_copy_file_range,
                                      SYS_clock_nanosleep, SYS_nanosleep, 0}},
    [PLAN_CONFINED_MERGE] = {.capabilities = 1ULL << CAP_DAC_READ_SEARCH,
                             .of_tree = ACCESS_READ,
                             .of_dir = ACCESS_OURS,
                             .of_others = ACCESS_READ,
                             .calls = {SYS_copy_file_range, 0}},
    [PLAN_CONFINED_DIFF] =
        {
            .is_dumpable = true,
            .runs_diff = true,
            .of_tree = ACCESS_READ,
            .of_dir = ACCESS_OURS,
            /* Also those of diff itself, which needs code from its libraries; clone is looked at
             * more closely, and of ioctl, which asks for terminals, neither has any use. */
            .calls = {SYS_mmap,
                      SYS_mprotect,
                      SYS_execve,
                      SYS_wait4,
                      SYS_waitid,
                      SYS_pipe2,
                      SYS_ppoll,
                      SYS_kill,
                      SYS_dup3,
                      SYS_memfd_create,
                      SYS_prctl,
                      SYS_capset,
                      SYS_landlock_create_ruleset,
                      SYS_landlock_add_rule,
                      SYS_landlock_restrict_self,
                      SYS_close_range,
                      SYS_set_robust_list,
                      SYS_set_tid_address,
                      SYS_rseq,
                      SYS_sigaltstack,
                      SYS_getppid,
                      SYS_pselect6,
                      SYS_fadvise64,
#ifdef __x86_64__
                      SYS_poll,
                      SYS_dup2,
                      SYS_arch_prctl,
#endif
                      0},
        },
};

static int allow(int rules, int fd, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};

    return fd < 0
               ? 0
               : (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

/* What starting diff takes (diff.c); it gets less itself. */
static int allow_diff(int rules)
{
    static const struct {
        const char *path;
        uint64_t access;
    } places[] = {
        {"/usr", ACCESS_RUN},
        {"/bin", ACCESS_RUN},
        {"/lib", ACCESS_RUN},
        {"/lib64", ACCESS_RUN},
        {"/etc/ld.so.cache", LANDLOCK_ACCESS_FS_READ_FILE},
        {"/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE},
    };

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        scoped_fd int fd = open(places[i].path, O_PATH | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT)
            return -1;
        if (allow(rules, fd, places[i].access) < 0)
            return -1;
    }
    return 0;
}

/* A kernel that cannot keep the process to two directories and let it rename between them (before
 * 5.19, or with Landlock off) does without, which is told: the rest of the confinement holds, and
 * refusing would leave half-done plans as they are. */
static int confine_files(const struct plan_within *within, const struct leave *leave,
                         bool *ret_within, struct err *err)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct carrel_landlock_ruleset attr = {.handled_access_fs = ACCESS_BEFORE_REFER | ACCESS_REFER,
                                           .handled_access_net = NET_ALL,
                                           .scoped = CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET |
                                                     CARREL_LANDLOCK_SCOPE_SIGNAL};

    *ret_within = abi >= 2;
    if (!*ret_within)
        return 0;
    size_t size = abi >= CARREL_LANDLOCK_ABI_SCOPES ? sizeof(attr) : abi >= 4 ? 16 : 8;
    if (abi >= 3)
        attr.handled_access_fs |= ACCESS_TRUNCATE;
    uint64_t handled = attr.handled_access_fs;
    scoped_fd int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (rules < 0 || allow(rules, within->tree, leave->of_tree & handled) < 0 ||
        allow(rules, within->dir, leave->of_dir & handled) < 0 ||
        allow(rules, within->others[0], leave->of_others & handled) < 0 ||
        allow(rules, within->others[1], leave->of_others & handled) < 0 ||
        (leave->runs_diff && allow_diff(rules) < 0) ||
        syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        return err_set(err, ERR_KERNEL, errno, "enter the Landlock domain of a plan");
    return 0;
}

static int drop_capabilities(uint64_t kept, struct err *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    if (syscall(SYS_capget, &head, data) < 0)
        return err_set(err, ERR_KERNEL, errno, "look at its capabilities");
    for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        data[i].permitted &= (uint32_t)(kept >> (32 * i));
        data[i].effective &= data[i].permitted;
        data[i].inheritable = 0;
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return err_set(err, ERR_KERNEL, errno, "give up capabilities");
    if (syscall(SYS_capset, &head, data) < 0)
        return err_set(err, ERR_KERNEL, errno, "give up capabilities");
    return 0;
}

/* The frequent ones first: they are looked for in this order. */
static const int allowed[] = {
    SYS_renameat2,
    SYS_newfstatat,
    SYS_openat2,
    SYS_close,
    SYS_read,
    SYS_write,
    SYS_fstat,
    SYS_fcntl,
    SYS_fchmod,
    SYS_fchmodat2,
    SYS_fchmodat,
    SYS_utimensat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_openat,
    SYS_getdents64,
    SYS_flistxattr,
    SYS_fgetxattr,
    SYS_fremovexattr,
    SYS_fsetxattr,
    SYS_pread64,
    SYS_pwrite64,
    SYS_fsync,
    SYS_fdatasync,
    SYS_syncfs,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fstatfs,
    SYS_statx,
    SYS_readlinkat,
    SYS_lseek,
    SYS_munmap,
    SYS_mremap,
    SYS_brk,
    SYS_madvise,
    SYS_futex,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigreturn,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_restart_syscall,
    SYS_writev,
    SYS_readv,
    SYS_sched_yield,
    SYS_prlimit64,
    SYS_uname,
    SYS_sysinfo,
    SYS_faccessat,
    SYS_umask,
    SYS_sched_getaffinity,
#ifdef __x86_64__
    SYS_chmod,
    SYS_rename,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
#endif
};

/* In the first argument of clone. */
#define CLONE_NEW_ANY                                                                              \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

/* No code can be made: mmap and mprotect without PROT_EXEC, but for what runs a program, which
 * makes processes and no namespaces. */
static int confine_calls(const struct leave *leave, struct err *err)
{
    struct calls calls;
    size_t more = 0;

    while (more < sizeof(leave->calls) / sizeof(leave->calls[0]) && leave->calls[more])
        more++;
    calls_begin(&calls);
    calls_allow(&calls, allowed, sizeof(allowed) / sizeof(allowed[0]));
    calls_allow(&calls, leave->calls, more);
    if (leave->runs_diff)
        calls_allow_without(&calls, SYS_clone, 0, CLONE_NEW_ANY);
    calls_allow_without(&calls, SYS_mmap, 2, PROT_EXEC);
    calls_allow_without(&calls, SYS_mprotect, 2, PROT_EXEC);
    int r = calls_enter(&calls);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "filter the system calls of a plan") : 0;
}

int plan_confine(enum plan_confinement how, const struct plan_within *within, bool *ret_within,
                 struct err *err)
{
    const struct leave *leave = &leaves[how];

    /* Who watches the steps may go, and a lease is asked for, not waited for. */
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || signal(SIGIO, SIG_IGN) == SIG_ERR)
        return err_set(err, ERR_KERNEL, errno, "ignore signals");
    if (drop_capabilities(leave->capabilities, err) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_set(err, ERR_KERNEL, errno, "give up privileges");
    /* Nobody of the same user looks into it. Before Linux 6.6 modes are changed through
     * /proc/self/fd, which would then be closed to the process itself. */
    if (!leave->is_dumpable &&
        !(syscall(SYS_fchmodat2, -1, "", 0, AT_EMPTY_PATH) < 0 && errno == ENOSYS) &&
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_set(err, ERR_KERNEL, errno, "close the process to others");
    return confine_files(within, leave, ret_within, err) < 0 || confine_calls(leave, err) < 0 ? -1
                                                                                              : 0;
}
