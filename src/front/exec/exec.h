/* SPDX-License-Identifier: Apache-2.0 */
/* One command as the front sees it: its pipes flow into its spool, and from there to its followers.
 *
 *   exec_new --> asked --(ANSWER_STARTED | ANSWER_EXEC)--> running --(EVENT_ENDED)--> ended
 *           (or both in one: ANSWER_RAN)
 *           --(EVENT_SETTLED, and its pipes are empty)--> drained: followers get the end
 *           --(EVENT_GONE)--> gone, freed
 *
 * A follower neither keeps it alive nor ends it; it ends by itself, by its deadline, or by a kill.
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

enum exec_stage {
    EXEC_ASKED,
    EXEC_RUNNING,
    EXEC_ENDED,
};

struct follower;

struct exec_pipe {
    struct watch watch;
    struct timer pause; /* not watched: more is to gather first */
    struct exec *exec;
    int fd; /* -1: none, or at its end */
    enum spool_stream stream;
    bool widened;  /* asked to hold more */
    bool gathers;  /* ... and it does */
    bool stalled;  /* not watched: a reader is too far behind */
    bool empty;    /* all that the command has written is taken; others may write on */
    uint64_t left; /* so much of it was still inside when it ended */
};

struct exec {
    struct exec *next;
    struct front *front;
    char id[28];
    char workspace[FRONT_ID];
    char owner[FRONT_ID];
    enum exec_stage state;
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
    struct exec_pipe out;
    struct exec_pipe err;
    int input; /* stdin, or the terminal's master again; -1: closed */
    struct watch input_watch;
    struct backlog backlog;      /* input that did not fit yet */
    void (*room)(void *context); /* told whenever that is empty; may be NULL */
    void *room_context;
    bool input_ends; /* close it when that is empty */
    struct follower *followers;
    struct quota_use quota;
    uint64_t counted;  /* bytes of its spool, in the sums of its owner */
    char *row_command; /* JSON, what was asked for, while the row is to be written: exec_keep_row */
    char row_actor[FRONT_ID + 8];
    char plan[28];        /* whose layer it wrote to; "": none */
    bool plan_stays_open; /* else it ends with this command */
    bool held;            /* the end is held back until exec_let_go */
    int64_t row_started_ms;
    struct carrel_result result; /* once ended; no output in it */
    json_t *result_json;         /* likewise */
    json_t *denied;              /* the first events of what it was denied, as it came; or NULL */
    int64_t ended_ms;
};

/* Hears of a command: `started` once, `output` whenever there is more, `drained` once and last. */
struct follower {
    struct follower *next;
    void (*started)(struct follower *f, const struct err *failed); /* NULL: it runs */
    void (*output)(struct follower *f);                            /* there is more in the spool */
    void (*drained)(struct follower *f); /* the end, with exec->result_json */
};

struct exec *exec_new(struct front *front, const char *id, const char *workspace,
                      const char *owner);
struct exec *exec_find(const struct front *front, const char *id);
void exec_free(struct exec *exec);

/* After a restart: goes on with what the last front has written. */
void exec_resume(struct exec *exec);
/* Takes the descriptors of ANSWER_STARTED or ANSWER_EXEC, whose number these flags are, or of
 * ANSWER_RAN: with EXEC_OVER exec_end and exec_gone come next. */
void exec_run(struct exec *exec, int *fds, size_t n, uint64_t flags);
/* ANSWER_STARTED, or ANSWER_RAN. */
void exec_answered(struct exec *exec, struct answer *answer);
/* Ends an exec that could not be started. */
void exec_start_failed(struct exec *exec, const struct err *err);
/* EVENT_ENDED, _SETTLED and _GONE; exec_gone may free it. */
void exec_end(struct exec *exec, const struct ended_message *ended);
/* EVENT_DENIED, of all that run in this sandbox; takes the event for their followers. */
void execs_denied(struct front *front, const char *sandbox, json_t *event);
void exec_settle(struct exec *exec, int unrecorded);
void exec_gone(struct exec *exec);
/* A command of a plan has been asked for: its end, which closes the plan unless that is kept open,
 * is held back until that is done (struct exec_mode). */
void exec_hold(struct exec *exec, const char *plan, bool keep_open);
/* Holds back its end no longer. May free the exec. */
void exec_let_go(struct exec *exec);

/* Its row is written soon, together with those of others: most commands end before anybody asks
 * for them, and a broker that is asked again tells of those without a row. */
int exec_keep_row(struct exec *exec, const char *actor, json_t *command);
/* Writes the row now: before a client gets the id of a command that still runs. */
int exec_write_row(struct exec *exec, struct err *err);
/* All that are due now: before rows are read. May free execs that are over. */
void exec_write_rows(struct front *front);

void exec_follow(struct exec *exec, struct follower *f);
void exec_unfollow(struct exec *exec, struct follower *f);
/* To be called when a reader has moved on: pipes that were stalled are read again. */
void exec_moved_on(struct exec *exec);

enum {
    EXEC_INPUT_MAX = 4 << 20
};

/* Input, which reaches the command also when this front is killed, once this has returned 0.
 * -EPIPE: its input is closed; -EAGAIN: too much waits already. */
int exec_input(struct exec *exec, const char *bytes, size_t n);
/* Likewise its end, behind what waits. */
void exec_end_input(struct exec *exec);
/* -ENOTTY, -errno. */
int exec_resize(struct exec *exec, unsigned columns, unsigned rows);
/* The client that it was started for has left: ends it, if it was for that client alone. It runs on
 * while the front stops, for the next one. */
void exec_left(struct exec *exec, bool was_for_client);
/* The same by its id, if there is one and it was for that client. */
void exec_end_of(struct front *front, const char *workspace, const char *exec_id);
/* Ends its tree. */
void exec_stop(struct exec *exec, enum carrel_reason reason);
