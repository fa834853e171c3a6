/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack by another system call table: a filter that compares numbers is passed by when the same
 * number means another call. i386 through int 0x80, x32 through bit 30.
 */
#include "probe.h"

#include <signal.h>
#include <sys/wait.h>

#define I386_GETPID     20
#define I386_MOUNT      21
#define I386_SOCKETCALL 102
#define X32_BIT         0x40000000

static void i386(long number)
{
#ifdef __x86_64__
    long result;

    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(0), "c"(0), "d"(0), "S"(0), "D"(0)
                     : "memory");
#else
    (void)number;
#endif
}

static void x32(long number)
{
    syscall(X32_BIT + number, 0, 0, 0, 0, 0);
}

static void must_kill(const char *what, void (*call)(long), long number)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        call(number);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        unclear("fork");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        printf("refused: %s: SIGSYS\n", what);
    else
        escaped("%s was answered (status %x)", what, (unsigned)status);
}

int main(void)
{
    must_kill("i386 getpid", i386, I386_GETPID);
    must_kill("i386 socketcall", i386, I386_SOCKETCALL);
    must_kill("i386 mount", i386, I386_MOUNT);
    must_kill("x32 getpid", x32, SYS_getpid);
    must_kill("x32 mount", x32, SYS_mount);
    must_kill("x32 execve", x32, 520);
    return verdict();
}
