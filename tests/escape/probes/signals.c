/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks with signals on a process of the host: plainly, or by having the kernel send them. The
 * host makes the victim once it sees us run, and sends its id; afterwards it looks whether the
 * victim still lives.
 */
#include "probe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#define LAST_PID 32768

static pid_t receive_victim(void)
{
    char line[32];

    puts("ready");
    if (fgets(line, sizeof(line), stdin) == NULL || atoi(line) <= 1)
        unclear("no victim was named");
    return atoi(line);
}

static void kill_one(pid_t victim)
{
    printf("kill %d: %s\n", victim, kill(victim, SIGKILL) == 0 ? "sent" : strerror(errno));
}

static void kill_only(char **args)
{
    (void)args;
    kill_one(receive_victim());
}

/* Only ever for a sandbox that is believed to hold: on a host this would end the session of whoever
 * runs it. */
static void kill_all(char **args)
{
    (void)args;
    kill_one(receive_victim());
    for (pid_t pid = 1; pid <= LAST_PID; pid++) {
        if (pid != getpid())
            kill(pid, SIGKILL);
    }
    kill(-1, SIGKILL);
}

/* A descriptor's owner gets a signal, from the kernel, when data arrives. */
static void own_to(pid_t pid)
{
    int pair[2];
    struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = pid};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        unclear("socketpair");
    int set = fcntl(pair[0], F_SETOWN, pid);
    int set_ex = fcntl(pair[0], F_SETOWN_EX, &owner);
    printf("own to %d: %d, %d\n", pid, set, set_ex);
    if (set < 0 && set_ex < 0)
        return;
    if (fcntl(pair[0], F_SETSIG, SIGUSR1) < 0 || fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK) < 0)
        unclear("O_ASYNC");
    if (write(pair[1], "x", 1) != 1)
        unclear("write");
}

static void timer_to(pid_t pid)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL | SIGEV_THREAD_ID,
                             .sigev_signo = SIGUSR1};
    struct itimerspec soon = {.it_value.tv_nsec = 1000};
    timer_t timer;

    event._sigev_un._tid = pid;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) {
        escaped("a timer was made for %d", pid);
        timer_settime(timer, 0, &soon, NULL);
    }
}

static void by_kernel(char **args)
{
    pid_t victim = receive_victim();

    (void)args;
    own_to(victim);
    own_to(1);
    timer_to(victim);
    timer_to(1);
}

static const struct attack attacks[] = {
    {"kill-one", kill_only},
    {"kill-all", kill_all},
    {"by-kernel", by_kernel},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
