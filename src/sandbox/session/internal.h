/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a session share: session.c has the sandbox as a whole, keeper.c the
 * processes that keep commands, exec.c the commands, result.c what is told of them.
 */
#pragma once

#include "base/buf.h"
#include "sandbox/denial/denial.h"
#include "sandbox/limits/limits.h"
#include "sandbox/run.h"
#include "sandbox/session/group.h"
#include "sandbox/session/session.h"
#include "sandbox/start.h"
#include "sandbox/wire.h"
#include "sys/message.h"
#include "sys/process_count.h"

#define SESSION_OUT_OF_MEMORY "--memory: the sandbox ran out of its memory"

enum {
    ANSWER_WITHIN_MS = 30000, /* a keeper that is asked for, a command that is to start */
    EMPTY_WITHIN_MS = 10000,  /* a tree that is killed: until there are fewer of it, and again */
    EMPTY_AT_MOST_MS = 60000, /* ... but not for longer: every command ends */
    IDLE_KEEPERS = 2,         /* more are sent away */
    COUNT_AFTER_MS = 20,      /* refusals, when nobody waits for it */
    AHEAD_AFTER_MS = 20,      /* a sandbox was started: the first of them that nobody waits for */
    PAUSE_MS = 1000           /* after one was killed */
};

/* A descriptor the session waits for. */
enum source_kind {
    SOURCE_FIRST_PROCESS, /* pid 1's socket */
    SOURCE_END,           /* its pidfd */
    SOURCE_DENIALS,
    SOURCE_LIMITS,
    SOURCE_GROUPS, /* a group has been made */
    SOURCE_KEEPER,
    SOURCE_MEMORY, /* of a command with a limit of its own */
};

struct source {
    enum source_kind kind;
    int fd;   /* as it is known to epoll; -1: not */
    void *of; /* struct keeper or struct exec */
};

enum keeper_state {
    KEEPER_ASKED, /* pid 1 is to start it */
    KEEPER_IDLE,
    KEEPER_BUSY,
    KEEPER_LOST, /* its socket has ended */
};

struct keeper {
    struct keeper *next;
    struct session *session;
    enum keeper_state state;
    struct source source;
    int socket;
    pid_t pid; /* on this side, by the kernel's word */
    int pidfd;
    int permit;          /* KEEPER_ASKED: of the command that was sent ahead; or -1 */
    uint64_t due_ms;     /* KEEPER_ASKED: until then */
    struct exec *exec;   /* its command, or the one it was asked for */
    bool reserved;       /* for a command with limits of its own: never used again */
    struct group *group; /* or NULL */
    struct group *late;  /* to be that, of one whose command began without; freeze.c */
    char *unsent;        /* what its socket did not take yet */
    size_t unsent_at;
    size_t unsent_size;
    double spent_user_ms; /* by earlier commands */
    double spent_system_ms;
};

enum exec_state {
    EXEC_QUEUED, /* for a keeper; with one: sent ahead, or to come when it is in its group */
    EXEC_ASKED,  /* it has been told to its keeper */
    EXEC_RUNNING,
    EXEC_LEFTOVER, /* ended; others of its tree may run */
    EXEC_GONE,
};

/* How often each denial had been seen when a command began. */
struct denial_mark {
    unsigned counts[CARREL_MAX_DENIALS];
    size_t count;
    unsigned dropped;
    bool blind; /* nobody knows how many refusals of the kernel's are of earlier commands */
};

struct exec {
    struct exec *next;
    struct session *session;
    struct keeper *keeper; /* or NULL */
    enum exec_state state;
    void *owner;
    bool tty;
    bool limited;
    struct carrel_limits limits;
    struct source memory;
    char *message; /* until it is sent */
    size_t message_size;
    int command_fds[3];
    int fds[3]; /* our ends, until the owner has them */
    bool handed;
    uint64_t began_us;
    uint64_t deadline_ms; /* 0: none */
    uint64_t due_ms;      /* EXEC_ASKED: an answer; 0: none */
    bool failed;          /* could not be started, and that is yet to be told */
    int failed_status;
    struct err failure;
    bool killed;
    bool leaves_nothing; /* of its tree, when it has ended */
    enum carrel_reason reason;
    uint64_t kill_ms;  /* since then */
    uint64_t grace_ms; /* since when there are no fewer */
    size_t left;       /* so many were there then; SIZE_MAX: nobody knows */
    uint64_t pass_ms;  /* when to look again; 0: the keeper will tell */
    uint64_t pause_ms;
    struct process_count at_kill;
    uint64_t oom_before; /* kills of the kernel's, for lack of memory */
    struct denial_mark mark;
};

enum session_state {
    SESSION_STARTING,
    SESSION_LIVE,
    SESSION_ENDING, /* pid 1 has been killed */
    SESSION_OVER,
};

struct session {
    struct carrel_spec spec; /* a copy, its strings in the arena */
    struct arena arena;
    struct run *run;
    struct live live;
    struct denials denials;
    uint64_t refusals;     /* of the kernel's, as last counted (denial.h) */
    uint64_t uncounted_ms; /* when to count those of commands that ended well; 0: there are none */
    int hidden;            /* see session_join */
    bool has_listener;
    struct limit_watch limits;
    bool quiet; /* no command is there, and the limits were looked at since the last one */
    struct session_calls calls;
    void *owner;
    enum session_state state;
    enum carrel_reason reason; /* why it ends */
    struct err why;
    bool never_stood; /* it ended before its root stood, and nobody had asked for that */
    bool started;     /* pid 1 has been made, and its run is to be cleared */
    int epoll;
    int tell;
    struct source first_process;
    struct source end;
    struct source denial;
    struct source limit;
    struct source groups;
    struct group_home home;
    struct keeper *keepers;
    struct keeper *lost; /* freed when nobody can hold an event of theirs */
    struct exec *execs;
    struct exec *gone; /* likewise */
    size_t exec_count;
    bool stands_still; /* or is about to */
    uint64_t gone_ms;  /* when the last of them went that had no group of its own */
    uint64_t ahead_ms; /* no keeper without need before that */
    bool ahead_due;    /* ... and one then */
    char *room;        /* a message being written */
    uint64_t oom_kills;
    uint64_t oom_looked_ms;
    double cpu_ms; /* the most seen */
};

/* The number of its own control group; 0: it has none. */
uint64_t exec_group(const struct exec *exec);

/* --- session.c --- */

/* Waits for `fd` from now on, and for none with -1. False: there is no memory for it. */
bool source_set(struct session *session, struct source *source, int fd, uint32_t events);
/* Whether pid 1 has gone, or is about to; before its end is known those it kills can be. */
bool session_is_dying(const struct session *session);
/* All of its stages are done: who waits to join it is told. */
void session_stands(struct session *session);
/* Ends everything for that reason. `why` is set by the caller, or is the first one's. */
void session_end_for(struct session *session, enum carrel_reason reason);
/* 1, 0 at the end, -EAGAIN when there is nothing, or -errno. */
int session_read_reply(int socket, struct reply *ret, int fds[MESSAGE_MAX_FDS], size_t *ret_count);

/* --- spec.c --- */

int session_copy_spec(struct session *session, const struct carrel_spec *spec, struct err *err);

/* --- result.c --- */

uint64_t exec_now_us(void);
/* Remembers what was denied before. */
void exec_mark_denials(struct exec *exec);
/* What no command that runs now has met. */
void session_count_refusals(struct session *session);
/* Of its own limit, or the sandbox of its, which then ends too. */
bool exec_ran_out_of_memory(const struct exec *exec);
/* That the command itself has ended, once: with its keeper's word, or as it was decided. */
void exec_tell_end(struct exec *exec, const struct reply *reply);

/* --- keeper.c --- */

/* Has pid 1 make one; for `exec` alone, or for whoever comes. False: it cannot be asked. */
bool keeper_ask(struct session *session, struct exec *exec);
void keeper_ready(struct keeper *keeper, uint32_t events);
/* Closes its socket; what became of its command is the caller's business. */
void keeper_lose(struct keeper *keeper);
void keeper_free(struct keeper *keeper);
/* Whether its tree can be ended without it. */
bool keeper_has_group(const struct keeper *keeper);
/* Groups that were made late may have come. */
void session_hear_late(struct session *session);
/* Somebody inside asks for a command of root's on this connection: it goes to the keeper of his
 * command, or nowhere. Borrowed. */
void keepers_pass_asker(struct session *session, int asker);
/* Its command has gone. */
void keeper_rest(struct keeper *keeper);
/* The message is sent now or later; false: the keeper is lost. */
bool keeper_send(struct keeper *keeper, uint32_t kind, const void *bytes, size_t size,
                 const int fds[3], size_t fd_count);
/* The command to a keeper that is yet to be made; false: it is to wait for it. */
bool keeper_send_ahead(struct keeper *keeper, const struct exec *exec);
/* Of what was sent ahead, if anything: true: it has not been read, and never will be. Else the
 * keeper has said hello before it. */
bool keeper_take_back(const struct keeper *keeper);
/* Gives waiting commands to keepers that can take them, and sees to it that there are some. */
void keepers_dispatch(struct session *session);

/* --- exec.c --- */

/* Tells the command to its keeper; where that fails the keeper is lost, and it waits again. */
void exec_give(struct exec *exec, struct keeper *keeper);
/* ... to one that is yet to be made; false: it goes on waiting. */
bool exec_give_ahead(struct exec *exec, struct keeper *keeper);
/* The keeper that it was sent to ahead is there. */
void exec_meet_keeper(struct exec *exec);
/* What its keeper says. */
void exec_hear(struct exec *exec, const struct reply *reply, int *fds, size_t *fd_count);
/* Its keeper has gone, without having been asked to. */
void exec_lose_keeper(struct exec *exec);
/* It cannot be started; told by exec_attend. */
void exec_fail(struct exec *exec, int status, const struct err *err);
/* Nothing of it is left: tells that, its end too where it is yet to be told, and forgets it. */
void exec_finish(struct exec *exec);
/* What is due: its deadline, another look at what was killed. */
void exec_attend(struct exec *exec, uint64_t now);
/* When to look after it; UINT64_MAX: never. */
uint64_t exec_due_ms(const struct exec *exec);
