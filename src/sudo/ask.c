/* SPDX-License-Identifier: Apache-2.0 */
/* One request to pid 1: the command and its three files, or a terminal of its own where all three
 * are one, whose master comes back. Signals go along as long as it runs. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "sandbox/wire.h"
#include "sudo/sudo.h"
#include "sys/message.h"

enum {
    PIECE = 65536
};

struct asking {
    int socket;
    int signals;
    int master;  /* of the command's terminal; or -1 */
    bool is_raw; /* ours, for that one */
    bool at_end; /* of our own input */
    struct termios before;
    char *input; /* what the terminal has not taken yet */
    size_t input_at;
    size_t input_end;
    const char *command;
};

static void restore(struct asking *a)
{
    if (a->is_raw)
        (void)tcsetattr(0, TCSADRAIN, &a->before);
    a->is_raw = false;
}

static _Noreturn void give_up(struct asking *a, const char *why)
{
    restore(a);
    fail("%s", why);
}

static int dial(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/" SUDO_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof(at)) < 0)
        fail("Carrel cannot be asked at %s: %m", at.sun_path);
    return fd;
}

static void show_size(int from, int to)
{
    struct winsize size;

    if (ioctl(from, TIOCGWINSZ, &size) == 0)
        (void)ioctl(to, TIOCSWINSZ, &size);
}

static uint32_t count(char **list)
{
    uint32_t n = 0;

    while (list[n])
        n++;
    return n;
}

static void send_command(const struct asking *a, const char *cwd, char **argv, char **env)
{
    bool tty = isatty(0) && isatty(1) && isatty(2);
    static const int files[3] = {0, 1, 2};
    struct winsize size = {0};
    struct command command = {.flags = COMMAND_ROOT | (tty ? COMMAND_TTY : 0U),
                              .cwd = cwd,
                              .argc = count(argv),
                              .envc = count(env),
                              .argv = (const char **)(uintptr_t)argv,
                              .env = (const char **)(uintptr_t)env};
    char *bytes = malloc(MESSAGE_MAX_BYTES);

    if (tty && ioctl(0, TIOCGWINSZ, &size) == 0) {
        command.rows = size.ws_row;
        command.columns = size.ws_col;
    }
    size_t n = bytes ? wire_encode_command(&command, bytes, MESSAGE_MAX_BYTES) : 0;
    if (n == 0)
        fail("command and environment are too large");
    int r = message_send(a->socket, MESSAGE_COMMAND, bytes, n, files, tty ? 0 : 3);
    free(bytes);
    errno = -r;
    if (r < 0)
        fail("Carrel does not take the request: %m");
}

static void take_terminal(struct asking *a, int master)
{
    struct termios raw;

    a->master = master;
    a->input = malloc(PIECE);
    if (!a->input)
        give_up(a, "out of memory");
    if (tcgetattr(0, &a->before) < 0)
        return;
    raw = a->before;
    cfmakeraw(&raw);
    a->is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        if (written <= 0 && errno != EINTR)
            return;
        bytes += written > 0 ? written : 0;
        n -= written > 0 ? (size_t)written : 0;
    }
}

/* False: there will be no more. */
static bool pass_output(struct asking *a)
{
    static char piece[PIECE];
    ssize_t n = read(a->master, piece, sizeof(piece));

    if (n > 0)
        write_all(1, piece, (size_t)n);
    return n > 0 || (n < 0 && errno == EINTR);
}

static void drop_terminal(struct asking *a)
{
    scope_close(&a->master);
}

/* What is there by now; somebody in the background may have the terminal still. */
static void drain(struct asking *a)
{
    struct pollfd ready = {.fd = a->master, .events = POLLIN};

    while (a->master >= 0 && poll(&ready, 1, 0) > 0) {
        if (!pass_output(a))
            break;
    }
}

static _Noreturn void end_as(struct asking *a, int status)
{
    sigset_t all;

    drain(a);
    restore(a);
    if (WIFEXITED(status))
        leave(WEXITSTATUS(status));
    sigfillset(&all);
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    (void)raise(WTERMSIG(status));
    leave(STATUS_SIGNAL_BASE + WTERMSIG(status));
}

static _Noreturn void end_failed(struct asking *a, struct reply *reply)
{
    char text[2 * sizeof(reply->error.msg)];

    restore(a);
    reply->error.msg[sizeof(reply->error.msg) - 1] = '\0';
    if (reply->status == STATUS_NOT_FOUND)
        fail("%s: command not found", a->command);
    fail("%s", err_text(&reply->error, text, sizeof(text)));
}

static void hear(struct asking *a)
{
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;
    struct reply reply;

    if (message_receive_head(a->socket, &head, fds) <= 0 || head.length != sizeof(reply) ||
        message_read_exactly(a->socket, &reply, sizeof(reply)) < 0)
        give_up(a, "Carrel has refused: the command that asks has been ended, or too many ask");
    if (reply.kind == REPLY_TERMINAL && head.fd_count == 1)
        take_terminal(a, fds[0]);
    else if (reply.kind == REPLY_EXITED)
        end_as(a, reply.status);
    else
        end_failed(a, &reply);
}

static void pass_signal(const struct asking *a)
{
    struct signalfd_siginfo info;
    uint32_t number;

    if (read(a->signals, &info, sizeof(info)) != sizeof(info))
        return;
    number = info.ssi_signo;
    if (number != SIGWINCH)
        (void)message_send(a->socket, MESSAGE_SIGNAL, &number, sizeof(number), NULL, 0);
    else if (a->master >= 0)
        show_size(0, a->master);
}

static void pass_input(struct asking *a, bool may_read, bool may_write)
{
    if (may_read) {
        ssize_t n = read(0, a->input, PIECE);
        a->at_end = n <= 0 && errno != EINTR;
        a->input_at = 0;
        a->input_end = n > 0 ? (size_t)n : 0;
    }
    if (may_write && a->input_at < a->input_end) {
        /* Little at a time: it could wait for more room, while nobody reads what it says. */
        ssize_t n = write(a->master, a->input + a->input_at, 1);
        a->input_at += n > 0 ? (size_t)n : 0;
    }
}

static int watch_signals(void)
{
    static const int passed[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                 SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
        sigaddset(&set, passed[i]);
    return pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 ? -1 : signalfd(-1, &set, SFD_CLOEXEC);
}

static void wait_for(struct asking *a)
{
    bool waits = a->input_at < a->input_end;
    bool reads = a->master >= 0 && !a->at_end && !waits;
    struct pollfd ready[] = {
        {.fd = a->socket, .events = POLLIN},
        {.fd = a->signals, .events = POLLIN},
        {.fd = a->master, .events = (short)(POLLIN | (waits ? POLLOUT : 0))},
        {.fd = reads ? 0 : -1, .events = POLLIN},
    };

    if (poll(ready, sizeof(ready) / sizeof(ready[0]), -1) < 0)
        return;
    if (ready[1].revents)
        pass_signal(a);
    if (ready[3].revents || (ready[2].revents & POLLOUT))
        pass_input(a, ready[3].revents != 0, (ready[2].revents & POLLOUT) != 0);
    if (ready[2].revents & (POLLIN | POLLHUP | POLLERR) && !pass_output(a))
        drop_terminal(a);
    if (ready[0].revents)
        hear(a);
}

_Noreturn void ask(const char *cwd, char **argv, char **env)
{
    static struct asking a = {.master = -1};

    a.command = argv[0];
    a.signals = watch_signals();
    if (a.signals < 0)
        fail("watch for signals: %m");
    a.socket = dial();
    send_command(&a, cwd, argv, env);
    for (;;)
        wait_for(&a);
}
