/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int packet_send(int socket, const void *bytes, size_t n, const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(PACKET_MAX_FDS * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)(size_t)bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd_count > PACKET_MAX_FDS)
        return -E2BIG;
    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, fd_count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}
