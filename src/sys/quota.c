/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/quota.h"

#include <errno.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif

/* The kernel's QCMD shifts a signed number. */
static long ask(int dir, unsigned command, unsigned id, void *answer)
{
    return syscall(SYS_quotactl_fd, dir, command << SUBCMDSHIFT | PRJQUOTA, id, answer);
}

/* 0: none. */
static unsigned project_of(int dir)
{
    struct fsxattr attributes = {0};

    if (ioctl(dir, FS_IOC_FSGETXATTR, &attributes) < 0 ||
        !(attributes.fsx_xflags & FS_XFLAG_PROJINHERIT))
        return 0;
    return attributes.fsx_projid;
}

bool quota_has_project(int dir)
{
    return project_of(dir) != 0;
}

int quota_join(int dir, int to)
{
    unsigned project = project_of(dir);
    struct fsxattr attributes = {0};

    if (!project)
        return 0;
    if (ioctl(to, FS_IOC_FSGETXATTR, &attributes) < 0)
        return -errno;
    attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    attributes.fsx_projid = project;
    return ioctl(to, FS_IOC_FSSETXATTR, &attributes) < 0 ? -errno : 0;
}

static uint64_t left(uint64_t limit, uint64_t used)
{
    if (limit == 0)
        return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

int quota_left(int dir, uint64_t *ret_bytes, uint64_t *ret_files)
{
    unsigned project = project_of(dir);
    struct fs_quota_stat state = {.qs_version = FS_QSTAT_VERSION};
    struct if_dqblk quota = {0};

    if (!project)
        return -ENOENT;
    if (ask(dir, Q_XGETQSTAT, 0, &state) < 0)
        return -errno;
    if (!(state.qs_flags & FS_QUOTA_PDQ_ENFD))
        return -ESRCH;
    if (ask(dir, Q_GETQUOTA & 0xffffffffU, project, &quota) < 0)
        return -errno;
    *ret_bytes = left(quota.dqb_bhardlimit * QIF_DQBLKSIZE, quota.dqb_curspace);
    *ret_files = left(quota.dqb_ihardlimit, quota.dqb_curinodes);
    return 0;
}
