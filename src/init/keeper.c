/* SPDX-License-Identifier: Apache-2.0 */
/* A keeper: child of pid 1, parent of one command at a time and of all that the command leaves
 * behind.
 *
 *   waiting --MESSAGE_COMMAND, or the permit of MESSAGE_AHEAD--> busy --(nobody left to wait
 * for)--> waiting
 *
 * All signals are blocked, so that of those inside nobody can do more to it than kill it; the
 * engine then takes care of what it kept. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/init.h"
#include "sys/path.h"
#include "sys/process.h"

enum {
    KEEPER_SOCKET = 3,
    KILL_AGAIN_MS = 1,
    PATIENT_PASSES = 20, /* after so many, somebody keeps hold of the killed */
    TELL_WITHIN_MS = 20, /* that a command runs */
    KEPT_ROOM = 65536,   /* for the next message */
};

struct keeper {
    int socket;
    pid_t command;   /* 0: it has ended, or there was none */
    bool busy;       /* something may be left of the last one */
    bool killing;    /* ... and is to end */
    unsigned passes; /* of killing, so far */
    bool untold;     /* it runs, and the engine has not heard of it */
    struct reply usage;
};

void keeper_take_over_signals(void)
{
    sigset_t all;

    /* Ignored ones would survive exec. The kernel's struct, all zero: default. By number, for a C
     * library keeps some to itself. */
    static const unsigned long by_default[4];
    for (int i = 1; i <= 64; i++)
        ignore(syscall(SYS_rt_sigaction, i, by_default, NULL,
                       8)); /* SIGKILL, SIGSTOP: cannot be set */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

int keeper_watch_children(void)
{
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Who traces a process is told of its end first, and until he takes note of it nobody else is. He
 * may be of another command, or stopped: he goes, too. */
static void kill_tracer(pid_t pid)
{
    static const char tracer[] = "\nTracerPid:\t";
    char path[64];
    char text[4096];

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (path_read_small(path, text, sizeof(text)) <= 0)
        return;
    const char *at = strstr(text, tracer);
    long by = at ? strtol(at + strlen(tracer), NULL, 10) : 0;
    if (by > 1)
        (void)kill((pid_t)by, SIGKILL);
}

/* Kills the children listed in `text`; a number cut off at its end waits for the next pass. */
static void kill_listed(char *text, bool tracers)
{
    char *end;

    for (char *at = text; *at; at = end + 1) {
        long pid = strtol(at, &end, 10);
        if (end == at || *end != ' ')
            return;
        (void)kill((pid_t)pid, SIGKILL);
        if (tracers)
            kill_tracer((pid_t)pid);
    }
}

void keeper_kill_children(pid_t group, bool tracers)
{
    static char text[1 << 16];
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    kill_listed(text, tracers);
    if (n <= 0 && group > 0)
        (void)kill(-group, SIGKILL); /* no list: at least the command's own group */
}

static void add_usage(struct reply *sum, const struct rusage *usage)
{
    uint64_t peak = (uint64_t)usage->ru_maxrss * 1024;

    sum->cpu_user_us +=
        (uint64_t)usage->ru_utime.tv_sec * 1000000 + (uint64_t)usage->ru_utime.tv_usec;
    sum->cpu_system_us +=
        (uint64_t)usage->ru_stime.tv_sec * 1000000 + (uint64_t)usage->ru_stime.tv_usec;
    sum->written_bytes += (uint64_t)usage->ru_oublock * 512;
    if (peak > sum->peak_rss_bytes)
        sum->peak_rss_bytes = peak;
}

static void answer(struct keeper *k, uint32_t kind, int status, const struct err *err)
{
    struct reply reply = k->usage;

    reply.kind = kind;
    reply.status = status;
    reply.empty = !k->busy;
    k->untold = false;
    if (err)
        reply.error = *err;
    talk_answer(k->socket, &reply, -1);
}

/* One answer for the common case: the command ends and nobody is left. */
static void reap(struct keeper *k)
{
    struct rusage usage;
    bool ended = false;
    int status = 0;
    int one;
    pid_t pid;

    while ((pid = wait4(-1, &one, WNOHANG | __WALL, &usage)) > 0) {
        add_usage(&k->usage, &usage);
        sudo_ended(pid);
        if (pid != k->command)
            continue;
        k->command = 0;
        ended = true;
        status = one;
    }
    if (!k->busy)
        return;
    if (pid < 0 && errno == ECHILD)
        k->busy = k->killing = false;
    if (ended)
        answer(k, REPLY_EXITED, status, NULL);
    else if (!k->busy)
        answer(k, REPLY_EMPTY, 0, NULL);
}

/* Nobody waits to hear that a command runs, but for its terminal: one that ends soon says both in
 * one word, and has the processor for itself until then. */
static void start(struct keeper *k, struct message *message)
{
    int status = STATUS_CARREL_FAILED;
    struct err err = {0};

    memset(&k->usage, 0, sizeof(k->usage));
    if (talk_start(k->socket, message, &k->command, &status, &err) < 0) {
        answer(k, REPLY_FAILED, status, &err);
        return;
    }
    k->busy = k->untold = true;
    if (message->head.fd_count == 0)
        answer(k, REPLY_STARTED, 0, NULL);
}

/* Of a command that was sent ahead: whether it is still to be started. */
static bool may_start(struct message *message)
{
    uint64_t permit;
    bool is_ours = message->head.fd_count > 0 &&
                   read(message->fds[message->head.fd_count - 1], &permit, sizeof(permit)) > 0;

    if (is_ours)
        (void)close(message->fds[--message->head.fd_count]);
    return is_ours;
}

/* The engine is done with it: nothing it kept may stay behind. */
static _Noreturn void leave(struct keeper *k)
{
    pid_t reaped = 0;

    for (unsigned passes = 0; reaped >= 0; passes++) {
        keeper_kill_children(k->command, passes >= PATIENT_PASSES);
        do {
            reaped = waitpid(-1, NULL, __WALL | WNOHANG);
        } while (reaped > 0);
        if (reaped == 0)
            (void)poll(NULL, 0, KILL_AGAIN_MS);
    }
    _exit(0);
}

static void serve_message(struct keeper *k)
{
    static struct message message;
    uint32_t number;

    if (!talk_receive(k->socket, &message))
        leave(k);
    switch (message.head.kind) {
    case MESSAGE_AHEAD:
        if (k->busy || !may_start(&message))
            leave(k);
        start(k, &message);
        break;
    case MESSAGE_COMMAND:
        if (k->busy)
            leave(k);
        start(k, &message);
        break;
    case MESSAGE_SIGNAL:
        memcpy(&number, message.bytes, sizeof(number)); /* the mapping is never shorter */
        if (k->command > 0)
            (void)kill(-k->command, (int)number);
        break;
    case MESSAGE_SUDO:
        if (k->busy && !k->killing && message.head.fd_count == 1) {
            sudo_serve(message.fds[0], k->socket);
            message.head.fd_count = 0;
        }
        break;
    case MESSAGE_KILL:
        k->killing = k->busy;
        k->passes = 0;
        break;
    default:
        leave(k);
    }
    talk_close_files(&message); /* after an answer: who reads the output is woken by it, and not
                                   waited for */
    if (message.room > KEPT_ROOM)
        talk_release(&message);
}

_Noreturn void keeper_serve(int socket)
{
    struct keeper k = {.socket = KEEPER_SOCKET};

    /* The engine's socket, the lease and the signals are pid 1's own. */
    if (dup3(socket, KEEPER_SOCKET, O_CLOEXEC) < 0 ||
        process_close_from(KEEPER_SOCKET + 1, CLOSE_NOW) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        _exit(1);
    int signals = keeper_watch_children(); /* all are blocked and by default: as pid 1 has them */
    if (signals < 0)
        _exit(1);
    answer(&k, REPLY_READY, 0, NULL);
    struct pollfd ready[2] = {{.fd = k.socket, .events = POLLIN},
                              {.fd = signals, .events = POLLIN}};
    for (;;) {
        int within = k.untold ? TELL_WITHIN_MS : -1;
        struct signalfd_siginfo info;
        if (poll(ready, 2, k.killing ? KILL_AGAIN_MS : within) < 0 && errno != EINTR)
            leave(&k);
        if (ready[1].revents)
            ignore(read(signals, &info, sizeof(info)) > 0); /* only a wake-up */
        if (k.killing)
            keeper_kill_children(k.command, k.passes++ >= PATIENT_PASSES);
        if (ready[1].revents || k.killing)
            reap(&k);
        if (k.untold) /* whatever has come instead of its end */
            answer(&k, REPLY_STARTED, 0, NULL);
        if (ready[0].revents)
            serve_message(&k);
    }
}
