/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command and makes one system call of one of its processes fail.
 *
 *   fail_call LOG PROCESS CALL NUMBER ERRNO COMMAND…      (by number; PROCESS -1: none fails)
 *
 * ERRNO 0: the process is killed on entering the call, which does not happen.
 * Processes count from 0, in the order they are made. LOG gets a line "PROCESS CALL" for each call
 * when none fails, otherwise for those of that process up to the one that does, and "failed" after
 * it. A process that executes `probe` is let go: from there on it is the command's. strace would
 * count in every process at once: a failure of the first one hides those of the others, and reaches
 * the command and the error message, too. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROCESSES = 64,
    OPTIONS = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
              PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL
};

static struct {
    int process;
    int call;
    int number;
    int error;
} wanted;

static pid_t pids[PROCESSES];
static int process_count;
static int seen;      /* of the wanted calls */
static pid_t failing; /* is in the call that shall fail */
static int done;      /* it has: nothing more is looked at */
static FILE *log_file;

static void must(long result, const char *what)
{
    if (result < 0 && errno != ESRCH) { /* killed meanwhile: its end comes next */
        perror(what);
        exit(99);
    }
}

static int process_number(pid_t pid)
{
    int i = 0;

    while (i < process_count && pids[i] != pid)
        i++;
    if (i == PROCESSES) {
        fputs("too many processes\n", stderr);
        exit(99);
    }
    if (i == process_count)
        pids[process_count++] = pid;
    return i;
}

#if defined(__x86_64__)
static void replace_call(pid_t pid, long call)
{
    must(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.orig_rax), call), "replace");
}

static void replace_result(pid_t pid, long result)
{
    must(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.rax), result), "set the result");
}
#elif defined(__aarch64__)
static void replace_call(pid_t pid, long call)
{
    int number = (int)call;
    struct iovec part = {&number, sizeof(number)};

    must(ptrace(PTRACE_SETREGSET, pid, NT_ARM_SYSTEM_CALL, &part), "replace the call");
}

static void replace_result(pid_t pid, long result)
{
    struct user_regs_struct regs;
    struct iovec part = {&regs, sizeof(regs)};

    must(ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &part), "read the result");
    regs.regs[0] = (unsigned long long)result;
    must(ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &part), "set the result");
}
#else
#error "how are system calls replaced on this machine?"
#endif

/* A harmless call instead, which Carrel's filter allows, with the result of a failed one. */
static void at_call(pid_t pid)
{
    struct __ptrace_syscall_info info = {0};

    must(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info), "look at a call");
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) {
        if (pid == failing) {
            replace_result(pid, -wanted.error);
            fputs("failed\n", log_file);
            failing = 0;
            done = 1;
        }
        return;
    }
    int process = process_number(pid);
    fprintf(log_file, "%d %d\n", process, (int)info.entry.nr);
    if (process == wanted.process && (int)info.entry.nr == wanted.call && ++seen == wanted.number) {
        if (wanted.error == 0) {
            must(kill(pid, SIGKILL), "kill");
            return;
        }
        replace_call(pid, SYS_getpid);
        failing = pid;
    }
}

/* Every look at a call takes its time: only those who may make the wanted one are looked at. */
static void go_on(pid_t pid, int signal_number)
{
    int looked_at = !done && (wanted.process < 0 || process_number(pid) == wanted.process);

    must(ptrace(looked_at ? PTRACE_SYSCALL : PTRACE_CONT, pid, 0, signal_number), "go on");
}

static int is_command(pid_t pid)
{
    char path[32];
    char name[16] = "";

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file) {
        (void)!fgets(name, sizeof(name), file);
        fclose(file);
    }
    return strcmp(name, "probe\n") == 0;
}

static void at_stop(pid_t pid, int status)
{
    int event = status >> 16;
    int signal_number = WSTOPSIG(status);
    unsigned long made = 0;

    if (signal_number == (SIGTRAP | 0x80)) {
        at_call(pid);
        signal_number = 0;
    } else if (event == PTRACE_EVENT_EXEC && is_command(pid)) {
        must(ptrace(PTRACE_DETACH, pid, 0, 0), "let the command go");
        return;
    } else if (event) {
        if (event != PTRACE_EVENT_EXEC && event != PTRACE_EVENT_STOP) {
            must(ptrace(PTRACE_GETEVENTMSG, pid, 0, &made), "see who was made");
            process_number((pid_t)made);
        }
        signal_number = 0;
    } else if (signal_number == SIGSEGV) {
        signal_number = SIGKILL; /* ends a pid 1 by itself, but not when it is passed on */
        must(kill(pid, SIGKILL), "end what crashed");
    }
    go_on(pid, signal_number);
}

int main(int argc, char **argv)
{
    int status;
    int result = 99;
    pid_t pid;

    if (argc < 7)
        return 99;
    log_file = fopen(argv[1], "we");
    must(log_file ? 0 : -1, argv[1]);
    wanted.process = atoi(argv[2]);
    wanted.call = atoi(argv[3]);
    wanted.number = atoi(argv[4]);
    wanted.error = atoi(argv[5]);
    pid_t first = fork();
    must(first, "fork");
    if (first == 0) {
        raise(SIGSTOP);
        execv(argv[6], argv + 6);
        _exit(99);
    }
    must(waitpid(first, &status, WUNTRACED), "wait");
    must(ptrace(PTRACE_SEIZE, first, 0, OPTIONS), "trace");
    must(kill(first, SIGCONT), "go on");
    /* From its exec on: what comes before is ours. */
    while ((pid = waitpid(-1, &status, __WALL)) > 0) {
        if (WIFSTOPPED(status) && process_count == 0 && status >> 16 != PTRACE_EVENT_EXEC) {
            must(ptrace(PTRACE_CONT, pid, 0, 0), "go on");
            continue;
        }
        process_number(pid);
        if (WIFSTOPPED(status))
            at_stop(pid, status);
        else if (pid == first)
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    fclose(log_file);
    return result;
}
