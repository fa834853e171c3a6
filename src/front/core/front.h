/* SPDX-License-Identifier: Apache-2.0 */
/* The unprivileged half of the daemon: everything that reads bytes from the network. It asks the
 * broker for what takes privileges, and forgets nothing that the disk does not know. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/events.h"
#include "front/core/channel.h"
#include "front/store/store.h"
#include "http/server.h"
#include "protocol/files.h"
#include "protocol/settings.h"

struct call;
struct exec_mode;
struct exec;
struct listener;
struct exec_waiting;
struct sandbox_use;
struct proxy;
struct kept_output;
struct owner_use;
struct plan_work;
struct dropped;
struct outdated;
struct parser;
struct route;
struct mcp;
struct mirror;

enum {
    FRONT_SLOTS = 1024,
    FRONT_ID = 65,
    FRONT_HASH = 65, /* SHA-256 in hex */
};

/* What is counted for /metrics. */
struct counters {
    uint64_t requests[6]; /* by hundred of the status */
    uint64_t request_us;
    uint64_t execs_started;
    uint64_t execs_ended[8]; /* by enum carrel_reason */
    uint64_t exec_us;
    uint64_t sandboxes_started;
    uint64_t output_bytes;
    uint64_t stalls; /* times a command had to wait for a reader */
    uint64_t denials;
    uint64_t net_connections; /* by name, that have ended */
    uint64_t net_bytes;
    uint64_t net_refused;
    uint64_t file_calls[FILES_OP_COUNT_][6]; /* answered, by hundred of the status */
    uint64_t file_bytes_in;
    uint64_t file_bytes_out;
    uint64_t plans_made;
    uint64_t plans_applied;
    uint64_t plans_undone;
    uint64_t plans_refused; /* by a verification, or by a person */
    uint64_t plans_stale;
    uint64_t plan_steps;
};

/* The texts are copied. */
struct version_asked {
    const char *workspace;
    const char *why; /* "apply", "every" */
    const char *actor;
    const char *request;
    void (*then)(void *context, const struct err *failed);
    void *context;
};

struct front {
    const struct settings *settings;
    struct events *events;
    struct store *store;
    struct channel *channel;
    struct http_server *http;
    struct watch door;                         /* of carrel-tls */
    struct code_context *contexts;             /* code/ */
    struct http_options room;                  /* for connections: front/core/room.h */
    struct parser *parser;                     /* of large bodies */
    const struct route *const *routes;         /* a table for each room, then NULL: main.c */
    const struct route *port_route;            /* of requests for ports, which are in none: */
    bool (*is_for_port)(struct call *request); /* those that are */
    /* Requests of a protocol with addresses of its own, which are in no table either: sets their
     * route; then, who asks and whose it is: false: answered. */
    bool (*is_foreign)(struct call *request);
    bool (*admit_foreign)(struct call *call);
    const struct exec_mode *exec_mode; /* exec/mode.h */
    /* Of FOREIGN routes: makes another answer of ours, and takes the object. */
    json_t *(*translate)(struct call *call, int *status, json_t *object);
    /* Ends a command that was for a client which has left: exec/exec.h. */
    void (*end_exec)(struct front *front, const char *workspace, const char *exec_id);
    int spools;                      /* the directory of all spools */
    char secrets_public[FRONT_HASH]; /* what secrets are sealed for, in hex */
    char admin_hash[FRONT_HASH];
    char state_named[1024]; /* DIR as it was named; settings->state is without symlinks */
    int64_t broker_uid;     /* whose word over the Unix socket is an administrator's */
    bool resumed;           /* the broker has told what lives */
    bool draining;
    bool unrecorded;      /* the last record that was asked for could not be written */
    uint64_t file_bodies; /* bytes that are kept for file servers */
    uint64_t began_ms;
    struct exec *execs[FRONT_SLOTS];
    size_t rows_due; /* execs whose row is yet to be written */
    struct timer rows_timer;
    size_t exec_count;          /* that have not ended */
    struct exec_waiting *queue; /* commands that wait until others have ended */
    size_t queued;
    bool in_turn; /* the exec being started was taken from the queue, and must not queue again */
    size_t held;  /* commands of which something is left: front/core/quota.h */
    struct owner_use *tenants[FRONT_SLOTS];
    struct sandbox_use *awake[FRONT_SLOTS];
    size_t awake_count;
    uint64_t output_running; /* on disk, of all: front/exec/output.h */
    uint64_t output_kept;
    struct kept_output *kept[FRONT_SLOTS];
    struct kept_output *oldest;
    struct kept_output *newest;
    struct timer output_timer;
    char scanned[28];     /* what was kept from before is known up to this one */
    uint64_t floor_ms;    /* when free disk space was last looked at */
    uint64_t floor_bytes; /* and how much output there had been by then */
    bool below_floor;
    uint64_t switches; /* of policies to planned writes: what was asked before starts no sandbox */
    struct files_server *file_servers;   /* of workspaces whose files are asked for */
    struct files_stream *file_streams;   /* and calls to them */
    struct proxy *proxies;               /* connections to ports of workspaces */
    struct plan_work *plan_works;        /* what is under way with plans */
    struct plan_process *plan_processes; /* the broker's processes for that */
    struct mirror *mirrors;              /* of workspaces, to stores: stores/mirror.h */
    /* Something may be another in the workspace's tree. */
    void (*tree_changed)(struct front *front, const char *workspace);
    /* Makes a snapshot of the workspace, for who is asked to; `then` hears when it is there, or
     * why not. */
    void (*keep_version)(struct front *front, const struct version_asked *asked);
    struct timer plan_timer; /* what becomes of them by themselves */
    struct dropped *builds;  /* of templates, that were interrupted */
    struct mcp *mcp;         /* sessions and requests of it; NULL: none yet */
    char address[64];        /* where we listen for TCP, as in a URL; "": nowhere */
    struct listener *listeners;
    struct call *calls;        /* requests that have not ended: front/core/live.h */
    struct outdated *outdated; /* while it resumes: resume.c */
    struct counters count;
    struct timer sweep; /* forgets what is older than the retention time, empties the trash */
};

/* A letter and 26 characters of base 32. */
void make_id(char letter, char ret[28]);
/* SHA-256 in hex. */
void hash_hex(const void *bytes, size_t n, char ret[FRONT_HASH]);
/* "2026-01-02T03:04:05.678Z", or null for 0. */
json_t *time_json(int64_t ms);

/* Commands of this workspace that have not ended. */
uint64_t front_execs_in(const struct front *front, const char *workspace);
bool front_is_awake(const struct front *front, const char *workspace);
/* ... and stands still, with what it has in memory. */
bool front_is_frozen(const struct front *front, const char *workspace);
/* "asleep", "awake" or "frozen". */
const char *front_state(const struct front *front, const char *workspace);
/* Something has ended: those that wait for that may start. */
void execs_next(struct front *front);
/* Tells everybody who follows /v1/events and may see it; takes the object. */
void front_announce(struct front *front, const char *type, const char *workspace, const char *owner,
                    json_t *details);
/* GET /v1/events */
void events_follow(struct call *call);
