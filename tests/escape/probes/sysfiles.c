/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack on the files by which the kernel is told what to do or what to run. Nothing is ever
 * written: opening for writing would be enough, and a chmod to what the file already is asks the
 * mount first, so that EROFS or ENOENT shows a mask, where EPERM would mean that nothing but the
 * uid stands in the way.
 */
#include "probe.h"

#include <fcntl.h>
#include <sys/stat.h>

static void try(const char *path)
{
    struct stat info;
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        escaped("%s opens for writing", path);
        close(fd);
    }
    if (stat(path, &info) < 0)
        printf("refused: %s: %s\n", path, strerrorname_np(errno));
    else
        refused(path, chmod(path, info.st_mode & 0777), EROFS);
}

int main(void)
{
    static const char *const paths[] = {
        "/proc/sys/kernel/core_pattern",     "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",          "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",          "/proc/sys/vm/overcommit_memory",
        "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",    "/proc/fs",
        "/sys/kernel/uevent_helper",         "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/fs/cgroup/release_agent",      "/sys/fs/cgroup/memory/release_agent",
        "/sys/fs/cgroup/cgroup.procs",       "/sys/power/state",
    };

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        try(paths[i]);
    return verdict();
}
