/* SPDX-License-Identifier: Apache-2.0 */
/* base/network: who a peer is, and whom a list means. front/room: how many may come. */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/network.h"
#include "front/core/room.h"

static struct sockaddr_storage peer_of(const char *text)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        memcpy(&peer, &v4, sizeof(v4));
    else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        memcpy(&peer, &v6, sizeof(v6));
    return peer;
}

static bool has(const char *list, const char *peer)
{
    struct sockaddr_storage address = peer_of(peer);
    struct networks networks;
    const char *at;

    return networks_parse(list, &networks, &at) && networks_have(&networks, &address);
}

TEST(a_list_means_its_addresses_and_networks)
{
    CHECK(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7", "192.0.2.8"));
    CHECK(has("10.0.0.0/8", "10.255.1.2") && !has("10.0.0.0/8", "11.0.0.1"));
    CHECK(has("192.0.2.128/25", "192.0.2.129") && !has("192.0.2.128/25", "192.0.2.127"));
    CHECK(has("::1, 192.0.2.7", "::1") && has("::1 192.0.2.7", "192.0.2.7"));
    CHECK(has("2001:db8::/33", "2001:db8:7fff::1") && !has("2001:db8::/33", "2001:db8:8000::1"));
    CHECK(has("192.0.2.7", "::ffff:192.0.2.7")); /* the same client on a socket for both */
    CHECK(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "2001:db8::1"));
    CHECK(has("::/0", "2001:db8::1"));
    CHECK(!has("", "192.0.2.7") && !has(" , ", "192.0.2.7"));
    CHECK(!has("0.0.0.0/0 ::/0", "/a/unix/socket"));
    return 0;
}

TEST(what_is_no_network_is_pointed_at)
{
    static const char *const bad[] = {"example.com", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1",
                                      "10.0.0.0/8x", "::1/129",     "10.0.0",    "1.2.3.4:80",
                                      "[::1]",       "10.0.0.0/+8", "/8"};
    struct networks networks;
    const char *at = NULL;
    char many[1024] = "";

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "::1,%s", bad[i]);
        CHECK(!networks_parse(text, &networks, &at) && at == text + 4);
    }
    for (int i = 0; i < NETWORKS_MOST; i++)
        strncat(many, "10.0.0.1 ", sizeof(many) - strlen(many) - 1);
    CHECK(networks_parse(many, &networks, &at) && networks.count == NETWORKS_MOST);
    strncat(many, "10.0.0.1", sizeof(many) - strlen(many) - 1);
    CHECK(!networks_parse(many, &networks, &at));
    return 0;
}

TEST(a_client_is_an_address_or_the_network_that_is_its_own)
{
    static const char *const names[][2] = {{"192.0.2.7", "192.0.2.7"},
                                           {"::ffff:192.0.2.7", "192.0.2.7"},
                                           {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"},
                                           {"::1", "::"},
                                           {"no address", ""}};
    char name[NETWORK_PEER];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct sockaddr_storage peer = peer_of(names[i][0]);
        network_peer(&peer, name);
        CHECK(strcmp(name, names[i][1]) == 0);
    }
    return 0;
}

TEST(connections_leave_descriptors_and_places_to_others)
{
    static const uint64_t files[] = {0, 100, 256, 1024, 4096, 20000, 524288, 1 << 30};
    struct settings s;

    settings_init(&s);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct http_options room = {0};
        room_for_connections(&s, files[i], &room);
        unsigned all = room.max_connections + room.max_unknown;
        CHECK(all <= s.max_connections && (files[i] < 100 || all <= files[i] / 4));
        CHECK(room.owner_connections <= room.max_connections / 2);
        CHECK(room.owner_streams < room.owner_connections);
        CHECK(room.address_connections <= room.max_unknown / 2);
        CHECK(room.owner_streams > 0 && room.address_connections > 0);
    }
    struct http_options room = {0};
    room_for_connections(&s, 524288, &room);
    CHECK(room.max_connections == 6144 && room.max_unknown == 2048);
    CHECK(room.owner_connections == 1024 && room.owner_streams == 512);
    CHECK(room.address_connections == 256);
    return 0;
}
