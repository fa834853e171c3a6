/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the broker: a process that it has forked to work on files stops for ever before
 * the Nth call of it that changes something. N is in the file FAULTS/at; FAULTS/stopped then has
 * its id and what it was about to do, FAULTS/calls how many there were in all. With "moved" instead
 * of N it is the first call after a rename. FAULTS/fail has "CALL N ERRNO": the Nth fsync, say,
 * fails so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pid_t broker;
static pid_t counted;
static long calls;
static long fsyncs;
static long moves;

/* Looked up once: what looks them up takes a lock, and processes that share our memory die with it.
 */
static __typeof__(&fsync) real_fsync;
static __typeof__(&syncfs) real_syncfs;
static __typeof__(&mkdirat) real_mkdirat;
static __typeof__(&unlinkat) real_unlinkat;
static __typeof__(&linkat) real_linkat;
static __typeof__(&fchmodat) real_fchmodat;
static __typeof__(&syscall) real_syscall;

#define FIND(name) (real_##name = (__typeof__(real_##name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void)
{
    broker = getpid();
    FIND(fsync);
    FIND(syncfs);
    FIND(mkdirat);
    FIND(unlinkat);
    FIND(linkat);
    FIND(fchmodat);
    FIND(syscall);
}

static int open_in_dir(const char *name, int flags)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", getenv("FAULTS"), name);
    return open(path, flags | O_CLOEXEC, 0600);
}

static void step(const char *what)
{
    char text[32] = "";
    int fd;

    if (getpid() == broker)
        return;
    if (counted != getpid()) /* others that it has started share its memory for a while */
        calls = fsyncs = moves = 0;
    counted = getpid();
    calls++;
    fd = open_in_dir("calls", O_WRONLY | O_CREAT | O_TRUNC);
    if (fd >= 0) {
        dprintf(fd, "%ld", calls);
        close(fd);
    }
    fd = open_in_dir("at", O_RDONLY);
    if (fd < 0)
        return;
    long wanted = read(fd, text, sizeof(text) - 1) > 0 ? strtol(text, NULL, 10) : 0;
    close(fd);
    if (text[0] == 'm' ? moves != 1 : wanted != calls)
        return;
    moves++; /* once */
    fd = open_in_dir("stopped", O_WRONLY | O_CREAT | O_TRUNC);
    if (fd >= 0) {
        dprintf(fd, "%d %s\n", (int)getpid(), what);
        close(fd);
    }
    raise(SIGSTOP);
}

/* The errno that this fsync is to fail with; 0: none. */
static int fault_of(long number)
{
    char text[32] = "";
    long wanted = 0;
    int error = 0;
    int fd = getpid() == broker ? -1 : open_in_dir("fail", O_RDONLY);

    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof(text) - 1) > 0 && sscanf(text, "fsync %ld %d", &wanted, &error) != 2)
        error = 0;
    close(fd);
    return wanted == number ? error : 0;
}

int fsync(int fd)
{
    step("fsync");
    errno = fault_of(++fsyncs);
    if (errno)
        return -1;
    return real_fsync(fd);
}

int syncfs(int fd)
{
    step("syncfs");
    return real_syncfs(fd);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    step("mkdirat");
    return real_mkdirat(dir, name, mode);
}

int unlinkat(int dir, const char *name, int flags)
{
    step("unlinkat");
    return real_unlinkat(dir, name, flags);
}

int linkat(int from, const char *name, int to, const char *new, int flags)
{
    step("linkat");
    return real_linkat(from, name, to, new, flags);
}

int fchmodat(int dir, const char *name, mode_t mode, int flags)
{
    step("fchmodat");
    return real_fchmodat(dir, name, mode, flags);
}

long syscall(long number, ...)
{
    long a[6];
    va_list list;

    va_start(list, number);
    for (size_t i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_renameat2)
        step("renameat2");
    long r = real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_renameat2 && r == 0)
        moves++;
    return r;
}
