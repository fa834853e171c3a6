/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-egress without its sockets: messages, names and addresses, questions, and what is looked
 * at before it leaves. */
#include "unit.h"

#include <arpa/nameser.h>
#include <stdlib.h>
#include <string.h>

#include "egress/dns.h"
#include "egress/look.h"
#include "egress/names.h"
#include "hello_scene.h"
#include "protocol/egress.h"

/* --- messages --- */

TEST(orders_and_news_come_as_they_went)
{
    const char *const rules[] = {"a.test", "!b.test", NULL};
    struct egress_order order = {.kind = EGRESS_ADD,
                                 .id = 7,
                                 .name = "w",
                                 .rules = rules,
                                 .connections = 3,
                                 .bytes_per_hour = 9,
                                 .places = "512=8080"};
    struct egress_news news = {.kind = EGRESS_CLOSED,
                               .id = 7,
                               .connection = 2,
                               .host = "a.test",
                               .port = 443,
                               .rule = "a.test",
                               .why = "y",
                               .fix = NULL,
                               .up = 1,
                               .down = 2,
                               .ms = 3,
                               .count = 4,
                               .group = 5};
    struct egress_order order_again;
    struct egress_news news_again;
    struct arena arena;
    struct buf b;

    arena_init(&arena, 4096);
    buf_init(&b, EGRESS_MESSAGE);
    egress_pack_order(&b, &order);
    CHECK(buf_done(&b) == 0 && egress_unpack_order(b.p, b.n, &arena, &order_again));
    CHECK(order_again.id == 7 && order_again.bytes_per_hour == 9 &&
          strcmp(order_again.rules[1], "!b.test") == 0 && !order_again.rules[2] &&
          strcmp(order_again.places, "512=8080") == 0);
    CHECK(!egress_unpack_order(b.p, b.n - 1, &arena, &order_again));
    b.p[0] = EGRESS_ORDER_COUNT_;
    CHECK(!egress_unpack_order(b.p, b.n, &arena, &order_again));
    b.p[0] = 0;
    CHECK(!egress_unpack_order(b.p, b.n, &arena, &order_again));
    buf_clear(&b);
    buf_init(&b, EGRESS_NEWS);
    egress_pack_news(&b, &news);
    CHECK(buf_done(&b) == 0 && egress_unpack_news(b.p, b.n, &news_again));
    CHECK(news_again.port == 443 && strcmp(news_again.host, "a.test") == 0 && !*news_again.fix &&
          news_again.count == 4 && news_again.group == 5);
    CHECK(!egress_unpack_news(b.p, b.n - 8, &news_again));
    buf_clear(&b);
    arena_clear(&arena);
    return 0;
}

TEST(the_longest_news_fit)
{
    char text[EGRESS_TEXT + 1];
    struct egress_news news = {
        .kind = EGRESS_REFUSED, .id = 1, .host = text, .rule = text, .why = text, .fix = text};
    struct buf b;

    memset(text, 'x', EGRESS_TEXT);
    text[EGRESS_TEXT] = '\0';
    buf_init(&b, EGRESS_NEWS);
    egress_pack_news(&b, &news);
    CHECK(buf_done(&b) == 0 && egress_unpack_news(b.p, b.n, &news));
    CHECK((int)NETWORK_RULE <= (int)EGRESS_TEXT && (int)NETWORK_MOST == (int)EGRESS_RULES);
    buf_clear(&b);
    return 0;
}

/* --- names --- */

TEST(a_name_keeps_its_address_whatever_else_is_asked_for)
{
    struct names names = {.count = 0};
    struct names others = {.count = 0};
    char name[32];
    uint32_t address = names_give(&names, "a.test");

    CHECK(names_give(&others, "z.test") != 0 && names_give(&others, "a.test") == address);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "n%d.test", i);
        uint32_t is = names_give(&names, name);
        CHECK(is > EGRESS_NETWORK + 1 && is < EGRESS_NETWORK + (1U << 17) - 1);
        CHECK(strcmp(names_find(&names, is), name) == 0);
    }
    CHECK(names_give(&names, "a.test") == address);
    CHECK(strcmp(names_find(&names, address), "a.test") == 0);
    CHECK(!names_find(&names, EGRESS_NETWORK + 1) && !names_find(&others, address + 1));
    names_clear(&names);
    names_clear(&others);
    return 0;
}

TEST(names_have_bounds)
{
    struct names names = {.count = 0};
    char name[NETWORK_NAME];
    size_t given = 0;

    for (int i = 0; i < NAMES_MOST + 1000; i++) {
        snprintf(name, sizeof(name), "n%d.test", i);
        given += names_give(&names, name) != 0;
    }
    CHECK(given <= NAMES_MOST && given > NAMES_MOST * 9 / 10 && names.count == given);
    CHECK(names_give(&names, "n0.test") != 0);
    names_clear(&names);
    CHECK(!names_find(&names, EGRESS_NETWORK + 2));
    for (int i = 0; i < NAMES_MOST; i++) {
        snprintf(name, sizeof(name), "%0240d.test", i);
        (void)names_give(&names, name);
    }
    CHECK(names.bytes <= NAMES_BYTES && names.count < NAMES_MOST / 2);
    names_clear(&names);
    return 0;
}

/* --- questions --- */

/* A question for a name in wire format, with the NUL at its end. */
static size_t ask(unsigned char *message, const char *labels, size_t n, unsigned type)
{
    static const unsigned char head[12] = {0x12, 0x34, 0x01, 0x20, 0, 1};
    const unsigned char tail[4] = {(unsigned char)(type >> 8), (unsigned char)type, 0, 1};

    memcpy(message, head, sizeof(head));
    memcpy(message + 12, labels, n);
    memcpy(message + 12 + n, tail, sizeof(tail));
    return 12 + n + sizeof(tail);
}

#define ASK(message, labels, type) ask(message, labels, sizeof(labels), type)

TEST(questions_are_read)
{
    unsigned char m[DNS_MOST + 1] = {0};
    struct dns_question q;
    enum dns_code code;

    size_t n = ASK(m, "\1A\4test", ns_t_a);
    CHECK(dns_read(m, n, &q, &code) && code == DNS_OK && strcmp(q.name, "a.test") == 0);
    CHECK(q.asks_address && q.end == n);
    n = ASK(m, "\1a\4test", 28);
    CHECK(dns_read(m, n, &q, &code) && code == DNS_OK && !q.asks_address);
    n = ASK(m, "", ns_t_a);
    CHECK(dns_read(m, n, &q, &code) && code == DNS_OK && !*q.name && strcmp(q.shown, ".") == 0);
    n = ASK(m, "\3a.b\4test", ns_t_a);
    CHECK(dns_read(m, n, &q, &code) && code == DNS_OK && !*q.name && strstr(q.shown, "a\\.b"));
    n = ASK(m, "\3a\0b\4test", ns_t_a);
    CHECK(dns_read(m, n, &q, &code) && !*q.name);
    return 0;
}

TEST(other_messages_are_not_answered_or_refused)
{
    unsigned char m[DNS_MOST + 1] = {0};
    struct dns_question q;
    enum dns_code code;
    size_t n = ASK(m, "\1a\4test", ns_t_a);

    for (size_t cut = 0; cut < n; cut++) {
        bool is = dns_read(m, cut, &q, &code);
        CHECK(is == (cut >= 12) && (!is || (code == DNS_MALFORMED && q.end == 0)));
    }
    CHECK(dns_read(m, n + 1, &q, &code) && code == DNS_MALFORMED); /* something behind it */
    CHECK(!dns_read(m, sizeof(m), &q, &code));
    m[2] |= 0x80;
    CHECK(!dns_read(m, n, &q, &code)); /* an answer */
    m[2] = 0x28;
    CHECK(dns_read(m, n, &q, &code) && code == DNS_NOT_DONE); /* an update */
    m[2] = 0x01;
    m[5] = 2;
    CHECK(dns_read(m, n, &q, &code) && code == DNS_MALFORMED);
    m[5] = 1;
    m[n - 1] = 3;
    CHECK(dns_read(m, n, &q, &code) && code == DNS_REFUSED); /* of another class */
    n = ask(m, "\300\14", 2, ns_t_a);
    CHECK(dns_read(m, n, &q, &code) && code == DNS_MALFORMED); /* a name that points at itself */
    return 0;
}

TEST(answers_are_what_a_resolver_reads)
{
    unsigned char m[DNS_MOST] = {0};
    unsigned char reply[DNS_ANSWER];
    struct dns_question q;
    enum dns_code code;
    ns_msg parsed;
    ns_rr rr;
    size_t n = ASK(m, "\1a\4test", ns_t_a);

    CHECK(dns_read(m, n, &q, &code));
    size_t length = dns_write(m, &q, DNS_OK, 0xc6120102, reply);
    CHECK(ns_initparse(reply, (int)length, &parsed) == 0 && ns_msg_id(parsed) == 0x1234);
    CHECK(ns_msg_count(parsed, ns_s_qd) == 1 && ns_msg_count(parsed, ns_s_an) == 1);
    CHECK(ns_parserr(&parsed, ns_s_an, 0, &rr) == 0 && strcmp(ns_rr_name(rr), "a.test") == 0);
    CHECK(ns_rr_rdlen(rr) == 4 && memcmp(ns_rr_rdata(rr), "\306\22\1\2", 4) == 0);
    length = dns_write(m, &q, DNS_NO_SUCH_NAME, 0, reply);
    CHECK(ns_initparse(reply, (int)length, &parsed) == 0 &&
          ns_msg_getflag(parsed, ns_f_rcode) == 3 && ns_msg_count(parsed, ns_s_an) == 0);
    q.end = 0;
    CHECK(dns_write(m, &q, DNS_MALFORMED, 0, reply) == 12);
    return 0;
}

/* --- what is looked at --- */

static struct look look;

static void begin(uint16_t port, const char *line)
{
    struct network_rule rule;
    struct err err;

    look_clear(&look);
    if (network_parse_rule(line, &rule, &err) < 0)
        abort();
    look_begin(&look, "a.test", port, &rule);
}

/* So many bytes at a time; whether all went well. */
static bool say_by(const void *bytes, size_t n, size_t step)
{
    const unsigned char *p = bytes;

    for (size_t at = 0; at < n; at += step) {
        if (look_up(&look, p + at, n - at < step ? n - at : step) < 0)
            return false;
    }
    return true;
}

static bool say(const char *text)
{
    return say_by(text, strlen(text), strlen(text));
}

/* Says it on a connection to that port, at once and byte by byte, which must end alike. */
static bool passes(uint16_t port, const void *bytes, size_t n)
{
    begin(port, "a.test");
    bool at_once = say_by(bytes, n, n) && look.cleared >= n;
    enum look_state state = look.state;
    begin(port, "a.test");
    bool by_bytes = say_by(bytes, n, 1) && look.cleared >= n;
    if (at_once != by_bytes || state != look.state)
        abort();
    return at_once;
}

TEST(a_hello_leaves_when_it_is_whole_and_names_the_host)
{
    struct hello_scene s = {.name = "a.test"};
    unsigned char m[HELLO_SCENE];
    size_t n = hello_record(m, &s);

    CHECK(passes(443, m, n));
    begin(443, "a.test");
    CHECK(look.is_waiting && say_by(m, n - 1, 7) && look.cleared == 0 && look.is_waiting);
    CHECK(say_by(m + n - 1, 1, 1) && look.cleared == n && !look.is_waiting &&
          look.state == LOOK_TLS);
    s.name = "A.TEST";
    CHECK(passes(443, m, hello_record(m, &s)));
    CHECK(passes(80, m, n) && passes(8443, m, n));
    return 0;
}

TEST(hellos_that_name_nobody_or_another_are_refused)
{
    static const struct {
        struct hello_scene scene;
        const char *why;
    } rows[] = {
        {{.name = "b.test"}, "another server"},
        {{.name = "a.test.b.test"}, "another server"},
        {{.name = "127.0.0.1"}, "another server"},
        {{.name = ""}, "another server"},
        {{.name = "a.tes"}, "another server"},
        {{.name = "a.test."}, "another server"},
        {{.name = NULL}, "does not name"},
        {{.no_extensions = true}, "does not name"},
        {{.name = "a.test", .second_name = "b.test"}, "malformed list"},
        {{.name = "a.test", .twice = true}, "malformed"},
        {{.name = "a.test", .type = 1}, "malformed list"},
        {{.name = "a.test", .tail = 1}, "malformed"},
        {{.name = "a.test", .message = 2}, "no hello"},
        {{.name = "a.test", .record = 23}, "not TLS"},
        {{.name = "a.test", .version = 2}, "not TLS"},
    };

    unsigned char m[HELLO_SCENE];

    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t n = hello_record(m, &rows[i].scene);
        CHECK_FOR(rows[i].why, !passes(443, m, n));
        CHECK_FOR(look.why, strstr(look.why, rows[i].why) && look.cleared == 0);
        begin(443, "a.test tls=opaque");
        CHECK_FOR(rows[i].why, say_by(m, n, n) && look.cleared >= n);
    }
    struct hello_scene nul = {.name = "a.test"};
    size_t n = hello_record(m, &nul);
    ((unsigned char *)memmem(m, n, "a.test", 6))[5] = '\0';
    CHECK(!passes(443, m, n));
    return 0;
}

TEST(a_hello_may_be_cut_into_records_and_no_more_may_follow)
{
    struct hello_scene s = {.name = "a.test"};
    unsigned char whole[HELLO_SCENE];
    unsigned char m[8 * HELLO_SCENE];
    size_t n = hello_record(whole, &s);

    for (size_t piece = 1; piece < n - 5; piece += 13)
        CHECK(passes(443, m, hello_cut(m, whole, n, piece)));
    s.name = "b.test";
    n = hello_record(whole, &s);
    CHECK(!passes(443, m, hello_cut(m, whole, n, 1)));
    /* Two in one record, in two, and something else behind it. */
    s.name = "a.test";
    n = hello_record(whole, &s);
    memcpy(m, whole, n);
    memcpy(m + n, whole + 5, n - 5);
    m[3] = (unsigned char)((2 * (n - 5)) >> 8);
    m[4] = (unsigned char)(2 * (n - 5));
    CHECK(!passes(443, m, 2 * n - 5) && strstr(look.why, "in the record"));
    memcpy(m, whole, n);
    memcpy(m + n, whole, n);
    CHECK(!passes(443, m, 2 * n) && strstr(look.why, "before the server"));
    memcpy(m + n, "\x17\3\3\0\1x", 6); /* data, which it has not announced */
    CHECK(!passes(443, m, n + 6));
    memcpy(m + n, "\x14\3\3\0\1\1", 6);
    CHECK(passes(443, m, n + 6));
    memcpy(m + n, "GET /", 5);
    CHECK(!passes(443, m, n + 5));
    return 0;
}

TEST(early_data_pass_where_they_are_announced)
{
    struct hello_scene s = {.name = "a.test", .early = true};
    unsigned char m[HELLO_SCENE];
    size_t n = hello_record(m, &s);

    memcpy(m + n, "\x14\3\3\0\1\1\x17\3\3\0\3xyz", 14);
    CHECK(passes(443, m, n + 14));
    /* Behind them a second hello is still one. */
    s.name = "b.test";
    n += 14;
    n += hello_record(m + n, &s);
    CHECK(!passes(443, m, n));
    return 0;
}

TEST(a_second_hello_after_the_server_asked_names_the_host_too)
{
    struct hello_scene s = {.name = "a.test"};
    unsigned char m[HELLO_SCENE];
    unsigned char answer[HELLO_SCENE];

    for (int is_other = 0; is_other < 2; is_other++) {
        for (size_t step = 1; step < 200; step += 66) {
            begin(443, "a.test");
            s.name = "a.test";
            size_t n = hello_record(m, &s);
            CHECK(say_by(m, n, step));
            size_t k = server_record(answer, true);
            for (size_t i = 0; i < k; i++)
                look_down(&look, answer + i, 1);
            CHECK(look.state == LOOK_TLS && look.is_waiting && look.hello.retried);
            CHECK(say_by("\x14\3\3\0\1\1", 6, 6) && look.cleared == n + 6);
            s.name = is_other ? "b.test" : "a.test";
            size_t second = hello_record(m, &s);
            CHECK(say_by(m, second, step) == !is_other);
            CHECK(look.cleared == n + 6 + (is_other ? 0 : second));
            look_down(&look, answer, server_record(answer, false));
            CHECK(look.state == (is_other ? LOOK_OVER : LOOK_FREE));
        }
    }
    return 0;
}

TEST(the_server_is_believed_once_it_has_answered)
{
    struct hello_scene s = {.name = "a.test"};
    unsigned char m[HELLO_SCENE];
    unsigned char answer[HELLO_SCENE];
    size_t n = hello_record(m, &s);

    begin(443, "a.test");
    CHECK(say_by(m, n, n) && look_wants_down(&look));
    look_down(&look, (const unsigned char *)"\x15\3\3\0\2\1\x70", 7); /* a warning before it */
    CHECK(look.state == LOOK_TLS);
    look_down(&look, answer, server_record(answer, false));
    CHECK(look.state == LOOK_FREE && look.cleared == UINT64_MAX && !look_wants_down(&look));
    CHECK(say("anything"));
    /* Another language is no answer: nothing else leaves then. */
    begin(443, "a.test");
    CHECK(say_by(m, n, n));
    look_down(&look, (const unsigned char *)"HTTP/1.1 400 Bad\r\n\r\n", 20);
    look_down(&look, answer, server_record(answer, false));
    CHECK(look.state == LOOK_TLS && !say_by(m, n, n));
    /* Nor is one that comes before the hello is whole. */
    begin(443, "a.test");
    CHECK(say_by(m, n - 1, n));
    look_down(&look, answer, server_record(answer, false));
    CHECK(look.state == LOOK_TLS && look.cleared == 0);
    return 0;
}

TEST(an_encrypted_hello_is_refused_where_the_rule_says_so)
{
    struct hello_scene s = {.name = "a.test", .ech = true};
    unsigned char m[HELLO_SCENE];
    size_t n = hello_record(m, &s);

    CHECK(passes(443, m, n));
    begin(443, "a.test ech=refuse");
    CHECK(!say_by(m, n, n) && strstr(look.why, "encrypted"));
    s.name = "b.test"; /* and outside it names the host all the same */
    CHECK(!passes(443, m, hello_record(m, &s)));
    return 0;
}

TEST(hellos_have_bounds)
{
    static unsigned char m[8 * HELLO_MOST];
    struct hello_scene s = {.name = "a.test", .padding = 20000};

    CHECK(passes(443, m, hello_long(m, &s)));
    s.padding = HELLO_MOST;
    CHECK(!passes(443, m, hello_long(m, &s)) && strstr(look.why, "no hello"));
    begin(443, "a.test");
    for (size_t i = 0; i + 6 <= sizeof(m); i += 6)
        memcpy(m + i, "\x16\3\1\0\1\0", 6); /* a byte in each record */
    m[5] = 1;
    m[3 * 6 - 1] = 0x70;
    CHECK(!say_by(m, sizeof(m) / 6 * 6, 4096) && strstr(look.why, "longer"));
    CHECK(look.hello.message.n <= HELLO_MOST);
    return 0;
}

TEST(a_port_says_what_is_spoken_there)
{
    begin(443, "a.test");
    CHECK(!say("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n") && strstr(look.why, "not TLS"));
    begin(443, "a.test");
    CHECK(!say("\x80\x2e\x01\x03\x01")); /* a hello of SSL 2 */
    begin(80, "a.test");
    CHECK(!say("SSH-2.0-x\r\n\r\n"));
    begin(80, "a.test tls=opaque");
    CHECK(look.state == LOOK_UNDECIDED && !say("SSH-2.0-x\r\n\r\n"));
    begin(22, "a.test");
    CHECK(say("SSH-2.0-OpenSSH_9.2p1 Debian\r\n") && look.state == LOOK_FREE);
    begin(9418, "a.test");
    CHECK(say_by("0030git-upload-pack /x\0host=b.test\0", 35, 1) && look.state == LOOK_FREE);
    begin(6379, "a.test");
    CHECK(say("*1\r\n$4\r\nPING\r\n") && look.state == LOOK_FREE);
    begin(389, "a.test");
    CHECK(say_by("0\f\2\1\1`\a\2\1\3\4\0\x80\0", 14, 1) && look.state == LOOK_FREE);
    begin(5672, "a.test");
    CHECK(say_by("AMQP\0\0\11\1", 8, 1) && look.state == LOOK_FREE);
    begin(25, "a.test");
    CHECK(say("EHLO x") && look.state == LOOK_UNDECIDED && look.is_waiting && look.cleared == 0);
    CHECK(say("\r\n") && look.state == LOOK_FREE && look.cleared == UINT64_MAX);
    begin(5432, "a.test");
    CHECK(say_by("\0\0\0\10\4\322\26/", 8, 1) && look.state == LOOK_FREE);
    return 0;
}

TEST(http_is_known_at_any_port_however_it_is_disguised)
{
    static const char *const rows[] = {
        "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        " \t\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "get / http/1.1\r\nHost: b.test\r\n\r\n",
        "X / HTTP/1.1\nHost: b.test\n\n",
        "GET\t/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET / \x01 HTTP/1.1\r\nHost: b.test\r\n\r\n",
        /* All of these are requests to Python's http.server. */
        "GET /\tHTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET\v/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "\fGET /\fHTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET\r/\rHTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET\x1c/\x85HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "\xa0GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET /\r\nHost: b.test\r\n\r\n",
    };
    static const char path[] = "GET /\0 HTTP/1.1\r\nHost: b.test\r\n\r\n";
    static char line[LOOK_LINE + 100];
    static const char nul[] = "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n"; /* and a NUL behind it */

    CHECK(!passes(8080, nul, sizeof(nul)));
    CHECK(!passes(8080, path, sizeof(path) - 1));
    for (size_t i = 0; i < LENGTH(rows); i++)
        CHECK_FOR(rows[i], !passes(8080, rows[i], strlen(rows[i])));
    memset(line, 'x', sizeof(line) - 1);
    memcpy(line, "GET /", 5);
    CHECK(!passes(8080, line, sizeof(line) - 1) && strstr(look.why, "no end"));
    return 0;
}

#define HOST "Host: a.test\r\n"

TEST(requests_for_the_host_pass)
{
    static const char *const rows[] = {
        "GET / HTTP/1.1\r\n" HOST "\r\n",
        "GET /x?y HTTP/1.1\r\nhost: A.Test:8080\r\n\r\n",
        "GET / HTTP/1.0\r\n" HOST "\r\n",
        "GET / HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nGET /GET / HTTP/1.1\r\n" HOST "\r\n",
        "POST / HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n",
        "PROPFIND / HTTP/1.1\r\n" HOST "\r\n",
        "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
        /* Java, with each request */
        "GET / HTTP/1.1\r\n" HOST "Upgrade: h2c\r\n\r\nPOST / HTTP/1.1\r\n" HOST
        "Upgrade: h2c\r\nContent-Length: 5\r\n\r\nPRI *GET / HTTP/1.1\r\n" HOST "\r\n",
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        CHECK_FOR(rows[i], passes(8080, rows[i], strlen(rows[i])));
        CHECK_FOR(rows[i], look.state == LOOK_HTTP && !look.is_waiting);
    }
    return 0;
}

TEST(requests_for_another_host_are_refused)
{
    static const char *const rows[] = {
        "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST HOST "\r\n",
        "GET / HTTP/1.1\r\n" HOST "Host: b.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: b.test@a.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test:81\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test.\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test:65616\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test,b.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test\r\n Host: b.test\r\n\r\n",
        "GET / HTTP/1.1\nHost: a.test\n\n",
        "GET / HTTP/1.1\r\nHost: a.test\n\r\n\r\n",
        "GET http://b.test/ HTTP/1.1\r\n" HOST "\r\n",
        "GET http://a.test/ HTTP/1.1\r\n" HOST "\r\n",
        "CONNECT a.test:80 HTTP/1.1\r\n" HOST "\r\n",
        "CONNECT b.test:443 HTTP/1.1\r\n" HOST "\r\n",
        "OPTIONS * HTTP/1.1\r\n" HOST "\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        /* Two ways to read how long it is. */
        "POST / HTTP/1.1\r\n" HOST
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 1,1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
        "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        /* Another protocol from here on. */
        "GET / HTTP/1.1\r\n" HOST "Upgrade: TLS/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Upgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST
        "Upgrade: h2c\r\nContent-Length: 24\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Upgrade: h2c\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Upgrade: websocket, h2c\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\nUpgrade: h2c\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\nContent-Length: 1\r\n\r\nx",
        "GET / HTTP/1.1\r\n" HOST "\r\nGET / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\n\r\n",
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        CHECK_FOR(rows[i], !passes(80, rows[i], strlen(rows[i])));
        CHECK_FOR(rows[i], look.state == LOOK_OVER && look.why && look.fix);
    }
    return 0;
}

TEST(a_websocket_is_one_when_the_server_has_agreed)
{
    static const char asks[] = "GET / HTTP/1.1\r\n" HOST "Upgrade: WebSocket\r\n\r\n";
    static const char early[] = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    static const char yes[] = "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n";
    static const char no[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 101 x\r\n\r\n";

    static const struct {
        const char *answer;
        enum look_state state;
    } rows[] = {{yes, LOOK_FREE}, {no, LOOK_HTTP}};

    for (size_t i = 0; i < LENGTH(rows); i++) {
        begin(80, "a.test");
        CHECK(say(asks) && look.state == LOOK_HTTP && look.cleared == sizeof(asks) - 1);
        CHECK(look_wants_down(&look));
        for (const char *p = early; *p; p++)
            look_down(&look, (const unsigned char *)p, 1);
        CHECK(look.state == LOOK_HTTP && look_wants_down(&look));
        look_down(&look, (const unsigned char *)rows[i].answer, strlen(rows[i].answer));
        CHECK(look.state == rows[i].state && !look_wants_down(&look));
    }
    CHECK(say("GET / HTTP/1.1\r\n" HOST "\r\n") && !say("\x81\x05hello\n"));
    begin(80, "a.test");
    CHECK(say(asks) && !say("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n"));
    return 0;
}

TEST(what_was_looked_at_is_given_back)
{
    look_clear(&look);
    return 0;
}
