/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/message.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sys/fds.h"

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
    struct iovec parts[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)bytes, length}};

    if (length > MESSAGE_MAX_BYTES || fd_count > MESSAGE_MAX_FDS)
        return -E2BIG;
    ssize_t sent = fds_send(socket, parts, length ? 2 : 1, fds, fd_count, 0);
    if (sent < 0)
        return (int)sent;
    if ((size_t)sent < sizeof(head))
        return -EPROTO; /* a socket pair takes twelve bytes whole or not at all */
    size_t done = (size_t)sent - sizeof(head);
    if (done == length)
        return 0;
    return send_rest(socket, (const char *)bytes + done, length - done);
}

int message_receive_head(int socket, struct message_head *head, int fds[MESSAGE_MAX_FDS])
{
    size_t count = MESSAGE_MAX_FDS;
    ssize_t n = fds_receive(socket, head, sizeof(*head), fds, &count, 0);

    if (n <= 0 && count == 0)
        return (int)n;
    if ((size_t)n == sizeof(*head) && head->fd_count == count && head->length <= MESSAGE_MAX_BYTES)
        return 1;
    for (size_t i = 0; i < count; i++)
        (void)close(fds[i]);
    return -EPROTO;
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
