/* SPDX-License-Identifier: Apache-2.0 */
/* front/job: the pipes of one command, as its readers and the clock have them taken. All that a job
 * tells the broker, the store and the quotas goes nowhere here. */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "front/core/quota.h"
#include "front/exec/exec.h"
#include "front/exec/output.h"
#include "json/result.h"

// NOLINTBEGIN(readability-non-const-parameter): as they are declared
void link_send(struct link *link, uint32_t kind, struct buf *message)
{
    (void)link;
    (void)kind;
    buf_clear(message);
}

uint64_t link_expect(struct link *link, link_heard *heard, void *context)
{
    (void)link;
    (void)heard;
    (void)context;
    return 1;
}

void link_pass(struct link *link, struct answer *answer)
{
    (void)link;
    (void)answer;
}

int store_exec_add(struct store *store, const struct store_exec *exec, struct err *err)
{
    (void)store;
    (void)exec;
    (void)err;
    return 0;
}

int store_execs_begin(struct store *store, struct err *err)
{
    (void)store;
    (void)err;
    return 0;
}

int store_execs_commit(struct store *store, struct err *err)
{
    (void)store;
    (void)err;
    return 0;
}

int store_exec_end(struct store *store, const char *id, const char *result, int64_t ended_ms,
                   struct err *err)
{
    (void)store;
    (void)id;
    (void)result;
    (void)ended_ms;
    (void)err;
    return 0;
}

int quota_use_begin(struct quota_use *use, struct front *front, const char *owner)
{
    (void)use;
    (void)front;
    (void)owner;
    return 0;
}

void quota_use_answered(struct quota_use *use)
{
    (void)use;
}

void quota_use_gone(struct quota_use *use)
{
    (void)use;
}

void quota_use_end(struct quota_use *use)
{
    (void)use;
}

void output_leave(struct job *job)
{
    (void)job;
}

bool output_may_grow(struct job *job)
{
    (void)job;
    return true;
}

void output_grew(struct job *job)
{
    (void)job;
}

json_t *result_json(const struct carrel_result *result, bool streams)
{
    (void)result;
    (void)streams;
    return json_object();
}

// NOLINTEND(readability-non-const-parameter)

static void hear_start(struct follower *follower, const struct err *failed)
{
    (void)follower;
    (void)failed;
}

static void hear(struct follower *follower)
{
    (void)follower;
}

static char much[65536]; /* as a pipe holds */

struct scene {
    struct settings settings;
    struct front front;
    struct job *job;
    struct follower follower;
    int out; /* the command's ends */
    int err;
    int kept[2]; /* the broker's copies of ours */
};

/* A command that somebody follows, and that has once filled its pipe. */
static bool begin(struct scene *s, const char *id)
{
    int out[2];
    int err[2];

    *s = (struct scene){.settings = {.spool_bytes = 2 << 20},
                        .follower = {.started = hear_start, .output = hear, .drained = hear}};
    s->front.settings = &s->settings;
    s->front.execs = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s->front.execs < 0 || events_open(&s->front.events) < 0 ||
        pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0 || pipe2(err, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    s->job = job_new(&s->front, id, "w", "o");
    if (!s->job)
        return false;
    job_follow(s->job, &s->follower);
    s->kept[0] = fcntl(out[0], F_DUPFD_CLOEXEC, 3);
    s->kept[1] = fcntl(err[0], F_DUPFD_CLOEXEC, 3);
    s->out = out[1];
    s->err = err[1];
    job_run(s->job, (int[4]){out[0], err[0], -1, -1}, 2, 0);
    bool full = write(s->out, much, sizeof(much)) == (ssize_t)sizeof(much);
    events_turn(s->front.events);
    return full && s->job->out.gathers && s->job->spool.end == sizeof(much);
}

static void fill(const struct scene *s)
{
    while (write(s->out, much, sizeof(much)) > 0)
        ;
}

static void command_ends(struct scene *s)
{
    (void)close(s->out);
    (void)close(s->err);
    job_end(s->job, &(struct ended_message){0});
}

static void end(struct scene *s)
{
    events_close(s->front.events);
    (void)close(s->front.execs);
    (void)close(s->kept[0]);
    (void)close(s->kept[1]);
}

static void nothing(struct timer *timer)
{
    (void)timer;
}

/* Also when there is nothing left to wait for. */
static void turn_once_more(struct scene *s)
{
    struct timer soon = {.ring = nothing};

    if (timer_set(s->front.events, &soon, now_ms() + 1) == 0)
        events_turn(s->front.events);
    timer_stop(s->front.events, &soon);
}

/* What it says meanwhile is held back a moment, and its end comes while its reader is behind. */
static bool ends_while_it_gathers(struct scene *s, struct spool_reader *reader)
{
    struct job_pipe *out = &s->job->out;

    if (spool_reader_add(&s->job->spool, reader, 0, true) < 0)
        return false;
    for (int i = 0; i < 1000 && !out->stalled; i++) {
        fill(s);
        events_turn(s->front.events);
    }
    for (int i = 0; i < 1000 && (!out->pause.due_ms || out->stalled); i++) {
        reader->at += 100000;
        job_moved_on(s->job);
        fill(s);
        events_turn(s->front.events);
    }
    if (!out->pause.due_ms || out->stalled)
        return false;
    command_ends(s);
    return out->stalled && !out->pause.due_ms;
}

TEST(a_reader_that_moves_on_has_the_pipe_watched_once)
{
    struct spool_reader reader;
    struct scene s;

    CHECK(begin(&s, "slow") && ends_while_it_gathers(&s, &reader));
    uint64_t stalls = s.front.count.stalls;
    reader.at += 32768;
    job_moved_on(s.job);
    (void)poll(NULL, 0, 3);
    for (int i = 0; i < 5 && !s.job->out.stalled; i++)
        events_turn(s.front.events); /* takes what there is room for, and stalls again */
    CHECK(s.job->out.stalled && s.front.count.stalls == stalls + 1);
    turn_once_more(&s);
    CHECK(s.front.count.stalls == stalls + 1);
    spool_reader_drop(&s.job->spool, &reader);
    job_moved_on(s.job);
    for (int i = 0; i < 10 && s.job->out.fd >= 0 && !s.job->out.empty; i++)
        events_turn(s.front.events);
    CHECK(s.job->out.empty || s.job->out.fd < 0);
    job_unfollow(s.job, &s.follower);
    job_settle(s.job, 0);
    job_gone(s.job);
    end(&s);
    return 0;
}

/* Its watch must be gone with it, though the broker has the pipe open. */
TEST(a_job_whose_reader_leaves_is_freed_and_not_called_again)
{
    struct spool_reader reader;
    struct scene s;

    CHECK(begin(&s, "left") && ends_while_it_gathers(&s, &reader));
    spool_reader_drop(&s.job->spool, &reader);
    job_moved_on(s.job);
    job_unfollow(s.job, &s.follower);
    (void)poll(NULL, 0, 3);
    for (int i = 0; i < 20 && s.job->out.fd >= 0 && !s.job->out.empty; i++)
        events_turn(s.front.events);
    job_settle(s.job, 0);
    job_gone(s.job);
    turn_once_more(&s);
    end(&s);
    return 0;
}

TEST(what_is_held_back_comes_before_what_was_written_later)
{
    char bytes[8] = "";
    struct scene s;

    CHECK(begin(&s, "order"));
    CHECK(write(s.out, "a", 1) == 1);
    events_turn(s.front.events); /* a small piece: more is to gather */
    CHECK(s.job->out.pause.due_ms);
    CHECK(write(s.out, "b", 1) == 1 && write(s.err, "c", 1) == 1);
    events_turn(s.front.events);
    CHECK(pread(s.job->spool.out, bytes, 3, sizeof(much)) == 3 && memcmp(bytes, "abc", 3) == 0);
    CHECK(write(s.out, "d", 1) == 1); /* and from now on none is held back */
    events_turn(s.front.events);
    CHECK(!s.job->out.pause.due_ms && !s.job->err.pause.due_ms);
    command_ends(&s);
    job_unfollow(s.job, &s.follower);
    job_settle(s.job, 0);
    job_gone(s.job);
    end(&s);
    return 0;
}
