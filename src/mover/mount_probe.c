/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a mount of this rclone may be written to: 1.60 of Debian 12 loses what is written to a
 * file after its directory was renamed. Tried with a directory of our own in the place of a store,
 * once for each rclone: what was found is kept. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "mover/mover.h"

#define PLACE "/tmp/state/probe"

enum {
    PATIENCE_MS = 20000, /* for the mount to answer */
    ARRIVES_MS = 15000,  /* for what was written to be there */
    LOOK_MS = 50,
    NAMED = 256,
};

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

/* Another rclone has another name here. */
static bool name_rclone(const struct mover *m, char name[NAMED])
{
    struct stat st;

    if (stat(m->rclone, &st) < 0)
        return false;
    snprintf(name, NAMED, "rclone %lu %lu %ld %ld.%09ld\n", (unsigned long)st.st_dev,
             (unsigned long)st.st_ino, (long)st.st_size, (long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec);
    return true;
}

/* 1, 0, or -1: not known. */
static int known(const struct mover *m, const char *name)
{
    char text[NAMED + 8] = "";
    scoped_fd int fd = openat(m->state_fd, "probed", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n < 3 || strcmp(text + 3, name) != 0)
        return -1;
    return strncmp(text, "rw ", 3) == 0;
}

static void keep(const struct mover *m, const char *name, bool good)
{
    scoped_fd int fd =
        openat(m->state_fd, "probed", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd >= 0)
        ignore(dprintf(fd, "%s %s", good ? "rw" : "ro", name) > 0); /* else it is tried again */
}

/* In a process of its own: it may hang. */
static int write_there(int mount)
{
    if (mkdirat(mount, "z", 0755) < 0)
        return 1;
    scoped_fd int first = openat(mount, "z/h", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (first < 0 || fd_write_all(first, "q\n", 2) < 0)
        return 1;
    scope_close(&first);
    if (renameat(mount, "z", mount, "zz") < 0)
        return 1;
    scoped_fd int again = openat(mount, "zz/h", O_WRONLY | O_CLOEXEC);
    return again < 0 || ftruncate(again, 1) < 0;
}

static bool has_written(int mount)
{
    uint64_t due = now_ms() + PATIENCE_MS;
    int status = 1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(write_there(mount));
    while (pid > 0 && now_ms() < due && waitpid(pid, &status, WNOHANG) == 0)
        pause_ms(LOOK_MS);
    if (pid > 0 && now_ms() >= due) {
        (void)kill(pid, SIGKILL); /* it ends with the connection at the latest */
        return false;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* 1: it has arrived; 0: not where it should be. */
static int has_arrived(void)
{
    uint64_t due = now_ms() + ARRIVES_MS;
    struct stat st;

    while (now_ms() < due) {
        bool stale = stat(PLACE "/store/z/h", &st) == 0 && st.st_size == 1;
        bool there = stat(PLACE "/store/zz/h", &st) == 0 && st.st_size == 1;
        if (stale)
            return 0;
        if (there && access(PLACE "/store/z", F_OK) < 0)
            return 1;
        pause_ms(LOOK_MS);
    }
    return 0;
}

static int try(const struct mover *m, int device, int mount, struct err *err)
{
    static char *const environment[] = {(char *)(uintptr_t) "PATH=/tmp/bin",
                                        (char *)(uintptr_t) "HOME=/nonexistent",
                                        (char *)(uintptr_t) "RCLONE_CONFIG=", NULL};
    static const char *const args[] = {"mount",
                                       PLACE "/store",
                                       "/tmp/tree",
                                       "--allow-non-empty",
                                       "--vfs-cache-mode=full",
                                       "--vfs-write-back=100ms",
                                       "--cache-dir=" PLACE "/cache",
                                       NULL};
    int words = -1;
    pid_t pid = rclone_serve(m, args, environment, device, &words, err);

    if (pid < 0)
        return -1;
    int good = has_written(mount) ? has_arrived() : -1;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)close(words);
    return good < 0 ? err_set(err, ERR_KERNEL, 0, "rclone (%s) does not serve a mount on this host",
                              m->rclone)
                    : good;
}

int mount_probe(const struct mover *m, int device, int mount, struct err *err)
{
    static const char *const left[] = {"zz/h", "zz", "z/h", "z"};
    char name[NAMED];
    int good = name_rclone(m, name) ? known(m, name) : -1;

    if (good >= 0)
        return good;
    if ((mkdir(PLACE, 0700) < 0 && errno != EEXIST) ||
        (mkdir(PLACE "/store", 0700) < 0 && errno != EEXIST))
        return err_set(err, ERR_IO, errno, "make a directory to try rclone with");
    scoped_fd int store = open(PLACE "/store", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
        ignore(unlinkat(store, left[i], i % 2 ? AT_REMOVEDIR : 0) == 0); /* of a try before */
    good = try(m, device, mount, err);
    if (good >= 0)
        keep(m, name, good);
    return good;
}
