/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks on the root directory: climbing above it, and the classic chroot escape. The first
 * argument after the attack is the absolute path of a file that exists on the host only; reading it
 * is the way out.
 */
#include "probe.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static void climb(void)
{
    for (int i = 0; i < 100; i++) {
        if (chdir("..") < 0)
            return;
    }
}

/* A path relative to the current directory, which the attack believes to be the host's root. */
static void look_for(const char *how, const char *secret)
{
    int fd = open(secret + 1, O_RDONLY | O_CLOEXEC);

    failed(how, fd);
    if (fd >= 0)
        close(fd);
}

/* With a descriptor of a directory held from before, chroot() into another one leaves that
 * descriptor outside. */
static void chroot_away(const char *secret)
{
    int before = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    mkdir("/tmp/cage", 0755);
    refused("chroot", chroot("/tmp/cage"), EPERM);
    if (fchdir(before) < 0)
        unclear("fchdir");
    climb();
    look_for("chroot, fchdir, cd ..", secret);
    if (chroot(".") == 0)
        look_for("chroot, fchdir, cd .., chroot .", secret);
}

/* Where the new root only covers the old one, taking it off and entering the namespace anew leads
 * to what is below. */
static void uncover(const char *secret)
{
    int namespace = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);

    for (int i = 0; i < 4; i++) {
        refused("unmount /", umount2("/", MNT_DETACH), EPERM);
        refused("enter the mount namespace anew", setns(namespace, CLONE_NEWNS), EPERM);
        look_for("unmount /, setns", secret);
    }
}

static void chroot_escape(char **args)
{
    climb();
    look_for("cd .. a hundred times", args[0]);
    chroot_away(args[0]);
    uncover(args[0]);
}

static void try_directory(const char *directory, const char *secret)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s%s", directory, secret);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    failed(path, fd);
    if (fd >= 0)
        close(fd);
}

/* The magic links of proc jump to wherever a process's root or directory is, whatever the path
 * says. */
static void proc_links(char **args)
{
    static const char *const directories[] = {
        "/..",
        "/../../..",
        "/proc/self/root/../..",
        "/proc/self/cwd/../../../../../../../../..",
        "/proc/thread-self/root/../..",
        "/proc/1/root",
        "/proc/1/root/../..",
        "/proc/1/cwd/../../../../../..",
        "/proc/self/task/1/root/../..",
    };

    for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
        try_directory(directories[i], args[0]);
    for (int fd = 0; fd < 256; fd++) {
        char directory[64];
        struct stat info;
        if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
            snprintf(directory, sizeof(directory), "/proc/self/fd/%d/../../../../../..", fd);
            try_directory(directory, args[0]);
        }
    }
}

static const struct attack attacks[] = {
    {"chroot-escape", chroot_escape},
    {"proc-links", proc_links},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
