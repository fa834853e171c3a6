/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of root's that a command of the user's asks for, in a system of the workspace's own.
 *
 *   whoever is inside --connects--> pid 1 --REPLY_SUDO--> engine, which sees whose he is
 *                                                            --MESSAGE_SUDO--> his command's keeper
 *   the keeper --fork--> guard: hears what is asked, tells the engine, starts it as root,
 *                        passes signals on and the end back
 *
 * Pid 1 and keepers read nothing of what is asked. A guard does, which has what they have and no
 * more; and what it starts is what the engine could have asked for with COMMAND_ROOT, as a child of
 * its own: so it has the limits of who asks, and ends with him. How many there are at a time is
 * bounded, and how fast they come. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/init.h"
#include "sys/process.h"

enum {
    BACKLOG = 16,
    OUT_OF_THE_WAY = 64, /* of the numbers that stage_close_files gives */
    AT_ONCE = 32,        /* guards of one keeper */
    AT_FIRST = 200,      /* asked for in a row; then it is one */
    EACH_MS = 500,       /* ... in this time */
    PATIENCE_S = 10,     /* with who has connected and says nothing */
};

static pid_t guards[AT_ONCE];

/* Situation: root inside. Who may write to the socket may ask: everybody. */
int stage_sudo(struct sandbox *sandbox, struct err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/" SUDO_SOCKET};

    if (!(sandbox->setup->flags & SETUP_SUDO))
        return 0;
    scoped_fd int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (own < 0 || bind(own, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
        chmod(at.sun_path, 0666) < 0 || listen(own, BACKLOG) < 0)
        return err_set(err, ERR_IO, errno, "make the socket where sudo asks");
    sandbox->sudo = fcntl(own, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    return sandbox->sudo < 0 ? err_set(err, ERR_IO, errno, "keep the socket where sudo asks") : 0;
}

/* --- pid 1 --- */

static long long free_ms; /* when the last of those who came would be through, one in EACH_MS */

static long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int sudo_pause_ms(void)
{
    long long ahead = free_ms - now_ms() - (long long)(AT_FIRST - 1) * EACH_MS;

    return ahead <= 0 ? 0 : ahead > EACH_MS ? EACH_MS : (int)ahead;
}

int sudo_accept(int listener)
{
    long long now = now_ms();

    free_ms = (free_ms > now ? free_ms : now) + EACH_MS;
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

/* --- a guard --- */

static void answer(int asker, uint32_t kind, int status, const struct err *err)
{
    static struct reply reply;

    memset(&reply, 0, sizeof(reply));
    reply.kind = kind;
    reply.status = status;
    if (err)
        reply.error = *err;
    talk_answer(asker, &reply, -1);
}

/* As much of the command as there is room for. */
static void tell(int engine, const struct command *command)
{
    static struct reply reply = {.kind = REPLY_ROOT};
    size_t n = 0;

    for (uint32_t i = 0; i < command->argc && n < sizeof(reply.error.msg) - 1; i++) {
        int one = snprintf(reply.error.msg + n, sizeof(reply.error.msg) - n, "%s%s", i ? " " : "",
                           command->argv[i]);
        n += one > 0 ? (size_t)one : 0;
    }
    talk_answer(engine, &reply, -1);
}

/* A signal; false: nobody is there any more. */
static bool pass_signal(int asker, pid_t command)
{
    static struct message message;
    uint32_t number = 0;

    if (!talk_receive(asker, &message) || message.head.kind != MESSAGE_SIGNAL)
        return false;
    talk_close_files(&message);
    memcpy(&number, message.bytes, sizeof(number)); /* the mapping is never shorter */
    if (number > 0 && number < 65)
        (void)kill(-command, (int)number);
    return true;
}

/* Nobody waits for it: as if its terminal had gone. */
static _Noreturn void abandon(pid_t command)
{
    static const int last_words[] = {SIGHUP, SIGTERM, SIGCONT};

    for (size_t i = 0; i < sizeof(last_words) / sizeof(last_words[0]); i++)
        (void)kill(-command, last_words[i]);
    _exit(0);
}

static _Noreturn void watch(int asker, pid_t command)
{
    struct pollfd ready[2] = {{.fd = asker, .events = POLLIN},
                              {.fd = keeper_watch_children(), .events = POLLIN}};
    int status;

    while (waitpid(command, &status, WNOHANG) == 0) {
        struct signalfd_siginfo info;
        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            abandon(command);
        if (ready[1].revents)
            ignore(read(ready[1].fd, &info, sizeof(info)) > 0); /* only a wake-up */
        else if (ready[0].revents && !pass_signal(asker, command))
            abandon(command);
    }
    answer(asker, REPLY_EXITED, status, NULL);
    _exit(0);
}

static _Noreturn void guard(int asker, int engine)
{
    static struct message message;
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct command command;
    struct err err = {0};
    int status = STATUS_CARREL_FAILED;
    int pid;

    (void)setsockopt(asker, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(asker, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (!talk_receive(asker, &message) || message.head.kind != MESSAGE_COMMAND)
        _exit(1);
    if (talk_decode(&message, &command, &err) < 0) {
        answer(asker, REPLY_FAILED, status, &err);
        _exit(1);
    }
    tell(engine, &command);
    (void)close(engine);
    command.flags |= COMMAND_ROOT | COMMAND_CHECK_CWD;
    if (talk_start_decoded(asker, &message, &command, &pid, &status, &err) < 0) {
        answer(asker, REPLY_FAILED, status, &err);
        _exit(1);
    }
    talk_close_files(&message);
    talk_release(&message);
    watch(asker, pid);
}

/* --- its parent --- */

void sudo_serve(int asker, int engine)
{
    struct err err = {0};
    pid_t *place = NULL;

    for (size_t i = 0; i < AT_ONCE && !place; i++)
        place = guards[i] ? NULL : &guards[i];
    pid_t pid = place ? fork() : -1;
    if (pid == 0)
        guard(asker, engine);
    if (pid > 0) {
        *place = pid;
    } else {
        err_set(&err, ERR_LIMIT, place ? errno : 0,
                place ? "no process is left for it"
                      : "too many commands of root's run at once (at most %d)",
                AT_ONCE);
        answer(asker, REPLY_FAILED, STATUS_CARREL_FAILED, &err);
    }
    (void)close(asker);
}

void sudo_ended(int pid)
{
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (guards[i] == pid)
            guards[i] = 0;
    }
}
