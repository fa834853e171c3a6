/* SPDX-License-Identifier: Apache-2.0 */
#include "http/forward.h"

#include <string.h>
#include <strings.h>

#include "http/head.h"

/* Of one connection: RFC 9110, 7.6.1. */
static const char *const hop[] = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    NULL,
};

/* Said anew, or by us alone. */
static const char *const of_requests[] = {
    "host",
    "content-length",
    "expect",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-real-ip",
    NULL,
};

/* Said anew, or beyond what one of several servers at an address may say. */
static const char *const of_answers[] = {
    "alt-svc", "clear-site-data", "content-length", "date", "strict-transport-security", NULL,
};

/* To many programs - and _ are one in the name of a header. */
static bool is_same(const char *a, const char *b, size_t b_n)
{
    for (size_t i = 0; i < b_n; i++, a++) {
        char other = b[i] >= 'A' && b[i] <= 'Z' ? (char)(b[i] - 'A' + 'a') : b[i];
        if (!*a || (*a == '_' ? '-' : *a) != (other == '_' ? '-' : other))
            return false;
    }
    return *a == '\0';
}

static bool is_in(const char *name, const char *const *list)
{
    while (*list && !is_same(name, *list, strlen(*list)))
        list++;
    return *list != NULL;
}

/* Whether a list of words, with commas between, has this one. */
static bool has_word(const char *list, const char *word)
{
    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, " \t,");
        if (n > 0 && is_same(word, list, n))
            return true;
        list += n;
    }
    return false;
}

/* Of one connection, by its name or because Connection says so. */
static bool is_hop(const char *name, const struct http_header *headers, size_t count)
{
    if (is_in(name, hop))
        return true;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(headers[i].name, "connection") == 0 && has_word(headers[i].value, name))
            return true;
    }
    return false;
}

bool http_wants_websocket(const struct http_request *request)
{
    const char *to = http_header(request, "upgrade");
    const char *connection = http_header(request, "connection");

    return to && connection && strcasecmp(to, "websocket") == 0 &&
           has_word(connection, "upgrade") && request->method == HTTP_GET && !request->is_1_0 &&
           !request->has_body;
}

static void add(struct buf *out, const char *name, const char *value)
{
    buf_str(out, name);
    buf_str(out, ": ");
    buf_str(out, value);
    buf_str(out, "\r\n");
}

void http_forward_request(struct buf *out, const struct http_request *request,
                          const struct http_forward *f)
{
    const char *host = http_header(request, "host");
    const char *proto = http_header(request, "x-forwarded-proto");

    buf_printf(out, "%s %s%s%s HTTP/1.1\r\n", http_method_name(request->method), f->path,
               *request->query ? "?" : "", request->query);
    add(out, "Host", f->host);
    for (size_t i = 0; i < request->header_count; i++) {
        const struct http_header *h = &request->headers[i];
        bool secret = !f->keeps_authorization && is_same(h->name, "authorization", 13);
        if (!secret && !is_in(h->name, of_requests) &&
            !is_hop(h->name, request->headers, request->header_count))
            add(out, h->name, h->value);
    }
    if (host)
        add(out, "X-Forwarded-Host", host);
    /* Or who ends TLS before us says so. */
    bool is_https = request->by_tls || (proto && strcasecmp(proto, "https") == 0);
    add(out, "X-Forwarded-Proto", is_https ? "https" : "http");
    if (*f->prefix)
        add(out, "X-Forwarded-Prefix", f->prefix);
    if (request->chunked)
        buf_str(out, "Transfer-Encoding: chunked\r\n");
    else if (http_header(request, "content-length"))
        buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)request->length);
    buf_str(out, http_wants_websocket(request) ? "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                                               : "Connection: close\r\n\r\n");
}

/* Where the server sends the client, as the client can reach it. */
static void add_location(struct buf *out, const char *value, const struct http_forward *f)
{
    static const char scheme[] = "http://";
    size_t scheme_n = sizeof(scheme) - 1;
    size_t host_n = strlen(f->host);

    if (strncasecmp(value, scheme, scheme_n) == 0 &&
        strncasecmp(value + scheme_n, f->host, host_n) == 0 &&
        (value[scheme_n + host_n] == '/' || value[scheme_n + host_n] == '\0')) {
        value += scheme_n + host_n;
        value = *value ? value : "/";
    }
    buf_str(out, "location: ");
    if (value[0] == '/' && value[1] != '/')
        buf_str(out, f->prefix);
    buf_str(out, value);
    buf_str(out, "\r\n");
}

/* A cookie is for this server: no other name, and nothing above its prefix. */
static void add_cookie(struct buf *out, const char *value, const struct http_forward *f)
{
    size_t n = strcspn(value, ";");

    buf_str(out, "set-cookie: ");
    buf_add(out, value, n);
    for (value += n; *value == ';'; value += n) {
        value += 1 + strspn(value + 1, " \t");
        n = strcspn(value, ";");
        size_t name = strcspn(value, "= \t;");
        size_t equals = name + strspn(value + name, " \t");
        if (name == 6 && strncasecmp(value, "domain", name) == 0)
            continue;
        if (*f->prefix && name == 4 && strncasecmp(value, "path", name) == 0) {
            const char *path = value + equals + (value[equals] == '=');
            path += strspn(path, " \t");
            size_t path_n = path < value + n ? n - (size_t)(path - value) : 0;
            if (path_n == 0 || *path != '/')
                continue;
            buf_printf(out, "; Path=%s", f->prefix);
            buf_add(out, path, path_n);
            continue;
        }
        buf_str(out, "; ");
        buf_add(out, value, n);
    }
    buf_str(out, "\r\n");
}

void http_forward_response(struct buf *out, const struct http_response *response,
                           const struct http_forward *f)
{
    for (size_t i = 0; i < response->header_count; i++) {
        const struct http_header *h = &response->headers[i];
        if (is_in(h->name, of_answers) ||
            is_hop(h->name, response->headers, response->header_count))
            continue;
        if (strcmp(h->name, "location") == 0)
            add_location(out, h->value, f);
        else if (strcmp(h->name, "set-cookie") == 0)
            add_cookie(out, h->value, f);
        else if (!*f->prefix || strcmp(h->name, "service-worker-allowed") != 0)
            add(out, h->name, h->value);
    }
    if (response->websocket)
        buf_str(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
}
