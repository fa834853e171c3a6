/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/filter: the BPF program is built, checked as the kernel would, and interpreted for every
 * number there is. What it must answer is written down here a second time, from what each call can
 * do, not from syscalls.def: a change of the filter has to be made in both places. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "sandbox/denial/denied.h"
#include "sandbox/filter.h"

#define ALLOW   SECCOMP_RET_ALLOW
#define NO(e)   (SECCOMP_RET_ERRNO | (e))
#define ASK     SECCOMP_RET_USER_NOTIF
#define KILL    SECCOMP_RET_KILL_PROCESS
#define INVALID 0xdeadU

enum {
    NUMBERS = 1100
};

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif

/* --- an interpreter for the few instructions the program may have --- */

static uint32_t load(const struct seccomp_data *data, uint32_t offset)
{
    uint32_t word;

    memcpy(&word, (const char *)data + offset, sizeof(word));
    return word;
}

static bool jump_is_taken(uint16_t code, uint32_t a, uint32_t k)
{
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return a == k;
    case BPF_JGE:
        return a >= k;
    case BPF_JGT:
        return a > k;
    default:
        return (a & k) != 0; /* BPF_JSET: the program has been checked */
    }
}

static unsigned steps; /* of the last way through it */

static uint32_t interpret(const struct setup *s, const struct seccomp_data *data)
{
    uint32_t a = 0;

    steps = 0;
    for (uint32_t at = 0; at < s->filter_length; at++) {
        steps++;
        uint16_t code = s->filter[at].code;
        uint32_t k = s->filter[at].k;
        switch (BPF_CLASS(code)) {
        case BPF_LD:
            a = load(data, k);
            break;
        case BPF_ALU:
            a &= k;
            break;
        case BPF_JMP:
            if (BPF_OP(code) == BPF_JA) {
                at += k;
                break;
            }
            at += jump_is_taken(code, a, k) ? s->filter[at].jt : s->filter[at].jf;
            break;
        case BPF_RET:
            return k;
        default:
            return INVALID;
        }
    }
    return INVALID;
}

static bool instruction_is_known(uint16_t code, uint32_t k)
{
    switch (code) {
    case BPF_LD | BPF_W | BPF_ABS:
        return k % 4 == 0 && k + 4 <= sizeof(struct seccomp_data);
    case BPF_ALU | BPF_AND | BPF_K:
    case BPF_JMP | BPF_JA:
    case BPF_JMP | BPF_JEQ | BPF_K:
    case BPF_JMP | BPF_JGE | BPF_K:
    case BPF_JMP | BPF_JGT | BPF_K:
    case BPF_JMP | BPF_JSET | BPF_K:
    case BPF_RET | BPF_K:
        return true;
    default:
        return false;
    }
}

/* As bpf_check_classic and seccomp_check_filter would. */
static bool program_is_sound(const struct setup *s)
{
    if (s->filter_length == 0 || s->filter_length > BPF_MAXINSNS)
        return false;
    for (uint32_t i = 0; i < s->filter_length; i++) {
        if (!instruction_is_known(s->filter[i].code, s->filter[i].k))
            return false;
        if (s->filter[i].code == (BPF_JMP | BPF_JA)) {
            if (s->filter[i].k >= s->filter_length - i - 1)
                return false;
            continue;
        }
        if (BPF_CLASS(s->filter[i].code) == BPF_JMP &&
            (i + 1 + s->filter[i].jt >= s->filter_length ||
             i + 1 + s->filter[i].jf >= s->filter_length))
            return false;
    }
    return BPF_CLASS(s->filter[s->filter_length - 1].code) == BPF_RET;
}

/* --- what must be answered --- */

/* Calls that reach past every namespace, or that only an attack needs: EPERM. */
static const int refused[] = {
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_process_madvise,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_lookup_dcookie,
    SYS_nfsservctl,
    SYS_vhangup,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_move_pages,
    SYS_mbind,
    SYS_set_mempolicy,
    SYS_set_mempolicy_home_node,
    SYS_migrate_pages,
#ifdef __x86_64__
    SYS_iopl,
    SYS_ioperm,
    SYS_uselib,
    SYS__sysctl,
    SYS_modify_ldt,
#endif
};

/* Calls whose arguments a filter cannot see or that go around it, and a whole way to mount: they do
 * not exist inside. Programs then fall back. */
static const int absent[] = {
    SYS_clone3,
    SYS_openat2,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_memfd_secret,
    457 /* statmount */,
    458 /* listmount */,
    459 /* lsm_get_self_attr */,
    460 /* lsm_set_self_attr */,
    461 /* lsm_list_modules */,
    467 /* open_tree_attr */,
#ifdef __x86_64__
    SYS_ustat,
    SYS_sysfs,
    SYS_create_module,
    SYS_get_kernel_syms,
    SYS_query_module,
    SYS_getpmsg,
    SYS_putpmsg,
    SYS_afs_syscall,
    SYS_tuxcall,
    SYS_security,
    SYS_epoll_ctl_old,
    SYS_epoll_wait_old,
    SYS_vserver,
#endif
};

/* The last number that anybody has looked at; between these two x86-64 has none. */
enum {
    LAST_KNOWN = 466,
    GAP_FIRST = 335,
    GAP_LAST = 423
};

struct call {
    uint32_t arg[6]; /* low halves: all that the kernel looks at in these */
    struct filter_options with;
    bool own_network;
    uint64_t high; /* the upper half of every argument */
};

static uint32_t on_clone(const struct call *c)
{
    /* CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET */
    return c->arg[0] & 0x7e020000 ? NO(EPERM) : ALLOW;
}

static uint32_t on_ioctl(const struct call *c)
{
    switch (c->arg[1]) {
    case 0x5412:     /* TIOCSTI */
    case 0x541c:     /* TIOCLINUX */
    case 0x5423:     /* TIOCSETD */
    case 0x40806685: /* FS_IOC_ENABLE_VERITY */
    case 0x800c6613: /* FS_IOC_SET_ENCRYPTION_POLICY */
        return NO(EPERM);
    default:
        return ALLOW;
    }
}

static uint32_t on_mode(uint32_t mode)
{
    return mode & 06000 ? NO(EPERM) : ALLOW;
}

static uint32_t on_open(uint32_t flags, uint32_t mode)
{
    /* O_TMPFILE's own bit counts alone: without O_DIRECTORY the kernel refuses it anyway. */
    bool creates = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY));

    return creates ? on_mode(mode) : ALLOW;
}

static bool is_device(uint32_t mode)
{
    uint32_t type = mode & 0170000;

    return type == 0020000 || type == 0060000;
}

/* The kernel makes no device without a capability, but for the character device 0:0. */
static uint32_t on_mknod(uint32_t mode, uint32_t device)
{
    if ((mode & 0170000) == 0020000 && device == 0)
        return NO(EPERM);
    return is_device(mode) ? ALLOW : on_mode(mode);
}

/* With the engine to make connections: streams and datagrams, of TCP, UDP, UDP-Lite and pings. */
static uint32_t on_internet_socket(const struct call *c)
{
    uint32_t type = c->arg[1] & 15;
    uint32_t p = c->arg[2];

    if (!c->with.guard || (type == 3 && c->with.notify))
        return ALLOW;
    if (type != 1 && type != 2)
        return NO(ESOCKTNOSUPPORT);
    bool plain = p == 0 || p == 1 || p == 6 || p == 17 || p == 58 || p == 136;
    return plain ? ALLOW : NO(EPROTONOSUPPORT);
}

static uint32_t on_socketpair(const struct call *c)
{
    uint32_t type = c->arg[1] & 15;
    bool datagrams = type == 2 || type == 3;

    return c->arg[0] != 1 || (c->with.no_unix_sockets && datagrams) ? NO(EAFNOSUPPORT) : ALLOW;
}

static uint32_t on_send(const struct call *c, uint32_t flags)
{
    return c->with.guard && flags & 0x20000000 /* MSG_FASTOPEN */ ? NO(EOPNOTSUPP) : ALLOW;
}

static uint32_t on_option(const struct call *c)
{
    uint32_t name = c->arg[2];
    bool tcp = c->arg[1] == 6 && (name == 30 || name == 31); /* FASTOPEN_CONNECT, ULP */
    bool ip = c->arg[1] == 0 && name == 4;                   /* IP_OPTIONS */
    bool ipv6 = c->arg[1] == 41 && (name == 57 || name == 5 || name == 6); /* routing headers */

    return c->with.guard && (tcp || ip || ipv6) ? NO(ENOPROTOOPT) : ALLOW;
}

static uint32_t on_socket(const struct call *c)
{
    switch (c->arg[0]) {
    case 1: /* AF_UNIX */
        return c->with.no_unix_sockets ? NO(EAFNOSUPPORT) : ALLOW;
    case 2:  /* AF_INET */
    case 10: /* AF_INET6 */
        return on_internet_socket(c);
    case 16: /* AF_NETLINK */
        return c->arg[2] == 0 ? ALLOW : NO(EPROTONOSUPPORT);
    default:
        return NO(EAFNOSUPPORT);
    }
}

static uint32_t on_personality(const struct call *c)
{
    uint32_t p = c->arg[0];

    return p == 0 || p == 8 || p == 0x20000 || p == 0x20008 || p == 0xffffffff ? ALLOW : NO(EPERM);
}

static uint32_t on_seccomp(const struct call *c)
{
    bool listens = c->arg[0] == 1 && (c->arg[1] & 8); /* SET_MODE_FILTER, FLAG_NEW_LISTENER */

    return listens ? NO(EPERM) : ALLOW;
}

static bool is_in(const int *list, size_t n, int number)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i] == number)
            return true;
    }
    return false;
}

static bool is_internet_address(uint32_t length)
{
    return length == 16 || length == 28 || length == 128;
}

/* With the host's network; where Landlock refuses TCP inside, of what may be TCP by its address. */
static bool connector_is_asked(const struct call *c)
{
    return c->with.guard && (!c->with.walled || is_internet_address(c->arg[2]));
}

/* INVALID: not one of the calls that are decided by their arguments. */
static uint32_t expect_by_arguments(int number, const struct call *c)
{
    switch (number) {
    case SYS_clone:
        return on_clone(c);
    case SYS_ioctl:
        return on_ioctl(c);
    case SYS_openat:
        return on_open(c->arg[2], c->arg[3]);
#ifdef __x86_64__
    case SYS_open:
        return on_open(c->arg[1], c->arg[2]);
    case SYS_creat:
    case SYS_chmod:
        return on_mode(c->arg[1]);
    case SYS_mknod:
        return on_mknod(c->arg[1], c->arg[2]);
#endif
    case SYS_fchmod:
        return on_mode(c->arg[1]);
    case SYS_fchmodat:
    case 452: /* fchmodat2 */
        return on_mode(c->arg[2]);
    case SYS_mknodat:
        return on_mknod(c->arg[2], c->arg[3]);
    case SYS_socket:
        return on_socket(c);
    case SYS_socketpair:
        return on_socketpair(c);
    case SYS_prctl:
        return c->arg[0] == 35 /* PR_SET_MM */ ? NO(EPERM) : ALLOW;
    case SYS_personality:
        return on_personality(c);
    case SYS_seccomp:
        return on_seccomp(c);
    case SYS_setrlimit: /* "done", without doing it: core dumps stay off */
        return c->arg[0] == 4 /* RLIMIT_CORE */ ? NO(0) : ALLOW;
    case SYS_prlimit64:
        return c->arg[1] == 4 && (c->arg[2] || c->high) ? NO(0) : ALLOW;
    case SYS_connect:
        return connector_is_asked(c) ? NO(EACCES) : ALLOW;
    case SYS_sendto:
        return on_send(c, c->arg[3]);
    case SYS_sendmsg:
        return on_send(c, c->arg[2]);
    case SYS_sendmmsg:
        return on_send(c, c->arg[3]);
    case SYS_setsockopt:
        return on_option(c);
    case SYS_fallocate: /* 2: FALLOC_FL_PUNCH_HOLE */
        return c->with.no_fallocate && !(c->arg[1] & 2) ? NO(EOPNOTSUPP) : ALLOW;
    default:
        return INVALID;
    }
}

static uint32_t expect_untold(int number, const struct call *c)
{
    uint32_t decided = expect_by_arguments(number, c);

    if (decided != INVALID)
        return decided;
    if (is_in(refused, LENGTH(refused), number))
        return NO(EPERM);
    if (is_in(absent, LENGTH(absent), number) || number > LAST_KNOWN)
        return NO(ENOSYS);
#ifdef __x86_64__
    if (number >= GAP_FIRST && number <= GAP_LAST)
        return NO(ENOSYS);
#endif
    return ALLOW;
}

/* What the listener is asked about: refusals, but for those that programs meet all the time and go
 * on without, and the one that would make a second listener. And what the kernel refuses by itself
 * where it can be recognised: devices, raw sockets. Nothing that may go. */
static bool is_told(int number, const struct call *c, uint32_t untold)
{
    if (number == SYS_io_uring_setup)
        return true;
    if (untold == ALLOW) {
#ifdef __x86_64__
        if (number == SYS_mknod)
            return is_device(c->arg[1]);
#endif
        if (number == SYS_mknodat)
            return is_device(c->arg[2]);
        bool internet = c->arg[0] == 2 || c->arg[0] == 10;
        return number == SYS_socket && internet && (c->arg[1] & 15) == 3 /* SOCK_RAW */;
    }
    if (number == SYS_socket && (c->arg[0] == 2 || c->arg[0] == 10))
        return false;
    if (number == SYS_socketpair && c->arg[0] == 1)
        return false;
    return number != SYS_seccomp && number != SYS_set_mempolicy && untold != NO(0) &&
           untold != NO(ENOSYS) && untold != NO(EOPNOTSUPP) && untold != NO(ENOPROTOOPT);
}

static uint32_t expect(int number, const struct call *c)
{
    uint32_t untold = expect_untold(number, c);

    if (number == SYS_connect && connector_is_asked(c)) /* never without a listener */
        return ASK | EACCES;
    if (!c->with.notify || !is_told(number, c, untold))
        return untold;
    return untold == ALLOW ? ASK : ASK | (untold & SECCOMP_RET_DATA);
}

/* --- argument patterns --- */

/* Values that mean something to one of the calls above: families and small numbers, personalities,
 * flags of clone, commands of ioctl, modes, flags of open. Each is put in every argument. */
enum {
    CREATE = O_CREAT | O_WRONLY,
    TEMPORARY = O_TMPFILE | O_RDWR
};

static const uint32_t values[] = {
    0,          1,          2,          3,           4,          5,        6,        8,
    10,         16,         30,         31,          41,         57,       58,       136,
    262,        17,         28,         128,         35,         38,       40,       0xffffffff,
    0x80000000, 0x10000,    0x20000,    0x20008,     0x40000,    0x400000, 0x800000, 0x02000000,
    0x04000000, 0x08000000, 0x10000000, 0x20000000,  0x40000000, 0x80,     0x5412,   0x541c,
    0x5423,     0x5401,     0x40806685, 0x800c6613,  0644,       02644,    04644,    06777,
    01777,      0020666,    0060666,    0100644,     0104755,    0010600,  0140000,  O_CREAT,
    CREATE,     O_TMPFILE,  TEMPORARY,  O_DIRECTORY,
};

static const uint64_t high_halves[] = {0, 1, 0xffffffff, 0x80000000};

static struct setup setup;

/* The listener's own answer is the one that the filter gives without it. */
static bool listener_agrees(const struct seccomp_data *data, const struct call *c)
{
    uint32_t untold = expect_untold(data->nr, c);
    int answer = denied_call_answer(data);

    return untold == ALLOW ? answer == 0 : untold == NO((uint32_t)answer);
}

static bool answers_as_expected(int number, const struct call *c, uint64_t high)
{
    struct seccomp_data data = {.nr = number, .arch = NATIVE};

    for (int i = 0; i < 6; i++)
        data.args[i] = high << 32 | c->arg[i];
    uint32_t got = interpret(&setup, &data);
    struct call with_high = *c;
    with_high.high = high;
    uint32_t wanted = expect(number, &with_high);
    bool asks = (got & SECCOMP_RET_ACTION_FULL) == ASK;
    bool connects = number == SYS_connect; /* connector.c answers that */
    bool good = got == wanted && (!asks || connects || listener_agrees(&data, &with_high));
    if (!good)
        printf("    number %d(%#x, %#x, %#x, %#x) high %#lx: answers %#x, must answer %#x\n",
               number, c->arg[0], c->arg[1], c->arg[2], c->arg[3], (unsigned long)high, got,
               wanted);
    return good;
}

/* Calls that are decided by their arguments see every pair of values, in neighbouring arguments and
 * in those next but one. */
static bool all_patterns_agree(int number, const struct filter_options *with, bool own_network)
{
    struct call c = {.with = *with, .own_network = own_network};
    size_t seconds = expect_by_arguments(number, &c) == INVALID ? 1 : LENGTH(values);

    for (size_t i = 0; i < LENGTH(values); i++) {
        for (size_t j = 0; j < seconds; j++) {
            for (int n = 0; n < 6; n++)
                c.arg[n] = n % 2 ? values[j] : values[i];
            for (size_t h = 0; h < LENGTH(high_halves); h++) {
                if (!answers_as_expected(number, &c, high_halves[h]))
                    return false;
            }
            c.arg[2] = values[j];
            if (!answers_as_expected(number, &c, 0))
                return false;
        }
    }
    return true;
}

static void build_with(const struct filter_options *options, bool own_network)
{
    memset(&setup, 0, sizeof(setup));
    setup.namespaces = own_network ? CLONE_NEWNET | CLONE_NEWNS : CLONE_NEWNS;
    filter_build(&setup, options);
}

static void build(void)
{
    const struct filter_options plain = {0};

    build_with(&plain, true);
}

/* Every combination of the options and the network. */
static struct filter_options build_variant(unsigned variant)
{
    struct filter_options options = {.no_unix_sockets = variant & 1,
                                     .no_fallocate = (variant & 2) != 0,
                                     .notify = (variant & 4) != 0,
                                     .guard = (variant & 16) != 0,
                                     .walled = (variant & 32) != 0};

    build_with(&options, (variant & 8) != 0);
    return options;
}

enum {
    VARIANTS = 64
};

/* --- the tests --- */

TEST(the_program_is_one_the_kernel_takes)
{
    for (unsigned i = 0; i < VARIANTS; i++) {
        (void)build_variant(i);
        CHECK(program_is_sound(&setup));
    }
    return 0;
}

TEST(every_number_with_every_argument_pattern_is_answered_as_written_down_here)
{
    for (unsigned i = 0; i < VARIANTS; i++) {
        struct filter_options options = build_variant(i);
        for (int number = 0; number <= NUMBERS; number++)
            CHECK(all_patterns_agree(number, &options, (i & 8) != 0));
    }
    return 0;
}

/* Let go on are only calls that a filter without a listener allows as well: whatever the listener
 * is asked about, with whatever arguments. */
TEST(the_listener_lets_nothing_go_on_that_is_refused)
{
    for (int number = 0; number <= NUMBERS; number++) {
        struct call c = {.with = {0}};
        for (size_t i = 0; i < LENGTH(values); i++) {
            for (int n = 0; n < 6; n++)
                c.arg[n] = values[i];
            struct seccomp_data data = {.nr = number, .arch = NATIVE};
            for (int n = 0; n < 6; n++)
                data.args[n] = values[i];
            if (denied_call_answer(&data) == 0)
                CHECK(expect_untold(number, &c) == ALLOW);
        }
    }
    return 0;
}

/* All three arguments of socket(2) at once. */
TEST(with_the_hosts_network_only_plain_protocols)
{
    for (unsigned variant = 16; variant < 32; variant++) {
        struct call c = {.with = build_variant(variant), .own_network = (variant & 8) != 0};
        for (uint32_t type = 0; type < 16; type++) {
            for (uint32_t protocol = 0; protocol < 300; protocol++) {
                c.arg[0] = protocol % 2 ? 2 : 10;
                c.arg[1] = type | 02000000; /* SOCK_CLOEXEC */
                c.arg[2] = protocol;
                CHECK(answers_as_expected(SYS_socket, &c, 0));
            }
        }
    }
    return 0;
}

TEST(numbers_far_beyond_the_known_do_not_exist)
{
    static const int far[] = {LAST_KNOWN + 1, 4096, 0xffff, 0x10000, 0x3fffffff};

    build();
    for (size_t i = 0; i < LENGTH(far); i++) {
        struct seccomp_data data = {.nr = far[i], .arch = NATIVE};
        CHECK(interpret(&setup, &data) == NO(ENOSYS));
    }
    return 0;
}

TEST(x32_calls_kill)
{
    build();
    for (int number = 0; number <= NUMBERS; number++) {
        struct seccomp_data data = {.nr = number | 0x40000000, .arch = NATIVE};
        CHECK(interpret(&setup, &data) == KILL);
    }
    struct seccomp_data last = {.nr = -1, .arch = NATIVE};
    CHECK(interpret(&setup, &last) == KILL);
    struct seccomp_data lowest = {.nr = -0x7fffffff - 1, .arch = NATIVE};
    CHECK(interpret(&setup, &lowest) == KILL);
    return 0;
}

TEST(calls_of_any_other_architecture_kill)
{
    static const uint32_t foreign[] = {AUDIT_ARCH_I386,     AUDIT_ARCH_ARM,   AUDIT_ARCH_PPC64,
                                       AUDIT_ARCH_RISCV64,  AUDIT_ARCH_S390X, 0,
                                       NATIVE ^ 0x80000000, NATIVE ^ 1,       0xffffffff};

    build();
    for (size_t i = 0; i < LENGTH(foreign); i++) {
        for (int number = 0; number <= NUMBERS; number++) {
            struct seccomp_data data = {.nr = number, .arch = foreign[i]};
            CHECK(interpret(&setup, &data) == KILL);
        }
    }
    return 0;
}

/* CVE-2019-10063: a bit above the 32 that the kernel looks at changed the answer. */
TEST(high_bits_of_an_argument_change_nothing)
{
    struct seccomp_data data = {.nr = SYS_ioctl, .arch = NATIVE};

    build();
    for (int bit = 32; bit < 64; bit++) {
        data.args[1] = 0x5412 | 1ULL << bit;
        CHECK(interpret(&setup, &data) == NO(EPERM));
    }
    return 0;
}

/* The kernel tries each number on the program when it is installed: with every start. */
TEST(the_way_to_an_answer_is_short)
{
    build();
    for (int number = 0; number < NUMBERS; number++) {
        struct seccomp_data data = {.nr = number, .arch = NATIVE};
        (void)interpret(&setup, &data);
        CHECK(steps <= 32);
    }
    return 0;
}

/* --- what --explain shows is what is enforced --- */

struct tally {
    unsigned of[3];
    bool clone3_named;
};

static void count(void *context, const char *name, enum filter_answer answer)
{
    struct tally *tally = context;

    tally->of[answer]++;
    if (strcmp(name, "clone3") == 0)
        tally->clone3_named = true;
}

TEST(the_listed_calls_are_as_many_as_the_program_knows)
{
    struct tally tally = {0};
    const struct call zero = {0};
    unsigned allowed = 0;
    unsigned not_permitted = 0;
    unsigned checked = 0;

    build();
    filter_visit(count, &tally);
    for (int number = 0; number <= NUMBERS; number++) {
        struct seccomp_data data = {.nr = number, .arch = NATIVE};
        uint32_t answer = interpret(&setup, &data);
        if (expect_by_arguments(number, &zero) != INVALID)
            checked++;
        else if (answer == ALLOW)
            allowed++;
        else if (answer == NO(EPERM))
            not_permitted++;
    }
    CHECK(tally.of[FILTER_ALLOWED] == allowed);
    CHECK(tally.of[FILTER_CHECKED] == checked);
    CHECK(tally.of[FILTER_REFUSED] == not_permitted);
    CHECK(!tally.clone3_named);
    return 0;
}
