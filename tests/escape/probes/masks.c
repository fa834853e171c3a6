/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks whether a start is whole: /proc with all its masks, a read-only /usr and /etc. The host may
 * be exchanging each of them with a name of the given prefix at this very moment, which moves a
 * mount with its directory; so each may be found under either name, but it must be found, and be
 * whole.
 */
#include "probe.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define TRIES 200

/* Opens the directory under the name at which it is just now. A file in it tells the real one from
 * an impostor. */
static int open_either(const char *name, const char *prefix, const char *file)
{
    char path[128];

    for (int i = 0; i < TRIES; i++) {
        snprintf(path, sizeof(path), "/%s%s", i % 2 ? prefix : "", name);
        int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && faccessat(fd, file, F_OK, 0) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

static void read_only(const char *name, const char *prefix, const char *file)
{
    int fd = open_either(name, prefix, file);

    if (fd < 0) {
        escaped("/%s is not mounted in the tree", name);
        return;
    }
    refused(name, mkdirat(fd, ".carrel-probe", 0700), EROFS);
    close(fd);
}

static void proc_is_masked(const char *prefix)
{
    static const char *const no_writing[] = {"sys/kernel/core_pattern", "sysrq-trigger", "irq",
                                             "bus", "fs"};
    static const char *const no_reading[] = {"kcore", "kallsyms", "keys", "timer_list", "kmsg"};
    struct statfs info;
    char byte;
    int fd = open_either("proc", prefix, "self");

    if (fd < 0 || fstatfs(fd, &info) < 0 || info.f_type != PROC_SUPER_MAGIC) {
        escaped("/proc is not mounted in the tree");
        return;
    }
    for (size_t i = 0; i < sizeof(no_writing) / sizeof(no_writing[0]); i++)
        refused_either(no_writing[i], fchmodat(fd, no_writing[i], 0444, 0), EROFS, ENOENT);
    for (size_t i = 0; i < sizeof(no_reading) / sizeof(no_reading[0]); i++) {
        int file = openat(fd, no_reading[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (file >= 0 && read(file, &byte, 1) > 0)
            escaped("/proc/%s can be read", no_reading[i]);
        if (file >= 0)
            close(file);
    }
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        unclear("usage: masks PREFIX");
    proc_is_masked(argv[1]);
    read_only("usr", argv[1], "bin");
    read_only("etc", argv[1], "nsswitch.conf");
    return verdict();
}
