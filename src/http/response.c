/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an answer, from a server that may be anybody's. Refused is what could be read in two
 * ways: see head.c. */
#include <string.h>
#include <strings.h>

#include "http/forward.h"
#include "http/head.h"

static int refuse(const char *why, const char **ret_why)
{
    *ret_why = why;
    return -502;
}

/* HTTP/1.x SP 3 digits [SP words]; `line` has a NUL at its end. */
static int read_status_line(const char *line, struct http_response *r, const char **ret_why)
{
    static const char version[] = "HTTP/1.";
    size_t n = sizeof(version) - 1;

    if (strncmp(line, version, n) != 0 || (line[n] != '0' && line[n] != '1') || line[n + 1] != ' ')
        return refuse("it does not begin with HTTP/1.1 or HTTP/1.0", ret_why);
    r->is_1_0 = line[n] == '0';
    const char *digits = line + n + 2;
    for (size_t i = 0; i < 3; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return refuse("its status is not a number of three digits", ret_why);
        r->status = r->status * 10 + (digits[i] - '0');
    }
    if (digits[3] && digits[3] != ' ')
        return refuse("its status is not a number of three digits", ret_why);
    if (r->status < 100 || r->status > 599)
        return refuse("its status is not one of HTTP", ret_why);
    return 0;
}

static int read_framing(const struct http_header *field, struct http_response *r,
                        const char **ret_why)
{
    if (strcmp(field->name, "content-length") == 0) {
        if (r->has_length)
            return refuse("Content-Length is there twice", ret_why);
        r->has_length = true;
        return http_read_length(field->value, &r->length, ret_why);
    }
    if (strcmp(field->name, "transfer-encoding") == 0) {
        if (r->chunked)
            return refuse("Transfer-Encoding is there twice", ret_why);
        if (r->is_1_0 || strcasecmp(field->value, "chunked") != 0)
            return refuse("Transfer-Encoding can only be chunked, in HTTP/1.1", ret_why);
        r->chunked = true;
    }
    if (r->status == 101 && strcmp(field->name, "upgrade") == 0)
        r->websocket = strcasecmp(field->value, "websocket") == 0;
    return 0;
}

static int read_fields(char *line, const char *end, struct http_response *r, const char **ret_why)
{
    while (line < end) {
        size_t n = strlen(line);
        struct http_header *field = &r->headers[r->header_count];
        if (r->header_count == HTTP_MAX_HEADERS)
            return refuse("it has too many headers", ret_why);
        int refused = http_read_field(line, n, field, ret_why);
        if (!refused)
            refused = read_framing(field, r, ret_why);
        if (refused)
            return refused;
        r->header_count++;
        line += n + 2;
    }
    if (r->chunked && r->has_length)
        return refuse("Transfer-Encoding together with Content-Length", ret_why);
    return 0;
}

ssize_t http_parse_response(char *bytes, size_t n, struct http_response *ret, const char **ret_why)
{
    ssize_t length = http_head_end(bytes, n, ret_why);

    if (length <= 0)
        return length;
    *ret = (struct http_response){.status = 0};
    char *end = bytes + length - 2;
    for (char *p = bytes; (p = memchr(p, '\r', (size_t)(end - p)));)
        *p = '\0';
    int refused = read_status_line(bytes, ret, ret_why);
    if (!refused)
        refused = read_fields(bytes + strlen(bytes) + 2, end, ret, ret_why);
    return refused ? refused : length;
}
