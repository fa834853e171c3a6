/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that stay: their commands. */
#include <carrel.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sandbox/overlay.h"
#include "sandbox/session/internal.h"
#include "sandbox/session/session.h"
#include "session_scene.h"

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

/* Else it would be taken for one that cannot be started; also of one whose keeper never rests. */
TEST(of_a_command_that_runs_on_the_keeper_says_so)
{
    struct carrel_spec spec = spec_of("session-told");
    struct place place;
    struct heard heard;

    CHECK(open_place(&place, &spec));
    CHECK(run(&place, &heard, "true"));
    for (int signals = 0; signals < 2; signals++) {
        CHECK(ask(&place, &heard, "sleep 60", 0) && becomes(&place, &heard.started));
        uint64_t until = now_ms() + (signals ? 5000 : PATIENCE_MS);
        while (heard.exec->state == EXEC_ASKED && now_ms() < until) {
            if (signals)
                exec_signal(heard.exec, SIGURG); /* which it does not mind */
            (void)poll(NULL, 0, 1);
            session_serve(place.session);
        }
        CHECK(heard.exec->state == EXEC_RUNNING && heard.exec->due_ms == 0);
        exec_kill(heard.exec, CARREL_ENDED_SIGNAL);
        CHECK(becomes(&place, &heard.gone));
        forget(&place, &heard);
    }
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
    struct carrel_mount mount = {"session-s.base", "/.venv", true, "session-s.layer", 0};
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
