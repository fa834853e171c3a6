/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of answers, and what is made of them for the client. One that is taken is written out again
 * in the plainest way and read a second time, which must give the same; half of one is not whole
 * yet. What goes on to the client must be whole lines of headers, read as a head again, without
 * anything that says where the answer ends or that concerns one connection only. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "http/forward.h"

static ssize_t parse(const uint8_t *data, size_t size, char **ret_copy, struct http_response *ret)
{
    const char *why = NULL;
    char *copy = malloc(size ? size : 1);

    MUST(copy);
    memcpy(copy, data, size);
    ssize_t n = http_parse_response(copy, size, ret, &why);
    MUST(n <= (ssize_t)size && n <= HTTP_MAX_HEAD);
    MUST(n >= 0 || (why && *why));
    *ret_copy = copy;
    return n;
}

static const char *header(const struct http_response *r, const char *name)
{
    for (size_t i = 0; i < r->header_count; i++) {
        if (strcmp(r->headers[i].name, name) == 0)
            return r->headers[i].value;
    }
    return NULL;
}

static void must_be_sound(const struct http_response *r)
{
    MUST(r->status >= 100 && r->status <= 599 && r->header_count <= HTTP_MAX_HEADERS);
    MUST(!r->chunked || (!r->has_length && !r->is_1_0));
    MUST(!r->websocket || r->status == 101);
    MUST(r->has_length == (header(r, "content-length") != NULL));
    MUST(r->chunked == (header(r, "transfer-encoding") != NULL));
    for (size_t i = 0; i < r->header_count; i++)
        MUST(r->headers[i].name[0] && !strpbrk(r->headers[i].value, "\r\n"));
}

static void must_equal(const struct http_response *a, const struct http_response *b)
{
    MUST(a->status == b->status && a->is_1_0 == b->is_1_0 && a->chunked == b->chunked);
    MUST(a->has_length == b->has_length && a->length == b->length);
    MUST(a->websocket == b->websocket && a->header_count == b->header_count);
    for (size_t i = 0; i < a->header_count; i++) {
        MUST(strcmp(a->headers[i].name, b->headers[i].name) == 0);
        MUST(strcmp(a->headers[i].value, b->headers[i].value) == 0);
    }
}

static void must_be_read_again(const struct http_response *r)
{
    struct http_response again;
    char *copy;
    scoped_buf struct buf out;

    buf_init(&out, 1 << 20);
    buf_printf(&out, "HTTP/1.%c %03d\r\n", r->is_1_0 ? '0' : '1', r->status);
    for (size_t i = 0; i < r->header_count; i++)
        buf_printf(&out, "%s:%s\r\n", r->headers[i].name, r->headers[i].value);
    buf_str(&out, "\r\n");
    MUST(buf_done(&out) == 0);
    MUST(parse((const uint8_t *)out.p, out.n, &copy, &again) == (ssize_t)out.n);
    must_equal(r, &again);
    free(copy);
}

static void must_go_on_well(const struct http_response *r, const char *prefix)
{
    const struct http_forward f = {.host = "localhost:8000", .prefix = prefix, .path = "/"};
    static const char *const gone[] = {"content-length", "transfer-encoding", "keep-alive", "date",
                                       "trailer",        "proxy-connection",  "te"};
    struct http_response again;
    char *copy;
    scoped_buf struct buf out;

    buf_init(&out, 1 << 20);
    buf_str(&out, "HTTP/1.1 200 OK\r\n");
    http_forward_response(&out, r, &f);
    buf_str(&out, "\r\n");
    MUST(buf_done(&out) == 0);
    if (out.n < HTTP_MAX_HEAD && r->header_count < HTTP_MAX_HEADERS - 2) {
        MUST(parse((const uint8_t *)out.p, out.n, &copy, &again) == (ssize_t)out.n);
        for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
            MUST(!header(&again, gone[i]));
        const char *cookie = header(&again, "set-cookie");
        MUST(!cookie || !strcasestr(cookie, "; domain="));
        const char *path = cookie && *prefix ? strcasestr(cookie, "; path=") : NULL;
        MUST(!path || strncmp(path + 7, prefix, strlen(prefix)) == 0);
        MUST(r->websocket == (header(&again, "upgrade") != NULL));
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_response first;
    struct http_response again;
    char *copy;
    char *second;

    ssize_t n = parse(data, size, &copy, &first);
    if (n > 0) {
        must_be_sound(&first);
        must_be_read_again(&first);
        must_go_on_well(&first, "");
        must_go_on_well(&first, "/p/token");
        MUST(parse(data, (size_t)n, &second, &again) == n);
        must_equal(&first, &again);
        free(second);
        MUST(parse(data, (size_t)n / 2, &second, &again) == 0);
        free(second);
        MUST(parse(data, (size_t)n - 1, &second, &again) == 0);
        free(second);
    }
    free(copy);
    return 0;
}
