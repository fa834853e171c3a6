/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/fds.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* All that the kernel may have installed, and not just as many as are wanted: CMSG_SPACE rounds up,
 * so that what looks like room for one has room for two. */
struct received {
    int fds[FDS_MOST];
    size_t count;
    bool is_wrong; /* there was something else */
};

ssize_t fds_send(int socket, const struct iovec *parts, size_t n, const int *fds, size_t count,
                 int flags)
{
    union {
        struct cmsghdr head; /* the first, and only one */
        char room[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control;
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = n};
    ssize_t sent;

    if (count > FDS_MOST)
        return -E2BIG;
    if (count > 0) {
        memset(&control, 0, CMSG_SPACE(count * sizeof(int)));
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(count * sizeof(int))};
        memcpy(control.room + CMSG_LEN(0), fds, count * sizeof(int));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    do {
        sent = sendmsg(socket, &msg, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

static void take(struct received *r, const struct cmsghdr *c)
{
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0)) {
        r->is_wrong = true;
        return;
    }
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (n > FDS_MOST - r->count) { /* not from this kernel */
        r->is_wrong = true;
        n = FDS_MOST - r->count;
    }
    memcpy(r->fds + r->count, CMSG_DATA(c), n * sizeof(int));
    r->count += n;
}

static void close_all(const struct received *r)
{
    for (size_t i = 0; i < r->count; i++)
        (void)close(r->fds[i]);
}

/* Fills `who`, where that is not NULL, with what the kernel says of the sender. Nothing stays open
 * after an error. */
static ssize_t receive(int socket, struct iovec part, int flags, struct received *r,
                       struct ucred *who)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(FDS_MOST * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct msghdr msg = {.msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t got;

    do {
        got = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (who && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
            c->cmsg_len == CMSG_LEN(sizeof(*who)))
            memcpy(who, CMSG_DATA(c), sizeof(*who));
        else
            take(r, c);
    }
    if (!r->is_wrong && !(msg.msg_flags & MSG_CTRUNC))
        return got;
    close_all(r);
    return -EPROTO;
}

ssize_t fds_receive(int socket, void *bytes, size_t n, int *fds, size_t *count, int flags)
{
    struct received r = {.count = 0};
    size_t most = *count;
    ssize_t got = receive(socket, (struct iovec){bytes, n}, flags, &r, NULL);

    *count = 0;
    if (got < 0)
        return got;
    if (r.count > most) {
        close_all(&r);
        return -EPROTO;
    }
    memcpy(fds, r.fds, r.count * sizeof(int));
    *count = r.count;
    return got;
}

ssize_t fds_receive_pid(int socket, void *bytes, size_t n, pid_t *ret)
{
    struct received r = {.count = 0};
    struct ucred who = {.pid = -1};
    ssize_t got = receive(socket, (struct iovec){bytes, n}, 0, &r, &who);

    *ret = who.pid;
    if (got <= 0)
        return got;
    close_all(&r);
    return who.pid <= 0 || r.count > 0 ? -EPROTO : got;
}
