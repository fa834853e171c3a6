/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to a server inside: made in the sandbox's network, by who has no more rights than
 * the commands there, and handed to the front, which then talks without us. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "files/core/call.h"
#include "sys/fds.h"

enum {
    CONNECT_MS = 10000, /* a server that takes no connections: its queue is full */
};

/* 0, or -errno. A client that leaves ends the wait. */
static int wait_connected(const struct files_call *call, int fd)
{
    uint64_t until = now_ms() + CONNECT_MS;
    int error = 0;
    socklen_t size = sizeof(error);

    for (uint64_t now = now_ms(); now < until; now = now_ms()) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLOUT}, {.fd = call->stream}};
        int n = poll(fds, 2, (int)(until - now));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && fds[1].revents)
            return -EPIPE;
        if (n > 0 && fds[0].revents)
            return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? -errno : -error;
    }
    return -ETIMEDOUT;
}

/* fd or -errno. */
static int connect_to(const struct files_call *call, const struct sockaddr *address, socklen_t size)
{
    const int on = 1;
    scoped_fd int fd =
        socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);

    if (fd < 0)
        return -errno;
    int r = connect(fd, address, size) < 0 ? -errno : 0;
    if (r == -EINPROGRESS)
        r = wait_connected(call, fd);
    if (r < 0)
        return r;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* slower without */
    return take_fd(&fd);
}

static int connect_here(const struct files_call *call, uint16_t port)
{
    const struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int r = connect_to(call, (const struct sockaddr *)&four, sizeof(four));

    if (r != -ECONNREFUSED)
        return r;
    r = connect_to(call, (const struct sockaddr *)&six, sizeof(six));
    /* Without such addresses there is nobody there either. */
    return r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL || r == -ENETUNREACH ? -ECONNREFUSED : r;
}

static void hand_over(struct files_call *call, int fd)
{
    struct files_head head = {.status = 200, .type = FILES_TYPE_BYTES};
    const struct iovec part = {&head, sizeof(head)};

    call->answered = true;
    call->gone = fds_send(call->stream, &part, 1, &fd, 1, 0) != (ssize_t)sizeof(head);
}

void files_connect(struct files_call *call)
{
    uint64_t port = call->m->offset;
    scoped_fd int fd =
        port > 0 && port <= UINT16_MAX ? connect_here(call, (uint16_t)port) : -EINVAL;

    if (fd >= 0)
        hand_over(call, fd);
    else if (fd == -ECONNREFUSED)
        answer_error(call, 502, "port_closed", "nothing listens on port %u inside", (unsigned)port);
    else if (fd == -ETIMEDOUT)
        answer_error(call, 504, "port_timeout", "the server on port %u inside takes no connections",
                     (unsigned)port);
    else if (fd == -EPIPE)
        call->gone = true;
    else
        answer_error(call, 502, "port_unreachable", "port %u inside cannot be reached: %s",
                     (unsigned)port, strerrordesc_np(-fd));
}
