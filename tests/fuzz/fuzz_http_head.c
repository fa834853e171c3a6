/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of requests. One that is taken is written out again in the plainest way and read a second
 * time, which must give the same: then there was only one way to read it. What follows a head must
 * not change what it says, and half a head must be either not whole yet or refused. */
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "http/server.h"

static const char *const methods[HTTP_METHOD_COUNT_] = {"GET",   "HEAD",   "POST",   "PUT",
                                                        "PATCH", "DELETE", "OPTIONS"};

/* Reads a copy that ends where the bytes end, to see any step over it. */
static ssize_t parse(const uint8_t *data, size_t size, char **ret_copy, struct http_request *ret)
{
    const char *why = NULL;
    char *copy = malloc(size ? size : 1);

    MUST(copy);
    memcpy(copy, data, size);
    ssize_t n = http_parse_head(copy, size, ret, &why);
    MUST(n <= (ssize_t)size && n <= HTTP_MAX_HEAD);
    MUST(n >= 0 || (n <= -400 && n >= -599 && why && *why));
    *ret_copy = copy;
    return n;
}

static void must_be_sound(const struct http_request *r)
{
    MUST(r->method < HTTP_METHOD_COUNT_ && r->path[0] == '/');
    MUST(!strpbrk(r->path, "?# \t\r\n") && !strpbrk(r->query, "# \t\r\n"));
    MUST(r->header_count <= HTTP_MAX_HEADERS);
    for (size_t i = 0; i < r->header_count; i++) {
        const struct http_header *h = &r->headers[i];
        size_t n = strlen(h->value);
        MUST(h->name[0] && !strpbrk(h->name, " \t:ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
        MUST(!strpbrk(h->value, "\r\n"));
        MUST(n == 0 || (!strchr(" \t", h->value[0]) && !strchr(" \t", h->value[n - 1])));
    }
    const char *length = http_header(r, "content-length");
    char *end = NULL;
    errno = 0;
    MUST(!length || (strtoull(length, &end, 10) == r->length && errno == 0 && !*end));
    MUST(!r->chunked || (r->length == 0 && r->has_body && !r->is_1_0));
    MUST(!http_header(r, "transfer-encoding") || !http_header(r, "content-length"));
    MUST(r->is_1_0 || http_header(r, "host"));
    MUST(!http_header(r, "fuzz-nothing"));
}

static void write_out(const struct http_request *r, struct buf *out)
{
    buf_printf(out, "%s %s%s%s HTTP/1.%c\r\n",
               r->method == HTTP_OTHER ? "BREW" : methods[r->method], r->path, *r->query ? "?" : "",
               r->query, r->is_1_0 ? '0' : '1');
    for (size_t i = 0; i < r->header_count; i++)
        buf_printf(out, "%s:%s\r\n", r->headers[i].name, r->headers[i].value);
    buf_str(out, "\r\n");
    MUST(buf_done(out) == 0);
}

static void must_equal(const struct http_request *a, const struct http_request *b)
{
    MUST(a->method == b->method && a->is_1_0 == b->is_1_0 && a->has_body == b->has_body);
    MUST(a->chunked == b->chunked && a->length == b->length && a->keep_alive == b->keep_alive);
    MUST(a->expects_continue == b->expects_continue && a->header_count == b->header_count);
    MUST(strcmp(a->path, b->path) == 0 && strcmp(a->query, b->query) == 0);
    for (size_t i = 0; i < a->header_count; i++) {
        MUST(strcmp(a->headers[i].name, b->headers[i].name) == 0);
        MUST(strcmp(a->headers[i].value, b->headers[i].value) == 0);
    }
}

static void must_have_sound_query(const char *query)
{
    char value[32];

    for (int i = 0; i < 2; i++) {
        int found = http_query(query, i ? "from" : "a", value, sizeof(value));
        MUST(found >= -1 && found <= 1);
        MUST(found != 1 || strnlen(value, sizeof(value)) < sizeof(value));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_request first;
    struct http_request again;
    char *copy;
    char *second;
    scoped_buf struct buf out;

    buf_init(&out, 1 << 20);
    ssize_t n = parse(data, size, &copy, &first);
    if (n > 0) {
        must_be_sound(&first);
        must_have_sound_query(first.query);
        write_out(&first, &out);
        MUST(parse((const uint8_t *)out.p, out.n, &second, &again) == (ssize_t)out.n);
        must_equal(&first, &again);
        free(second);
        /* Alone it says the same as with what came after it. */
        MUST(parse(data, (size_t)n, &second, &again) == n);
        must_equal(&first, &again);
        free(second);
        /* And no shorter piece of it is a head. */
        MUST(parse(data, (size_t)n / 2, &second, &again) == 0);
        free(second);
        MUST(parse(data, (size_t)n - 1, &second, &again) == 0);
        free(second);
    }
    free(copy);
    return 0;
}
