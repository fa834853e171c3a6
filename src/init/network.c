/* SPDX-License-Identifier: Apache-2.0 */
/* The network by name, as far as it is inside: all of 198.18.0.0/15 is an address of this sandbox,
 * with a name server on the first and a socket listening at each port that leads to names. They are
 * the engine's to serve; nothing inside has them. */
#include <errno.h>
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

/* As many as could be; *err says why there are no more. */
static size_t open_sockets(const struct setup *setup, int *fds, struct err *err)
{
    const uint32_t name_server = EGRESS_NETWORK | 1;
    size_t n = 0;

    while (n < NAME_SOCKETS + setup->port_count) {
        bool name = n < NAME_SOCKETS;
        uint16_t port = name ? NAME_PORT : (uint16_t)setup->ports[n - NAME_SOCKETS];
        int fd =
            open_socket(n == 0 ? SOCK_DGRAM : SOCK_STREAM, name ? name_server : INADDR_ANY, port);
        if (fd < 0) {
            err_set(err, ERR_IO, -fd, "open port %u of the network by name", port);
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
    int fds[NAME_SOCKETS + SETUP_MAX_PORTS];
    const struct setup *setup = sandbox->setup;

    if (setup->port_count == 0)
        return 0;
    if (!(setup->namespaces & CLONE_NEWNET))
        return err_set(err, ERR_INVALID, 0, "names need a network of the sandbox's own");
    int r = address_add_to_loopback(EGRESS_NETWORK | 1, EGRESS_PREFIX);
    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "give the sandbox addresses for names");
    size_t wanted = NAME_SOCKETS + setup->port_count;
    size_t n = open_sockets(setup, fds, err);
    r = n < wanted ? -1 : message_send(sandbox->socket, reply.kind, &reply, sizeof(reply), fds, n);
    while (n > 0)
        (void)close(fds[--n]);
    if (err->code)
        return -1;
    return r < 0 ? err_set(err, ERR_IO, -r, "hand the network's sockets over") : 0;
}
