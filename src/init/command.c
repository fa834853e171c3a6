/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one command in the finished sandbox. The child shares pid 1's memory until it execs
 * (CLONE_VM|CLONE_VFORK): no page tables are copied, and what it found out needs no pipe. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "init/init.h"
#include "sandbox/wire.h"
#include "sys/process.h"

enum {
    FULL_LOOKS = 26, /* how often a process is asked for where none is to be had: half a second */
    FULL_PAUSE_MS = 20
};

static const char entering_cwd[] = "enter the working directory";

struct start {
    const struct command *command;
    const int *fds;
    const char *failed_at; /* set by the child when it could not exec */
    int failed_errno;
};

static int give_up(struct start *start, const char *at)
{
    start->failed_at = at;
    start->failed_errno = errno;
    return 1;
}

/* A directory that no path leads to from the root is one that somebody was handed. */
static bool is_below_root(const struct command *command)
{
    char cwd[4096];

    if (!(command->flags & COMMAND_CHECK_CWD))
        return true;
    if (syscall(SYS_getcwd, cwd, sizeof(cwd)) < 0)
        return false;
    errno = ENOENT;
    return cwd[0] == '/';
}

static int run_child(void *argument)
{
    struct start *start = argument;
    const struct command *command = start->command;
    sigset_t none;

    if (setsid() < 0)
        return give_up(start, "start a session");
    for (int i = 0; i < 3; i++) {
        if (dup2(start->fds[i], i) < 0)
            return give_up(start, "connect standard files");
    }
    if ((command->flags & COMMAND_TTY) && ioctl(0, TIOCSCTTY, 0) < 0)
        return give_up(start, "take the terminal");
    for (int fd = 3; weak("close-fds") && fd < 64; fd++)
        (void)fcntl(fd, F_SETFD, 0);
    if (!weak("close-fds") && process_close_from(3, CLOSE_AT_EXEC) < 0)
        return give_up(start, "close inherited files");
    if (chdir(command->cwd) < 0 || !is_below_root(command))
        return give_up(start, entering_cwd);
    if (rights_for_command((command->flags & COMMAND_ROOT) != 0) < 0)
        return give_up(start, "take the rights of its user");
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    execvpe(command->argv[0], (char *const *)(uintptr_t)command->argv,
            (char *const *)(uintptr_t)command->env);
    return give_up(start, NULL);
}

/* The words a shell would use, and its status where the command itself is at fault. */
static int explain_failure(const struct start *start, int *ret_status, struct err *err)
{
    const struct command *command = start->command;
    int e = start->failed_errno;

    if (start->failed_at == entering_cwd)
        return err_set(err, ERR_INVALID, e, "working directory '%s' inside", command->cwd);
    if (start->failed_at)
        return err_set(err, ERR_IO, e, "%s", start->failed_at);
    *ret_status = e == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
    if (e == ENOENT)
        return err_set(
            err, ERR_NOT_FOUND, 0,
            "'%s': command not found inside (PATH there is searched; a script also needs "
            "its interpreter)",
            command->argv[0]);
    return err_set(err, ERR_DENIED, e, "'%s' cannot be executed inside", command->argv[0]);
}

/* execvpe uses the PATH of this process: the command's own must decide. */
static void adopt_path(const struct command *command)
{
    static const char *path_only[3];
    extern char **environ;

    path_only[0] = NULL;
#ifdef CARREL_WEAK
    const char *weakened = getenv("CARREL_WEAKEN");
    path_only[1] = weakened ? weakened - strlen("CARREL_WEAKEN=") : NULL;
#endif
    for (uint32_t i = 0; i < command->envc; i++) {
        if (strncmp(command->env[i], "PATH=", 5) == 0)
            path_only[0] = command->env[i];
    }
    if (!path_only[0])
        path_only[0] = "PATH=/usr/bin:/bin";
    environ = (char **)(uintptr_t)path_only;
}

int command_start(const struct command *command, const int fds[3], int *ret_pid, int *ret_status,
                  struct err *err)
{
    static char stack[64 * 1024] __attribute__((aligned(16)));
    struct start start = {.command = command, .fds = fds};
    extern char **environ;
    char **before = environ;

    adopt_path(command);
    int pid = -1;
    /* Those who were just killed count against the limit until somebody has waited for them. */
    for (int i = 0; pid < 0 && i < FULL_LOOKS; i++) {
        if (i > 0)
            (void)poll(NULL, 0, FULL_PAUSE_MS);
        pid = clone(run_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &start);
        if (pid < 0 && errno != EAGAIN)
            break;
    }
    environ = before; /* the command's strings will go */
    if (pid < 0)
        return err_set(err, ERR_LIMIT, errno, "start a process");
    if (start.failed_errno) {
        ignore(waitpid(pid, NULL, 0) > 0); /* it has exited already */
        return explain_failure(&start, ret_status, err);
    }
    *ret_pid = pid;
    return 0;
}

int command_open_terminal(const struct command *command, int *ret_master, int *ret_slave,
                          struct err *err)
{
    struct winsize size = {.ws_row = (unsigned short)command->rows,
                           .ws_col = (unsigned short)command->columns};
    int locked = 0;
    scoped_fd int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (master < 0 || ioctl(master, TIOCSPTLCK, &locked) < 0)
        return err_set(err, ERR_IO, errno, "open a terminal");
    /* By descriptor, never by the name /dev/pts/N (CVE-2025-52565). */
    scoped_fd int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || ioctl(slave, TIOCSWINSZ, &size) < 0)
        return err_set(err, ERR_IO, errno, "open a terminal");
    *ret_master = take_fd(&master);
    *ret_slave = take_fd(&slave);
    return 0;
}
