/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks with namespaces: making new ones (the way to most kernel bugs of recent years), entering
 * others.
 */
#include "probe.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static const struct {
    const char *name;
    const char *file;
    unsigned long flag;
} kinds[] = {
    {"user", "user", CLONE_NEWUSER},       {"mount", "mnt", CLONE_NEWNS},
    {"pid", "pid", CLONE_NEWPID},          {"net", "net", CLONE_NEWNET},
    {"ipc", "ipc", CLONE_NEWIPC},          {"uts", "uts", CLONE_NEWUTS},
    {"cgroup", "cgroup", CLONE_NEWCGROUP}, {"time", "time", CLONE_NEWTIME},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void try_unshare(char **args)
{
    char what[64];

    (void)args;
    for (size_t i = 0; i < KINDS; i++) {
        snprintf(what, sizeof(what), "unshare %s", kinds[i].name);
        refused(what, unshare((int)kinds[i].flag), EPERM);
        snprintf(what, sizeof(what), "unshare user+%s", kinds[i].name);
        refused(what, unshare((int)(kinds[i].flag | CLONE_NEWUSER)), EPERM);
    }
}

/* In the child of a clone that ought not to exist there is nothing to do. */
static long parent_only(long result)
{
    if (result == 0)
        _exit(0);
    int error = errno;
    if (result > 0)
        waitpid((pid_t)result, NULL, __WALL);
    errno = error;
    return result;
}

static void *say_one(void *answer)
{
    *(int *)answer = 1;
    return NULL;
}

static void threads_still_work(void)
{
    int answer = 0;
    pthread_t thread;

    if (pthread_create(&thread, NULL, say_one, &answer) != 0 || pthread_join(thread, NULL) != 0 ||
        !answer)
        unclear("plain threads do not work");
    puts("plain threads work");
}

static void try_clone(char **args)
{
    char what[64];

    (void)args;
    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i].flag != CLONE_NEWTIME) { /* to clone, that bit is part of the exit signal */
            snprintf(what, sizeof(what), "clone %s", kinds[i].name);
            refused(what, parent_only(syscall(SYS_clone, kinds[i].flag | SIGCHLD, 0, 0, 0, 0)),
                    EPERM);
        }
        struct clone_args wanted = {.flags = kinds[i].flag, .exit_signal = SIGCHLD};
        snprintf(what, sizeof(what), "clone3 %s", kinds[i].name);
        refused(what, parent_only(syscall(SYS_clone3, &wanted, sizeof(wanted))), ENOSYS);
    }
    struct clone_args plain = {.exit_signal = SIGCHLD};
    refused("clone3 plain", parent_only(syscall(SYS_clone3, &plain, sizeof(plain))), ENOSYS);
    threads_still_work();
}

static void enter(const char *what, int fd, unsigned long kind)
{
    if (fd < 0)
        return;
    refused(what, setns(fd, (int)kind), EPERM);
    close(fd);
}

static void try_setns(char **args)
{
    int all =
        CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    char path[64];

    (void)args;
    for (size_t i = 0; i < KINDS; i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i].file);
        enter(path, open(path, O_RDONLY | O_CLOEXEC), 0);
        snprintf(path, sizeof(path), "/proc/1/ns/%s", kinds[i].file);
        enter(path, open(path, O_RDONLY | O_CLOEXEC), 0);
        snprintf(path, sizeof(path), "pidfd, %s", kinds[i].file);
        enter(path, (int)syscall(SYS_pidfd_open, getpid(), 0), kinds[i].flag);
    }
    enter("pidfd, all", (int)syscall(SYS_pidfd_open, getpid(), 0), (unsigned long)all);
    refused("no descriptor at all", setns(-1, 0), EPERM);
}

static const struct attack attacks[] = {
    {"unshare", try_unshare},
    {"clone", try_clone},
    {"setns", try_setns},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
