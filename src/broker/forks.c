/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/forks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/answers.h"
#include "base/fd.h"
#include "broker/channel.h"
#include "broker/plans.h"
#include "sys/path.h"

enum {
    BASE_ROOM = PROTOCOL_ID + PROTOCOL_EXEC_ID + 4,
    PATH_ROOM = 256,
};

static int open_home(const struct broker *b, const char *bucket, const char *workspace,
                     const char *name, int flags)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), "%s/.carrel/workspaces/%s/%s", bucket, workspace, name);
    return path_open_beneath(b->state, path, flags, 0);
}

void fork_path(const struct broker *b, const char *bucket, const char *workspace, char *path,
               size_t size)
{
    snprintf(path, size, "%s/%s/.carrel/workspaces/%s/fork/layer", b->settings.state, bucket,
             workspace);
}

bool fork_base_parse(const char *text, struct fork_base *ret)
{
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : 0;

    if (!protocol_snapshot_is_valid(text))
        return false;
    memcpy(ret->workspace, text, n);
    ret->workspace[n] = '\0';
    snprintf(ret->snapshot, sizeof(ret->snapshot), "%s", slash + 1);
    return true;
}

int fork_find(const struct broker *b, const char *bucket, const char *workspace,
              struct fork_base *ret, struct err *err)
{
    char text[BASE_ROOM] = "";
    struct fork_base unused;
    scoped_fd int fd = open_home(b, bucket, workspace, "fork/base", O_RDONLY | O_NOFOLLOW);

    if (fd == -ENOENT)
        return 0;
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return err_set(err, ERR_IO, fd < 0 ? -fd : errno, "find out what the fork stands on");
    if (!fork_base_parse(text, ret ? ret : &unused))
        return err_set(err, ERR_IO, 0, "what the fork stands on is damaged");
    return 1;
}

int fork_refuse(const struct broker *b, const char *bucket, const char *workspace, const char *what,
                struct err *err)
{
    int r = fork_find(b, bucket, workspace, NULL, err);

    if (r <= 0)
        return r;
    err_set(err, ERR_CONFLICT, 0,
            "the workspace '%s' is a fork, %s; copy its files into an ordinary workspace first "
            "(carrel ws backup, carrel ws restore)",
            workspace, what);
    err->said = SAID_IS_A_FORK;
    return -1;
}

static int open_kept(const struct broker *b, const char *bucket, const struct fork_base *base,
                     const char *below, struct err *err)
{
    char name[64];

    snprintf(name, sizeof(name), "snapshots/%s%s", base->snapshot, below);
    int fd = open_home(b, bucket, base->workspace, name, O_PATH | O_DIRECTORY);
    if (fd < 0)
        return err_set(err, fd == -ENOENT ? ERR_NOT_FOUND : ERR_IO, fd == -ENOENT ? 0 : -fd,
                       "the snapshot '%s' of workspace '%s' is not there", base->snapshot,
                       base->workspace);
    return fd;
}

int fork_open_snapshot(const struct broker *b, const char *bucket, const struct fork_base *base,
                       struct err *err)
{
    return open_kept(b, bucket, base, "/tree", err);
}

int fork_open_kept(const struct broker *b, const char *bucket, const struct fork_base *base,
                   struct err *err)
{
    return open_kept(b, bucket, base, "", err);
}

int fork_open_layer(const struct broker *b, const char *bucket, const char *workspace,
                    struct err *err)
{
    int fd = open_home(b, bucket, workspace, "fork/layer", O_RDONLY | O_DIRECTORY);

    return fd < 0 ? err_set(err, ERR_IO, -fd, "open the layer of the fork") : fd;
}

/* The name `base` comes last: without it there is no fork. */
static int write_base(int home, const struct fork_base *base)
{
    char text[BASE_ROOM];
    int n = snprintf(text, sizeof(text), "%s/%s", base->workspace, base->snapshot);
    scoped_fd int fd =
        openat(home, "new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, text, (size_t)n) != n || fsync(fd) < 0 ||
        renameat(home, "new", home, "base") < 0 || fsync(home) < 0)
        return errno ? -errno : -EIO;
    return 0;
}

static int make_layer(int home, const struct stat *owner)
{
    if (mkdirat(home, "layer", 0700) < 0 && errno != EEXIST)
        return -errno;
    scoped_fd int layer = path_open_beneath(home, "layer", O_RDONLY | O_DIRECTORY, 0);
    if (layer < 0)
        return layer;
    if (geteuid() == 0 && fchown(layer, owner->st_uid, owner->st_gid) < 0)
        return -errno;
    return fsync(layer) < 0 ? -errno : 0;
}

static int make(const struct broker *b, const struct plain_message *m, struct err *err)
{
    struct fork_base base;
    struct fork_base old;
    struct stat owner;

    snprintf(base.workspace, sizeof(base.workspace), "%s", m->texts[2]);
    snprintf(base.snapshot, sizeof(base.snapshot), "%s", m->texts[3]);
    int found = fork_find(b, m->texts[0], m->texts[1], &old, err);
    if (found < 0)
        return -1;
    /* Not even for a front that was taken over. */
    if (found &&
        (strcmp(old.workspace, base.workspace) != 0 || strcmp(old.snapshot, base.snapshot) != 0))
        return err_set(err, ERR_CONFLICT, 0, "the workspace '%s' is a fork of another",
                       m->texts[1]);
    scoped_fd int tree = fork_open_snapshot(b, m->texts[0], &base, err);
    if (tree < 0)
        return -1;
    if (fstat(tree, &owner) < 0)
        return err_set(err, ERR_IO, errno, "look at the snapshot");
    scoped_fd int home = plan_open_own(b, m->texts[0], m->texts[1], "fork");
    int r = home < 0 ? home : make_layer(home, &owner);
    if (r == 0)
        r = write_base(home, &base);
    return r < 0 ? err_set(err, ERR_IO, -r, "make the fork's directory") : 0;
}

void fork_make(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct err err;

    if (make(b, m, &err) < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send_ok(b, tag);
}
