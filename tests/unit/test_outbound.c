/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/outbound: which addresses are refused, and nothing beside them. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "sandbox/denial/outbound.h"

static const uint16_t no_ports[CARREL_MAX_PORTS];
static const uint16_t two_ports[CARREL_MAX_PORTS] = {8000, 9000};

static enum outbound judge(const char *text, uint16_t port, const uint16_t *ports)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return outbound_judge(&v4, sizeof(v4), ports);
    if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1)
        return (enum outbound) - 1;
    return outbound_judge(&v6, sizeof(v6), ports);
}

TEST(metadata_addresses_are_refused_on_every_port)
{
    static const char *const refused[] = {
        "169.254.169.254",
        "169.254.170.2",
        "169.254.0.0",
        "169.254.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fe80::a9fe:a9fe",
        "::ffff:169.254.169.254",
        "::ffff:100.100.100.200",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b::168.63.129.16",
        "2002:a9fe:a9fe::1",
    };

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CHECK(judge(refused[i], 80, no_ports) == OUTBOUND_METADATA);
        CHECK(judge(refused[i], 1, two_ports) == OUTBOUND_METADATA);
    }
    return 0;
}

TEST(their_neighbours_are_free)
{
    static const char *const free_ones[] = {
        "169.253.255.255",        "169.255.0.0",          "100.100.100.199", "100.100.100.201",
        "168.63.129.17",          "192.0.0.191",          "8.8.8.8",         "127.0.0.1",
        "fd00:ec2::253",          "fd00:ec2::1:254",      "fd20:ce::253",    "fe80::a9fe:a9ff",
        "::ffff:169.253.169.254", "64:ff9c::a9fe:a9fe",   "2001:a9fe::1",    "::1",
        "64:ff9b::8.8.8.8",       "64:ff9b:1::a9fe:a9fe", "0.0.0.0",         "::",
    };

    for (size_t i = 0; i < sizeof(free_ones) / sizeof(free_ones[0]); i++)
        CHECK(judge(free_ones[i], 80, no_ports) == OUTBOUND_FREE);
    return 0;
}

TEST(carrels_ports_are_refused_by_every_name_of_this_host)
{
    static const char *const here[] = {"127.0.0.1",        "127.255.0.3", "0.0.0.0",
                                       "::ffff:127.0.0.1", "::",          "::ffff:0.0.0.0"};

    for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
        CHECK(judge(here[i], 8000, two_ports) == OUTBOUND_OWN_PORT);
        CHECK(judge(here[i], 9000, two_ports) == OUTBOUND_OWN_PORT);
        CHECK(judge(here[i], 7070, two_ports) == OUTBOUND_FREE);
        CHECK(judge(here[i], 7070, no_ports) == OUTBOUND_OWN_PORT);
        CHECK(judge(here[i], 8000, no_ports) == OUTBOUND_FREE);
    }
    CHECK(judge("198.51.100.7", 8000, two_ports) == OUTBOUND_FREE); /* another host's */
    CHECK(judge("2001:db8::7", 8000, two_ports) == OUTBOUND_FREE);
    return 0;
}

/* What the kernel does not take for an address either. */
TEST(what_is_too_short_or_of_another_family_is_free)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(80)};

    CHECK(inet_pton(AF_INET, "169.254.169.254", &v4.sin_addr) == 1);
    for (size_t n = 0; n < sizeof(v4); n++)
        CHECK(outbound_judge(&v4, n, no_ports) == OUTBOUND_FREE);
    v4.sin_family = AF_UNSPEC;
    CHECK(outbound_judge(&v4, sizeof(v4), no_ports) == OUTBOUND_FREE);
    return 0;
}

/* The kernel takes addresses of IPv6 without the scope at their end. */
TEST(an_address_without_its_scope_is_one)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(80)};

    CHECK(inet_pton(AF_INET6, "::ffff:169.254.169.254", &v6.sin6_addr) == 1);
    CHECK(outbound_judge(&v6, sizeof(v6) - sizeof(v6.sin6_scope_id), no_ports) ==
          OUTBOUND_METADATA);
    return 0;
}
