/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that stay, with real ones: carrel-init lies beside the tests. */
#include <carrel.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sandbox/overlay.h"
#include "sandbox/session.h"
#include "sandbox/session_parts.h"
#include "unit.h"

enum {
    OUTPUT = 4096,
    PATIENCE_MS = 30000, /* a machine may be slow, but not for ever */
    MANY = 10
};

/* One command as its owner sees it. */
struct heard {
    struct exec *exec;
    int fds[3];
    bool started;
    bool ended;
    bool gone;
    struct carrel_result result;
    char out[OUTPUT];
    size_t size;
};

struct place {
    struct session *session;
    bool over;
    struct err why;
    struct heard *list[MANY + 2];
    size_t count;
};

static const char *init_path(void)
{
    static char path[4200];
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    *strrchr(self, '/') = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path, sizeof(path), "%s/carrel-init", self);
    return path;
}

static void on_started(void *owner, struct exec *exec, int fds[3])
{
    struct heard *heard = owner;

    heard->started = heard->exec == exec;
    memcpy(heard->fds, fds, sizeof(heard->fds));
}

static void on_ended(void *owner, struct exec *exec, const struct carrel_result *result)
{
    struct heard *heard = owner;

    heard->ended = heard->exec == exec && !heard->ended;
    heard->result = *result;
    heard->result.denials = NULL;
}

static void on_gone(void *owner, struct exec *exec)
{
    struct heard *heard = owner;

    heard->gone = heard->ended && heard->exec == exec;
}

static void on_over(void *owner, const struct err *why)
{
    struct place *place = owner;

    place->over = true;
    place->why = *why;
}

static const struct session_calls calls = {
    .started = on_started, .ended = on_ended, .gone = on_gone, .over = on_over};

static struct carrel_spec spec_of(const char *workspace)
{
    return (struct carrel_spec){.workspace = workspace, .create = true, .init_path = init_path()};
}

static bool open_place(struct place *place, const struct carrel_spec *spec)
{
    struct err err = {0};
    char text[512];

    *place = (struct place){0};
    if (session_start(&place->session, spec, &calls, place, &err) == 0)
        return true;
    printf("%s\n", err_text(&err, text, sizeof(text)));
    return false;
}

static void read_output(struct heard *heard)
{
    for (int i = 0; i < 3; i++) {
        ssize_t n = 1;
        while (heard->fds[i] >= 0 && n > 0 && heard->size < OUTPUT - 1) {
            n = read(heard->fds[i], heard->out + heard->size, OUTPUT - 1 - heard->size);
            heard->size += n > 0 ? (size_t)n : 0;
        }
        if (n == 0 && i > 0) {
            close(heard->fds[i]);
            heard->fds[i] = -1;
        }
    }
    heard->out[heard->size] = '\0';
}

/* One turn of the owner's loop. */
static void turn(struct place *place)
{
    int due = session_due_ms(place->session);
    struct pollfd ready = {.fd = session_fd(place->session), .events = POLLIN};

    (void)poll(&ready, 1, due >= 0 && due < 20 ? due : 20);
    session_serve(place->session);
    for (size_t i = 0; i < place->count; i++)
        read_output(place->list[i]);
}

static bool becomes(struct place *place, const bool *what)
{
    uint64_t until = now_ms() + PATIENCE_MS;

    while (!*what && now_ms() < until)
        turn(place);
    return *what;
}

static bool says(struct place *place, const struct heard *heard, const char *text)
{
    uint64_t until = now_ms() + PATIENCE_MS;

    while (!strstr(heard->out, text) && now_ms() < until)
        turn(place);
    return strstr(heard->out, text) != NULL;
}

static int ask_for(struct place *place, struct heard *heard, struct exec_request request,
                   struct err *err)
{
    *heard = (struct heard){.fds = {-1, -1, -1}};
    request.owner = heard;
    if (exec_start(place->session, &request, &heard->exec, err) < 0)
        return -1;
    place->list[place->count++] = heard;
    return 0;
}

static bool ask(struct place *place, struct heard *heard, const char *script, uint64_t timeout_ms)
{
    char *const argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    struct exec_request request = {.argv = argv, .timeout_ms = timeout_ms};
    struct err err = {0};

    if (ask_for(place, heard, request, &err) == 0)
        return true;
    printf("%s\n", err.msg);
    return false;
}

static void forget(struct place *place, struct heard *heard)
{
    for (int i = 0; i < 3; i++) {
        if (heard->fds[i] >= 0)
            close(heard->fds[i]);
        heard->fds[i] = -1;
    }
    for (size_t i = 0; i < place->count; i++) {
        if (place->list[i] == heard)
            place->list[i] = place->list[--place->count];
    }
}

/* Runs it to the end, with all it has started. */
static bool run(struct place *place, struct heard *heard, const char *script)
{
    bool ok = ask(place, heard, script, 0) && becomes(place, &heard->gone);

    if (!ok)
        printf("    %s\n", place->why.msg);
    read_output(heard);
    forget(place, heard);
    return ok;
}

static unsigned open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

TEST(commands_one_after_another_share_a_sandbox)
{
    struct carrel_spec spec = spec_of("session-a");
    struct place place;
    struct heard a;
    struct heard c;
    unsigned before = open_files();

    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &a, "echo kept >/tmp/x; exit 3"));
    CHECK(a.started && a.ended && a.gone);
    CHECK(a.result.exit_code == 3 && a.result.reason == CARREL_ENDED_EXIT);
    CHECK(a.result.level == CARREL_LEVEL_NS && a.result.duration_ms > 0);
    CHECK(a.result.usage.peak_rss_bytes > 0);
    CHECK(run(&place, &c, "cat /tmp/x; ls /proc/self/fd; kill -TERM $$"));
    CHECK(strcmp(c.out, "kept\n0\n1\n2\n3\n") == 0); /* 3 is the directory itself */
    CHECK(c.result.signal == SIGTERM && c.result.exit_code == 128 + SIGTERM);
    CHECK(session_execs(place.session) == 0);
    session_free(place.session);
    CHECK(open_files() == before);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return 0;
}

TEST(a_keeper_serves_one_command_after_another)
{
    struct carrel_spec spec = spec_of("session-a");
    struct place place;
    struct heard heard;
    long keepers[32];
    size_t count = 0;

    CHECK(open_place(&place, &spec));
    for (size_t i = 0; i < LENGTH(keepers); i++) {
        size_t known = 0;
        CHECK(run(&place, &heard, "echo $PPID"));
        long keeper = strtol(heard.out, NULL, 10);
        CHECK(keeper > 1);
        while (known < count && keepers[known] != keeper)
            known++;
        keepers[known] = keeper;
        count += known == count;
    }
    CHECK(count <= 6); /* while some of them are put into their groups */
    session_free(place.session);
    return 0;
}

TEST(many_at_once_each_get_their_own_end)
{
    struct carrel_spec spec = spec_of("session-b");
    static struct heard heard[MANY];
    static char scripts[MANY][64];
    struct place place;

    CHECK(open_place(&place, &spec));
    for (int i = 0; i < MANY; i++) {
        snprintf(scripts[i], sizeof(scripts[i]), "sleep 0.2; echo %d; exit %d", i, i);
        CHECK(ask(&place, &heard[i], scripts[i], 0));
    }
    CHECK(session_execs(place.session) == MANY);
    for (int i = 0; i < MANY; i++) {
        char expected[16];
        snprintf(expected, sizeof(expected), "%d\n", i);
        CHECK(becomes(&place, &heard[i].gone));
        read_output(&heard[i]);
        CHECK(heard[i].result.exit_code == i && strcmp(heard[i].out, expected) == 0);
    }
    for (int i = 0; i < MANY; i++)
        forget(&place, &heard[i]);
    session_free(place.session);
    return 0;
}

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
              "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'slee[p] 111.' | wc -l"));
    CHECK(strcmp(look.out, "3\n") == 0);
    exec_kill(tree.exec, CARREL_ENDED_SIGNAL);
    CHECK(becomes(&place, &tree.gone));
    CHECK(run(&place, &look,
              "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'slee[p] 1[01][01].' | sort"));
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
                  "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 1000'"));
        CHECK(strcmp(after.out, "0\n") == 0);
        for (int n = 0; n < 10; n++)
            turn(&place);
    }
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

TEST(nobody_is_woken_for_a_sandbox_without_a_command)
{
    struct carrel_spec spec = spec_of("session-o");
    struct place place;
    struct heard heard;

    spec.limits.pids = 60;
    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &heard, "true"));
    for (int n = 0; n < 40; n++)
        turn(&place);
    CHECK(session_due_ms(place.session) == -1);
    CHECK(ask(&place, &heard, "sleep 1", 0) && becomes(&place, &heard.started));
    CHECK(session_due_ms(place.session) >= 0);
    CHECK(becomes(&place, &heard.gone));
    forget(&place, &heard);
    session_free(place.session);
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

TEST(what_cannot_be_started_is_said_and_harms_nobody)
{
    struct carrel_spec spec = spec_of("session-g");
    char *const missing[] = {"no-such-command", NULL};
    char *const directory[] = {"/etc", NULL};
    char *const fine[] = {"pwd", NULL};
    struct exec_request request = {.argv = missing};
    struct place place;
    struct heard heard;
    struct err err = {0};

    CHECK(open_place(&place, &spec));
    CHECK(ask_for(&place, &heard, request, &err) == 0 && becomes(&place, &heard.gone));
    CHECK(heard.result.exit_code == 127 && strstr(heard.result.note, "no-such-command"));
    request.argv = directory;
    CHECK(ask_for(&place, &heard, request, &err) == 0 && becomes(&place, &heard.gone));
    CHECK(heard.result.exit_code == 126);
    request.argv = fine;
    request.cwd = "/nowhere";
    CHECK(ask_for(&place, &heard, request, &err) == 0 && becomes(&place, &heard.gone));
    CHECK(heard.result.exit_code == 125 && strstr(heard.result.note, "/nowhere"));
    static const char *const wrong[] = {"tmp", "/proc", "/proc/self/fd/3", "//./proc/1/root"};
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        request.cwd = wrong[i];
        CHECK_FOR(wrong[i], ask_for(&place, &heard, request, &err) < 0 && err.code == ERR_INVALID);
    }
    request.limits.disk_bytes = 1;
    request.cwd = NULL;
    CHECK(ask_for(&place, &heard, request, &err) < 0 && err.code == ERR_INVALID);
    place.count = 0;
    CHECK(run(&place, &heard, "pwd"));
    CHECK(strcmp(heard.out, "/\n") == 0);
    session_free(place.session);
    return 0;
}

TEST(terminals_input_and_variables)
{
    struct carrel_spec spec = spec_of("session-h");
    static const char *const variables[] = {"A=spec", "B=spec", NULL};
    static const char *const more[] = {"B=own", "PATH=/bin:/usr/bin", NULL};
    char *const tty[] = {"sh", "-c", "tty; stty size; echo $TERM; read x; echo got $x", NULL};
    char *const cat[] = {"sh", "-c", "cat; echo $A $B; pwd; : >/dev/stdout", NULL};
    struct place place;
    struct heard heard;
    struct err err = {0};

    spec.env = variables;
    CHECK(open_place(&place, &spec));
    struct exec_request request = {.argv = tty, .tty = true, .rows = 11, .columns = 22};
    CHECK(ask_for(&place, &heard, request, &err) == 0 && becomes(&place, &heard.started));
    CHECK(heard.fds[0] >= 0 && heard.fds[1] < 0 && heard.fds[2] < 0);
    CHECK(write(heard.fds[0], "typed\n", 6) == 6);
    CHECK(becomes(&place, &heard.gone));
    CHECK(strstr(heard.out, "/dev/pts/0") && strstr(heard.out, "11 22") &&
          strstr(heard.out, "got typed"));
    forget(&place, &heard);
    request = (struct exec_request){.argv = cat, .input = true, .env = more, .cwd = "/tmp"};
    CHECK(ask_for(&place, &heard, request, &err) == 0 && becomes(&place, &heard.started));
    CHECK(write(heard.fds[0], "in\n", 3) == 3 && close(heard.fds[0]) == 0);
    heard.fds[0] = -1;
    CHECK(becomes(&place, &heard.gone));
    read_output(&heard);
    CHECK(strcmp(heard.out, "in\nspec own\n/tmp\n") == 0 || (printf("%s", heard.out), 0));
    forget(&place, &heard);
    session_free(place.session);
    return 0;
}

TEST(a_command_can_be_larger_than_a_socket_takes_at_once)
{
    struct carrel_spec spec = spec_of("session-i");
    char *argv[36] = {"sh", "-c", "echo $#"};
    struct exec_request request = {.argv = argv};
    struct place place;
    struct heard heard;
    struct err err = {0};
    char *large = malloc(100001);

    memset(large, 'x', 100000);
    large[100000] = '\0';
    for (int i = 3; i < 15; i++)
        argv[i] = large;
    CHECK(open_place(&place, &spec));
    CHECK(ask_for(&place, &heard, request, &err) == 0 && becomes(&place, &heard.gone));
    read_output(&heard);
    CHECK(strcmp(heard.out, "11\n") == 0);
    forget(&place, &heard);
    free(large);
    session_free(place.session);
    return 0;
}

TEST(denials_are_told_with_the_command_that_met_them)
{
    struct carrel_spec spec = spec_of("session-m");
    struct place place;
    struct heard heard;

    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &heard, "unshare -n true"));
    CHECK(heard.result.exit_code != 0);
    if (heard.result.denial_count > 0) { /* where the kernel can tell */
        CHECK(run(&place, &heard, "true") && heard.result.denial_count == 0);
        CHECK(run(&place, &heard, "unshare -n true; true") && heard.result.denial_count == 1);
    }
    session_free(place.session);
    return 0;
}

/* In a sandbox with limits of its own as well as in one without. */
static int check_own_limits(const struct carrel_spec *spec)
{
    char *const eat[] = {"sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c",
                         NULL};
    struct exec_request request = {.argv = eat, .limits = {.memory_bytes = 30 << 20, .pids = 20}};
    struct place place;
    struct heard heard;
    struct heard after;
    struct err err = {0};

    CHECK(open_place(&place, spec));
    if (ask_for(&place, &heard, request, &err) < 0) {
        CHECK(err.code == ERR_KERNEL);
    } else {
        CHECK(becomes(&place, &heard.gone));
        if (heard.result.exit_code != 120)
            printf("    %d %s\n", heard.result.exit_code, heard.result.note);
        CHECK(heard.result.reason == CARREL_ENDED_OOM && heard.result.exit_code == 120);
        forget(&place, &heard);
        CHECK(run(&place, &after,
                  "head -c 60000000 /dev/zero | tail -c 60000000 | wc -c; echo fine"));
        CHECK(strcmp(after.out, "60000000\nfine\n") == 0);
    }
    session_free(place.session);
    return 0;
}

TEST(limits_of_a_single_command_are_kept_or_refused)
{
    struct carrel_spec spec = spec_of("session-j");

    CHECK(check_own_limits(&spec) == 0);
    spec.limits.pids = 100;
    CHECK(check_own_limits(&spec) == 0);
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

TEST(a_sandbox_that_cannot_be_says_why)
{
    struct carrel_spec spec = spec_of("session-l");
    struct place place = {0};
    struct err err = {0};

    spec.level = CARREL_LEVEL_DIR;
    CHECK(session_start(&place.session, &spec, &calls, &place, &err) < 0);
    CHECK(err.code == ERR_INVALID);
    spec.level = CARREL_LEVEL_NS;
    spec.init_path = "/nowhere/carrel-init";
    CHECK(session_start(&place.session, &spec, &calls, &place, &err) < 0);
    CHECK(strstr(err.msg, "/nowhere"));
    return 0;
}

static bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* As the file server does, whom the user inside is. */
static bool put_from_outside(const struct session *session, int hidden)
{
    const struct identity *id = &session->run->identity;

    if (id->range) {
        (void)setfsgid(identity_outside_gid(id));
        (void)setfsuid(identity_outside_uid(id));
    }
    int fd = openat(hidden, "part", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && close(fd) == 0 && renameat(hidden, "part", hidden, "../whole") == 0;
    (void)setfsuid(geteuid());
    (void)setfsgid(getegid());
    return ok;
}

/* The kernel may still have the layer mounted when the next one begins: that must not matter. */
TEST(a_sandbox_whose_mount_has_a_layer_can_be_ended_and_started_again_at_once)
{
    struct carrel_spec spec = spec_of("session-s");
    struct carrel_mount mount = {"session-s.base", "/.venv", true, "session-s.layer"};
    struct place place;
    struct place second;
    struct heard heard;
    struct err err = {0};
    char line[64];
    unsigned before = open_files();

    CHECK(mkdir("session-s", 0755) == 0 && mkdir("session-s.base", 0755) == 0 &&
          mkdir("session-s.layer", 0700) == 0);
    spec.mounts = &mount;
    spec.mount_count = 1;
    for (int turn = 0; turn < 20; turn++) {
        CHECK(open_place(&place, &spec));
        snprintf(line, sizeof(line), "ls /.venv | wc -l; echo %d >/.venv/%d", turn, turn);
        CHECK(run(&place, &heard, line) && strtol(heard.out, NULL, 10) == turn);
        CHECK(session_start(&second.session, &spec, &calls, &second, &err) < 0);
        CHECK(err.code == ERR_CONFLICT && strstr(err.msg, "in use"));
        CHECK(ask(&place, &heard, "exec sleep 1000 >/.venv/held", 0) &&
              becomes(&place, &heard.started));
        forget(&place, &heard);
        session_free(place.session);
        (void)unlink("session-s.layer/upper/held"); /* killed before or after it was made */
    }
    CHECK(!is_there("session-s.base/1") && is_there("session-s.layer/upper/1"));
    CHECK(!is_there("session-s/.venv/1"));
    CHECK(open_files() == before);
    return 0;
}

TEST(in_a_sandbox_with_a_layer_commands_share_their_changes_and_the_tree_has_none)
{
    struct carrel_spec spec = spec_of("session-r");
    struct place place;
    struct place second;
    struct heard heard;
    struct err err = {0};
    unsigned before = open_files();

    CHECK(mkdir("session-r", 0755) == 0 && mkdir("session-r.plan", 0700) == 0);
    spec.plan = "session-r.plan";
    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &heard, "echo one >/file; mkdir /dir"));
    CHECK(run(&place, &heard, "cat /file; mv /dir /dir2"));
    CHECK(strcmp(heard.out, "one\n") == 0);
    /* Who writes files from outside does it in the layer too. */
    struct session_join join = {.hidden = -1};
    CHECK(session_may_be_joined(place.session, &join) && join.hidden >= 0);
    CHECK(put_from_outside(place.session, join.hidden));
    CHECK(run(&place, &heard, "ls /whole /.cache") &&
          strcmp(heard.out, "/whole\n\n/.cache:\n") == 0);
    CHECK(ask(&place, &heard, "exec sleep 1000 >/dir2/held", 0) && becomes(&place, &heard.started));
    forget(&place, &heard);
    /* Nobody else can have it, and it is known to be in use. */
    CHECK(session_start(&second.session, &spec, &calls, &second, &err) < 0);
    CHECK(err.code == ERR_CONFLICT);
    err = (struct err){0};
    CHECK(overlay_settle(spec.plan, 0, &err) < 0 && err.code == ERR_CONFLICT);
    session_free(place.session);
    err = (struct err){0};
    CHECK_FOR(err.msg, overlay_settle(spec.plan, PATIENCE_MS, &err) == 0);
    CHECK(is_there("session-r.plan/upper/file") && is_there("session-r.plan/upper/dir2"));
    CHECK(!is_there("session-r.plan/upper/usr") && !is_there("session-r.plan/upper/.cache"));
    CHECK(!is_there("session-r/file") && !is_there("session-r/usr"));
    /* Another goes on with it. */
    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &heard, "cat /file; ls -d /dir2"));
    CHECK(strcmp(heard.out, "one\n/dir2\n") == 0);
    session_free(place.session);
    CHECK_FOR(err.msg, overlay_settle(spec.plan, PATIENCE_MS, &err) == 0);
    CHECK(open_files() == before);
    return 0;
}
