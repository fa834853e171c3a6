/* SPDX-License-Identifier: Apache-2.0 */
/* The server with real sockets. Server and clients are in one thread: the clients never block, and
 * the loop is turned until what is awaited has come. */
#include "http/server.h"
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"

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
    if (is(x, "/later")) {
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
    static const struct http_calls calls = {on_head, on_body, on_request, on_done, on_refusal};

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

TEST(a_connection_is_kept_between_requests)
{
    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    for (int i = 1; i <= 3; i++) {
        say(fd, "POST /echo?q HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        CHECK(hear(fd, "hello"));
        CHECK(heard_has("HTTP/1.1 200 OK\r\nDate: ") && heard_has("\r\nX-A: b\r\n"));
        CHECK(heard_has("\r\nContent-Type: text/plain\r\n") && !heard_has("Connection"));
        CHECK(heard_has("\r\nContent-Length: 5\r\n\r\n") && s.done == i && s.complete == i);
        CHECK(strcmp(s.request, "/echo q hello") == 0 && s.uid == -1);
    }
    struct http_stats stats;
    http_stats(s.server, &stats);
    CHECK(stats.connections == 1 && stats.accepted == 1 && stats.refused == 0);
    close_scene();
    return 0;
}

TEST(pipelined_requests_are_answered_in_turn)
{
    static char many[64000];
    size_t n = 0;

    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    /* More than the buffer holds, and one answered late among them. */
    for (int i = 0; i < 500; i++)
        n += (size_t)snprintf(many + n, 128,
                              "PUT /%s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "4\r\n%04d\r\n0\r\n\r\n",
                              i == 100 ? "later" : "echo", i);
    say_bytes(fd, many, n);
    for (int i = 0; i < 500; i++) {
        char number[16];
        (void)snprintf(number, sizeof(number), "\r\n\r\n%04d", i);
        if (i == 100) {
            CHECK(reaches(&s.requests, 101));
            turn_for(20);
            CHECK(s.requests == 101 && s.waiting);
            http_reply(s.waiting, 200, NULL, NULL, "0100", 4);
            CHECK(s.waiting && s.done == 100); /* it is freed later, not in http_reply */
        }
        CHECK_FOR(number, hear(fd, number));
    }
    CHECK(s.done == 500 && s.complete == 500);
    close_scene();
    return 0;
}

TEST(bytes_that_come_one_by_one_make_the_same_request)
{
    static const char text[] =
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: u\r\n\r\n";

    CHECK(open_scene(true, NULL) == 0);
    scoped_fd int fd = connect_client();
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        CHECK(s.requests == 0);
        say_bytes(fd, text + i, 1);
        (void)events_turn(s.events);
    }
    CHECK(hear(fd, "abcde") && s.uid == (int64_t)getuid());
    close_scene();
    return 0;
}

TEST(head_and_no_content_have_no_body)
{
    CHECK(open_scene(false, NULL) == 0);
    s.to_pull = 10;
    scoped_fd int fd = connect_client();
    say(fd, "HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    CHECK(hear(fd, "\r\n\r\n") && heard_has("Content-Length: 3\r\n"));
    say(fd, "HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(hear(fd, "\r\n\r\n") && heard_has("HTTP/1.1 200") && s.pulled == 0);
    say(fd, GET("/none"));
    CHECK(hear(fd, "\r\n\r\n") && heard_has("HTTP/1.1 204 No Content\r\n"));
    CHECK(!heard_has("Content-Length") && !heard_has("Content-Type"));
    say(fd, GET("/echo"));
    CHECK(hear(fd, "Content-Length: 0\r\n\r\n") && s.complete == 4);
    close_scene();
    return 0;
}

TEST(http_1_0_gets_no_chunks_and_is_closed_unless_it_asks)
{
    CHECK(open_scene(false, NULL) == 0);
    s.to_pull = 5;
    scoped_fd int fd = connect_client();
    say(fd, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    CHECK(hear(fd, "Content-Length: 0\r\n\r\n") && heard_has("Connection: keep-alive\r\n"));
    say(fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    CHECK(hear(fd, NULL) && heard_has("Connection: close\r\n") && heard_has("\r\n\r\nxxxxx"));
    CHECK(!heard_has("Transfer-Encoding") && heard[heard_n - 1] == 'x' && s.complete == 2);
    scoped_fd int other = connect_client();
    say(other, "GET /echo HTTP/1.0\r\n\r\n");
    CHECK(hear(other, NULL) && heard_has("Connection: close\r\n"));
    /* One that is cut is told by a reset: there is no other way. */
    scoped_fd int third = connect_client();
    s.to_pull = 100;
    s.stream_is_dry = true;
    say(third, "GET /stream HTTP/1.0\r\n\r\n");
    CHECK(hear(third, "xxxxx") && s.stream);
    s.stream_is_cut = true;
    http_wake(s.stream);
    CHECK(!hear(third, NULL) && heard_reset && s.complete == 3 && s.done == 4);
    close_scene();
    return 0;
}

TEST(a_stream_sends_what_there_is_and_waits_for_more)
{
    CHECK(open_scene(false, NULL) == 0);
    s.stream_is_dry = true;
    scoped_fd int fd = connect_client();
    say(fd, GET("/stream"));
    CHECK(hear(fd, "Transfer-Encoding: chunked\r\n\r\n") && heard_has("X-Kind: stream\r\n"));
    CHECK(s.stream && s.pulled == 0);
    s.to_pull = 3;
    http_wake(s.stream);
    http_wake(s.stream);
    CHECK(s.pulled == 0); /* not from within http_wake */
    CHECK(hear(fd, "0003\r\nxxx\r\n"));
    s.to_pull = 5;
    s.stream_is_dry = false;
    http_wake(s.stream);
    CHECK(hear(fd, "0002\r\nxx\r\n0\r\n\r\n") && s.complete == 1);
    say(fd, GET("/echo"));
    CHECK(hear(fd, "Content-Length: 0\r\n\r\n"));
    /* One that is cut has no last chunk. */
    s.stream_is_cut = true;
    say(fd, GET("/stream"));
    CHECK(hear(fd, NULL) && !heard_has("0\r\n\r\n") && s.complete == 2 && s.done == 3);
    close_scene();
    return 0;
}

TEST(a_slow_reader_holds_back_a_large_stream)
{
    static char sink[1 << 16];
    uint64_t received = 0;
    uint64_t most_held = 0;

    CHECK(open_scene(false, NULL) == 0);
    s.to_pull = 100 << 20;
    scoped_fd int fd = connect_client();
    int size = 65536;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    say(fd, GET("/stream"));
    turn_for(100);
    CHECK(s.pulled > 0 && s.pulled < 10 << 20); /* nobody has read anything yet */
    uint64_t before = s.pulled;
    turn_for(50);
    CHECK(s.pulled == before);
    for (uint64_t end = now_ms() + 120000; !s.complete || received < s.to_pull;) {
        ssize_t n = recv(fd, sink, sizeof(sink), 0);
        CHECK(now_ms() < end && n != 0);
        received += n > 0 ? (uint64_t)n : 0;
        if (s.pulled > received && s.pulled - received > most_held)
            most_held = s.pulled - received;
        if (n < 0)
            (void)events_turn(s.events);
    }
    CHECK(s.pulled == s.to_pull && most_held < 10 << 20);
    close_scene();
    return 0;
}

TEST(a_large_reply_reaches_a_slow_reader)
{
    static char sink[1 << 16];
    uint64_t received = 0;

    CHECK(open_scene(true, NULL) == 0);
    scoped_fd int fd = connect_client();
    say(fd, GET("/big"));
    CHECK(hear(fd, "\r\n\r\n") && s.complete == 0);
    for (uint64_t end = now_ms() + PATIENCE_MS; received < 8 << 20;) {
        ssize_t n = recv(fd, sink, sizeof(sink), 0);
        CHECK(now_ms() < end && n != 0);
        received += n > 0 ? (uint64_t)n : 0;
        if (n < 0)
            (void)events_turn(s.events);
    }
    CHECK(received == 8 << 20 && reaches(&s.complete, 1));
    close_scene();
    return 0;
}

TEST(a_client_that_vanishes_is_noticed_while_it_waits)
{
    static const struct linger reset = {.l_onoff = 1, .l_linger = 0};

    for (int on_unix = 0; on_unix < 2; on_unix++) {
        CHECK(open_scene(on_unix, NULL) == 0);
        s.stream_is_dry = true;
        static const char *const requests[] = {
            GET("/later"), GET("/stream"), GET("/later") GET("/later"),
            "POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"};
        for (size_t i = 0; i < LENGTH(requests); i++) {
            int fd = connect_client();
            s.body_allowed = 1; /* and the rest has to wait */
            say(fd, requests[i]);
            CHECK_FOR(requests[i], reaches(&s.heads, (int)i + 1));
            turn_for(20);
            (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
            (void)close(fd);
            CHECK_FOR(requests[i], reaches(&s.done, (int)i + 1));
        }
        turn_for(20);
        struct http_stats stats;
        http_stats(s.server, &stats);
        CHECK(s.done == s.heads && s.complete == 0 && stats.connections == 0);
        close_scene();
    }
    return 0;
}

TEST(a_client_that_vanishes_in_the_middle_of_a_stream_is_noticed)
{
    CHECK(open_scene(false, NULL) == 0);
    s.to_pull = UINT64_MAX;
    int fd = connect_client();
    say(fd, GET("/stream"));
    CHECK(hear(fd, "xxxxx"));
    (void)close(fd);
    CHECK(reaches(&s.done, 1) && s.complete == 0);
    close_scene();
    return 0;
}

TEST(a_client_that_ended_its_side_still_gets_its_answers)
{
    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    say(fd, GET("/echo") GET("/later"));
    (void)shutdown(fd, SHUT_WR);
    CHECK(reaches(&s.requests, 2));
    turn_for(50);
    CHECK(s.waiting && s.done == 1);
    http_reply(s.waiting, 200, NULL, NULL, "late", 4);
    CHECK(hear(fd, NULL) && heard_has("late") && s.complete == 2);
    /* Also when it ended while its body had to wait. */
    scoped_fd int other = connect_client();
    s.body_allowed = 1;
    say(other, "PUT /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" GET("/echo"));
    (void)shutdown(other, SHUT_WR);
    CHECK(reaches(&s.heads, 3));
    turn_for(20);
    s.body_allowed = SIZE_MAX;
    http_continue_body(s.waiting);
    CHECK(hear(other, NULL) && s.body_bytes == 3 && s.requests == 4 && s.complete == 4);
    close_scene();
    return 0;
}

TEST(continue_is_said_only_to_bodies_that_are_wanted)
{
    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    CHECK(hear(fd, "\r\n\r\n") && strcmp(heard, "HTTP/1.1 100 Continue\r\n\r\n") == 0);
    say(fd, "ok");
    CHECK(hear(fd, "\r\n\r\nok"));
    say(fd, "POST /early HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    CHECK(hear(fd, NULL) && !heard_has("100 Continue") && heard_has("HTTP/1.1 403"));
    scoped_fd int other = connect_client();
    say(other, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
               "Content-Length: 1048577\r\n\r\n");
    CHECK(hear(other, NULL) && heard_has("HTTP/1.1 413") && !heard_has("100 Continue"));
    CHECK(heard_has("{\"error\":{\"code\":\"too_large\",\"message\":\"") && s.requests == 1);
    close_scene();
    return 0;
}

TEST(an_early_answer_arrives_although_the_client_still_sends)
{
    static char body[300000];

    memset(body, 'y', sizeof(body));
    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    say(fd, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    say_bytes(fd, body, sizeof(body));
    CHECK(hear(fd, NULL) && heard_has("HTTP/1.1 403 Forbidden\r\n") && heard_has("\r\n\r\nno"));
    CHECK(heard_has("Connection: close\r\n") && s.complete == 1 && s.requests == 0);
    /* A body that was there already costs no connection. */
    scoped_fd int other = connect_client();
    say(other, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" GET("/echo"));
    CHECK(hear(other, "\r\n\r\nno") && !heard_has("Connection"));
    CHECK(hear(other, "Content-Length: 0\r\n\r\n"));
    close_scene();
    return 0;
}

TEST(a_body_is_collected_up_to_its_bound)
{
    static char body[BOUND + 1];

    memset(body, 'y', sizeof(body));
    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    say(fd, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n");
    say_bytes(fd, body, BOUND);
    CHECK(reaches(&s.requests, 1));
    size_t n = 0;
    CHECK(memcmp(http_body(s.waiting, &n), body, BOUND) == 0 && n == BOUND);
    CHECK(http_body(s.waiting, NULL)[BOUND] == '\0');
    http_reply(s.waiting, 200, NULL, NULL, "fine", 4);
    CHECK(hear(fd, "fine"));
    say(fd, "POST /later HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n");
    say_bytes(fd, body, BOUND + 1);
    CHECK(hear(fd, NULL) && heard_has("HTTP/1.1 413") && heard_has("Connection: close"));
    CHECK(s.requests == 1 && s.done == 2 && s.complete == 1);
    close_scene();
    return 0;
}

TEST(a_streamed_body_waits_for_who_takes_it)
{
    static char body[200000];

    memset(body, 'y', sizeof(body));
    for (int chunked = 0; chunked < 2; chunked++) {
        CHECK(open_scene(false, NULL) == 0);
        scoped_fd int fd = connect_client();
        s.body_allowed = 1000;
        say(fd, chunked ? "PUT /sink HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                          "30d40\r\n"
                        : "PUT /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
        say_bytes(fd, body, sizeof(body));
        say(fd, chunked ? "\r\n0\r\n\r\n" GET("/echo") : GET("/echo"));
        turn_for(50);
        CHECK(s.body_bytes == 1000 && s.waiting && s.requests == 0);
        s.body_allowed = 50000;
        http_continue_body(s.waiting);
        turn_for(50);
        CHECK(s.body_bytes == 51000 && s.requests == 0);
        s.body_allowed = SIZE_MAX;
        http_continue_body(s.waiting);
        CHECK(hear(fd, "Content-Length: 0\r\n\r\n") && s.body_bytes == 200000);
        CHECK(hear(fd, "Content-Length: 0\r\n\r\n") && s.requests == 2);
        close_scene();
    }
    return 0;
}

TEST(smuggled_requests_are_never_served)
{
    static const struct {
        const char *status;
        const char *text;
    } rows[] = {
        {"400", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
                "\r\n0\r\n\r\n"},
        {"400", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 0\r\n\r\n"},
        {"400", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc"},
        {"400", "POST /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
        {"400", "GET /a HTTP/1.1\nHost: a\n\n"},
        {"400", "GET /a HTTP/1.1\r\nHost: a\r\nX: a\n\r\n"},
        {"400", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0b chunked\r\n\r\n0\r\n\r\n"},
        {"501", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n"},
        {"400",
         "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\n.\r\n0\r\n\r\n"},
        {"400", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                "1;a\nb\r\n.\r\n0\r\n\r\n"},
        {"400", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                "-1\r\n.\r\n0\r\n\r\n"},
        {"414", NULL}, /* the row's own bytes are made below */
    };

    static char longest[HTTP_MAX_HEAD + 100];

    memset(longest, 'a', sizeof(longest) - 1);
    memcpy(longest, "GET /", 5);
    CHECK(open_scene(false, NULL) == 0);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        char line[32];
        scoped_fd int fd = connect_client();
        say(fd, rows[i].text ? rows[i].text : longest);
        say(fd, GET("/smuggled"));
        (void)snprintf(line, sizeof(line), "HTTP/1.1 %s ", rows[i].status);
        CHECK_FOR(line, hear(fd, NULL) && strncmp(heard, line, strlen(line)) == 0);
        CHECK_FOR(heard, heard_has("Connection: close\r\n") && !strstr(heard + 1, "HTTP/1.1"));
        CHECK_FOR(heard,
                  heard_has("\r\n\r\n{\"error\":{\"code\":\"invalid_request\",\"message\":\""));
        CHECK(heard_n == 0 || heard_has("\r\nX-Id: "));
    }
    CHECK(s.requests == 0);
    close_scene();
    return 0;
}

TEST(slow_clients_are_cut)
{
    static const struct http_options quick = {.head_ms = 60, .body_ms = 80, .idle_ms = 100};

    CHECK(open_scene(false, &quick) == 0);
    scoped_fd int silent = connect_client();
    scoped_fd int head = connect_client();
    scoped_fd int body = connect_client();
    scoped_fd int kept = connect_client();
    scoped_fd int waiting = connect_client();
    uint64_t start = now_ms();
    say(head, "GET / HT");
    say(body, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
    say(kept, GET("/echo"));
    say(waiting, GET("/later"));
    CHECK(hear(silent, NULL) && heard_n == 0);
    CHECK(now_ms() - start >= 50);
    CHECK(hear(head, NULL) && heard_has("HTTP/1.1 408 Request Timeout\r\n"));
    CHECK(heard_has("X-Id: none\r\n") && !heard_has("Retry-After"));
    CHECK(hear(body, NULL) && heard_has("HTTP/1.1 408") && heard_has("X-Id: /echo\r\n"));
    CHECK(hear(kept, NULL) && heard_has("200 OK") && now_ms() - start >= 90);
    turn_for(200);
    CHECK(s.waiting); /* that one waits for us, not we for it */
    http_reply(s.waiting, 200, NULL, NULL, "late", 4);
    CHECK(hear(waiting, "late"));
    /* Every byte of a head counts against the same deadline. */
    scoped_fd int drip = connect_client();
    start = now_ms();
    for (int i = 0; i < 20 && now_ms() - start < 40; i++) {
        say(drip, "G");
        turn_for(5);
    }
    CHECK(hear(drip, NULL) && now_ms() - start < 1000);
    close_scene();
    return 0;
}

TEST(there_are_no_more_connections_than_allowed)
{
    static const struct http_options two = {.max_connections = 2};
    struct http_stats stats;

    CHECK(open_scene(false, &two) == 0);
    scoped_fd int busy = connect_client();
    scoped_fd int idle = connect_client();
    scoped_fd int third = connect_client();
    say(busy, GET("/later"));
    CHECK(reaches(&s.requests, 1));
    /* Who has been idle the longest makes room, after a second. */
    uint64_t start = now_ms();
    CHECK(hear(idle, NULL) && now_ms() - start > 500);
    say(third, "GET /");
    turn_for(20);
    scoped_fd int fourth = connect_client();
    say(fourth, GET("/fourth"));
    turn_for(50);
    http_stats(s.server, &stats);
    CHECK(stats.connections == 2 && s.requests == 1);
    scope_close(&third);
    CHECK(hear(fourth, "Content-Length: 0\r\n\r\n"));
    close_scene();
    return 0;
}

TEST(who_keeps_a_place_waiting_makes_room)
{
    static const struct http_options few = {.max_connections = 4, .body_ms = 24000};
    struct http_stats stats;

    CHECK(open_scene(false, &few) == 0);
    scoped_fd int handled = connect_client();
    scoped_fd int body = connect_client();
    scoped_fd int head = connect_client();
    scoped_fd int late = connect_client();
    say(handled, GET("/later"));
    say(body, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
    say(head, "GET / HT");
    CHECK(reaches(&s.heads, 2));
    turn_for(300);
    say(late, "GE");
    turn_for(100);
    scoped_fd int one = connect_client();
    say(one, GET("/later"));
    CHECK(reaches(&s.requests, 2)); /* in the place of the older half head */
    CHECK(hear(head, NULL) && heard_n == 0);
    scoped_fd int two = connect_client();
    say(two, GET("/later"));
    CHECK(reaches(&s.requests, 3)); /* the other half head */
    CHECK(hear(late, NULL) && heard_n == 0);
    scoped_fd int three = connect_client();
    say(three, GET("/later"));
    CHECK(reaches(&s.requests, 4)); /* the half body */
    CHECK(hear(body, NULL) && heard_n == 0);
    scoped_fd int four = connect_client();
    say(four, GET("/later"));
    turn_for(1200); /* all that is left is being handled, and stays */
    CHECK(s.requests == 4 && s.done == 1);
    http_stats(s.server, &stats);
    CHECK(stats.evicted == 3 && stats.connections == 4);
    close_scene();
    return 0;
}

TEST(a_reply_that_nobody_reads_makes_room)
{
    static const struct http_options one = {.max_connections = 1, .body_ms = 1200};

    CHECK(open_scene(false, &one) == 0);
    scoped_fd int deaf = connect_client();
    say(deaf, GET("/big"));
    CHECK(reaches(&s.requests, 1));
    scoped_fd int next = connect_client();
    say(next, GET("/echo"));
    CHECK(hear(next, "Content-Length: 0\r\n\r\n") && s.done >= 1);
    close_scene();
    return 0;
}

static void say_body(int fd, size_t length, size_t sent)
{
    static char bytes[200000];
    char head[128];

    memset(bytes, 'x', sizeof(bytes));
    (void)snprintf(head, sizeof(head),
                   "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", length);
    say(fd, head);
    say_bytes(fd, bytes, sent);
}

TEST(all_bodies_together_have_a_bound)
{
    static const struct http_options tight = {.body_ms = 6000, .body_bytes = 100000};
    struct http_stats stats;

    CHECK(open_scene(false, &tight) == 0);
    scoped_fd int half = connect_client();
    say_body(half, 90000, 80000);
    turn_for(100);
    http_stats(s.server, &stats);
    CHECK(stats.body_bytes == 80000);
    scoped_fd int refused = connect_client();
    say_body(refused, 60000, 60000);
    CHECK(hear(refused, NULL) && heard_has("HTTP/1.1 503") && heard_has("Retry-After: 1\r\n") &&
          heard_has("X-Id: /echo\r\n"));
    scoped_fd int small = connect_client(); /* there is always room for those */
    say_body(small, 3, 3);
    CHECK(hear(small, "xxx"));
    turn_for(500); /* who has stopped half way has to go */
    scoped_fd int next = connect_client();
    say_body(next, 20001, 20001);
    CHECK(hear(next, "\r\n\r\n"));
    CHECK(hear(half, NULL) && heard_n == 0);
    for (uint64_t end = now_ms() + PATIENCE_MS; s.done < 4 && now_ms() < end;)
        (void)events_turn(s.events);
    http_stats(s.server, &stats);
    CHECK(stats.body_bytes == 0 && stats.evicted == 1);
    close_scene();
    return 0;
}

TEST(without_descriptors_accepting_pauses_and_goes_on)
{
    struct rlimit limit;
    struct rlimit none;

    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    say(fd, GET("/echo"));
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)fd + 1, .rlim_max = limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    int turns = 0;
    for (uint64_t end = now_ms() + 250; now_ms() < end; turns++)
        (void)events_turn(s.events);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(s.requests == 0 && turns < 200);
    CHECK(hear(fd, "Content-Length: 0\r\n\r\n"));
    close_scene();
    return 0;
}

TEST(a_body_goes_on_while_the_answer_goes_out)
{
    static const char *const pieces[] = {"3\r\nabc\r\n", "2\r\nde\r\n"};

    CHECK(open_scene(false, NULL) == 0);
    s.stream_is_dry = true;
    s.body_allowed = 4;
    scoped_fd int fd = connect_client();
    say(fd, "POST /both HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    CHECK(hear(fd, "\r\n\r\n") && heard_has("X-Kind: both\r\n") && heard_has("Connection: close"));
    for (size_t i = 0; i < LENGTH(pieces); i++) {
        say(fd, pieces[i]);
        s.to_pull += 2;
        turn_for(20);
        http_wake(s.stream);
        CHECK(hear(fd, "0002\r\nxx\r\n"));
    }
    CHECK(s.body_bytes == 4); /* the rest waits */
    s.body_allowed = SIZE_MAX;
    http_continue_body(s.stream);
    say(fd, "0\r\n\r\n");
    CHECK(hear(fd, NULL) && heard_has("0003\r\nxxx\r\n0\r\n\r\n"));
    CHECK(s.body_bytes == 5 && s.requests == 1 && s.complete == 1);
    close_scene();
    return 0;
}

TEST(a_malformed_body_beside_an_answer_cuts_it)
{
    CHECK(open_scene(false, NULL) == 0);
    s.stream_is_dry = true;
    scoped_fd int fd = connect_client();
    say(fd, "POST /both HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    (void)hear(fd, NULL);
    CHECK(!heard_has("0\r\n\r\n") && !heard_has(" 400 ") && s.done == 1 && s.complete == 0);
    scope_close(&fd);
    fd = connect_client();
    say(fd, "POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    CHECK(shutdown(fd, SHUT_WR) == 0); /* in the middle of it */
    (void)hear(fd, NULL);
    CHECK(!heard_has("\r\n0\r\n\r\n") && s.done == 2 && s.complete == 0);
    close_scene();
    return 0;
}

TEST(an_upgraded_connection_carries_bytes_both_ways)
{
    CHECK(open_scene(false, NULL) == 0);
    s.stream_is_dry = true;
    s.body_allowed = 2;
    scoped_fd int fd = connect_client();
    say(fd, GET("/upgrade") "GET / ");
    CHECK(hear(fd, "\r\n\r\n") && heard_has("HTTP/1.1 101 Switching Protocols\r\n"));
    CHECK(heard_has("Upgrade: x\r\n") && !heard_has("Connection") && !heard_has("Content"));
    turn_for(20);
    CHECK(s.body_bytes == 2);
    s.body_allowed = SIZE_MAX;
    http_continue_body(s.stream);
    say(fd, "\r\n\0more");
    s.to_pull = 4;
    http_wake(s.stream);
    CHECK(hear(fd, "xxxx"));
    turn_for(20);
    CHECK(s.body_bytes == 8 && s.requests == 1 && s.done == 0);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK(hear(fd, NULL) && strcmp(heard, "xxx") == 0);
    CHECK(s.requests == 2 && s.done == 1 && s.complete == 1);
    close_scene();
    return 0;
}

TEST(the_end_of_our_side_of_an_upgraded_connection_is_told)
{
    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int fd = connect_client();
    say(fd, GET("/upgrade"));
    CHECK(hear(fd, NULL) && s.done == 0); /* it may still say something */
    say(fd, "bye");
    turn_for(20);
    CHECK(s.body_bytes == 3 && s.done == 0);
    scope_close(&fd);
    CHECK(reaches(&s.done, 1));
    fd = connect_client();
    s.requests = 0;
    s.stream_is_dry = true;
    s.to_pull = s.pulled;
    say(fd, GET("/upgrade"));
    CHECK(hear(fd, "\r\n\r\n"));
    http_cut(s.stream);
    CHECK(!hear(fd, NULL) && heard_reset && s.done == 2);
    close_scene();
    return 0;
}

TEST(draining_ends_idle_connections_and_lets_exchanges_finish)
{
    CHECK(open_scene(false, NULL) == 0);
    scoped_fd int idle = connect_client();
    scoped_fd int busy = connect_client();
    say(idle, GET("/echo"));
    CHECK(hear(idle, "Content-Length: 0\r\n\r\n"));
    say(busy, GET("/later"));
    CHECK(reaches(&s.requests, 2));
    CHECK(!http_drain(s.server));
    CHECK(hear(idle, NULL));
    http_reply(s.waiting, 200, NULL, NULL, "last", 4);
    CHECK(hear(busy, NULL) && heard_has("Connection: close\r\n") && heard_has("last"));
    scope_close(&busy);
    for (uint64_t end = now_ms() + PATIENCE_MS; !http_drain(s.server) && now_ms() < end;)
        (void)events_turn(s.events);
    CHECK(http_drain(s.server) && s.done == 2);
    close_scene();
    return 0;
}

TEST(closing_the_server_ends_every_exchange)
{
    CHECK(open_scene(true, NULL) == 0);
    s.stream_is_dry = true;
    scoped_fd int a = connect_client();
    scoped_fd int b = connect_client();
    scoped_fd int c = connect_client();
    say(a, GET("/later"));
    say(b, GET("/stream"));
    say(c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
    CHECK(reaches(&s.heads, 3));
    http_wake(s.stream);
    close_scene();
    CHECK(s.done == 3 && s.complete == 0);
    return 0;
}
