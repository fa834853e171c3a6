/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from a client into a file. Nothing of what is there changes before the whole body has come:
 * a client that leaves half-way has done nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"

enum {
    CHUNK = 32768,
    IN_MEMORY = 1 << 20, /* so much of what is appended needs no file */
    TRIES = 8,           /* against names that are swapped all the time */
};

/* The body, to its good end. */
static int take_body(struct files_call *call, int fd)
{
    char bytes[CHUNK];
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = body_read(call, bytes, sizeof(bytes))) != 0)
        r = n < 0 ? (int)n : files_write_all(fd, bytes, (size_t)n);
    return r;
}

/* Before the body, to spare the client its sending; what counts is asked again at the end. */
static int check_conditions(const struct files_message *m, bool is_there, const struct stat *st)
{
    if (m->if_match[0] && !(is_there && files_etag_is(m->if_match, st)))
        return -ECANCELED;
    if (m->if_none_match[0] && is_there && files_etag_is(m->if_none_match, st))
        return -ECANCELED;
    return 0;
}

void files_write(struct files_call *call)
{
    const struct files_message *m = call->m;
    struct files_new new;
    int r = files_new_begin(call, m->path, m->mode, m->flags & FILES_PARENTS, &new);

    if (r < 0) {
        answer_errno(call, r, m->path);
        return;
    }
    new.if_match = m->if_match;
    new.if_none_match = m->if_none_match;
    r = check_conditions(m, new.replaces, &new.old);
    if (r == 0)
        r = take_body(call, new.fd);
    if (r < 0)
        files_new_abort(&new);
    else
        r = files_new_commit(call, &new, NULL);
    if (r < 0)
        answer_errno(call, r, m->path);
    else
        answer_entry(call, new.replaces ? 200 : 201, m->path, &new.st, NULL);
}

/* --- appending --- */

/* A file without a name, for a body that is too large to keep. */
static int open_spool(struct files_call *call, int dir)
{
    int at = files_temp_dir(call, dir);
    char name[48];
    int fd = openat(at, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0)
        return fd;
    files_temp_name(name);
    fd = openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    ignore(unlinkat(at, name, 0)); /* it has no name from here on */
    return fd;
}

/* The file itself, made where it is missing; never one that could make us wait. */
static int open_end(const struct files_message *m, struct dir_entry *place, struct stat *ret,
                    bool *ret_made)
{
    const int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC;

    for (int tries = 0; tries < TRIES; tries++) {
        int r = place_follow(place, ret);
        if (r < 0)
            return r;
        *ret_made = r == 1;
        if (*ret_made && place_check_reserved(place) < 0)
            return -EBUSY;
        if (r == 0 && !S_ISREG(ret->st_mode))
            return S_ISDIR(ret->st_mode) ? -EISDIR : -ENXIO;
        if (check_conditions(m, r == 0, ret) < 0)
            return -ECANCELED;
        scoped_fd int fd =
            openat(place->dir, place->name, flags | (*ret_made ? O_CREAT | O_EXCL : 0), 0644);
        if (fd < 0 && (errno == ELOOP || errno == ENOENT || errno == EEXIST))
            continue; /* another is under this name by now */
        if (fd < 0 || fstat(fd, ret) < 0)
            return -errno;
        return S_ISREG(ret->st_mode) ? take_fd(&fd) : -ENXIO;
    }
    return -ESTALE;
}

static int copy_spool(int spool, int fd, off_t size)
{
    char bytes[CHUNK];

    for (off_t at = 0; at < size;) {
        ssize_t n = pread(spool, bytes, sizeof(bytes), at);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        int r = files_write_all(fd, bytes, (size_t)n);
        if (r < 0)
            return r;
        at += n;
    }
    return 0;
}

/* What has come: in memory, and if that was not all, in a file. */
struct tail {
    char *bytes;
    size_t n;
    int spool; /* -1 */
};

static int take_tail(struct files_call *call, int dir, struct tail *tail)
{
    ssize_t n = 0;

    tail->bytes = malloc(IN_MEMORY);
    if (!tail->bytes)
        return -ENOMEM;
    while (tail->n < IN_MEMORY &&
           (n = body_read(call, tail->bytes + tail->n, IN_MEMORY - tail->n)) > 0)
        tail->n += (size_t)n;
    if (n < 0 || tail->n < IN_MEMORY)
        return (int)(n < 0 ? n : 0);
    tail->spool = open_spool(call, dir);
    return tail->spool < 0 ? tail->spool : take_body(call, tail->spool);
}

/* All of it, or what was there before, if nobody else writes. */
static int add_tail(int fd, const struct tail *tail)
{
    struct stat before;
    struct stat after;
    struct stat spooled = {0};

    if (fstat(fd, &before) < 0 || (tail->spool >= 0 && fstat(tail->spool, &spooled) < 0))
        return -errno;
    int r = files_write_all(fd, tail->bytes, tail->n);
    if (r == 0 && tail->spool >= 0)
        r = copy_spool(tail->spool, fd, spooled.st_size);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r < 0 && fstat(fd, &after) == 0 && after.st_size > before.st_size &&
        after.st_size - before.st_size <= (off_t)tail->n + spooled.st_size)
        ignore(ftruncate(fd, before.st_size) == 0); /* as well as it goes */
    return r;
}

static int append(struct files_call *call, struct dir_entry *place, struct stat *ret,
                  bool *ret_made)
{
    struct tail tail = {.spool = -1};
    int r = take_tail(call, place->dir, &tail);

    if (r == 0) {
        scoped_fd int fd = open_end(call->m, place, ret, ret_made);
        r = fd < 0 ? fd : add_tail(fd, &tail);
        if (r == 0 && *ret_made)
            r = files_sync_dir(place->dir);
        if (r == 0 && fstat(fd, ret) < 0)
            r = -errno;
    }
    free(tail.bytes);
    scope_close(&tail.spool);
    return r;
}

/* Whether it could be appended to at all: asked before the client sends it. */
static int look_ahead(const struct files_message *m, struct dir_entry *place)
{
    struct stat st;
    int r = place_follow(place, &st);
    bool is_there = r == 0;

    if (r < 0)
        return r;
    if (!is_there && place_check_reserved(place) < 0)
        return -EBUSY;
    if (is_there && !S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -ENXIO;
    if (is_there && faccessat(place->dir, place->name, W_OK, 0) < 0)
        return -errno;
    return check_conditions(m, is_there, &st);
}

void files_append(struct files_call *call)
{
    const struct files_message *m = call->m;
    scoped_place struct dir_entry place = {.dir = -1};
    bool made = false;
    struct stat st;
    int r =
        m->path[1] == '\0' ? -EISDIR : place_open(m->path, m->flags & FILES_PARENTS, true, &place);

    if (r == 0)
        r = look_ahead(m, &place);
    if (r == 0)
        r = append(call, &place, &st, &made);
    if (r < 0)
        answer_errno(call, r, m->path);
    else
        answer_entry(call, made ? 201 : 200, m->path, &st, NULL);
}
