/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of peers, and lists of networks that they may belong to. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum {
    NETWORK_PEER = 48, /* of a peer, as text */
    NETWORKS_MOST = 32,
};

struct network {
    unsigned char address[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned bits;
};

struct networks {
    struct network list[NETWORKS_MOST];
    size_t count;
};

/* "10.0.0.0/8, ::1, 192.0.2.7": addresses and networks, separated by commas or spaces. False: one
 * of them is neither, or there are too many; *ret_at points at it. */
bool networks_parse(const char *text, struct networks *ret, const char **ret_at);
/* Whether the peer of a TCP connection belongs to one of them. */
bool networks_have(const struct networks *networks, const struct sockaddr_storage *peer);
/* The name by which connections of one client are counted: an IPv4 address, or the /64 of an IPv6
 * address, of which one client has all. */
void network_peer(const struct sockaddr_storage *peer, char ret[NETWORK_PEER]);
