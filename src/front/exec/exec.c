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

struct job *job_find(const struct front *front, const char *id)
{
    struct job *job = front->jobs[slot_of(id)];

    while (job && strcmp(job->id, id) != 0)
        job = job->next;
    return job;
}

static void pipe_ready(struct watch *watch, uint32_t what);
static void input_ready(struct watch *watch, uint32_t what);

static void pipe_init(struct job_pipe *pipe, struct job *job, enum spool_stream stream)
{
    *pipe = (struct job_pipe){
        .watch = {.ready = pipe_ready, .fd = -1}, .job = job, .fd = -1, .stream = stream};
}

struct job *job_new(struct front *front, const char *id, const char *workspace, const char *owner)
{
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->front = front;
    job->input = -1;
    job->backlog.fd = -1;
    job->input_watch = (struct watch){.ready = input_ready, .fd = -1};
    job->spool.out = job->spool.turns = -1;
    pipe_init(&job->out, job, SPOOL_OUT);
    pipe_init(&job->err, job, SPOOL_ERR);
    text_copy(job->id, sizeof(job->id), id);
    text_copy(job->workspace, sizeof(job->workspace), workspace);
    text_copy(job->owner, sizeof(job->owner), owner);
    if (quota_use_begin(&job->quota, front, owner) < 0) {
        free(job);
        return NULL;
    }
    job->next = front->jobs[slot_of(job->id)];
    front->jobs[slot_of(job->id)] = job;
    front->job_count++;
    return job;
}

static char *result_text(const struct job *job)
{
    return json_dumps(job->result_json, JSON_COMPACT | JSON_REAL_PRECISION(6));
}

/* Its end is in its row: the broker need not keep it any longer. */
static void forget(struct job *job)
{
    struct plain_message m = {.texts = {job->id}};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    link_send(job->front->link, REQUEST_FORGET, &b);
}

static int add_row(struct job *job, struct err *err)
{
    char *result = job->settled ? result_text(job) : NULL;
    struct store_exec row = {.id = job->id,
                             .workspace = job->workspace,
                             .owner = job->owner,
                             .actor = job->row_actor,
                             .command = job->row_command,
                             .state = result ? "ended" : "running",
                             .result = result ? result : "",
                             .started_ms = job->row_started_ms,
                             .ended_ms = result ? job->ended_ms : 0,
                             .tty = job->tty};

    if (job->settled && !result)
        return err_set(err, ERR_LIMIT, ENOMEM, "write down how a command ended");
    int r = store_exec_add(job->front->store, &row, err);
    free(result);
    return r;
}

static void drop_row(struct job *job)
{
    free(job->row_command);
    job->row_command = NULL;
    job->front->rows_due--;
}

static void free_if_over(struct job *job)
{
    if (job->gone && job->drained && !job->followers && !job->row_command)
        job_free(job);
}

/* May free the job. One whose workspace has gone meanwhile needs no row (ERR_NOT_FOUND). */
static void row_is_written(struct job *job, int r, const struct err *err)
{
    bool over = r == 0 || err->code == ERR_NOT_FOUND || err->code == ERR_CONFLICT;

    drop_row(job);
    if (!over && !job->settled) /* one that nobody could find again must not run */
        job_kill(job, CARREL_ENDED_DISK);
    if (over && job->settled)
        forget(job);
    free_if_over(job);
}

int job_write_row(struct job *job, struct err *err)
{
    int r = job->row_command ? add_row(job, err) : 0;

    if (job->row_command)
        row_is_written(job, r, err);
    return r;
}

/* All in one transaction; those that cannot be in it by themselves are dealt with at once. */
void job_write_rows(struct front *front)
{
    struct job *next;
    struct err err = {0};

    if (!front->rows_due)
        return;
    timer_stop(front->events, &front->rows_timer);
    int r = store_execs_begin(front->store, &err);
    for (size_t i = 0; r == 0 && i < FRONT_SLOTS; i++) {
        for (struct job *job = front->jobs[i]; job; job = next) {
            struct err own;
            next = job->next;
            if (job->row_command && add_row(job, &own) < 0)
                row_is_written(job, -1, &own);
        }
    }
    if (r == 0)
        r = store_execs_commit(front->store, &err);
    for (size_t i = 0; front->rows_due && i < FRONT_SLOTS; i++) {
        for (struct job *job = front->jobs[i]; job; job = next) {
            next = job->next;
            if (job->row_command)
                row_is_written(job, r, &err);
        }
    }
}

static void rows_are_due(struct timer *timer)
{
    job_write_rows(container_of(timer, struct front, rows_timer));
}

int job_keep_row(struct job *job, const char *actor, json_t *command)
{
    struct front *front = job->front;

    text_copy(job->row_actor, sizeof(job->row_actor), actor);
    job->row_command = json_dumps(command, JSON_COMPACT);
    job->row_started_ms = wall_ms();
    if (!job->row_command)
        return -1;
    front->rows_due++;
    front->rows_timer.ring = rows_are_due;
    return front->rows_timer.due_ms
               ? 0
               : timer_set(front->events, &front->rows_timer, now_ms() + ROW_WITHIN_MS);
}

/* How it ended, into its row; or with it, when that is written. */
static void write_end(struct job *job)
{
    char *result = job->row_command ? NULL : result_text(job);
    struct err err;

    if (result && store_exec_end(job->front->store, job->id, result, job->ended_ms, &err) >= 0)
        forget(job);
    free(result);
}

static void pipe_close(struct job_pipe *pipe)
{
    timer_stop(pipe->job->front->events, &pipe->pause);
    events_forget(pipe->job->front->events, &pipe->watch);
    scope_close(&pipe->fd);
}

static void close_input(struct job *job)
{
    events_forget(job->front->events, &job->input_watch);
    scope_close(&job->input);
    backlog_close(&job->backlog);
}

void job_free(struct job *job)
{
    struct job **at = &job->front->jobs[slot_of(job->id)];

    while (*at && *at != job)
        at = &(*at)->next;
    if (*at)
        *at = job->next;
    if (job->state != JOB_ENDED)
        job->front->job_count--;
    pipe_close(&job->out);
    pipe_close(&job->err);
    close_input(job);
    output_leave(job);
    quota_use_end(&job->quota);
    spool_close(&job->spool);
    json_decref(job->result_json);
    json_decref(job->denied);
    free(job->result.denials);
    if (job->row_command)
        drop_row(job);
    free(job);
}

static bool runs_in(const struct job *job, const char *sandbox)
{
    if (job->state != JOB_RUNNING)
        return false;
    return *job->plan ? strncmp(sandbox, "plan:", 5) == 0 && strcmp(sandbox + 5, job->plan) == 0
                      : strcmp(sandbox, job->workspace) == 0;
}

static void deny(struct job *job, json_t *event)
{
    struct follower *next;

    if (!job->denied)
        job->denied = json_array();
    if (json_array_size(job->denied) >= CARREL_MAX_DENIALS ||
        json_array_append(job->denied, event) < 0)
        return;
    for (struct follower *f = job->followers; f; f = next) {
        next = f->next;
        f->output(f);
    }
}

void jobs_denied(struct front *front, const char *sandbox, json_t *event)
{
    struct job *next;

    for (size_t i = 0; event && i < FRONT_SLOTS; i++) {
        for (struct job *job = front->jobs[i]; job; job = next) {
            next = job->next;
            if (runs_in(job, sandbox))
                deny(job, event);
        }
    }
    json_decref(event);
}

/* Made when the first byte comes: most commands that print nothing need none. */
static int need_spool(struct job *job)
{
    if (job->has_spool)
        return 0;
    uint64_t bound = job->front->settings->spool_bytes;
    int r = spool_open(&job->spool, job->front->execs, job->id, bound);
    if (r == -ENOENT)
        r = spool_create(&job->spool, job->front->execs, job->id, bound);
    job->has_spool = r == 0;
    return r;
}

static void watch_pipe(struct job_pipe *pipe)
{
    timer_stop(pipe->job->front->events, &pipe->pause);
    pipe->stalled = events_watch(pipe->job->front->events, &pipe->watch, pipe->fd, EPOLLIN) < 0;
}

static void tell_output(struct job *job)
{
    struct follower *next;

    for (struct follower *f = job->followers; f; f = next) {
        next = f->next;
        f->output(f);
    }
}

static bool is_drained(const struct job *job)
{
    return job->settled && !job->held && (job->out.fd < 0 || job->out.empty) &&
           (job->err.fd < 0 || job->err.empty);
}

static void check_drained(struct job *job)
{
    struct follower *next;
    bool gone = job->gone;

    if (job->drained || !is_drained(job))
        return;
    job->drained = true;
    job->final = job->has_spool ? job->spool.end : 0;
    job->gone = false; /* the last who is told and leaves does not free it */
    for (struct follower *f = job->followers; f; f = next) {
        next = f->next;
        f->drained(f);
    }
    job->gone = gone;
    free_if_over(job);
}

/* What cannot be written down cannot be kept: the command is ended, and its reader is told. */
static void cannot_spool(struct job_pipe *pipe)
{
    pipe_close(pipe);
    job_kill(pipe->job, CARREL_ENDED_DISK);
}

static void gathered(struct timer *timer)
{
    watch_pipe(container_of(timer, struct job_pipe, pause));
}

/* While it runs, has much to say, and somebody is woken for each piece of it. */
static void let_gather(struct job_pipe *pipe)
{
    struct events *events = pipe->job->front->events;

    pipe->pause.ring = gathered;
    if (timer_set(events, &pipe->pause, now_ms() + GATHER_MS) == 0)
        events_forget(events, &pipe->watch);
}

static void stall(struct job_pipe *pipe)
{
    timer_stop(pipe->job->front->events, &pipe->pause); /* job_moved_on watches it again */
    events_forget(pipe->job->front->events, &pipe->watch);
    pipe->stalled = true;
    pipe->job->front->count.stalls++;
}

/* Of one that has ended: whether there is more of what it wrote. What is written to a terminal is
 * on its way for a while, and counted only when it has arrived; asking brings it. */
static bool has_more(const struct job_pipe *pipe)
{
    struct pollfd ready = {.fd = pipe->fd, .events = POLLIN};

    return pipe->left > 0 && (pipe->stream != SPOOL_TERMINAL || poll(&ready, 1, 0) != 0);
}

/* Takes what is there, once: the loop comes back while there is more. The job may be gone
 * afterwards. */
static void take(struct job_pipe *pipe)
{
    struct job *job = pipe->job;
    int r = need_spool(job);
    ssize_t n = r < 0                  ? r
                : output_may_grow(job) ? spool_take(&job->spool, pipe->fd, pipe->stream)
                                       : -ENOSPC;

    if (n == -EAGAIN || n == -EINTR) {
        pipe->empty = job->state == JOB_ENDED && n == -EAGAIN;
    } else if (n == -ENOBUFS) {
        pipe->empty = job->state == JOB_ENDED && !has_more(pipe);
        if (!pipe->empty)
            stall(pipe);
    } else if (n == 0) {
        pipe_close(pipe);
    } else if (n < 0) {
        cannot_spool(pipe);
    } else {
        if (pipe->gathers && n < PIPE_WIDE / 4 && job->state == JOB_RUNNING && job->followers)
            let_gather(pipe);
        if (n >= PIPE_NOW && !pipe->widened) { /* it was full: one that has much to say */
            pipe->widened = true;              /* where the host allows it */
            pipe->gathers = fcntl(pipe->fd, F_SETPIPE_SZ, PIPE_WIDE) >= PIPE_WIDE;
        }
        pipe->left -= pipe->left < (uint64_t)n ? pipe->left : (uint64_t)n;
        pipe->empty = job->state == JOB_ENDED && !has_more(pipe);
        job->taken += (uint64_t)n;
        job->front->count.output_bytes += (uint64_t)n;
        output_grew(job);
        if (job->most_output && job->taken > job->most_output && job->state == JOB_RUNNING &&
            !job->over_output) {
            job->over_output = true;
            job_kill(job, CARREL_ENDED_OUTPUT);
        }
        tell_output(job);
    }
    check_drained(job);
}

static void pipe_ready(struct watch *watch, uint32_t what)
{
    struct job_pipe *pipe = container_of(watch, struct job_pipe, watch);
    struct job *job = pipe->job;
    struct job_pipe *other = pipe == &job->out ? &job->err : &job->out;

    if (other->pause.due_ms && job->state == JOB_RUNNING) {
        other->gathers = pipe->gathers = false; /* with both in use their order matters more */
        take(other);                            /* what it holds back was written before */
    }
    if (what == EPOLLHUP) { /* its end, and nothing before it: no spool for that */
        pipe_close(pipe);
        check_drained(job);
    } else {
        take(pipe);
    }
}

void job_moved_on(struct job *job)
{
    struct job_pipe *pipes[] = {&job->out, &job->err};

    for (size_t i = 0; i < 2; i++) {
        if (pipes[i]->stalled && pipes[i]->fd >= 0)
            watch_pipe(pipes[i]);
    }
}

void job_resume(struct job *job)
{
    uint64_t bound = job->front->settings->spool_bytes;

    job->has_spool = spool_open(&job->spool, job->front->execs, job->id, bound) == 0;
    job->taken = job->has_spool ? job->spool.end : 0;
    if (job->has_spool)
        output_grew(job);
}

static void flush_input(struct job *job);

/* As ANSWER_STARTED says. */
static void take_streams(struct job *job, int *fds, size_t n)
{
    if (job->tty && n >= 1) {
        job->out.stream = SPOOL_TERMINAL;
        if (n == 2)
            job->input = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
        job->out.fd = take_fd(&fds[0]);
    } else if (n >= 2) {
        job->err.fd = take_fd(&fds[n - 1]);
        job->out.fd = take_fd(&fds[n - 2]);
        if (n == 4)
            job->input = take_fd(&fds[0]);
    }
    if (job->input < 0)
        return;
    ignore(fcntl(job->input, F_SETFL, O_NONBLOCK | (job->tty ? O_RDWR : O_WRONLY)) == 0);
    if (backlog_open(&job->backlog, &fds[1]) < 0)
        close_input(job);
}

void job_run(struct job *job, int *fds, size_t n, uint64_t flags)
{
    struct follower *next;

    job->tty = flags & EXEC_TERMINAL;
    job->input_ends = flags & EXEC_INPUT_ENDS;
    take_streams(job, fds, n);
    if (job->out.fd >= 0 && !(flags & EXEC_OVER))
        watch_pipe(&job->out);
    if (job->err.fd >= 0 && !(flags & EXEC_OVER))
        watch_pipe(&job->err);
    quota_use_answered(&job->quota);
    if (job->state == JOB_ASKED)
        job->state = JOB_RUNNING;
    if (job->input_ends || backlog_left(&job->backlog) > 0)
        flush_input(job); /* what the front before this one had taken */
    for (struct follower *f = job->followers; f; f = next) {
        next = f->next;
        f->started(f, NULL);
    }
}

void job_answered(struct job *job, struct answer *answer)
{
    struct plain_message m;
    uint64_t tag;

    if (answer->kind == ANSWER_RAN) {
        link_pass(job->front->link, answer); /* what comes next for it is not asked for, either */
    } else {
        bool said = protocol_unpack_plain(answer->bytes, answer->n, &tag, &m);
        job_run(job, answer->fds, answer->fd_count, said ? m.number : 0);
    }
}

void job_fail(struct job *job, const struct err *err)
{
    while (job->followers) {
        struct follower *f = job->followers;
        job->followers = f->next;
        f->started(f, err);
    }
    job_free(job);
}

/* As much as there is in it now: one that the command has left behind can write for ever. */
static void drain(struct job_pipe *pipe)
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

void job_end(struct job *job, const struct ended_message *ended)
{
    if (job->state == JOB_ENDED)
        return;
    job->state = JOB_ENDED;
    job->front->job_count--;
    job->result = ended->result;
    job->result.denials = NULL; /* they are in the message, and in the JSON below */
    job->result.denial_count = 0;
    job->result.disk_method = NULL;
    struct carrel_result shown = ended->result;
    shown.truncated = job->over_output;
    job->result_json = result_json(&shown, false);
    job->ended_ms = (int64_t)ended->ended_at_ms;
    job->room = NULL;
    close_input(job);
    /* What it wrote before it ended is still in the pipes. */
    drain(&job->out);
    drain(&job->err);
}

/* The client first, its record is on disk; then the row, then the broker may forget it: between the
 * two lies no loss. */
void job_settle(struct job *job, int unrecorded)
{
    job->settled = true;
    job->unrecorded = unrecorded;
    if (job->held)
        job->front->exec_mode->settled(job);
    check_drained(job); /* which does not free it: EVENT_GONE is still to come */
    write_end(job);
}

void job_hold(struct job *job, const char *plan, bool keep_open)
{
    text_copy(job->plan, sizeof(job->plan), plan);
    job->plan_stays_open = keep_open;
    job->held = true;
}

void job_let_go(struct job *job)
{
    job->held = false;
    check_drained(job);
}

void job_gone(struct job *job)
{
    if (job->out.empty)
        pipe_close(&job->out);
    if (job->err.empty)
        pipe_close(&job->err);
    quota_use_gone(&job->quota);
    job->gone = true;
    free_if_over(job);
}

void job_follow(struct job *job, struct follower *f)
{
    f->next = job->followers;
    job->followers = f;
}

void job_unfollow(struct job *job, struct follower *f)
{
    for (struct follower **at = &job->followers; *at; at = &(*at)->next) {
        if (*at == f) {
            *at = f->next;
            break;
        }
    }
    free_if_over(job);
}

static void tell_input_end(struct job *job, bool after_backlog)
{
    struct plain_message m = {.texts = {job->id}, .number = after_backlog};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    link_send(job->front->link, REQUEST_INPUT_END, &b);
}

/* The broker has a copy of every descriptor; the end is seen when that is closed, too. */
static void finish_input(struct job *job)
{
    if (job->input < 0)
        return;
    close_input(job);
    tell_input_end(job, false);
}

static void flush_input(struct job *job)
{
    if (job->input < 0)
        return;
    while (backlog_left(&job->backlog) > 0) {
        ssize_t n = backlog_move(&job->backlog, job->input, job->tty);
        if (n == -EAGAIN) {
            if (job->input_watch.fd < 0)
                ignore(events_watch(job->front->events, &job->input_watch, job->input, EPOLLOUT));
            return;
        }
        if (n < 0) { /* nobody reads it any more */
            finish_input(job);
            return;
        }
    }
    events_forget(job->front->events, &job->input_watch);
    if (job->room && !job->input_ends)
        job->room(job->room_context);
    if (job->input_ends)
        finish_input(job);
}

/* What fits goes straight into the pipe, the rest behind what waits already. */
static int put_input(struct job *job, const char *bytes, size_t n)
{
    ssize_t done = backlog_left(&job->backlog) == 0 ? write(job->input, bytes, n) : 0;

    if (done < 0 && errno != EAGAIN && errno != EINTR) {
        finish_input(job); /* nobody reads it any more */
        return 0;
    }
    if (done < 0)
        done = 0;
    if ((size_t)done == n || backlog_add(&job->backlog, bytes + done, n - (size_t)done) == 0)
        return 0;
    if (done == 0)
        return -EAGAIN;
    job_kill(job, CARREL_ENDED_DISK); /* half of it is in, and there is no room for the rest */
    return -EPIPE;
}

static void input_ready(struct watch *watch, uint32_t what)
{
    (void)what;
    flush_input(container_of(watch, struct job, input_watch));
}

int job_input(struct job *job, const char *bytes, size_t n)
{
    if (job->input < 0 || job->input_ends || job->state == JOB_ENDED)
        return -EPIPE;
    if (n > JOB_INPUT_MAX - backlog_left(&job->backlog))
        return -EAGAIN;
    int r = put_input(job, bytes, n);
    if (r == 0)
        flush_input(job);
    return r;
}

void job_end_input(struct job *job)
{
    if (job->input >= 0 && !job->input_ends && job->tty)
        ignore(put_input(job, "\004", 1) == 0); /* a terminal's way to say so */
    job->input_ends = true;
    if (job->input >= 0 && backlog_left(&job->backlog) > 0)
        tell_input_end(job, true);
    flush_input(job);
}

int job_resize(struct job *job, unsigned columns, unsigned rows)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};

    if (!job->tty || job->out.fd < 0)
        return -ENOTTY;
    return ioctl(job->out.fd, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

static void no_matter(void *context, struct answer *answer)
{
    (void)context;
    (void)answer; /* an end is told by EVENT_ENDED; one that has ended already needs no kill */
}

void job_kill(struct job *job, enum carrel_reason reason)
{
    struct plain_message m = {.texts = {job->id}, .number = reason};
    uint64_t tag = link_expect(job->front->link, no_matter, NULL);
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &m);
    link_send(job->front->link, REQUEST_KILL, &b);
}

void job_left(struct job *job, bool was_for_client)
{
    if (was_for_client && job->state == JOB_RUNNING && !job->front->draining)
        job_kill(job, CARREL_ENDED_SIGNAL);
}

void job_end_of(struct front *front, const char *workspace, const char *exec)
{
    struct job *job = job_find(front, exec);

    if (job && strcmp(job->workspace, workspace) == 0)
        job_left(job, true);
}

uint64_t front_jobs_in(const struct front *front, const char *workspace)
{
    uint64_t count = 0;

    for (size_t i = 0; i < FRONT_SLOTS; i++) {
        for (const struct job *job = front->jobs[i]; job; job = job->next)
            count += job->state != JOB_ENDED && strcmp(job->workspace, workspace) == 0;
    }
    return count;
}
