/* SPDX-License-Identifier: Apache-2.0 */
/* Processes beside the front that the broker starts and starts again: another user, the group that
 * may read the record, an empty environment, a socket, what they are handed, the state directory
 * to work in, nothing else. They confine themselves further. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/helper.h"
#include "sys/process.h"

enum {
    FIRST_FD = 3,
    SHORT_LIFE_MS = 2000,
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 30000,
    HEAR_TURN = 512, /* more than its socket holds */
};

/* In the child of a process with threads: system calls only. */
static _Noreturn void become(const struct helper *h, int socket, const int *extra,
                             char *const *argv, pid_t parent)
{
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    int high[HELPER_FDS + 1];
    int program = fcntl(h->program, F_DUPFD_CLOEXEC, 64);
    sigset_t none;

    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    high[0] = fcntl(socket, F_DUPFD_CLOEXEC, 64);
    for (size_t i = 0; i < h->extra_count; i++)
        high[i + 1] = fcntl(extra[i], F_DUPFD_CLOEXEC, 64);
    for (size_t i = 0; i <= h->extra_count; i++) {
        if (high[i] < 0 || dup2(high[i], FIRST_FD + (int)i) < 0)
            _exit(120);
    }
    if (program < 0 || fchdir(h->broker->state) < 0 ||
        process_close_from(FIRST_FD + 1 + (unsigned)h->extra_count, CLOSE_AT_EXEC) < 0)
        _exit(120);
    if (h->uid != geteuid() && (syscall(SYS_setgroups, 0, NULL) < 0 ||
                                syscall(SYS_setresgid, h->gid, h->gid, h->gid) < 0 ||
                                syscall(SYS_setresuid, h->uid, h->uid, h->uid) < 0))
        _exit(121);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(122);
    (void)syscall(SYS_execveat, program, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

/* False: there is nothing more to hear now. */
static bool hear_one(struct helper *h)
{
    char bytes[HELPER_MESSAGE];
    ssize_t n = recv(h->talk.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n > 0)
        h->heard(h, bytes, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        events_forget(h->broker->events, &h->talk); /* its end is heard of by its pidfd */
    return n > 0 || (n < 0 && errno == EINTR);
}

/* One that never stops talking holds nobody up. */
static void hear(struct watch *watch, uint32_t what)
{
    struct helper *h = container_of(watch, struct helper, talk);
    int turn = HEAR_TURN;

    (void)what;
    while (turn-- > 0 && hear_one(h))
        ;
}

static void again(struct timer *timer)
{
    struct helper *h = container_of(timer, struct helper, timer);
    struct err err;

    if (h->may_end || helper_start(h, &err) == 0)
        return;
    log_err("helper_failed", h->name, &err);
    h->timer.ring = again;
    ignore(timer_set(h->broker->events, &h->timer, now_ms() + LONGEST_PAUSE_MS) == 0);
}

static void forget(struct helper *h)
{
    int fd = h->watch.fd;

    events_forget(h->broker->events, &h->watch);
    scope_close(&fd);
    events_forget(h->broker->events, &h->talk);
    scope_close(&h->socket);
    h->pid = 0;
}

static void died(struct watch *watch, uint32_t what)
{
    struct helper *h = container_of(watch, struct helper, watch);
    int status = 0;
    char how[64];

    (void)what;
    if (waitpid(h->pid, &status, WNOHANG) != h->pid)
        return;
    while (h->talk.fd >= 0 && hear_one(h))
        ; /* what it still had to say */
    forget(h);
    if (h->may_end)
        return;
    snprintf(how, sizeof(how), WIFSIGNALED(status) ? "signal %d" : "status %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (now_ms() - h->since_ms >= SHORT_LIFE_MS)
        h->pause_ms = 0;
    h->pause_ms = h->pause_ms ? h->pause_ms * 2 : FIRST_PAUSE_MS;
    if (h->pause_ms > LONGEST_PAUSE_MS)
        h->pause_ms = LONGEST_PAUSE_MS;
    log_warning("helper_died", "program", h->name, "how", how, "then", "it is started again", NULL);
    h->timer.ring = again;
    ignore(timer_set(h->broker->events, &h->timer, now_ms() + h->pause_ms) == 0);
}

static int watch_helper(struct helper *h, int *socket, struct err *err)
{
    int pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);

    h->watch = (struct watch){.ready = died, .fd = -1};
    h->talk = (struct watch){.ready = hear, .fd = -1};
    if (pidfd >= 0 && events_watch(h->broker->events, &h->watch, pidfd, EPOLLIN) == 0 &&
        events_watch(h->broker->events, &h->talk, *socket, EPOLLIN) == 0) {
        h->socket = take_fd(socket);
        return 0;
    }
    err_set(err, ERR_IO, errno, "watch %s", h->name);
    (void)kill(h->pid, SIGKILL);
    (void)waitpid(h->pid, NULL, 0);
    events_forget(h->broker->events, &h->watch);
    scope_close(&pidfd);
    h->pid = 0;
    return -1;
}

struct helper helper_make(struct broker *broker, const char *name)
{
    return (struct helper){.broker = broker,
                           .name = name,
                           .gid = broker->front_gid,
                           .socket = -1,
                           .watch = {.fd = -1},
                           .talk = {.fd = -1}};
}

int helper_start(struct helper *h, struct err *err)
{
    int extra[HELPER_FDS] = {-1, -1};
    int pair[2];
    struct arena arena;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_IO, errno, "make a socket for %s", h->name);
    scoped_fd int ours = pair[0];
    scoped_fd int theirs = pair[1];
    arena_init(&arena, 1 << 16);
    h->extra_count = 0;
    char *const *argv = h->prepare(h, &arena, extra, err);
    if (argv) {
        pid_t parent = getpid();
        h->pid = fork();
        if (h->pid == 0)
            become(h, theirs, extra, argv, parent);
        if (h->pid < 0) {
            h->pid = 0;
            err_set(err, ERR_IO, errno, "start %s", h->name);
        }
    }
    for (size_t i = 0; i < HELPER_FDS; i++)
        scope_close(&extra[i]);
    arena_clear(&arena);
    if (h->pid == 0)
        return -1;
    h->since_ms = now_ms();
    return watch_helper(h, &ours, err);
}

void helper_begin(struct helper *h)
{
    again(&h->timer);
}

void helper_hear(struct helper *h)
{
    if (h->talk.fd >= 0)
        hear(&h->talk, 0);
}

bool helper_send(const struct helper *h, const void *bytes, size_t n)
{
    return h->socket >= 0 && send(h->socket, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

void helper_stop(struct helper *h, int how, uint64_t patience_ms)
{
    uint64_t due = now_ms() + patience_ms;
    const struct timespec pause = {.tv_nsec = 2000000};

    h->may_end = true;
    timer_stop(h->broker->events, &h->timer);
    if (h->pid == 0)
        return;
    pid_t pid = h->pid;
    if (how)
        (void)kill(pid, how);
    forget(h); /* closes the socket: they end with it */
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (now_ms() > due)
            (void)kill(pid, SIGKILL);
        (void)nanosleep(&pause, NULL);
    }
}
