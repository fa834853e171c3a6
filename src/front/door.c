/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-tls is believed the addresses of its clients, and nothing else: what they say comes as
 * that of any other client, with the key of whoever asks. */
#include "front/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "protocol/tls.h"
#include "sys/fds.h"

enum {
    AT_ONCE = 4, /* then requests have their turn */
};

bool door_is(int fd)
{
    int type = 0;
    socklen_t size = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

/* Whether there may be more. */
static bool take_one(struct front *front)
{
    unsigned char address[TLS_ADDRESS + 1];
    struct sockaddr_in6 from = {.sin6_family = AF_INET6};
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    scoped_fd int fd = -1;
    size_t count = 1;
    ssize_t n = fds_receive(front->door.fd, address, sizeof(address), &fd, &count, MSG_DONTWAIT);

    if (n == -EPROTO)
        return true;
    if (n <= 0)
        return false;
    if (n != TLS_ADDRESS || count != 1)
        return true;
    memcpy(&from.sin6_addr, address, sizeof(from.sin6_addr));
    memcpy(&peer, &from, sizeof(from));
    ignore(http_adopt(front->http, &fd, &peer)); /* without room for it, it is closed */
    return true;
}

static void ready(struct watch *watch, uint32_t what)
{
    struct front *front = container_of(watch, struct front, door);

    (void)what;
    for (int i = 0; i < AT_ONCE && take_one(front); i++)
        ;
}

int door_open(struct front *front, int fd)
{
    front->door = (struct watch){.ready = ready, .fd = -1};
    return events_watch(front->events, &front->door, fd, EPOLLIN);
}
