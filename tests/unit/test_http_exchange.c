/* SPDX-License-Identifier: Apache-2.0 */
/* The server: requests, answers and streams on a connection, and how one ends. */
#include "http_scene.h"

#include <linux/tcp.h>

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

TEST(a_large_stream_fills_its_segments)
{
    static char sink[1 << 16];
    struct tcp_info info;
    socklen_t size = sizeof(info);
    uint64_t received = 0;

    CHECK(open_scene(false, NULL) == 0);
    s.to_pull = 8 << 20;
    scoped_fd int fd = connect_client();
    say(fd, GET("/stream"));
    for (uint64_t end = now_ms() + PATIENCE_MS; !s.complete || received < s.to_pull;) {
        ssize_t n = recv(fd, sink, sizeof(sink), 0);
        CHECK(now_ms() < end && n != 0);
        received += n > 0 ? (uint64_t)n : 0;
        if (n < 0)
            (void)events_turn(s.events);
    }
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
    /* The usual loopback: one segment for each piece, and some that a full buffer has cut. */
    CHECK(info.tcpi_rcv_mss < 60000 || info.tcpi_data_segs_in < received / 45000);
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
