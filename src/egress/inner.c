/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/inner.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/weak.h"
#include "egress/web.h"
#include "http/head.h"
#include "policy/network_inner.h"

enum {
    PIECE = 4096,
    LONGEST_VALUE = 8192, /* of a header with a secret in it */
    PLACEHOLDER = 96,
};

void inner_begin(struct inner *r, const char *name, uint16_t port, inner_value *value,
                 void *context)
{
    *r = (struct inner){.name = name, .port = port, .value = value, .context = context};
    buf_init(&r->head, HTTP_MAX_HEAD);
    buf_init(&r->written, HTTP_MAX_HEAD);
    buf_init(&r->answer, INNER_ANSWER);
    mask_begin(&r->mask);
}

void inner_clear(struct inner *r)
{
    buf_clear(&r->head);
    buf_clear(&r->written);
    buf_clear(&r->answer);
    mask_clear(&r->mask);
}

static int refuse(struct inner *r, const char *why, const char *fix)
{
    r->up = INNER_OVER;
    r->why = why;
    r->fix = fix;
    return -1;
}

static const char plain[] = "only HTTP/1.1 to the host connected to is let through here";

/* --- secrets --- */

/* Every secret that a rule of this sandbox names is taken out of every answer: a server may keep
 * what it was sent, and say it later. */
static int fill_mask(struct inner *r)
{
    mask_clear(&r->mask);
    mask_begin(&r->mask);
    r->masks = false;
    for (size_t i = 0; i < r->rule_count; i++) {
        const struct network_rule *rule = &r->rules[i];
        if (!rule->secret)
            continue;
        r->masks = !weak("net-mask");
        for (int before = 0; before < 2; before++) {
            const char *value = r->value(r->context, network_inner(rule, rule->secret), before);
            if (value && !mask_add(&r->mask, value, strlen(value)))
                return refuse(r, "the sandbox has more secrets than answers can be searched for",
                              "name fewer secrets in its rules");
        }
    }
    return 0;
}

/* `text` with the value in place of the placeholder, each time. */
static void put_replaced(struct buf *b, const char *text, const char *placeholder,
                         const char *value)
{
    const char *found;

    for (; (found = strstr(text, placeholder)); text = found + strlen(placeholder)) {
        buf_add(b, text, (size_t)(found - text));
        buf_str(b, value);
    }
    buf_str(b, text);
}

/* "Basic dXNlcjpwYXNzd29yZA==", with the placeholder as user or password. 1: written; 0: it is not
 * that. */
static int put_basic(struct inner *r, struct buf *b, const char *text, const char *placeholder,
                     const char *value)
{
    static const char basic[] = "Basic ";
    char decoded[LONGEST_VALUE];
    scoped_buf struct buf whole;
    size_t n = strlen(text);

    buf_init(&whole, LONGEST_VALUE);
    if (n >= sizeof(decoded) || strncasecmp(text, basic, sizeof(basic) - 1) != 0)
        return 0;
    text += sizeof(basic) - 1;
    ssize_t size = bytes_from_base64(text, strlen(text), decoded);
    if (size < 0 || memchr(decoded, '\0', (size_t)size))
        return 0;
    decoded[size] = '\0';
    if (!strstr(decoded, placeholder))
        return 0;
    put_replaced(&whole, decoded, placeholder, value);
    buf_str(b, basic);
    size_t at = b->n;
    bytes_add_base64(b, whole.p, whole.n);
    bool good = buf_done(&whole) == 0 && !b->failed && mask_add(&r->mask, b->p + at, b->n - at);
    explicit_bzero(decoded, sizeof(decoded));
    if (whole.p)
        explicit_bzero(whole.p, whole.n);
    return good ? 1 : refuse(r, "there is no memory", "");
}

/* The name as it was written: servers exist that care. */
static void put_name(const struct inner *r, struct buf *b, const struct http_header *h)
{
    buf_add(b, r->written.p + (h->name - r->head.p), strlen(h->name));
    buf_str(b, ": ");
}

/* The header that has a secret. */
static int put_secret(struct inner *r, struct buf *b, const struct network_rule *rule,
                      const struct http_header *h)
{
    const char *secret = network_inner(rule, rule->secret);
    const char *value = r->value(r->context, secret, false);
    char placeholder[PLACEHOLDER];

    network_placeholder(secret, placeholder, sizeof(placeholder));
    if (!value)
        return refuse(r, "the secret that its rule names is not set",
                      "set it: carrel secret set NAME, or carrel run --secret NAME=FILE");
    put_name(r, b, h);
    if (strstr(h->value, placeholder)) {
        put_replaced(b, h->value, placeholder, value);
    } else {
        int n = put_basic(r, b, h->value, placeholder, value);
        if (n < 0)
            return -1;
        if (n == 0)
            return refuse(r, "the header that the secret goes into has something else in it",
                          "send the placeholder there, which the variable of the rule has");
    }
    buf_str(b, "\r\n");
    return 1;
}

/* --- a head --- */

/* Which the server would take for another method, or path, than the one that was looked at. */
static bool is_override(const char *name)
{
    static const char *const known[] = {"x-http-method-override", "x-http-method",
                                        "x-method-override",      "x-original-url",
                                        "x-rewrite-url",          "x-original-uri"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0)
            return true;
    }
    return false;
}

/* Those that are about the connection, or are written anew. */
static bool is_dropped(const struct inner *r, const char *name, bool has_secret)
{
    static const char *const always[] = {"connection",          "keep-alive", "proxy-connection",
                                         "proxy-authorization", "te",         "upgrade",
                                         "http2-settings"};

    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
        if (strcmp(name, always[i]) == 0)
            return true;
    }
    if (r->masks && strcmp(name, "accept-encoding") == 0)
        return true;
    /* Pieces of what a server says again could be asked for, each too short to be found. */
    return r->masks && has_secret && (strcmp(name, "range") == 0 || strcmp(name, "if-range") == 0);
}

static bool goes_into(const struct network_rule *rule, const struct http_header *h)
{
    return rule->secret && strcasecmp(network_inner(rule, rule->header), h->name) == 0;
}

static int put_field(struct inner *r, struct buf *b, const struct network_rule *rule,
                     const struct http_header *h, unsigned *secrets)
{
    if (is_override(h->name) && (rule->methods || rule->paths))
        return refuse(r, "it has a header that makes another request of it", plain);
    if (strcmp(h->name, "upgrade") == 0 && strcasestr(h->value, "websocket"))
        return refuse(r, "a WebSocket cannot be looked at",
                      "allow the host with a rule without methods, paths and secret");
    if (is_dropped(r, h->name, rule->secret))
        return 0;
    if (goes_into(rule, h)) {
        if (++*secrets > 1)
            return refuse(r, "the header that the secret goes into is there twice", plain);
        return put_secret(r, b, rule, h);
    }
    put_name(r, b, h);
    buf_str(b, h->value);
    buf_str(b, "\r\n");
    return 0;
}

static int write_head(struct inner *r, const struct http_request *q,
                      const struct network_rule *rule, struct buf *out)
{
    unsigned secrets = 0;

    buf_printf(out, "%s ", r->method);
    buf_str(out, q->path);
    if (*q->query) {
        buf_str(out, "?");
        buf_str(out, q->query);
    }
    buf_str(out, " HTTP/1.1\r\n");
    for (size_t i = 0; i < q->header_count; i++) {
        if (put_field(r, out, rule, &q->headers[i], &secrets) < 0)
            return -1;
    }
    if (r->masks)
        buf_str(out, "accept-encoding: identity\r\n");
    buf_str(out, r->is_closing ? "connection: close\r\n\r\n" : "\r\n");
    return out->failed ? refuse(r, "there is no memory", "") : 0;
}

/* As the line has it, which was read in place. */
static int note_method(struct inner *r, const char *line)
{
    size_t n = strcspn(line, " ");

    if (n >= sizeof(r->method))
        return refuse(r, "its method is longer than methods are", plain);
    memcpy(r->method, line, n);
    r->method[n] = '\0';
    r->is_head = strcmp(r->method, "HEAD") == 0;
    return strcmp(r->method, "TRACE") == 0
               ? refuse(r, "TRACE, which says again what it was sent, is never let through", plain)
               : 0;
}

static const struct network_rule *decide(struct inner *r, const struct http_request *q)
{
    const struct network_request asked = {
        .name = r->name, .port = r->port, .method = r->method, .path = q->path};
    const struct network_rule *rule =
        network_decide_request(r->rules, r->rule_count, &asked, &r->why);

    if (!rule && weak("net-requests")) {
        size_t at = 0;
        rule = network_next(r->rules, r->rule_count, r->name, r->port, &at);
    }
    if (!rule)
        (void)refuse(r, r->why, "add it to methods or paths of the rule for this host");
    return rule;
}

static int check_head(struct inner *r, struct buf *out)
{
    struct http_request q;
    const char *why = NULL;

    buf_clear(&r->written);
    buf_add(&r->written, r->head.p, r->head.n);
    if (buf_done(&r->written) < 0)
        return refuse(r, "there is no memory", "");
    ssize_t n = http_parse_head(r->head.p, r->head.n, &q, &why);
    r->status = 0;
    r->path[0] = r->rule[0] = r->method[0] = '\0';
    if (n <= 0)
        return refuse(r, why ? why : "its request has no end", plain);
    snprintf(r->path, sizeof(r->path), "%s", q.path);
    if (note_method(r, r->head.p) < 0)
        return -1;
    const char *host = http_header(&q, "host");
    if (q.is_1_0 || !host || (!web_is_host(r->name, r->port, host) && !weak("net-requests")))
        return refuse(r, q.is_1_0 ? "it is HTTP/1.0" : "Host is another than the one connected to",
                      plain);
    const struct network_rule *rule = decide(r, &q);
    if (!rule || fill_mask(r) < 0)
        return -1;
    network_rule_text(rule, r->rule);
    r->is_closing = !q.keep_alive;
    size_t before = out->n;
    if (write_head(r, &q, rule, out) < 0) {
        explicit_bzero(out->p + before, out->n - before);
        out->n = before; /* nothing of it leaves */
        return -1;
    }
    r->chunked = q.chunked;
    r->chunks = (struct http_chunks){.left = 0};
    r->left = q.chunked ? 0 : q.length;
    r->up = r->chunked || r->left ? INNER_BODY : INNER_WAIT;
    inner_expect(r);
    buf_clear(&r->head);
    buf_clear(&r->written);
    return 0;
}

/* Up to and with the end of a line; how many are taken, or -1. */
static ssize_t take_head(struct inner *r, const char *bytes, size_t n, struct buf *out)
{
    const char *feed = memchr(bytes, '\n', n);

    if (feed)
        n = (size_t)(feed - bytes) + 1;
    buf_add(&r->head, bytes, n);
    if (buf_done(&r->head) < 0)
        return refuse(r, "its head is larger than 16 KiB", plain);
    const char *end = r->head.p + r->head.n;
    if (feed && (r->head.n < 2 || end[-2] != '\r'))
        return refuse(r, "a bare line feed in its head", plain);
    if (feed && (r->head.n == 2 || (r->head.n >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0)) &&
        check_head(r, out) < 0)
        return -1;
    return (ssize_t)n;
}

/* --- a body, which leaves as it came --- */

static ssize_t take_chunks(struct inner *r, const char *bytes, size_t n)
{
    char piece[PIECE];
    size_t data;
    bool done = false;

    n = n < sizeof(piece) ? n : sizeof(piece);
    memcpy(piece, bytes, n);
    ssize_t taken = http_chunks_decode(&r->chunks, piece, n, &data, &done);
    if (taken < 0)
        return refuse(r, "its chunks are malformed", plain);
    if (done)
        r->up = INNER_WAIT;
    return taken;
}

static ssize_t take_body(struct inner *r, const char *bytes, size_t n, struct buf *out)
{
    ssize_t taken = (ssize_t)(n < r->left ? n : r->left);

    if (r->chunked)
        taken = take_chunks(r, bytes, n);
    else if ((r->left -= (size_t)taken) == 0)
        r->up = INNER_WAIT;
    if (taken > 0)
        buf_add(out, bytes, (size_t)taken);
    return out->failed ? refuse(r, "there is no memory", "") : taken;
}

ssize_t inner_up(struct inner *r, const char *bytes, size_t n, struct buf *out)
{
    size_t at = 0;

    while (at < n && (r->up == INNER_HEAD || r->up == INNER_BODY)) {
        ssize_t taken = r->up == INNER_HEAD ? take_head(r, bytes + at, n - at, out)
                                            : take_body(r, bytes + at, n - at, out);
        if (taken < 0)
            return -1;
        at += (size_t)taken;
        inner_advance(r);
    }
    return (ssize_t)at;
}

void inner_refusal(const struct inner *r, struct buf *out)
{
    char text[1024];
    int n = snprintf(text, sizeof(text), "Carrel refuses %s%s%s: %s%s%s\n",
                     r->is_servers ? "the answer to " : "", *r->method ? r->method : "this request",
                     *r->method ? " request" : "", r->why, *r->fix ? "; " : "", r->fix);

    buf_printf(out,
               "HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: "
               "close\r\n\r\n%s",
               r->is_servers ? "502 Bad Gateway" : "403 Forbidden", n, r->is_head ? "" : text);
}
