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

#define PROPAGATION_PRIVATE (1U << 18)  /* MS_PRIVATE */
#define BIND                (1UL << 12) /* MS_BIND */
#define BELOW               (1UL << 14) /* MS_REC */

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

static int set(int dir, const char *path, uint64_t attrs, unsigned flags, int idmap_userns)
{
    struct mount_attr change = {.attr_set = attrs, .propagation = PROPAGATION_PRIVATE};

    if (idmap_userns >= 0) {
        change.attr_set |= MOUNT_ATTR_IDMAP;
        change.userns_fd = (uint64_t)(unsigned)idmap_userns;
    }
    return call(syscall(SYS_mount_setattr, dir, path, flags, &change, sizeof(change)));
}

int mount_set(int tree, uint64_t attrs, bool recursive, int idmap_userns)
{
    unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);

    return set(tree, "", attrs, flags, idmap_userns);
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

int mount_new_fuse(int device, unsigned user)
{
    scoped_fd int fs = new_fs("fuse");

    if (fs < 0)
        return -errno;
    if (configure(fs, FSCONFIG_SET_STRING, "source", "carrel") < 0 ||
        set_number(fs, "fd", (uint64_t)device) < 0 ||
        configure(fs, FSCONFIG_SET_STRING, "rootmode", "40000") < 0 ||
        set_number(fs, "user_id", user) < 0 || set_number(fs, "group_id", user) < 0 ||
        configure(fs, FSCONFIG_SET_FLAG, "allow_other", NULL) < 0)
        return -errno;
    return finish(fs, MOUNT_NOSUID | MOUNT_NODEV);
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

static int mount_at(const char *path, const char *type, uint64_t attrs, const char *options)
{
    return call(syscall(SYS_mount, "none", path, type, attrs, options));
}

int mount_tmpfs_at(const char *path, const struct tmpfs_options *o)
{
    char text[128];

    snprintf(text, sizeof(text), "size=%lu,nr_inodes=%lu,mode=%o,uid=%u,gid=%u", o->bytes,
             o->inodes, o->mode, o->uid, o->gid);
    return mount_at(path, "tmpfs", o->attrs, text);
}

int mount_proc_at(const char *path, bool hide_others, uint64_t attrs)
{
    return mount_at(path, "proc", attrs, hide_others ? "hidepid=invisible" : NULL);
}

int mount_devpts_at(const char *path, unsigned gid, uint64_t attrs)
{
    char text[64];

    snprintf(text, sizeof(text), "newinstance,ptmxmode=0666,mode=0620,gid=%u,max=64", gid);
    return mount_at(path, "devpts", attrs, text);
}

int mount_bind_at(const char *source, const char *path, bool recursive)
{
    return call(syscall(SYS_mount, source, path, NULL, recursive ? BIND | BELOW : BIND, NULL));
}

int mount_bind_with_at(const char *source, const char *path, uint64_t attrs, bool recursive)
{
    int r = mount_bind_at(source, path, recursive);

    return r < 0 ? r : set(AT_FDCWD, path, attrs, recursive ? AT_RECURSIVE : 0, -1);
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
    bool moves = (o->exclusive || o->moves) && !o->in_userns;
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

int mount_attach_beneath(int tree, int where)
{
    unsigned flags =
        MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH | 0x200 /* MOVE_MOUNT_BENEATH */;

    return call(syscall(SYS_move_mount, tree, "", where, "", flags));
}

int mount_attach_at(int tree, int dir, const char *path)
{
    return call(syscall(SYS_move_mount, tree, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH));
}

int mount_move_at(int dir, const char *source, int where, const char *path)
{
    unsigned flags = path[0] == '\0' ? MOVE_MOUNT_T_EMPTY_PATH : 0;

    return call(syscall(SYS_move_mount, dir, source, where, path, flags));
}

static uint64_t id_of(int dir, const char *name, unsigned flags)
{
    struct statx s;

    flags |= AT_STATX_DONT_SYNC; /* of the mount, not of who serves it */
    if (syscall(SYS_statx, dir, name, flags, STATX_MNT_ID, &s) < 0 || !(s.stx_mask & STATX_MNT_ID))
        return 0;
    return s.stx_mnt_id;
}

uint64_t mount_id(int fd)
{
    return id_of(fd, "", AT_EMPTY_PATH);
}

uint64_t mount_id_at(int dir, const char *name)
{
    return id_of(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT);
}
