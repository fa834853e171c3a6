/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack on a terminal: typing for the person at the other end (TIOCSTI), also with a bit above the
 * 32 that the kernel looks at (CVE-2019-10063), pasting (TIOCLINUX), changing the line discipline
 * (TIOCSETD).
 */
#include "probe.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define HIGH_BIT (1UL << 32)

static const struct {
    const char *name;
    unsigned long request;
} requests[] = {
    {"TIOCSTI", TIOCSTI},     {"TIOCSTI | 1<<32", TIOCSTI | HIGH_BIT},
    {"TIOCLINUX", TIOCLINUX}, {"TIOCLINUX | 1<<32", TIOCLINUX | HIGH_BIT},
    {"TIOCSETD", TIOCSETD},   {"TIOCSETD | 1<<32", TIOCSETD | HIGH_BIT},
};

static void try_all(const char *where, int fd)
{
    int argument = 0; /* N_TTY, or the byte to type; for TIOCLINUX an unknown order */
    char what[128];

    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        snprintf(what, sizeof(what), "%s: %s", where, requests[i].name);
        refused(what, syscall(SYS_ioctl, fd, requests[i].request, &argument), EPERM);
    }
}

static void own_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        unclear("make a terminal");
    int slave =
        open(ptsname(master), O_RDWR | O_CLOEXEC); /* with no terminal yet, it becomes ours */
    if (slave < 0)
        unclear("open the terminal");
    try_all("a terminal made inside", slave);
}

int main(void)
{
    static const char *const names[] = {"stdin", "stdout", "stderr"};
    pid_t pid;

    for (int fd = 0; fd <= 2; fd++)
        try_all(names[fd], fd);
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (tty >= 0)
        try_all("/dev/tty", tty);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        escapes = 0;
        setsid();
        own_terminal();
        fflush(stdout);
        _exit(escapes != 0);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
        unclear("the half with a terminal of its own");
    escapes += WEXITSTATUS(status);
    return verdict();
}
