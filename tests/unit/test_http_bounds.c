/* SPDX-License-Identifier: Apache-2.0 */
/* The server: bodies, and the bounds of what clients can send, hold and delay. */
#include "http_scene.h"

#include <sys/resource.h>

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
    say(busy, GET("/later"));
    CHECK(reaches(&s.requests, 1));
    scoped_fd int third = connect_client(); /* nobody waits behind who says nothing */
    CHECK(hear(idle, NULL) && heard_has("HTTP/1.1 429") && heard_has("Retry-After: 1\r\n") &&
          heard_has("\"reason\":\"address_connections\"") && heard_has("X-Id: none\r\n"));
    say(third, GET("/later"));
    CHECK(reaches(&s.requests, 2));
    scoped_fd int fourth = connect_client();
    say(fourth, GET("/fourth")); /* who is being served stays */
    CHECK(hear(fourth, NULL) && heard_has("HTTP/1.1 429"));
    scope_close(&idle);
    scope_close(&fourth);
    turn_for(50);
    http_stats(s.server, &stats);
    CHECK(stats.connections == 2 && s.requests == 2 && stats.turned_away == 1);
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
    CHECK(hear(head, NULL) && heard_has("HTTP/1.1 429"));
    scoped_fd int two = connect_client();
    say(two, GET("/later"));
    CHECK(reaches(&s.requests, 3)); /* the other half head */
    CHECK(hear(late, NULL) && heard_has("HTTP/1.1 429"));
    turn_for(1800);
    scoped_fd int three = connect_client();
    say(three, GET("/later"));
    CHECK(reaches(&s.requests, 4)); /* the half body, which has stopped for two seconds */
    CHECK(hear(body, NULL) && heard_has("HTTP/1.1 429"));
    scoped_fd int four = connect_client();
    say(four, GET("/later"));
    CHECK(hear(four, NULL) && heard_has("HTTP/1.1 429")); /* all that is left is being handled */
    CHECK(s.requests == 4 && s.done == 1);
    scope_close(&head);
    scope_close(&late);
    scope_close(&body);
    scope_close(&four);
    turn_for(50);
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
    turn_for(300);
    scoped_fd int next = connect_client();
    say(next, GET("/echo"));
    CHECK(hear(next, "Content-Length: 0\r\n\r\n") && s.done >= 1);
    close_scene();
    return 0;
}

TEST(an_owner_has_a_share_of_its_own)
{
    static const struct http_options few = {
        .max_connections = 6, .owner_connections = 2, .address_connections = 1};
    struct http_stats stats;

    CHECK(open_scene(false, &few) == 0);
    /* With a key a connection is the address's no more. */
    scoped_fd int one = connect_client();
    say(one, GET("/of/alice?later"));
    CHECK(reaches(&s.requests, 1));
    scoped_fd int two = connect_client();
    say(two, GET("/of/alice?x"));
    CHECK(hear(two, "Content-Length: 0\r\n\r\n"));
    scoped_fd int early = connect_client(); /* the idle one may have a request on its way */
    say(early, GET("/of/alice?x"));
    CHECK(hear(early, NULL) && heard_has("HTTP/1.1 429") && heard_has("owner_connections") &&
          heard_has("Connection: close\r\n"));
    scoped_fd int other = connect_client();
    say(other, GET("/of/bob?x"));
    CHECK(hear(other, "Content-Length: 0\r\n\r\n"));
    turn_for(1100);
    scoped_fd int late = connect_client();
    say(late, GET("/of/alice?later"));
    CHECK(reaches(&s.requests, 4));
    CHECK(hear(two, NULL) && heard_n == 0); /* between two requests no words are due */
    say(other, GET("/of/bob?x"));
    CHECK(hear(other, "Content-Length: 0\r\n\r\n"));
    /* One connection, now another owner's. */
    say(other, GET("/of/alice?x"));
    CHECK(hear(other, NULL) && heard_has("HTTP/1.1 429"));
    scope_close(&two);
    scope_close(&early);
    scope_close(&other);
    turn_for(50);
    http_stats(s.server, &stats);
    CHECK(stats.connections == 2 && stats.evicted == 1 && stats.turned_away == 2);
    close_scene();
    return 0;
}

TEST(a_stream_too_many_ends_the_oldest_that_has_lasted)
{
    static const struct http_options few = {
        .max_connections = 8, .owner_streams = 2, .stream_ms = 300};
    struct http_stats stats;

    CHECK(open_scene(false, &few) == 0);
    s.stream_is_dry = true;
    scoped_fd int one = connect_client();
    say(one, GET("/of/alice?news"));
    CHECK(hear(one, "\r\n\r\n"));
    turn_for(50);
    scoped_fd int two = connect_client();
    say(two, GET("/of/alice?news"));
    CHECK(hear(two, "\r\n\r\n"));
    scoped_fd int early = connect_client();
    say(early, GET("/of/alice?news"));
    CHECK(hear(early, "owner_streams") && heard_has("HTTP/1.1 429"));
    turn_for(400);
    scoped_fd int other = connect_client();
    say(other, GET("/of/bob?news"));
    CHECK(hear(other, "\r\n\r\n") && s.evicted == 0);
    scoped_fd int three = connect_client();
    say(three, GET("/of/alice?news"));
    CHECK(hear(three, "\r\n\r\n"));
    CHECK(hear(one, NULL) && strcmp(heard, "0\r\n\r\n") == 0 && s.evicted == 1);
    http_stats(s.server, &stats);
    CHECK(stats.streams == 3 && stats.evicted == 1);
    close_scene();
    return 0;
}

TEST(a_greedy_key_leaves_its_owners_other_keys_a_place)
{
    static const struct http_options few = {
        .max_connections = 20, .owner_connections = 5, .owner_streams = 3};
    static const char *const asked[] = {
        "GET /of/alice?news HTTP/1.1\r\nHost: a\r\nX-Key: agent\r\n\r\n",
        "GET /of/alice?later HTTP/1.1\r\nHost: a\r\nX-Key: agent\r\n\r\n"};
    int many[5];

    CHECK(open_scene(false, &few) == 0);
    s.stream_is_dry = true;
    for (int i = 0; i < 5; i++) {
        many[i] = connect_client();
        say(many[i], asked[i / 3]);
        CHECK(reaches(&s.requests, i + 1));
    }
    scoped_fd int own = connect_client(); /* its own are not ended for it */
    say(own, asked[1]);
    CHECK(hear(own, "owner_connections") && heard_has("HTTP/1.1 429") && s.evicted == 0);
    scoped_fd int person = connect_client();
    say(person, "GET /of/alice?news HTTP/1.1\r\nHost: a\r\nX-Key: person\r\n\r\n");
    CHECK(hear(person, "\r\n\r\n") && heard_has("200 OK") && reaches(&s.evicted, 1));
    scoped_fd int second = connect_client();
    say(second, "GET /of/alice?news HTTP/1.1\r\nHost: a\r\nX-Key: person\r\n\r\n");
    CHECK(hear(second, "\r\n\r\n") && heard_has("200 OK") && reaches(&s.evicted, 2));
    scoped_fd int third = connect_client(); /* up to half */
    say(third, "GET /of/alice?later HTTP/1.1\r\nHost: a\r\nX-Key: person\r\n\r\n");
    CHECK(reaches(&s.evicted, 3));
    scoped_fd int fourth = connect_client();
    say(fourth, "GET /of/alice?later HTTP/1.1\r\nHost: a\r\nX-Key: person\r\n\r\n");
    CHECK(hear(fourth, "owner_connections") && heard_has("HTTP/1.1 429") && s.evicted == 3);
    for (int i = 0; i < 5; i++)
        scope_close(&many[i]);
    close_scene();
    return 0;
}

TEST(who_has_the_most_gives_way_to_who_has_less)
{
    static const struct http_options few = {.max_connections = 4};
    int many[4];

    CHECK(open_scene(false, &few) == 0);
    s.stream_is_dry = true;
    for (int i = 0; i < 4; i++) {
        many[i] = connect_client();
        say(many[i], i == 0 ? GET("/of/admin?news") : GET("/of/admin?later"));
        CHECK(reaches(&s.requests, i + 1));
        turn_for(20);
    }
    scoped_fd int own = connect_client(); /* one more of the same is refused */
    say(own, GET("/of/admin?x"));
    CHECK(hear(own, "max_connections") && heard_has("HTTP/1.1 429"));
    scoped_fd int bob = connect_client();
    say(bob, GET("/of/bob?later"));
    CHECK(reaches(&s.requests, 5) && reaches(&s.evicted, 1));
    CHECK(hear(many[0], NULL) && heard_has("200 OK")); /* first a stream */
    scoped_fd int ann = connect_client();
    say(ann, GET("/of/ann?later"));
    CHECK(reaches(&s.requests, 6) && reaches(&s.evicted, 2));
    CHECK(hear(many[1], "max_connections") && heard_has("HTTP/1.1 429"));
    scoped_fd int more = connect_client(); /* until all have the same, or one more */
    say(more, GET("/of/bob?x"));
    CHECK(hear(more, "max_connections") && heard_has("HTTP/1.1 429") && s.evicted == 2);
    for (int i = 0; i < 4; i++)
        scope_close(&many[i]);
    close_scene();
    return 0;
}

TEST(who_is_refused_in_great_numbers_holds_no_places)
{
    static const struct http_options one = {.max_connections = 1};

    enum {
        CROWD = 600
    };

    static int crowd[CROWD];
    struct http_stats stats;

    CHECK(open_scene(false, &one) == 0);
    scoped_fd int busy = connect_client();
    say(busy, GET("/of/bob?later"));
    CHECK(reaches(&s.requests, 1));
    scoped_fd int held = connect_client();
    say(held, GET("/later"));
    CHECK(reaches(&s.requests, 2));
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = connect_client();
        if (i % 100 == 99)
            turn_for(20);
    }
    turn_for(50);
    http_stats(s.server, &stats);
    CHECK(stats.turned_away == CROWD && stats.connections <= 2 + 256);
    for (int i = 0; i < CROWD; i += 599)
        CHECK(hear(crowd[i], NULL) && heard_has("HTTP/1.1 429"));
    for (int i = 0; i < CROWD; i++)
        scope_close(&crowd[i]);
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
