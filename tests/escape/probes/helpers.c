/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks through /proc on the processes that Carrel itself keeps in the sandbox: their program
 * file (CVE-2019-5736), their memory, and our own id maps and killing order; and what a tracer
 * could do to them, or have a process do that the filter refuses to itself.
 */
#include "probe.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#define ROUNDS 2000

/* The arguments name the processes that are ours and may be looked into: this one. */
static int is_ours(const char *pid)
{
    return atoi(pid) == getpid();
}

static void try_open(const char *pid, const char *file, int flags)
{
    char path[300];

    snprintf(path, sizeof(path), "/proc/%s/%s", pid, file);
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        escaped("%s could be opened%s", path, flags == O_RDONLY ? "" : " for writing");
        close(fd);
    } else if (errno != EPERM && errno != EACCES && errno != ENOENT && errno != ETXTBSY) {
        escaped("%s came as far as %s", path, strerrorname_np(errno));
    }
}

static void for_each_foreign(void (*act)(const char *pid))
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    act("1"); /* also when it is not listed */
    if (proc == NULL)
        unclear("/proc");
    while ((entry = readdir(proc)) != NULL) {
        if (isdigit(entry->d_name[0]) && !is_ours(entry->d_name))
            act(entry->d_name);
    }
    closedir(proc);
}

static void open_exe(const char *pid)
{
    try_open(
        pid, "exe",
        O_RDONLY); /* a handle to keep until nobody runs the file any more, and it can be written */
    try_open(pid, "exe", O_WRONLY);
}

static void exe(char **args)
{
    (void)args;
    for (int i = 0; i < ROUNDS && escapes == 0; i++)
        for_each_foreign(open_exe);
}

static void open_inside(const char *pid)
{
    try_open(pid, "mem", O_RDONLY);
    try_open(pid, "mem", O_RDWR);
    try_open(pid, "environ", O_RDONLY);
    try_open(pid, "maps", O_RDONLY);
    try_open(pid, "fd", O_RDONLY | O_DIRECTORY);
    try_open(pid, "root", O_RDONLY | O_DIRECTORY);
    try_open(pid, "cwd", O_RDONLY | O_DIRECTORY);
}

static void refused_reach(const char *pid, const char *what, long result)
{
    char text[64];

    snprintf(text, sizeof(text), "%s of %s", what, pid);
    refused_either(text, result, EPERM, ESRCH);
}

static void trace_one(const char *name)
{
    char kept[16];
    pid_t pid = atoi(name);
    struct iovec here = {kept, sizeof(kept)};
    struct iovec there = {kept, sizeof(kept)};

    refused_reach(name, "PTRACE_SEIZE", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
    if (escapes) /* attached, it would stand still, and nothing would end */
        return;
    refused_reach(name, "PTRACE_ATTACH", ptrace(PTRACE_ATTACH, pid, NULL, NULL));
    refused_reach(name, "process_vm_readv", process_vm_readv(pid, &here, 1, &there, 1, 0));
    refused_reach(name, "process_vm_writev", process_vm_writev(pid, &here, 1, &there, 1, 0));
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    refused_reach(name, "pidfd_getfd", syscall(SYS_pidfd_getfd, fd, 3, 0));
    try_open(name, "mem", O_RDWR);
}

/* Also while it starts a command, whose child shares its memory until it is somebody else. */
static void trace(char **args)
{
    (void)args;
    for_each_foreign(trace_one);
}

static long write_to(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    long result = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static void memory(char **args)
{
    (void)args;
    for_each_foreign(open_inside);
    refused_either("write setgroups", write_to("/proc/self/setgroups", "allow"), EPERM, EACCES);
    refused_either("write uid_map", write_to("/proc/self/uid_map", "0 0 1"), EPERM, EACCES);
    refused_either("write gid_map", write_to("/proc/self/gid_map", "0 0 1"), EPERM, EACCES);
    refused_either("oom_score_adj -1000", write_to("/proc/self/oom_score_adj", "-1000"), EPERM,
                   EACCES);
}

#if defined(__x86_64__)
/* A child that asks for its id, and is made to ask for `number` instead, when the kernel has begun
 * with the call: what it gets for that. */
static long rewritten(long number, const long args[4])
{
    pid_t child = fork();
    struct user_regs_struct regs;
    int status;

    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        syscall(SYS_getpid);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        unclear("a child to trace");
    do { /* until it begins with the call */
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) < 0 || waitpid(child, &status, 0) != child ||
            !WIFSTOPPED(status) || ptrace(PTRACE_GETREGS, child, NULL, &regs) < 0)
            unclear("a call to rewrite");
    } while (regs.orig_rax != SYS_getpid);
    regs.orig_rax = (unsigned long long)number;
    regs.rdi = (unsigned long long)args[0];
    regs.rsi = (unsigned long long)args[1];
    regs.rdx = (unsigned long long)args[2];
    regs.r10 = (unsigned long long)args[3];
    if (ptrace(PTRACE_SETREGS, child, NULL, &regs) < 0 ||
        ptrace(PTRACE_SYSCALL, child, NULL, NULL) < 0 || waitpid(child, &status, 0) != child ||
        !WIFSTOPPED(status) || ptrace(PTRACE_GETREGS, child, NULL, &regs) < 0)
        unclear("the answer");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    errno = (int)-(long)regs.rax;
    return (long)regs.rax < 0 ? -1 : (long)regs.rax;
}

#else
static long rewritten(long number, const long args[4])
{
    (void)number;
    (void)args;
    unclear("this is written for x86-64");
}
#endif

static void rewrite(char **args)
{
    static char name[] = "rewritten";
    const long none[4] = {0};
    const long made[4] = {AT_FDCWD, (long)name, O_CREAT | O_WRONLY, 06755};

    (void)args;
    refused("unshare in another's place", rewritten(SYS_unshare, none), EPERM);
    refused("keyctl in another's place", rewritten(SYS_keyctl, none), EPERM);
    refused("kcmp in another's place", rewritten(SYS_kcmp, none), EPERM);
    refused("a set-id file in another's place", rewritten(SYS_openat, made), EPERM);
    failed("PTRACE_O_SUSPEND_SECCOMP",
           ptrace(PTRACE_SEIZE, getppid(), NULL, PTRACE_O_SUSPEND_SECCOMP));
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    failed("PTRACE_O_SUSPEND_SECCOMP of a child",
           ptrace(PTRACE_SEIZE, child, NULL, PTRACE_O_SUSPEND_SECCOMP));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static const struct attack attacks[] = {
    {"exe", exe}, {"memory", memory}, {"trace", trace}, {"rewrite", rewrite}, {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
