/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

_Static_assert(MOUNT_RDONLY == MOUNT_ATTR_RDONLY && MOUNT_NOSUID == MOUNT_ATTR_NOSUID &&
                   MOUNT_NODEV == MOUNT_ATTR_NODEV && MOUNT_NOEXEC == MOUNT_ATTR_NOEXEC,
               "the kernel's values");

#define PROPAGATION_PRIVATE (1U << 18) /* MS_PRIVATE */

/* By number: not every C library has these calls. */
static int call(long result)
{
    return result < 0 ? -errno : (int)result;
}

int mount_clone(int fd, bool recursive)
{
    unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;

    return call(syscall(SYS_open_tree, fd, "", recursive ? flags | AT_RECURSIVE : flags));
}

int mount_clone_path(const char *path, bool recursive)
{
    unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;

    return call(syscall(SYS_open_tree, AT_FDCWD, path, recursive ? flags | AT_RECURSIVE : flags));
}

int mount_set(int tree, uint64_t attrs, bool recursive, int idmap_userns)
{
    struct mount_attr change = {.attr_set = attrs, .propagation = PROPAGATION_PRIVATE};

    if (idmap_userns >= 0) {
        change.attr_set |= MOUNT_ATTR_IDMAP;
        change.userns_fd = (uint64_t)(unsigned)idmap_userns;
    }
    unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);
    return call(syscall(SYS_mount_setattr, tree, "", flags, &change, sizeof(change)));
}

static int new_fs(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static int configure(int fs, unsigned command, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fs, command, key, value, 0);
}

static int set_number(int fs, const char *key, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%lu", value);
    return configure(fs, FSCONFIG_SET_STRING, key, text);
}

static int set_mode(int fs, unsigned mode)
{
    char text[16];

    snprintf(text, sizeof(text), "%o", mode);
    return configure(fs, FSCONFIG_SET_STRING, "mode", text);
}

static int finish(int fs, uint64_t attrs)
{
    if (configure(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return -errno;
    return call(syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, (unsigned)attrs));
}

int mount_new_tmpfs(const struct tmpfs_options *o)
{
    scoped_fd int fs = new_fs("tmpfs");

    if (fs < 0)
        return -errno;
    if (set_number(fs, "size", o->bytes) < 0 || set_number(fs, "nr_inodes", o->inodes) < 0 ||
        set_mode(fs, o->mode) < 0 || set_number(fs, "uid", o->uid) < 0 ||
        set_number(fs, "gid", o->gid) < 0)
        return -errno;
    return finish(fs, o->attrs);
}

int mount_new_proc(bool hide_others, uint64_t attrs)
{
    scoped_fd int fs = new_fs("proc");

    if (fs < 0)
        return -errno;
    if (hide_others && configure(fs, FSCONFIG_SET_STRING, "hidepid", "invisible") < 0)
        return -errno;
    return finish(fs, attrs);
}

int mount_new_devpts(unsigned gid, uint64_t attrs)
{
    scoped_fd int fs = new_fs("devpts");

    if (fs < 0)
        return -errno;
    if (configure(fs, FSCONFIG_SET_FLAG, "newinstance", NULL) < 0 ||
        configure(fs, FSCONFIG_SET_STRING, "ptmxmode", "0666") < 0 ||
        configure(fs, FSCONFIG_SET_STRING, "mode", "0620") < 0 || set_number(fs, "gid", gid) < 0 ||
        set_number(fs, "max", 64) < 0)
        return -errno;
    return finish(fs, attrs);
}

int mount_new_ext4(const char *device, uint64_t attrs)
{
    scoped_fd int fs = new_fs("ext4");

    if (fs < 0)
        return -errno;
    if (configure(fs, FSCONFIG_SET_STRING, "source", device) < 0 ||
        configure(fs, FSCONFIG_SET_STRING, "errors", "remount-ro") < 0 ||
        configure(fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL) < 0)
        return -errno;
    return finish(fs, attrs);
}

/* Where redirects are allowed, so that a move costs no data, only root of the host can write them:
 * they lead anywhere in the layers. The index keeps hard links together, and makes the kernel
 * refuse a layer that is in use; where it cannot have one it goes without. All three are named
 * also where they are off: a host may have them on by default. */
int mount_new_overlay(const struct overlay_options *o)
{
    bool moves = o->exclusive && !o->in_userns;
    const char *const options[][2] = {
        {"lowerdir", o->lower},
        {"upperdir", o->upper},
        {"workdir", o->upper ? o->work : NULL},
        {"index", o->exclusive ? "on" : "off"},
        {"xino", "off"},
        {"redirect_dir", o->in_userns ? NULL
                         : moves      ? "on"
                                      : "nofollow"},
        {"metacopy", o->in_userns ? NULL
                     : moves      ? "on"
                                  : "off"},
    };
    scoped_fd int fs = new_fs("overlay");

    if (fs < 0)
        return -errno;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (options[i][1] && configure(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1]) < 0)
            return -errno;
    }
    if (o->in_userns && configure(fs, FSCONFIG_SET_FLAG, "userxattr", NULL) < 0)
        return -errno;
    return finish(fs, o->attrs);
}

const char *mount_overlay_fault(int negative_errno)
{
    switch (negative_errno) {
    case -EBUSY:
        return "it is in use";
    case -ENODEV:
        return "this kernel has no overlay file system (modprobe overlay)";
    case -EPERM:
        return "this kernel does not let an ordinary user put a layer over a tree (Linux 5.11 "
               "does)";
    case -EINVAL:
        return "its file system cannot hold one; keep it on ext4, xfs, btrfs or tmpfs, and not on "
               "a container's own root";
    default:
        return "put it over its tree";
    }
}

int mount_attach(int tree, int where)
{
    unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;

    return call(syscall(SYS_move_mount, tree, "", where, "", flags));
}

int mount_attach_at(int tree, int dir, const char *path)
{
    return call(syscall(SYS_move_mount, tree, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH));
}

uint64_t mount_id(int fd)
{
    struct statx s;

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &s) < 0 ||
        !(s.stx_mask & STATX_MNT_ID))
        return 0;
    return s.stx_mnt_id;
}
