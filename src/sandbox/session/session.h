/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox that stays: commands come and go in it, several at a time. The engine of the daemon, as
 * supervise.c is that of one run. Nothing here waits for the sandbox: what it says arrives through
 * session_serve, which the owner calls when session_fd can be read or session_due_ms is over.
 *
 *   session_start --> starting --(pid 1 stands)--> live
 *   live --(session_end, pid 1 gone, a limit)--> over
 *
 * Each command has a keeper inside: a child of pid 1, subreaper of all that descends from the
 * command, in a control group of its own where the host has one to give. A keeper whose tree is
 * empty waits for the next command; one is kept waiting ahead.
 *
 *   exec_start --> asked --started--> running --ended--> leftover --gone--> freed
 *                    |--ended (could not be started)-----------------^
 *
 * What is asked may be on its way to a keeper that is yet to be made (the table of
 * keeper.c): killed or too late by then, it ends at once, and is never started.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "carrel.h"
#include "protocol/egress.h"
#include "sys/process_count.h"

struct session;
struct exec;

struct exec_request {
    char *const *argv;
    const char *const *env; /* "NAME=value", over the sandbox's; ends with NULL; or NULL */
    const char *cwd;        /* inside, absolute; NULL: / */
    uint64_t timeout_ms;    /* 0: none */
    bool tty;
    bool root;  /* as root inside; for a sandbox with a system of its own */
    bool input; /* a pipe on stdin; otherwise /dev/null (with tty: always) */
    uint32_t rows;
    uint32_t columns;
    struct carrel_limits limits; /* of its own, below those of the sandbox: memory, pids, cpu */
    void *owner;
};

/* What is heard of it. Each may call into the session, but not free it. */
struct session_calls {
    /* Our ends, the owner's to close from now on: stdin or -1, stdout, stderr, as soon as the
     * command was sent; with a terminal its master, -1, -1, when it is there. */
    void (*started)(void *owner, struct exec *exec, int fds[3]);
    /* The command itself has ended, or could not be started (result->note, 126 or 127). Others of
     * its tree may still run. result is valid during the call. */
    void (*ended)(void *owner, struct exec *exec, const struct carrel_result *result);
    /* Nothing of its tree is left; exec is freed after the call. Always after `ended`. */
    void (*gone)(void *owner, struct exec *exec);
    /* Its root stands; perhaps told twice. May be NULL. */
    void (*live)(void *session_owner);
    /* The sockets of its network by name, once, where there is one: those of its name server, and
     * one for each port. Borrowed. */
    void (*network)(void *session_owner, const int *fds, size_t count);
    /* A command has ended: what is known by now of denials elsewhere is to be told (session_deny),
     * before the result is. May be NULL. */
    void (*ending)(void *session_owner);
    /* A command of the user's has had another started as root: which, as it says itself. May be
     * NULL. */
    void (*root)(void *owner, const char *command);
    /* The sandbox is over, after `ended` and `gone` of all its execs: call session_free, later. */
    void (*over)(void *session_owner, const struct err *why);
};

/* Starts it; `spec` says everything but the command (argv, env and timeout are not looked at) and
 * is copied, all but spec->pool, which must stay until every session has been freed. Level ns only.
 * To be called by a thread that stays: pid 1 ends with it. On failure nothing is left. */
int session_start(struct session **ret, const struct carrel_spec *spec,
                  const struct session_calls *calls, void *owner, struct err *err);
/* The places of empty directories that the start of such a sandbox adds to the workspace; fails
 * where the start would, for what is in the way of its mounts. */
int session_points(const struct carrel_spec *spec, void (*each)(void *context, const char *place),
                   void *context, struct err *err);
/* Ends everything in it; `over` tells when that is done. `why` is a word for the results. */
void session_end(struct session *session, const char *why);
/* Ends it now, and waits for that; nothing more is told. What it used is cleared away aside, and
 * with the last session all has been when this returns. */
void session_free(struct session *session);

/* Takes away the control groups that an owner which was killed has left. */
void session_sweep(void);

/* To poll for input; never changes. */
int session_fd(const struct session *session);
/* In how many ms to call session_serve at the latest; -1: never. */
int session_due_ms(const struct session *session);
void session_serve(struct session *session);

/* Asks for a command; the rest is told by the calls. */
int exec_start(struct session *session, const struct exec_request *request, struct exec **ret,
               struct err *err);
/* To the command's process group. */
void exec_signal(struct exec *exec, int number);
/* Ends its whole tree and nothing else. reason: CARREL_ENDED_SIGNAL, or the limit it went over. */
void exec_kill(struct exec *exec, enum carrel_reason reason);
/* While `ended` is told: whether `gone` is told next. */
bool exec_leaves_nothing(const struct exec *exec);
/* While `ended` is told: whether the sandbox could not be made, and no command has been in it. */
bool session_never_stood(const struct session *session, struct err *ret);
/* The key of the authority that is trusted inside; NULL: there is none. */
const char *session_authority(const struct session *session);
/* struct egress_order's places. */
void session_places(const struct session *session, char ret[EGRESS_PLACES + 1]);
/* Running or left over. */
size_t session_execs(const struct session *session);
/* Cpu time of all in it, in ms, that only grows: whether it is idle. */
double session_cpu_ms(const struct session *session);
/* All that runs in it, as far as it is counted. False: it is not known. */
bool session_usage(const struct session *session, struct process_count *ret);
/* Where its disk is bounded and nothing but counting keeps that: bytes that might be added when it
 * was counted last (UINT64_MAX: it is to be counted anew), and how often that has been; else false.
 */
bool session_disk_left(const struct session *session, uint64_t *ret_bytes, uint64_t *ret_counts);
/* Has it counted soon. */
void session_count_disk(struct session *session);
/* A denial that the owner knows of: of all commands that run now. */
void session_deny(struct session *session, const struct carrel_denial *denial);
/* The owner of the command that made a socket at that time (of now_ms) in that control group; 0: in
 * none of a command's own, where the only command can be meant that has none. NULL: it cannot be
 * told for certain. */
void *session_exec_of(const struct session *session, uint64_t group, uint64_t at_ms);
/* Has all its commands stand still, so that nothing of it writes: 0; 1: not yet, to be asked again;
 * -ENOTSUP: this host has no freezer, or not for one of them. None may be started meanwhile, which
 * is up to the caller, until session_thaw. */
int session_freeze(struct session *session);
void session_thaw(struct session *session);
/* Pid 1, as the host sees it. */
int session_pid(const struct session *session);

/* For a process of the owner's that joins it, to see what its commands see. */
struct session_join {
    int pidfd;           /* of pid 1; borrowed */
    int hidden;          /* a directory on the root's mount that its commands cannot see; or -1 */
    int lease;           /* of its uids, for who may outlive it; or -1 */
    uint64_t namespaces; /* CLONE_NEW*, with the one for users */
    uint32_t uid;        /* inside */
    uint32_t gid;
    const void *filter; /* struct sock_filter: that of its commands */
    size_t filter_length;
};

/* False until its root stands: session_calls.live tells when. */
bool session_may_be_joined(const struct session *session, struct session_join *ret);
