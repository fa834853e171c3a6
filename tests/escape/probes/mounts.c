/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks with mounts: writing to what is read-only, mounting over it, taking it away, moving the
 * root.
 */
#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define NR_OPEN_TREE_ATTR 467

/* A directory is the gentlest thing to make, and making it asks the mount before the permissions:
 * EROFS tells that the mount refuses, EACCES would mean that nothing but the uid stands in the way.
 */
static void write_in(const char *directory)
{
    char path[512];

    if (access(directory, F_OK) < 0)
        return;
    snprintf(path, sizeof(path), "%s/.carrel-probe-%d", directory, getpid());
    int result = mkdir(path, 0700);
    refused(directory, result, EROFS);
    if (result == 0)
        rmdir(path);
}

static void write_system(char **args)
{
    static const char *const directories[] = {
        "/usr",           "/usr/bin",
        "/usr/lib",       "/usr/local",
        "/usr/local/bin", "/usr/sbin",
        "/usr/share",     "/bin",
        "/sbin",          "/lib",
        "/lib64",         "/etc",
        "/etc/ssl",       "/etc/alternatives",
        "/dev",
    };

    (void)args;
    for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
        write_in(directories[i]);
}

static void mount_old(char **args)
{
    (void)args;
    mkdir("/tmp/here", 0755);
    refused("mount tmpfs on /tmp/here", mount("none", "/tmp/here", "tmpfs", 0, NULL), EPERM);
    refused("mount proc on /tmp/here", mount("none", "/tmp/here", "proc", 0, NULL), EPERM);
    refused("mount sysfs on /tmp/here", mount("none", "/tmp/here", "sysfs", 0, NULL), EPERM);
    refused("mount overlay on /tmp/here",
            mount("none", "/tmp/here", "overlay", 0, "lowerdir=/usr:/etc"), EPERM);
    refused("bind /tmp on /tmp/here", mount("/tmp", "/tmp/here", NULL, MS_BIND, NULL), EPERM);
    refused("bind / on /tmp/here recursively",
            mount("/", "/tmp/here", NULL, MS_BIND | MS_REC, NULL), EPERM);
    refused("bind /tmp over /usr", mount("/tmp", "/usr", NULL, MS_BIND, NULL), EPERM);
    refused("remount /usr writable", mount(NULL, "/usr", NULL, MS_BIND | MS_REMOUNT, NULL), EPERM);
    refused("remount /proc/sys writable",
            mount(NULL, "/proc/sys", NULL, MS_BIND | MS_REMOUNT, NULL), EPERM);
    refused("make / shared", mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL), EPERM);
    refused("move /proc", mount("/proc", "/tmp/here", NULL, MS_MOVE, NULL), EPERM);
}

/* The mount calls of Linux 5.2 and later, by which filters written for mount() were passed by
 * (CVE-2021-41133). */
static void mount_new(char **args)
{
    static const char config[] = "size";

    (void)args;
    refused("fsopen", syscall(SYS_fsopen, "tmpfs", 0), ENOSYS);
    refused("fspick", syscall(SYS_fspick, AT_FDCWD, "/tmp", 0), ENOSYS);
    refused("fsconfig", syscall(SYS_fsconfig, -1, 1, config, config, 0), ENOSYS);
    refused("fsmount", syscall(SYS_fsmount, -1, 0, 0), ENOSYS);
    refused("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 0), ENOSYS);
    refused("open_tree clone", syscall(SYS_open_tree, AT_FDCWD, "/", 1), ENOSYS);
    refused("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/usr", 0), ENOSYS);
    refused("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, NULL, 0), ENOSYS);
    refused("open_tree_attr", syscall(NR_OPEN_TREE_ATTR, AT_FDCWD, "/", 0, NULL, 0), ENOSYS);
}

static void take_away(char **args)
{
    static const char *const points[] = {"/usr", "/proc", "/dev", "/etc", "/tmp", "/proc/sys", "/"};

    (void)args;
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        refused(points[i], umount2(points[i], 0), EPERM);
        refused(points[i], umount2(points[i], MNT_DETACH), EPERM);
    }
}

static void pivot(char **args)
{
    (void)args;
    mkdir("/tmp/old", 0755);
    refused("pivot_root /tmp", syscall(SYS_pivot_root, "/tmp", "/tmp/old"), EPERM);
    refused("pivot_root .", syscall(SYS_pivot_root, ".", "."), EPERM);
    refused("pivot_root /usr", syscall(SYS_pivot_root, "/usr", "/usr"), EPERM);
}

/* A v1 hierarchy has a release_agent, a program that the kernel starts as the host's root
 * (CVE-2022-0492). */
static void cgroup(char **args)
{
    static const char *const controllers[] = {"memory", "pids",    "rdma",
                                              "cpu",    "freezer", "none,name=x"};

    (void)args;
    mkdir("/tmp/here", 0755);
    for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) {
        char what[64];
        snprintf(what, sizeof(what), "mount cgroup %s", controllers[i]);
        refused(what, mount("none", "/tmp/here", "cgroup", 0, controllers[i]), EPERM);
    }
    refused("mount cgroup2", mount("none", "/tmp/here", "cgroup2", 0, NULL), EPERM);
    refused("write release_agent", open("/tmp/here/release_agent", O_WRONLY | O_CLOEXEC), ENOENT);
    if (opendir("/sys/fs/cgroup") != NULL)
        escaped("/sys/fs/cgroup is there");
}

static const struct attack attacks[] = {
    {"write", write_system}, {"mount", mount_old}, {"new-api", mount_new}, {"umount", take_away},
    {"pivot", pivot},        {"cgroup", cgroup},   {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
