/* SPDX-License-Identifier: Apache-2.0 */
/* A command that began before its keeper had a group: all of its processes into one that is frozen.
 * Who is in it forks no more, so that each look finds fewer outside, and the last one none. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/session/group.h"
#include "sys/cgroup.h"

enum {
    MOST = 4096, /* processes of one command */
    LOOKS = 64,
};

struct tree {
    pid_t pids[MOST]; /* those that list children of theirs before these */
    size_t n;
};

static bool has_ended(int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};

    return poll(&ended, 1, 0) != 0;
}

/* False: there is no room for them. */
static bool add_children(struct tree *tree, pid_t pid, const char *thread)
{
    char path[96];
    char text[16384];
    char *end;

    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, thread);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    for (char *at = text; *at; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at)
            break;
        while (*end == ' ')
            end++;
        if (tree->n == MOST)
            return false;
        tree->pids[tree->n++] = (pid_t)child;
    }
    return true;
}

static bool add_below(struct tree *tree, pid_t pid)
{
    char path[32];
    const struct dirent *entry;
    bool room = true;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    while (dir && room && (entry = readdir(dir))) // NOLINT(concurrency-mt-unsafe): our own stream
        room = *entry->d_name == '.' || add_children(tree, pid, entry->d_name);
    if (dir)
        (void)closedir(dir);
    return room;
}

/* Whether it is still a process below one of ours. */
static bool is_below(pid_t pid, const struct tree *tree)
{
    char path[32];
    char text[512];
    int parent = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest, ") %*c %d", &parent) != 1) // NOLINT(cert-err34-c)
        return false;
    for (size_t i = 0; i < tree->n; i++) {
        if (tree->pids[i] == parent)
            return true;
    }
    return false;
}

/* 1: it is in it now; 0: it has ended. A number that was another's by then goes back. */
static int take_in(int dir, int home, pid_t pid, const struct tree *tree)
{
    char text[16];
    scoped_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (pidfd < 0 || (pid != tree->pids[0] && !is_below(pid, tree)) || has_ended(pidfd))
        return 0;
    snprintf(text, sizeof(text), "%d", (int)pid);
    int r = cgroup_write(dir, "cgroup.procs", text);
    if (r < 0)
        return r == -ESRCH ? 0 : r;
    if (!has_ended(pidfd))
        return 1;
    (void)cgroup_write(home, "cgroup.procs", text);
    return 0;
}

/* In "cgroup.procs", each on a line. */
static bool is_listed(const char *list, pid_t pid)
{
    char line[24];

    int n = snprintf(line, sizeof(line), "\n%d\n", (int)pid);
    return strncmp(list, line + 1, (size_t)n - 1) == 0 || strstr(list, line) != NULL;
}

/* How many came in that had been outside. */
static int look(int dir, int home, pid_t keeper, struct tree *tree)
{
    static char list[1UL << 17]; /* one thread minds all groups */
    int taken = 0;

    if (cgroup_read(dir, "cgroup.procs", list, sizeof(list)) < 0)
        return -EIO;
    tree->pids[0] = keeper;
    tree->n = 1;
    for (size_t i = 0; i < tree->n; i++) {
        if (!add_below(tree, tree->pids[i]))
            return -E2BIG;
    }
    for (size_t i = 0; i < tree->n; i++) {
        int r = is_listed(list, tree->pids[i]) ? 0 : take_in(dir, home, tree->pids[i], tree);
        if (r < 0)
            return r;
        taken += r;
    }
    return taken;
}

int group_take_tree(int dir, int home, pid_t keeper)
{
    struct tree *tree = malloc(sizeof(*tree));
    int r = tree ? 1 : -ENOMEM;

    for (int i = 0; r > 0 && i < LOOKS; i++)
        r = look(dir, home, keeper, tree);
    free(tree);
    return r > 0 ? -EBUSY : r;
}
