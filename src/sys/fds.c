/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/fds.h"

#include <errno.h>
#include <stdbool.h>
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

ssize_t fds_receive(int socket, void *bytes, size_t n, int *fds, size_t *count, int flags)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control;
    struct iovec part = {bytes, n};
    struct msghdr msg = {.msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    struct received r = {.count = 0};
    size_t most = *count;
    ssize_t got;

    *count = 0;
    do {
        got = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
        take(&r, c);
    if (r.is_wrong || r.count > most || (msg.msg_flags & MSG_CTRUNC)) {
        for (size_t i = 0; i < r.count; i++)
            (void)close(r.fds[i]);
        return -EPROTO;
    }
    memcpy(fds, r.fds, r.count * sizeof(int));
    *count = r.count;
    return got;
}
