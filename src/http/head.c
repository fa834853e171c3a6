/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a request, in two steps: http_head_end looks for its end and at every byte on the
 * way, http_head_read cuts it into pieces. What RFC 9112 leaves to the goodwill of the reader (bare
 * LF, folded lines, empty lines in front, lists of equal lengths) is refused: a proxy before us may
 * have read it in another way. */
#include "http/head.h"

#include <string.h>
#include <strings.h>

#define MAX_LENGTH (UINT64_C(1) << 62)

static const char *const methods[HTTP_OTHER] = {
    [HTTP_GET] = "GET",         [HTTP_HEAD] = "HEAD",   [HTTP_POST] = "POST",
    [HTTP_PUT] = "PUT",         [HTTP_PATCH] = "PATCH", [HTTP_DELETE] = "DELETE",
    [HTTP_OPTIONS] = "OPTIONS",
};

const char *http_method_name(enum http_method method)
{
    return methods[method];
}

static int refuse(int status, const char *why, const char **ret_why)
{
    *ret_why = why;
    return -status;
}

/* RFC 9110: token. */
bool http_is_token(unsigned char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return true;
    return c && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

int http_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_text(unsigned char c)
{
    return (c >= ' ' && c != 0x7f) || c == '\t';
}

ssize_t http_head_end(const char *bytes, size_t n, const char **ret_why)
{
    size_t most = n < HTTP_MAX_HEAD ? n : HTTP_MAX_HEAD;
    size_t line = 0;

    for (size_t i = 0; i < most; i++) {
        if (is_text((unsigned char)bytes[i]))
            continue;
        if (bytes[i] != '\r')
            return refuse(400, "a control character or a bare line feed in the head", ret_why);
        if (i + 1 == most)
            break;
        if (bytes[i + 1] != '\n')
            return refuse(400, "a carriage return without its line feed", ret_why);
        if (i == 0)
            return refuse(400, "an empty line before the request", ret_why);
        if (i == line)
            return (ssize_t)i + 2;
        i++;
        line = i + 1;
    }
    if (n < HTTP_MAX_HEAD)
        return 0;
    return line == 0 ? refuse(414, "the request line is too long", ret_why)
                     : refuse(431, "the head is larger than 16 KiB", ret_why);
}

static int read_method(const char *name, size_t n, enum http_method *ret, const char **ret_why)
{
    bool lower = n == 0;

    for (int i = 0; i < HTTP_OTHER; i++) {
        if (strlen(methods[i]) == n && memcmp(methods[i], name, n) == 0) {
            *ret = (enum http_method)i;
            return 0;
        }
    }
    for (size_t i = 0; i < n; i++)
        lower =
            lower || !http_is_token((unsigned char)name[i]) || (name[i] >= 'a' && name[i] <= 'z');
    if (lower)
        return refuse(400, "this is no method", ret_why);
    /* What it asks for is no answer of a resource's, and what follows its head no request. */
    if (n == 7 && memcmp(name, "CONNECT", 7) == 0)
        return refuse(501, "this is no proxy", ret_why);
    *ret = HTTP_OTHER;
    return 0;
}

/* Ends the path and the query with a NUL each. */
static int read_target(char *target, size_t n, struct http_request *r, const char **ret_why)
{
    if (n > HTTP_MAX_TARGET)
        return refuse(414, "the target is longer than 13 KiB", ret_why);
    if (n == 0 || target[0] != '/')
        return refuse(400, "the target must be a path that begins with /", ret_why);
    for (size_t i = 0; i < n; i++) {
        if (target[i] <= ' ' || target[i] > '~' || target[i] == '#')
            return refuse(400, "a character that must be encoded in the target", ret_why);
    }
    target[n] = '\0';
    char *query = memchr(target, '?', n);
    if (query)
        *query++ = '\0';
    r->path = target;
    r->query = query ? query : target + n;
    return 0;
}

/* method SP target SP version; `line` has a NUL at its end. */
static int read_request_line(char *line, size_t n, struct http_request *r, const char **ret_why)
{
    char *target = memchr(line, ' ', n);
    char *version = target ? memchr(target + 1, ' ', n - (size_t)(target + 1 - line)) : NULL;

    if (!target || !version)
        return refuse(400, "the request line has not three parts", ret_why);
    int refused = read_method(line, (size_t)(target - line), &r->method, ret_why);
    if (refused)
        return refused;
    target++;
    r->is_1_0 = strcmp(version + 1, "HTTP/1.0") == 0;
    if (!r->is_1_0 && strcmp(version + 1, "HTTP/1.1") != 0)
        return refuse(strncmp(version + 1, "HTTP/", 5) == 0 ? 505 : 400,
                      "only HTTP/1.1 and HTTP/1.0 are spoken", ret_why);
    r->keep_alive = !r->is_1_0;
    return read_target(target, (size_t)(version - target), r, ret_why);
}

static int read_host(struct http_request *r, const char *value, const char **ret_why)
{
    (void)r;
    for (const char *p = value; *p; p++) {
        /* Tokens, and what addresses and ports need besides. */
        if (!http_is_token((unsigned char)*p) && !strchr(":[]()=,;", *p))
            return refuse(400, "Host is malformed", ret_why);
    }
    return 0;
}

int http_read_length(const char *value, uint64_t *ret, const char **ret_why)
{
    uint64_t length = 0;

    for (const char *p = value; *p; p++) {
        if (*p < '0' || *p > '9')
            return refuse(400, "Content-Length is not a number", ret_why);
        if (__builtin_mul_overflow(length, 10, &length) ||
            __builtin_add_overflow(length, (uint64_t)(*p - '0'), &length) || length > MAX_LENGTH)
            return refuse(400, "Content-Length is too large", ret_why);
    }
    if (!*value)
        return refuse(400, "Content-Length is not a number", ret_why);
    *ret = length;
    return 0;
}

static int read_length(struct http_request *r, const char *value, const char **ret_why)
{
    int refused = http_read_length(value, &r->length, ret_why);

    r->has_body = r->has_body || r->length > 0;
    return refused;
}

static int read_encoding(struct http_request *r, const char *value, const char **ret_why)
{
    if (r->is_1_0)
        return refuse(400, "HTTP/1.0 knows no Transfer-Encoding", ret_why);
    if (strcmp(value, "chunked") != 0)
        return refuse(501, "Transfer-Encoding can only be chunked", ret_why);
    r->chunked = true;
    r->has_body = true;
    return 0;
}

static int read_expect(struct http_request *r, const char *value, const char **ret_why)
{
    if (strcasecmp(value, "100-continue") != 0)
        return refuse(417, "Expect can only be 100-continue", ret_why);
    r->expects_continue = !r->is_1_0; /* which RFC 9110 has us overlook in HTTP/1.0 */
    return 0;
}

/* A list; close wins over keep-alive, wherever it stands. */
static void read_connection(struct http_request *r, const char *value, bool *close)
{
    while (*value) {
        value += strspn(value, " \t,");
        size_t n = strcspn(value, " \t,");
        if (n == 5 && strncasecmp(value, "close", n) == 0)
            *close = true;
        if (n == 10 && strncasecmp(value, "keep-alive", n) == 0)
            r->keep_alive = true;
        value += n;
    }
}

/* Those that may be there once at most. */
enum single {
    SINGLE_HOST,
    SINGLE_LENGTH,
    SINGLE_ENCODING,
    SINGLE_EXPECT,
    SINGLE_AUTHORIZATION,
    SINGLE_TYPE,
    SINGLE_COUNT_,
};

static const struct {
    const char *name;
    const char *twice;
    int (*read)(struct http_request *r, const char *value, const char **ret_why);
} singles[SINGLE_COUNT_] = {
    [SINGLE_HOST] = {"host", "Host is there twice", read_host},
    [SINGLE_LENGTH] = {"content-length", "Content-Length is there twice", read_length},
    [SINGLE_ENCODING] = {"transfer-encoding", "Transfer-Encoding is there twice", read_encoding},
    [SINGLE_EXPECT] = {"expect", "Expect is there twice", read_expect},
    [SINGLE_AUTHORIZATION] = {"authorization", "Authorization is there twice", NULL},
    [SINGLE_TYPE] = {"content-type", "Content-Type is there twice", NULL},
};

int http_read_field(char *line, size_t n, struct http_header *ret, const char **ret_why)
{
    size_t name = 0;

    for (; name < n && http_is_token((unsigned char)line[name]); name++) {
        if (line[name] >= 'A' && line[name] <= 'Z')
            line[name] = (char)(line[name] - 'A' + 'a');
    }
    if (name == 0 || name == n || line[name] != ':')
        return refuse(400, "a header is malformed", ret_why);
    line[name] = '\0';
    char *value = line + name + 1;
    char *end = line + n;
    value += strspn(value, " \t");
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    *ret = (struct http_header){.name = line, .value = value};
    return 0;
}

static int read_fields(char *line, const char *end, struct http_request *r, const char **ret_why)
{
    bool seen[SINGLE_COUNT_] = {false};
    bool close = false;

    while (line < end) {
        size_t n = strlen(line);
        struct http_header *field = &r->headers[r->header_count];
        if (r->header_count == HTTP_MAX_HEADERS)
            return refuse(431, "too many headers", ret_why);
        int refused = http_read_field(line, n, field, ret_why);
        for (int i = 0; i < SINGLE_COUNT_ && !refused; i++) {
            if (strcmp(field->name, singles[i].name) != 0)
                continue;
            if (seen[i])
                return refuse(400, singles[i].twice, ret_why);
            seen[i] = true;
            refused = singles[i].read ? singles[i].read(r, field->value, ret_why) : 0;
        }
        if (refused)
            return refused;
        if (strcmp(field->name, "connection") == 0)
            read_connection(r, field->value, &close);
        r->header_count++;
        line += n + 2;
    }
    r->keep_alive = r->keep_alive && !close;
    if (seen[SINGLE_LENGTH] && seen[SINGLE_ENCODING])
        return refuse(400, "Transfer-Encoding together with Content-Length", ret_why);
    if (!seen[SINGLE_HOST] && !r->is_1_0)
        return refuse(400, "Host is missing", ret_why);
    return 0;
}

int http_head_read(char *bytes, size_t n, struct http_request *ret, const char **ret_why)
{
    /* The headers that are not there need not be zeroed: this is done for every request. */
    memset(ret, 0, offsetof(struct http_request, headers));
    memset(&ret->header_count, 0, sizeof(*ret) - offsetof(struct http_request, header_count));
    /* Each line, of which http_head_end has seen that it ends in CR LF, becomes a string. */
    char *end = bytes + n - 2;
    for (char *p = bytes; (p = memchr(p, '\r', (size_t)(end - p)));)
        *p = '\0';
    size_t first = strlen(bytes);
    int refused = read_request_line(bytes, first, ret, ret_why);
    return refused ? refused : read_fields(bytes + first + 2, end, ret, ret_why);
}

ssize_t http_parse_head(char *bytes, size_t n, struct http_request *ret, const char **ret_why)
{
    ssize_t length = http_head_end(bytes, n, ret_why);

    if (length <= 0)
        return length;
    int refused = http_head_read(bytes, (size_t)length, ret, ret_why);
    return refused ? refused : length;
}

const char *http_header(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcmp(request->headers[i].name, name) == 0)
            return request->headers[i].value;
    }
    return NULL;
}
