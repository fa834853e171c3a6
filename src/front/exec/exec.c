/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/text.h"
#include "front/core/quota.h"
#include "front/exec/mode.h"
#include "front/exec/output.h"
#include "json/result.h"

enum {
    ROW_WITHIN_MS = 20,
    PIPE_NOW = 65536, /* what a pipe holds */
    PIPE_WIDE = 1 << 20,
    TERMINAL_MOST = 1 << 17, /* more than the kernel keeps of a terminal's output */
    GATHER_MS = 1, /* of one that has much to say: many small pieces cost more than a large one */
};

static size_t slot_of(const char *id)
{
    return hash_text(id) % FRONT_SLOTS;
}

struct exec *exec_find(const struct front *front, const char *id)
{
    struct exec *exec = front->execs[slot_of(id)];

    while (exec && strcmp(exec->id, id) != 0)
        exec = exec->next;
    return exec;
}

static void pipe_ready(struct watch *watch, uint32_t what);
static void input_ready(struct watch *watch, uint32_t what);

static void pipe_init(struct exec_pipe *pipe, struct exec *exec, enum spool_stream stream)
{
    *pipe = (struct exec_pipe){
        .watch = {.ready = pipe_ready, .fd = -1}, .exec = exec, .fd = -1, .stream = stream};
}

struct exec *exec_new(struct front *front, const char *id, const char *workspace, const char *owner)
{
    struct exec *exec = calloc(1, sizeof(*exec));

    if (!exec)
        return NULL;
    exec->front = front;
    exec->input = -1;
    exec->backlog.fd = -1;
    exec->input_watch = (struct watch){.ready = input_ready, .fd = -1};
    exec->spool.out = exec->spool.turns = -1;
    pipe_init(&exec->out, exec, SPOOL_OUT);
    pipe_init(&exec->err, exec, SPOOL_ERR);
    text_copy(exec->id, sizeof(exec->id), id);
    text_copy(exec->workspace, sizeof(exec->workspace), workspace);
    text_copy(exec->owner, sizeof(exec->owner), owner);
    if (quota_use_begin(&exec->quota, front, owner) < 0) {
        free(exec);
        return NULL;
    }
    exec->next = front->execs[slot_of(exec->id)];
    front->execs[slot_of(exec->id)] = exec;
    front->exec_count++;
    return exec;
}

static char *result_text(const struct exec *exec)
{
    return json_dumps(exec->result_json, JSON_COMPACT | JSON_REAL_PRECISION(6));
}

/* Its end is in its row: the broker need not keep it any longer. */
static void forget(struct exec *exec)
{
    struct plain_message m = {.texts = {exec->id}};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    broker_send(exec->front->channel, REQUEST_FORGET, &b);
}

static int add_row(struct exec *exec, struct err *err)
{
    char *result = exec->settled ? result_text(exec) : NULL;
    struct store_exec row = {.id = exec->id,
                             .workspace = exec->workspace,
                             .owner = exec->owner,
                             .actor = exec->row_actor,
                             .command = exec->row_command,
                             .state = result ? "ended" : "running",
                             .result = result ? result : "",
                             .started_ms = exec->row_started_ms,
                             .ended_ms = result ? exec->ended_ms : 0,
                             .tty = exec->tty};

    if (exec->settled && !result)
        return err_set(err, ERR_LIMIT, ENOMEM, "write down how a command ended");
    int r = store_exec_add(exec->front->store, &row, err);
    free(result);
    return r;
}

static void drop_row(struct exec *exec)
{
    free(exec->row_command);
    exec->row_command = NULL;
    exec->front->rows_due--;
}

static void free_if_over(struct exec *exec)
{
    if (exec->gone && exec->drained && !exec->followers && !exec->row_command)
        exec_free(exec);
}

/* May free the exec. One whose workspace has gone meanwhile needs no row (ERR_NOT_FOUND). */
static void row_is_written(struct exec *exec, int r, const struct err *err)
{
    bool over = r == 0 || err->code == ERR_NOT_FOUND || err->code == ERR_CONFLICT;

    drop_row(exec);
    if (!over && !exec->settled) /* one that nobody could find again must not run */
        exec_stop(exec, CARREL_ENDED_DISK);
    if (over && exec->settled)
        forget(exec);
    free_if_over(exec);
}

int exec_write_row(struct exec *exec, struct err *err)
{
    int r = exec->row_command ? add_row(exec, err) : 0;

    if (exec->row_command)
        row_is_written(exec, r, err);
    return r;
}

/* All in one transaction; those that cannot be in it by themselves are dealt with at once. */
void exec_write_rows(struct front *front)
{
    struct exec *next;
    struct err err = {0};

    if (!front->rows_due)
        return;
    timer_stop(front->events, &front->rows_timer);
    int r = store_execs_begin(front->store, &err);
    for (size_t i = 0; r == 0 && i < FRONT_SLOTS; i++) {
        for (struct exec *exec = front->execs[i]; exec; exec = next) {
            struct err own;
            next = exec->next;
            if (exec->row_command && add_row(exec, &own) < 0)
                row_is_written(exec, -1, &own);
        }
    }
    if (r == 0)
        r = store_execs_commit(front->store, &err);
    for (size_t i = 0; front->rows_due && i < FRONT_SLOTS; i++) {
        for (struct exec *exec = front->execs[i]; exec; exec = next) {
            next = exec->next;
            if (exec->row_command)
                row_is_written(exec, r, &err);
        }
    }
}

static void rows_are_due(struct timer *timer)
{
    exec_write_rows(container_of(timer, struct front, rows_timer));
}

int exec_keep_row(struct exec *exec, const char *actor, json_t *command)
{
    struct front *front = exec->front;

    text_copy(exec->row_actor, sizeof(exec->row_actor), actor);
    exec->row_command = json_dumps(command, JSON_COMPACT);
    exec->row_started_ms = wall_ms();
    if (!exec->row_command)
        return -1;
    front->rows_due++;
    front->rows_timer.ring = rows_are_due;
    return front->rows_timer.due_ms
               ? 0
               : timer_set(front->events, &front->rows_timer, now_ms() + ROW_WITHIN_MS);
}

/* How it ended, into its row; or with it, when that is written. */
static void write_end(struct exec *exec)
{
    char *result = exec->row_command ? NULL : result_text(exec);
    struct err err;

    if (result && store_exec_end(exec->front->store, exec->id, result, exec->ended_ms, &err) >= 0)
        forget(exec);
    free(result);
}

static void pipe_close(struct exec_pipe *pipe)
{
    timer_stop(pipe->exec->front->events, &pipe->pause);
    events_forget(pipe->exec->front->events, &pipe->watch);
    scope_close(&pipe->fd);
}

static void close_input(struct exec *exec)
{
    events_forget(exec->front->events, &exec->input_watch);
    scope_close(&exec->input);
    backlog_close(&exec->backlog);
}

void exec_free(struct exec *exec)
{
    struct exec **at = &exec->front->execs[slot_of(exec->id)];

    while (*at && *at != exec)
        at = &(*at)->next;
    if (*at)
        *at = exec->next;
    if (exec->state != EXEC_ENDED)
        exec->front->exec_count--;
    pipe_close(&exec->out);
    pipe_close(&exec->err);
    close_input(exec);
    output_leave(exec);
    quota_use_end(&exec->quota);
    spool_close(&exec->spool);
    json_decref(exec->result_json);
    json_decref(exec->denied);
    free(exec->result.denials);
    if (exec->row_command)
        drop_row(exec);
    free(exec);
}

static bool runs_in(const struct exec *exec, const char *sandbox)
{
    if (exec->state != EXEC_RUNNING)
        return false;
    return *exec->plan ? strncmp(sandbox, "plan:", 5) == 0 && strcmp(sandbox + 5, exec->plan) == 0
                       : strcmp(sandbox, exec->workspace) == 0;
}

static void deny(struct exec *exec, json_t *event)
{
    struct follower *next;

    if (!exec->denied)
        exec->denied = json_array();
    if (json_array_size(exec->denied) >= CARREL_MAX_DENIALS ||
        json_array_append(exec->denied, event) < 0)
        return;
    for (struct follower *f = exec->followers; f; f = next) {
        next = f->next;
        f->output(f);
    }
}

void execs_denied(struct front *front, const char *sandbox, json_t *event)
{
    struct exec *next;

    for (size_t i = 0; event && i < FRONT_SLOTS; i++) {
        for (struct exec *exec = front->execs[i]; exec; exec = next) {
            next = exec->next;
            if (runs_in(exec, sandbox))
                deny(exec, event);
        }
    }
    json_decref(event);
}

/* Made when the first byte comes: most commands that print nothing need none. */
static int need_spool(struct exec *exec)
{
    if (exec->has_spool)
        return 0;
    uint64_t bound = exec->front->settings->spool_bytes;
    int r = spool_open(&exec->spool, exec->front->spools, exec->id, bound);
    if (r == -ENOENT)
        r = spool_create(&exec->spool, exec->front->spools, exec->id, bound);
    exec->has_spool = r == 0;
    return r;
}

static void watch_pipe(struct exec_pipe *pipe)
{
    timer_stop(pipe->exec->front->events, &pipe->pause);
    pipe->stalled = events_watch(pipe->exec->front->events, &pipe->watch, pipe->fd, EPOLLIN) < 0;
}

static void tell_output(struct exec *exec)
{
    struct follower *next;

    for (struct follower *f = exec->followers; f; f = next) {
        next = f->next;
        f->output(f);
    }
}

static bool is_drained(const struct exec *exec)
{
    return exec->settled && !exec->held && (exec->out.fd < 0 || exec->out.empty) &&
           (exec->err.fd < 0 || exec->err.empty);
}

static void check_drained(struct exec *exec)
{
    struct follower *next;
    bool gone = exec->gone;

    if (exec->drained || !is_drained(exec))
        return;
    exec->drained = true;
    exec->final = exec->has_spool ? exec->spool.end : 0;
    exec->gone = false; /* the last who is told and leaves does not free it */
    for (struct follower *f = exec->followers; f; f = next) {
        next = f->next;
        f->drained(f);
    }
    exec->gone = gone;
    free_if_over(exec);
}

static void gathered(struct timer *timer)
{
    watch_pipe(container_of(timer, struct exec_pipe, pause));
}

/* While it runs, has much to say, and somebody is woken for each piece of it. */
static void let_gather(struct exec_pipe *pipe)
{
    struct events *events = pipe->exec->front->events;

    pipe->pause.ring = gathered;
    if (timer_set(events, &pipe->pause, now_ms() + GATHER_MS) == 0)
        events_forget(events, &pipe->watch);
}

static void stall(struct exec_pipe *pipe)
{
    timer_stop(pipe->exec->front->events, &pipe->pause); /* exec_moved_on watches it again */
    events_forget(pipe->exec->front->events, &pipe->watch);
    pipe->stalled = true;
    pipe->exec->front->count.stalls++;
}

/* Of one that has ended: whether there is more of what it wrote. What is written to a terminal is
 * on its way for a while, and counted only when it has arrived; asking brings it. */
static bool has_more(const struct exec_pipe *pipe)
{
    struct pollfd ready = {.fd = pipe->fd, .events = POLLIN};

    return pipe->left > 0 && (pipe->stream != SPOOL_TERMINAL || poll(&ready, 1, 0) != 0);
}

/* Takes what is there, once: the loop comes back while there is more. The exec may be gone
 * afterwards. */
static void take(struct exec_pipe *pipe)
{
    struct exec *exec = pipe->exec;
    int r = need_spool(exec);
    ssize_t n = r < 0                   ? r
                : output_may_grow(exec) ? spool_take(&exec->spool, pipe->fd, pipe->stream)
                                        : -ENOSPC;

    if (n == -EAGAIN || n == -EINTR) {
        pipe->empty = exec->state == EXEC_ENDED && n == -EAGAIN;
    } else if (n == -ENOBUFS) {
        pipe->empty = exec->state == EXEC_ENDED && !has_more(pipe);
        if (!pipe->empty)
            stall(pipe);
    } else if (n == 0) {
        pipe_close(pipe);
    } else if (n < 0) {
        pipe_close(pipe); /* what cannot be kept ends the command, and its reader is told */
        exec_stop(exec, CARREL_ENDED_DISK);
    } else {
        if (pipe->gathers && n < PIPE_WIDE / 4 && exec->state == EXEC_RUNNING && exec->followers)
            let_gather(pipe);
        if (n >= PIPE_NOW && !pipe->widened) { /* it was full: one that has much to say */
            pipe->widened = true;              /* where the host allows it */
            pipe->gathers = fcntl(pipe->fd, F_SETPIPE_SZ, PIPE_WIDE) >= PIPE_WIDE;
        }
        pipe->left -= pipe->left < (uint64_t)n ? pipe->left : (uint64_t)n;
        pipe->empty = exec->state == EXEC_ENDED && !has_more(pipe);
        exec->taken += (uint64_t)n;
        exec->front->count.output_bytes += (uint64_t)n;
        output_grew(exec);
        if (exec->most_output && exec->taken > exec->most_output && exec->state == EXEC_RUNNING &&
            !exec->over_output) {
            exec->over_output = true;
            exec_stop(exec, CARREL_ENDED_OUTPUT);
        }
        tell_output(exec);
    }
    check_drained(exec);
}

static void pipe_ready(struct watch *watch, uint32_t what)
{
    struct exec_pipe *pipe = container_of(watch, struct exec_pipe, watch);
    struct exec *exec = pipe->exec;
    struct exec_pipe *other = pipe == &exec->out ? &exec->err : &exec->out;

    if (other->pause.due_ms && exec->state == EXEC_RUNNING) {
        other->gathers = pipe->gathers = false; /* with both in use their order matters more */
        take(other);                            /* what it holds back was written before */
    }
    if (what == EPOLLHUP) { /* its end, and nothing before it: no spool for that */
        pipe_close(pipe);
        check_drained(exec);
    } else {
        take(pipe);
    }
}

void exec_moved_on(struct exec *exec)
{
    struct exec_pipe *pipes[] = {&exec->out, &exec->err};

    for (size_t i = 0; i < 2; i++) {
        if (pipes[i]->stalled && pipes[i]->fd >= 0)
            watch_pipe(pipes[i]);
    }
}

void exec_resume(struct exec *exec)
{
    uint64_t bound = exec->front->settings->spool_bytes;

    exec->has_spool = spool_open(&exec->spool, exec->front->spools, exec->id, bound) == 0;
    exec->taken = exec->has_spool ? exec->spool.end : 0;
    if (exec->has_spool)
        output_grew(exec);
}

static void flush_input(struct exec *exec);

/* As ANSWER_STARTED says. */
static void take_streams(struct exec *exec, int *fds, size_t n)
{
    if (exec->tty && n >= 1) {
        exec->out.stream = SPOOL_TERMINAL;
        if (n == 2)
            exec->input = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
        exec->out.fd = take_fd(&fds[0]);
    } else if (n >= 2) {
        exec->err.fd = take_fd(&fds[n - 1]);
        exec->out.fd = take_fd(&fds[n - 2]);
        if (n == 4)
            exec->input = take_fd(&fds[0]);
    }
    if (exec->input < 0)
        return;
    ignore(fcntl(exec->input, F_SETFL, O_NONBLOCK | (exec->tty ? O_RDWR : O_WRONLY)) == 0);
    if (backlog_open(&exec->backlog, &fds[1]) < 0)
        close_input(exec);
}

void exec_run(struct exec *exec, int *fds, size_t n, uint64_t flags)
{
    struct follower *next;

    exec->tty = flags & EXEC_TERMINAL;
    exec->input_ends = flags & EXEC_INPUT_ENDS;
    take_streams(exec, fds, n);
    if (exec->out.fd >= 0 && !(flags & EXEC_OVER))
        watch_pipe(&exec->out);
    if (exec->err.fd >= 0 && !(flags & EXEC_OVER))
        watch_pipe(&exec->err);
    quota_use_answered(&exec->quota);
    if (exec->state == EXEC_ASKED)
        exec->state = EXEC_RUNNING;
    if (exec->input_ends || backlog_left(&exec->backlog) > 0)
        flush_input(exec); /* what the front before this one had taken */
    for (struct follower *f = exec->followers; f; f = next) {
        next = f->next;
        f->started(f, NULL);
    }
}

void exec_answered(struct exec *exec, struct answer *answer)
{
    struct plain_message m;
    uint64_t tag;

    if (answer->kind == ANSWER_RAN) {
        broker_pass(exec->front->channel,
                    answer); /* what comes next for it is not asked for, either */
    } else {
        bool said = protocol_unpack_plain(answer->bytes, answer->n, &tag, &m);
        exec_run(exec, answer->fds, answer->fd_count, said ? m.number : 0);
    }
}

void exec_start_failed(struct exec *exec, const struct err *err)
{
    while (exec->followers) {
        struct follower *f = exec->followers;
        exec->followers = f->next;
        f->started(f, err);
    }
    exec_free(exec);
}

/* As much as there is in it now: one that the command has left behind can write for ever. */
static void drain(struct exec_pipe *pipe)
{
    int inside = 0;

    if (pipe->fd < 0)
        return;
    if (pipe->stream == SPOOL_TERMINAL)
        inside = TERMINAL_MOST;
    else if (ioctl(pipe->fd, FIONREAD, &inside) < 0)
        inside = 0;
    pipe->left = inside > 0 ? (uint64_t)inside : 0;
    pipe->empty = !has_more(pipe);
    while (pipe->fd >= 0 && !pipe->stalled && !pipe->empty)
        take(pipe);
}

void exec_end(struct exec *exec, const struct ended_message *ended)
{
    if (exec->state == EXEC_ENDED)
        return;
    exec->state = EXEC_ENDED;
    exec->front->exec_count--;
    exec->result = ended->result;
    exec->result.denials = NULL; /* they are in the message, and in the JSON below */
    exec->result.denial_count = 0;
    exec->result.disk_method = NULL;
    struct carrel_result shown = ended->result;
    shown.truncated = exec->over_output;
    exec->result_json = result_json(&shown, false);
    exec->ended_ms = (int64_t)ended->ended_at_ms;
    exec->room = NULL;
    close_input(exec);
    /* What it wrote before it ended is still in the pipes. */
    drain(&exec->out);
    drain(&exec->err);
}

/* The client first, its record is on disk; then the row, then the broker may forget it: between the
 * two lies no loss. */
void exec_settle(struct exec *exec, int unrecorded)
{
    exec->settled = true;
    exec->unrecorded = unrecorded;
    if (exec->held)
        exec->front->exec_mode->settled(exec);
    check_drained(exec); /* which does not free it: EVENT_GONE is still to come */
    write_end(exec);
}

void exec_hold(struct exec *exec, const char *plan, bool keep_open)
{
    text_copy(exec->plan, sizeof(exec->plan), plan);
    exec->plan_stays_open = keep_open;
    exec->held = true;
}

void exec_let_go(struct exec *exec)
{
    exec->held = false;
    check_drained(exec);
}

void exec_gone(struct exec *exec)
{
    if (exec->out.empty)
        pipe_close(&exec->out);
    if (exec->err.empty)
        pipe_close(&exec->err);
    quota_use_gone(&exec->quota);
    exec->gone = true;
    free_if_over(exec);
}

void exec_follow(struct exec *exec, struct follower *f)
{
    f->next = exec->followers;
    exec->followers = f;
}

void exec_unfollow(struct exec *exec, struct follower *f)
{
    for (struct follower **at = &exec->followers; *at; at = &(*at)->next) {
        if (*at == f) {
            *at = f->next;
            break;
        }
    }
    free_if_over(exec);
}

static void tell_input_end(struct exec *exec, bool after_backlog)
{
    struct plain_message m = {.texts = {exec->id}, .number = after_backlog};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    broker_send(exec->front->channel, REQUEST_INPUT_END, &b);
}

/* The broker has a copy of every descriptor; the end is seen when that is closed, too. */
static void finish_input(struct exec *exec)
{
    if (exec->input < 0)
        return;
    close_input(exec);
    tell_input_end(exec, false);
}

static void flush_input(struct exec *exec)
{
    if (exec->input < 0)
        return;
    while (backlog_left(&exec->backlog) > 0) {
        ssize_t n = backlog_move(&exec->backlog, exec->input, exec->tty);
        if (n == -EAGAIN) {
            if (exec->input_watch.fd < 0)
                ignore(
                    events_watch(exec->front->events, &exec->input_watch, exec->input, EPOLLOUT));
            return;
        }
        if (n < 0) { /* nobody reads it any more */
            finish_input(exec);
            return;
        }
    }
    events_forget(exec->front->events, &exec->input_watch);
    if (exec->room && !exec->input_ends)
        exec->room(exec->room_context);
    if (exec->input_ends)
        finish_input(exec);
}

/* What fits goes straight into the pipe, the rest behind what waits already. */
static int put_input(struct exec *exec, const char *bytes, size_t n)
{
    ssize_t done = backlog_left(&exec->backlog) == 0 ? write(exec->input, bytes, n) : 0;

    if (done < 0 && errno != EAGAIN && errno != EINTR) {
        finish_input(exec); /* nobody reads it any more */
        return 0;
    }
    if (done < 0)
        done = 0;
    if ((size_t)done == n || backlog_add(&exec->backlog, bytes + done, n - (size_t)done) == 0)
        return 0;
    if (done == 0)
        return -EAGAIN;
    exec_stop(exec, CARREL_ENDED_DISK); /* half of it is in, and there is no room for the rest */
    return -EPIPE;
}

static void input_ready(struct watch *watch, uint32_t what)
{
    (void)what;
    flush_input(container_of(watch, struct exec, input_watch));
}

int exec_input(struct exec *exec, const char *bytes, size_t n)
{
    if (exec->input < 0 || exec->input_ends || exec->state == EXEC_ENDED)
        return -EPIPE;
    if (n > EXEC_INPUT_MAX - backlog_left(&exec->backlog))
        return -EAGAIN;
    int r = put_input(exec, bytes, n);
    if (r == 0)
        flush_input(exec);
    return r;
}

void exec_end_input(struct exec *exec)
{
    if (exec->input >= 0 && !exec->input_ends && exec->tty)
        ignore(put_input(exec, "\004", 1) == 0); /* a terminal's way to say so */
    exec->input_ends = true;
    if (exec->input >= 0 && backlog_left(&exec->backlog) > 0)
        tell_input_end(exec, true);
    flush_input(exec);
}

int exec_resize(struct exec *exec, unsigned columns, unsigned rows)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};

    if (!exec->tty || exec->out.fd < 0)
        return -ENOTTY;
    return ioctl(exec->out.fd, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

static void no_matter(void *context, struct answer *answer)
{
    (void)context;
    (void)answer; /* an end is told by EVENT_ENDED; one that has ended already needs no kill */
}

void exec_stop(struct exec *exec, enum carrel_reason reason)
{
    struct plain_message m = {.texts = {exec->id}, .number = reason};
    uint64_t tag = broker_expect(exec->front->channel, no_matter, NULL);
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &m);
    broker_send(exec->front->channel, REQUEST_KILL, &b);
}

void exec_left(struct exec *exec, bool was_for_client)
{
    if (was_for_client && exec->state == EXEC_RUNNING && !exec->front->draining)
        exec_stop(exec, CARREL_ENDED_SIGNAL);
}

void exec_end_of(struct front *front, const char *workspace, const char *exec_id)
{
    struct exec *exec = exec_find(front, exec_id);

    if (exec && strcmp(exec->workspace, workspace) == 0)
        exec_left(exec, true);
}

uint64_t front_execs_in(const struct front *front, const char *workspace)
{
    uint64_t count = 0;

    for (size_t i = 0; i < FRONT_SLOTS; i++) {
        for (const struct exec *exec = front->execs[i]; exec; exec = exec->next)
            count += exec->state != EXEC_ENDED && strcmp(exec->workspace, workspace) == 0;
    }
    return count;
}
