/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel refuses user namespaces to a process in a chroot. Root can make the chroot a root of
 * its own instead: in a private mount namespace, the tree of the chroot is put on top of the real
 * root, and entered. Nothing outside this process changes. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "carrel.h"
#include "sys/mount.h"

enum {
    MAX_DEPTH = 1024
};

/* From a directory outside the process's root, ".." leads on up to the real one. */
static int climb_to_real_root(void)
{
    struct stat here;
    struct stat above;

    for (int i = 0; i < MAX_DEPTH; i++) {
        if (stat(".", &here) < 0 || chdir("..") < 0 || stat(".", &above) < 0)
            return -1;
        if (here.st_dev == above.st_dev && here.st_ino == above.st_ino)
            return chroot(".");
    }
    errno = ELOOP;
    return -1;
}

int carrel_leave_chroot(void)
{
    char cwd[4096];

    if (!getcwd(cwd, sizeof(cwd)) || unshare(CLONE_NEWNS | CLONE_FS) < 0)
        return -1;
    scoped_fd int old_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int tree = old_root < 0 ? -1 : mount_clone(old_root, true);
    if (tree < 0) {
        errno = -tree;
        return -1;
    }
    if (mount_set(tree, 0, true, -1) < 0)
        return -1;
    if (chdir("/") < 0 || chroot("proc") < 0 || climb_to_real_root() < 0)
        return -1;
    /* "/.." follows what is mounted over the root; "/" alone does not. */
    if (chdir("/..") < 0 || chroot(".") < 0)
        return -1;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    scoped_fd int real_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (real_root < 0 || mount_attach(tree, real_root) < 0 || fchdir(tree) < 0)
        return -1;
    if (syscall(SYS_pivot_root, ".", ".") == 0) {
        if (umount2(".", MNT_DETACH) < 0)
            return -1;
    } else if (chroot(".") < 0) { /* the real root had no parent to be moved under */
        return -1;
    }
    return chdir(cwd);
}
