/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/content.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/attributes.h"
#include "sys/path.h"

enum {
    PIECE = 256 << 10,
    SMALL = 64 << 10,   /* not worth looking for holes */
    MOST_NAMES = 65536, /* of attributes: the kernel's limit */
};

/* --- opening --- */

struct by_fd {
    char path[40];
};

/* The name of an open file that calls without a descriptor take. */
static struct by_fd name_of(int fd)
{
    struct by_fd name;

    snprintf(name.path, sizeof(name.path), "/proc/self/fd/%d", fd);
    return name;
}

static int open_known(int root, const char *path, struct stat *ret)
{
    int fd = path_open_beneath(root, path, O_PATH, 1);

    if (fd >= 0 && fstat(fd, ret) < 0) {
        int r = -errno;
        (void)close(fd);
        return r;
    }
    return fd;
}

/* Opens again what O_PATH has looked at: nothing can have come in its place. */
static int reopen(int fd, int flags)
{
    int again = open(name_of(fd).path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    return again < 0 ? -errno : again;
}

int content_open(int root, const char *path)
{
    struct stat st;
    scoped_fd int fd = open_known(root, path, &st);

    if (fd < 0)
        return fd;
    return S_ISREG(st.st_mode) ? reopen(fd, O_RDONLY) : -ESTALE;
}

static int open_own(int root, const char *path, int flags)
{
    struct stat st;
    scoped_fd int fd = open_known(root, path, &st);

    if (fd < 0)
        return fd;
    if (!S_ISREG(st.st_mode))
        return -ESTALE;
    int again = reopen(fd, flags);
    if (again != -EACCES || chmod(name_of(fd).path, (st.st_mode & 07777) | S_IRUSR | S_IWUSR) < 0)
        return again;
    again = reopen(fd, flags);
    if (chmod(name_of(fd).path, st.st_mode & 07777) < 0 && again >= 0) {
        (void)close(again);
        return -EACCES;
    }
    return again;
}

int content_open_own(int root, const char *path)
{
    return open_own(root, path, O_RDONLY);
}

int content_target(int root, const char *path, char *target)
{
    struct stat st;
    scoped_fd int fd = open_known(root, path, &st);

    if (fd < 0)
        return fd;
    ssize_t n = S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, PLAN_MAX_PATH + 1) : -1;
    if (n < 0)
        return S_ISLNK(st.st_mode) ? -errno : -ESTALE;
    if (n > PLAN_MAX_PATH)
        return -ENAMETOOLONG;
    target[n] = '\0';
    return (int)n;
}

/* --- hashing --- */

static int hash_all(EVP_MD_CTX *context, int fd, uint64_t size, unsigned char *hash)
{
    char *piece = malloc(PIECE);
    uint64_t at = 0;
    int r = piece && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;

    while (r == 0) {
        ssize_t got = pread(fd, piece, PIECE, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            r = got < 0 ? -errno : 0;
            break;
        }
        at += (uint64_t)got;
        if (at > size)
            r = -ESTALE;
        else if (EVP_DigestUpdate(context, piece, (size_t)got) != 1)
            r = -EIO;
    }
    free(piece);
    if (r == 0 && at != size)
        r = -ESTALE;
    if (r == 0 && EVP_DigestFinal_ex(context, hash, NULL) != 1)
        r = -EIO;
    return r;
}

/* Bytes of the file that lie in no block, until there are more than `most`. A file system that
 * does not tell has none. */
static uint64_t count_holes(int fd, uint64_t size, uint64_t most)
{
    uint64_t holes = 0;
    uint64_t at = 0;

    while (at < size && holes <= most) {
        off_t hole = lseek(fd, (off_t)at, SEEK_HOLE);
        if (hole < 0 || (uint64_t)hole >= size)
            break;
        off_t data = lseek(fd, hole, SEEK_DATA);
        at = data < hole || (uint64_t)data > size ? size : (uint64_t)data;
        holes += at - (uint64_t)hole;
    }
    return holes;
}

int content_hash(int fd, uint64_t size, uint64_t *holes, unsigned char hash[PLAN_HASH])
{
    if (size >> CONTENT_LARGEST)
        return -EFBIG;
    uint64_t empty = size > SMALL ? count_holes(fd, size, *holes) : 0;
    if (empty > *holes)
        return -EFBIG;
    *holes -= empty;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!context)
        return -ENOMEM;
    int r = hash_all(context, fd, size, hash);
    EVP_MD_CTX_free(context);
    return r;
}

/* --- attributes --- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_ours(const char *name)
{
    return begins(name, "user.overlay.") || begins(name, "trusted.overlay.");
}

/* The names, one behind the other; how many bytes, or -errno. */
static ssize_t list_names(const char *path, char **ret)
{
    char *names = malloc(MOST_NAMES);

    if (!names)
        return -ENOMEM;
    ssize_t n = listxattr(path, names, MOST_NAMES);
    if (n < 0) {
        n = errno == EOPNOTSUPP ? 0 : -errno;
        if (n < 0) {
            free(names);
            return n;
        }
    }
    *ret = names;
    return n;
}

/* Each user.* attribute of `a` is one of `b`, and the same: 1, 0, -errno. */
static int has_all(const char *a, const char *b, size_t *count)
{
    char *names = NULL;
    ssize_t n = list_names(a, &names);
    char *values = n < 0 ? NULL : malloc(2L * MOST_NAMES);
    int same = n < 0 ? (int)n : values ? 1 : -ENOMEM;

    *count = 0;
    for (const char *name = names; same == 1 && name < names + n; name += strlen(name) + 1) {
        if (!begins(name, "user.") || is_ours(name))
            continue;
        ++*count;
        ssize_t x = getxattr(a, name, values, MOST_NAMES);
        ssize_t y = getxattr(b, name, values + MOST_NAMES, MOST_NAMES);
        same = x >= 0 && x == y && memcmp(values, values + MOST_NAMES, (size_t)x) == 0;
    }
    free(values);
    free(names);
    return same;
}

int content_same_attributes(int root_a, const char *a, int root_b, const char *b)
{
    struct stat st;
    scoped_fd int fd_a = open_known(root_a, a, &st);
    scoped_fd int fd_b = open_known(root_b, b, &st);
    size_t count_a = 0;
    size_t count_b = 0;

    if (fd_a < 0 || fd_b < 0)
        return fd_a < 0 ? fd_a : fd_b;
    int same = has_all(name_of(fd_a).path, name_of(fd_b).path, &count_a);
    if (same != 1)
        return same;
    same = has_all(name_of(fd_b).path, name_of(fd_a).path, &count_b);
    return same == 1 ? count_a == count_b : same;
}

int content_attributes(int root, const char *path, struct buf *b)
{
    struct stat st;
    scoped_fd int fd = open_known(root, path, &st);

    if (fd < 0)
        return fd;
    int r = attributes_read(fd, name_of(fd).path, b);
    if (r != -EACCES || chmod(name_of(fd).path, (st.st_mode & 07777) | S_IRUSR) < 0)
        return r;
    b->n = 0;
    r = attributes_read(fd, name_of(fd).path, b);
    return chmod(name_of(fd).path, st.st_mode & 07777) < 0 ? -errno : r;
}

static bool must_go(const char *path, const char *name)
{
    if (is_ours(name) || begins(name, "security.") || begins(name, "trusted.") ||
        begins(name, "system.posix_acl_"))
        return true;
    return getxattr(path, name, NULL, 0) > ATTRIBUTE_LARGEST;
}

/* A security module of the host labels files itself, and takes no label off. */
static bool may_stay(const char *name)
{
    return begins(name, "security.") && strcmp(name, "security.capability") != 0;
}

static int strip_names(const char *path, const char *names, ssize_t n, mode_t mode)
{
    int r = 0;
    bool lifted = false;

    for (const char *name = names; r == 0 && name < names + n; name += strlen(name) + 1) {
        if (!must_go(path, name))
            continue;
        if (!(mode & S_IWUSR) && !lifted && !(lifted = chmod(path, mode | S_IWUSR) == 0))
            r = -errno;
        if (r == 0 && removexattr(path, name) < 0 && errno != ENODATA && !may_stay(name))
            r = -errno;
    }
    if (lifted && chmod(path, mode) < 0 && r == 0)
        r = -errno;
    return r;
}

int content_strip(int root, const char *path)
{
    struct stat st;
    scoped_fd int fd = open_known(root, path, &st);
    char *names = NULL;

    if (fd < 0)
        return fd;
    ssize_t n = list_names(name_of(fd).path, &names);
    int r = n < 0 ? (int)n : strip_names(name_of(fd).path, names, n, st.st_mode & 07777);
    free(names);
    return r;
}

int content_fill(int root, const char *path, int base_root, const char *base)
{
    scoped_fd int from = content_open(base_root, base);
    scoped_fd int to = from < 0 ? from : open_own(root, path, O_WRONLY);
    struct stat st;
    char piece[16384];
    off_t at = 0;
    ssize_t got = 0;

    if (from < 0 || to < 0)
        return from < 0 ? from : to;
    if (fstat(to, &st) < 0)
        return -errno;
    while ((got = pread(from, piece, sizeof(piece), at)) > 0) {
        if (pwrite(to, piece, (size_t)got, at) != got)
            return errno ? -errno : -EIO;
        at += got;
    }
    if (got < 0)
        return -errno;
    if (futimens(to, (const struct timespec[2]){st.st_atim, st.st_mtim}) < 0)
        return -errno;
    /* By another name of it that may have been done already. */
    return fremovexattr(to, "trusted.overlay.metacopy") < 0 && errno != ENODATA ? -errno : 0;
}
