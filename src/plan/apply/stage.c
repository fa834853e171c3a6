/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/apply/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/attributes.h"
#include "plan/core/layout.h"
#include "plan/core/steps.h"

enum {
    PIECE = 1 << 18,
    MOST_XATTRS = 1 << 16,
    OWNER_ALL = 0700,
};

/* Directories of the layer have the modes the command gave them; what is renamed out of them needs
 * more. What the plan makes of them does not depend on it. */
static int open_up(struct reach *dir, const char *path)
{
    char above[PLAN_MAX_PATH + 8];

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        struct stat st;
        memcpy(above, path, (size_t)(slash - path));
        above[slash - path] = '\0';
        scoped_fd int fd = reach_open(dir, above, O_PATH | O_DIRECTORY);
        if (fd < 0)
            return fd;
        if (fstat(fd, &st) < 0)
            return -errno;
        int r = (st.st_mode & OWNER_ALL) == OWNER_ALL
                    ? 0
                    : reach_chmod(fd, (st.st_mode & 07777) | OWNER_ALL);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Its parent, which is opened up when it is a new one. */
static int open_parent(struct reach *dir, const char *path)
{
    const char *name;
    size_t n = strlen(dir->path);

    if (dir->parent >= 0 && n > 0 && strncmp(dir->path, path, n) == 0 && path[n] == '/' &&
        !strchr(path + n + 1, '/'))
        return 0;
    int r = open_up(dir, path);
    if (r < 0)
        return r;
    r = reach_parent(dir, path, &name);
    return r < 0 ? r : 0;
}

static int open_staged(struct reach *dir, const char *path)
{
    int r = open_parent(dir, path);

    if (r < 0)
        return r;
    int fd = reach_open(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd != -EACCES)
        return fd;
    scoped_fd int hidden = reach_open(dir, path, O_PATH);
    if (hidden < 0)
        return hidden;
    r = reach_chmod(hidden, 0600); /* it gets the plan's mode when it has been read */
    return r < 0 ? r : reach_open(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
}

static int hash_file(int fd, unsigned char hash[PLAN_HASH], uint64_t *ret_size)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    char *piece = malloc(PIECE);
    bool good = context && piece && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    int r = good ? 0 : -ENOMEM;
    ssize_t got = 0;

    *ret_size = 0;
    while (r == 0 && (got = read(fd, piece, PIECE)) > 0) {
        *ret_size += (uint64_t)got;
        if (EVP_DigestUpdate(context, piece, (size_t)got) != 1)
            r = -ENOMEM;
    }
    if (got < 0)
        r = -errno;
    if (r == 0 && EVP_DigestFinal_ex(context, hash, NULL) != 1)
        r = -ENOMEM;
    EVP_MD_CTX_free(context);
    free(piece);
    return r;
}

/* A lease is granted only while nobody has the file open for writing, and is lost when somebody
 * opens it. */
static int compare(int fd, const struct plan_operation *o, struct err *err)
{
    unsigned char hash[PLAN_HASH];
    uint64_t size;

    if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0 && errno == EAGAIN)
        return err_set(err, ERR_CONFLICT, 0,
                       "a program has the content planned for '%s' open for writing", o->path);
    if (fcntl(fd, F_GETLEASE) != F_RDLCK)
        return err_set(err, ERR_KERNEL, errno,
                       "make sure that no program writes the content planned for '%s'", o->path);
    int r = hash_file(fd, hash, &size);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "read the content planned for '%s'", o->path);
    if (size != o->size || memcmp(hash, o->hash, PLAN_HASH) != 0)
        return err_set(err, ERR_CONFLICT, 0,
                       "the content planned for '%s' is not what the plan says", o->path);
    if (fcntl(fd, F_GETLEASE) != F_RDLCK)
        return err_set(err, ERR_CONFLICT, 0,
                       "a program has opened the content planned for '%s' for writing", o->path);
    return 0;
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Marks of the layer, and rights beside the mode. */
static int strip(int fd, const struct plan_operation *o, struct err *err)
{
    char *names = malloc(MOST_XATTRS);
    ssize_t n = names ? flistxattr(fd, names, MOST_XATTRS) : -1;
    int r = 0;

    if (!names || (n < 0 && errno != EOPNOTSUPP))
        r = err_set(err, ERR_IO, errno, "look at the attributes of what is planned for '%s'",
                    o->path);
    for (ssize_t at = 0; r == 0 && at < n; at += (ssize_t)strlen(names + at) + 1) {
        const char *name = names + at;
        if (strcmp(name, "security.capability") == 0)
            r = err_set(err, ERR_DENIED, 0, "what is planned for '%s' grants capabilities",
                        o->path);
        else if ((has_prefix(name, "user.overlay.") || has_prefix(name, "system.posix_acl_")) &&
                 fremovexattr(fd, name) < 0 && errno != ENODATA)
            r = err_set(err, ERR_IO, errno, "take '%s' from what is planned for '%s'", name,
                        o->path);
    }
    free(names);
    return r;
}

/* No others than the plan says: they come into the tree with the content. */
static int compare_attributes(int fd, const struct plan_operation *o, struct err *err)
{
    scoped_buf struct buf text = {0};

    buf_init(&text, ATTRIBUTES_LARGEST);
    int r = attributes_read(fd, NULL, &text);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "read the attributes of what is planned for '%s'", o->path);
    size_t n = o->attributes ? strlen(o->attributes) : 0;
    if (text.n != n || (n > 0 && memcmp(text.p, o->attributes, n) != 0))
        return err_set(err, ERR_CONFLICT, 0,
                       "the attributes of what is planned for '%s' are not what the plan says, or "
                       "an older Carrel made the plan; make a new plan",
                       o->path);
    return 0;
}

int stage_prove(struct reach *dir, const struct plan_operation *operation, const char *content,
                struct err *err)
{
    char path[PLAN_MAX_PATH + 8];
    struct stat st;

    snprintf(path, sizeof(path), "upper/%s", content);
    scoped_fd int fd = open_staged(dir, path);
    if (fd < 0)
        return err_set(err, fd == -ENOENT ? ERR_CONFLICT : ERR_IO, -fd,
                       "open the content planned for '%s'", operation->path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFLICT, 0, "what is planned for '%s' is not a file",
                       operation->path);
    if (compare(fd, operation, err) < 0 || strip(fd, operation, err) < 0 ||
        compare_attributes(fd, operation, err) < 0)
        return -1;
    if ((st.st_mode & 07777) == (operation->mode & 0777))
        return 0;
    if (fchmod(fd, operation->mode & 0777) < 0)
        return err_set(err, ERR_IO, errno, "give '%s' its mode", operation->path);
    return 0;
}

/* The layer may have a name of its own for it: that one is taken, so that no name is left over. */
static int make_link(struct reach *dir, const struct plan_operation *o, const char *home)
{
    char own[PLAN_MAX_PATH + 8];
    char source[PLAN_MAX_PATH + 8];
    const char *name;
    struct stat mine;
    struct stat theirs;

    snprintf(own, sizeof(own), "upper/%s", o->path);
    snprintf(source, sizeof(source), "upper/%s", o->link);
    int r = open_parent(dir, source);
    if (r < 0 || (r = reach_stat(dir, source, &theirs)) < 0)
        return r;
    if (open_parent(dir, own) == 0 && reach_stat(dir, own, &mine) == 0 &&
        mine.st_ino == theirs.st_ino)
        return reach_rename(dir, own, dir, home, RENAME_NOREPLACE);
    int parent = reach_parent(dir, source, &name);
    if (parent < 0)
        return parent;
    return linkat(parent, name, dir->top, home, 0) < 0 ? -errno : 0;
}

static int make_symlink(const struct reach *dir, const struct plan_operation *o, const char *home)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = o->mtime_ns / 1000000000, .tv_nsec = o->mtime_ns % 1000000000}};

    if (symlinkat(o->target, dir->top, home) < 0)
        return -errno;
    if (o->mtime_ns > 0) /* a time is not worth a failure */
        ignore(utimensat(dir->top, home, times, AT_SYMLINK_NOFOLLOW));
    return 0;
}

static int make_directory(const struct reach *dir, const struct plan_operation *o, const char *home)
{
    if (mkdirat(dir->top, home, OWNER_ALL) < 0)
        return -errno;
    if (!o->attributes)
        return 0;
    scoped_fd int fd = openat(dir->top, home, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : attributes_set(fd, o->attributes);
}

int stage_make(struct reach *dir, const struct plan *plan, size_t operation, struct err *err)
{
    const struct plan_operation *o = &plan->operations[operation];
    char home[64];
    int r;

    ignore(stage_unmake(dir, plan, operation));
    snprintf(home, sizeof(home), "slots/%zu", operation);
    if (o->kind == PLAN_MKDIR)
        r = make_directory(dir, o, home);
    else if (o->kind == PLAN_SYMLINK)
        r = make_symlink(dir, o, home);
    else
        r = make_link(dir, o, home);
    return r < 0 ? err_set(err, ERR_IO, -r, "make ready '%s'", o->path) : 0;
}

uint64_t stage_unmake(struct reach *dir, const struct plan *plan, size_t operation)
{
    char home[64];
    struct stat st;

    if (!steps_is_made(&plan->operations[operation]))
        return 0;
    snprintf(home, sizeof(home), "slots/%zu", operation);
    if (fstatat(dir->top, home, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    /* A directory that is not empty is not ours to remove. */
    int r = unlinkat(dir->top, home, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
    return r < 0 ? 0 : st.st_ino;
}
