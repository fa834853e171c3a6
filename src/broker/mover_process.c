/* SPDX-License-Identifier: Apache-2.0 */
/* In the child of a process with threads: system calls only. */
#include "broker/mover_process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/mount.h"
#include "sys/process.h"

enum {
    FIRST_FD = 3, /* the store's configuration */
    HIGH = 64,
};

/* Whatever rclone is told to mount with, it gets what it has been given already: fusermount is this
 * program, and hands over a descriptor. */
static int show_program(int file, const char *path)
{
    scoped_fd int point = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);

    return point < 0 ? -1 : mount_attach_at(file, AT_FDCWD, path);
}

static int show_mount(const struct mover_start *s, const int copies[2])
{
    if (s->passed_count == 0)
        return 0;
    if (mkdir(MOVER_PROGRAMS, 0755) < 0 || mkdir(MOVER_CONNECTIONS, 0755) < 0 ||
        mount("carrel", MOVER_CONNECTIONS, "fusectl", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return -1;
    return show_program(copies[0], MOVER_PROGRAMS "/fusermount") < 0
               ? -1
               : show_program(copies[1], MOVER_PROGRAMS "/fusermount3");
}

static int enter_namespace(const struct mover_start *s, const int copies[2])
{
    const struct tmpfs_options room = {.bytes = 1 << 20,
                                       .inodes = 16,
                                       .mode = 0755,
                                       .attrs = MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC};

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    if (mount_tmpfs_at("/tmp", &room) < 0 || mkdir(MOVER_TREE, 0755) < 0 ||
        mkdir(MOVER_STATE, 0755) < 0 || show_mount(s, copies) < 0)
        return -1;
    if (s->tree >= 0 && mount_attach_at(s->tree, AT_FDCWD, MOVER_TREE) < 0)
        return -1;
    return s->state >= 0 && mount_attach_at(s->state, AT_FDCWD, MOVER_STATE) < 0 ? -1 : 0;
}

static int drop_rights(const struct mover_start *s)
{
    for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
        if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0)
            return -1;
    }
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, s->uid, s->uid, s->uid) < 0)
        return -1;
    return (int)syscall(SYS_setresuid, s->uid, s->uid, s->uid);
}

/* Everything it has, in the order of the numbers from 0 on. */
static int place_fds(const struct mover_start *s, int *program)
{
    int fds[FIRST_FD + 1 + MOVER_PASSED] = {open("/dev/null", O_RDWR | O_CLOEXEC), s->report, 2,
                                            s->conf};
    int n = FIRST_FD + 1;

    for (size_t i = 0; i < s->passed_count && i < MOVER_PASSED; i++)
        fds[n++] = s->passed[i];
    *program = fcntl(s->program, F_DUPFD_CLOEXEC, HIGH);
    for (int i = 0; i < n; i++) {
        if (i != STDERR_FILENO && (fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, HIGH)) < 0)
            return -1;
    }
    for (int i = 0; i < n; i++) {
        if (i != STDERR_FILENO && dup2(fds[i], i) < 0)
            return -1;
    }
    return *program < 0 ? -1 : process_close_from((unsigned)n, CLOSE_AT_EXEC);
}

static _Noreturn void become(const struct mover_start *s, bool as_root, const int copies[2],
                             pid_t parent)
{
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    const struct rlimit none = {0, 0};
    sigset_t empty;
    int program;

    (void)sigemptyset(&empty);
    (void)pthread_sigmask(SIG_SETMASK, &empty, NULL);
    if (as_root && enter_namespace(s, copies) < 0)
        _exit(119);
    if (place_fds(s, &program) < 0)
        _exit(120);
    if (setrlimit(RLIMIT_CORE, &none) < 0 || (as_root && drop_rights(s) < 0) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || chdir("/") < 0)
        _exit(121);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(122);
    (void)syscall(SYS_execveat, program, "", s->argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

pid_t mover_fork(const struct mover_start *s)
{
    bool as_root = geteuid() == 0;
    bool shows = as_root && s->passed_count; /* copied here: there it is another's mount */
    scoped_fd int first = shows ? mount_clone(s->program, false) : -1;
    scoped_fd int second = shows ? mount_clone(s->program, false) : -1;
    pid_t parent = getpid();

    if (shows && (first < 0 || second < 0)) {
        errno = first < 0 ? -first : -second;
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(s, as_root, (const int[2]){first, second}, parent);
    return pid;
}
