/* SPDX-License-Identifier: Apache-2.0 */
/* A file comes to be: written where nobody sees it, and put in its place when it is whole and on
 * the disk. It is always a new inode, so other names of the old one, leases on it and programs
 * that run from it are not touched.
 *
 *   files_new_begin --> write to fd --> files_new_commit
 *                            \--------> files_new_abort        the old content is as it was
 *
 * The unfinished file is in the hidden directory, under a name; on other mounts it has no name at
 * all until it is whole, where the kernel lets us give it one (Linux 6.10); else a random one. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "files/core/paths.h"

enum {
    LOCKS = 1024,
    MOST_SWAPS = 64,      /* against one inside who does nothing else */
    HELD_BLOCKS = 128,    /* of 512 bytes */
    HELD_ROOM = 64 << 20, /* bytes that are free */
};

/* Whether a file without a name could be given one. Asked with a directory that is none: which of
 * the two is found wrong first tells. */
static bool may_link(int fd)
{
    return linkat(fd, "", -1, "x", AT_EMPTY_PATH) < 0 && errno == EBADF;
}

static int open_named(struct files_new *new)
{
    files_temp_name(new->temp);
    new->fd = openat(new->at, new->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (new->fd >= 0)
        return 0;
    new->temp[0] = '\0';
    return -errno;
}

static int open_unfinished(struct files_call *call, struct files_new *new)
{
    int r = files_room_take(-1, FILES_BLOCK);

    if (r < 0)
        return r;
    new->at = files_temp_dir(call, new->dir);
    if (new->at == new->dir) {
        new->fd = openat(new->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (new->fd >= 0 && may_link(new->fd))
            return 0;
        scope_close(&new->fd);
    }
    return open_named(new);
}

/* What is there must be one that a shell could write to. */
static int check_old(struct files_new *new, struct dir_entry *place)
{
    int r = place_follow(place, &new->old);

    if (r < 0)
        return r;
    new->replaces = r == 0;
    if (!new->replaces)
        return place_check_reserved(place);
    if (S_ISDIR(new->old.st_mode))
        return -EISDIR;
    if (!S_ISREG(new->old.st_mode))
        return -ENXIO;
    return faccessat(place->dir, place->name, W_OK, 0) < 0 ? -errno : 0;
}

static mode_t mode_for(const struct files_new *new, uint64_t mode)
{
    if (mode != FILES_MOST)
        return (mode_t)(mode & 0777);
    return new->replaces ? new->old.st_mode & 0777 : 0644;
}

int files_new_begin(struct files_call *call, const char *path, uint64_t mode, bool parents,
                    struct files_new *ret)
{
    scoped_place struct dir_entry place = {.dir = -1};
    int r;

    *ret = (struct files_new){
        .fd = -1, .dir = -1, .at = -1, .held = -1, .if_match = "", .if_none_match = ""};
    r = path[1] == '\0' ? -EISDIR : place_open(path, parents, true, &place);
    if (r == 0)
        r = check_old(ret, &place);
    if (r < 0)
        return r;
    ret->dir = take_fd(&place.dir);
    memcpy(ret->name, place.name, sizeof(ret->name));
    r = open_unfinished(call, ret);
    if (r == 0 && fchmod(ret->fd, mode_for(ret, mode)) < 0)
        r = -errno;
    if (r < 0)
        files_new_abort(ret);
    return r;
}

void files_new_abort(struct files_new *new)
{
    if (new->temp[0])
        ignore(unlinkat(new->at, new->temp, 0)); /* nothing more can be done about it */
    new->temp[0] = '\0';
    scope_close(&new->fd);
    scope_close(&new->held);
    scope_close(&new->dir);
}

/* Without a name so far: one that nobody guesses. It is whole by now. */
static int give_name(struct files_new *new)
{
    if (new->temp[0])
        return 0;
    files_temp_name(new->temp);
    if (linkat(new->fd, "", new->at, new->temp, AT_EMPTY_PATH) == 0)
        return 0;
    new->temp[0] = '\0';
    return -errno;
}

/* Only where there is nothing. */
static int put_first(struct files_new *new)
{
    if (renameat2(new->at, new->temp, new->dir, new->name, RENAME_NOREPLACE) == 0) {
        new->temp[0] = '\0';
        return 0;
    }
    if (errno == EINVAL) { /* a file system without it: links are never put over anything */
        if (linkat(new->at, new->temp, new->dir, new->name, 0) == 0)
            return 0; /* the other name goes with the abort */
    }
    return errno == EEXIST ? -ECANCELED : -errno;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int put_over(struct files_new *new)
{
    if (renameat(new->at, new->temp, new->dir, new->name) < 0)
        return -errno;
    new->temp[0] = '\0';
    return 0;
}

/* Puts back what came out, and ours out again. Programs inside may put others there meanwhile, and
 * none of theirs may be lost: it goes on until what comes out is what was put in before. */
static void put_back(struct files_new *new, struct stat out)
{
    struct stat in;

    if (fstat(new->fd, &in) < 0)
        in = (struct stat){0};
    for (int tries = 0; tries < MOST_SWAPS; tries++) {
        struct stat next;
        if (renameat2(new->at, new->temp, new->dir, new->name, RENAME_EXCHANGE) < 0) {
            /* Ours was removed there: then the other one comes back alone. */
            ignore(put_over(new));
            break;
        }
        if (fstatat(new->at, new->temp, &next, AT_SYMLINK_NOFOLLOW) < 0 || is_same(&next, &in))
            return;
        in = out;
        out = next;
    }
    new->temp[0] = '\0'; /* whatever it is, it is not ours to remove */
}

/* Only over the one that is meant: the two change places, and if another came out than was looked
 * at they change back. */
static int put_instead(struct files_new *new)
{
    scoped_fd int held = openat(new->dir, new->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat meant;
    struct stat out;

    if (held < 0)
        return errno == ENOENT ? -ECANCELED : -errno;
    if (fstat(held, &meant) < 0)
        return -errno;
    if (!S_ISREG(meant.st_mode) || !files_etag_is(new->if_match, &meant))
        return -ECANCELED;
    if (renameat2(new->at, new->temp, new->dir, new->name, RENAME_EXCHANGE) < 0) {
        if (errno == EINVAL)
            return put_over(new); /* a file system without it: as good as it gets there */
        return errno == ENOENT ? -ECANCELED : -errno;
    }
    if (fstatat(new->at, new->temp, &out, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (is_same(&meant, &out) && is_unchanged(&meant, &out))
        return 0; /* the old one goes with the abort */
    put_back(new, out);
    return -ECANCELED;
}

/* Those who write through us to one name do it one after the other: so none sees what another has
 * put there only to find that it may not. A few names share a lock. */
static pthread_mutex_t *lock_of(const struct files_new *new)
{
    static pthread_mutex_t locks[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};
    struct stat st = {0};

    (void)fstat(new->dir, &st);
    return &locks[(hash_text(new->name) ^ st.st_dev ^ st.st_ino) % LOCKS];
}

static int put_in_place(struct files_new *new)
{
    struct stat st;

    if (strcmp(new->if_none_match, "*") == 0)
        return put_first(new);
    if (new->if_none_match[0] && fstatat(new->dir, new->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        files_etag_is(new->if_none_match, &st))
        return -ECANCELED;
    return new->if_match[0] ? put_instead(new) : put_over(new);
}

/* --- one sync for many --- */

enum {
    MOST_DISKS = 16
};

struct dirty {
    struct {
        dev_t device;
        int fd;
    } disks[MOST_DISKS];

    size_t count;
};

struct dirty *dirty_new(void)
{
    return calloc(1, sizeof(struct dirty));
}

/* Remembers the disk; false: too many of them. */
static bool remember(struct dirty *dirs, int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return false;
    for (size_t i = 0; i < dirs->count; i++) {
        if (dirs->disks[i].device == st.st_dev)
            return true;
    }
    if (dirs->count == MOST_DISKS)
        return false;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return false;
    dirs->disks[dirs->count].device = st.st_dev;
    dirs->disks[dirs->count++].fd = copy;
    return true;
}

int dirty_sync(struct dirty *dirs)
{
    int r = 0;

    for (size_t i = 0; dirs && i < dirs->count; i++) {
        if (syncfs(dirs->disks[i].fd) < 0 && r == 0)
            r = -errno;
        scope_close(&dirs->disks[i].fd);
    }
    free(dirs);
    return r;
}

/* Whether a rename over an old file never reaches the disk before the new content does: where it
 * may be synced later together with others. What was not there before has nothing to lose. */
static bool may_wait(const struct files_new *new)
{
    struct statfs fs;

    if (!new->replaces)
        return true;
    return fstatfs(new->fd, &fs) == 0 &&
           (fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC);
}

/* To free a file's blocks takes as long as a sync where the disk is told of each (mount option
 * discard): the client need not wait for it. Not of a large one, and not where room is scarce: who
 * writes again at once must not find the disk full for what is to be freed. */
static void hold_old(const struct files_call *call, struct files_new *new)
{
    struct stat st;
    struct statfs fs;

    if (!new->replaces || call->replaced >= 0 || fstatfs(new->fd, &fs) < 0 || fs.f_bsize <= 0 ||
        fs.f_bavail < HELD_ROOM / (uint64_t)fs.f_bsize)
        return;
    new->held = openat(new->dir, new->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (new->held >= 0 &&
        (fstat(new->held, &st) < 0 || !S_ISREG(st.st_mode) || st.st_blocks > HELD_BLOCKS))
        scope_close(&new->held);
}

int files_new_commit(struct files_call *call, struct files_new *new, struct dirty *dirs)
{
    bool later = dirs && remember(dirs, new->fd);
    int r = 0;

    if (!(later && may_wait(new)) && fsync(new->fd) < 0)
        r = -errno;
    if (r == 0)
        r = give_name(new);
    if (r == 0) {
        pthread_mutex_t *lock = lock_of(new);
        if (!dirs)
            hold_old(call, new);
        (void)pthread_mutex_lock(lock);
        r = put_in_place(new);
        (void)pthread_mutex_unlock(lock);
    }
    if (r == 0 && !later)
        r = files_sync_dir(new->dir);
    if (r == 0 && fstat(new->fd, &new->st) < 0)
        r = -errno;
    if (r == 0 && new->held >= 0)
        call->replaced = take_fd(&new->held);
    files_new_abort(new); /* what is left over: nothing, or what came out */
    return r;
}
