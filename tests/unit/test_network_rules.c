/* SPDX-License-Identifier: Apache-2.0 */
/* policy/network: what is a name and a rule, which rule decides, and which addresses are nobody's
 * business. */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "policy/network.h"

TEST(a_name_is_read_in_one_way)
{
    static const struct {
        const char *text;
        const char *name; /* NULL: none */
    } rows[] = {
        {"example.org", "example.org"},
        {"EXAMPLE.Org", "example.org"},
        {"example.org.", "example.org"},
        {"a", "a"},
        {"localhost", "localhost"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"1and1.com", "1and1.com"},
        {"4chan", "4chan"},
        {"0xz.org", "0xz.org"},
        {"a.0xfg", "a.0xfg"},
        {"", NULL},
        {".", NULL},
        {"example.org..", NULL},
        {".example.org", NULL},
        {"a..b", NULL},
        {"-a.org", NULL},
        {"a-.org", NULL},
        {"a.org-", NULL},
        {"a_b.org", "a_b.org"},
        {"_x._tcp.a.org", "_x._tcp.a.org"},
        {"a b.org", NULL},
        {"a@b.org", NULL},
        {"a%41.org", NULL},
        {"a:80", NULL},
        {"a/b", NULL},
        {"*.example.org", NULL},
        {"b\xc3\xbc"
         "cher.example",
         NULL},
        {"a\r\n.org", NULL},
        /* Addresses in every spelling. */
        {"127.0.0.1", NULL},
        {"127.0.0.1.", NULL},
        {"127.1", NULL},
        {"2130706433", NULL},
        {"0x7f000001", NULL},
        {"0x7f.1", NULL},
        {"0X7F.0.0.0X1", NULL},
        {"017700000001", NULL},
        {"0177.0.0.1", NULL},
        {"1.2.3.0x", NULL},
        {"example.127", NULL},
        {"::1", NULL},
        {"[::1]", NULL},
        {"::ffff:127.0.0.1", NULL},
        {"fe80::1%lo", NULL},
    };

    char name[NETWORK_NAME];

    for (size_t i = 0; i < LENGTH(rows); i++) {
        bool is = network_name(rows[i].text, strlen(rows[i].text), name);
        CHECK_FOR(rows[i].text, is == (rows[i].name != NULL));
        CHECK_FOR(rows[i].text, !is || strcmp(name, rows[i].name) == 0);
    }
    CHECK(!network_name("evil\0.example.org", 17, name));
    CHECK(!network_name("example.org\0", 12, name));
    return 0;
}

TEST(a_name_has_bounds)
{
    char text[300];
    char name[NETWORK_NAME];

    memset(text, 'a', sizeof(text));
    CHECK(network_name(text, 63, name) && !network_name(text, 64, name));
    for (size_t i = 63; i < sizeof(text); i += 64)
        text[i] = '.';
    CHECK(network_name(text, 253, name) && !network_name(text, 254, name));
    text[253] = '.';
    CHECK(network_name(text, 254, name) && strlen(name) == 253);
    return 0;
}

TEST(rules_are_taken_and_written_again)
{
    static const struct {
        const char *text;
        const char *again;
    } rows[] = {
        {"example.org", "example.org"},
        {"  Example.ORG.  ", "example.org"},
        {"example.org:8443", "example.org:8443"},
        {"example.org:65535", "example.org:65535"},
        {"*.example.org", "*.example.org"},
        {"*.example.org:443 tls=opaque", "*.example.org:443 tls=opaque"},
        {"example.org   ech=refuse", "example.org ech=refuse"},
        {"!bad.example.org", "!bad.example.org"},
        {"!*.com", "!*.com"},
        {"!*.example.org:22", "!*.example.org:22"},
        {"localhost", "localhost"},
        {"*.example.co.uk", "*.example.co.uk"},
        {"*.s3.amazonaws.com", "*.s3.amazonaws.com"},
    };
    struct network_rule rule;
    struct network_rule second;
    char text[NETWORK_RULE];
    struct err err;

    for (size_t i = 0; i < LENGTH(rows); i++) {
        CHECK_FOR(rows[i].text, network_parse_rule(rows[i].text, &rule, &err) == 0);
        CHECK_FOR(rows[i].text, strcmp(network_rule_text(&rule, text), rows[i].again) == 0);
        CHECK_FOR(rows[i].text, network_parse_rule(text, &second, &err) == 0 &&
                                    memcmp(&rule, &second, sizeof(rule)) == 0);
    }
    return 0;
}

TEST(rules_are_refused_with_what_to_write_instead)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"", "a host is missing"},
        {"!", "a host is missing"},
        {"*", "would be every name"},
        {"*:443", "would be every name"},
        {"*.", "is not the name"},
        {"*.com", "everybody below 'com'"},
        {"*.COM", "everybody below 'com'"},
        {"*.localhost", "everybody below"},
        {"*.co.uk", "everybody below 'co.uk'"},
        {"*.com.au", "everybody below 'com.au'"},
        {"*.*.example.org", "at the beginning"},
        {"a*.example.org", "at the beginning"},
        {"*a.example.org", "at the beginning"},
        {"a.*.org", "at the beginning"},
        {"**.example.org", "at the beginning"},
        {"127.0.0.1", "an address cannot be allowed"},
        {"127.1:80", "an address cannot be allowed"},
        {"2130706433", "an address cannot be allowed"},
        {"0x7f.1", "an address cannot be allowed"},
        {"017700000001", "an address cannot be allowed"},
        {"::1", "an address cannot be allowed"},
        {"[::1]:443", "an address cannot be allowed"},
        {"::ffff:127.0.0.1", "an address cannot be allowed"},
        {"10.0.0.0/8", "no part of a name"},
        {"example.127", "an address cannot be allowed"},
        {"*.0.0.1", "an address cannot be allowed"},
        {"https://example.org", "no part of a name"},
        {"example.org/path", "no part of a name"},
        {"user@example.org", "no part of a name"},
        {"b\xc3\xbc"
         "cher.example",
         "xn--"},
        {"example.org..", "is not the name"},
        {"exa mple.org", "is no option"},
        {"example+x.org", "is not the name"},
        {"a%00.org", "is not the name"},
        {"exa\nmple.org", "control character"},
        {"example.org\t", "control character"},
        {"example.org:", "a number from 1"},
        {"example.org:0", "a number from 1"},
        {"example.org:080", "a number from 1"},
        {"example.org:65536", "a number from 1"},
        {"example.org:4294967376", "a number from 1"},
        {"example.org:99999999999999999999", "a number from 1"},
        {"example.org:-1", "a number from 1"},
        {"example.org:+80", "a number from 1"},
        {"example.org:80x", "a number from 1"},
        {"example.org:https", "a number from 1"},
        {"example.org tls=open", "is no option"},
        {"example.org TLS=opaque", "is no option"},
        {"example.org udp", "names its port"},
        {"example.org:53 udp tls=opaque", "not looked at"},
        {"example.org:123 udp methods=GET", "not looked at"},
        {"example.org:123 udp udp", "there twice"},
        {"!example.org:123 udp", "has no options"},
        {"example.org tls=opaque tls=opaque", "twice"},
        {"example.org tls=opaque ech=refuse", "one of the two"},
        {"example.org:80 tls=opaque", "plain HTTP"},
        {"!example.org tls=opaque", "has no options"},
        {"metadata.google.internal", "credentials"},
        {"Metadata.Google.Internal.:80", "credentials"},
    };
    struct network_rule rule;
    struct err err;

    for (size_t i = 0; i < LENGTH(rows); i++) {
        err.msg[0] = '\0';
        CHECK_FOR(rows[i].text, network_parse_rule(rows[i].text, &rule, &err) < 0);
        CHECK_FOR(err.msg, strstr(err.msg, rows[i].says));
    }
    char text[NETWORK_RULE + 1];
    memset(text, 'a', sizeof(text));
    text[NETWORK_RULE] = '\0';
    CHECK(network_parse_rule(text, &rule, &err) < 0 && strstr(err.msg, "at most"));
    return 0;
}

enum {
    MOST = 8
};

/* Rules, one behind the other with a comma between. */
static size_t read_rules(const char *list, struct network_rule *ret)
{
    char line[NETWORK_RULE];
    size_t count = 0;
    struct err err;

    while (*list) {
        size_t n = strcspn(list, ",");
        snprintf(line, sizeof(line), "%.*s", (int)n, list);
        if (network_parse_rule(line, &ret[count++], &err) < 0)
            return 0;
        list += n + (list[n] == ',');
    }
    return count;
}

TEST(one_rule_decides)
{
    static const struct {
        const char *rules;
        const char *name;
        uint32_t port;
        const char *rule; /* "": none */
    } rows[] = {
        {"example.org", "example.org", 443, "example.org"},
        {"example.org", "example.org", 80, "example.org"},
        {"example.org", "example.org", 8443, ""},
        {"example.org", "example.org", 0, "example.org"},
        {"example.org", "www.example.org", 443, ""},
        {"example.org", "notexample.org", 443, ""},
        {"example.org", "example.org.evil.test", 443, ""},
        {"example.org:8443", "example.org", 443, ""},
        {"example.org:8443", "example.org", 8443, "example.org:8443"},
        {"example.org:8443", "example.org", 0, "example.org:8443"},
        {"*.example.org", "a.example.org", 443, "*.example.org"},
        {"*.example.org", "a.b.example.org", 443, "*.example.org"},
        {"*.example.org", "example.org", 443, ""},
        {"*.example.org", "notexample.org", 443, ""},
        {"*.example.org", "a.notexample.org", 443, ""},
        /* "!" wins, wherever it stands. */
        {"example.org,!example.org", "example.org", 443, "!example.org"},
        {"!example.org,example.org", "example.org", 443, "!example.org"},
        {"*.example.org,!bad.example.org", "bad.example.org", 443, "!bad.example.org"},
        {"*.example.org,!bad.example.org", "good.example.org", 443, "*.example.org"},
        {"example.org:8443,!example.org", "example.org", 8443, "!example.org"},
        {"example.org,!example.org:80", "example.org", 80, "!example.org:80"},
        {"example.org,!example.org:80", "example.org", 443, "example.org"},
        {"example.org,!example.org:80", "example.org", 0, "example.org"},
        {"example.org:80,!example.org:80", "example.org", 0, "!example.org:80"},
        {"example.org,!*.org", "example.org", 0, "!*.org"},
        {"!*.org", "example.org", 0, "!*.org"},
        {"!example.org:80", "example.org", 0, ""},
        /* The one that says most exactly. */
        {"*.example.org tls=opaque,a.example.org", "a.example.org", 443, "a.example.org"},
        {"*.org.test,*.example.org.test:443", "a.example.org.test", 443, "*.example.org.test:443"},
        {"example.org,example.org:443 tls=opaque", "example.org", 443,
         "example.org:443 tls=opaque"},
        {"example.org ech=refuse,example.org", "example.org", 443, "example.org ech=refuse"},
        {"example.org:123 udp", "example.org", 123, ""},
        {"example.org:123 udp", "example.org", NETWORK_UDP | 123, "example.org:123 udp"},
        {"example.org:123 udp", "example.org", 0, "example.org:123 udp"},
        {"example.org:123", "example.org", NETWORK_UDP | 123, ""},
        {"example.org", "example.org", NETWORK_UDP | 443, ""},
        {"*.org.test:123 udp,!example.org.test", "example.org.test", NETWORK_UDP | 123,
         "!example.org.test"},
        {"*.org.test:123 udp,!example.org.test:123", "example.org.test", NETWORK_UDP | 123,
         "!example.org.test:123"},
        {"", "example.org", 443, ""},
        {"", "example.org", 0, ""},
    };
    struct network_rule rules[MOST];
    char text[NETWORK_RULE];

    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t n = read_rules(rows[i].rules, rules);
        const struct network_rule *is = network_decide(rules, n, rows[i].name, rows[i].port);
        CHECK_FOR(rows[i].rules, (n > 0) == (rows[i].rules[0] != '\0'));
        CHECK_FOR(rows[i].rules, strcmp(is ? network_rule_text(is, text) : "", rows[i].rule) == 0);
    }
    return 0;
}

TEST(ports_are_those_that_rules_allow)
{
    struct network_rule rules[MOST];
    uint32_t ports[4];

    size_t n = read_rules("a.test:443 udp,a.test:123 udp,b.test:443", rules);
    CHECK(n == 3 && network_ports(rules, n, ports, 4) == 3);
    CHECK(ports[0] == 443 && ports[1] == (NETWORK_UDP | 123) && ports[2] == (NETWORK_UDP | 443));
    n = read_rules("a.test:8443,b.test,c.test:22,d.test:443,!e.test:7", rules);
    CHECK(n == 5 && network_ports(rules, n, ports, 4) == 4);
    CHECK(ports[0] == 22 && ports[1] == 80 && ports[2] == 443 && ports[3] == 8443);
    CHECK(network_ports(rules, n, ports, 3) == -1);
    CHECK(network_ports(rules, 0, ports, 4) == 0);
    return 0;
}

TEST(a_rule_is_within_what_allows_as_much)
{
    static const struct {
        const char *rule;
        const char *wider;
        bool is;
    } rows[] = {
        {"a.test", "a.test", true},
        {"a.test:443", "a.test", true},
        {"a.test", "a.test:443", false},
        {"a.test", "a.test:443,a.test:80", true},
        {"a.test:8443", "a.test", false},
        {"b.a.test", "*.a.test", true},
        {"a.test", "*.a.test", false},
        {"*.b.a.test", "*.a.test", true},
        {"*.a.test", "*.a.test", true},
        {"*.a.test", "*.b.a.test", false},
        {"*.a.test", "a.test", false},
        {"a.test tls=opaque", "a.test", false},
        {"a.test tls=opaque", "a.test tls=opaque", true},
        {"a.test", "a.test tls=opaque", true},
        {"a.test", "a.test ech=refuse", false},
        {"a.test ech=refuse", "a.test ech=refuse", true},
        {"a.test", "a.test,!a.test", false},
        {"*.a.test", "*.a.test,!b.a.test", false},
        {"c.a.test", "*.a.test,!b.a.test", true},
        {"b.a.test", "*.a.test,b.a.test ech=refuse", false},
        {"b.a.test ech=refuse", "*.a.test,b.a.test ech=refuse", true},
        {"*.a.test", "*.a.test,b.a.test ech=refuse", false},
        {"c.a.test", "*.a.test,b.a.test ech=refuse", true},
        {"b.a.test:443", "b.a.test,b.a.test:443 ech=refuse", false},
        {"b.a.test tls=opaque", "*.a.test tls=opaque,b.a.test", false},
        {"b.a.test", "*.a.test tls=opaque,b.a.test", true},
        {"*.a.test tls=opaque", "*.a.test tls=opaque,*.b.a.test", false},
        {"b.a.test tls=opaque", "*.a.test,b.a.test tls=opaque", true},
        {"b.a.test", "*.a.test,!*.a.test:80", false},
        {"b.a.test:443", "*.a.test,!*.a.test:80", true},
        {"!b.test", "a.test", true},
        {"a.test", "", false},
    };
    struct network_rule wider[MOST];
    struct network_rule rule;
    struct err err;

    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t n = read_rules(rows[i].wider, wider);
        CHECK_FOR(rows[i].rule, network_parse_rule(rows[i].rule, &rule, &err) == 0);
        CHECK_FOR(rows[i].rule, network_is_within(&rule, wider, n) == rows[i].is);
    }
    return 0;
}

static enum network_place place_of(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return network_place_of(&v4, sizeof(v4));
    if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        return network_place_of(&v6, sizeof(v6));
    return (enum network_place)99;
}

TEST(addresses_have_places)
{
    static const struct {
        const char *text;
        enum network_place place;
    } rows[] = {
        {"93.184.216.34", NETWORK_PUBLIC},
        {"192.0.2.1", NETWORK_PUBLIC}, /* documentation */
        {"198.51.100.1", NETWORK_PUBLIC},
        {"203.0.113.1", NETWORK_PUBLIC},
        {"11.0.0.0", NETWORK_PUBLIC},
        {"100.63.255.255", NETWORK_PUBLIC},
        {"172.32.0.0", NETWORK_PUBLIC},
        {"198.20.0.0", NETWORK_PUBLIC},
        {"223.255.255.255", NETWORK_PUBLIC},
        {"0.0.0.0", NETWORK_PRIVATE},
        {"0.1.2.3", NETWORK_PRIVATE},
        {"10.255.255.255", NETWORK_PRIVATE},
        {"100.64.0.1", NETWORK_PRIVATE},
        {"100.127.255.255", NETWORK_PRIVATE},
        {"127.0.0.1", NETWORK_PRIVATE},
        {"127.255.255.254", NETWORK_PRIVATE},
        {"169.254.1.1", NETWORK_PRIVATE},
        {"172.16.0.1", NETWORK_PRIVATE},
        {"172.31.255.255", NETWORK_PRIVATE},
        {"192.0.0.1", NETWORK_PRIVATE},
        {"192.168.0.1", NETWORK_PRIVATE},
        {"198.18.0.1", NETWORK_PRIVATE},
        {"198.19.255.255", NETWORK_PRIVATE},
        {"224.0.0.1", NETWORK_PRIVATE},
        {"239.255.255.255", NETWORK_PRIVATE},
        {"240.0.0.1", NETWORK_PRIVATE},
        {"255.255.255.255", NETWORK_PRIVATE},
        {"169.254.169.254", NETWORK_METADATA},
        {"169.254.170.2", NETWORK_METADATA},
        {"100.100.100.200", NETWORK_METADATA},
        {"168.63.129.16", NETWORK_METADATA},
        {"192.0.0.192", NETWORK_METADATA},
        {"2606:4700::1", NETWORK_PUBLIC},
        {"2001:db8::1", NETWORK_PUBLIC},
        {"::", NETWORK_PRIVATE},
        {"::1", NETWORK_PRIVATE},
        {"::127.0.0.1", NETWORK_PRIVATE},
        {"fc00::1", NETWORK_PRIVATE},
        {"fdff::1", NETWORK_PRIVATE},
        {"fe80::1", NETWORK_PRIVATE},
        {"fec0::1", NETWORK_PRIVATE},
        {"ff02::1", NETWORK_PRIVATE},
        {"100::1", NETWORK_PRIVATE},
        {"2001::1", NETWORK_PRIVATE}, /* Teredo */
        {"64:ff9b:1::1", NETWORK_PRIVATE},
        {"fd00:ec2::254", NETWORK_METADATA},
        /* Forms that stand for an IPv4 address. */
        {"::ffff:127.0.0.1", NETWORK_PRIVATE},
        {"::ffff:10.0.0.1", NETWORK_PRIVATE},
        {"::ffff:169.254.169.254", NETWORK_METADATA},
        {"::ffff:93.184.216.34", NETWORK_PUBLIC},
        {"::ffff:0:127.0.0.1", NETWORK_PRIVATE},
        {"64:ff9b::7f00:1", NETWORK_PRIVATE},
        {"64:ff9b::a9fe:a9fe", NETWORK_METADATA},
        {"64:ff9b::5db8:d822", NETWORK_PUBLIC},
        {"2002:7f00:1::1", NETWORK_PRIVATE},
        {"2002:a9fe:a9fe::", NETWORK_METADATA},
        {"2002:5db8:d822::1", NETWORK_PUBLIC},
    };

    for (size_t i = 0; i < LENGTH(rows); i++)
        CHECK_FOR(rows[i].text, place_of(rows[i].text) == rows[i].place);
    struct sockaddr_in cut = {.sin_family = AF_INET, .sin_addr.s_addr = 0x22d8b85d};
    CHECK(network_place_of(&cut, sizeof(cut)) == NETWORK_PUBLIC);
    CHECK(network_place_of(&cut, 4) == NETWORK_PRIVATE && network_place_of(&cut, 0));
    cut.sin_family = AF_UNIX;
    CHECK(network_place_of(&cut, sizeof(cut)) == NETWORK_PRIVATE);
    return 0;
}
