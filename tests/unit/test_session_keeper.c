/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that stay: keepers that are made while a command waits for one. */
#include <carrel.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "sandbox/session/internal.h"
#include "sandbox/session/session.h"
#include "session_scene.h"

/* A keeper that is being made has a copy of pid 1's end of the socket for a moment: that it is
 * still open does not mean that pid 1 lives. */
TEST(a_first_process_that_is_killed_while_it_makes_a_keeper_is_not_taken_for_a_killed_keeper)
{
    struct carrel_spec spec = spec_of("session-q");
    struct place place;
    struct heard first;
    struct heard more[4];

    for (int i = 0; i < 25; i++) {
        CHECK(open_place(&place, &spec));
        CHECK(ask(&place, &first, "sleep 1000", 0) && becomes(&place, &first.started));
        for (size_t n = 0; n < LENGTH(more); n++)
            CHECK(ask(&place, &more[n], "sleep 1000", 0));
        CHECK(kill(session_pid(place.session), SIGKILL) == 0);
        CHECK(becomes(&place, &place.over) && first.gone && first.result.exit_code == 137);
        if (!strstr(place.why.msg, "first process"))
            printf("    %d: %s\n", i, place.why.msg);
        CHECK(strstr(place.why.msg, "first process"));
        forget(&place, &first);
        for (size_t n = 0; n < LENGTH(more); n++)
            forget(&place, &more[n]);
        session_free(place.session);
    }
    return 0;
}

/* Whether it is there, within our patience. */
static bool appears(const char *path)
{
    uint64_t until = now_ms() + PATIENCE_MS;
    struct stat st;

    while (lstat(path, &st) < 0 && now_ms() < until)
        (void)poll(NULL, 0, 5);
    return lstat(path, &st) == 0;
}

TEST(what_waits_for_its_keeper_ends_at_once_and_is_never_started)
{
    struct carrel_spec spec = spec_of("session-u");
    struct place place;
    struct heard killed;
    struct heard late;
    struct heard after;

    CHECK(open_place(&place, &spec));
    CHECK(kill(session_pid(place.session), SIGSTOP) == 0); /* nothing is made there */
    CHECK(ask(&place, &killed, "touch killed; sleep 1000", 0));
    CHECK(ask(&place, &late, "touch late; sleep 1000", 50));
    exec_signal(killed.exec, SIGTERM);
    exec_kill(killed.exec, CARREL_ENDED_SIGNAL);
    CHECK(becomes(&place, &killed.gone) && !killed.started);
    CHECK(killed.result.reason == CARREL_ENDED_SIGNAL && killed.result.exit_code == 137);
    CHECK(becomes(&place, &late.gone) && !late.started);
    CHECK(late.result.reason == CARREL_ENDED_TIMEOUT && late.result.exit_code == 124);
    CHECK(late.result.duration_ms < 5000 && session_execs(place.session) == 0);
    forget(&place, &killed);
    forget(&place, &late);
    CHECK(kill(session_pid(place.session), SIGCONT) == 0);
    CHECK(run(&place, &after, "sleep 0.2; ls; cat /proc/[0-9]*/comm"));
    CHECK(!strstr(after.out, "killed") && !strstr(after.out, "late"));
    CHECK(!strstr(after.out, "sleep") && !place.over);
    session_free(place.session);
    return 0;
}

TEST(what_was_killed_is_not_started_by_a_keeper_that_was_heard_first)
{
    struct carrel_spec spec = spec_of("session-x");
    struct place place;
    struct heard killed;
    struct heard after;

    CHECK(open_place(&place, &spec));
    CHECK(kill(session_pid(place.session), SIGSTOP) == 0);
    CHECK(ask(&place, &killed, "touch killed; sleep 1000", 0));
    exec_kill(killed.exec, CARREL_ENDED_SIGNAL);
    CHECK(kill(session_pid(place.session), SIGCONT) == 0);
    (void)poll(NULL, 0, 200); /* its keeper has said hello, and nobody has listened */
    CHECK(becomes(&place, &killed.gone) && !killed.started);
    forget(&place, &killed);
    CHECK(run(&place, &after, "sleep 0.2; ls; cat /proc/[0-9]*/comm"));
    CHECK(!strstr(after.out, "killed") && !strstr(after.out, "sleep") && !place.over);
    session_free(place.session);
    return 0;
}

/* As where sockets have little room: of what is longer only the beginning is taken. */
static bool takes_little;

/* Instead of the library's. NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct msghdr less = *message;
    struct iovec parts[2];

    if (takes_little && message->msg_iovlen == 2 && message->msg_iov[1].iov_len > 4096) {
        memcpy(parts, message->msg_iov, sizeof(parts));
        parts[1].iov_len = 4096;
        less.msg_iov = parts;
    }
    return syscall(SYS_sendmsg, fd, &less, flags);
}

TEST(a_long_command_is_whole_when_it_is_sent_ahead)
{
    struct carrel_spec spec = spec_of("session-y");
    static char line[12000];
    struct place place;
    struct heard heard;

    memset(line, ' ', sizeof(line) - 1);
    memcpy(line + sizeof(line) - 9, "echo all", 8);
    CHECK(open_place(&place, &spec));
    takes_little = true;
    bool ran = run(&place, &heard, line);
    takes_little = false;
    CHECK(ran && strcmp(heard.out, "all\n") == 0);
    session_free(place.session);
    return 0;
}

TEST(what_its_keeper_has_begun_before_it_was_heard_of_is_ended_whole)
{
    struct carrel_spec spec = spec_of("session-v");
    struct place place;
    struct heard heard;
    struct heard after;

    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &heard, "echo on; sleep 1000 & touch begun; sleep 1000", 0));
    CHECK(appears("session-v/begun"));
    exec_kill(heard.exec, CARREL_ENDED_TIMEOUT);
    CHECK(becomes(&place, &heard.gone) && heard.started && strstr(heard.out, "on"));
    CHECK(heard.result.reason == CARREL_ENDED_TIMEOUT && heard.result.exit_code == 124);
    forget(&place, &heard);
    CHECK(run(&place, &after, "cat /proc/[0-9]*/comm"));
    CHECK(!strstr(after.out, "sleep") && !place.over);
    session_free(place.session);
    /* Its keeper is gone before a word of it was heard, and what it has left is not. */
    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &heard, "echo on; kill -9 $PPID; touch killer; sleep 1000", 0));
    CHECK(appears("session-v/killer"));
    CHECK(becomes(&place, &heard.gone) && heard.started && strstr(heard.out, "on"));
    CHECK(heard.result.signal == SIGKILL && becomes(&place, &place.over));
    forget(&place, &heard);
    session_free(place.session);
    return 0;
}

TEST(what_a_keeper_said_is_heard_when_it_is_gone_before_its_hello_was)
{
    char *const argv[] = {"sh", "-c", "echo on; kill -9 $PPID; touch typed; sleep 1000", NULL};
    struct exec_request request = {.argv = argv, .tty = true, .rows = 24, .columns = 80};
    struct carrel_spec spec = spec_of("session-z");
    struct err err = {0};
    struct place place;
    struct heard heard;

    CHECK(open_place(&place, &spec));
    CHECK(ask_for(&place, &heard, request, &err) == 0);
    CHECK(appears("session-z/typed"));
    CHECK(becomes(&place, &heard.gone) && heard.started && strstr(heard.out, "on"));
    forget(&place, &heard);
    session_free(place.session);
    return 0;
}

TEST(a_command_fails_whose_keeper_cannot_be_made_and_is_not_started_later)
{
    struct carrel_spec spec = spec_of("session-w");
    struct place place;
    struct heard heard;
    struct heard after;

    CHECK(open_place(&place, &spec));
    CHECK(kill(session_pid(place.session), SIGSTOP) == 0);
    CHECK(ask(&place, &heard, "touch made; sleep 1000", 0));
    CHECK(heard.exec->keeper && shutdown(heard.exec->keeper->socket, SHUT_RDWR) == 0);
    CHECK(becomes(&place, &heard.gone) && !heard.started && heard.result.exit_code == 125);
    CHECK(strstr(heard.result.note, "no process is left") && !place.over);
    forget(&place, &heard);
    CHECK(kill(session_pid(place.session), SIGCONT) == 0);
    CHECK(run(&place, &after, "sleep 0.2; ls; cat /proc/[0-9]*/comm"));
    CHECK(!strstr(after.out, "made") && !strstr(after.out, "sleep"));
    session_free(place.session);
    return 0;
}
