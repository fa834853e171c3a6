/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    POLITE_WRITE = 4096
}; /* a pipe that polls writable takes this much at once */

void stream_init(struct stream *s)
{
    memset(s, 0, offsetof(struct stream, data));
    s->from = s->to = -1;
}

void stream_clear(struct stream *s)
{
    if (s->own_from)
        scope_close(&s->from);
    if (s->own_to)
        scope_close(&s->to);
    s->from = s->to = -1;
    buf_clear(&s->captured);
}

bool stream_is_terminal(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 2);
}

bool stream_can_pass(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return false;
    return S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

int stream_check(int fd, const char *name, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_set(err, ERR_INVALID, errno, "standard %s", name);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_DENIED, 0,
                       "standard %s is a directory of the host, which would be open inside", name);
    return 0;
}

/* A terminal is opened anew, for a file description of our own that may be non-blocking; a socket
 * has a flag for it; a pipe that polls writable takes a page. */
void stream_set_sink(struct stream *s, int fd)
{
    char path[32];
    struct stat st;

    s->to = fd;
    if (fstat(fd, &st) < 0)
        return;
    s->socket = S_ISSOCK(st.st_mode);
    s->polite = S_ISFIFO(st.st_mode);
    if (!S_ISCHR(st.st_mode))
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0) {
        s->to = own;
        s->own_to = true;
    }
}

bool stream_wants_read(const struct stream *s)
{
    return s->from >= 0 && s->at == s->n && s->copied == 0;
}

bool stream_wants_write(const struct stream *s)
{
    return (s->at < s->n || s->copied > 0) && s->to >= 0;
}

bool stream_is_done(const struct stream *s)
{
    return s->from < 0 && (s->at == s->n || s->to < 0) && s->copied == 0;
}

static void end_reading(struct stream *s)
{
    if (s->own_from)
        (void)close(s->from);
    s->from = -1;
}

static size_t within_budget(struct budget *budget, size_t n)
{
    if (!budget)
        return n;
    if (n > budget->left) {
        n = budget->left;
        budget->exceeded = true;
    }
    budget->left -= n;
    return n;
}

/* A pipe of one page polls writable only when it is empty: that is how we see what was read. */
int stream_copy_pipe(struct stream *s, int from, int to)
{
    if (fcntl(to, F_SETPIPE_SZ, 4096) < 0)
        return -errno;
    s->from = from;
    s->to = to;
    s->own_to = true;
    s->copying = true;
    return 0;
}

void stream_settle(struct stream *s, size_t unread)
{
    size_t left = s->copied > unread ? s->copied - unread : 0;

    s->copied = 0;
    while (left > 0) {
        ssize_t got = read(s->from, s->data, left < STREAM_CHUNK ? left : STREAM_CHUNK);
        if (got <= 0)
            return;
        left -= (size_t)got;
    }
}

static void copy_page(struct stream *s)
{
    ssize_t n = tee(s->from, s->to, 4096, SPLICE_F_NONBLOCK);

    if (n > 0)
        s->copied = (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        end_reading(s);
}

void stream_read(struct stream *s, struct budget *budget, bool last)
{
    if (s->copying) {
        copy_page(s);
        return;
    }
    ssize_t got = read(s->from, s->data, STREAM_CHUNK);

    if (got < 0 && (errno == EINTR || (errno == EAGAIN && !last)))
        return;
    if (got <= 0) { /* EIO is how a terminal says that its last user has gone */
        end_reading(s);
        return;
    }
    s->taken += (size_t)got;
    size_t n = within_budget(budget, (size_t)got);
    if (s->capturing) {
        buf_add(&s->captured, s->data, n);
        if (s->captured.failed && budget)
            budget->exceeded = true;
        return;
    }
    s->at = 0;
    s->n = n;
}

/* One write that cannot block: bytes written, or -1 with errno set. */
static ssize_t write_some(const struct stream *s)
{
    const char *from = s->data + s->at;
    size_t n = s->n - s->at;

    if (s->socket)
        return send(s->to, from, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return write(s->to, from, s->polite && n > POLITE_WRITE ? POLITE_WRITE : n);
}

static bool takes_more(const struct stream *s)
{
    struct pollfd ready = {.fd = s->to, .events = POLLOUT};

    return s->at < s->n && poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT);
}

void stream_write(struct stream *s)
{
    if (s->copying) {
        stream_settle(s, 0); /* it is empty again */
        return;
    }
    do {
        ssize_t wrote = write_some(s);
        if (wrote < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (wrote < 0) {
            s->write_errno = errno == EPIPE || errno == ECONNRESET ? 0 : errno;
            /* The reader has gone: the writer must learn it, so our end closes too. */
            if (s->own_to)
                (void)close(s->to);
            s->to = -1;
            s->at = s->n = 0;
            if (s->from >= 0)
                end_reading(s);
            return;
        }
        s->at += (size_t)wrote;
    } while (takes_more(s));
}
