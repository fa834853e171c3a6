/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside TLS that ends in carrel-egress: rules about requests, requests as they are written
 * anew, secrets in them, and how they are taken out of answers. And sealed texts. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/seal.h"
#include "egress/inner.h"
#include "egress/mask.h"
#include "policy/network_inner.h"

#define VALUE "sk-0123456789abcdef"
#define STARS "*******************"

/* --- rules --- */

TEST(rules_about_requests_are_written_as_they_are_read)
{
    static const struct {
        const char *rule;
        const char *text; /* NULL: refused */
    } rows[] = {
        {"a.test tls=inspect", "a.test tls=inspect"},
        {"a.test:8443 paths=/v1/*,/x methods=GET,HEAD",
         "a.test:8443 methods=GET,HEAD paths=/v1/*,/x"},
        {"*.a.test methods=GET", "*.a.test methods=GET"},
        {"a.test secret=my-key header=Authorization env=MY_KEY", "a.test secret=my-key"},
        {"a.test secret=k header=X-Api-Key env=THE_KEY",
         "a.test secret=k header=X-Api-Key env=THE_KEY"},
        {"a.test paths=/repos/*/issues", "a.test paths=/repos/*/issues"},
        {"a.test:80 methods=GET", NULL},
        {"a.test methods=", NULL},
        {"a.test methods=get", NULL},
        {"a.test methods=TRACE", NULL},
        {"a.test methods=GET,CONNECT", NULL},
        {"a.test methods=GET methods=PUT", NULL},
        {"a.test paths=v1", NULL},
        {"a.test paths=/a//b", NULL},
        {"a.test paths=/a/../b", NULL},
        {"a.test paths=/a/..", NULL},
        {"a.test paths=/a%2e", NULL},
        {"a.test paths=/a*b", NULL},
        {"a.test paths=/a?b", NULL},
        {"a.test secret=K", NULL},
        {"a.test header=X", NULL},
        {"a.test secret=k header=Host", NULL},
        {"a.test secret=k header=a:b", NULL},
        {"a.test secret=k env=1A", NULL},
        {"*.a.test secret=k", NULL},
        {"!a.test methods=GET", NULL},
        {"a.test tls=opaque methods=GET", NULL},
        {"a.test ech=refuse methods=GET", NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct network_rule rule;
        char text[NETWORK_RULE];
        struct err err;
        int r = network_parse_rule(rows[i].rule, &rule, &err);
        CHECK_FOR(rows[i].rule, (r == 0) == (rows[i].text != NULL));
        if (r == 0)
            CHECK_FOR(rows[i].rule, strcmp(network_rule_text(&rule, text), rows[i].text) == 0);
    }
    return 0;
}

static const struct network_rule *decide(const char *text, const char *method, const char *path)
{
    static struct network_rule rules[4];
    const char *why;
    struct err err;

    const struct network_request asked = {
        .name = "a.test", .port = 443, .method = method, .path = path};

    return network_parse_rule(text, &rules[0], &err) < 0
               ? NULL
               : network_decide_request(rules, 1, &asked, &why);
}

TEST(a_request_is_decided_about_by_method_and_path)
{
    static const struct {
        const char *rule;
        const char *path;
        bool allowed;
    } rows[] = {
        {"a.test paths=/v1/*", "/v1/", true},
        {"a.test paths=/v1/*", "/v1/a/b", true},
        {"a.test paths=/v1/*", "/v1", false},
        {"a.test paths=/v1/*", "/v10", false},
        {"a.test paths=/v1/*", "/%761/a", true},
        {"a.test paths=/v1/*", "/v1/../v2", false},
        {"a.test paths=/v1/*", "/v1/%2E%2e/v2", false},
        {"a.test paths=/v1/*", "/v1/..%2fv2", false},
        {"a.test paths=/v1/*", "/v1/..", false},
        {"a.test paths=/v1/*", "/v1/.;x/a", false},
        {"a.test paths=/v1/*", "/v1//a", false},
        {"a.test paths=/v1/*", "//v1/a", false},
        {"a.test paths=/v1/*", "/v1/a%00", false},
        {"a.test paths=/v1/*", "/v1/a%5cb", false},
        {"a.test paths=/v1/*", "/v1/a\\b", false},
        {"a.test paths=/v1/*", "/v1/%252e%252e/a", false},
        {"a.test paths=/v1/*", "/v1/a%zz", false},
        {"a.test paths=/v1/*", "/v1/...", true},
        {"a.test paths=/r/*/i", "/r/x/i", true},
        {"a.test paths=/r/*/i", "/r/x/y/i", false},
        {"a.test paths=/r/*/i", "/r//i", false},
        {"a.test paths=/", "/", true},
        {"a.test paths=/", "/a", false},
        {"a.test tls=inspect", "/a/../b", true},
        {"b.test tls=inspect", "/", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_FOR(rows[i].path,
                  (decide(rows[i].rule, "GET", rows[i].path) != NULL) == rows[i].allowed);
    CHECK(decide("a.test methods=GET,PUT", "PUT", "/") &&
          !decide("a.test methods=GET", "GETS", "/"));
    CHECK(!decide("a.test methods=GET", "", "/") && !decide("a.test methods=GETS", "GET", "/"));
    return 0;
}

static bool is_within(const char *text, const char *wider)
{
    struct network_rule rules[2];
    struct err err;

    return network_parse_rule(text, &rules[0], &err) == 0 &&
           network_parse_rule(wider, &rules[1], &err) == 0 &&
           network_is_within(&rules[0], &rules[1], 1);
}

TEST(a_rule_about_requests_is_only_narrowed)
{
    CHECK(is_within("a.test methods=GET", "a.test"));
    CHECK(!is_within("a.test", "a.test methods=GET"));
    CHECK(!is_within("a.test:443", "a.test methods=GET"));
    CHECK(is_within("a.test methods=GET", "a.test methods=PUT,GET"));
    CHECK(!is_within("a.test methods=GET,DELETE", "a.test methods=PUT,GET"));
    CHECK(is_within("a.test paths=/v1/a", "a.test paths=/v1/*"));
    CHECK(is_within("a.test paths=/v1/a/*", "a.test paths=/v1/*"));
    CHECK(!is_within("a.test paths=/*", "a.test paths=/v1/*"));
    CHECK(!is_within("a.test paths=/v2", "a.test paths=/v1/*"));
    CHECK(!is_within("a.test paths=/r/*/b", "a.test paths=/r/*/a"));
    CHECK(is_within("a.test secret=k", "a.test"));
    CHECK(is_within("a.test secret=k", "a.test secret=k"));
    CHECK(!is_within("a.test tls=inspect", "a.test secret=k"));
    CHECK(!is_within("a.test secret=k header=X-Key", "a.test secret=k"));
    CHECK(!is_within("a.test secret=other", "a.test secret=k"));
    return 0;
}

/* --- requests and answers --- */

struct talk {
    struct network_rule rules[2];
    size_t count;
    struct inner inner;
    struct buf up;
    struct buf down;
};

static const char *value_of(void *context, const char *secret, bool before)
{
    (void)context;
    return strcmp(secret, "k") != 0 ? NULL : before ? "sk-formerly-this" : VALUE;
}

static void talk_end(struct talk *t)
{
    inner_clear(&t->inner);
    buf_clear(&t->up);
    buf_clear(&t->down);
}

#define scoped_talk __attribute__((cleanup(talk_end))) struct talk

static void talk_begin(struct talk *t, const char *rule)
{
    struct err err;

    *t = (struct talk){.count = 1};
    buf_init(&t->up, 1 << 20);
    buf_init(&t->down, 1 << 20);
    (void)network_parse_rule(rule, &t->rules[0], &err);
    inner_begin(&t->inner, "a.test", 443, value_of, NULL);
    t->inner.rules = t->rules;
    t->inner.rule_count = t->count;
}

/* In pieces of that many bytes; how many were taken, or -1. */
static ssize_t say(struct talk *t, const char *text, size_t piece)
{
    size_t n = strlen(text);
    size_t at = 0;

    while (at < n) {
        size_t some = n - at < piece ? n - at : piece;
        ssize_t taken = inner_up(&t->inner, text + at, some, &t->up);
        if (taken < 0)
            return -1;
        at += (size_t)taken;
        if ((size_t)taken < some)
            break;
    }
    return (ssize_t)at;
}

static int answer(struct talk *t, const char *text, size_t piece)
{
    size_t n = strlen(text);

    for (size_t at = 0; at < n; at += piece) {
        if (inner_down(&t->inner, text + at, n - at < piece ? n - at : piece, &t->down) < 0)
            return -1;
    }
    return 0;
}

static bool has(const struct buf *b, const char *text)
{
    return b->n > 0 && memmem(b->p, b->n, text, strlen(text));
}

TEST(a_secret_goes_into_its_header_alone)
{
    for (size_t piece = 1; piece < 40; piece += 6) {
        scoped_talk t;
        talk_begin(&t, "a.test secret=k paths=/v1");
        CHECK(say(&t,
                  "GET /v1?q=carrel-secret-k HTTP/1.1\r\nHost: a.test\r\nX-A: "
                  "carrel-secret-k\r\nAuthorization: Bearer carrel-secret-k\r\nRange: bytes=0-1\r\n"
                  "Accept-Encoding: gzip\r\nConnection: keep-alive, "
                  "Authorization\r\nContent-Length: 15\r\n\r\ncarrel-secret-k",
                  piece) > 0);
        CHECK(has(&t.up, "Authorization: Bearer " VALUE "\r\n") &&
              has(&t.up, "X-A: carrel-secret-k\r\n"));
        CHECK(has(&t.up, "GET /v1?q=carrel-secret-k HTTP/1.1\r\n") &&
              has(&t.up, "\r\n\r\ncarrel-secret-k"));
        CHECK(has(&t.up, "accept-encoding: identity") && !has(&t.up, "Range") &&
              !has(&t.up, "gzip") && !has(&t.up, "keep-alive"));
        CHECK(t.inner.up == INNER_WAIT);
    }
    return 0;
}

TEST(requests_that_are_not_let_through)
{
    static const char *const wrong[] = {
        "GET /v1 HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
        "GET /v1 HTTP/1.0\r\nHost: a.test\r\n\r\n",
        "GET /v2 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "POST /v1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "TRACE /v1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET https://a.test/v1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nAuthorization: mine\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nauthorization: carrel-secret-k\r\n\r\n\x01",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nAuthorization: carrel-secret-k\r\nAUTHORIZATION: "
        "x\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nX-HTTP-Method-Override: PUT\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: "
        "chunked\r\n\r\n",
        "GET /v1 HTTP/1.1\nHost: a.test\n\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nAuthorization : carrel-secret-k\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: a.test\r\nAuthorization: a\r\n carrel-secret-k\r\n\r\n",
        "\r\nGET /v1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        scoped_talk t;
        size_t n = strlen(wrong[i]);
        talk_begin(&t, "a.test secret=k paths=/v1 methods=GET,TRACE,CONNECT");
        if (t.rules[0].inspect == 0) /* TRACE cannot be asked for */
            talk_begin(&t, "a.test secret=k paths=/v1 methods=GET");
        t.inner.rules = t.rules;
        ssize_t taken = say(&t, wrong[i], n);
        /* What follows a request waits; all others are refused, and nothing of them leaves. */
        CHECK_FOR(wrong[i], taken < 0 ? t.up.n == 0 : taken == (ssize_t)n - 1);
        CHECK_FOR(wrong[i], taken >= 0 || t.inner.why);
    }
    return 0;
}

TEST(a_secret_that_is_not_set_stops_the_request)
{
    scoped_talk t;

    talk_begin(&t, "a.test secret=other");
    CHECK(say(&t, "GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: carrel-secret-other\r\n\r\n",
              999) < 0);
    CHECK(t.up.n == 0 && strstr(t.inner.why, "not set"));
    return 0;
}

static const char ask[] =
    "GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: carrel-secret-k\r\n\r\n";

TEST(a_secret_is_taken_out_wherever_an_answer_is_cut)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nX-A: " VALUE "\r\nContent-Length: 41\r\n\r\n<" VALUE "><" VALUE,
        "HTTP/1.1 200 " VALUE "\r\nTransfer-Encoding: "
        "chunked\r\n\r\n5\r\nsk-01\r\n5\r\n23456\r\n9\r\n789abcdef\r\n1\r\n!\r\n0\r\n\r\n",
        "HTTP/1.1 404 sk-formerly-this\r\n" VALUE
        ": x\r\nContent-Length: 16\r\n\r\nsk-formerly-this",
    };

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        for (size_t piece = 1; piece < 99; piece++) {
            scoped_talk t;
            talk_begin(&t, "a.test secret=k");
            CHECK(say(&t, ask, 999) > 0 && answer(&t, answers[i], piece) == 0);
            CHECK_FOR(answers[i], t.inner.up == INNER_HEAD && t.inner.is_done);
            CHECK_FOR(answers[i],
                      !has(&t.down, VALUE) && !has(&t.down, "sk-01") && !has(&t.down, "formerly"));
            CHECK_FOR(answers[i], has(&t.down, i == 2 ? "****************" : "*"));
        }
    }
    return 0;
}

TEST(answers_that_are_not_let_through)
{
    static const char *const wrong[] = {
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        scoped_talk t;
        talk_begin(&t, "a.test secret=k");
        CHECK(say(&t, ask, 999) > 0);
        CHECK_FOR(wrong[i],
                  answer(&t, wrong[i], 7) < 0 && t.inner.is_servers && t.inner.up == INNER_OVER);
    }
    return 0;
}

TEST(one_request_waits_for_the_answer_to_the_one_before)
{
    scoped_talk t;
    char two[512];

    snprintf(two, sizeof(two), "%s%s", ask, ask);
    talk_begin(&t, "a.test secret=k");
    CHECK(say(&t, two, 999) == (ssize_t)strlen(ask) && t.inner.up == INNER_WAIT);
    CHECK(answer(&t, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 999) == 0 &&
          t.inner.up == INNER_HEAD);
    CHECK(say(&t, ask, 999) == (ssize_t)strlen(ask));
    CHECK(answer(&t, "HTTP/1.1 200 OK\r\n\r\nabc", 999) == 0 &&
          inner_down_end(&t.inner, &t.down) == 0);
    CHECK(t.inner.up == INNER_OVER && has(&t.down, "3\r\nabc\r\n0\r\n\r\n"));
    return 0;
}

TEST(what_is_not_asked_for_is_refused)
{
    scoped_talk t;

    talk_begin(&t, "a.test tls=inspect");
    CHECK(answer(&t, "HTTP/1.1 200 OK\r\n\r\n", 999) < 0);
    return 0;
}

/* --- the mask --- */

TEST(words_that_overlap_are_all_taken_out)
{
    struct mask m = {.count = 0};
    scoped_buf struct buf out;

    buf_init(&out, 1 << 16);
    mask_begin(&m);
    CHECK(mask_add(&m, "aaaabbbb", 8) && mask_add(&m, "bbbbcccc", 8) && mask_add(&m, "short", 5));
    for (const char *p = "xaaaabbbbccccy-aaaabbbb-short-bbbb"; *p; p++)
        mask_bytes(&m, p, 1, p[1] == '\0', &out);
    CHECK(strcmp(out.p, "x************y-********-short-bbbb") == 0);
    mask_clear(&m);
    return 0;
}

/* --- sealed texts --- */

TEST(a_sealed_text_opens_for_its_key_and_purpose_alone)
{
    unsigned char secret[SEAL_KEY] = {1, 2, 3};
    unsigned char other[SEAL_KEY] = {1, 2, 4};
    unsigned char public[SEAL_KEY];
    char text[SEAL_MOST + 1];
    scoped_buf struct buf a;
    scoped_buf struct buf b;

    buf_init(&a, SEAL_HEX);
    buf_init(&b, SEAL_HEX);
    CHECK(seal_public(secret, public) == 0);
    CHECK(seal(public, "alice/k", VALUE, strlen(VALUE), &a) == 0 && buf_done(&a) == 0);
    CHECK(seal(public, "alice/k", VALUE, strlen(VALUE), &b) == 0 && buf_done(&b) == 0);
    CHECK(a.n == b.n && memcmp(a.p, b.p, a.n) != 0); /* no two are alike */
    CHECK(seal_open(secret, "alice/k", a.p, text) == (ssize_t)strlen(VALUE) &&
          strcmp(text, VALUE) == 0);
    CHECK(seal_open(secret, "bob/k", a.p, text) < 0 && seal_open(other, "alice/k", a.p, text) < 0);
    for (size_t i = 0; i < a.n; i++) {
        char was = a.p[i];
        a.p[i] = was == '0' ? '1' : '0';
        CHECK(seal_open(secret, "alice/k", a.p, text) < 0);
        a.p[i] = was;
    }
    CHECK(seal_open(secret, "alice/k", "", text) < 0 &&
          seal_open(secret, "alice/k", "01", text) < 0);
    a.p[a.n - 2] = '\0';
    CHECK(seal_open(secret, "alice/k", a.p, text) < 0);
    return 0;
}
