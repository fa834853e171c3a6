/* SPDX-License-Identifier: Apache-2.0 */
/* The network by name, as far as it is inside: all of 198.18.0.0/15 is an address of this sandbox,
 * with a name server on the first and a socket listening at each port that leads to names. They are
 * the engine's to serve; nothing inside has them. */
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/init.h"
#include "protocol/egress.h"
#include "sys/address.h"

enum {
    BACKLOG = 1024,
    NAME_PORT = 53,
    NAME_SOCKETS = 2,
    FIXED_SOCKETS = EGRESS_SOCKETS, /* and one to ask about the others */
};

static int open_socket(int type, uint32_t address, uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(address)}};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 &&
        (type == SOCK_DGRAM || listen(fd, BACKLOG) == 0))
        return fd;
    int r = -errno;
    (void)close(fd);
    return r;
}

/* For whose a connection is. Where the kernel has no such thing another stands in its place. */
static int open_diag(void)
{
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);

    if (fd < 0)
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

static int open_one(const struct setup *setup, size_t i)
{
    const uint32_t name_server = EGRESS_NETWORK | 1;

    if (i < NAME_SOCKETS)
        return open_socket(i == 0 ? SOCK_DGRAM : SOCK_STREAM, name_server, NAME_PORT);
    return i < FIXED_SOCKETS
               ? open_diag()
               : open_socket(setup->ports[i - FIXED_SOCKETS] & SETUP_UDP ? SOCK_DGRAM : SOCK_STREAM,
                             INADDR_ANY, (uint16_t)setup->ports[i - FIXED_SOCKETS]);
}

/* As many as could be; *err says why there are no more. */
static size_t open_sockets(const struct setup *setup, int *fds, struct err *err)
{
    size_t n = 0;

    while (n < FIXED_SOCKETS + setup->port_count) {
        int fd = open_one(setup, n);
        if (fd < 0) {
            err_set(err, ERR_IO, -fd, "open port %u of the network by name",
                    n < FIXED_SOCKETS ? NAME_PORT
                                      : (unsigned)setup->ports[n - FIXED_SOCKETS] & UINT16_MAX);
            break;
        }
        fds[n++] = fd;
    }
    return n;
}

/* Situation: all capabilities in the namespaces, which are the sandbox's own; nothing of it runs.
 */
int stage_network(struct sandbox *sandbox, struct err *err)
{
    struct reply reply = {.kind = REPLY_NETWORK};
    int fds[FIXED_SOCKETS + SETUP_MAX_PORTS];
    const struct setup *setup = sandbox->setup;

    if (setup->port_count == 0)
        return 0;
    if (!(setup->namespaces & CLONE_NEWNET))
        return err_set(err, ERR_INVALID, 0, "names need a network of the sandbox's own");
    int r = address_add_to_loopback(EGRESS_NETWORK | 1, EGRESS_PREFIX);
    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "give the sandbox addresses for names");
    size_t wanted = FIXED_SOCKETS + setup->port_count;
    size_t n = open_sockets(setup, fds, err);
    r = n < wanted ? -1 : message_send(sandbox->socket, reply.kind, &reply, sizeof(reply), fds, n);
    while (n > 0)
        (void)close(fds[--n]);
    if (err->code)
        return -1;
    return r < 0 ? err_set(err, ERR_IO, -r, "hand the network's sockets over") : 0;
}
