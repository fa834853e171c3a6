/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in a sandbox that stays. Everything is told from session_serve: what goes wrong in a
 * call of the owner's is told there too. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/session/internal.h"
#include "sandbox/stream.h"

#define COUNTED_AT_KILL  128  /* processes looked at before they are killed: each takes a while */
#define COUNTED_IN_GRACE 1024 /* ... and once in a grace, where there is no group to be asked */

enum {
    FIRST_LOOK_MS = 1,
    LAST_LOOK_MS = 50,
    OOM_LOOK_MS = 100
};

void exec_finish(struct exec *exec)
{
    struct session *session = exec->session;
    struct keeper *k = exec->keeper;

    exec->leaves_nothing = true;
    exec_tell_end(exec, NULL);
    for (int i = 0; i < 3; i++) { /* a keeper may send a terminal even after that */
        scope_close(&exec->fds[i]);
        scope_close(&exec->command_fds[i]);
    }
    (void)source_set(session, &exec->memory, -1, 0);
    if (exec_group(exec) == 0)
        session->gone_ms = now_ms();
    exec->state = EXEC_GONE;
    exec->keeper = NULL;
    for (struct exec **at = &session->execs; *at; at = &(*at)->next) {
        if (*at == exec) {
            *at = exec->next;
            break;
        }
    }
    exec->next = session->gone;
    session->gone = exec;
    if (--session->exec_count == 0)
        session_count_disk(session); /* what it has left there */
    session->calls.gone(exec->owner, exec);
    if (k && exec->killed && keeper_has_group(k))
        keeper_lose(k); /* it is in that group, and dying, also when it was faster to say so */
    if (k)
        keeper_rest(k);
}

uint64_t exec_group(const struct exec *exec)
{
    return exec->keeper && keeper_has_group(exec->keeper) ? group_number(exec->keeper->group) : 0;
}

/* --- starting --- */

static int open_pipe(const struct session *session, bool ours_writes, int *ret_ours,
                     int *ret_command, struct err *err)
{
    const struct identity *id = &session->run->identity;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, ERR_LIMIT, errno, "make a pipe");
    *ret_ours = ends[ours_writes];
    *ret_command = ends[!ours_writes];
    /* As root our pipes are root's: the user inside could not open /dev/stdout. */
    if (id->range)
        ignore(fchown(*ret_command, identity_outside_uid(id), identity_outside_gid(id)));
    if (fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0)
        return err_set(err, ERR_IO, errno, "set up a pipe");
    return 0;
}

static int open_streams(struct exec *exec, bool input, struct err *err)
{
    const struct session *session = exec->session;

    if (exec->tty)
        return 0;
    if (input) {
        if (open_pipe(session, true, &exec->fds[0], &exec->command_fds[0], err) < 0)
            return -1;
    } else {
        exec->command_fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (exec->command_fds[0] < 0)
            return err_set(err, ERR_IO, errno, "open '/dev/null'");
    }
    for (int i = 1; i < 3; i++) {
        if (open_pipe(session, false, &exec->fds[i], &exec->command_fds[i], err) < 0)
            return -1;
    }
    return 0;
}

/* The message, ready to be sent: nothing of the request is needed afterwards. */
static int write_message(struct exec *exec, const struct exec_request *request, struct err *err)
{
    struct session *session = exec->session;
    struct environment ask = {.argv = request->argv,
                              .env = request->env,
                              .cwd = request->cwd ? request->cwd : "/",
                              .tty = request->tty,
                              .root = request->root};
    struct command command = {
        .flags = COMMAND_CHECK_CWD, .rows = request->rows, .columns = request->columns};
    struct arena arena;
    size_t n = 0;

    if (!request->cwd && !session->spec.workspace)
        ask.cwd = NULL; /* the home */
    arena_init(&arena, MESSAGE_MAX_BYTES);
    int r = environment_command(session->run, &ask, &arena, &command, err);
    if (r == 0)
        n = wire_encode_command(&command, session->room, MESSAGE_MAX_BYTES);
    arena_clear(&arena);
    if (r < 0)
        return -1;
    if (n == 0)
        return err_set(err, ERR_LIMIT, 0, "command and environment are larger than %u bytes",
                       MESSAGE_MAX_BYTES);
    exec->message = malloc(n);
    if (!exec->message)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    memcpy(exec->message, session->room, n);
    exec->message_size = n;
    return 0;
}

static bool is_below_proc(const char *path)
{
    size_t n = strspn(path, "/.");

    return n > 0 && strncmp(path + n, "proc", 4) == 0 &&
           (path[n + 4] == '/' || path[n + 4] == '\0');
}

/* A limit that nobody would keep is refused. */
static int check_limits(const struct session *session, const struct carrel_limits *limits,
                        struct err *err)
{
    const struct {
        uint64_t asked;
        enum cgroup_limit which;
    } kinds[] = {{limits->memory_bytes, CGROUP_MEMORY},
                 {limits->pids, CGROUP_PIDS},
                 {limits->cpu_milli, CGROUP_CPU}};

    if (limits->io_bytes || limits->disk_bytes || limits->disk_files || limits->disk_image)
        return err_set(err, ERR_INVALID, 0,
                       "a single command has limits on memory, processes and cpu only; those on "
                       "io and disk are the sandbox's");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct cgroup_offer offer;
        if (!kinds[i].asked)
            continue;
        cgroup_ask_one(kinds[i].which, &offer);
        if (offer.version == 0)
            return err_set(err, ERR_KERNEL, 0, "%s of a single command cannot be kept: %s; %s",
                           cgroup_kinds[kinds[i].which].option, offer.why, offer.fix);
        if (offer.version == 2 && !cgroup_can_nest(&session->run->cgroup, kinds[i].which))
            return err_set(err, ERR_KERNEL, 0,
                           "%s of a single command cannot be kept: this sandbox's control group "
                           "has no such controller to give",
                           cgroup_kinds[kinds[i].which].option);
    }
    return 0;
}

static int check_request(const struct session *session, const struct exec_request *request,
                         struct err *err)
{
    if (session->state >= SESSION_ENDING)
        return err_set(err, ERR_CONFLICT, 0, "the sandbox is ending");
    if (request->cwd && request->cwd[0] != '/')
        return err_set(err, ERR_INVALID, 0, "cwd '%.200s' is not an absolute path inside",
                       request->cwd);
    if (request->cwd && is_below_proc(request->cwd))
        return err_set(err, ERR_INVALID, 0, "cwd cannot be below /proc");
    if (request->root && !session->spec.base)
        return err_set(err, ERR_INVALID, 0,
                       "only a workspace with a system of its own has commands as root");
    if (request->root && session->spec.plan)
        return err_set(err, ERR_INVALID, 0,
                       "a plan does not change the system, and so a planned command cannot be "
                       "root's");
    if (request->rows > 65535 || request->columns > 65535)
        return err_set(err, ERR_INVALID, 0, "a terminal has at most 65535 rows and columns");
    return check_limits(session, &request->limits, err);
}

static void discard(struct exec *exec)
{
    for (int i = 0; i < 3; i++) {
        scope_close(&exec->fds[i]);
        scope_close(&exec->command_fds[i]);
    }
    free(exec->message);
    free(exec);
}

static bool has_limits(const struct carrel_limits *limits)
{
    return limits->memory_bytes || limits->pids || limits->cpu_milli;
}

int exec_start(struct session *session, const struct exec_request *request, struct exec **ret,
               struct err *err)
{
    if (check_request(session, request, err) < 0)
        return -1;
    struct exec *exec = calloc(1, sizeof(*exec));
    if (!exec)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    *exec = (struct exec){.session = session,
                          .owner = request->owner,
                          .tty = request->tty,
                          .limits = request->limits,
                          .limited = has_limits(&request->limits),
                          .memory = {.kind = SOURCE_MEMORY, .fd = -1},
                          .command_fds = {-1, -1, -1},
                          .fds = {-1, -1, -1},
                          .began_us = exec_now_us()};
    exec->memory.of = exec;
    if (write_message(exec, request, err) < 0 || open_streams(exec, request->input, err) < 0) {
        discard(exec);
        return -1;
    }
    if (request->timeout_ms &&
        __builtin_add_overflow(now_ms(), request->timeout_ms, &exec->deadline_ms))
        exec->deadline_ms = UINT64_MAX;
    exec_mark_denials(exec);
    exec->next = session->execs;
    session->execs = exec;
    session->exec_count++;
    session->quiet = false;
    *ret = exec;
    if (exec->limited && !keeper_ask(session, exec)) {
        struct err failure = {0};
        err_set(&failure, ERR_LIMIT, 0, "the sandbox takes no more commands");
        exec_fail(exec, STATUS_CARREL_FAILED, &failure);
    }
    keepers_dispatch(session);
    return 0;
}

void exec_fail(struct exec *exec, int status, const struct err *err)
{
    exec->failed = true;
    exec->failed_status = status;
    exec->failure = *err;
}

/* Of a command that is with its keeper, and has been killed. */
static void end_tree(struct exec *exec)
{
    struct keeper *k = exec->keeper;

    exec->due_ms = exec->deadline_ms = 0;
    if (exec->state < EXEC_LEFTOVER && k->pid > 0)
        ignore(process_count_take(k->pid, COUNTED_AT_KILL, &exec->at_kill) ==
               0); /* then it is less */
    if (exec->at_kill.tasks > 0 && exec->at_kill.tasks <= COUNTED_AT_KILL)
        exec->left = exec->at_kill.tasks;
    if (keeper_has_group(k)) {
        exec->left = group_count(k->group);
        (void)group_kill(k->group);
        exec->pass_ms = exec->kill_ms + FIRST_LOOK_MS;
    } else {
        (void)keeper_send(k, MESSAGE_KILL, NULL, 0, NULL, 0);
        if (k->pid > 0) /* the command may have stopped it */
            (void)syscall(SYS_pidfd_send_signal, k->pidfd, SIGCONT, NULL, 0);
    }
}

/* While the command starts: what the kernel has killed for lack of memory before it. */
static void look_at_memory(struct session *session)
{
    uint64_t now = now_ms();

    if (now - session->oom_looked_ms < OOM_LOOK_MS)
        return;
    session->oom_looked_ms = now;
    session->oom_kills = limits_oom_kills();
}

/* Its streams, to the owner. Pipes as soon as the command has been sent: what goes wrong with it
 * then is told by how it ends. */
static void hand_over(struct exec *exec)
{
    int fds[3];

    if (exec->handed)
        return;
    exec->handed = true;
    memcpy(fds, exec->fds, sizeof(fds));
    exec->fds[0] = exec->fds[1] = exec->fds[2] = -1;
    exec->session->calls.started(exec->owner, exec, fds);
}

/* Its message is on its way. */
static void note_sent(struct exec *exec)
{
    free(exec->message);
    exec->message = NULL;
    for (int i = 0; i < 3; i++)
        scope_close(&exec->command_fds[i]);
    look_at_memory(exec->session);
    exec->oom_before = exec->session->oom_kills;
}

static void note_told(struct exec *exec)
{
    exec->keeper->state = KEEPER_BUSY;
    exec->state = EXEC_ASKED;
    exec->due_ms = now_ms() + ANSWER_WITHIN_MS;
}

bool exec_give_ahead(struct exec *exec, struct keeper *k)
{
    if (!keeper_send_ahead(k, exec))
        return false;
    k->exec = exec;
    exec->keeper = k;
    note_sent(exec);
    return true;
}

void exec_meet_keeper(struct exec *exec)
{
    scope_close(&exec->keeper->permit);
    note_told(exec);
    if (!exec->tty)
        hand_over(exec);
    if (exec->killed)
        end_tree(exec);
}

void exec_give(struct exec *exec, struct keeper *k)
{
    struct session *session = exec->session;

    k->exec = exec;
    exec->keeper = k;
    if (!keeper_send(k, MESSAGE_COMMAND, exec->message, exec->message_size, exec->command_fds,
                     exec->tty ? 0 : 3)) {
        k->exec = NULL;
        exec->keeper = NULL;
        keeper_lose(k);
        if (exec->limited) {
            struct err failure = {0};
            err_set(&failure, ERR_IO, 0, "the command's keeper was killed");
            exec_fail(exec, STATUS_CARREL_FAILED, &failure);
        }
        return;
    }
    note_told(exec);
    note_sent(exec);
    if (exec->limited && k->group)
        (void)source_set(session, &exec->memory, group_oom_fd(k->group), EPOLLIN);
    if (!exec->tty)
        hand_over(exec);
}

/* --- what its keeper says --- */

static void take_terminal(struct exec *exec, int *fds, size_t *fd_count)
{
    if (*fd_count != 1 || !exec->tty || exec->fds[0] >= 0 || !stream_is_terminal(fds[0]) ||
        fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
        return;
    exec->fds[0] = fds[0];
    *fd_count = 0;
}

static void take_start(struct exec *exec)
{
    if (exec->state != EXEC_ASKED)
        return;
    exec->state = EXEC_RUNNING;
    exec->due_ms = 0;
    hand_over(exec);
}

static void take_failure(struct exec *exec, const struct reply *reply)
{
    bool known = reply->status == STATUS_NOT_EXECUTABLE || reply->status == STATUS_NOT_FOUND;
    struct err failure = reply->error;

    failure.msg[sizeof(failure.msg) - 1] = '\0';
    if (failure.code == ERR_NONE || (unsigned)failure.code >= ERR_CODE_COUNT_)
        failure.code = ERR_IO;
    if (exec->state != EXEC_ASKED)
        return;
    exec_fail(exec, known ? reply->status : STATUS_CARREL_FAILED, &failure);
    exec_finish(exec);
}

static void tell_root(const struct exec *exec, const struct reply *reply)
{
    char command[sizeof(reply->error.msg)];

    snprintf(command, sizeof(command), "%.*s", (int)sizeof(command) - 1, reply->error.msg);
    if ((exec->session->run->setup.flags & SETUP_SUDO) && exec->session->calls.root)
        exec->session->calls.root(exec->owner, command);
}

/* So much of its keeper's count is not the next command's. */
static void note_spent(const struct exec *exec, const struct reply *reply)
{
    exec->keeper->spent_user_ms += (double)reply->cpu_user_us / 1000;
    exec->keeper->spent_system_ms += (double)reply->cpu_system_us / 1000;
}

void exec_hear(struct exec *exec, const struct reply *reply, int *fds, size_t *fd_count)
{
    switch (reply->kind) {
    case REPLY_TERMINAL:
        take_terminal(exec, fds, fd_count);
        break;
    case REPLY_STARTED:
        take_start(exec);
        break;
    case REPLY_ROOT:
        tell_root(exec, reply);
        break;
    case REPLY_FAILED:
        take_failure(exec, reply);
        break;
    case REPLY_EXITED:
        take_start(exec); /* one that ends at once says it in one word */
        if (reply->empty)
            note_spent(exec, reply);
        exec->leaves_nothing = reply->empty;
        exec_tell_end(exec, reply);
        if (reply->empty)
            exec_finish(exec);
        break;
    case REPLY_EMPTY:
        note_spent(exec, reply);
        exec_finish(exec);
        break;
    default:
        exec_kill(exec, CARREL_ENDED_SIGNAL);
    }
}

/* --- ending --- */

bool exec_leaves_nothing(const struct exec *exec)
{
    return exec->leaves_nothing;
}

void exec_signal(struct exec *exec, int number)
{
    uint32_t text = (uint32_t)number;
    bool is_there = exec->state == EXEC_ASKED || exec->state == EXEC_RUNNING;

    /* One that is about to start gets it behind its start. */
    if (exec->keeper && number > 0 && number < 65 && is_there && !exec->killed)
        (void)keeper_send(exec->keeper, MESSAGE_SIGNAL, &text, sizeof(text), NULL, 0);
}

/* Those of its tree; SIZE_MAX: nobody knows, or too many. */
static size_t count_left(const struct exec *exec)
{
    const struct keeper *k = exec->keeper;
    struct process_count count;

    if (keeper_has_group(k))
        return group_count(k->group);
    if (k->pid <= 0 || process_count_take(k->pid, COUNTED_IN_GRACE, &count) < 0)
        return SIZE_MAX;
    return count.tasks > COUNTED_IN_GRACE ? SIZE_MAX : count.tasks;
}

void exec_kill(struct exec *exec, enum carrel_reason reason)
{
    struct keeper *k = exec->keeper;

    if (exec->killed || exec->state == EXEC_GONE)
        return;
    exec->killed = true;
    exec->reason = reason;
    exec->kill_ms = exec->grace_ms = now_ms();
    exec->left = SIZE_MAX;
    exec->due_ms = exec->deadline_ms = 0;
    if (exec->state != EXEC_QUEUED && k)
        end_tree(exec); /* else exec_attend */
    else if (k && k->permit >= 0 && keeper_take_back(k))
        keeper_lose(k); /* now: its hello may be heard before anybody attends to this */
}

/* A command can kill its keeper. What it kept must end all the same: with its group, or else with
 * the whole sandbox. */
void exec_lose_keeper(struct exec *exec)
{
    struct session *session = exec->session;

    if (!exec->tty || exec->fds[0] >= 0)
        take_start(exec); /* it has, if it could do that: what it wrote is not lost */
    /* On v2 the kernel ends all of a group that runs out of memory, and the keeper is in it. */
    bool memory = exec_ran_out_of_memory(exec);
    if (keeper_has_group(exec->keeper)) {
        exec_kill(exec, memory ? CARREL_ENDED_OOM : CARREL_ENDED_SIGNAL);
        return;
    }
    if (memory)
        err_set(&session->why, ERR_LIMIT, 0, SESSION_OUT_OF_MEMORY);
    else
        err_set(&session->why, ERR_CONFLICT, 0,
                "a command has killed the process that keeps it, and with it the sandbox");
    session_end_for(session, memory ? CARREL_ENDED_OOM : CARREL_ENDED_SIGNAL);
}

static void look_again(struct exec *exec, uint64_t now)
{
    if (group_kill(exec->keeper->group)) {
        keeper_lose(exec->keeper);
        exec_finish(exec);
        return;
    }
    /* Soon, and then less and less often. */
    exec->pause_ms = exec->pause_ms ? exec->pause_ms * 2 : FIRST_LOOK_MS;
    if (exec->pause_ms > LAST_LOOK_MS)
        exec->pause_ms = LAST_LOOK_MS;
    exec->pass_ms = now + exec->pause_ms;
}

/* The time is up, unless clearly fewer are left than when it began: a slow machine takes long for
 * many, but the number of those who fork as fast as they are killed only goes up and down. */
static void judge_grace(struct exec *exec, uint64_t now)
{
    struct session *session = exec->session;
    size_t left = exec->keeper ? count_left(exec) : SIZE_MAX;

    if (left <= exec->left - exec->left / 4 && left < exec->left &&
        now < exec->kill_ms + EMPTY_AT_MOST_MS) {
        exec->left = left;
        exec->grace_ms = now;
        return;
    }
    err_set(&session->why, ERR_LIMIT, 0,
            "a command could not be ended by itself, and the sandbox with it");
    session_end_for(session, exec->reason);
}

void exec_attend(struct exec *exec, uint64_t now)
{
    struct session *session = exec->session;

    if (exec->state == EXEC_GONE)
        return;
    if (exec->failed && exec->state == EXEC_QUEUED) {
        exec_finish(exec);
        return;
    }
    if (exec->deadline_ms && now >= exec->deadline_ms)
        exec_kill(exec, CARREL_ENDED_TIMEOUT);
    if (exec->due_ms && now >= exec->due_ms)
        exec_kill(exec, CARREL_ENDED_SIGNAL);
    if (!exec->killed)
        return;
    if (exec->state == EXEC_QUEUED) {
        if (exec->keeper && !keeper_take_back(exec->keeper))
            return; /* its keeper's hello is there to be heard */
        if (exec->keeper)
            keeper_lose(exec->keeper);
        exec_finish(exec);
    } else if (exec->pass_ms && now >= exec->pass_ms) {
        look_again(exec, now);
    } else if (now >= exec->grace_ms + EMPTY_WITHIN_MS && session->state < SESSION_ENDING) {
        judge_grace(exec, now);
    }
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return b && b < a ? b : a;
}

uint64_t exec_due_ms(const struct exec *exec)
{
    uint64_t due = UINT64_MAX;

    if ((exec->failed || exec->killed) && exec->state == EXEC_QUEUED)
        return 0;
    due = least(due, exec->deadline_ms);
    due = least(due, exec->due_ms);
    due = least(due, exec->pass_ms);
    bool is_judged = exec->killed && exec->session->state < SESSION_ENDING;
    return is_judged ? least(due, exec->grace_ms + EMPTY_WITHIN_MS) : due;
}
