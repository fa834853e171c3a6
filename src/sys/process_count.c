/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/process_count.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"

enum {
    FLAG_EXITING = 4 /* PF_EXITING of the kernel, in field 9 of /proc/PID/stat: as old as it is */
};

struct walk {
    pid_t *waiting; /* processes that are known and not yet looked at */
    size_t count;
    size_t most;
};

/* The space before field `number` of what /proc/PID/stat said; or NULL. Counted from behind the
 * name, field 2, which can hold anything. */
static char *find_field(char *text, int number)
{
    char *at = strrchr(text, ')');

    for (int field = 2; at && field < number; field++)
        at = strchr(at + 1, ' ');
    return at;
}

bool process_count_is_dying(pid_t pid)
{
    char path[64];
    char text[1024];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (path_read_small(path, text, sizeof(text)) <= 0)
        return false;
    const char *flags = find_field(text, 9);
    const char *pending = find_field(text, 31);
    return (flags && (strtoull(flags, NULL, 10) & FLAG_EXITING)) ||
           (pending && (strtoull(pending, NULL, 10) >> (SIGKILL - 1) & 1));
}

pid_t process_count_parent(pid_t pid)
{
    char path[64];
    char text[1024];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const char *at = path_read_small(path, text, sizeof(text)) > 0 ? find_field(text, 4) : NULL;
    return at ? (pid_t)strtol(at, NULL, 10) : 0;
}

/* Fields 14 to 17: user and system time, and the same of children that were waited for. */
static void add_times(pid_t pid, struct process_count *ret)
{
    char path[64];
    char text[1024];
    uint64_t ticks[4] = {0};
    long per_second = sysconf(_SC_CLK_TCK);

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (path_read_small(path, text, sizeof(text)) <= 0 || per_second <= 0)
        return;
    char *at = find_field(text, 14);
    for (int i = 0; at && i < 4; i++)
        ticks[i] = strtoull(at, &at, 10);
    ret->user_ms += (ticks[0] + ticks[2]) * 1000 / (uint64_t)per_second;
    ret->system_ms += (ticks[1] + ticks[3]) * 1000 / (uint64_t)per_second;
}

/* The number behind `name` in /proc/PID/`file`; 0: it is not there, or not for us. */
static uint64_t number_in(pid_t pid, const char *file, const char *name)
{
    char path[64];
    char text[4096];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    const char *at = path_read_small(path, text, sizeof(text)) > 0 ? strstr(text, name) : NULL;
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void add_rest(pid_t pid, struct process_count *ret)
{
    uint64_t peak = number_in(pid, "status", "\nVmHWM:") * 1024;

    ret->rss_bytes += number_in(pid, "status", "\nVmRSS:") * 1024;
    if (peak > ret->peak_rss_bytes)
        ret->peak_rss_bytes = peak;
    ret->written_bytes += number_in(pid, "io", "\nwrite_bytes:");
}

/* A thread's children are listed with the thread. */
static void add_children(struct walk *w, int tasks, const char *tid)
{
    char path[64];
    char text[32768];
    char *at = text;
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/children", tid);
    scoped_fd int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got; fd >= 0 && n < sizeof(text) - 1; n += (size_t)got) {
        got = read(fd, text + n, sizeof(text) - 1 - n);
        if (got <= 0)
            break;
    }
    text[n] = '\0';
    for (long pid; w->count < w->most && (pid = strtol(at, &at, 10)) > 0;)
        w->waiting[w->count++] = (pid_t)pid;
}

static size_t look_at(struct walk *w, pid_t pid)
{
    char path[64];
    size_t threads = 0;
    const struct dirent *entry;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;                    /* gone by now */
    while ((entry = readdir(dir))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        if (entry->d_name[0] == '.')
            continue;
        threads++;
        add_children(w, dirfd(dir), entry->d_name);
    }
    (void)closedir(dir);
    return threads;
}

int process_count_take(pid_t first, size_t most, struct process_count *ret)
{
    struct walk w = {.waiting = malloc((most + 1) * sizeof(pid_t)), .most = most + 1};

    if (!w.waiting)
        return -ENOMEM;
    *ret = (struct process_count){0};
    w.waiting[w.count++] = first;
    /* Each is looked at once, and none is forgotten: what is behind `next` has been counted. */
    for (size_t next = 0; next < w.count && ret->tasks <= most; next++) {
        ret->tasks += look_at(&w, w.waiting[next]);
        add_times(w.waiting[next], ret);
        add_rest(w.waiting[next], ret);
    }
    free(w.waiting);
    return 0;
}
