/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls every system call number from 0 to 1023 with junk, one process each, and prints for each
 * number whether it came through the filter: "reached N", "refused N ERROR" or "killed N SIGNAL".
 *
 * A refusal with ENOSYS looks like a call that the kernel does not have, and one with EPERM like a
 * call that the kernel refuses. So each attempt is made twice. First under a filter of our own on
 * top that answers RET_TRACE: with no tracer the kernel skips the call with ENOSYS, but an error or
 * a kill from the filter below outranks that and shows. Only what is not refused there is then
 * really called; if that says anything but ENOSYS, it was the kernel that spoke.
 */
#include "probe.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define NUMBERS 1024
#define WAIT_MS 1000

static const long junk[] = {0, -1, 0x5a5a5a5a};

enum end {
    END_ANSWERED,
    END_KILLED,
    END_BLOCKED, /* or ended without an answer, as exit does */
};

struct answer {
    int given;
    int error;
};

static volatile struct answer *answer;

static void shield(unsigned number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(99);
}

static void call(unsigned number, long value)
{
    long result = syscall((long)number, value, value, value, value, value, value);

    answer->error = result < 0 ? errno : 0;
    answer->given = 1;
    _exit(0);
}

/* Waits for a while, then ends it: a call that blocks has certainly been let through. */
static int wait_for(pid_t pid)
{
    const struct timespec tick = {.tv_nsec = 200 * 1000};
    int status = 0;

    for (int i = 0; i < WAIT_MS * 5; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        nanosleep(&tick, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return 0;
}

static enum end attempt(unsigned number, long value, int shielded, int *signal_number)
{
    answer->given = 0;
    answer->error = 0;
    pid_t pid = fork();
    if (pid < 0)
        unclear("fork");
    if (pid == 0) {
        if (shielded)
            shield(number);
        call(number, value);
    }
    int status = wait_for(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
        unclear("install a filter of our own");
    if (answer->given)
        return END_ANSWERED;
    *signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return *signal_number == SIGSYS ? END_KILLED : END_BLOCKED;
}

static void try_number(unsigned number)
{
    int error = ENOSYS;
    int signal_number = 0;

    for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
        enum end end = attempt(number, junk[i], 1, &signal_number);
        if (end == END_KILLED) {
            printf("killed %u %d\n", number, signal_number);
            return;
        }
        if (end == END_ANSWERED && answer->error != ENOSYS) {
            error = answer->error;
            continue;
        }
        end = attempt(number, junk[i], 0, &signal_number);
        if (end != END_ANSWERED || answer->error != ENOSYS) {
            printf("reached %u\n", number);
            return;
        }
    }
    printf("refused %u %s\n", number, strerrorname_np(error));
}

int main(void)
{
    answer = mmap(NULL, sizeof(*answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answer == MAP_FAILED)
        unclear("mmap");
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned number = 0; number < NUMBERS; number++)
        try_number(number);
    puts("swept");
    return 0;
}
