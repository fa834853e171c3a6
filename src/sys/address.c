/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    LOOPBACK = 1 /* the first interface of every network, by its index */
};

struct request {
    struct nlmsghdr head;
    struct ifaddrmsg address;

    struct {
        struct rtattr head;
        uint32_t value;
    } attributes[2];
};

int address_add_to_loopback(uint32_t address, unsigned prefix)
{
    const uint32_t value = htonl(address);
    const unsigned short kinds[] = {IFA_LOCAL, IFA_ADDRESS};
    struct request ask = {
        .head = {.nlmsg_len = sizeof(ask),
                 .nlmsg_type = RTM_NEWADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
        .address = {.ifa_family = AF_INET,
                    .ifa_prefixlen = (unsigned char)prefix,
                    .ifa_scope = RT_SCOPE_HOST,
                    .ifa_index = LOOPBACK}};

    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer;

    for (int i = 0; i < 2; i++) {
        ask.attributes[i].head.rta_len = sizeof(ask.attributes[i]);
        ask.attributes[i].head.rta_type = kinds[i];
        ask.attributes[i].value = value;
    }
    scoped_fd int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &ask, sizeof(ask), 0) != (ssize_t)sizeof(ask))
        return -errno;
    ssize_t n = recv(fd, &answer, sizeof(answer), 0);
    if (n < 0)
        return -errno;
    if ((size_t)n < sizeof(answer.head) + sizeof(answer.error) ||
        answer.head.nlmsg_type != NLMSG_ERROR)
        return -EPROTO;
    return answer.error.error;
}
