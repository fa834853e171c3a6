/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of HTTP: heads, chunks and queries. */
#include "http/forward.h"
#include "http/server.h"
#include "unit.h"

#include <string.h>

#define HOST "Host: a\r\n"
#define END  "\r\n"

static char bytes[2 * HTTP_MAX_HEAD];
static struct http_request r;
static const char *why;

static ssize_t parse(const char *text, size_t n)
{
    memcpy(bytes, text, n);
    return http_parse_head(bytes, n, &r, &why);
}

static ssize_t parse_text(const char *text)
{
    return parse(text, strlen(text));
}

TEST(a_head_is_cut_into_its_pieces)
{
    const char *text = "POST /v1/x%20y?limit=3&q HTTP/1.1\r\nHOST: example.com:80\r\n"
                       "X-Blank:\r\nX-Odd: \t caf\xc3\xa9, \"x\" \t\r\nContent-Length: 12\r\n"
                       "Expect: 100-Continue\r\n\r\nrest";

    CHECK(parse_text(text) == (ssize_t)strlen(text) - 4);
    CHECK(r.method == HTTP_POST && !r.is_1_0 && r.keep_alive && r.expects_continue);
    CHECK(strcmp(r.path, "/v1/x%20y") == 0 && strcmp(r.query, "limit=3&q") == 0);
    CHECK(r.header_count == 5 && r.has_body && !r.chunked && r.length == 12);
    CHECK(strcmp(http_header(&r, "host"), "example.com:80") == 0);
    CHECK(strcmp(http_header(&r, "x-blank"), "") == 0);
    CHECK(strcmp(http_header(&r, "x-odd"), "caf\xc3\xa9, \"x\"") == 0);
    CHECK(http_header(&r, "x-none") == NULL);
    return 0;
}

TEST(every_method_is_known)
{
    static const char *const names[] = {"GET",   "HEAD",   "POST",    "PUT",
                                        "PATCH", "DELETE", "OPTIONS", "BREW"};

    for (size_t i = 0; i < LENGTH(names); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost:\r\n\r\n", names[i]);
        CHECK_FOR(names[i], parse_text(text) > 0 && r.method == (enum http_method)i);
        CHECK_FOR(names[i], strcmp(r.query, "") == 0 && !r.has_body);
    }
    return 0;
}

TEST(a_connection_is_kept_as_its_version_and_header_say)
{
    static const struct {
        const char *text;
        bool kept;
    } rows[] = {
        {"GET / HTTP/1.1\r\n" HOST END, true},
        {"GET / HTTP/1.1\r\n" HOST "Connection: close\r\n" END, false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: TE, Close\r\n" END, false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: close\r\nConnection: keep-alive\r\n" END, false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: closed\r\n" END, true},
        {"GET / HTTP/1.0\r\n" END, false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n" END, true},
        {"GET / HTTP/1.0\r\nConnection: keep-alive,close\r\n" END, false},
    };

    for (size_t i = 0; i < LENGTH(rows); i++)
        CHECK_FOR(rows[i].text, parse_text(rows[i].text) > 0 && r.keep_alive == rows[i].kept);
    return 0;
}

TEST(heads_that_could_be_read_in_two_ways_are_refused)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {
        /* the request line */
        {400, "get / HTTP/1.1\r\n" HOST END},
        {400, "Get / HTTP/1.1\r\n" HOST END},
        {400, "G@T / HTTP/1.1\r\n" HOST END},
        {400, " GET / HTTP/1.1\r\n" HOST END},
        {501, "CONNECT a:80 HTTP/1.1\r\n" HOST END},
        {501, "CONNECT / HTTP/1.1\r\n" HOST END},
        {400, "TRACE * HTTP/1.1\r\n" HOST END},
        {400, "GET /\r\n" HOST END},
        {400, "GET / \r\n" HOST END},
        {400, "GET  / HTTP/1.1\r\n" HOST END},
        {505, "GET / HTTP/1.1 \r\n" HOST END},
        {400, "GET /a b HTTP/1.1\r\n" HOST END},
        {400, "GET\t/ HTTP/1.1\r\n" HOST END},
        {400, "GET a HTTP/1.1\r\n" HOST END},
        {400, "GET * HTTP/1.1\r\n" HOST END},
        {400, "OPTIONS * HTTP/1.1\r\n" HOST END},
        {400, "GET http://a/ HTTP/1.1\r\n" HOST END},
        {400, "GET /a#b HTTP/1.1\r\n" HOST END},
        {400, "GET /\xc3\xa9 HTTP/1.1\r\n" HOST END},
        {400, "GET /\x7f HTTP/1.1\r\n" HOST END},
        {505, "GET / HTTP/1.2\r\n" HOST END},
        {505, "GET / HTTP/2.0\r\n" HOST END},
        {505, "GET / HTTP/1.1x\r\n" HOST END},
        {400, "GET / http/1.1\r\n" HOST END},
        {400, "\r\nGET / HTTP/1.1\r\n" HOST END},
        /* lines */
        {400, "GET / HTTP/1.1\nHost: a\n\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "X: a\r\n\tb\r\n" END},
        {400, "GET / HTTP/1.1\r\n X: a\r\n" HOST END},
        {400, "GET / HTTP/1.1\r\n" HOST "X: a\x01\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "X: a\x7f\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "X : a\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "X\t: a\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST ": a\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "X\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "X(y): a\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "X\xc3\xa9: a\r\n" END},
        /* fields that say where a request ends, or whom it is for */
        {400, "GET / HTTP/1.1\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST HOST END},
        {400, "GET / HTTP/1.0\r\n" HOST "host: b\r\n" END},
        {400, "GET / HTTP/1.1\r\nHost: a b\r\n" END},
        {400, "GET / HTTP/1.1\r\nHost: a/b\r\n" END},
        {400, "GET / HTTP/1.1\r\nHost: a@b\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-length: 6\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: -5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5 5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 4611686018427387905\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551617\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST
              "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" END},
        {400, "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked;a=b\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n" END},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n" END},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding\x0b: chunked\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n" END},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Type: a\r\nContent-Type: b\r\n" END},
        {417, "POST / HTTP/1.1\r\n" HOST "Expect: something\r\n" END},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        why = NULL;
        ssize_t n = parse_text(rows[i].text);
        CHECK_FOR(rows[i].text, n == -rows[i].status);
        CHECK_FOR(rows[i].text, why && *why && !strpbrk(why, "\"\\"));
    }
    return 0;
}

TEST(a_nul_anywhere_in_a_head_is_refused)
{
    static const char text[] = "GET /abc HTTP/1.1\r\nHost: abc\r\nX-Y: z\r\n\r\n";

    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        char copy[sizeof(text)];
        memcpy(copy, text, sizeof(text));
        copy[i] = '\0';
        CHECK(parse(copy, sizeof(text) - 1) == -400);
    }
    return 0;
}

TEST(a_head_is_not_whole_at_any_shorter_length)
{
    static const char text[] = "GET /abc?d HTTP/1.1\r\nHost: abc\r\nX-Y: z\r\n\r\n";

    for (size_t n = 0; n < sizeof(text) - 1; n++)
        CHECK(parse(text, n) == 0);
    CHECK(parse(text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    return 0;
}

static size_t long_head(char *text, size_t target, size_t value, size_t headers)
{
    size_t n = 0;

    n += (size_t)snprintf(text, 64, "GET /");
    memset(text + n, 'a', target - 1);
    n += target - 1;
    n += (size_t)snprintf(text + n, 64, " HTTP/1.1\r\nHost: a\r\nX: ");
    memset(text + n, 'b', value);
    n += value;
    for (size_t i = 2; i < headers; i++)
        n += (size_t)snprintf(text + n, 64, "\r\nY: z");
    n += (size_t)snprintf(text + n, 64, "\r\n\r\n");
    return n;
}

TEST(heads_have_limits)
{
    static char text[2 * HTTP_MAX_HEAD];

    CHECK(parse(text, long_head(text, HTTP_MAX_TARGET, 1, 2)) > 0);
    CHECK(parse(text, long_head(text, HTTP_MAX_TARGET + 1, 1, 2)) == -414);
    CHECK(parse(text, long_head(text, 17000, 1, 2)) == -414);
    size_t around = long_head(text, 1, 1, 2);
    CHECK(parse(text, long_head(text, 1, HTTP_MAX_HEAD - around + 1, 2)) == HTTP_MAX_HEAD);
    CHECK(parse(text, long_head(text, 1, HTTP_MAX_HEAD - around + 2, 2)) == -431);
    (void)long_head(text, 1, HTTP_MAX_HEAD, 2);
    CHECK(parse(text, HTTP_MAX_HEAD) == -431);
    CHECK(parse(text, HTTP_MAX_HEAD - 1) == 0);
    CHECK(parse(text, long_head(text, 1, 1, HTTP_MAX_HEADERS)) > 0);
    CHECK(r.header_count == HTTP_MAX_HEADERS);
    CHECK(parse(text, long_head(text, 1, 1, HTTP_MAX_HEADERS + 1)) == -431);
    CHECK(parse_text("POST / HTTP/1.1\r\n" HOST "Content-Length: 4611686018427387904\r\n" END) > 0);
    CHECK(r.length == UINT64_C(1) << 62);
    return 0;
}

/* Decodes pieces that end at `first` and `second`; 1 whole, 0 not, -1 refused. */
static int decode(const char *text, size_t first, size_t second, char *data, size_t *ret_taken)
{
    struct http_chunks c = {0};
    size_t ends[] = {first, second, strlen(text)};
    size_t at = 0;
    size_t data_n = 0;
    bool done = false;

    for (size_t i = 0; i < LENGTH(ends) && !done; i++) {
        char piece[256];
        size_t got = 0;
        size_t n = ends[i] > at ? ends[i] - at : 0;
        memcpy(piece, text + at, n);
        ssize_t taken = http_chunks_decode(&c, piece, n, &got, &done);
        if (taken < 0)
            return -1;
        memcpy(data + data_n, piece, got);
        data_n += got;
        at += (size_t)taken;
    }
    data[data_n] = '\0';
    *ret_taken = at;
    return done;
}

TEST(chunks_are_decoded_wherever_they_are_split)
{
    static const char text[] = "5\r\nhello\r\n1;a=\"b\";c\r\n,\r\n006\r\n world\r\n"
                               "0\r\nX-Sum: 1\r\nY:\r\n\r\nGET /";
    char data[256];
    size_t taken = 0;

    for (size_t i = 0; i <= sizeof(text) - 1; i++) {
        for (size_t j = i; j <= sizeof(text) - 1; j++) {
            CHECK(decode(text, i, j, data, &taken) == 1);
            CHECK(taken == sizeof(text) - 1 - 5 && strcmp(data, "hello, world") == 0);
        }
    }
    CHECK(decode("3\r\nabc\r\n", 2, 4, data, &taken) == 0);
    CHECK(decode("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", 2, 4, data, &taken) == 1);
    CHECK(strlen(data) == 20);
    return 0;
}

TEST(chunks_that_could_be_read_in_two_ways_are_refused)
{
    static const char *const rows[] = {
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5 ;a\r\nhello\r\n0\r\n\r\n",
        "5; a\r\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        ";a\r\nhello\r\n0\r\n\r\n",
        "g\r\n",
        "1000000000000000\r\n",
        "0000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX: \x01\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\rZ\r\n\r\n",
    };
    char data[256];
    size_t taken = 0;

    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t n = strlen(rows[i]);
        CHECK_FOR(rows[i], decode(rows[i], n, n, data, &taken) < 0);
        CHECK_FOR(rows[i], decode(rows[i], 1, 2, data, &taken) < 0);
        CHECK_FOR(rows[i], decode(rows[i], n / 2, n - 1, data, &taken) < 0);
    }
    return 0;
}

TEST(percent_signs_are_decoded_or_refused)
{
    static const struct {
        const char *text;
        const char *decoded; /* NULL: refused */
    } rows[] = {
        {"", ""},
        {"abc", "abc"},
        {"a%20b", "a b"},
        {"%2F%2f", "//"},
        {"a+b", "a+b"},
        {"%c3%A9", "\xc3\xa9"},
        {"%25%32%30", "%20"},
        {"%00", NULL},
        {"a%00b", NULL},
        {"%", NULL},
        {"%4", NULL},
        {"%4g", NULL},
        {"%g4", NULL},
        {"100%", NULL},
        {"%%41", NULL},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        bool fine = http_decode(text);
        CHECK_FOR(rows[i].text, fine == (rows[i].decoded != NULL));
        CHECK_FOR(rows[i].text, !fine || strcmp(text, rows[i].decoded) == 0);
    }
    return 0;
}

TEST(a_query_parameter_is_found_once_or_refused)
{
    static const struct {
        const char *query;
        int found;
        const char *value;
    } rows[] = {
        {"", 0, NULL},
        {"a=1", 1, "1"},
        {"b=2&a=1&c", 1, "1"},
        {"a", 1, ""},
        {"a=", 1, ""},
        {"a=b=c", 1, "b=c"},
        {"a=%26%3d", 1, "&="},
        {"&&a=x&", 1, "x"},
        {"aa=1&A=2&%61=3", 0, NULL},
        {"a=1&a=1", -1, NULL},
        {"a=1&b&a", -1, NULL},
        {"a=%zz", -1, NULL},
        {"a=%00", -1, NULL},
        {"a=1234567", 1, "1234567"},
        {"a=12345678", -1, NULL},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        char value[8] = "";
        CHECK_FOR(rows[i].query, http_query(rows[i].query, "a", value, 8) == rows[i].found);
        CHECK_FOR(rows[i].query, rows[i].found != 1 || strcmp(value, rows[i].value) == 0);
    }
    return 0;
}

TEST(parameters_that_nobody_knows_are_found)
{
    static const struct {
        const char *query;
        const char *other; /* the rest from there on */
    } rows[] = {
        {"", NULL},         {"a=1&bc=2", NULL},     {"&&a&&bc&", NULL}, {"b", "b"},
        {"a=1&b=c", "b=c"}, {"bcd=1&a", "bcd=1&a"}, {"=1", "=1"},       {"a bc", "a bc"},
        {"%61=1", "%61=1"}, {"a=1&A=1", "A=1"},     {"a=b&bc=&c", "c"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t n = 0;
        const char *other = http_query_other(rows[i].query, "a bc", &n);
        CHECK_FOR(rows[i].query,
                  rows[i].other ? other && strcmp(other, rows[i].other) == 0 : !other);
        CHECK_FOR(rows[i].query, !other || n == strcspn(other, "&="));
    }
    return 0;
}

static struct http_response answer;

static ssize_t parse_answer(const char *text)
{
    memcpy(bytes, text, strlen(text));
    return http_parse_response(bytes, strlen(text), &answer, &why);
}

TEST(an_answer_is_read_in_one_way_or_refused)
{
#define OK "HTTP/1.1 200 OK\r\n"

    static const struct {
        const char *text;
        int status; /* 0: refused */
        bool chunked;
        int64_t length; /* -1: none */
    } rows[] = {
        {OK "\r\n", 200, false, -1},
        {"HTTP/1.0 404 Not Found\r\n\r\n", 404, false, -1},
        {"HTTP/1.1 204\r\n\r\n", 204, false, -1},
        {OK "Content-Length: 5\r\n\r\n", 200, false, 5},
        {OK "transfer-encoding: CHUNKED\r\n\r\n", 200, true, -1},
        {"HTTP/1.1 099 X\r\n\r\n", 0, false, 0},
        {"HTTP/1.1 600 X\r\n\r\n", 0, false, 0},
        {"HTTP/1.1 2000\r\n\r\n", 0, false, 0},
        {"HTTP/1.1  200 OK\r\n\r\n", 0, false, 0},
        {"HTTP/1.2 200 OK\r\n\r\n", 0, false, 0},
        {"HTTP/1.1 200 OK\n\n\r\n\r\n", 0, false, 0},
        {OK "X : y\r\n\r\n", 0, false, 0},
        {OK " X: y\r\n\r\n", 0, false, 0},
        {OK "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 0, false, 0},
        {OK "Content-Length: 5x\r\n\r\n", 0, false, 0},
        {OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0, false, 0},
        {OK "Transfer-Encoding: gzip, chunked\r\n\r\n", 0, false, 0},
        {OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, false, 0},
        {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0, false, 0},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        ssize_t n = parse_answer(rows[i].text);
        CHECK_FOR(rows[i].text, (n > 0) == (rows[i].status != 0) && (n > 0 || *why));
        if (n <= 0)
            continue;
        CHECK_FOR(rows[i].text,
                  answer.status == rows[i].status && answer.chunked == rows[i].chunked);
        CHECK_FOR(rows[i].text, answer.has_length == (rows[i].length >= 0));
        CHECK_FOR(rows[i].text, !answer.has_length || answer.length == (uint64_t)rows[i].length);
    }
    CHECK(parse_answer("HTTP/1.1 101 X\r\nUpgrade: WebSocket\r\n\r\n") > 0 && answer.websocket);
    CHECK(parse_answer("HTTP/1.1 101 X\r\nUpgrade: h2c\r\n\r\n") > 0 && !answer.websocket);
    CHECK(parse_answer(OK "Upgrade: websocket\r\n\r\n") > 0 && !answer.websocket);
    CHECK(parse_answer(OK "X: y\r\n") == 0);
    return 0;
#undef OK
}

TEST(a_request_goes_on_without_what_is_ours_or_one_connections)
{
    const struct http_forward f = {.host = "localhost:80", .prefix = "/p/t", .path = "/x"};
    scoped_buf struct buf out;

    buf_init(&out, 4096);
    CHECK(
        parse_text("POST /p/t/x?q HTTP/1.1\r\nHost: daemon:1\r\nAuthorization: Bearer k\r\n"
                   "Connection: x-own, close\r\nX-Own: 1\r\nX_Forwarded_For: 2\r\nForwarded: 3\r\n"
                   "Transfer-Encoding: chunked\r\nContent_Length: 4\r\nExpect: 100-continue\r\n"
                   "TE: trailers\r\nUpgrade: h2c\r\nX-Kept: 5\r\n\r\n") > 0);
    http_forward_request(&out, &r, &f);
    CHECK(buf_done(&out) == 0);
    CHECK(strcmp(out.p, "POST /x?q HTTP/1.1\r\nHost: localhost:80\r\nx-kept: 5\r\n"
                        "X-Forwarded-Host: daemon:1\r\nX-Forwarded-Proto: http\r\n"
                        "X-Forwarded-Prefix: /p/t\r\nTransfer-Encoding: chunked\r\n"
                        "Connection: close\r\n\r\n") == 0);
    buf_clear(&out);
    buf_init(&out, 4096);
    r.by_tls = true;
    http_forward_request(&out, &r, &f);
    CHECK(buf_done(&out) == 0 && strstr(out.p, "\r\nX-Forwarded-Proto: https\r\n"));
    CHECK(!http_wants_websocket(&r));
    CHECK(parse_text("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"
                     "Upgrade: WebSocket\r\n\r\n") > 0 &&
          http_wants_websocket(&r));
    CHECK(parse_text("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     "Content-Length: 1\r\n\r\n") > 0 &&
          !http_wants_websocket(&r));
    return 0;
}

TEST(an_answer_speaks_for_its_own_server_only)
{
    struct http_forward f = {.host = "localhost:80", .prefix = "/p/t", .path = "/x"};
    scoped_buf struct buf out;
    static const char text[] =
        "HTTP/1.1 302 Found\r\nLocation: http://localhost:80/y\r\nDate: x\r\nAlt-Svc: x\r\n"
        "Content-Length: 0\r\nSet-Cookie: a=b ;Domain=x; PATH = /c;Path=d; Secure\r\n"
        "Connection: X-Own\r\nX_Own: 1\r\nService-Worker-Allowed: /\r\nX-Kept: 1\r\n\r\n";

    buf_init(&out, 4096);
    CHECK(parse_answer(text) > 0);
    http_forward_response(&out, &answer, &f);
    CHECK(buf_done(&out) == 0);
    CHECK(strcmp(out.p, "location: /p/t/y\r\nset-cookie: a=b ; Path=/p/t/c; Secure\r\n"
                        "x-kept: 1\r\n") == 0);
    out.n = 0;
    f.prefix = "";
    http_forward_response(&out, &answer, &f);
    CHECK(buf_done(&out) == 0);
    CHECK(strcmp(out.p, "location: /y\r\nset-cookie: a=b ; PATH = /c; Path=d; Secure\r\n"
                        "service-worker-allowed: /\r\nx-kept: 1\r\n") == 0);
    return 0;
}

TEST(a_status_has_words)
{
    CHECK(strcmp(http_status_text(200), "OK") == 0);
    CHECK(strcmp(http_status_text(507), "Insufficient Storage") == 0);
    CHECK(*http_status_text(599) != '\0');
    return 0;
}
