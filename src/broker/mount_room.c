/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/mount_room.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/mount.h"
#include "sys/path.h"

enum {
    STACK = 128 << 10,
    NAME_ROOM = 64,
};

/* What a thread does in the namespace; 0 or -errno. */
struct aside {
    int (*work)(struct aside *aside); /* NULL: the room is made */
    int ns;
    struct room_place place;
    int result;
};

/* A namespace with nothing in it but a file system of its own: no mount of the host's is held. */
static int make_room(int *ret_ns)
{
    const struct tmpfs_options small = {.bytes = 1 << 20,
                                        .inodes = 4096,
                                        .mode = 0700,
                                        .attrs = MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC};

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    scoped_fd int ns = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
    int r = ns < 0 ? -errno : mount_tmpfs_at("/tmp", &small);
    if (r < 0)
        return r;
    if (chdir("/tmp") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
        return -errno;
    *ret_ns = take_fd(&ns);
    return 0;
}

/* Only this thread is moved: its working directory and root are its own first. */
static int enter(int ns)
{
    if (unshare(CLONE_FS) < 0)
        return -errno;
    return setns(ns, CLONE_NEWNS) < 0 ? -errno : 0;
}

static void *run_aside(void *context)
{
    struct aside *aside = context;

    if (!aside->work) {
        aside->result = unshare(CLONE_FS) < 0 ? -errno : make_room(&aside->ns);
        return NULL;
    }
    aside->result = enter(aside->ns);
    if (aside->result == 0)
        aside->result = aside->work(aside);
    return NULL;
}

static int start(pthread_t *thread, void *(*run)(void *), void *context, bool detached)
{
    pthread_attr_t attr;
    sigset_t all;
    sigset_t before;
    int r = pthread_attr_init(&attr);

    if (r != 0)
        return -r;
    (void)pthread_attr_setstacksize(&attr, STACK);
    if (detached)
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(thread, &attr, run, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return -r;
}

/* Waits for it: none of these calls asks who serves a mount. */
static int do_aside(struct aside *aside)
{
    pthread_t thread = 0;
    int r = start(&thread, run_aside, aside, false);

    if (r < 0)
        return r;
    (void)pthread_join(thread, NULL);
    return aside->result;
}

static void place_path(const struct room_place *place, char path[NAME_ROOM])
{
    snprintf(path, NAME_ROOM, "/%u", place->number);
}

static int attach(struct aside *aside)
{
    char path[NAME_ROOM];

    place_path(&aside->place, path);
    if (mkdir(path, 0700) < 0)
        return -errno;
    return mount_attach_at(aside->place.mount, AT_FDCWD, path);
}

static int copy(struct aside *aside)
{
    int fd = mount_clone(aside->place.mount, false);

    aside->place.mount = fd;
    return fd < 0 ? fd : 0;
}

static int drop(struct aside *aside)
{
    char path[NAME_ROOM];

    place_path(&aside->place, path);
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return -errno;
    return rmdir(path) < 0 ? -errno : 0;
}

static int open_room(struct mount_room *room)
{
    struct aside aside = {.ns = -1};

    if (room->ns >= 0)
        return 0;
    int r = do_aside(&aside);
    room->ns = r < 0 ? -1 : aside.ns;
    return r;
}

int room_add(struct mount_room *room, int *mount, struct room_place *ret, struct err *err)
{
    struct aside aside = {.work = attach};
    int r = open_room(room);

    aside.ns = room->ns;
    aside.place = (struct room_place){.number = ++room->places, .mount = *mount};
    if (r == 0)
        r = do_aside(&aside);
    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "keep a mount where nobody else sees it");
    *ret = aside.place;
    *mount = -1;
    return 0;
}

int room_copy(const struct mount_room *room, const struct room_place *place, bool writable,
              struct err *err)
{
    struct aside aside = {.work = copy, .ns = room->ns, .place = *place};
    int r = do_aside(&aside);
    scoped_fd int fd = r < 0 ? -1 : aside.place.mount;

    if (r == 0)
        r = mount_set(fd, (writable ? 0 : MOUNT_RDONLY) | MOUNT_NOSUID | MOUNT_NODEV, false, -1);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "copy a mount") : take_fd(&fd);
}

void room_drop(const struct mount_room *room, struct room_place *place)
{
    struct aside aside = {.work = drop, .ns = room->ns, .place = *place};

    if (place->mount < 0)
        return;
    ignore(do_aside(&aside) == 0); /* it is gone, or goes with us */
    scope_close(&place->mount);
}

/* --- in a sandbox --- */

struct replacing {
    int pidfd;
    int mount;
    int report;
    char name[NAME_ROOM * 4];
};

/* What is mounted there is covered or uncovered, never away: else what is written meanwhile would
 * go to the directory below it, in the tenant's tree. Kernels before 6.5 cannot put a mount beneath
 * another; there the dead one stays below the new one. */
static int replace(const struct replacing *r)
{
    char path[sizeof(r->name) + 1];

    snprintf(path, sizeof(path), "/%s", r->name);
    if (unshare(CLONE_FS) < 0 || setns(r->pidfd, CLONE_NEWNS) < 0)
        return -errno;
    scoped_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int point = root < 0 ? -1 : path_open_beneath(root, r->name, O_PATH | O_DIRECTORY, 0);
    if (point < 0)
        return point;
    if (mount_id(point) == mount_id(root) || mount_attach_beneath(r->mount, point) < 0)
        return mount_attach(r->mount, point);
    return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

static void *run_replace(void *context)
{
    struct replacing *r = context;
    char there = replace(r) == 0 ? 1 : 0;

    ignore(write(r->report, &there, 1) == 1); /* else its end is heard, and it is not there */
    (void)close(r->report);
    (void)close(r->mount);
    (void)close(r->pidfd);
    free(r);
    return NULL;
}

int room_replace(int pidfd, const char *name, int mount, int report, struct err *err)
{
    struct replacing *r = calloc(1, sizeof(*r));
    pthread_t thread = 0;
    int own = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
    int failed = r && own >= 0 ? 0 : -ENOMEM;

    if (failed == 0) {
        *r = (struct replacing){.pidfd = own, .mount = mount, .report = report};
        snprintf(r->name, sizeof(r->name), "%s", name);
        failed = start(&thread, run_replace, r, true);
    }
    if (failed == 0)
        return 0;
    free(r);
    scope_close(&own);
    scope_close(&mount);
    scope_close(&report);
    return err_set(err, ERR_LIMIT, -failed, "start a thread that mounts a store again");
}
