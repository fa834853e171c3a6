/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/input.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    TERMINAL_CHUNK = 4096,
    FREE_EVERY = 1 << 20,
    PAGE = 4096,
};

/* The size first: whoever is killed in between has passed everything, and says so below. */
static int empty(struct backlog *b)
{
    if (ftruncate(b->fd, 0) < 0 || lseek(b->fd, 0, SEEK_SET) < 0)
        return -errno;
    b->at = b->end = b->freed = 0;
    return 0;
}

int backlog_open(struct backlog *b, int *fd)
{
    struct stat st;

    *b = (struct backlog){.fd = take_fd(fd)};
    off_t at = lseek(b->fd, 0, SEEK_CUR);
    if (at < 0 || fstat(b->fd, &st) < 0) {
        int r = -errno;
        backlog_close(b);
        return r;
    }
    b->at = (uint64_t)at;
    b->end = (uint64_t)st.st_size;
    return b->at >= b->end && b->at > 0 ? empty(b) : 0;
}

void backlog_close(struct backlog *b)
{
    scope_close(&b->fd);
    b->at = b->end = b->freed = 0;
}

int backlog_add(struct backlog *b, const char *bytes, size_t n)
{
    size_t done = 0;

    if (b->fd < 0)
        return -EBADF;
    while (done < n) {
        ssize_t w = pwrite(b->fd, bytes + done, n - done, (off_t)(b->end + done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            int r = w < 0 ? -errno : -ENOSPC;
            ignore(ftruncate(b->fd, (off_t)b->end) == 0);
            return r;
        }
        done += (size_t)w;
    }
    b->end += n;
    return 0;
}

static ssize_t copy(const struct backlog *b, int to)
{
    char bytes[TERMINAL_CHUNK];
    ssize_t n = pread(b->fd, bytes, sizeof(bytes), (off_t)b->at);

    if (n > 0)
        n = write(to, bytes, (size_t)n);
    if (n > 0 && lseek(b->fd, (off_t)b->at + n, SEEK_SET) < 0)
        return -errno;
    return n < 0 ? -errno : n;
}

/* Pages in the pipe are the file's own: those that may be there still are left as they are. */
static void free_passed(struct backlog *b, int to)
{
    int inside = 0;

    if (b->at - b->freed < FREE_EVERY || ioctl(to, FIONREAD, &inside) < 0 ||
        (uint64_t)inside > b->at)
        return;
    uint64_t passed = (b->at - (uint64_t)inside) / PAGE * PAGE;
    if (passed < b->freed + FREE_EVERY)
        return;
    (void)fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)passed);
    b->freed = passed;
}

ssize_t backlog_move(struct backlog *b, int to, bool terminal)
{
    ssize_t n =
        terminal ? copy(b, to) : splice(b->fd, NULL, to, NULL, b->end - b->at, SPLICE_F_NONBLOCK);

    if (n < 0)
        return terminal ? n : -errno;
    if (n == 0)
        return -EIO; /* it is shorter than was written */
    b->at += (uint64_t)n;
    if (b->at < b->end) {
        free_passed(b, to);
        return n;
    }
    int r = empty(b);
    return r < 0 ? r : n;
}
