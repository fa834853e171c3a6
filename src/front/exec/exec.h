/* SPDX-License-Identifier: Apache-2.0 */
/* One command as the front sees it: its pipes flow into its spool, and from there to whoever
 * follows.
 *
 *   job_new --> asked --(ANSWER_STARTED | ANSWER_EXEC)--> running --(EVENT_ENDED)--> ended
 *           (or both in one: ANSWER_RAN)
 *           --(EVENT_SETTLED, and its pipes are empty)--> drained: followers get the end
 *           --(EVENT_GONE)--> gone, freed
 *
 * Nobody who follows keeps it alive or ends it; it ends by itself, by its deadline, or by a kill.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/events.h"
#include "front/core/quota.h"
#include "front/exec/input.h"
#include "front/exec/spool.h"
#include "protocol/broker.h"

enum job_state {
    JOB_ASKED,
    JOB_RUNNING,
    JOB_ENDED,
};

struct follower;

struct job_pipe {
    struct watch watch;
    struct timer pause; /* not watched: more is to gather first */
    struct job *job;
    int fd; /* -1: none, or at its end */
    enum spool_stream stream;
    bool widened;  /* asked to hold more */
    bool gathers;  /* ... and it does */
    bool stalled;  /* not watched: a reader is too far behind */
    bool empty;    /* all that the command has written is taken; others may write on */
    uint64_t left; /* so much of it was still inside when it ended */
};

struct job {
    struct job *next;
    struct front *front;
    char id[28];
    char workspace[FRONT_ID];
    char owner[FRONT_ID];
    enum job_state state;
    bool tty;
    bool settled;
    int unrecorded; /* errno: ended because the record of its start could not be written */
    bool drained;
    bool gone;
    bool has_spool;
    uint64_t most_output; /* it is ended beyond that; 0: no bound */
    bool over_output;
    uint64_t final; /* where the output of the command ended, once drained */
    uint64_t taken;
    struct spool spool;
    struct job_pipe out;
    struct job_pipe err;
    int input; /* stdin, or the terminal's master again; -1: closed */
    struct watch input_watch;
    struct backlog backlog;      /* input that did not fit yet */
    void (*room)(void *context); /* told whenever that is empty; may be NULL */
    void *room_context;
    bool input_ends; /* close it when that is empty */
    struct follower *followers;
    struct quota_use quota;
    uint64_t counted;  /* bytes of its spool, in the sums of its owner */
    char *row_command; /* JSON, what was asked for, while the row is to be written: job_keep_row */
    char row_actor[FRONT_ID + 8];
    char plan[28];        /* whose layer it wrote to; "": none */
    bool plan_stays_open; /* else it ends with this command */
    bool held;            /* until that is done nobody is told the end */
    int64_t row_started_ms;
    struct carrel_result result; /* once ended; no output in it */
    json_t *result_json;         /* likewise */
    json_t *denied;              /* the first events of what it was denied, as it came; or NULL */
    int64_t ended_ms;
};

/* Who wants to know. Told, each once and in this order, unless it is dropped before. */
struct follower {
    struct follower *next;
    void (*started)(struct follower *f, const struct err *failed); /* NULL: it runs */
    void (*output)(struct follower *f);                            /* there is more in the spool */
    void (*drained)(struct follower *f); /* the end, with job->result_json */
};

struct job *job_new(struct front *front, const char *id, const char *workspace, const char *owner);
struct job *job_find(const struct front *front, const char *id);
void job_free(struct job *job);

/* After a restart: goes on with what the last front has written. */
void job_resume(struct job *job);
/* Takes the descriptors of ANSWER_STARTED or ANSWER_EXEC, whose number these flags are, or of
 * ANSWER_RAN: with EXEC_OVER job_end and job_gone come next. */
void job_run(struct job *job, int *fds, size_t n, uint64_t flags);
/* ANSWER_STARTED, or ANSWER_RAN. */
void job_answered(struct job *job, struct answer *answer);
/* It could not be started. */
void job_fail(struct job *job, const struct err *err);
/* EVENT_ENDED, _SETTLED and _GONE; job_gone may free it. */
void job_end(struct job *job, const struct ended_message *ended);
/* EVENT_DENIED, of all that run in this sandbox; takes the event for their followers. */
void jobs_denied(struct front *front, const char *sandbox, json_t *event);
void job_settle(struct job *job, int unrecorded);
void job_gone(struct job *job);
/* A command of a plan has been asked for: its end, which closes the plan unless that is kept open,
 * is held back until that is done (struct exec_mode). */
void job_hold(struct job *job, const char *plan, bool keep_open);
/* Nothing holds back its end any more. May free it. */
void job_let_go(struct job *job);

/* Its row is written soon, together with those of others: most commands end before anybody asks
 * for them, and a broker that is asked again tells of those without a row. */
int job_keep_row(struct job *job, const char *actor, json_t *command);
/* Now: before its id is told to anybody while it runs. */
int job_write_row(struct job *job, struct err *err);
/* All that are due now: before rows are read. May free jobs that are over. */
void job_write_rows(struct front *front);

void job_follow(struct job *job, struct follower *f);
void job_unfollow(struct job *job, struct follower *f);
/* A reader has moved on: whoever was stalled may go on. */
void job_moved_on(struct job *job);

enum {
    JOB_INPUT_MAX = 4 << 20
};

/* Input, which reaches the command also when this front is killed, once this has returned 0.
 * -EPIPE: its input is closed; -EAGAIN: too much waits already. */
int job_input(struct job *job, const char *bytes, size_t n);
/* Likewise its end, behind what waits. */
void job_end_input(struct job *job);
/* -ENOTTY, -errno. */
int job_resize(struct job *job, unsigned columns, unsigned rows);
/* The client that it was started for has left: ends it, if it was for that client alone. It runs on
 * while the front stops, for the next one. */
void job_left(struct job *job, bool was_for_client);
/* The same by its id, if there is one and it was for that client. */
void job_end_of(struct front *front, const char *workspace, const char *exec);
/* Ends its tree. */
void job_kill(struct job *job, enum carrel_reason reason);
