/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 8446 (TLS 1.3) and RFC 5246 (1.2), of which this much is in the clear:
 *
 *   record     type, version 3.x, length; a message may be cut into several
 *   handshake  type, length; ClientHello is the first, and the only one before the server answers
 *
 * Only after its second hello a client may have told the server another name, and only that of its
 * last one counts there: so each is read, and between a hello and its answer nothing else leaves
 * that a server could take for one. */
#include "egress/hello.h"

#include <string.h>

#include "policy/network.h"

enum {
    RECORD_CHANGE = 20, /* change_cipher_spec, which TLS 1.3 sends for the sake of old boxes */
    RECORD_ALERT = 21,
    RECORD_HANDSHAKE = 22,
    RECORD_DATA = 23,
    RECORD_MOST = 16384,
    SEALED_MOST = RECORD_MOST + 256,
    MESSAGE_HEAD = 4,
    MESSAGE_HELLO = 1,
    MESSAGE_SERVER = 2,
    RANDOM = 32,
    EXTENSION_NAME = 0,
    EXTENSION_PSK = 41,
    EXTENSION_EARLY = 42,
    EXTENSION_ECH = 0xfe0d,
    EXTENSION_ESNI = 0xffce, /* its predecessor */
    EXTENSIONS = 65536,
};

/* SHA-256 of "HelloRetryRequest": a ServerHello with this for its random number is one. */
static const unsigned char retry[RANDOM] = {
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};

static const char opaque[] = "tls=opaque in the rule lets anything through";

void hello_begin(struct hello *h, const char *name, bool refuse_ech)
{
    *h = (struct hello){.name = name, .refuse_ech = refuse_ech};
    buf_init(&h->message, HELLO_MOST);
}

void hello_clear(struct hello *h)
{
    buf_clear(&h->message);
}

static int refuse(struct hello *h, const char *why, const char *fix)
{
    h->why = why;
    h->fix = fix;
    return -1;
}

/* --- one whole ClientHello --- */

struct reader {
    const unsigned char *p;
    size_t n;
    bool failed;
};

static struct reader take(struct reader *r, size_t n)
{
    struct reader part = {.p = r->p, .n = n};

    if (r->failed || n > r->n) {
        r->failed = true;
        return (struct reader){.failed = true};
    }
    r->p += n;
    r->n -= n;
    return part;
}

static size_t take_number(struct reader *r, size_t bytes)
{
    struct reader part = take(r, bytes);
    size_t number = 0;

    for (size_t i = 0; i < part.n; i++)
        number = number << 8 | part.p[i];
    return number;
}

/* What has its length, of so many bytes, in front. */
static struct reader take_vector(struct reader *r, size_t bytes)
{
    size_t n = take_number(r, bytes);

    return take(r, n);
}

static bool is_done(const struct reader *r)
{
    return !r->failed && r->n == 0;
}

/* One name of a host, and it is the one. */
static int check_name(struct hello *h, struct reader extension)
{
    struct reader list = take_vector(&extension, 2);
    size_t type = take_number(&list, 1);
    struct reader name = take_vector(&list, 2);
    char text[NETWORK_NAME];

    if (!is_done(&extension) || !is_done(&list) || name.failed || type != 0)
        return refuse(h, "its hello has a malformed list of server names", "");
    /* To the byte, but for large letters: with a dot behind, it would be nobody's there. */
    if (!network_name((const char *)name.p, name.n, text) || strcmp(text, h->name) != 0 ||
        name.n != strlen(text))
        return refuse(h, "its hello names another server than the one connected to",
                      "connect to the name that is meant");
    return 0;
}

static int check_extensions(struct hello *h, struct reader *all)
{
    unsigned char seen[EXTENSIONS / 8] = {0};
    bool has_name = false;

    h->early = false;
    while (all->n > 0 && !all->failed) {
        size_t type = take_number(all, 2);
        struct reader one = take_vector(all, 2);
        if (one.failed || (seen[type / 8] >> type % 8 & 1))
            return refuse(h, "its hello is malformed", "");
        seen[type / 8] |= (unsigned char)(1U << type % 8);
        if (h->refuse_ech && (type == EXTENSION_ECH || type == EXTENSION_ESNI))
            return refuse(h, "its hello has an encrypted part, which the rule refuses",
                          "take ech=refuse out of the rule");
        h->early = h->early || type == EXTENSION_EARLY;
        has_name = has_name || type == EXTENSION_NAME;
        if (type == EXTENSION_NAME && check_name(h, one) < 0)
            return -1;
    }
    return has_name ? 0 : refuse(h, "its hello does not name the server", opaque);
}

static int check_hello(struct hello *h)
{
    struct reader r = {.p = (const unsigned char *)h->message.p + MESSAGE_HEAD,
                       .n = h->message.n - MESSAGE_HEAD};

    (void)take(&r, 2 + RANDOM); /* version, random */
    (void)take_vector(&r, 1);   /* session */
    (void)take_vector(&r, 2);   /* ciphers */
    (void)take_vector(&r, 1);   /* compression */
    if (is_done(&r))
        return refuse(h, "its hello does not name the server", opaque);
    struct reader extensions = take_vector(&r, 2);
    if (!is_done(&r) || extensions.failed)
        return refuse(h, "its hello is malformed", "");
    return check_extensions(h, &extensions);
}

/* --- what the client sends --- */

/* With the length of the message, once that is there; 0. */
static size_t whole(const struct hello *h)
{
    const unsigned char *p = (const unsigned char *)h->message.p;

    if (h->message.n < MESSAGE_HEAD)
        return 0;
    return MESSAGE_HEAD + ((size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3]);
}

static int check_head(struct hello *h)
{
    unsigned type = h->head[0];
    bool is_first = h->state == HELLO_HELLO && !h->retried;
    bool may = h->message.n == 0 && !is_first; /* be something else than the hello */

    h->left = (size_t)h->head[3] << 8 | h->head[4];
    if (h->head[1] != 3 || h->left == 0 ||
        h->left > (type == RECORD_DATA ? SEALED_MOST : RECORD_MOST))
        return refuse(h, "what it sends is not TLS", opaque);
    if ((type == RECORD_HANDSHAKE && h->state == HELLO_HELLO) ||
        (type == RECORD_CHANGE && may && h->left == 1) ||
        (type == RECORD_ALERT && h->message.n == 0 && h->left == 2) ||
        (type == RECORD_DATA && may && h->early))
        return 0;
    return refuse(h, "it sends something else before the server has answered its hello", opaque);
}

/* Of a record of a hello; how many are taken, or -1. */
static ssize_t take_hello(struct hello *h, const unsigned char *bytes, size_t n)
{
    size_t head = h->message.n < MESSAGE_HEAD ? MESSAGE_HEAD : whole(h);

    if (n > head - h->message.n)
        n = head - h->message.n;
    buf_add(&h->message, bytes, n);
    h->left -= n;
    h->raw += n;
    if (h->message.failed || h->raw > HELLO_RAW)
        return refuse(h, "its hello is longer than any", opaque);
    if (h->message.n < MESSAGE_HEAD)
        return (ssize_t)n;
    if (h->message.p[0] != MESSAGE_HELLO || whole(h) > HELLO_MOST)
        return refuse(h, "what it sends first is no hello", opaque);
    if (h->message.n < whole(h))
        return (ssize_t)n;
    if (h->left > 0)
        return refuse(h, "there is something else in the record of its hello", opaque);
    if (check_hello(h) < 0)
        return -1;
    buf_clear(&h->message);
    buf_init(&h->message, HELLO_MOST);
    h->raw = 0;
    h->state = HELLO_ANSWER;
    return (ssize_t)n;
}

/* Some of what there is, at least one byte; or -1. */
static ssize_t take_some(struct hello *h, const unsigned char *bytes, size_t n)
{
    if (h->left == 0) {
        size_t rest = HELLO_RECORD - h->head_n;
        n = n < rest ? n : rest;
        memcpy(h->head + h->head_n, bytes, n);
        h->head_n += (unsigned)n;
        h->raw += n;
        if (h->head_n < HELLO_RECORD)
            return (ssize_t)n;
        h->head_n = 0;
        return check_head(h) < 0 ? -1 : (ssize_t)n;
    }
    n = n < h->left ? n : h->left;
    if (h->head[0] == RECORD_HANDSHAKE)
        return take_hello(h, bytes, n);
    h->left -= n;
    h->raw = 0;
    return (ssize_t)n;
}

int hello_up(struct hello *h, const unsigned char *bytes, size_t n)
{
    for (size_t at = 0; at < n && h->state != HELLO_DONE;) {
        ssize_t taken = take_some(h, bytes + at, n - at);
        if (taken < 0)
            return -1;
        at += (size_t)taken;
        h->seen += (size_t)taken;
        /* The head of a record waits until it is known, and a hello until it is whole. */
        if (h->head_n == 0 && h->message.n == 0 && (h->left == 0 || h->head[0] != RECORD_HANDSHAKE))
            h->cleared = h->seen;
    }
    return 0;
}

/* --- what the server sends --- */

/* Its first message, as far as it is needed. */
static void answered(struct hello *h)
{
    bool asks_again = memcmp(h->answer + MESSAGE_HEAD + 2, retry, RANDOM) == 0;
    size_t n = (size_t)h->answer[1] << 16 | (size_t)h->answer[2] << 8 | h->answer[3];

    if (h->answer[0] != MESSAGE_SERVER || n + MESSAGE_HEAD < HELLO_SERVER ||
        h->state != HELLO_ANSWER || (asks_again && h->retried)) {
        h->is_other = true;
    } else if (asks_again) {
        h->retried = true;
        h->state = HELLO_HELLO;
        h->answer_left = n + MESSAGE_HEAD - HELLO_SERVER;
        h->answer_n = 0;
    } else {
        h->state = HELLO_DONE;
        h->cleared = UINT64_MAX;
    }
}

static size_t take_answer(struct hello *h, const unsigned char *bytes, size_t n)
{
    size_t rest = HELLO_SERVER - h->answer_n;

    if (h->answer_left > 0) { /* of the message before */
        n = n < h->answer_left ? n : h->answer_left;
        h->answer_left -= n;
        return n;
    }
    n = n < rest ? n : rest;
    memcpy(h->answer + h->answer_n, bytes, n);
    h->answer_n += (unsigned)n;
    if (h->answer_n == HELLO_SERVER)
        answered(h);
    return n;
}

static size_t take_down(struct hello *h, const unsigned char *bytes, size_t n)
{
    if (h->down_left == 0) {
        size_t rest = HELLO_RECORD - h->down_head_n;
        n = n < rest ? n : rest;
        memcpy(h->down_head + h->down_head_n, bytes, n);
        h->down_head_n += (unsigned)n;
        if (h->down_head_n < HELLO_RECORD)
            return n;
        h->down_head_n = 0;
        h->down_left = (size_t)h->down_head[3] << 8 | h->down_head[4];
        h->is_other = h->down_head[0] < RECORD_CHANGE || h->down_head[0] > RECORD_HANDSHAKE ||
                      h->down_head[1] != 3 || h->down_left > RECORD_MOST;
        return n;
    }
    n = n < h->down_left ? n : h->down_left;
    if (h->down_head[0] == RECORD_HANDSHAKE)
        n = take_answer(h, bytes, n);
    h->down_left -= n;
    return n;
}

void hello_down(struct hello *h, const unsigned char *bytes, size_t n)
{
    while (n > 0 && h->state != HELLO_DONE && !h->is_other) {
        size_t taken = take_down(h, bytes, n);
        bytes += taken;
        n -= taken;
    }
}
