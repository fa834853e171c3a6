/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks with devices: making nodes for memory, a disk, or an overlay's whiteout; finding ones
 * that are already there.
 */
#include "probe.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static void make(char **args)
{
    (void)args;
    refused("mknod memory", mknod("/mem", S_IFCHR | 0666, makedev(1, 1)), EPERM);
    refused("mknod disk", mknod("/disk", S_IFBLK | 0666, makedev(254, 0)), EPERM);
    refused("mknod whiteout", mknod("/whiteout", S_IFCHR | 0666, makedev(0, 0)), EPERM);
    refused("mknodat whiteout", mknodat(AT_FDCWD, "/tmp/whiteout", S_IFCHR, makedev(0, 0)), EPERM);
}

/* Harmless, and needed by ordinary programs. */
static int is_harmless(const char *path, dev_t device)
{
    static const struct {
        unsigned major;
        unsigned minor;
    } allowed[] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}};

    if (strncmp(path, "/dev/pts/", 9) == 0)
        return 1;
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        if (device == makedev(allowed[i].major, allowed[i].minor))
            return 1;
    }
    return 0;
}

static int look_at(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)type;
    (void)at;
    if ((S_ISCHR(info->st_mode) || S_ISBLK(info->st_mode)) && !is_harmless(path, info->st_rdev))
        escaped("%s is there: device %u:%u", path, major(info->st_rdev), minor(info->st_rdev));
    return 0;
}

static void find(char **args)
{
    static const char *const wanted[] = {
        "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/loop-control", "/dev/net/tun",
        "/dev/vda",  "/dev/sda", "/dev/mem",  "/dev/vsock",        "/dev/autofs"};

    (void)args;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        refused(wanted[i], open(wanted[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC), ENOENT);
    if (nftw("/dev", look_at, 16, FTW_PHYS) < 0)
        unclear("walk through /dev");
}

static const struct attack attacks[] = {
    {"make", make},
    {"find", find},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
