/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/denial/outbound.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

enum {
    DEFAULT_PORT = 7070
};

/* Metadata services, as their vendors document them. */
static const struct {
    uint8_t address[4];
    unsigned bytes;
} metadata_v4[] = {
    {{169, 254, 0, 0}, 2},     /* 169.254.169.254 of most clouds, 169.254.170.2 of ECS, ... */
    {{100, 100, 100, 200}, 4}, /* Alibaba */
    {{168, 63, 129, 16}, 4},   /* Azure's wire server */
    {{192, 0, 0, 192}, 4},     /* Oracle, earlier */
};

static const uint8_t metadata_v6[][16] = {
    {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54},               /* EC2 */
    {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x00, 0x23},               /* EKS */
    {0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54},               /* Google */
    {0xfe, 0x80, [12] = 0xa9, [13] = 0xfe, [14] = 0xa9, 0xfe}, /* OpenStack */
};

/* IPv6 addresses that are another name for one of IPv4, which begins at byte `bytes`. */
static const struct {
    uint8_t prefix[12];
    unsigned bytes;
} embeddings[] = {
    {{[10] = 0xff, [11] = 0xff}, 12}, /* ::ffff:a.b.c.d */
    {{0}, 12},                        /* ::a.b.c.d */
    {{0x00, 0x64, 0xff, 0x9b}, 12},   /* 64:ff9b::a.b.c.d, NAT64 */
    {{0x20, 0x02}, 2},                /* 2002:ab:cd::, 6to4 */
};

union place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool is_metadata_v4(const uint8_t *address)
{
    for (size_t i = 0; i < sizeof(metadata_v4) / sizeof(metadata_v4[0]); i++) {
        if (memcmp(address, metadata_v4[i].address, metadata_v4[i].bytes) == 0)
            return true;
    }
    return false;
}

static bool is_metadata_v6(const uint8_t *address)
{
    for (size_t i = 0; i < sizeof(metadata_v6) / sizeof(metadata_v6[0]); i++) {
        if (memcmp(address, metadata_v6[i], sizeof(metadata_v6[i])) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(embeddings) / sizeof(embeddings[0]); i++) {
        unsigned bytes = embeddings[i].bytes;
        if (memcmp(address, embeddings[i].prefix, bytes) == 0 && is_metadata_v4(address + bytes))
            return true;
    }
    return false;
}

static bool is_own_port(in_port_t port, const uint16_t ports[CARREL_MAX_PORTS])
{
    if (ports[0] == 0)
        return ntohs(port) == DEFAULT_PORT;
    for (size_t i = 0; i < CARREL_MAX_PORTS && ports[i]; i++) {
        if (ntohs(port) == ports[i])
            return true;
    }
    return false;
}

/* An address is this host's if a socket can be bound to it: 0.0.0.0 and ::, which connect to
 * loopback, can be, too. What cannot be tried is taken for ours: a link-local address, say, whose
 * interface the caller's socket knows. */
static bool is_local(const union place *place, socklen_t n)
{
    union place to = *place;

    if (to.any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&to.v6.sin6_addr)) {
        memset(&to, 0, sizeof(to));
        to.v4.sin_family = AF_INET;
        memcpy(&to.v4.sin_addr, &place->v6.sin6_addr.s6_addr[12], sizeof(to.v4.sin_addr));
        n = sizeof(to.v4);
    }
    if (to.any.sa_family == AF_INET)
        to.v4.sin_port = 0;
    else
        to.v6.sin6_port = 0;
    scoped_fd int fd = socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 || bind(fd, &to.any, n) == 0 || errno != EADDRNOTAVAIL;
}

enum outbound outbound_judge(const void *address, size_t n, const uint16_t ports[CARREL_MAX_PORTS])
{
    union place place = {0};

    memcpy(&place, address, n < sizeof(place) ? n : sizeof(place));
    if (n >= sizeof(place.v4) && place.any.sa_family == AF_INET) {
        if (is_metadata_v4((const uint8_t *)&place.v4.sin_addr))
            return OUTBOUND_METADATA;
        if (is_own_port(place.v4.sin_port, ports) && is_local(&place, sizeof(place.v4)))
            return OUTBOUND_OWN_PORT;
    } else if (place.any.sa_family == AF_INET6) { /* without a scope it is as long as in RFC 2133 */
        if (is_metadata_v6(place.v6.sin6_addr.s6_addr))
            return OUTBOUND_METADATA;
        if (is_own_port(place.v6.sin6_port, ports) && is_local(&place, sizeof(place.v6)))
            return OUTBOUND_OWN_PORT;
    }
    return OUTBOUND_FREE;
}
