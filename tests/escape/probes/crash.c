/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack by crashing: a core file holds memory, lands where the host says, or is fed to a program
 * that the host's root runs.
 */
#include "probe.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

int main(void)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    int status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &limit);
        if (getrlimit(RLIMIT_CORE, &limit) == 0) {
            limit.rlim_cur = limit.rlim_max;
            setrlimit(RLIMIT_CORE, &limit);
        }
        kill(getpid(), SIGSEGV);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
        unclear("crash");
    if (WCOREDUMP(status))
        escaped("the kernel dumped core");
    return verdict();
}
