/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts. Every function returns a descriptor (or 0) or -errno. By descriptor, but for those that
 * end in _at: they take a path as the kernel reads it, in one call, for places where nobody else
 * can have put a symlink. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The kernel's MOUNT_ATTR_* and MS_*: its header and the C library's cannot be included together.
 */
enum {
    MOUNT_RDONLY = 1,
    MOUNT_NOSUID = 2,
    MOUNT_NODEV = 4,
    MOUNT_NOEXEC = 8,
};

/* A private, detached copy of the mount tree at `fd` (any file or directory), or at a path. */
int mount_clone(int fd, bool recursive);
int mount_clone_path(const char *path, bool recursive);
/* Sets MOUNT_* flags, and makes the tree private. `idmap_userns` >= 0 also idmaps it. */
int mount_set(int tree, uint64_t attrs, bool recursive, int idmap_userns);

struct tmpfs_options {
    uint64_t bytes;
    uint64_t inodes;
    unsigned mode;
    unsigned uid;
    unsigned gid;
    uint64_t attrs;
};

/* A file system of FUSE, for who reads the requests from `device`, open on /dev/fuse; `user` may
 * end the connection. Whoever has it is let in. */
int mount_new_fuse(int device, unsigned user);
int mount_new_tmpfs(const struct tmpfs_options *options);
int mount_tmpfs_at(const char *path, const struct tmpfs_options *options);
int mount_proc_at(const char *path, bool hide_others, uint64_t attrs);
int mount_devpts_at(const char *path, unsigned gid, uint64_t attrs);
/* Shows `source` at `path`, with the flags of its mount; recursive: with what is mounted below it.
 */
int mount_bind_at(const char *source, const char *path, bool recursive);
/* ... with flags more. */
int mount_bind_with_at(const char *source, const char *path, uint64_t attrs, bool recursive);
/* The ext4 file system on a block device. */
int mount_new_ext4(const char *device, uint64_t attrs);

struct overlay_options {
    const char *lower; /* paths without a comma or backslash, the topmost first, with colons */
    const char *upper; /* on one mount with work; NULL: nothing can be changed */
    const char *work;
    bool in_userns; /* the marks are user.overlay.* */
    bool moves;     /* moves cost no data, unless in_userns; as with `exclusive` */
    bool exclusive; /* -EBUSY while another one has upper or work; and moves cost no data, unless
                       in_userns */
    uint64_t attrs;
};

int mount_new_overlay(const struct overlay_options *options);
/* What a failure of that means for the layer, for people. */
const char *mount_overlay_fault(int negative_errno);
/* Puts a detached tree on the file or directory open at `where`. */
int mount_attach(int tree, int where);
/* ... below what is mounted there already. -EINVAL before Linux 6.5. */
int mount_attach_beneath(int tree, int where);
/* ... or on a path below `dir`. */
int mount_attach_at(int tree, int dir, const char *path);
/* Moves what is mounted on `source` below `dir` to the directory open at `where`, or to a path
 * below it. */
int mount_move_at(int dir, const char *source, int where, const char *path);
/* The kernel's id of the mount `fd` is on; 0 where it cannot say. */
uint64_t mount_id(int fd);
/* ... of the one seen at the name `name` in `dir`. */
uint64_t mount_id_at(int dir, const char *name);
