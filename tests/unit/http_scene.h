/* SPDX-License-Identifier: Apache-2.0 */
/* The server with real sockets. Server and clients are in one thread: the clients never block, and
 * the loop is turned until what is awaited has come. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "http/server.h"
#include "unit.h"

/* A program need not use all of it. Not inline: sanitized, that compiles half as fast. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

enum {
    BOUND = 1 << 20,
    PATIENCE_MS = 10000,
};

static struct scene {
    struct events *events;
    struct http_server *server;
    struct timer tick;
    int listener;
    struct exchange *waiting; /* for /later: until the test answers */
    struct exchange *stream;
    char request[256]; /* path, query and body of the last one */
    int heads;
    int requests;
    int done;
    int complete;
    int evicted;
    int64_t uid;
    size_t body_bytes;   /* that on_body took */
    size_t body_allowed; /* SIZE_MAX: any number */
    uint64_t to_pull;
    uint64_t pulled;
    bool stream_is_dry;
    bool stream_is_cut;
} s;

static ssize_t pull(void *context, char *to, size_t size)
{
    (void)context;
    if (s.stream_is_cut)
        return -EIO;
    if (s.pulled == s.to_pull)
        return s.stream_is_dry ? -EAGAIN : 0;
    if (size > s.to_pull - s.pulled)
        size = (size_t)(s.to_pull - s.pulled);
    memset(to, 'x', size);
    s.pulled += size;
    return (ssize_t)size;
}

static bool is(const struct exchange *x, const char *path)
{
    return strcmp(http_request_of(x)->path, path) == 0;
}

static int64_t on_head(void *owner, struct exchange *x)
{
    (void)owner;
    s.heads++;
    s.uid = http_peer_uid(x);
    if (strncmp(http_request_of(x)->path, "/of/", 4) == 0) {
        const char *whose = http_request_of(x)->path + 4;
        const char *key = http_header(http_request_of(x), "x-key");
        enum http_limit limit = http_charge(x, whose, key ? key : "-", strcmp(whose, "admin") == 0);
        const char *setting = http_limit_setting(limit);
        if (limit)
            http_reply(x, 429, "text/plain", NULL, setting, strlen(setting));
    }
    if (is(x, "/early"))
        http_reply(x, 403, "text/plain", NULL, "no", 2);
    if (is(x, "/both"))
        http_stream_duplex(s.stream = x, 200, "X-Kind: both\r\n", HTTP_SIZE_UNKNOWN, pull, NULL);
    return is(x, "/sink") || is(x, "/both") ? HTTP_BODY_STREAM : BOUND;
}

static size_t on_body(void *owner, struct exchange *x, const char *bytes, size_t n)
{
    (void)owner;
    (void)bytes;
    s.waiting = x;
    size_t taken = n < s.body_allowed ? n : s.body_allowed;
    if (s.body_allowed != SIZE_MAX)
        s.body_allowed -= taken;
    s.body_bytes += taken;
    return taken;
}

static void on_request(void *owner, struct exchange *x)
{
    size_t n = 0;
    const char *body = http_body(x, &n);

    (void)owner;
    s.requests++;
    (void)snprintf(s.request, sizeof(s.request), "%s %s %.100s", http_request_of(x)->path,
                   http_request_of(x)->query, body);
    if (strcmp(http_request_of(x)->query, "later") == 0) {
        s.waiting = x;
    } else if (strcmp(http_request_of(x)->query, "news") == 0) {
        enum http_limit limit = http_hold(x, HTTP_NEWS);
        const char *setting = http_limit_setting(limit);
        if (limit)
            http_reply(x, 429, "text/plain", NULL, setting, strlen(setting));
        else
            http_stream(x, 200, "text/plain", NULL, pull, NULL);
    } else if (is(x, "/later")) {
        s.waiting = x;
    } else if (is(x, "/stream")) {
        s.stream = x;
        http_stream(x, 200, "text/plain", "X-Kind: stream\r\n", pull, NULL);
    } else if (is(x, "/upgrade") && s.requests == 1) {
        s.stream = x;
        http_upgrade(x, "Upgrade: x\r\n", pull, NULL);
    } else if (is(x, "/upgrade") || is(x, "/both")) {
        s.to_pull += 3; /* what is said after the client's end */
        s.stream_is_dry = false;
        http_wake(x);
    } else if (is(x, "/none")) {
        http_reply(x, 204, "text/plain", NULL, NULL, 0);
    } else if (is(x, "/big")) {
        static char big[8 << 20];
        memset(big, 'b', sizeof(big));
        http_reply(x, 200, "text/plain", NULL, big, sizeof(big));
    } else {
        http_reply(x, 200, "text/plain", "X-A: b\r\n", body, n);
    }
}

static void on_done(void *owner, struct exchange *x, bool complete)
{
    (void)owner;
    s.waiting = s.waiting == x ? NULL : s.waiting;
    s.stream = s.stream == x ? NULL : s.stream;
    s.done++;
    s.complete += complete;
}

/* A stream ends with a last word, what was not answered is refused. */
static void on_evict(void *owner, struct exchange *x, enum http_limit limit)
{
    const char *setting = http_limit_setting(limit);

    (void)owner;
    s.evicted++;
    if (!http_is_answered(x)) {
        http_reply(x, 429, "text/plain", NULL, setting, strlen(setting));
        return;
    }
    s.to_pull = s.pulled;
    s.stream_is_dry = false;
    http_wake(x);
}

/* Says whether there was an exchange, so that a test sees it. */
static void on_refusal(void *owner, struct exchange *x, char *headers, size_t size)
{
    (void)owner;
    (void)snprintf(headers, size, "X-Id: %s\r\n", x ? http_request_of(x)->path : "none");
}

static void on_tick(struct timer *timer)
{
    (void)timer_set(s.events, timer, now_ms() + 5);
}

static int listen_somewhere(bool on_unix)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX}; /* the kernel picks a name */
    int fd = socket(on_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = on_unix ? bind(fd, (struct sockaddr *)&un, sizeof(sa_family_t))
                    : bind(fd, (struct sockaddr *)&in, sizeof(in));

    return r < 0 || listen(fd, 1024) < 0 ? -1 : fd;
}

static int open_scene(bool on_unix, const struct http_options *options)
{
    static const struct http_calls calls = {on_head, on_body,    on_request,
                                            on_done, on_refusal, on_evict};

    s = (struct scene){.tick.ring = on_tick, .body_allowed = SIZE_MAX};
    s.listener = listen_somewhere(on_unix);
    if (s.listener < 0 || events_open(&s.events) < 0 ||
        http_open(&s.server, s.events, &calls, &s, options) < 0)
        return -1;
    on_tick(&s.tick);
    return http_listen(s.server, s.listener);
}

static void close_scene(void)
{
    http_close(s.server);
    timer_stop(s.events, &s.tick);
    events_close(s.events);
    scope_close(&s.listener);
}

static int connect_client(void)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof(at);

    (void)getsockname(s.listener, (struct sockaddr *)&at, &n);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&at, n) < 0)
        return -1;
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void say_bytes(int fd, const char *bytes, size_t n)
{
    for (uint64_t end = now_ms() + PATIENCE_MS; n > 0 && now_ms() < end;) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return;
        bytes += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
        if (sent < 0)
            (void)events_turn(s.events);
    }
}

static void say(int fd, const char *text)
{
    say_bytes(fd, text, strlen(text));
}

/* What was heard, up to and with `until` (NULL: to the end of the connection), in `heard`. */
static char heard[1 << 16];
static size_t heard_n;
static bool heard_reset;

static bool hear(int fd, const char *until)
{
    heard_n = 0;
    heard[0] = '\0';
    heard_reset = false;
    for (uint64_t end = now_ms() + PATIENCE_MS; now_ms() < end;) {
        /* Byte by byte, so that nothing of the next answer is taken. */
        ssize_t n = recv(fd, heard + heard_n, 1, 0);
        if (n == 1 && heard_n < sizeof(heard) - 2) {
            heard[++heard_n] = '\0';
            size_t wanted = until ? strlen(until) : 0;
            if (until && heard_n >= wanted && strcmp(heard + heard_n - wanted, until) == 0)
                return true;
        } else if (n == 0 || (n < 0 && errno != EAGAIN)) {
            heard_reset = n < 0;
            return !until && n == 0;
        } else {
            (void)events_turn(s.events);
        }
    }
    return false;
}

static bool heard_has(const char *text)
{
    return strstr(heard, text) != NULL;
}

/* Turns until the counter is that high. */
static bool reaches(const int *counter, int value)
{
    for (uint64_t end = now_ms() + PATIENCE_MS; *counter < value && now_ms() < end;)
        (void)events_turn(s.events);
    return *counter >= value;
}

static void turn_for(uint64_t ms)
{
    for (uint64_t end = now_ms() + ms; now_ms() < end;)
        (void)events_turn(s.events);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

#pragma GCC diagnostic pop
