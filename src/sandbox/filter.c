/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles the table of syscalls.def to a BPF program: a tree over the numbers, whose leaves are an
 * answer for neighbours that share it, or the few instructions of a call decided by its arguments.
 * The kernel caches the numbers that are allowed whatever their arguments, so read, write and stat
 * never run the program at all.
 *
 * Not libseccomp: it cannot say "anything but these values" under a default of refusal, and
 * building a filter with it costs more than the rest of a sandbox. */
#include "sandbox/filter.h"

#include <asm/unistd.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call table has not been checked on this architecture"
#endif

#define X32_FIRST_NUMBER 0x40000000U
#define ANSWER_ALLOW     SECCOMP_RET_ALLOW
#define ANSWER(error)    (SECCOMP_RET_ERRNO | (error))
#define ANSWER_DONE      ANSWER(0)
#define ANSWER_ASK       SECCOMP_RET_USER_NOTIF
#define SETID_BITS       (S_ISUID | S_ISGID)

typedef void check_fn(struct setup *, const struct filter_options *, int, int);
static check_fn check_clone;
static check_fn check_ioctl;
static check_fn check_open;
static check_fn check_mode;
static check_fn check_mknod;
static check_fn check_socket;
static check_fn check_socketpair;
static check_fn check_prctl;
static check_fn check_personality;
static check_fn check_seccomp;
static check_fn check_rlimit;
static check_fn check_prlimit;
static check_fn check_connect;
static check_fn check_send;
static check_fn check_option;
static check_fn check_fallocate;

struct rule {
    const char *name;
    uint32_t number;
    enum filter_answer answer;
    check_fn *check;
    int argument[2];
    bool quiet; /* refused without telling */
};

static const struct rule rules[] = {
#define ALLOW_NUMBER(name, number) {#name, number, FILTER_ALLOWED, NULL, {0, 0}, false},
#define ALLOW(name)                {#name, __NR_##name, FILTER_ALLOWED, NULL, {0, 0}, false},
#define REFUSE(name)               {#name, __NR_##name, FILTER_REFUSED, NULL, {0, 0}, false},
#define REFUSE_QUIETLY(name)       {#name, __NR_##name, FILTER_REFUSED, NULL, {0, 0}, true},
#define CHECK_NUMBER(name, number, check, a, b)                                                    \
    {#name, number, FILTER_CHECKED, check, {a, b}, false},
#define CHECK(name, check, a, b) {#name, __NR_##name, FILTER_CHECKED, check, {a, b}, false},
#include "sandbox/syscalls.def"
};

enum {
    RULE_COUNT = sizeof(rules) / sizeof(rules[0])
};

static void emit(struct setup *s, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    assert(s->filter_length < SETUP_MAX_FILTER);
    s->filter[s->filter_length].code = code;
    s->filter[s->filter_length].k = k;
    s->filter[s->filter_length].jt = jt;
    s->filter[s->filter_length].jf = jf;
    s->filter_length++;
}

static void load(struct setup *s, size_t offset)
{
    emit(s, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* The low half only: the kernel looks at 32 bits of flags, modes and commands, so a high bit must
 * not change the answer (CVE-2019-10063). */
static void load_argument(struct setup *s, int n)
{
    load(s, offsetof(struct seccomp_data, args) + 8 * (size_t)n);
}

static void answer(struct setup *s, uint32_t value)
{
    emit(s, BPF_RET | BPF_K, value, 0, 0);
}

static void answer_if_equal(struct setup *s, uint32_t k, uint32_t value)
{
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1);
    answer(s, value);
}

static void answer_if_any_bit(struct setup *s, uint32_t bits, uint32_t value)
{
    emit(s, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    answer(s, value);
}

/* A refusal worth telling of. The listener (denial.c) answers with the same error; the kernel does
 * not look at it here, but pid 1 does where there can be no listener. */
static uint32_t refusal(const struct filter_options *o, uint32_t error)
{
    return o->notify ? ANSWER_ASK | error : ANSWER(error);
}

/* Nested namespaces are the kernel's largest attack surface. */
static void check_clone(struct setup *s, const struct filter_options *o, int flags, int unused)
{
    (void)unused;
    load_argument(s, flags);
    answer_if_any_bit(s,
                      CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                          CLONE_NEWPID | CLONE_NEWNET,
                      refusal(o, EPERM));
    answer(s, ANSWER_ALLOW);
}

/* Typing into a terminal, its console selection and line disciplines; file system features that
 * outlive the sandbox. */
static void check_ioctl(struct setup *s, const struct filter_options *o, int command, int unused)
{
    static const uint32_t refused[] = {TIOCSTI, 0x541c /* TIOCLINUX */, TIOCSETD,
                                       0x40806685 /* FS_IOC_ENABLE_VERITY */,
                                       0x800c6613 /* FS_IOC_SET_ENCRYPTION_POLICY */};

    (void)unused;
    load_argument(s, command);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        answer_if_equal(s, refused[i], refusal(o, EPERM));
    answer(s, ANSWER_ALLOW);
}

/* A set-id file made inside would be a set-id file of the workspace's owner on the host. */
static void check_mode(struct setup *s, const struct filter_options *o, int mode, int unused)
{
    (void)unused;
    load_argument(s, mode);
    answer_if_any_bit(s, SETID_BITS, refusal(o, EPERM));
    answer(s, ANSWER_ALLOW);
}

static void check_open(struct setup *s, const struct filter_options *o, int flags, int mode)
{
    load_argument(s, flags);
    emit(s, BPF_JMP | BPF_JSET | BPF_K, O_CREAT | (O_TMPFILE & ~O_DIRECTORY), 1, 0);
    answer(s, ANSWER_ALLOW);
    check_mode(s, o, mode, 0);
}

/* Devices are refused by the kernel, for want of a capability and after it has looked at the name:
 * they are asked about only to be told of. But for the character device 0:0, which anybody may make
 * and overlay file systems take for a deleted name. */
static void check_mknod(struct setup *s, const struct filter_options *o, int mode, int device)
{
    uint32_t by_kernel = o->notify ? ANSWER_ASK : ANSWER_ALLOW;

    load_argument(s, mode);
    emit(s, BPF_ALU | BPF_AND | BPF_K, S_IFMT, 0, 0);
    answer_if_equal(s, S_IFBLK, by_kernel);
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, S_IFCHR, 0, 4);
    load_argument(s, device);
    answer_if_equal(s, 0, refusal(o, EPERM));
    answer(s, by_kernel);
    check_mode(s, o, mode, 0);
}

/* Landlock knows the connections of TCP; MPTCP, SCTP and DCCP have ways of their own to make one.
 */
static void allow_plain_protocols(struct setup *s, int protocol)
{
    static const uint32_t plain[] = {
        0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_UDPLITE};

    emit(s, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 2, 0);
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 1, 0);
    answer(s, ANSWER(ESOCKTNOSUPPORT));
    load_argument(s, protocol);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        answer_if_equal(s, plain[i], ANSWER_ALLOW);
    answer(s, ANSWER(EPROTONOSUPPORT));
}

/* The kernel refuses raw sockets by itself, for want of a capability: they are asked about only to
 * be told of. */
static void allow_internet(struct setup *s, const struct filter_options *o, int type)
{
    if (o->notify || o->guard) {
        load_argument(s, type);
        emit(s, BPF_ALU | BPF_AND | BPF_K, 0xf /* without SOCK_CLOEXEC and the like */, 0, 0);
    }
    if (o->notify)
        answer_if_equal(s, SOCK_RAW, ANSWER_ASK);
    if (o->guard)
        allow_plain_protocols(s, type + 1);
    else
        answer(s, ANSWER_ALLOW);
}

static void check_socket(struct setup *s, const struct filter_options *o, int family, int protocol)
{
    load_argument(s, family);
    if (!o->no_unix_sockets)
        answer_if_equal(s, AF_UNIX, ANSWER_ALLOW);
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0);
    uint32_t jump = s->filter_length;
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 0);
    allow_internet(s, o, family + 1);
    s->filter[jump].jf = (uint8_t)(s->filter_length - jump - 1);
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0);
    answer(s, refusal(o, EAFNOSUPPORT));
    load_argument(s, protocol);
    answer_if_equal(s, 0 /* NETLINK_ROUTE */, ANSWER_ALLOW);
    answer(s, refusal(o, EPROTONOSUPPORT));
}

static void check_socketpair(struct setup *s, const struct filter_options *o, int family,
                             int unused)
{
    (void)unused;
    load_argument(s, family);
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0);
    answer(s, refusal(o, EAFNOSUPPORT));
    if (o->no_unix_sockets) { /* one for datagrams could send to any name, pair or not */
        load_argument(s, family + 1);
        emit(s, BPF_ALU | BPF_AND | BPF_K, 0xf, 0, 0);
        answer_if_equal(s, SOCK_DGRAM, ANSWER(EAFNOSUPPORT));
        answer_if_equal(s, SOCK_RAW, ANSWER(EAFNOSUPPORT)); /* the same for Unix sockets */
    }
    answer(s, ANSWER_ALLOW);
}

static void check_prctl(struct setup *s, const struct filter_options *o, int option, int unused)
{
    (void)unused;
    load_argument(s, option);
    answer_if_equal(s, PR_SET_MM, refusal(o, EPERM));
    answer(s, ANSWER_ALLOW);
}

static void check_personality(struct setup *s, const struct filter_options *o, int value,
                              int unused)
{
    /* Linux, 32-bit Linux, UNAME26 of either, and "tell me"; not the ones that weaken memory. */
    static const uint32_t allowed[] = {0, 0x8, 0x20000, 0x20008, 0xffffffff};

    (void)unused;
    load_argument(s, value);
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        answer_if_equal(s, allowed[i], ANSWER_ALLOW);
    answer(s, refusal(o, EPERM));
}

/* A program may confine itself further, but not watch its children's calls: a listener of its own
 * could answer in place of ours, so this refusal is never left to one. */
static void check_seccomp(struct setup *s, const struct filter_options *o, int operation, int flags)
{
    (void)o;
    load_argument(s, operation);
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, SECCOMP_SET_MODE_FILTER, 1, 0);
    answer(s, ANSWER_ALLOW);
    load_argument(s, flags);
    answer_if_any_bit(s, SECCOMP_FILTER_FLAG_NEW_LISTENER, ANSWER(EPERM));
    answer(s, ANSWER_ALLOW);
}

/* Core dumps stay off: a limit of 1 keeps the host's core handler out, a lower one would call it. A
 * program that sets the limit is told that it did. */
static void check_rlimit(struct setup *s, const struct filter_options *o, int resource, int unused)
{
    (void)o;
    (void)unused;
    load_argument(s, resource);
    answer_if_equal(s, RLIMIT_CORE, ANSWER_DONE);
    answer(s, ANSWER_ALLOW);
}

static void check_prlimit(struct setup *s, const struct filter_options *o, int resource, int value)
{
    (void)o;
    load_argument(s, resource);
    emit(s, BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, 1, 0);
    answer(s, ANSWER_ALLOW);
    for (size_t half = 0; half < 2; half++) { /* a new value comes with a pointer */
        load(s, offsetof(struct seccomp_data, args) + 8 * (size_t)value + 4 * half);
        emit(s, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
        answer(s, ANSWER_DONE);
    }
    answer(s, ANSWER_ALLOW);
}

/* Nothing that may go waits for the listener: where the network is the sandbox's own the kernel
 * refuses by itself what leads out of it (sys/refusals.c tells of that). With the host's the engine
 * makes the connections. Where Landlock refuses those of TCP inside, addresses as long as no
 * program gives IPv4 and IPv6 go straight on: Unix sockets'. */
static void check_connect(struct setup *s, const struct filter_options *o, int length, int unused)
{
    static const uint32_t lengths[] = {sizeof(struct sockaddr_in), sizeof(struct sockaddr_in6),
                                       sizeof(struct sockaddr_storage)};

    (void)unused;
    if ((o->guard && o->walled) || o->redirect) {
        /* A file server has no listener, and leads to ports inside: no boundary is in its way. */
        uint32_t unasked = o->guard ? EACCES : 0;
        load_argument(s, length);
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
            answer_if_equal(s, lengths[i], ANSWER_ASK | unasked);
    }
    answer(s, o->guard && !o->walled ? ANSWER_ASK | EACCES : ANSWER_ALLOW);
}

/* TCP fast open connects, too. */
static void check_send(struct setup *s, const struct filter_options *o, int flags, int unused)
{
    (void)unused;
    if (o->guard) {
        load_argument(s, flags);
        answer_if_any_bit(s, MSG_FASTOPEN, ANSWER(EOPNOTSUPP));
    }
    answer(s, ANSWER_ALLOW);
}

/* Options by which packets go elsewhere than where the socket is connected to, or by which it
 * becomes another kind of socket. */
static void check_option(struct setup *s, const struct filter_options *o, int level, int name)
{
    static const struct {
        uint32_t level;
        uint32_t name;
    } refused[] = {
        {IPPROTO_TCP, TCP_FASTOPEN_CONNECT},
        {IPPROTO_TCP, TCP_ULP},
        {IPPROTO_IP, IP_OPTIONS}, /* source routes */
        {IPPROTO_IPV6, IPV6_RTHDR},
        {IPPROTO_IPV6, IPV6_2292RTHDR},
        {IPPROTO_IPV6, IPV6_2292PKTOPTIONS},
    };

    for (size_t i = 0; o->guard && i < sizeof(refused) / sizeof(refused[0]); i++) {
        load_argument(s, level);
        emit(s, BPF_JMP | BPF_JEQ | BPF_K, refused[i].level, 0, 3);
        load_argument(s, name);
        answer_if_equal(s, refused[i].name, ANSWER(ENOPROTOOPT));
    }
    answer(s, ANSWER_ALLOW);
}

/* Ten gigabytes in a moment: too fast for a disk limit that looks now and then. Holes give back. */
static void check_fallocate(struct setup *s, const struct filter_options *o, int mode, int unused)
{
    (void)unused;
    if (o->no_fallocate) {
        load_argument(s, mode);
        emit(s, BPF_JMP | BPF_JSET | BPF_K, FALLOC_FL_PUNCH_HOLE, 1, 0);
        answer(s, ANSWER(EOPNOTSUPP));
    }
    answer(s, ANSWER_ALLOW);
}

/* Neighbouring numbers with one answer, up to the next span; or one number, whose arguments decide.
 */
struct span {
    uint32_t first;
    uint32_t answer;
    const struct rule *checked;
};

enum {
    NUMBERS = 512
}; /* above the last one in the table */

static struct span span_of(const struct filter_options *o, const struct rule *rule)
{
    if (rule->check)
        return (struct span){rule->number, 0, rule};
    if (rule->answer == FILTER_ALLOWED)
        return (struct span){rule->number, ANSWER_ALLOW, NULL};
    return (struct span){rule->number, rule->quiet ? ANSWER(EPERM) : refusal(o, EPERM), NULL};
}

/* The last one is for all numbers that are higher. */
static size_t find_spans(const struct filter_options *o, struct span spans[NUMBERS])
{
    struct span all[NUMBERS];
    size_t n = 1;

    for (uint32_t i = 0; i < NUMBERS; i++)
        all[i] = (struct span){i, ANSWER(ENOSYS), NULL};
    all[__NR_io_uring_setup].answer =
        refusal(o, ENOSYS); /* the one absence that is worth telling */
    for (size_t i = 0; i < RULE_COUNT; i++) {
        assert(rules[i].number < NUMBERS - 1);
        all[rules[i].number] = span_of(o, &rules[i]);
    }
    spans[0] = all[0];
    for (uint32_t i = 1; i < NUMBERS; i++) {
        if (all[i].checked || all[i - 1].checked || all[i].answer != all[i - 1].answer)
            spans[n++] = all[i];
    }
    return n;
}

/* Far less than eight bits: so both ways to jump are in every program, and tested with it. */
enum {
    NEAR = 100
};

/* Makes it jump over what was emitted behind it, also where its eight bits do not reach. */
static void jump_over(struct setup *s, uint32_t jump)
{
    uint32_t skipped = s->filter_length - jump - 1;

    if (skipped <= NEAR) {
        s->filter[jump].jt = (uint8_t)skipped;
        return;
    }
    emit(s, BPF_JMP | BPF_JA, 0, 0, 0); /* for its place */
    memmove(&s->filter[jump + 2], &s->filter[jump + 1], skipped * sizeof(s->filter[0]));
    s->filter[jump].jf = 1;
    s->filter[jump + 1] = s->filter[jump];
    s->filter[jump + 1].code = BPF_JMP | BPF_JA;
    s->filter[jump + 1].k = skipped;
    s->filter[jump + 1].jf = 0;
}

static void emit_leaf(struct setup *s, const struct filter_options *o, const struct span *span)
{
    const struct rule *rule = span->checked;

    if (rule)
        rule->check(s, o, rule->argument[0], rule->argument[1]);
    else
        answer(s, span->answer);
}

/* A tree: the kernel tries the program on every number when it is installed, and that costs by the
 * length of the way. */
static void emit_tree(struct setup *s, const struct filter_options *o, const struct span *spans,
                      size_t n)
{
    struct {
        const struct span *spans;
        size_t n;
        uint32_t jump; /* that leads there */
    } later[10];       /* twice as many each time: enough for NUMBERS */

    size_t depth = 0;

    for (;;) {
        for (size_t half; n > 1; n = half) {
            half = n / 2;
            assert(depth < sizeof(later) / sizeof(later[0]));
            later[depth].spans = spans + half;
            later[depth].n = n - half;
            later[depth++].jump = s->filter_length;
            emit(s, BPF_JMP | BPF_JGE | BPF_K, spans[half].first, 0, 0);
        }
        emit_leaf(s, o, spans);
        if (depth-- == 0)
            return;
        jump_over(s, later[depth].jump);
        spans = later[depth].spans;
        n = later[depth].n;
    }
}

void filter_build(struct setup *setup, const struct filter_options *options)
{
    struct span spans[NUMBERS];

    setup->filter_length = 0;
    load(setup, offsetof(struct seccomp_data, arch));
    emit(setup, BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
    answer(setup, SECCOMP_RET_KILL_PROCESS);
    load(setup, offsetof(struct seccomp_data, nr));
    emit(setup, BPF_JMP | BPF_JGE | BPF_K, X32_FIRST_NUMBER, 0, 1);
    answer(setup, SECCOMP_RET_KILL_PROCESS);
    emit_tree(setup, options, spans, find_spans(options, spans));
}

void filter_visit(void (*visit)(void *context, const char *name, enum filter_answer answer),
                  void *context)
{
    for (size_t i = 0; i < RULE_COUNT; i++)
        visit(context, rules[i].name, rules[i].answer);
}
