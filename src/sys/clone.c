/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/clone.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>

#define INTO_CGROUP 0x200000000ULL

/* The kernel's struct clone_args, as of Linux 5.7; not in every libc's headers. */
struct arguments {
    uint64_t flags;
    uint64_t pidfd;
    uint64_t child_tid;
    uint64_t parent_tid;
    uint64_t exit_signal;
    uint64_t stack;
    uint64_t stack_size;
    uint64_t tls;
    uint64_t set_tid;
    uint64_t set_tid_size;
    uint64_t cgroup;
} __attribute__((aligned(8)));

/* In assembler because the child wakes up on an empty stack: it cannot return from anything. It
 * calls the function and exits with what that returns. */
static long call(struct arguments *arguments, int (*function)(void *), void *argument)
{
#if defined(__x86_64__)
    register long result __asm__("rax") = SYS_clone3;
    register void *first __asm__("rdi") = arguments;
    register long second __asm__("rsi") = sizeof(*arguments);
    register void *callee __asm__("r8") = (void *)function;
    register void *given __asm__("r9") = argument;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r9, %%rdi\n\t"
                     "call *%%r8\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n"
                     "1:"
                     : "+r"(result), "+r"(first), "+r"(second), "+r"(callee), "+r"(given)
                     : [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_clone3;
    register long result __asm__("x0") = (long)arguments;
    register long second __asm__("x1") = sizeof(*arguments);
    register void *callee __asm__("x9") = (void *)function;
    register void *given __asm__("x10") = argument;

    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, x10\n\t"
                     "blr x9\n\t"
                     "mov x8, %[exit]\n\t"
                     "svc #0\n"
                     "1:"
                     : "+r"(result), "+r"(number), "+r"(second), "+r"(callee), "+r"(given)
                     : [exit] "i"(SYS_exit)
                     : "memory", "cc");
    return result;
#else
    (void)arguments;
    (void)function;
    (void)argument;
    return -ENOSYS;
#endif
}

pid_t clone_into_cgroup(const struct clone_request *request, int *ret_pidfd)
{
    struct arguments arguments = {
        .flags = request->flags | INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)request->stack,
        .stack_size = request->stack_size,
        .cgroup = (uint64_t)request->cgroup,
    };

    return (pid_t)call(&arguments, request->function, request->argument);
}
