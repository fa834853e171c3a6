/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks on what all processes of a machine share: its name, its clock, its running at all, its
 * processors and memory. None could do harm if it got through: the clock is set to nothing, the
 * reboot has the wrong magic.
 */
#include "probe.h"

#include <linux/ioprio.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>

#define LOCKED_BYTES (6UL << 20)

static void shared_state(char **args)
{
    struct timex nothing = {.modes = ADJ_FREQUENCY};
    struct timespec bad = {.tv_nsec = -1};

    (void)args;
    refused("sethostname", sethostname("taken", 5), EPERM);
    refused("setdomainname", setdomainname("taken", 5), EPERM);
    refused("settimeofday", syscall(SYS_settimeofday, NULL, NULL), EPERM);
    refused("clock_settime", syscall(SYS_clock_settime, CLOCK_REALTIME, &bad), EPERM);
    refused("adjtimex", adjtimex(&nothing), EPERM);
    refused("clock_adjtime", clock_adjtime(CLOCK_REALTIME, &nothing), EPERM);
    refused("reboot", syscall(SYS_reboot, 0, 0, 0, NULL), EPERM);
}

static void priority(char **args)
{
    struct sched_param first = {.sched_priority = 1};

    (void)args;
    errno = 0;
    refused_either("nice -20", setpriority(PRIO_PROCESS, 0, -20), EPERM, EACCES);
    refused("SCHED_FIFO", sched_setscheduler(0, SCHED_FIFO, &first), EPERM);
    refused("SCHED_RR", sched_setscheduler(0, SCHED_RR, &first), EPERM);
    refused("real-time io",
            syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_RT, 0)),
            EPERM);
    refused_either("mlockall", mlockall(MCL_CURRENT), EPERM, ENOMEM);
    void *memory =
        mmap(NULL, LOCKED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    refused_either("mlock", mlock(memory, LOCKED_BYTES), EPERM, ENOMEM);
}

static const struct attack attacks[] = {
    {"state", shared_state},
    {"priority", priority},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
