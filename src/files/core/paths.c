/* SPDX-License-Identifier: Apache-2.0 */
#include "files/core/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/names.h"
#include "sys/path.h"

enum {
    MOST_LINKS = 40 /* as the kernel's own */
};

/* --- names Carrel provides --- */

bool files_is_reserved_name(const char *name)
{
    return !strchr(name, '/') && name_kind(name) != NAME_FREE;
}

int files_check_reserved(const char *path)
{
    return path[1] == '\0' || files_is_reserved_name(path + 1) ? -EBUSY : 0;
}

bool files_is_root(int dir)
{
    struct stat here;
    struct stat root;

    return fstat(dir, &here) == 0 && stat("/", &root) == 0 && here.st_dev == root.st_dev &&
           here.st_ino == root.st_ino;
}

int place_check_reserved(const struct dir_entry *place)
{
    return files_is_reserved_name(place->name) && files_is_root(place->dir) ? -EBUSY : 0;
}

/* --- opening --- */

/* For its entries to be read and synced; where that is not allowed, at least to act in. */
static int open_dir(int at, const char *path)
{
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 && errno == EACCES)
        fd = openat(at, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int files_sync_dir(int dir)
{
    if (fsync(dir) == 0)
        return 0;
    if (errno == EINVAL || errno == EROFS)
        return 0; /* a file system that has nothing to sync */
    if (errno != EBADF)
        return -errno;
    /* O_PATH: one may write to this directory and not read it. Anything on its disk will do. */
    scoped_fd int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        return syncfs(fd) < 0 ? -errno : 0;
    sync();
    return 0;
}

int files_mkdirat(int at, const char *name, mode_t mode)
{
    int r = files_room_take(-1, FILES_BLOCK);

    if (r == 0)
        return mkdirat(at, name, mode);
    errno = -r;
    return -1;
}

static int make_dir(int at, const char *name, bool sync)
{
    if (files_is_reserved_name(name) && files_is_root(at))
        return -EBUSY;
    if (files_mkdirat(at, name, 0755) < 0)
        return errno == EEXIST ? 0 : -errno; /* somebody else has just made it */
    return sync ? files_sync_dir(at) : 0;
}

int files_next_name(const char **rest, char name[256])
{
    size_t n = strcspn(*rest, "/");

    if (n >= 256)
        return -ENAMETOOLONG;
    memcpy(name, *rest, n);
    name[n] = '\0';
    *rest += n + ((*rest)[n] == '/');
    return 0;
}

/* Every directory of `path`, one by one; the last is handed out. */
static int open_parents(const char *path, bool sync)
{
    scoped_fd int at = open_dir(AT_FDCWD, "/");
    char name[256];

    for (const char *rest = path + 1; at >= 0 && *rest;) {
        if (files_next_name(&rest, name) < 0)
            return -ENAMETOOLONG;
        int next = open_dir(at, name);
        if (next == -ENOENT) {
            int r = make_dir(at, name, sync);
            next = r < 0 ? r : open_dir(at, name);
        }
        scope_close(&at);
        at = next;
    }
    return take_fd(&at);
}

/* Whether a name, once in a path, means a directory that is there already. */

int place_open(const char *path, bool parents, bool sync, struct dir_entry *ret)
{
    const char *slash = strrchr(path, '/');
    char above[FILES_PATH];

    if (!slash || slash[1] == '\0')
        return -EBUSY;
    size_t n = (size_t)(slash - path);
    if (strlen(slash + 1) >= sizeof(ret->name))
        return -ENAMETOOLONG;
    if (n >= sizeof(above))
        return -ENAMETOOLONG;
    memcpy(above, path, n);
    above[n] = '\0';
    int dir = open_dir(AT_FDCWD, n == 0 ? "/" : above);
    if (dir == -ENOENT && parents)
        dir = open_parents(above, sync);
    if (dir < 0)
        return dir;
    ret->dir = dir;
    memcpy(ret->name, slash + 1, strlen(slash + 1) + 1);
    return 0;
}

void place_close(struct dir_entry *place)
{
    scope_close(&place->dir);
}

ssize_t files_read_link(int dir, const char *name, char target[FILES_PATH])
{
    ssize_t n = readlinkat(dir, name, target, FILES_PATH);

    if (n < 0)
        return -errno;
    if (n == FILES_PATH)
        return -ENAMETOOLONG;
    target[n] = '\0';
    return n;
}

/* One link further. What it says ends in a name, or in a directory that is there. */
static int follow_one(struct dir_entry *place)
{
    char target[FILES_PATH];
    ssize_t n = files_read_link(place->dir, place->name, target);

    if (n < 0)
        return (int)n;
    char *slash = strrchr(target, '/');
    const char *name = slash ? slash + 1 : target;
    size_t length = strlen(name);
    if (length >= sizeof(place->name))
        return -ENAMETOOLONG;
    if (name[0] == '\0' || path_is_dots(name)) {
        struct stat st;
        return fstatat(place->dir, target, &st, 0) < 0 ? -errno : -EISDIR;
    }
    char last[sizeof(place->name)];
    memcpy(last, name, length + 1);
    if (slash) {
        slash[slash == target] = '\0'; /* keeps the slash of a path right below the root */
        int dir = open_dir(place->dir, target);
        if (dir < 0)
            return dir;
        scope_close(&place->dir);
        place->dir = dir;
    }
    memcpy(place->name, last, length + 1);
    return 0;
}

int place_follow(struct dir_entry *place, struct stat *ret)
{
    for (int links = 0; links <= MOST_LINKS; links++) {
        if (fstatat(place->dir, place->name, ret, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 1 : -errno;
        if (!S_ISLNK(ret->st_mode))
            return 0;
        int r = follow_one(place);
        if (r < 0 && r != -EINVAL) /* EINVAL: it is no link any more */
            return r;
    }
    return -ELOOP;
}

int files_open(const char *path, bool links, struct stat *ret)
{
    int nofollow = links ? 0 : O_NOFOLLOW;
    struct stat st;

    /* Looked at first, as already the opening of a pipe or device can be felt. */
    if (fstatat(AT_FDCWD, path, &st, links ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return S_ISLNK(st.st_mode) ? -ELOOP : -ENXIO;
    scoped_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | nofollow);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return -ENXIO;
    *ret = st;
    return take_fd(&fd);
}

/* --- mounts and unfinished things --- */

void files_temp_name(char name[48])
{
    uint64_t random[2] = {0, 0};

    (void)!getrandom(random, sizeof(random), 0); /* so few bytes are never refused */
    (void)snprintf(name, 48, FILES_TEMP "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}

int files_temp_dir(const struct files_call *call, int dir)
{
    return call->hidden >= 0 && path_same_mount(call->hidden, dir) ? call->hidden : dir;
}

int files_write_all(int fd, const void *bytes, size_t n)
{
    int r = files_room_take(fd, n);

    return r < 0 ? r : fd_write_all(fd, bytes, n);
}

/* --- etags --- */

static uint64_t nanoseconds(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000U + (uint64_t)t->tv_nsec;
}

/* Behind the digits of the number; printf would take a large part of the time of a list. */
static char *hex(char *at, uint64_t number)
{
    unsigned digits = number ? (67 - (unsigned)__builtin_clzll(number)) / 4 : 1;

    for (unsigned i = digits; i-- > 0;)
        *at++ = "0123456789abcdef"[number >> (4 * i) & 15];
    return at;
}

void files_etag(const struct stat *st, char etag[FILES_ETAG])
{
    /* The device is mixed into the inode: two mounts may have the same numbers. */
    uint64_t identity = (uint64_t)st->st_ino ^ (uint64_t)st->st_dev * 0x9e3779b97f4a7c15U;

    const uint64_t parts[] = {identity, (uint64_t)st->st_size, nanoseconds(&st->st_mtim),
                              nanoseconds(&st->st_ctim)};
    char *at = etag;

    *at++ = '"';
    for (size_t i = 0; i < 4; i++) {
        if (i > 0)
            *at++ = '-';
        at = hex(at, parts[i]);
    }
    *at++ = '"';
    *at = '\0';
}

bool files_etag_is(const char *etag, const struct stat *st)
{
    char own[FILES_ETAG];

    if (strcmp(etag, "*") == 0)
        return true;
    files_etag(st, own);
    return strcmp(strncmp(etag, "W/", 2) == 0 ? etag + 2 : etag, own) == 0;
}

void answer_entry(struct files_call *call, unsigned status, const char *path, const struct stat *st,
                  const char *target)
{
    struct emit e;

    emit_begin(&e, call, false, FILES_TYPE_JSON);
    emit_entry(&e, path, st, target);
    struct files_head head = {
        .status = status, .type = FILES_TYPE_JSON, .size = e.b.n, .mtime_ms = files_mtime_ms(st)};
    if (S_ISREG(st->st_mode))
        files_etag(st, head.etag);
    if (e.b.failed)
        call->gone = true;
    else
        (void)answer_whole(call, &head, e.b.p);
    buf_clear(&e.b);
}
