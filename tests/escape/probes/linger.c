/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks by outliving the command: processes that ignore signals and leave the session, that fork
 * faster than anybody can list them, that are stopped, traced or stuck in vfork. The first argument
 * is a mark by which the host recognises them in its list of processes. Where nothing ends them
 * they end by themselves, after LIFE seconds.
 */
#include "probe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#define LIFE   60 /* longer than any test waits for them */
#define STORM  10
#define CHAINS 8

static void ignore_signals(void)
{
    static const int ignored[] = {SIGTERM, SIGHUP,  SIGINT,  SIGQUIT,
                                  SIGPIPE, SIGUSR1, SIGTTOU, SIGTTIN};

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    alarm(LIFE);
}

static void start(void (*life)(void))
{
    pid_t pid = fork();

    if (pid < 0)
        unclear("fork");
    if (pid == 0) {
        ignore_signals();
        life();
        for (;;)
            pause();
    }
}

static void close_pipes(void)
{
    for (int fd = 0; fd < 3; fd++)
        close(fd);
}

static void hold_pipes(void)
{
}

static void leave_session(void)
{
    setsid();
    if (fork() > 0)
        _exit(0);
    alarm(LIFE);
    close_pipes();
}

static void leave_group(void)
{
    setpgid(0, 0);
    close_pipes();
}

static void daemons(char **args)
{
    (void)args;
    ignore_signals();
    start(leave_session);
    start(leave_group);
    start(hold_pipes);
    start(close_pipes);
    const struct timespec moment = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&moment, NULL); /* long enough for all of them to be where they want to be */
}

static void daemons_and_stay(char **args)
{
    daemons(args);
    for (;;)
        pause();
}

/* In a file that the host can read and write. */
static struct {
    unsigned long births;
    volatile unsigned char stop; /* where nothing else ends the storm, the test does */
} * shared;

/* Each process of the chain lives only long enough to make the next: a list is out of date when it
 * is read. */
static void chain(void)
{
    struct timespec now;

    close_pipes();
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t end = now.tv_sec + STORM;
    signal(SIGCHLD, SIG_IGN);
    while (now.tv_sec < end && !shared->stop) {
        if (fork() > 0)
            _exit(0);
        __atomic_add_fetch(&shared->births, 1, __ATOMIC_RELAXED);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    _exit(0);
}

static void storm(char **args)
{
    int fd = open("/births", O_RDWR | O_CLOEXEC);

    (void)args;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        unclear("/births");
    ignore_signals();
    for (int i = 0; i < CHAINS; i++)
        start(chain);
    for (;;)
        pause();
}

static void stop(void)
{
    close_pipes();
    raise(SIGSTOP);
}

/* Traced by the process that made it, and stopped under it; where tracing is refused, only stopped.
 */
static void traced(void)
{
    close_pipes();
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
}

static void wait_in_vfork(void)
{
    close_pipes();
    if (syscall(SYS_vfork) == 0) {
        alarm(LIFE);
        for (;;)
            pause();
    }
}

static void stuck(char **args)
{
    (void)args;
    ignore_signals();
    start(stop);
    start(traced);
    start(wait_in_vfork);
    const struct timespec moment = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&moment, NULL);
}

static void stuck_and_stay(char **args)
{
    stuck(args);
    raise(SIGSTOP);
}

static const struct attack attacks[] = {
    {"daemons", daemons}, {"daemons-and-stay", daemons_and_stay}, {"storm", storm},
    {"stuck", stuck},     {"stuck-and-stay", stuck_and_stay},     {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
