/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of HTTP that files need: ranges, paths and forms. */
#include "http/multipart.h"
#include "http/server.h"
#include "unit.h"

#include <string.h>

#define TYPE "multipart/form-data; boundary=b"
#define TEN  "aaaaaaaaaa"
/* A character more than a boundary may have. */
#define LONG_TYPE "multipart/form-data; boundary=" TEN TEN TEN TEN TEN TEN TEN "a"
#define FORM      "Content-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n"

static struct http_multipart form;
static struct http_part part;
static const char *why;

static int begin(const char *type, const char *body)
{
    return http_multipart_begin(&form, type, body, strlen(body), &why);
}

static int next(void)
{
    return http_multipart_next(&form, &part, &why);
}

TEST(ranges_are_read_or_ignored)
{
    static const struct {
        const char *text;
        bool is_one;
        uint64_t from;
        uint64_t to;
    } rows[] = {
        {"bytes=0-99", true, 0, 100},
        {"bytes=5-", true, 5, HTTP_RANGE_MOST},
        {"bytes=-7", true, HTTP_RANGE_MOST, 7},
        {"bytes=3-3", true, 3, 4},
        {"bytes=0-18446744073709551616", true, 0, HTTP_RANGE_MOST},
        {"bytes=99999999999999999999-", true, HTTP_RANGE_MOST, 0},
        {"bytes=3-2", false, 0, 0},
        {"bytes=-", false, 0, 0},
        {"bytes=", false, 0, 0},
        {"bytes=1-2,4-5", false, 0, 0},
        {"bytes= 1-2", false, 0, 0},
        {"bytes=+1-2", false, 0, 0},
        {"lines=1-2", false, 0, 0},
        {"", false, 0, 0},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct http_range range = {0};
        CHECK_FOR(rows[i].text, http_read_range(rows[i].text, &range) == rows[i].is_one);
        CHECK_FOR(rows[i].text, range.from == rows[i].from && range.to == rows[i].to);
    }
    return 0;
}

TEST(paths_are_decoded_once_and_an_encoded_slash_is_one)
{
    static const struct {
        const char *encoded;
        const char *path; /* NULL: refused */
    } rows[] = {
        {"/", "/"},
        {"/a/b%20c", "/a/b c"},
        {"/%ff", "/\xff"},
        {"/%252e", "/%2e"},
        {"/a%2fb", "/a/b"},
        {"/a%00", NULL},
        {"/a%0", NULL},
        {"/a/", "/a"},
        {"/a//b", "/a//b"},
        {"/%2e%2e", "/.."},
        {"/%2Fa%2Fb", "/a/b"},
        {"/%2f", "/"},
        {"/a%2F", "/a"},
        {"/a%2F%2fb", "/a//b"},
        {"/%2F%2Fa", "//a"},
        {"/%2F/a", "//a"},
        {"//%2Fa", "///a"},
        {"/a%252Fb", "/a%2Fb"},
        {"/a%2F/", "/a/"},
        {"/a%2f..%2Fb", "/a/../b"},
    };

    char path[64];

    for (size_t i = 0; i < LENGTH(rows); i++) {
        bool good = http_decode_path(rows[i].encoded, path);
        CHECK_FOR(rows[i].encoded, good == (rows[i].path != NULL));
        CHECK_FOR(rows[i].encoded, !good || strcmp(path, rows[i].path) == 0);
    }
    return 0;
}

TEST(a_form_is_cut_into_its_parts)
{
    CHECK(
        begin("Multipart/Form-Data ; charset=x; Boundary=\"a b\"",
              "--a b\r\ncontent-disposition: form-data; filename=\"q\\\"%22\"; name=t\r\n"
              "X-Other: 1\r\n\r\n\r\n--a b\r\nContent-Type: text/plain\r\n"
              "Content-Disposition:form-data;name=\"g\"\r\n\r\none\r\n--a\r\ntwo\r\n--a b--\r\n") ==
        0);
    CHECK(next() == 1 && part.n == 0);
    CHECK(strcmp(part.name, "t") == 0 && strcmp(part.filename, "q\"%22") == 0);
    CHECK(next() == 1 && strcmp(part.name, "g") == 0 && !part.filename);
    CHECK(part.n == 13 && memcmp(part.bytes, "one\r\n--a\r\ntwo", 13) == 0);
    CHECK(next() == 0);
    return 0;
}

TEST(a_form_may_have_no_parts)
{
    CHECK(begin(TYPE, "--b--") == 0 && next() == 0);
    return 0;
}

TEST(a_type_without_a_proper_boundary_is_no_form)
{
    static const char *const types[] = {
        "",
        "multipart/form-data",
        "multipart/mixed; boundary=b",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=b; boundary=b",
        "multipart/form-data; boundary=\"b",
        "multipart/form-data; boundary=\"b \"",
        "multipart/form-data; boundary=\"b\tc\"",
        "multipart/form-data, boundary=b",
        "multipart/form-data; boundary=b;",
        LONG_TYPE,
    };

    for (size_t i = 0; i < LENGTH(types); i++)
        CHECK_FOR(types[i], begin(types[i], "--b--") == -1 && *why);
    CHECK(begin(NULL, "--b--") == -1);
    return 0;
}

TEST(what_could_be_read_in_two_ways_is_refused)
{
    static const char *const bodies[] = {
        "",
        "before\r\n--b--",
        "--bc--",
        "--b--\r\nbehind",
        "--b\n" FORM "\r\nx\r\n--b--",
        "--b\r\n" FORM "\r\nx",
        "--b\r\n" FORM "\r\nx\r\n--bc\r\n--b--",
        "--b\r\n" FORM "\r\n--b--",
        "--b\r\n\r\nx\r\n--b--",
        "--b\r\n--b--",
        "--b\r\n" FORM "x\r\n--b--",
        "--b\r\n" FORM FORM "\r\nx\r\n--b--",
        "--b\r\nContent-Type: a\r\n\r\nx\r\n--b--",
        "--b\r\n" FORM "Content-Transfer-Encoding: base64\r\n\r\neA==\r\n--b--",
        "--b\r\nContent-Disposition: attachment; filename=a\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; filename=a\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a; filename=b; FileName=c\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a; filename=\"C:\\x\"\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a; filename=\"x\\\\\"\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a; filename*=UTF-8''b\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=\"a\"x\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a\n\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition : form-data; name=a\r\n\r\nx\r\n--b--",
        "--b\r\n" FORM " folded\r\n\r\nx\r\n--b--",
    };

    for (size_t i = 0; i < LENGTH(bodies); i++) {
        int r = begin(TYPE, bodies[i]);
        while (r == 0 && (r = next()) == 1)
            r = 0;
        CHECK_FOR(bodies[i], r == -1 && *why);
        why = "";
    }
    static const char nul[] =
        "--b\r\nContent-Disposition: form-data; name=\"a\0b\"\r\n\r\nx\r\n--b--";
    CHECK(http_multipart_begin(&form, TYPE, nul, sizeof(nul) - 1, &why) == 0 && next() == -1);
    return 0;
}

TEST(headers_of_a_part_are_bounded)
{
    static char body[HTTP_PART_HEAD + 256];
    int n = snprintf(body, sizeof(body), "--b\r\n" FORM "X: ");

    memset(body + n, 'x', HTTP_PART_HEAD);
    (void)snprintf(body + n + HTTP_PART_HEAD, 64, "\r\n\r\nx\r\n--b--");
    CHECK(begin(TYPE, body) == 0 && next() == -1);
    return 0;
}

/* Every content of nine bytes that are parts of a boundary, or none. */
TEST(a_part_ends_at_the_first_boundary_whatever_is_in_it)
{
    static const char letters[] = {'\r', '\n', '-', 'b', 'x'};
    static const char head[] = "--b\r\n" FORM "\r\n";

    enum {
        LENGTH = 9,
        AT = sizeof(head) - 1
    };

    static char body[AT + LENGTH + 16];
    unsigned long all = 1;

    memcpy(body, head, AT);
    memcpy(body + AT + LENGTH, "\r\n--b--", 8);
    for (unsigned i = 0; i < LENGTH; i++)
        all *= sizeof(letters);
    for (unsigned long one = 0; one < all; one++) {
        unsigned long left = one;
        for (unsigned i = 0; i < LENGTH; i++, left /= sizeof(letters))
            body[AT + i] = letters[left % sizeof(letters)];
        const char *end =
            strstr(body + AT - 2, "\r\n--b"); /* its headers' empty line may be one's */
        CHECK(begin(TYPE, body) == 0);
        int r = next();
        if (end < body + AT)
            CHECK(r == -1); /* no content and no end of the headers */
        else
            CHECK(r == 1 && part.bytes == body + AT && part.n == (size_t)(end - part.bytes));
    }
    return 0;
}
