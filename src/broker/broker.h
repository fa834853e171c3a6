/* SPDX-License-Identifier: Apache-2.0 */
/* The broker: the only part of the daemon with privileges. One thread, one loop. It owns the
 * sandboxes and the record, and does for the front what the table in requests.c permits, nothing
 * else. Nothing here parses what a client sent.
 *
 *   front_process.c  starts the front, and again when it dies
 *   channel.c        messages from it and to it
 *   watchdog.c       whether it still answers
 *   requests.c       the table
 *   sandboxes.c      a sandbox for each workspace that is awake
 *   execs.c          the commands in them, and what is told of them
 *   files.c          the processes that serve their files
 *   files_asleep.c   ... of workspaces that sleep
 *   plans.c          what is done with plans: plans.h
 *   tree_locks.c     who may use a workspace's tree
 *   quiet.c          ... nobody, for a moment
 *   tree_copy.c      a copy of a plan's layer, to be looked at; and of other trees
 *   chores.c         the processes that copy and remove
 *   templates.c      workspaces that were frozen, and what others have of them
 *   package_cache.c  the package cache that all share
 *   egress.c         the connections that they may make
 *   stores.c         object stores, with what is secret of them
 *   movers.c         the processes that move files to them
 *   store_mounts.c   what sandboxes see of them as directories
 *   mount_room.c     ... kept where nobody else sees it
 *   mover_process.c  one such process, started
 *   tls.c            HTTPS, which carrel-tls ends
 *   idle.c           ends those that do nothing
 *   pause.c          stops them, with all that they have in memory
 *   sandbox_spec.c   what a policy says -> what the engine is told
 *   trees.c          the workspaces' directories
 *   record.c         the record, and who waits for the disk
 *   record_heads.c   its signed heads, rotation and retention
 *   record_export.c  who sends it elsewhere
 *   helper.c         the processes for both
 *   record_recover.c ends in it for what a killed daemon had begun
 *   state.c          DIR: its layout, lock and key
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "audit/audit.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/events.h"
#include "base/seal.h"
#include "broker/helper.h"
#include "broker/mount_room.h"
#include "carrel.h"
#include "protocol/broker.h"
#include "protocol/settings.h"
#include "sandbox/session/session.h"

enum {
    BROKER_SLOTS = 1024,   /* of the tables by name */
    BROKER_MAX_LISTEN = 7, /* and one for HTTPS */
    KEY_HASH_TEXT = 65,
};

struct broker;

/* Who waits until something has been written down. Embedded in what it belongs to. */
struct waiter {
    struct waiter *next;
    uint64_t seq;
    uint64_t added_ms;
    bool patient; /* the record may be delayed a few ms to share a disk flush */
    void (*done)(struct broker *broker, struct waiter *waiter, bool written);
};

/* The sandbox of a workspace.   sandbox_find_or_start --> live --(over)--> swept away */
struct sandbox {
    struct sandbox *next;
    struct broker *broker;
    char workspace[PROTOCOL_ID + 1];
    char bucket[PROTOCOL_ID + 1];
    char plan[PROTOCOL_EXEC_ID + 1]; /* whose layer takes what is written; "": the tree does */
    char shown[PROTOCOL_ID + 1];     /* another workspace, whose tree appears in it; "" */
    struct arena arena;
    const char *const *stores; /* that it sees, in threes as in the message */
    struct session *session;
    struct watch watch;
    struct timer timer;
    struct buf spec;      /* as packed: what it was started with, but for */
    struct buf network;   /* ... the names it may reach: of now */
    size_t own_listeners; /* in its network, that are not its commands' */
    uint64_t memory_bytes;
    uint64_t pids;
    uint64_t since_ms; /* of the clock on the wall */
    size_t running;    /* commands that have not ended */
    uint64_t busy_ms;  /* when it was last seen doing something */
    double idle_cpu_ms;
    uint64_t usage_ms; /* when it was last counted for who asks */
    double usage_cpu_ms;
    struct timer idle_timer;

    struct {
        enum {
            PAUSE_NONE,
            PAUSE_STOPPING,
            PAUSE_FROZEN
        } state;
        struct timer timer;
        uint64_t until_ms;
        uint64_t tag; /* of who asked, and was answered or not */
        uint64_t generation;
    } pause; /* pause.c */

    char template[PROTOCOL_EXEC_ID + 1]; /* "": it is on none */
    uint64_t cache; /* the generation of the package cache that it shows; 0: none */
    bool host_net;
    bool tmp_exec;  /* ends with the last command that runs in it */
    bool has_image; /* its tree is in one, which nobody may have mounted twice */
    bool ending;
    bool over;
    char why[256];
    struct waiter end_wait;
    uint64_t number;           /* which of the broker's it is, counted from 1 */
    struct deferred *deferred; /* commands that came while it was ending */
    size_t deferred_count;
    struct sleeper *sleepers; /* who asked for its end */
    bool puts_staged;         /* ... and for sandbox_spec_put_staged then */

    /* files.c */
    struct files *files; /* NULL: nobody has asked for its files */
    bool files_joined;
    struct watch files_watch;
    struct watch files_wake;  /* it asks for a count of the disk */
    struct timer files_timer; /* the askers wait no longer */
    struct files_asker *files_askers;
};

/* A command. It stays until it is gone and the front has written down its end. */
struct broker_exec {
    struct broker_exec *next;
    struct broker *broker;
    char id[PROTOCOL_EXEC_ID + 1];
    char workspace[PROTOCOL_ID + 1];
    struct sandbox *sandbox; /* NULL: over */
    struct exec *exec;       /* NULL: gone */
    char *actor;
    char *request;
    int fds[3];
    int backlog;  /* input that waits for room: the front's, kept for the next one; -1: none */
    uint64_t tag; /* of the request that waits for its start; 0: answered */
    uint64_t generation; /* of the front that asked */
    struct waiter start_wait;
    struct waiter end_wait;
    struct timer start_timer; /* its start is told then at the latest */
    struct buf end;           /* EVENT_ENDED, once it has ended */
    bool quiet;               /* the broker sends EVENT_ENDED but no ANSWER_STARTED */
    bool soon_over;           /* it may be: its start is told with its end, or after a while */
    bool ahead;               /* what is told of it does not wait for the disk, only for the file */
    bool is_last;             /* its sandbox ends with it */
    bool start_pending;       /* on their way to the disk */
    bool end_pending;
    int unrecorded; /* errno: the record of its start failed while it ran */
    bool started;   /* or ended without */
    bool ended;
    bool end_told; /* or would have been, with a front */
    bool gone_told;
    bool settled; /* likewise: that its records are on disk, or in the file if it is `ahead` */
    bool forgotten;
    bool unwanted; /* its start could not be recorded; the front gets neither start nor end */
    bool tty;
    bool input_ends; /* with what is in the backlog */
};

struct outgoing;

struct broker {
    struct settings settings;
    struct events *events;
    struct audit *audit;
    struct carrel_pool *pool;
    int state;              /* DIR */
    char state_named[1024]; /* DIR as it was named; settings.state is without symlinks */
    int lock;               /* DIR/lock */
    bool was_killed;        /* the daemon before this one did not stop by itself */
    bool began;             /* the start of this one is in the record */
    char secrets_public[2 * SEAL_KEY + 1]; /* what the front seals for */
    struct secret_order *secret_orders;    /* to carrel-egress, while its socket is full */
    char admin_hash[KEY_HASH_TEXT];        /* SHA-256 of the admin key */
    char init_path[4096];
    char egress_path[4096]; /* for what a sandbox needs before it is there */
    uid_t front_uid;
    gid_t front_gid;
    uid_t owner_uid;
    gid_t owner_gid;
    int listening[BROKER_MAX_LISTEN];
    size_t listening_count;
    bool made_socket; /* and not a service manager */

    /* front_process.c */
    int front_program; /* open on carrel-front */
    pid_t front_pid;   /* 0: none */
    struct watch front_watch;
    struct timer front_timer; /* when to start the next */
    uint64_t front_since_ms;
    unsigned front_pause_ms;
    bool front_may_end;  /* and no other is started */
    uint64_t generation; /* how many there have been */

    /* channel.c */
    int socket; /* -1: no front */
    struct watch socket_watch;
    struct buf incoming;
    struct outgoing *first_out;
    struct outgoing *last_out;
    size_t out_count;
    size_t out_bytes;
    bool deaf;  /* nothing is sent any more; what it has said before is still heard */
    bool heard; /* a byte since the last ping */
    struct timer ping_timer;
    uint64_t ping_due_ms;
    uint64_t ping;        /* the last one that was sent */
    uint64_t pong;        /* the last one that was answered */
    uint64_t answered_ms; /* when; of any front */
    uint64_t ping_unread; /* bytes, then */
    uint64_t ping_cpu_ms; /* that it had used, then */
    unsigned missed;
    uint64_t resume_tag; /* asked for, and waits for commands that are being started */
    bool resumed;

    /* record.c */
    struct watch audit_watch;
    bool audit_added;         /* since the last commit */
    bool audit_awaited;       /* ... and somebody wants to be told soon */
    uint64_t audit_commit_ms; /* the last */
    struct timer audit_timer; /* when the patience of the others ends */
    struct waiter *first_waiter;
    struct waiter *last_waiter;
    uint64_t audit_opened_ms;
    uint64_t audit_pause_ms; /* between one try to open it again and the next */
    uint64_t audit_due_ms;   /* when that is; 0: it has not failed */
    struct kept *kept;       /* records that could not be written yet, the oldest first */
    struct kept *last_kept;
    size_t kept_count;
    struct timer kept_timer;

    /* record_heads.c, record_export.c */
    int sink_program; /* open on carrel-sink */
    int export_program;
    uid_t sink_uid;
    uid_t export_uid;
    struct helper sink;
    struct helper exporter;
    struct timer heads_timer;
    uint64_t heads_through; /* the newest record that a signed head is of */
    uint64_t exported;      /* the newest record that was acknowledged */
    uint64_t heads_answers;
    uint32_t heads_status;  /* of the last; enum sink_status */
    uint32_t heads_segment; /* the newest, when last looked */
    bool heads_asked;
    uint64_t heads_asked_ms;
    bool heads_complained;
    char heads_why[480];
    struct waiter retain_wait;
    uint64_t retain_through;
    uint32_t retain_last;
    bool retaining;

    /* files.c */
    int files_program; /* open on carrel-files */
    struct files *files_spare;
    struct files *files_leaving; /* their sandbox has ended, they have not */
    struct timer files_timer;
    struct asleep *asleep;

    struct sandbox *sandboxes[BROKER_SLOTS];
    size_t sandbox_count;
    struct broker_exec *execs[BROKER_SLOTS];
    size_t exec_count;    /* not gone */
    size_t awaited_execs; /* not ended, and somebody waits for the result */
    bool sweep;           /* a sandbox is over */

    /* chores.c */
    struct chore *chores;

    /* package_cache.c */
    uint64_t cache;     /* the newest generation of the shared package cache; 0: there is none */
    bool cache_has_old; /* others wait until no sandbox uses them */

    /* templates.c */
    struct freeze *freezes;

    /* plans.c */
    int plan_program; /* open on carrel-plan */
    struct plan_process *plan_processes;
    size_t plan_process_count;

    /* egress.c */
    int egress_program; /* open on carrel-egress */
    uid_t egress_uid;
    struct helper egress;
    bool egress_ready;
    struct outlet *outlets;
    struct account *accounts; /* of bytes that workspaces have used up */
    uint64_t outlets_begun;
    struct timer egress_timer;

    /* movers.c */
    int mover_program; /* open on carrel-mover */
    uid_t mover_uid;
    struct mover *movers;

    /* store_mounts.c */
    struct mount_room mount_room;
    struct store_mount *store_mounts;

    /* tls.c */
    int tls_program; /* open on carrel-tls */
    uid_t tls_uid;
    gid_t tls_gid;
    struct helper tls;
    int tls_listening; /* -1: there is no HTTPS */
    int tls_door;      /* both ends are kept for those who die */
    int front_door;
    struct stat tls_files[2]; /* as they were when they were handed over */
    struct timer tls_timer;

    struct tree_lock *locks;
    struct quiet *quiets;     /* quiet.c */
    uint64_t sandboxes_begun; /* so many sandboxes */

    bool stopping; /* nothing new is begun */
};

size_t broker_slot(const char *name);
/* Runs the event loop until SIGTERM or SIGINT, then ends all sandboxes. */
int broker_run(struct broker *broker, struct err *err);
