/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that stay: how commands end, and what ends with them. */
#include <carrel.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sandbox/session/internal.h"
#include "sandbox/session/session.h"
#include "session_scene.h"

TEST(what_a_command_leaves_behind_lives_on_until_it_is_killed_and_nothing_else_is)
{
    struct carrel_spec spec = spec_of("session-c");
    struct place place;
    struct heard tree;
    struct heard other;
    struct heard look;

    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &other, "echo up; exec sleep 1000", 0));
    CHECK(says(&place, &other, "up"));
    CHECK(ask(&place, &tree,
              "(setsid sh -c 'sleep 1111 & exec sleep 1112' &) ; sleep 1113 & echo left", 0));
    CHECK(becomes(&place, &tree.ended));
    CHECK(tree.result.exit_code == 0);
    for (int i = 0; i < 10; i++)
        turn(&place);
    CHECK(!tree.gone && session_execs(place.session) == 2);
    CHECK(run(&place, &look,
              "for i in $(seq 200); do n=$(cat /proc/[0-9]*/cmdline 2>&- | tr '\\0' ' ' | "
              "grep -o 'slee[p] 111.' | wc -l); [ $n = 3 ] && break; sleep 0.1; done; echo $n"));
    CHECK(strcmp(look.out, "3\n") == 0);
    exec_kill(tree.exec, CARREL_ENDED_SIGNAL);
    CHECK(becomes(&place, &tree.gone));
    CHECK(
        run(&place, &look,
            "cat /proc/[0-9]*/cmdline 2>&- | tr '\\0' ' ' | grep -o 'slee[p] 1[01][01].' | sort"));
    CHECK(strcmp(look.out, "sleep 1000\n") == 0 || (printf("%s", look.out), 0));
    CHECK(!other.ended);
    exec_signal(other.exec, SIGINT);
    CHECK(becomes(&place, &other.gone));
    CHECK(other.result.signal == SIGINT);
    forget(&place, &tree);
    forget(&place, &other);
    session_free(place.session);
    return 0;
}

TEST(a_deadline_holds_against_those_who_do_not_want_to_end)
{
    struct carrel_spec spec = spec_of("session-d");
    struct place place;
    struct heard heard;
    struct heard after;

    CHECK(open_place(&place, &spec));
    /* The first is kept without a group, the second, later, with one where the host has any. */
    for (int i = 0; i < 2; i++) {
        CHECK(ask(&place, &heard,
                  "trap '' TERM INT HUP; (trap '' TERM; setsid sleep 1000) & "
                  "while :; do sleep 1000; done",
                  300));
        CHECK(becomes(&place, &heard.gone));
        CHECK(heard.result.reason == CARREL_ENDED_TIMEOUT && heard.result.exit_code == 124);
        CHECK(heard.result.duration_ms >= 300 && heard.result.duration_ms < 5000);
        forget(&place, &heard);
        CHECK(run(&place, &after,
                  "cat /proc/[0-9]*/cmdline 2>&- | tr '\\0' ' ' | grep -c 'slee[p] 1000'"));
        CHECK(strcmp(after.out, "0\n") == 0);
        for (int n = 0; n < 10; n++)
            turn(&place);
    }
    session_free(place.session);
    return 0;
}

TEST(deadlines_of_the_same_moment_end_their_commands_and_nothing_else)
{
    struct carrel_spec spec = spec_of("session-dd");
    struct place place;
    struct heard heard[8];
    struct heard other;

    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &other, "echo up; exec sleep 1000", 0));
    CHECK(says(&place, &other, "up"));
    for (size_t i = 0; i < LENGTH(heard); i++)
        CHECK(ask(&place, &heard[i], "exec sleep 1000", 500));
    for (uint64_t until = now_ms() + 600; now_ms() < until;)
        (void)poll(NULL, 0, 50); /* so that one look finds all of them late */
    for (size_t i = 0; i < LENGTH(heard); i++) {
        CHECK(becomes(&place, &heard[i].gone));
        CHECK(heard[i].result.reason == CARREL_ENDED_TIMEOUT);
        forget(&place, &heard[i]);
    }
    CHECK(!other.ended);
    exec_kill(other.exec, CARREL_ENDED_SIGNAL);
    CHECK(becomes(&place, &other.gone));
    forget(&place, &other);
    session_free(place.session);
    return 0;
}

TEST(a_fork_bomb_ends_with_its_command)
{
    struct carrel_spec spec = spec_of("session-e");
    struct place place;
    struct heard bomb;
    struct heard after;

    spec.limits.pids = 60;
    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &after, "true"));
    for (int n = 0; n < 10; n++)
        turn(&place);
    CHECK(ask(&place, &bomb, "exec perl -e '$SIG{TERM} = \"IGNORE\"; fork while 1'", 500));
    CHECK(becomes(&place, &bomb.gone));
    CHECK(bomb.result.reason == CARREL_ENDED_TIMEOUT);
    forget(&place, &bomb);
    /* The sandbox may have had to end with it, or be about to: without a control group, or for its
     * limit on processes, when the machine is slow. */
    if (!place.over && run(&place, &after, "echo fine"))
        CHECK(strcmp(after.out, "fine\n") == 0 || (printf("    %s\n", after.result.note), 0));
    else
        CHECK(becomes(&place, &place.over) && place.why.code == ERR_LIMIT);
    session_free(place.session);
    return 0;
}

/* Stands for a keeper whose tree, two of them, does not end. */
static pid_t make_tree(pid_t ret_children[2])
{
    int pids[2];

    if (pipe(pids) < 0)
        return -1;
    pid_t first = fork();
    if (first == 0) {
        (void)signal(SIGCHLD, SIG_IGN); /* nobody is left of those who have ended */
        for (int i = 0; i < 2; i++) {
            pid_t pid = fork();
            if (pid > 0 && write(pids[1], &pid, sizeof(pid)) != sizeof(pid))
                _exit(1);
            if (pid == 0)
                break;
        }
        for (;;)
            pause();
    }
    for (int i = 0; i < 2; i++)
        (void)!read(pids[0], &ret_children[i], sizeof(pid_t));
    close(pids[0]);
    close(pids[1]);
    return first;
}

static void end_one(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    while (kill(pid, 0) == 0)
        (void)poll(NULL, 0, 1);
}

/* A slow machine is given time for as long as there are fewer and fewer, and a minute at most. */
TEST(a_tree_that_is_killed_has_its_time_while_it_shrinks)
{
    struct run *none = calloc(1, sizeof(*none));
    struct session session = {.run = none, .state = SESSION_LIVE, .epoll = -1};
    struct keeper k = {.session = &session, .state = KEEPER_BUSY, .socket = -1, .pidfd = -1};
    struct exec exec = {.session = &session, .keeper = &k, .state = EXEC_RUNNING};
    pid_t children[2];

    session.live.pidfd = -1;
    session.live.socket = -1;
    k.pid = make_tree(children);
    CHECK(k.pid > 0 && children[1] > 0);
    exec_kill(&exec, CARREL_ENDED_TIMEOUT);
    uint64_t then = exec.kill_ms;
    CHECK(exec_due_ms(&exec) == then + EMPTY_WITHIN_MS);
    exec_attend(&exec, then + EMPTY_WITHIN_MS - 1);
    CHECK(session.state == SESSION_LIVE);
    end_one(children[0]);
    exec_attend(&exec, then + EMPTY_WITHIN_MS);
    CHECK(session.state == SESSION_LIVE && exec_due_ms(&exec) == then + 2 * EMPTY_WITHIN_MS);
    struct exec later = exec;
    exec_attend(&exec, then + 2 * EMPTY_WITHIN_MS); /* no fewer */
    CHECK(session.state == SESSION_ENDING && session.reason == CARREL_ENDED_TIMEOUT);
    CHECK(strstr(session.why.msg, "could not be ended by itself"));
    session.state = SESSION_LIVE;
    end_one(children[1]);
    exec_attend(&later, then + EMPTY_AT_MOST_MS); /* fewer, but too late */
    CHECK(session.state == SESSION_ENDING);
    CHECK(kill(k.pid, SIGKILL) == 0 && waitpid(k.pid, NULL, 0) == k.pid);
    free(none);
    return 0;
}

TEST(a_command_that_kills_its_keeper_is_over)
{
    struct carrel_spec spec = spec_of("session-f");
    struct place place;
    struct heard heard;
    struct heard after;

    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &after, "true"));
    for (int n = 0; n < 10; n++)
        turn(&place);
    CHECK(ask(&place, &heard, "kill -TERM $PPID; kill -STOP 1; echo on; kill -9 $PPID; sleep 1000",
              0));
    CHECK(becomes(&place, &heard.gone));
    CHECK(heard.started && heard.result.signal == SIGKILL);
    CHECK(strstr(heard.out, "on"));
    forget(&place, &heard);
    if (geteuid() == 0)
        CHECK(!place.over);
    else
        CHECK(place.over || !becomes(&place, &place.over) || place.why.code);
    session_free(place.session);
    return 0;
}

TEST(a_keeper_that_dies_with_its_group_gets_no_other_command)
{
    struct carrel_spec spec = spec_of("session-kk");
    struct place place;
    struct heard heard;
    struct heard after;

    CHECK(open_place(&place, &spec));
    for (int i = 0; i < 5; i++) {
        CHECK(run(&place, &after, "true"));
        for (int n = 0; n < 10; n++)
            turn(&place); /* the next has a group, where the host has one to give */
        CHECK(ask(&place, &heard, "exit 3", 0));
        (void)poll(NULL, 0, 60); /* it has ended, and nobody has heard of it */
        exec_kill(heard.exec, CARREL_ENDED_SIGNAL);
        session_serve(place.session);
        CHECK(run(&place, &after, "exit 7"));
        CHECK(after.result.exit_code == 7);
        CHECK(becomes(&place, &heard.gone));
        forget(&place, &heard);
    }
    session_free(place.session);
    return 0;
}

TEST(nobody_is_woken_for_what_ends_and_cannot_yet)
{
    struct carrel_spec spec = spec_of("session-ll");
    struct place place;
    struct heard heard;

    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &heard, "echo up; exec sleep 1000", 0));
    CHECK(says(&place, &heard, "up"));
    heard.exec->killed = true; /* as after a kill that the kernel has not carried out */
    heard.exec->kill_ms = heard.exec->grace_ms = now_ms() - EMPTY_WITHIN_MS - 1;
    place.session->state = SESSION_ENDING;
    CHECK(session_due_ms(place.session) != 0);
    forget(&place, &heard);
    session_free(place.session);
    return 0;
}

TEST(a_keeper_that_is_stopped_holds_no_deadline_up)
{
    struct carrel_spec spec = spec_of("session-n");
    struct place place;
    struct heard heard;
    struct heard after;

    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &after,
              "for f in maps environ mem; do head -c 1 /proc/$PPID/$f >/dev/null && echo $f; done "
              "2>/dev/null; ls /proc/$PPID/fd 2>/dev/null | wc -l"));
    CHECK(strcmp(after.out, "0\n") == 0); /* nothing of it can be looked at */
    for (int n = 0; n < 10; n++)
        turn(&place);
    CHECK(ask(&place, &heard, "kill -STOP $PPID; while :; do :; done", 1000));
    CHECK(becomes(&place, &heard.gone));
    CHECK(heard.result.reason == CARREL_ENDED_TIMEOUT && heard.result.exit_code == 124);
    CHECK(heard.result.duration_ms < 20000);
    CHECK(heard.result.usage.cpu_user_ms + heard.result.usage.cpu_system_ms > 0);
    forget(&place, &heard);
    session_free(place.session);
    return 0;
}

TEST(a_sandbox_that_runs_out_of_memory_is_over)
{
    struct carrel_spec spec = spec_of("session-p");
    struct place place;
    struct heard eater;
    struct heard other;
    struct err err = {0};

    spec.limits.memory_bytes = 60 << 20;
    if (session_start(&place.session, &spec, &calls, &place, &err) < 0) {
        CHECK(err.code == ERR_KERNEL && strstr(err.msg, "--memory"));
        return 0;
    }
    session_free(place.session);
    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &other, "sleep 1000", 0) && becomes(&place, &other.started));
    CHECK(ask(&place, &eater, "head -c 300000000 /dev/zero | tail -c 300000000; sleep 1000", 0));
    CHECK(becomes(&place, &place.over));
    CHECK(place.why.code == ERR_LIMIT && strstr(place.why.msg, "--memory"));
    CHECK(eater.gone && other.gone && other.result.reason == CARREL_ENDED_OOM);
    CHECK(eater.result.reason == CARREL_ENDED_OOM && eater.result.exit_code == 120);
    forget(&place, &other);
    forget(&place, &eater);
    session_free(place.session);
    return 0;
}

TEST(when_the_sandbox_ends_all_is_told_and_nothing_is_left)
{
    struct carrel_spec spec = spec_of("session-k");
    struct place place;
    struct heard running;
    struct heard left;
    struct err err = {0};
    unsigned before = open_files();

    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &running, "sleep 1000", 0) && ask(&place, &left, "sleep 1000 & exit 1", 0));
    CHECK(becomes(&place, &running.started) && becomes(&place, &left.ended));
    CHECK(session_cpu_ms(place.session) >= 0 && session_pid(place.session) > 0);
    session_end(place.session, "enough");
    struct exec_request late = {.argv = (char *const[]){"true", NULL}};
    struct heard unheard;
    CHECK(ask_for(&place, &unheard, late, &err) < 0);
    CHECK(becomes(&place, &place.over));
    CHECK(running.ended && running.gone && left.gone);
    CHECK(running.result.reason == CARREL_ENDED_SIGNAL && strstr(running.result.note, "enough"));
    CHECK(left.result.exit_code == 1 && strstr(place.why.msg, "enough"));
    CHECK(session_due_ms(place.session) == -1);
    forget(&place, &running);
    forget(&place, &left);
    session_free(place.session);
    /* The same when somebody else ends it. */
    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &running, "sleep 1000", 0) && becomes(&place, &running.started));
    CHECK(kill(session_pid(place.session), SIGKILL) == 0);
    CHECK(becomes(&place, &place.over) && running.gone && running.result.exit_code == 137);
    CHECK(strstr(place.why.msg, "first process"));
    forget(&place, &running);
    session_free(place.session);
    /* ... and when nobody waits for its end. */
    CHECK(open_place(&place, &spec));
    CHECK(ask(&place, &running, "sleep 1000", 0));
    session_free(place.session);
    CHECK(open_files() == before);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return 0;
}
