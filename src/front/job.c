/* SPDX-License-Identifier: Apache-2.0 */
#include "front/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "json/result.h"

enum {
    ROW_WITHIN_MS = 20,
    PIPE_NOW = 65536, /* what a pipe holds */
    PIPE_WIDE = 1 << 20,
};

static size_t slot_of(const char *id)
{
    size_t hash = 5381;

    while (*id)
        hash = hash * 33 + (unsigned char)*id++;
    return hash % FRONT_SLOTS;
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
    job->input_watch = (struct watch){.ready = input_ready, .fd = -1};
    job->spool.out = job->spool.turns = -1;
    pipe_init(&job->out, job, SPOOL_OUT);
    pipe_init(&job->err, job, SPOOL_ERR);
    buf_init(&job->queue, JOB_INPUT_MAX);
    strncpy(job->id, id, sizeof(job->id) - 1);
    strncpy(job->workspace, workspace, sizeof(job->workspace) - 1);
    strncpy(job->owner, owner, sizeof(job->owner) - 1);
    job->next = front->jobs[slot_of(job->id)];
    front->jobs[slot_of(job->id)] = job;
    front->job_count++;
    return job;
}

static int write_row(struct job *job, const char *state, const char *result, int64_t ended_ms,
                     struct err *err)
{
    struct store_exec row = {.id = job->id,
                             .workspace = job->workspace,
                             .owner = job->owner,
                             .actor = job->row_actor,
                             .command = job->row_command,
                             .state = state,
                             .result = result,
                             .started_ms = job->row_started_ms,
                             .ended_ms = ended_ms,
                             .tty = job->tty};

    int r = store_exec_add(job->front->store, &row, err);
    timer_stop(job->front->events, &job->row_timer);
    free(job->row_command);
    job->row_command = NULL;
    job->front->rows_due--;
    return r;
}

int job_write_row(struct job *job, struct err *err)
{
    int r = job->row_command ? write_row(job, "running", "", 0, err) : 0;

    if (r < 0) /* one that nobody could find again must not run */
        job_kill(job, CARREL_ENDED_DISK);
    return r;
}

static void row_is_due(struct timer *timer)
{
    struct err err;

    ignore(job_write_row((struct job *)(void *)((char *)timer - offsetof(struct job, row_timer)),
                         &err)); /* it is killed, and says why */
}

int job_keep_row(struct job *job, const char *actor, json_t *command)
{
    strncpy(job->row_actor, actor, sizeof(job->row_actor) - 1);
    job->row_command = json_dumps(command, JSON_COMPACT);
    job->row_started_ms = wall_ms();
    job->row_timer.ring = row_is_due;
    if (!job->row_command)
        return -1;
    job->front->rows_due++;
    return timer_set(job->front->events, &job->row_timer, now_ms() + ROW_WITHIN_MS);
}

void job_write_rows(struct front *front)
{
    struct err err;

    for (size_t i = 0; front->rows_due && i < FRONT_SLOTS; i++) {
        for (struct job *job = front->jobs[i]; job; job = job->next)
            ignore(job_write_row(job, &err)); /* likewise */
    }
}

int job_write_end(struct job *job, const char *result, int64_t ended_ms, struct err *err)
{
    return job->row_command ? write_row(job, "ended", result, ended_ms, err)
                            : store_exec_end(job->front->store, job->id, result, ended_ms, err);
}

static void pipe_close(struct job_pipe *pipe)
{
    events_forget(pipe->job->front->events, &pipe->watch);
    scope_close(&pipe->fd);
}

static void close_input(struct job *job)
{
    events_forget(job->front->events, &job->input_watch);
    scope_close(&job->input);
    buf_clear(&job->queue);
    job->queue_at = 0;
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
    spool_close(&job->spool);
    json_decref(job->result_json);
    free(job->result.denials);
    if (job->row_command) {
        timer_stop(job->front->events, &job->row_timer);
        free(job->row_command);
        job->front->rows_due--;
    }
    free(job);
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
    return job->state == JOB_ENDED && (job->out.fd < 0 || job->out.empty) &&
           (job->err.fd < 0 || job->err.empty);
}

static void check_drained(struct job *job)
{
    struct follower *next;

    if (job->drained || !is_drained(job))
        return;
    job->drained = true;
    job->final = job->has_spool ? job->spool.end : 0;
    for (struct follower *f = job->followers; f; f = next) {
        next = f->next;
        f->drained(f);
    }
    if (job->gone && !job->followers)
        job_free(job);
}

/* What cannot be written down cannot be kept: the command is ended, and its reader is told. */
static void cannot_spool(struct job_pipe *pipe)
{
    pipe_close(pipe);
    job_kill(pipe->job, CARREL_ENDED_DISK);
}

static void stall(struct job_pipe *pipe)
{
    events_forget(pipe->job->front->events, &pipe->watch);
    pipe->stalled = true;
    pipe->job->front->count.stalls++;
}

/* Takes what is there, once: the loop comes back while there is more. The job may be gone
 * afterwards. */
static void take(struct job_pipe *pipe)
{
    struct job *job = pipe->job;
    int r = need_spool(job);
    ssize_t n = r < 0 ? r : spool_take(&job->spool, pipe->fd, pipe->stream);

    if (n == -EAGAIN || n == -EINTR) {
        pipe->empty = job->state == JOB_ENDED && n == -EAGAIN;
    } else if (n == -ENOBUFS) {
        stall(pipe);
    } else if (n == 0) {
        pipe_close(pipe);
    } else if (n < 0) {
        cannot_spool(pipe);
    } else {
        if (n == PIPE_NOW && !pipe->widened) { /* it was full: one that has much to say */
            pipe->widened = true;
            ignore(fcntl(pipe->fd, F_SETPIPE_SZ, PIPE_WIDE)); /* where the host allows it */
        }
        pipe->left -= pipe->left < (uint64_t)n ? pipe->left : (uint64_t)n;
        pipe->empty = job->state == JOB_ENDED && pipe->left == 0;
        job->taken += (uint64_t)n;
        job->front->count.output_bytes += (uint64_t)n;
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
    struct job_pipe *pipe =
        (struct job_pipe *)(void *)((char *)watch - offsetof(struct job_pipe, watch));

    if (what == EPOLLHUP) { /* its end, and nothing before it: no spool for that */
        pipe_close(pipe);
        check_drained(pipe->job);
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
}

void job_run(struct job *job, int *fds, size_t n)
{
    struct follower *next;

    job->tty = n == 1;
    if (job->tty) {
        job->out.stream = SPOOL_TERMINAL;
        job->input = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
        job->out.fd = take_fd(&fds[0]);
    } else if (n >= 2) {
        job->err.fd = take_fd(&fds[n - 1]);
        job->out.fd = take_fd(&fds[n - 2]);
        if (n == 3)
            job->input = take_fd(&fds[0]);
    }
    if (job->input >= 0)
        ignore(fcntl(job->input, F_SETFL, O_NONBLOCK | (job->tty ? O_RDWR : O_WRONLY)) == 0);
    if (job->out.fd >= 0)
        watch_pipe(&job->out);
    if (job->err.fd >= 0)
        watch_pipe(&job->err);
    if (job->state == JOB_ASKED)
        job->state = JOB_RUNNING;
    for (struct follower *f = job->followers; f; f = next) {
        next = f->next;
        f->started(f, NULL);
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
    if (ioctl(pipe->fd, FIONREAD, &inside) < 0)
        inside = 0;
    pipe->left = inside > 0 ? (uint64_t)inside : 0;
    pipe->empty = pipe->left == 0;
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
    job->room = NULL;
    close_input(job);
    /* What it wrote before it ended is still in the pipes. */
    drain(&job->out);
    drain(&job->err);
    check_drained(job);
}

void job_gone(struct job *job)
{
    job->gone = true;
    if (job->drained && !job->followers)
        job_free(job);
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
    if (job->gone && job->drained && !job->followers)
        job_free(job);
}

/* The broker has a copy of every descriptor; the end is seen when that is closed, too. */
static void finish_input(struct job *job)
{
    struct plain_message m = {.texts = {job->id}};
    struct buf b;

    if (job->input < 0)
        return;
    close_input(job);
    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    link_send(job->front->link, REQUEST_INPUT_END, &b);
}

static void flush_input(struct job *job)
{
    if (job->input < 0)
        return;
    while (job->input >= 0 && job->queue_at < job->queue.n) {
        ssize_t n = write(job->input, job->queue.p + job->queue_at, job->queue.n - job->queue_at);
        if (n < 0 && errno == EAGAIN) {
            if (job->input_watch.fd < 0)
                ignore(events_watch(job->front->events, &job->input_watch, job->input, EPOLLOUT));
            return;
        }
        if (n < 0) { /* nobody reads it any more */
            finish_input(job);
            return;
        }
        job->queue_at += (size_t)n;
    }
    events_forget(job->front->events, &job->input_watch);
    buf_clear(&job->queue);
    buf_init(&job->queue, JOB_INPUT_MAX);
    job->queue_at = 0;
    if (job->room && !job->input_ends)
        job->room(job->room_context);
    if (job->input_ends && job->tty && job->input >= 0)
        ignore(write(job->input, "\004", 1) == 1); /* a terminal's way to say so */
    if (job->input_ends)
        finish_input(job);
}

static void input_ready(struct watch *watch, uint32_t what)
{
    (void)what;
    flush_input((struct job *)(void *)((char *)watch - offsetof(struct job, input_watch)));
}

int job_input(struct job *job, const char *bytes, size_t n)
{
    if (job->input < 0 || job->input_ends || job->state == JOB_ENDED)
        return -EPIPE;
    if (n > JOB_INPUT_MAX - (job->queue.n - job->queue_at))
        return -EAGAIN;
    buf_add(&job->queue, bytes, n);
    if (job->queue.failed)
        return -EAGAIN;
    flush_input(job);
    return 0;
}

void job_end_input(struct job *job)
{
    job->input_ends = true;
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
