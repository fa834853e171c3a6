/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_MAX_FDS)];
};

static int send_rest(int socket, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(socket, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        bytes += sent;
        n -= (size_t)sent;
    }
    return 0;
}

int message_send(int socket, uint32_t kind, const void *bytes, size_t length, const int *fds,
                 size_t fd_count)
{
    struct message_head head = {kind, (uint32_t)length, (uint32_t)fd_count};
    union control control = {0};
    struct iovec parts[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)bytes, length}};
    struct msghdr msg = {.msg_iov = parts, .msg_iovlen = length ? 2 : 1};

    if (length > MESSAGE_MAX_BYTES || fd_count > MESSAGE_MAX_FDS)
        return -E2BIG;
    if (fd_count) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * fd_count);
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &msg, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return -errno;
    if ((size_t)sent < sizeof(head))
        return -EPROTO; /* a socket pair takes twelve bytes whole or not at all */
    size_t done = (size_t)sent - sizeof(head);
    if (done == length)
        return 0;
    return send_rest(socket, (const char *)bytes + done, length - done);
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)close(fds[i]);
}

int message_receive_head(int socket, struct message_head *head, int fds[MESSAGE_MAX_FDS])
{
    union control control;
    struct iovec part = {head, sizeof(*head)};
    struct msghdr msg = {.msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    size_t got_fds = 0;
    ssize_t n;

    do {
        n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? -errno : 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        got_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), sizeof(int) * got_fds);
    }
    if ((size_t)n != sizeof(*head) || (msg.msg_flags & MSG_CTRUNC) || head->fd_count != got_fds ||
        head->length > MESSAGE_MAX_BYTES) {
        close_all(fds, got_fds);
        return -EPROTO;
    }
    return 1;
}

int message_read_exactly(int fd, void *bytes, size_t n)
{
    char *at = bytes;

    while (n > 0) {
        ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EPIPE;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}
