/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/web.h"

#include <string.h>
#include <strings.h>

#include "http/head.h"
#include "policy/network.h"

enum {
    PIECE = 4096,
    STATUS = 9, /* where the three digits are */
};

/* What a server waits for that has agreed on HTTP/2 (h2c). */
static const char preface[] = "PRI * HTTP/2.0";

enum {
    PREFACE = sizeof(preface) - 1
};

static const char plain[] = "only HTTP/1 to the host connected to is let through here";

void web_begin(struct web *w, const char *name, uint16_t port)
{
    *w = (struct web){.name = name, .port = port};
    buf_init(&w->head, HTTP_MAX_HEAD);
}

void web_clear(struct web *w)
{
    buf_clear(&w->head);
}

static int refuse(struct web *w, const char *why)
{
    w->why = why;
    w->fix = plain;
    return -1;
}

/* --- a head --- */

bool web_is_host(const char *host, uint16_t host_port, const char *text)
{
    char name[NETWORK_NAME];
    size_t n = strcspn(text, ":");
    unsigned port = host_port;

    if (text[n] == ':') {
        const char *p = text + n + 1;
        for (port = 0; *p >= '0' && *p <= '9' && port <= UINT16_MAX; p++)
            port = port * 10 + (unsigned)(*p - '0');
        if (*p)
            return false;
    }
    /* With a dot behind, it would be nobody's there, and answered by whoever is the default. */
    return port == host_port && network_name(text, n, name) && strcmp(name, host) == 0 &&
           n == strlen(name);
}

/* 1: it asks for a WebSocket, 0: for nothing that matters, -1: refused. HTTP/2 may be asked for, as
 * Java does with each request: no server speaks it before it has the preface, which never leaves.
 */
static int check_upgrade(struct web *w, const struct http_request *r)
{
    const char *asked = NULL;

    for (size_t i = 0; i < r->header_count; i++) {
        const struct http_header *h = &r->headers[i];
        if (strcmp(h->name, "upgrade") != 0)
            continue;
        if (asked || (strcasecmp(h->value, "websocket") != 0 && strcasecmp(h->value, "h2c") != 0))
            return refuse(w, "it asks for another protocol than a WebSocket");
        asked = h->value;
    }
    bool asks = asked && strcasecmp(asked, "websocket") == 0;
    w->preface_n = asked && !asks ? 0 : PREFACE + 1;
    /* Whose answer it is must be certain. */
    if (asks && (w->had_one || r->has_body || r->method != HTTP_GET))
        return refuse(w, "it asks for a WebSocket not with its first request alone");
    return asks;
}

static int check_head(struct web *w)
{
    struct http_request r;
    const char *why = NULL;
    ssize_t n = http_parse_head(w->head.p, w->head.n, &r, &why);

    if (n <= 0)
        return refuse(w, why ? why : "its request has no end");
    const char *host = http_header(&r, "host");
    if (!host)
        return refuse(w, "Host is missing");
    if (!web_is_host(w->name, w->port, host))
        return refuse(w, "Host is another than the one connected to");
    int upgrade = check_upgrade(w, &r);
    if (upgrade < 0)
        return -1;
    w->had_one = true;
    w->chunked = r.chunked;
    w->chunks = (struct http_chunks){.left = 0};
    w->left = r.chunked ? 0 : r.length;
    w->state = upgrade ? WEB_AGREEING : w->chunked || w->left ? WEB_BODY : WEB_HEAD;
    web_clear(w);
    buf_init(&w->head, HTTP_MAX_HEAD);
    return 0;
}

/* Up to and with the end of a line; how many are taken, or -1. */
static ssize_t take_head(struct web *w, const unsigned char *bytes, size_t n)
{
    const unsigned char *feed = memchr(bytes, '\n', n);

    if (feed)
        n = (size_t)(feed - bytes) + 1;
    buf_add(&w->head, bytes, n);
    if (buf_done(&w->head) < 0)
        return refuse(w, "its head is larger than 16 KiB");
    if (!feed)
        return (ssize_t)n;
    const char *end = w->head.p + w->head.n;
    if (w->head.n < 2 || end[-2] != '\r')
        return refuse(w, "a bare line feed in its head");
    if ((w->head.n == 2 || (w->head.n >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0)) &&
        check_head(w) < 0)
        return -1;
    return (ssize_t)n;
}

/* --- a body --- */

static ssize_t take_chunks(struct web *w, const unsigned char *bytes, size_t n)
{
    char piece[PIECE]; /* it is decoded in place, and ours is sent as it came */
    size_t data;
    bool done = false;

    n = n < sizeof(piece) ? n : sizeof(piece);
    memcpy(piece, bytes, n);
    ssize_t taken = http_chunks_decode(&w->chunks, piece, n, &data, &done);
    if (taken < 0)
        return refuse(w, "its chunks are malformed");
    if (done)
        w->state = WEB_HEAD;
    return taken;
}

/* A body that follows a question for HTTP/2 and is its preface: not for a server that does not wait
 * for the body's end. As a head it is none anyway, and chunks begin otherwise. */
static bool is_preface(struct web *w, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n && w->preface_n < PREFACE; i++)
        w->preface_n =
            bytes[i] == (unsigned char)preface[w->preface_n] ? w->preface_n + 1 : PREFACE + 1;
    return w->preface_n == PREFACE;
}

static ssize_t take_body(struct web *w, const unsigned char *bytes, size_t n)
{
    if (w->chunked)
        return take_chunks(w, bytes, n);
    if (is_preface(w, bytes, n < w->left ? n : (size_t)w->left))
        return refuse(w, "it goes on in HTTP/2");
    n = n < w->left ? n : (size_t)w->left;
    w->left -= n;
    if (w->left == 0)
        w->state = WEB_HEAD;
    return (ssize_t)n;
}

int web_up(struct web *w, const unsigned char *bytes, size_t n)
{
    for (size_t at = 0; at < n && w->state != WEB_FREE;) {
        if (w->state == WEB_AGREEING)
            return refuse(w, "it goes on before the server has agreed on a WebSocket");
        ssize_t taken = w->state == WEB_HEAD ? take_head(w, bytes + at, n - at)
                                             : take_body(w, bytes + at, n - at);
        if (taken < 0)
            return -1;
        at += (size_t)taken;
        w->seen += (size_t)taken;
        if (w->head.n == 0)
            w->cleared = w->seen;
    }
    return 0;
}

/* --- the answer to a request for a WebSocket --- */

static void decide(struct web *w)
{
    static const char version[] = "HTTP/1.1 ";
    const char *s = w->status;

    if (memcmp(s, version, sizeof(version) - 1) == 0 && memcmp(s + STATUS, "101", 3) == 0) {
        w->state = WEB_FREE;
        w->cleared = UINT64_MAX;
    } else if (s[STATUS] == '1') { /* another answer follows this head */
        w->in_fields = true;
        w->has_line = true;
    } else {
        w->state = WEB_HEAD;
    }
}

void web_down(struct web *w, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n && w->state == WEB_AGREEING; i++) {
        char c = (char)bytes[i];
        if (!w->in_fields) {
            w->status[w->status_n++] = c;
            if (w->status_n == WEB_STATUS)
                decide(w);
        } else if (c == '\n' && !w->has_line) {
            w->in_fields = false;
            w->status_n = 0;
        } else if (c == '\n') {
            w->has_line = false;
        } else if (c != '\r') {
            w->has_line = true;
        }
    }
}
