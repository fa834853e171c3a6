/* SPDX-License-Identifier: Apache-2.0 */
/* front/exec: the pipes of one command, as its readers and the clock have them taken. All that
 * an exec tells the broker, the store and the quotas goes nowhere here. */
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
void broker_send(struct channel *channel, uint32_t kind, struct buf *message)
{
    (void)channel;
    (void)kind;
    buf_clear(message);
}

uint64_t broker_expect(struct channel *channel, broker_heard *heard, void *context)
{
    (void)channel;
    (void)heard;
    (void)context;
    return 1;
}

void broker_pass(struct channel *channel, struct answer *answer)
{
    (void)channel;
    (void)answer;
}

int store_exec_add(struct store *store, const struct store_exec *e, struct err *err)
{
    (void)store;
    (void)e;
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

void output_leave(struct exec *exec)
{
    (void)exec;
}

bool output_may_grow(struct exec *exec)
{
    (void)exec;
    return true;
}

void output_grew(struct exec *exec)
{
    (void)exec;
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
    struct exec *exec;
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
    s->front.spools = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s->front.spools < 0 || events_open(&s->front.events) < 0 ||
        pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0 || pipe2(err, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    s->exec = exec_new(&s->front, id, "w", "o");
    if (!s->exec)
        return false;
    exec_follow(s->exec, &s->follower);
    s->kept[0] = fcntl(out[0], F_DUPFD_CLOEXEC, 3);
    s->kept[1] = fcntl(err[0], F_DUPFD_CLOEXEC, 3);
    s->out = out[1];
    s->err = err[1];
    exec_run(s->exec, (int[4]){out[0], err[0], -1, -1}, 2, 0);
    bool full = write(s->out, much, sizeof(much)) == (ssize_t)sizeof(much);
    events_turn(s->front.events);
    return full && s->exec->out.gathers && s->exec->spool.end == sizeof(much);
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
    exec_end(s->exec, &(struct ended_message){0});
}

static void end(struct scene *s)
{
    events_close(s->front.events);
    (void)close(s->front.spools);
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
    struct exec_pipe *out = &s->exec->out;

    if (spool_reader_add(&s->exec->spool, reader, 0, true) < 0)
        return false;
    for (int i = 0; i < 1000 && !out->stalled; i++) {
        fill(s);
        events_turn(s->front.events);
    }
    for (int i = 0; i < 1000 && (!out->pause.due_ms || out->stalled); i++) {
        reader->at += 100000;
        exec_moved_on(s->exec);
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
    exec_moved_on(s.exec);
    (void)poll(NULL, 0, 3);
    for (int i = 0; i < 5 && !s.exec->out.stalled; i++)
        events_turn(s.front.events); /* takes what there is room for, and stalls again */
    CHECK(s.exec->out.stalled && s.front.count.stalls == stalls + 1);
    turn_once_more(&s);
    CHECK(s.front.count.stalls == stalls + 1);
    spool_reader_drop(&s.exec->spool, &reader);
    exec_moved_on(s.exec);
    for (int i = 0; i < 10 && s.exec->out.fd >= 0 && !s.exec->out.empty; i++)
        events_turn(s.front.events);
    CHECK(s.exec->out.empty || s.exec->out.fd < 0);
    exec_unfollow(s.exec, &s.follower);
    exec_settle(s.exec, 0);
    exec_gone(s.exec);
    end(&s);
    return 0;
}

/* Its watch must be gone with it, though the broker has the pipe open. */
TEST(an_exec_whose_reader_leaves_is_freed_and_not_called_again)
{
    struct spool_reader reader;
    struct scene s;

    CHECK(begin(&s, "left") && ends_while_it_gathers(&s, &reader));
    spool_reader_drop(&s.exec->spool, &reader);
    exec_moved_on(s.exec);
    exec_unfollow(s.exec, &s.follower);
    (void)poll(NULL, 0, 3);
    for (int i = 0; i < 20 && s.exec->out.fd >= 0 && !s.exec->out.empty; i++)
        events_turn(s.front.events);
    exec_settle(s.exec, 0);
    exec_gone(s.exec);
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
    CHECK(s.exec->out.pause.due_ms);
    CHECK(write(s.out, "b", 1) == 1 && write(s.err, "c", 1) == 1);
    events_turn(s.front.events);
    CHECK(pread(s.exec->spool.out, bytes, 3, sizeof(much)) == 3 && memcmp(bytes, "abc", 3) == 0);
    CHECK(write(s.out, "d", 1) == 1); /* and from now on none is held back */
    events_turn(s.front.events);
    CHECK(!s.exec->out.pause.due_ms && !s.exec->err.pause.due_ms);
    command_ends(&s);
    exec_unfollow(s.exec, &s.follower);
    exec_settle(s.exec, 0);
    exec_gone(s.exec);
    end(&s);
    return 0;
}
