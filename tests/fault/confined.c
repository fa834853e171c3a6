/* SPDX-License-Identifier: Apache-2.0 */
/* Run as the command of a sandbox whose setup was disturbed: writes to /marker how confined it is.
 * Equal markers mean equal confinement. Built statically, so that nothing but the lines below runs.
 * Exit status 0, or 99 when one of its own calls was the one that was made to fail. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static void say_privileges(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};

    if (syscall(SYS_capget, &head, data) < 0)
        broken = 1;
    for (int i = 0; i < 2; i++)
        say("caps %x %x %x\n", data[i].effective, data[i].permitted, data[i].inheritable);
    int last = 0;
    for (int cap = 0; cap < 64; cap++)
        last += prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1;
    say("bounding %d securebits %x no_new_privs %d seccomp %d\n", last,
        (unsigned)prctl(PR_GET_SECUREBITS), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        prctl(PR_GET_SECCOMP));
    say("uid %d gid %d groups %d\n", (int)getuid(), (int)getgid(), getgroups(0, NULL));
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit = {0};
        if (getrlimit(i, &limit) < 0)
            broken = 1;
        say("limit %d %lu %lu\n", i, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
}

/* A file of /proc, without the first fields of each line, which differ from run to run. */
static void say_file(const char *path, int skip_fields)
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
        for (int i = 0; i < skip_fields && strchr(at, ' '); i++)
            at = strchr(at, ' ') + 1;
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
    int fd = open("/marker", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    say_privileges();
    say_surroundings();
    say_names("/proc/self/fd");
    say_names("/");
    say_file("/proc/self/mountinfo", 3);
    say("nested %d chroot %d\n", unshare(CLONE_NEWUSER), chroot("/"));
    if (fd < 0 || write(fd, text, used) != (ssize_t)used || close(fd) < 0)
        broken = 1;
    return broken ? 99 : 0;
}
