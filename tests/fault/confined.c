/* SPDX-License-Identifier: Apache-2.0 */
/* Run as the command of a sandbox whose setup was disturbed: writes to /marker how confined it is.
 * Equal markers mean equal confinement. Built statically, so that nothing but the lines below runs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static char text[1 << 18];
static size_t used;
static int broken;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    used += (size_t)vsnprintf(text + used, sizeof(text) - used, format, arguments);
    va_end(arguments);
}

/* A file of /proc: the lines that begin with one of the words (all for NULL), without the first
 * fields, which differ from run to run. */
static void say_file(const char *path, const char *const words[], int skip_fields)
{
    FILE *file = fopen(path, "r");
    char line[4096];

    say("%s:\n", path);
    if (!file) {
        broken = 1;
        return;
    }
    while (fgets(line, sizeof(line), file)) {
        char *at = line;
        bool wanted = !words;
        for (size_t i = 0; words && words[i]; i++)
            wanted |= strncmp(line, words[i], strlen(words[i])) == 0;
        for (int i = 0; i < skip_fields && strchr(at, ' '); i++)
            at = strchr(at, ' ') + 1;
        if (wanted)
            say("  %s", at);
    }
    fclose(file);
}

static void say_names(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    if (!dir) {
        broken = 1;
        return;
    }
    say("%s:", path);
    while ((entry = readdir(dir)))
        say(" %s", entry->d_name);
    say("\n");
    closedir(dir);
}

static void say_surroundings(void)
{
    static const char *const names[] = {"user", "mnt", "pid",    "net",
                                        "ipc",  "uts", "cgroup", "time"};
    struct utsname uts = {0};
    char path[64];
    char link[64];

    if (uname(&uts) < 0)
        broken = 1;
    say("host %s %s pid %d session %d\n", uts.nodename, uts.domainname, (int)getpid(),
        (int)getsid(0));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        if (n < 0)
            broken = 1;
        link[n < 0 ? 0 : n] = '\0';
        /* Being the host's is what matters: the test passes us its own, and they must differ. */
        const char *host = getenv(names[i]);
        say("namespace %s %s\n", names[i], host && strcmp(host, link) == 0 ? "HOST" : "own");
    }
}

int main(void)
{
    static const char *const privileges[] = {"Uid:",        "Gid:",     "Groups:", "Cap",
                                             "NoNewPrivs:", "Seccomp:", NULL};
    int fd = open("/marker", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    say_file("/proc/self/status", privileges, 0);
    say_file("/proc/self/limits", NULL, 0);
    say("securebits %x\n", (unsigned)prctl(PR_GET_SECUREBITS));
    say_surroundings();
    say_names("/proc/self/fd");
    say_names("/");
    say_file("/proc/self/mountinfo", NULL, 3);
    say("nested %d chroot %d\n", unshare(CLONE_NEWUSER), chroot("/"));
    if (fd < 0 || write(fd, text, used) != (ssize_t)used || close(fd) < 0)
        broken = 1;
    return broken;
}
