/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the broker, which writes the record and nothing else by fdatasync: while DIR (in
 * FAULTS) has a file "hold", no such call ends; while it has "fail", each fails. DIR/log gets a
 * line for each that has ended well: the bytes of the file then, and when (of the clock on the
 * wall, in microseconds) that was. While DIR has "still" no time goes by for it. While it has "cut"
 * whoever cuts a file is killed, right after that; DIR/synced gets the name of each file that was
 * put on disk by fsync. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *in_dir(const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", getenv("FAULTS"), name);
    return path;
}

int fdatasync(int fd)
{
    char path[PATH_MAX];
    struct timespec t;
    struct stat st;

    fstat(fd, &st);
    while (access(in_dir("hold", path), F_OK) == 0)
        usleep(1000);
    if (access(in_dir("fail", path), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    if (syscall(SYS_fdatasync, fd) < 0)
        return -1;
    clock_gettime(CLOCK_REALTIME, &t);
    int log = open(in_dir("log", path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dprintf(log, "%jd %jd\n", (intmax_t)st.st_size,
            (intmax_t)t.tv_sec * 1000000 + t.tv_nsec / 1000);
    close(log);
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    static struct timespec still;
    char path[PATH_MAX];
    int r = (int)syscall(SYS_clock_gettime, clock, ret);

    if (r < 0 || clock != CLOCK_MONOTONIC || access(in_dir("still", path), F_OK) < 0)
        return r;
    if (still.tv_sec == 0)
        still = *ret;
    *ret = still;
    return 0;
}

int ftruncate(int fd, off_t size)
{
    char path[PATH_MAX];
    int r = (int)syscall(SYS_ftruncate, fd, size);

    if (access(in_dir("cut", path), F_OK) == 0)
        kill(getpid(), SIGKILL);
    return r;
}

int fsync(int fd)
{
    char path[PATH_MAX];
    char name[PATH_MAX];
    int r = (int)syscall(SYS_fsync, fd);

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, name, sizeof(name));
    int log = open(in_dir("synced", path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dprintf(log, "%.*s\n", (int)n, name);
    close(log);
    return r;
}
