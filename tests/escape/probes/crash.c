/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack by crashing: a core file holds memory, lands where the host says, or is fed to a program
 * that the host's root runs. Where the host has such a program, the kernel asks no limit but one:
 * at exactly 1 it is not started. So the limit is tried as high as it goes, and low, too.
 */
#include "probe.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void crash_at(rlim_t wanted)
{
    struct rlimit limit;
    int status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (getrlimit(RLIMIT_CORE, &limit) == 0) {
            limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
            setrlimit(RLIMIT_CORE, &limit);
        }
        kill(getpid(), SIGSEGV);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
        unclear("crash");
    if (WCOREDUMP(status))
        escaped("the kernel dumped core, with a limit of %llx", (unsigned long long)wanted);
}

int main(void)
{
    crash_at(RLIM_INFINITY);
    crash_at(1);
    crash_at(0);
    return verdict();
}
