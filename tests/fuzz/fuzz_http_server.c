/* SPDX-License-Identifier: Apache-2.0 */
/* A whole connection: the bytes are sent in one piece and in small ones, to an owner that answers
 * at once, late, early, as a stream, as one beside the body, or by an upgrade, as the path says.
 * Every exchange must end exactly once, every connection must end with its client, and small pieces
 * must give no other requests than one large (fewer they may: after an early answer, what has come
 * of the body decides whether to go on). */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/events.h"
#include "http/server.h"

enum {
    MAX = 1 << 16
};

struct story {
    char text[2 * MAX];
    size_t n;
};

static struct scene {
    struct events *events;
    struct http_server *server;
    int listener;
    struct story *story;
    struct story body;    /* counts once its request is whole */
    struct exchange *now; /* one connection, so there is one at most */
    bool waits;
    bool paused;
    bool upgraded;
    int pulls;
    int heads;
    int done;
} s;

static void tell(struct story *story, const char *bytes, size_t n)
{
    MUST(n <= sizeof(story->text) - story->n);
    memcpy(story->text + story->n, bytes, n);
    story->n += n;
}

static ssize_t pull(void *context, char *to, size_t size)
{
    MUST(context == s.now && size >= 16384);
    s.pulls++;
    if (s.pulls % 3 == 0) {
        s.waits = true;
        return -EAGAIN;
    }
    memset(to, 'x', (size_t)s.pulls);
    return s.pulls > 7 ? (s.pulls % 2 ? 0 : -EIO) : s.pulls;
}

static char kind_of(const struct exchange *x)
{
    return http_request_of(x)->path[1];
}

static int64_t on_head(void *owner, struct exchange *x)
{
    (void)owner;
    MUST(!s.now);
    s.heads++;
    s.now = x;
    s.pulls = 0;
    s.body.n = 0;
    s.upgraded = false;
    if (kind_of(x) == 'e')
        http_reply(x, 403, "text/plain", NULL, "no", 2);
    if (kind_of(x) == 'd')
        http_stream_duplex(x, 200, NULL, HTTP_SIZE_UNKNOWN, pull, x);
    return kind_of(x) == 'b' || kind_of(x) == 'd' ? HTTP_BODY_STREAM : 1000;
}

static size_t on_body(void *owner, struct exchange *x, const char *bytes, size_t n)
{
    (void)owner;
    MUST(x == s.now && n > 0);
    size_t taken = n > 5 ? n / 2 : n;
    if (!s.upgraded)
        tell(&s.body, bytes, taken);
    s.paused = taken < n;
    return taken;
}

static void on_request(void *owner, struct exchange *x)
{
    const struct http_request *r = http_request_of(x);
    size_t n = 0;
    const char *body = http_body(x, &n);

    (void)owner;
    MUST(x == s.now && n <= 1000 && body[n] == '\0');
    if (s.upgraded)
        return; /* the client has ended */
    MUST(r->chunked || kind_of(x) == 'b' || kind_of(x) == 'd' || n == r->length);
    tell(s.story, r->path, strlen(r->path) + 1);
    tell(s.story, s.body.text, s.body.n);
    tell(s.story, body, n + 1);
    s.upgraded = kind_of(x) == 'u' && !r->is_1_0 && !r->has_body;
    if (kind_of(x) == 'l')
        s.waits = true;
    else if (s.upgraded)
        http_upgrade(x, "Upgrade: x\r\n", pull, x);
    else if (kind_of(x) == 'd')
        http_wake(x);
    else if (kind_of(x) == 's')
        http_stream(x, 200, "text/plain", "X: y\r\n", pull, x);
    else
        http_reply(x, 200, "text/plain", NULL, body, n);
}

static void on_done(void *owner, struct exchange *x, bool complete)
{
    (void)owner;
    (void)complete;
    MUST(x == s.now);
    s.now = NULL;
    s.waits = false;
    s.paused = false;
    s.done++;
}

static void open_scene(void)
{
    static const struct http_calls calls = {
        .on_head = on_head, .on_body = on_body, .on_request = on_request, .on_done = on_done};
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    if (s.server)
        return;
    s.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(bind(s.listener, (struct sockaddr *)&at, sizeof(sa_family_t)) == 0);
    MUST(listen(s.listener, 8) == 0 && events_open(&s.events) == 0);
    MUST(http_open(&s.server, s.events, &calls, NULL, NULL) == 0);
    MUST(http_listen(s.server, s.listener) == 0);
}

static int connect_client(void)
{
    struct sockaddr_un at;
    socklen_t n = sizeof(at);

    MUST(getsockname(s.listener, (struct sockaddr *)&at, &n) == 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(connect(fd, (struct sockaddr *)&at, n) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

/* What the owner left for later, what the client was sent, and a turn of the loop. False once the
 * connection is over. */
static bool go_on(int fd, uint64_t accepted)
{
    static char sink[MAX];
    struct http_stats stats;

    if (s.now && s.paused) {
        s.paused = false;
        http_continue_body(s.now);
    } else if (s.now && s.waits) {
        s.waits = false;
        if (kind_of(s.now) != 'l')
            http_wake(s.now);
        else
            http_reply(s.now, 200, NULL, NULL, "late", 4);
    }
    while (recv(fd, sink, sizeof(sink), 0) > 0)
        ;
    http_stats(s.server, &stats);
    if (stats.accepted > accepted && stats.connections == 0)
        return false;
    /* A turn that waits for nothing is found by the fuzzer's own limit. */
    MUST(events_turn(s.events) == 0);
    return true;
}

static void run(const uint8_t *data, size_t size, size_t piece, struct story *ret)
{
    struct http_stats before;
    int fd = connect_client();
    bool lives = true;

    http_stats(s.server, &before);
    ret->n = 0;
    s.story = ret;
    s.heads = 0;
    s.done = 0;
    for (size_t at = 0; at < size && lives;) {
        size_t n = size - at < piece ? size - at : piece;
        ssize_t sent = send(fd, data + at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            break; /* refused, and closed */
        at += sent > 0 ? (size_t)sent : 0;
        lives = go_on(fd, before.accepted);
    }
    (void)shutdown(fd, SHUT_WR);
    while (lives)
        lives = go_on(fd, before.accepted);
    MUST(s.heads == s.done && !s.now);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct story whole;
    static struct story pieces;

    if (size == 0 || size > 4096)
        return 0;
    open_scene();
    run(data, size, MAX, &whole);
    run(data, size, 1 + data[size - 1] % 64, &pieces);
    MUST(pieces.n <= whole.n && memcmp(pieces.text, whole.text, pieces.n) == 0);
    return 0;
}
