/* SPDX-License-Identifier: Apache-2.0 */
#include "base/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    V4_BITS = 96,     /* of ::ffff:0:0/96 */
    CLIENT_BYTES = 8, /* of an IPv6 address that say whose it is */
};

static const unsigned char v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

/* An address with or without "/BITS". */
static bool parse_one(const char *text, size_t n, struct network *ret)
{
    char copy[NETWORK_PEER + 8];
    char *end = NULL;
    unsigned most = 128;
    unsigned above = 0;

    if (n == 0 || n >= sizeof(copy))
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *slash = strchr(copy, '/');
    if (slash)
        *slash++ = '\0';
    if (inet_pton(AF_INET, copy, ret->address + sizeof(v4_prefix)) == 1) {
        memcpy(ret->address, v4_prefix, sizeof(v4_prefix));
        most = 32;
        above = V4_BITS;
    } else if (inet_pton(AF_INET6, copy, ret->address) != 1) {
        return false;
    }
    unsigned long bits = slash ? strtoul(slash, &end, 10) : most;
    if (bits > most || (slash && (*slash < '0' || *slash > '9' || *end)))
        return false;
    ret->bits = above + (unsigned)bits;
    return true;
}

bool networks_parse(const char *text, struct networks *ret, const char **ret_at)
{
    static const char gaps[] = ", \t";

    ret->count = 0;
    for (text += strspn(text, gaps); *text; text += strspn(text, gaps)) {
        size_t n = strcspn(text, gaps);
        *ret_at = text;
        if (ret->count == NETWORKS_MOST || !parse_one(text, n, &ret->list[ret->count]))
            return false;
        ret->count++;
        text += n;
    }
    return true;
}

static bool address_of(const struct sockaddr_storage *peer, unsigned char ret[16])
{
    if (peer->ss_family == AF_INET) {
        memcpy(ret, v4_prefix, sizeof(v4_prefix));
        memcpy(ret + sizeof(v4_prefix), &((const struct sockaddr_in *)peer)->sin_addr, 4);
    } else if (peer->ss_family == AF_INET6) {
        memcpy(ret, &((const struct sockaddr_in6 *)peer)->sin6_addr, 16);
    } else {
        return false;
    }
    return true;
}

static bool belongs(const struct network *network, const unsigned char *address)
{
    unsigned whole = network->bits / 8;
    unsigned rest = network->bits % 8;

    return memcmp(network->address, address, whole) == 0 &&
           (rest == 0 || (network->address[whole] ^ address[whole]) >> (8 - rest) == 0);
}

bool networks_have(const struct networks *networks, const struct sockaddr_storage *peer)
{
    unsigned char address[16];

    if (!address_of(peer, address))
        return false;
    for (size_t i = 0; i < networks->count; i++) {
        if (belongs(&networks->list[i], address))
            return true;
    }
    return false;
}

void network_peer(const struct sockaddr_storage *peer, char ret[NETWORK_PEER])
{
    unsigned char address[16];

    ret[0] = '\0';
    if (!address_of(peer, address))
        return;
    if (memcmp(address, v4_prefix, sizeof(v4_prefix)) == 0) {
        (void)inet_ntop(AF_INET, address + sizeof(v4_prefix), ret, NETWORK_PEER);
        return;
    }
    memset(address + CLIENT_BYTES, 0, sizeof(address) - CLIENT_BYTES);
    (void)inet_ntop(AF_INET6, address, ret, NETWORK_PEER);
}
