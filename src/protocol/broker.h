/* SPDX-License-Identifier: Apache-2.0 */
/* What the front may ask of the broker, and what it hears. Both over one socket pair, framed by
 * sys/message.h, bodies written with base/pack.h. Every request begins with a tag that its answer
 * repeats; answers come in any order. The broker trusts nothing in a request: ids are checked, host
 * paths are never taken from one, and anything that is not exactly as said here ends the front. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "carrel.h"

enum {
    PROTOCOL_ID = 64,         /* longest id, of a workspace, a bucket, an owner */
    PROTOCOL_EXEC_ID = 27,    /* 'x' and 26 characters of base 32 */
    PROTOCOL_TEXT = 1024,     /* longest text in a record */
    PROTOCOL_DETAILS = 65536, /* longest details of a record: JSON, written by the front */
};

enum request_kind {
    /* The first one, once: which sandboxes and commands live. Answered by ANSWER_SANDBOX and
     * ANSWER_EXEC for each, then ANSWER_RESUMED. */
    REQUEST_RESUME = 1,
    REQUEST_TREE_MAKE,  /* bucket, workspace */
    REQUEST_TREE_TRASH, /* bucket, workspace, stamp: its tree goes to the trash; must be asleep */
    REQUEST_TREE_BACK,  /* bucket, workspace, stamp: and comes back */
    REQUEST_TREE_PURGE, /* bucket, workspace, stamp: is removed for good */
    REQUEST_EXEC,       /* struct exec_message; wakes the workspace. ANSWER_STARTED or _ERROR */
    REQUEST_SIGNAL,     /* exec, number */
    REQUEST_KILL,       /* exec, why: enum carrel_reason, of which SIGNAL, OUTPUT and DISK */
    /* workspace, why: ends its sandbox. ANSWER_OK when that is over. With "staged" the environment
     * that waits in it takes its place then. */
    REQUEST_SLEEP,
    REQUEST_FORGET, /* exec: its end has been written down. No answer */
    REQUEST_RECORD, /* struct record_message. ANSWER_OK when it is on disk */
    /* exec; number 0: the broker closes its own copy of stdin, which would otherwise keep the
     * command from seeing the end. 1: the end follows what waits in the backlog; the next front is
     * told so. No answer; heard also when the front that sent it has died since. */
    REQUEST_INPUT_END,
    REQUEST_TREE_SCAN, /* bucket: the names of its trees. ANSWER_NAMES: a list */
    REQUEST_TREE_LOOK, /* bucket, workspace, path: what its tree has there. ANSWER_ENTRY */
    /* struct exec_message, of which bucket, workspace and what is shared count: the empty
     * directories that its first command will add to its tree. ANSWER_NAMES: a list; ANSWER_ERROR:
     * what is in the way of the first command. */
    REQUEST_TREE_POINTS,
    REQUEST_PONG,  /* number: of the EVENT_PING that it answers. No answer */
    REQUEST_FILES, /* struct exec_message, of which the spec counts: wakes the workspace. */
    /* ANSWER_FILES: workspace; + a socket to its file server, see protocol/files.h */
    /* bucket, workspace: to read what lies in its tree without waking it. ANSWER_FILES; + a socket
     * to one that passes on what it cannot answer. ANSWER_ERROR: it has to be woken. */
    REQUEST_FILES_ASLEEP,
    /* struct plan_message: a short-lived process that does one thing with a plan (carrel-plan).
     * ANSWER_PLAN when it runs, ANSWER_PLAN_STEPS now and then, ANSWER_PLAN_ENDED at last; or one
     * ANSWER_ERROR, when it could not be begun: with EBUSY while commands run in the workspace. */
    REQUEST_PLAN_JOB,
    /* number: the tag of a REQUEST_PLAN_JOB that is to end early, if it changes nothing or has not
     * begun. No answer of its own. */
    REQUEST_PLAN_CANCEL,
    REQUEST_PLAN_DROP, /* bucket, workspace, plan: its directory is removed */
    /* bucket, workspace, plan, copy: a plan of that id whose layer is a copy of this one's, for a
     * command that looks at what is planned. */
    REQUEST_PLAN_VIEW,
    REQUEST_PLAN_SCAN, /* bucket: all plans that have a directory. ANSWER_NAMES: "workspace/plan" */
    /* bucket, workspace, template: the template's files that are not shared are copied into the
     * tree, which has just been made. */
    REQUEST_TREE_FILL,
    /* bucket, workspace, template: the tree becomes that template's. ANSWER_TEMPLATE, also when it
     * was half done and is finished now. Number: enum freeze_flags. */
    REQUEST_TEMPLATE_FREEZE,
    REQUEST_TEMPLATE_REMOVE, /* template: no workspace is on it */
    /* workspace, why: all that has its tree ends, shown to another, too, and what waits to have it
     * is refused, as it was asked for under another policy. ANSWER_OK when nothing has it. */
    REQUEST_TREE_QUIET,
    /* struct exec_message, of which the spec counts: its rules of the network are those of the
     * workspace's sandboxes that are awake from now on, where all else is as it was and they lead
     * to the same ports. ANSWER_NAMES: those rules, with what the sets stand for; nothing is woken.
     * ANSWER_ERROR: they are no rules, or go beyond what the settings allow. */
    REQUEST_NETWORK,
    REQUEST_STORE_SET,    /* see protocol/store_job.h: a store of that name is kept */
    REQUEST_STORE_REMOVE, /* store */
    /* ANSWER_NAMES: a list, STORE_FACTS texts of each; nothing that is secret. */
    REQUEST_STORE_LIST,
    /* struct store_job (protocol/store_job.h): a short-lived process that does one thing with a
     * store (carrel-mover). ANSWER_STORE when it runs and ANSWER_STORE_ENDED at last; or one
     * ANSWER_ERROR. It dies with the front. */
    REQUEST_STORE_JOB,
    REQUEST_STORE_CANCEL, /* number: the tag of a REQUEST_STORE_JOB that is to end. No answer */
    /* owner, name, the value as it was sealed (base/seal.h) for "owner/name": it holds for the next
     * request of a sandbox; "": it is none any more. ANSWER_OK. */
    REQUEST_SECRET_SET,
    REQUEST_SECRET_LIST, /* owner. ANSWER_NAMES: pairs of a name and when it was set, in ms */
    REQUEST_FORK, /* bucket, workspace, whose tree was just made, other, snapshot: it stands on it
                   */
    /* workspace; number 1: all in its sandbox stands still, with what it has in memory, until it
     * ends, a command is to run in it, or 0 is asked for. ANSWER_OK then; ANSWER_ERROR: it cannot,
     * and goes on. */
    REQUEST_FREEZE,
    /* bucket, workspace, which is asleep: what it has changed of its system is removed. ANSWER_OK.
     */
    REQUEST_SYSTEM_RESET,
    /* workspace. ANSWER_NAMES: what its sandbox uses now, as decimal numbers: since when it lives
     * (ms), processor time so far (ms), thousandths of one processor since it was last asked for,
     * memory (bytes), threads. None: it sleeps. */
    REQUEST_USAGE,
    REQUEST_COUNT_,
};

enum {
    USAGE_NUMBERS = 5,      /* of the answer to REQUEST_USAGE */
    PROTOCOL_NAMES = 10000, /* most in one list */
};

enum answer_kind {
    ANSWER_OK = REQUEST_COUNT_,
    ANSWER_ERROR,   /* struct err: code, errno, text */
    ANSWER_SANDBOX, /* workspace, memory, pids: what its policy allows, as numbers; since_ms */
    /* workspace, exec; number: enum exec_state and flags; + descriptors as in ANSWER_STARTED, with
     * what is still in them. Of one that has ended EVENT_ENDED follows: at once, or if nobody was
     * told of its start, when its record is on disk. */
    ANSWER_EXEC,
    /* SHA-256 of the admin key, in hex; DIR as it was named to the daemon; what secrets are sealed
     * for, in hex */
    ANSWER_RESUMED,
    /* exec; number: flags; + stdin, its backlog, stdout, stderr (4 descriptors); stdout, stderr
     * (2); with EXEC_TERMINAL its master and its backlog (2); none (0) when the command could not
     * be executed, which EVENT_ENDED then tells (126, 127). In ANSWER_EXEC without stdin and
     * backlog when REQUEST_INPUT_END was sent, or it has ended. */
    ANSWER_STARTED,
    /* struct ended_message; + stdout, stderr: ANSWER_STARTED and EVENT_ENDED in one, of a quiet
     * command without input that was over soon. */
    ANSWER_RAN,
    ANSWER_NAMES, /* a list */
    ANSWER_ENTRY, /* where a link leads, or ""; number: enum tree_look */
    ANSWER_FILES,
    ANSWER_PLAN,       /* plan; number 1: its layer's marks are root's; + where to write its job */
    ANSWER_PLAN_STEPS, /* plan; number: so many steps of it are done */
    /* plan, why ("": by itself, "timeout", "cancelled"), for how many ms it had the workspace
     * frozen; number: how much it has answered, its exit status from bit 48 on (255: it was
     * killed); + the answer, a file. What is to be on record of it is on disk. */
    ANSWER_PLAN_ENDED,
    ANSWER_TEMPLATE,    /* template, bytes, files: both as numbers */
    ANSWER_STORE,       /* + what it tells, to read: lines of JSON (src/mover/mover.h) */
    ANSWER_STORE_ENDED, /* number: its exit status, or STORE_KILLED */
    /* Without being asked, tag 0. */
    /* struct ended_message; not to be told to anybody before EVENT_SETTLED. That, and EVENT_GONE,
     * are told with it if they have happened, and else on their own. */
    EVENT_ENDED,
    EVENT_SETTLED,        /* exec; number: 0: what is to be on record is on disk. Else an errno: the
                             record of its start could not be written, and so it was ended */
    EVENT_GONE,           /* exec: nothing of it is left */
    EVENT_SANDBOX_LIVE,   /* as ANSWER_SANDBOX */
    EVENT_SANDBOX_ENDED,  /* workspace, why */
    EVENT_SANDBOX_FROZEN, /* workspace; number 1: it stands still; 0: it goes on */
    /* As a sandbox is named in ANSWER_SANDBOX, what, rule, fix; number: how often. Of the commands
     * that run in it now, whose results will have it too. */
    EVENT_DENIED,
    EVENT_CONNECTION, /* workspace; number: bytes that one has carried, which has ended */
    EVENT_PING,       /* number: to be answered by REQUEST_PONG; one that does not is killed */
    ANSWER_COUNT_,
};

enum freeze_flags {
    FREEZE_ONLY_FINISH = 1, /* ERR_NOT_FOUND when the tree has not moved */
    FREEZE_SHARE_CACHE = 2, /* what the workspace has in its package caches is for all */
};

enum exec_state {
    EXEC_STATE_RUNNING = 1,
    EXEC_STATE_ENDED, /* the command has, others of its tree may run */
    EXEC_STATE_GONE,
    EXEC_TERMINAL = 16,   /* the first descriptor is a terminal's */
    EXEC_INPUT_ENDS = 32, /* its input ends with what is in the backlog */
    EXEC_OVER = 64,       /* nothing is left that could write more; never sent */
};

enum tree_look {
    TREE_ENTRY_NONE,
    TREE_ENTRY_EMPTY, /* a directory with nothing in it */
    TREE_ENTRY_DIR,
    TREE_ENTRY_LINK,
    TREE_ENTRY_OTHER,
    TREE_ENTRY_CLOSED, /* on the way to it is no directory, or one that cannot be entered */
};

/* What the front may have done with a plan: verbs of carrel-plan. */
enum plan_verb {
    PLAN_DERIVE, /* ends the plan's sandbox first */
    PLAN_SUBMIT,
    PLAN_SHOW,
    PLAN_DIFF,
    PLAN_VERIFY,
    PLAN_APPLY, /* this one and the next have the workspace to themselves */
    PLAN_UNDO,
    PLAN_VIEW,      /* of a copy of a written plan */
    PLAN_JOURNAL,   /* how many operations are in the tree, once what was half done is taken back */
    PLAN_SNAPSHOT,  /* of the tree, which nothing writes to meanwhile; `plan` is any id */
    PLAN_SNAPSHOTS, /* looks at those that there are, or removes one; likewise */
    PLAN_MERGE,     /* makes a plan of what `theirs` has that `base` has not */
    PLAN_COMPARE,   /* what `theirs` has that `base` has not; "": the tree; `plan` is any id */
    PLAN_VERB_COUNT_,
};

enum {
    PLAN_STATUS_SHIFT = 48,
    PLAN_KILLED = 255,
    PLAN_ANSWER_BYTES = 64 << 20, /* most of an answer */
};

struct plan_message {
    const char *bucket;
    const char *workspace;
    const char *plan;
    const char *actor;
    const char *request;
    const char *base; /* snapshots, "WORKSPACE/SNAPSHOT", in the same bucket; NULL or "": none */
    const char *theirs;
    const char *owner; /* of the workspace; for the front's own count, and not sent */
    uint64_t verb;
};

/* The sandbox spec of a workspace, made from its policy. */
struct spec_message {
    uint64_t level; /* enum carrel_level and so on */
    uint64_t net;
    const char *const *net_rules; /* lines of policy/network.h, or "@set" */
    uint64_t net_connections;
    uint64_t net_bytes_per_hour;
    uint64_t user;
    struct carrel_limits limits; /* disk_image as 0 or 1 */
    uint64_t tmp_bytes;
    bool tmp_exec; /* the sandbox ends with the last command that runs in it */
    const char *const *env;
    const char *const *mounts; /* threes: source, target, "ro" or "rw" */
    /* Likewise of its bucket: "skills/NAME", "ro", which need not be there; and once at most the id
     * of another workspace, whose tree is shown. */
    const char *const *shared;
    const char *const *stores; /* threes: an object store, where it is shown, "ro" or "rw" */
    const char *owner;         /* whose secrets its rules name */
    const char *template;      /* whose environments it shares; "": none's */
    const char *base;          /* that a system of its own stands on; "": the host's is shown */
    bool no_sudo;              /* ... where commands of the user's cannot ask for root's */
};

struct exec_message {
    const char *bucket;
    const char *workspace;
    const char *exec;    /* chosen by the front */
    const char *plan;    /* its writes go to this one's layer; "": to the tree */
    const char *actor;   /* for the record */
    const char *request; /* likewise: the id of the HTTP request */
    struct spec_message spec;
    const char *const *argv;
    const char *const *env;
    const char *cwd;
    uint64_t timeout_ms;
    bool quiet; /* the broker sends EVENT_ENDED but no ANSWER_STARTED */
    bool tty;
    bool root; /* as root inside, of a system of its own */
    bool input;
    uint64_t rows;
    uint64_t columns;
    struct carrel_limits limits;
};

enum ended_flags {
    ENDED_SETTLED = 1,
    ENDED_GONE = 2,
    ENDED_LAST = 4, /* its sandbox ends with it: who asks for files now asks for another's */
    ENDED_FLAGS_BYTES = 16, /* of protocol_pack_ended_flags */
};

struct ended_message {
    uint64_t tag; /* of ANSWER_RAN */
    const char *exec;
    const char *workspace;
    struct carrel_result result; /* without output */
    uint64_t ended_at_ms;        /* of the clock on the wall */
    const char *why;             /* "exit", "signal", "timeout", ..., "broker ended" */
    uint64_t flags;
    int unrecorded; /* as the number of EVENT_SETTLED */
};

struct record_message {
    const char *actor;
    const char *workspace;
    const char *request;
    const char *operation;
    const char *result;
    const char *details; /* JSON, or "" */
};

/* The workspace whose tree is shown in it; "": none. */
const char *protocol_shown(const struct spec_message *m);

/* All packers write the tag first. Unpackers point into the message, lists are in `arena`; false
 * for anything that is not exactly one whole, sane message. */
void protocol_pack_exec(struct buf *b, uint64_t tag, const struct exec_message *m);
bool protocol_unpack_exec(char *bytes, size_t n, struct arena *arena, uint64_t *ret_tag,
                          struct exec_message *ret);
void protocol_pack_plan(struct buf *b, uint64_t tag, const struct plan_message *m);
/* What a workspace and the id of one of its snapshots make together; false: it is no such text. */
bool protocol_snapshot_is_valid(const char *text);
bool protocol_unpack_plan(char *bytes, size_t n, uint64_t *ret_tag, struct plan_message *ret);
/* In two pieces: the second is of now. */
void protocol_pack_ended(struct buf *b, const struct ended_message *m);
void protocol_pack_ended_flags(struct buf *b, uint64_t flags, int unrecorded);
/* In the place of the one that was packed. */
void protocol_set_tag(struct buf *b, uint64_t tag);
/* result.denials is in `arena`. */
bool protocol_unpack_ended(char *bytes, size_t n, struct arena *arena, struct ended_message *ret);
void protocol_pack_record(struct buf *b, uint64_t tag, const struct record_message *m);
bool protocol_unpack_record(char *bytes, size_t n, uint64_t *ret_tag, struct record_message *ret);
void protocol_pack_error(struct buf *b, uint64_t tag, const struct err *err);
bool protocol_unpack_error(char *bytes, size_t n, uint64_t *ret_tag, struct err *ret);

/* Everything else: up to four texts in the order said above, and a number (since_ms, state, the
 * signal's). A signal, a kill and a sleep are answered by ANSWER_OK or ANSWER_ERROR; stamp is a
 * text that is a valid id. */
struct plain_message {
    const char *texts[4]; /* never NULL after unpacking */
    uint64_t number;
};

/* REQUEST_SECRET_SET; the value is sealed, or "". */
void protocol_pack_secret(struct buf *b, uint64_t tag, const char *owner, const char *name,
                          const char *value);
bool protocol_unpack_secret(char *bytes, size_t n, uint64_t *ret_tag, const char **ret_owner,
                            const char **ret_name, const char **ret_value);

void protocol_pack_plain(struct buf *b, uint64_t tag, const struct plain_message *m);
bool protocol_unpack_plain(char *bytes, size_t n, uint64_t *ret_tag, struct plain_message *ret);

/* One JSON object on one line, as far as can be seen without parsing it, or "". */
bool protocol_details_are_sane(const char *details);

/* 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit: also a safe file name. */
bool protocol_id_is_valid(const char *id);
bool protocol_exec_id_is_valid(const char *id);
/* 'p' and 26 characters of base 32. */
bool protocol_plan_id_is_valid(const char *id);
/* 's' and likewise. */
bool protocol_snapshot_id_is_valid(const char *id);
/* 't' and likewise. */
bool protocol_template_id_is_valid(const char *id);
