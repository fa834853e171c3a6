/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks through /proc on the processes that Carrel itself keeps in the sandbox: their program
 * file (CVE-2019-5736), their memory, and our own id maps and killing order.
 */
#include "probe.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>

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

static const struct attack attacks[] = {
    {"exe", exe},
    {"memory", memory},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
