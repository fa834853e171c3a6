/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks with sockets: families that reach past the network namespace or deep into the kernel, and
 * sockets of the host itself. "listen" is the host's side: it opens an abstract socket and becomes
 * the command that follows.
 */
#include "probe.h"

#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define NETLINK_USERSOCK  2
#define NETLINK_AUDIT     9
#define NETLINK_UEVENT    15
#define NETLINK_GENERIC   16
#define NETLINK_XFRM      6
#define NETLINK_NETFILTER 12
#define FAMILY_XDP        44

static const struct {
    const char *name;
    int family;
    int type;
    int protocol;
} families[] = {
    {"VSOCK", AF_VSOCK, SOCK_STREAM, 0},
    {"PACKET", AF_PACKET, SOCK_RAW, 0},
    {"ALG", AF_ALG, SOCK_SEQPACKET, 0},
    {"KEY", AF_KEY, SOCK_RAW, 2},
    {"XDP", FAMILY_XDP, SOCK_RAW, 0},
    {"BLUETOOTH", AF_BLUETOOTH, SOCK_RAW, 1},
    {"CAN", AF_CAN, SOCK_RAW, 1},
    {"TIPC", AF_TIPC, SOCK_STREAM, 0},
    {"RDS", AF_RDS, SOCK_SEQPACKET, 0},
    {"KCM", AF_KCM, SOCK_DGRAM, 0},
    {"NETLINK user", AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK},
    {"NETLINK xfrm", AF_NETLINK, SOCK_RAW, NETLINK_XFRM},
    {"NETLINK audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT},
    {"NETLINK netfilter", AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER},
    {"NETLINK uevent", AF_NETLINK, SOCK_DGRAM, NETLINK_UEVENT},
    {"NETLINK generic", AF_NETLINK, SOCK_RAW, NETLINK_GENERIC},
    {"INET raw", AF_INET, SOCK_RAW, IPPROTO_RAW},
    {"INET raw icmp", AF_INET, SOCK_RAW, IPPROTO_ICMP},
    {"INET6 raw", AF_INET6, SOCK_RAW, IPPROTO_RAW},
};

static void try_families(char **args)
{
    (void)args;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        int fd = socket(families[i].family, families[i].type | SOCK_CLOEXEC, families[i].protocol);
        failed(families[i].name, fd);
        int pair[2];
        if (socketpair(families[i].family, families[i].type, families[i].protocol, pair) == 0)
            escaped("a pair of %s sockets was made", families[i].name);
    }
}

static socklen_t abstract_address(struct sockaddr_un *address, const char *name)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static void do_listen(char **args)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(&address, args[0]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0); /* stays open in the command */

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 8) < 0)
        unclear("listen");
    execv(args[1], args + 1);
    unclear(args[1]);
}

static int look_at(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)type;
    (void)at;
    /* Where sudo asks, in a system of the workspace's own: pid 1's, of this sandbox. */
    if (S_ISSOCK(info->st_mode) && strcmp(path, "/run/carrel/ask") != 0)
        escaped("a socket is in sight: %s", path);
    return 0;
}

/* The arguments are the name of an abstract socket of the host and the path of one in its file
 * system. */
static void connect_host(char **args)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(&address, args[0]);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        unclear("socket");
    failed("connect to the host's abstract socket",
           connect(fd, (struct sockaddr *)&address, length));
    address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", args[1]);
    failed("connect to the host's path", connect(fd, (struct sockaddr *)&address, sizeof(address)));
    if (nftw("/", look_at, 64, FTW_PHYS) < 0)
        unclear("walk through /");
}

static const struct attack attacks[] = {
    {"families", try_families},
    {"listen", do_listen},
    {"connect", connect_host},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
