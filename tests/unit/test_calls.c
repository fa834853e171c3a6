/* SPDX-License-Identifier: Apache-2.0 */
/* sys/calls: the program is interpreted up to the last answer, which comes when it is entered; that
 * is done for real, by a child. */
#include "unit.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sys/calls.h"

#define ALLOW SECCOMP_RET_ALLOW
#define NO(e) (SECCOMP_RET_ERRNO | (e))
#define KILL  SECCOMP_RET_KILL_PROCESS
#define BITS  0x5010U   /* that are looked at below */
#define REST  0xdeadU   /* no answer yet: the last one is EPERM */
#define WRONG 0xdeafU   /* an instruction that is not known, or past the end */
#define X32   (1 << 30) /* in numbers: of another ABI, though the architecture is the same */

#if defined(__x86_64__)
#define NATIVE  AUDIT_ARCH_X86_64
#define FOREIGN AUDIT_ARCH_AARCH64
#else
#define NATIVE  AUDIT_ARCH_AARCH64
#define FOREIGN AUDIT_ARCH_X86_64
#endif

enum {
    NUMBERS = 1100,
    ARGUMENTS = 6
};

static const uint64_t high = 0xffffffff00000000; /* of an argument, not looked at */

static uint32_t interpret(const struct calls *c, const struct seccomp_data *data)
{
    uint32_t a = 0;
    size_t at = 0;

    while (at < c->n && c->n <= CALLS_ROOM) {
        const struct sock_filter *now = &c->code[at++];
        switch (now->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (now->k % sizeof(a) || now->k > sizeof(*data) - sizeof(a))
                return WRONG;
            memcpy(&a, (const char *)data + now->k, sizeof(a));
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            at += a == now->k ? now->jt : now->jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            at += a & now->k ? now->jt : now->jf;
            break;
        case BPF_RET | BPF_K:
            return now->k;
        default:
            return WRONG;
        }
    }
    return at == c->n ? REST : WRONG;
}

/* One argument has the value, all others its opposite. */
static uint32_t ask(const struct calls *c, int number, unsigned argument, uint64_t value)
{
    struct seccomp_data data = {.arch = NATIVE, .nr = number};

    for (unsigned i = 0; i < ARGUMENTS; i++)
        data.args[i] = i == argument ? value : ~value;
    return interpret(c, &data);
}

static bool contains(const int *numbers, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

TEST(listed_calls_are_allowed_and_no_others)
{
    static const int listed[] = {SYS_write, SYS_read, SYS_exit_group};
    struct calls c;

    calls_begin(&c);
    calls_allow(&c, listed, LENGTH(listed));
    for (int number = -1; number < NUMBERS; number++) {
        CHECK(ask(&c, number, 0, 0) == (contains(listed, LENGTH(listed), number) ? ALLOW : REST));
        CHECK(number < 0 || ask(&c, number | X32, 0, 0) == REST);
    }
    return 0;
}

TEST(a_foreign_architecture_is_killed_whatever_it_calls)
{
    static const uint32_t foreign[] = {FOREIGN, AUDIT_ARCH_I386, AUDIT_ARCH_ARM, 0, UINT32_MAX};
    static const int listed[] = {SYS_read};
    struct calls c;

    calls_begin(&c);
    calls_allow(&c, listed, LENGTH(listed));
    calls_refuse(&c, SYS_clone3, ENOSYS);
    for (size_t i = 0; i < LENGTH(foreign); i++)
        for (int number = 0; number < NUMBERS; number++) {
            const struct seccomp_data data = {.arch = foreign[i], .nr = number};
            CHECK(interpret(&c, &data) == KILL);
        }
    return 0;
}

/* Each with its own idea of which arguments, and what is not its call goes on to the next. */
TEST(arguments_decide_of_a_call_whichever_they_are)
{
    static const uint32_t listed[] = {7, 0, UINT32_MAX};
    static const int next[] = {SYS_close};

    static const struct {
        const char *which;
        uint64_t value;
        uint32_t without, with, values;
    } rows[] = {
        {"none", 0, ALLOW, NO(EPERM), ALLOW},
        {"one bit", 0x1000, NO(EPERM), ALLOW, NO(EPERM)},
        {"another", 0x10, NO(EPERM), ALLOW, NO(EPERM)},
        {"all of them", BITS, NO(EPERM), ALLOW, NO(EPERM)},
        {"all others", UINT32_MAX & ~BITS, ALLOW, NO(EPERM), NO(EPERM)},
        {"every bit", UINT32_MAX, NO(EPERM), ALLOW, ALLOW},
        {"a value", 7, ALLOW, NO(EPERM), ALLOW},
        {"the one before", 6, ALLOW, NO(EPERM), NO(EPERM)},
        {"the one after", 8, ALLOW, NO(EPERM), NO(EPERM)},
    };
    struct calls c;

    for (unsigned argument = 0; argument < ARGUMENTS; argument++) {
        calls_begin(&c);
        calls_allow_without(&c, SYS_openat, argument, BITS);
        calls_allow_with(&c, SYS_clone, argument, BITS);
        calls_allow_values(&c, SYS_ioctl, argument, listed, LENGTH(listed));
        calls_refuse(&c, SYS_clone3, ENOSYS);
        calls_allow(&c, next, LENGTH(next));
        for (size_t i = 0; i < 2 * LENGTH(rows); i++) {
            const char *which = rows[i / 2].which;
            uint64_t value = rows[i / 2].value | (i % 2 ? high : 0);
            CHECK_FOR(which, ask(&c, SYS_openat, argument, value) == rows[i / 2].without);
            CHECK_FOR(which, ask(&c, SYS_clone, argument, value) == rows[i / 2].with);
            CHECK_FOR(which, ask(&c, SYS_ioctl, argument, value) == rows[i / 2].values);
            CHECK_FOR(which, ask(&c, SYS_clone3, argument, value) == NO(ENOSYS));
            CHECK_FOR(which, ask(&c, SYS_close, argument, value) == ALLOW);
            CHECK_FOR(which, ask(&c, SYS_getpid, argument, value) == REST);
        }
    }
    return 0;
}

TEST(the_first_that_names_a_call_decides)
{
    static const int listed[] = {SYS_mmap, SYS_clone3};
    struct calls c;

    calls_begin(&c);
    calls_refuse(&c, SYS_clone3, ENOSYS);
    calls_allow(&c, listed, LENGTH(listed));
    calls_allow_without(&c, SYS_mmap, 2, PROT_EXEC);
    CHECK(ask(&c, SYS_clone3, 0, 0) == NO(ENOSYS));
    CHECK(ask(&c, SYS_mmap, 2, PROT_EXEC) == ALLOW);
    return 0;
}

TEST(as_many_values_as_a_jump_can_pass_over)
{
    static uint32_t values[CALLS_VALUES];
    static const int next[] = {SYS_close};
    struct calls c;

    for (uint32_t i = 0; i < CALLS_VALUES; i++)
        values[i] = i;
    calls_begin(&c);
    calls_allow_values(&c, SYS_ioctl, 1, values, CALLS_VALUES);
    calls_allow(&c, next, LENGTH(next));
    CHECK(ask(&c, SYS_ioctl, 1, CALLS_VALUES - 1) == ALLOW);
    CHECK(ask(&c, SYS_ioctl, 1, CALLS_VALUES) == NO(EPERM));
    CHECK(ask(&c, SYS_close, 1, 0) == ALLOW);
    return 0;
}

/* --- entered by a child --- */

/* What the child has to say as its status, 0 for all is well; -1 when it was killed. */
static int child_says(int (*child)(struct calls *), struct calls *c)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) { /* not by _exit: a sanitizer would make other calls there */
        syscall(SYS_exit_group, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? 255 : child(c));
        __builtin_trap(); /* a list that refuses even that */
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : -1;
}

static int enter(struct calls *c)
{
    return -calls_enter(c);
}

static bool is_refused(long result, int error)
{
    return result == -1 && errno == error;
}

static int enter_and_try(struct calls *c)
{
    if (calls_enter(c) < 0)
        return 1;
    if (syscall(SYS_getppid) <= 0)
        return 2;
    if (!is_refused(syscall(SYS_getuid), EPERM)) /* named by none */
        return 3;
    if (!is_refused(syscall(SYS_clone3, NULL, 0), ENOSYS))
        return 4;
    if (!is_refused(syscall(SYS_mprotect, NULL, 0, PROT_READ | PROT_EXEC), EPERM))
        return 5;
    if (syscall(SYS_mprotect, NULL, 0, PROT_READ) != 0)
        return 6;
    return 0;
}

TEST(the_kernel_takes_it_and_refuses_what_is_not_named)
{
    static const int listed[] = {SYS_exit_group, SYS_getppid};
    struct calls c;

    calls_begin(&c);
    calls_allow(&c, listed, LENGTH(listed));
    calls_allow_without(&c, SYS_mprotect, 2, PROT_EXEC);
    calls_refuse(&c, SYS_clone3, ENOSYS);
    CHECK(child_says(enter_and_try, &c) == 0);
    return 0;
}

/* Two instructions for each. */
static void fill(struct calls *c, size_t n)
{
    static const int exits[] = {SYS_exit_group};

    while (c->n < n)
        calls_allow(c, exits, LENGTH(exits));
}

TEST(a_list_that_is_too_long_is_not_entered)
{
    static const uint32_t values[CALLS_VALUES + 1];
    struct calls c;

    calls_begin(&c);
    calls_allow_without(&c, SYS_mmap, 2, PROT_EXEC);
    fill(&c, CALLS_ROOM - 1); /* the last answer takes one */
    CHECK(c.n == CALLS_ROOM - 1);
    CHECK(child_says(enter, &c) == 0);

    calls_begin(&c);
    fill(&c, CALLS_ROOM);
    CHECK(c.n == CALLS_ROOM);
    CHECK(child_says(enter, &c) == E2BIG);
    fill(&c, 2 * CALLS_ROOM); /* nothing is written past the room */
    CHECK(child_says(enter, &c) == E2BIG);

    calls_begin(&c);
    fill(&c, CALLS_ROOM / 8);
    calls_allow_values(&c, SYS_ioctl, 1, values, LENGTH(values));
    CHECK(child_says(enter, &c) == E2BIG);
    return 0;
}
