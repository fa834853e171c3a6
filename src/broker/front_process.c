/* SPDX-License-Identifier: Apache-2.0 */
/* The front's process: another user, no groups, an empty environment, the socket, the listening
 * sockets and the door to carrel-tls, the state directory to work in, nothing else. It confines
 * itself further. When it dies, the next one is started; the commands do not notice. */
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
#include "broker/channel.h"
#include "broker/front_process.h"
#include "broker/movers.h"
#include "broker/plans.h"
#include "broker/record.h"
#include "sys/process.h"

enum {
    FIRST_FD = 3,
    SHORT_LIFE_MS = 1000,
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 5000,
};

struct birth {
    int socket;
    char *const *argv;
    pid_t parent;
};

/* Where the descriptors are wanted, out of the way of where they are. */
static int place_fds(const struct broker *b, int socket, int *program)
{
    int high[BROKER_MAX_LISTEN + 3];
    size_t n = 0;

    high[n++] = fcntl(socket, F_DUPFD_CLOEXEC, 64);
    for (size_t i = 0; i < b->listening_count; i++)
        high[n++] = fcntl(b->listening[i], F_DUPFD_CLOEXEC, 64);
    if (b->front_door >= 0)
        high[n++] = fcntl(b->front_door, F_DUPFD_CLOEXEC, 64);
    *program = fcntl(b->front_program, F_DUPFD_CLOEXEC, 64);
    if (*program < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (high[i] < 0 || dup2(high[i], FIRST_FD + (int)i) < 0)
            return -1;
    }
    return process_close_from(FIRST_FD + (unsigned)n, CLOSE_AT_EXEC);
}

/* In the child of a process with threads: system calls only, and those for the ids directly, as the
 * library's would look for threads. */
static _Noreturn void become_front(const struct broker *b, const struct birth *birth)
{
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    sigset_t none;
    int program = -1;

    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    /* Where it works: it could not find the way there if a directory above is closed to it. */
    if (fchdir(b->state) < 0)
        _exit(119);
    if (place_fds(b, birth->socket, &program) < 0)
        _exit(120);
    if (b->front_uid != geteuid() &&
        (syscall(SYS_setgroups, 0, NULL) < 0 ||
         syscall(SYS_setresgid, b->front_gid, b->front_gid, b->front_gid) < 0 ||
         syscall(SYS_setresuid, b->front_uid, b->front_uid, b->front_uid) < 0))
        _exit(121);
    /* After the ids, whose change clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != birth->parent)
        _exit(122);
    (void)syscall(SYS_execveat, program, "", birth->argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

static void again(struct timer *timer)
{
    struct broker *b = container_of(timer, struct broker, front_timer);
    struct err err;

    if (b->front_may_end || front_start(b, &err) == 0)
        return;
    log_err("front_failed", "trying again", &err);
    b->front_timer.ring = again;
    if (timer_set(b->events, &b->front_timer, now_ms() + LONGEST_PAUSE_MS) < 0)
        b->stopping = true; /* without a front the daemon is of no use */
}

static void plan_next(struct broker *b)
{
    bool short_life = now_ms() - b->front_since_ms < SHORT_LIFE_MS;

    if (!short_life)
        b->front_pause_ms = 0;
    else if (b->front_pause_ms == 0)
        b->front_pause_ms = FIRST_PAUSE_MS;
    else if ((b->front_pause_ms *= 2) > LONGEST_PAUSE_MS)
        b->front_pause_ms = LONGEST_PAUSE_MS;
    b->front_timer.ring = again;
    if (timer_set(b->events, &b->front_timer, now_ms() + b->front_pause_ms) < 0)
        b->stopping = true;
}

static void say_died(struct broker *b, int status)
{
    char how[64];

    snprintf(how, sizeof(how), WIFSIGNALED(status) ? "signal %d" : "status %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (b->front_may_end) {
        log_info("front_ended", "how", how, NULL);
        return;
    }
    log_warning("front_died", "how", how, "then", "the next one is started", NULL);
    (void)record_note(b,
                      &(struct audit_record){.actor = "broker",
                                             .workspace = "",
                                             .request = "",
                                             .operation = "front.end",
                                             .result = how,
                                             .details = ""},
                      NULL);
}

static bool reap(struct broker *b)
{
    int status = 0;

    if (b->front_pid == 0 || waitpid(b->front_pid, &status, WNOHANG) != b->front_pid)
        return false;
    int fd = b->front_watch.fd;
    events_forget(b->events, &b->front_watch);
    scope_close(&fd);
    b->front_pid = 0;
    channel_hear_out(b);
    channel_close(b);
    plans_front_died(b);
    movers_end_all(b);
    say_died(b, status);
    return true;
}

static void died(struct watch *watch, uint32_t what)
{
    struct broker *b = container_of(watch, struct broker, front_watch);

    (void)what;
    if (reap(b) && !b->front_may_end)
        plan_next(b);
}

void front_kill(struct broker *b)
{
    if (b->front_pid > 0)
        (void)kill(b->front_pid, SIGKILL);
}

/* The settings after its name. */
static char *const *make_argv(const struct broker *b, struct arena *arena)
{
    const char **settings = settings_encode(&b->settings, arena);
    size_t n = 0;

    while (settings && settings[n])
        n++;
    const char **argv = settings ? arena_alloc(arena, (n + 2) * sizeof(*argv)) : NULL;
    if (!argv)
        return NULL;
    argv[0] = "carrel-front";
    memcpy(argv + 1, settings, n * sizeof(*argv));
    return (char *const *)(uintptr_t)argv;
}

static int watch_front(struct broker *b, struct err *err)
{
    int pidfd = (int)syscall(SYS_pidfd_open, b->front_pid, 0);

    b->front_watch.ready = died;
    if (pidfd >= 0 && events_watch(b->events, &b->front_watch, pidfd, EPOLLIN) == 0)
        return 0;
    err_set(err, ERR_IO, errno, "watch the front");
    scope_close(&pidfd);
    (void)kill(b->front_pid, SIGKILL);
    (void)waitpid(b->front_pid, NULL, 0);
    b->front_pid = 0;
    return -1;
}

int front_start(struct broker *b, struct err *err)
{
    char pid[16];
    int pair[2];
    struct arena arena;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_IO, errno, "make a socket for the front");
    scoped_fd int ours = pair[0];
    scoped_fd int theirs = pair[1];
    arena_init(&arena, 1 << 16);
    struct birth birth = {.socket = theirs, .argv = make_argv(b, &arena), .parent = getpid()};
    if (!birth.argv) {
        arena_clear(&arena);
        return err_set(err, ERR_LIMIT, ENOMEM, "start the front");
    }
    b->front_pid = fork();
    if (b->front_pid == 0)
        become_front(b, &birth);
    arena_clear(&arena);
    if (b->front_pid < 0) {
        b->front_pid = 0;
        return err_set(err, ERR_IO, errno, "start the front");
    }
    b->generation++;
    b->front_since_ms = now_ms();
    if (watch_front(b, err) < 0)
        return -1;
    if (channel_open(b, &ours, err) < 0) {
        front_kill(b); /* and its death starts the next */
        return -1;
    }
    snprintf(pid, sizeof(pid), "%d", (int)b->front_pid);
    log_info("front_started", "pid", pid, NULL);
    return 0;
}

void front_ask_to_end(struct broker *b)
{
    b->front_may_end = true;
    if (b->front_pid > 0)
        (void)kill(b->front_pid, SIGTERM);
    timer_stop(b->events, &b->front_timer);
}
