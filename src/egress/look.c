/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/look.h"

#include <string.h>
#include <strings.h>

#include "base/weak.h"
#include "http/head.h"

enum {
    PORT_HTTP = 80,
    PORT_HTTPS = 443,
    TLS = 22, /* the first byte of a hello */
};

static const char opaque[] = "tls=opaque in the rule lets anything through";

static void set_free(struct look *l)
{
    l->state = LOOK_FREE;
    l->cleared = UINT64_MAX;
}

static int refuse(struct look *l, const char *why, const char *fix)
{
    l->state = LOOK_OVER;
    l->why = why;
    l->fix = fix;
    return -1;
}

void look_begin(struct look *l, const char *name, uint16_t port, const struct network_rule *rule)
{
    *l = (struct look){.name = name,
                       .port = port,
                       .refuse_ech = rule->refuse_ech,
                       .is_waiting = port == PORT_HTTPS};
    buf_init(&l->first, LOOK_LINE);
    if ((rule->opaque && port != PORT_HTTP) || weak("net-looks")) {
        l->is_waiting = false;
        set_free(l);
    }
}

void look_clear(struct look *l)
{
    buf_clear(&l->first);
    if (l->had_hello)
        hello_clear(&l->hello);
    if (l->had_web)
        web_clear(&l->web);
}

/* --- what it is --- */

/* What a lenient server takes for the gap between two words: Python's for one splits at all of
 * these. */
static bool is_gap(char c)
{
    unsigned char u = (unsigned char)c;

    return c == ' ' || c == '\t' || (u >= '\v' && u <= '\r') || (u >= 0x1c && u <= 0x1f) ||
           u == 0x85 || u == 0xa0;
}

static bool has_version(const char *text, size_t n)
{
    static const char version[] = "HTTP/";
    const size_t size = sizeof(version) - 1;

    for (size_t i = 1; i + size <= n; i++) {
        if (is_gap(text[i - 1]) && strncasecmp(text + i, version, size) == 0)
            return true;
    }
    return false;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* LOOK_HTTP: a server could read the first line as that of a request, however leniently; LOOK_FREE:
 * none could; LOOK_UNDECIDED: the line goes on. */
static enum look_state kind_of(const char *text, size_t n)
{
    static const char old[] = "GET"; /* which HTTP/0.9 knows, without a version */
    size_t at = 0;

    while (at < n && (text[at] == '\n' || is_gap(text[at])))
        at++;
    size_t method = at;
    while (at < n && http_is_token((unsigned char)text[at]))
        at++;
    if (at == n)
        return LOOK_UNDECIDED;
    if (at == method || !is_gap(text[at]))
        return LOOK_FREE;
    const char *end = memchr(text + at, '\n', n - at);
    size_t line = end ? (size_t)(end - text) : n;
    /* Of no request, but where its method is one: a path may have it. */
    if (!is_letter(text[method]) && memchr(text + at, '\0', line - at))
        return LOOK_FREE;
    if (!end)
        return LOOK_UNDECIDED;
    bool is_old = at - method == sizeof(old) - 1 && memcmp(text + method, old, at - method) == 0;
    return is_old || has_version(text + at, line - at) ? LOOK_HTTP : LOOK_FREE;
}

static enum look_state decide(const struct look *l)
{
    unsigned char first = (unsigned char)l->first.p[0];

    if (first == TLS)
        return LOOK_TLS;
    if (l->port == PORT_HTTPS)
        return LOOK_OVER;
    return l->port == PORT_HTTP ? LOOK_HTTP : kind_of(l->first.p, l->first.n);
}

/* --- what it says --- */

static int hello_says(struct look *l, int r)
{
    l->cleared = l->hello.cleared;
    l->is_waiting = l->hello.state == HELLO_HELLO;
    if (l->hello.state == HELLO_DONE)
        set_free(l);
    return r < 0 ? refuse(l, l->hello.why, l->hello.fix) : 0;
}

static int web_says(struct look *l, int r)
{
    l->cleared = l->web.cleared;
    l->is_waiting = l->web.head.n > 0;
    if (l->web.state == WEB_FREE)
        set_free(l);
    return r < 0 ? refuse(l, l->web.why, l->web.fix) : 0;
}

static int decided(struct look *l)
{
    const unsigned char *bytes = (const unsigned char *)l->first.p;

    l->state = decide(l);
    l->is_waiting = l->state == LOOK_UNDECIDED;
    if (l->state == LOOK_OVER)
        return refuse(l, "what it sends is not TLS", opaque);
    if (l->state == LOOK_FREE)
        set_free(l);
    if (l->state == LOOK_TLS) {
        l->had_hello = true;
        hello_begin(&l->hello, l->name, l->refuse_ech);
        return hello_says(l, hello_up(&l->hello, bytes, l->first.n));
    }
    if (l->state == LOOK_HTTP) {
        l->had_web = true;
        web_begin(&l->web, l->name, l->port);
        return web_says(l, web_up(&l->web, bytes, l->first.n));
    }
    return 0;
}

/* As much as the first line may have; how many are taken, or -1. */
static ssize_t take_first(struct look *l, const unsigned char *bytes, size_t n)
{
    size_t room = LOOK_LINE - l->first.n;
    size_t some = n < room ? n : room;

    buf_add(&l->first, bytes, some);
    if (buf_done(&l->first) < 0)
        return refuse(l, "there is no memory", "");
    if (decided(l) < 0)
        return -1;
    if (l->state == LOOK_UNDECIDED && l->first.n == LOOK_LINE)
        return refuse(l, "its first line has no end", opaque);
    if (l->state != LOOK_UNDECIDED)
        buf_clear(&l->first);
    return (ssize_t)some;
}

int look_up(struct look *l, const unsigned char *bytes, size_t n)
{
    ssize_t taken = l->state == LOOK_UNDECIDED && n > 0 ? take_first(l, bytes, n) : 0;

    if (taken < 0)
        return -1;
    bytes += taken;
    n -= (size_t)taken;
    switch (l->state) {
    case LOOK_TLS:
        return hello_says(l, hello_up(&l->hello, bytes, n));
    case LOOK_HTTP:
        return web_says(l, web_up(&l->web, bytes, n));
    case LOOK_UNDECIDED:
    case LOOK_FREE:
        return 0;
    case LOOK_OVER:
        break;
    }
    return -1;
}

bool look_wants_down(const struct look *l)
{
    return l->state == LOOK_TLS || (l->state == LOOK_HTTP && l->web.state == WEB_AGREEING);
}

void look_down(struct look *l, const unsigned char *bytes, size_t n)
{
    if (l->state == LOOK_TLS) {
        hello_down(&l->hello, bytes, n);
        (void)hello_says(l, 0);
    } else if (l->state == LOOK_HTTP) {
        web_down(&l->web, bytes, n);
        (void)web_says(l, 0);
    }
}
