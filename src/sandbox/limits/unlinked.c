/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/limits/unlinked.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/limits/tally.h"

/* Bounds on one search: beyond them the rest counts as hidden. */
enum {
    MAX_PROCESSES = 512,
    MAX_FILES = 8192,
    MAX_LINES = 32768, /* of maps */
    MAX_MS = 50        /* the run's deadline waits for us */
};

struct search {
    struct tally *tally;
    const dev_t *devices;
    size_t device_count;
    pid_t *pids; /* found so far */
    size_t pid_count;
    unsigned files_left;
    unsigned lines_left;
    uint64_t until_ms;
};

static bool is_watched(const struct search *s, dev_t device)
{
    for (size_t i = 0; i < s->device_count; i++) {
        if (s->devices[i] == device)
            return true;
    }
    return false;
}

static bool has_ended(int task)
{
    scoped_fd int fd = openat(task, "stat", O_RDONLY | O_CLOEXEC);
    char text[128]; /* "pid (name of at most 64 bytes) state ..." */
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n <= 0)
        return true;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && (name_end[2] == 'Z' || name_end[2] == 'X');
}

/* Who has ended hides nothing; one that may not be looked at might. */
static void could_not_look(struct search *s, int task)
{
    if (!has_ended(task)) /* it may be the kernel that cannot show it */
        tally_note_hidden(s->tally);
}

static DIR *open_directory(int at, const char *name)
{
    scoped_fd int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir)
        (void)take_fd(&fd);
    return dir;
}

static void add_child(struct search *s, long pid)
{
    if (s->pid_count == MAX_PROCESSES)
        tally_note_hidden(s->tally);
    else if (pid > 0)
        s->pids[s->pid_count++] = (pid_t)pid;
}

static void read_children(struct search *s, int task)
{
    scoped_fd int fd = openat(task, "children", O_RDONLY | O_CLOEXEC);
    char text[4096];
    long pid = 0;
    ssize_t n;

    if (fd < 0)
        could_not_look(s, task);
    while (fd >= 0 && (n = read(fd, text, sizeof(text))) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (isdigit((unsigned char)text[i])) {
                pid = pid * 10 + (text[i] - '0');
                continue;
            }
            add_child(s, pid);
            pid = 0;
        }
    }
}

/* A descriptor on its way through a socket belongs to nobody we could ask. */
static void look_at_socket(struct search *s, int task, const char *name)
{
    char path[64];
    char text[1024];

    snprintf(path, sizeof(path), "fdinfo/%.16s", name);
    scoped_fd int fd = openat(task, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    const char *found = strstr(text, "scm_fds:");
    if (found && strtoul(found + strlen("scm_fds:"), NULL, 10) > 0)
        tally_note_hidden(s->tally);
}

static void look_at_files(struct search *s, int task)
{
    DIR *dir = open_directory(task, "fd");
    const struct dirent *entry;
    struct stat st;

    if (!dir) {
        could_not_look(s, task);
        return;
    }
    while ((entry = readdir(dir))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (s->files_left == 0) {
            tally_note_hidden(s->tally);
            break;
        }
        s->files_left--;
        /* Through the link, without opening: nothing happens to the file. */
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_NO_AUTOMOUNT) < 0)
            continue;
        if (S_ISSOCK(st.st_mode))
            look_at_socket(s, task, entry->d_name);
        else if (S_ISREG(st.st_mode) && st.st_nlink == 0 && is_watched(s, st.st_dev))
            tally_add_unlinked(s->tally, &st);
    }
    (void)closedir(dir);
}

struct mapping {
    unsigned long start;
    unsigned long end;
    dev_t device;
    ino_t inode;
};

/* "start-end perms offset major:minor inode name" */
static bool parse_mapping(const char *line, struct mapping *ret)
{
    char *at;

    ret->start = strtoul(line, &at, 16);
    if (*at != '-')
        return false;
    ret->end = strtoul(at + 1, &at, 16);
    for (int field = 0; field < 2 && *at == ' '; field++)
        at += 1 + strcspn(at + 1, " ");
    unsigned long major = strtoul(at, &at, 16);
    if (*at != ':')
        return false;
    unsigned long minor = strtoul(at + 1, &at, 16);
    ret->device = makedev((unsigned)major, (unsigned)minor);
    ret->inode = strtoul(at, &at, 10);
    return *at == ' ';
}

/* One that is mapped, and deleted, and perhaps closed. The program itself can always be looked at,
 * other files that way only by root. */
static void look_at_mapped(struct search *s, int process, const char *line)
{
    struct mapping mapping;
    char path[64];
    struct stat st;

    if (!parse_mapping(line, &mapping) || !is_watched(s, mapping.device))
        return;
    snprintf(path, sizeof(path), "map_files/%lx-%lx", mapping.start, mapping.end);
    if ((fstatat(process, "exe", &st, 0) == 0 && st.st_ino == mapping.inode &&
         st.st_dev == mapping.device) ||
        fstatat(process, path, &st, 0) == 0) {
        if (st.st_nlink == 0)
            tally_add_unlinked(s->tally, &st);
    } else {
        tally_note_hidden(s->tally);
    }
}

/* Whether another line of maps may be read; what is not read counts as hidden. */
static bool may_go_on(struct search *s)
{
    bool late = s->lines_left % 256 == 0 && now_ms() > s->until_ms;

    if (late)
        s->lines_left = s->files_left = 0;
    if (s->lines_left == 0) {
        tally_note_hidden(s->tally);
        return false;
    }
    s->lines_left--;
    return true;
}

static void look_at_maps(struct search *s, int process)
{
    scoped_fd int fd = openat(process, "maps", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
    char line[512];
    char tail[sizeof(line)]; /* of a line that is longer: only the name is */

    if (!file) {
        could_not_look(s, process);
        return;
    }
    (void)take_fd(&fd);
    while (may_go_on(s) && fgets(line, sizeof(line), file)) {
        const char *last = line;
        while (!strchr(last, '\n') && fgets(tail, sizeof(tail), file))
            last = tail;
        if (strstr(last, "(deleted)\n"))
            look_at_mapped(s, process, line);
    }
    (void)fclose(file);
}

static int open_process(pid_t pid)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Memory and program, which all threads share: seen through one that has not ended, for the first
 * may have, and then shows nothing. A program can be all that keeps a deleted file. */
static void look_at_memory(struct search *s, pid_t living)
{
    struct stat st;
    scoped_fd int process = open_process(living);

    if (process < 0)
        return;
    if (fstatat(process, "exe", &st, 0) == 0 && st.st_nlink == 0 && is_watched(s, st.st_dev))
        tally_add_unlinked(s->tally, &st);
    look_at_maps(s, process);
}

/* Each thread may have files of its own. */
static void look_at_process(struct search *s, pid_t pid, bool is_ours)
{
    const struct dirent *entry;
    bool remembered = is_ours;
    scoped_fd int process = open_process(pid);
    DIR *tasks = process < 0 ? NULL : open_directory(process, "task");
    if (!tasks) {
        could_not_look(s, process);
        return;
    }
    while ((entry = readdir(tasks))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        scoped_fd int task = openat(dirfd(tasks), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (task < 0)
            continue;
        read_children(s, task);
        if (!is_ours)
            look_at_files(s, task);
        if (!remembered && !has_ended(task)) {
            look_at_memory(s, (pid_t)strtol(entry->d_name, NULL, 10));
            remembered = true;
        }
    }
    (void)closedir(tasks);
}

static bool is_ours(const struct unlinked_ours *ours, pid_t pid)
{
    for (size_t i = 0; i < ours->count; i++) {
        if (ours->pids[i] == pid)
            return true;
    }
    return false;
}

void unlinked_add(struct tally *t, const struct unlinked_ours *ours, const dev_t *devices,
                  size_t device_count)
{
    struct search s = {.tally = t,
                       .devices = devices,
                       .device_count = device_count,
                       .pids = malloc(MAX_PROCESSES * sizeof(pid_t)),
                       .files_left = MAX_FILES,
                       .lines_left = MAX_LINES,
                       .until_ms = now_ms() + MAX_MS};

    if (!s.pids) {
        tally_note_hidden(t);
        return;
    }
    add_child(&s, ours->pids[0]);
    for (size_t i = 0; i < s.pid_count; i++)
        look_at_process(&s, s.pids[i], is_ours(ours, s.pids[i]));
    free(s.pids);
}
