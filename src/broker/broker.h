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
 *   idle.c           ends those that do nothing
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
#include <sys/types.h>

#include "audit/audit.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/events.h"
#include "broker/helper.h"
#include "carrel.h"
#include "protocol/broker.h"
#include "protocol/settings.h"
#include "sandbox/session/session.h"

enum {
    BROKER_SLOTS = 1024, /* of the tables by name */
    BROKER_MAX_LISTEN = 8,
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

/* The sandbox of a workspace.   desk_find_or_start --> live --(over)--> swept away */
struct desk {
    struct desk *next;
    struct broker *broker;
    char workspace[PROTOCOL_ID + 1];
    char bucket[PROTOCOL_ID + 1];
    char plan[PROTOCOL_EXEC_ID + 1]; /* whose layer takes what is written; "": the tree does */
    char shown[PROTOCOL_ID + 1];     /* another workspace, whose tree appears in it; "" */
    struct session *session;
    struct watch watch;
    struct timer timer;
    struct buf boundary;  /* as packed: what it was started with, but for */
    struct buf network;   /* ... the names it may reach: of now */
    size_t own_listeners; /* in its network, that are not its commands' */
    uint64_t memory_bytes;
    uint64_t pids;
    uint64_t since_ms; /* of the clock on the wall */
    size_t running;    /* commands that have not ended */
    uint64_t busy_ms;  /* when it was last seen doing something */
    double idle_cpu_ms;
    struct timer idle_timer;
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
    bool puts_staged;         /* ... and for boundary_put_staged then */

    /* files.c */
    struct files *files; /* NULL: nobody has asked for its files */
    bool files_joined;
    struct watch files_watch;
    struct watch files_wake;  /* it asks for a count of the disk */
    struct timer files_timer; /* the askers wait no longer */
    struct files_asker *files_askers;
};

/* A command. It stays until it is gone and the front has written down its end. */
struct task {
    struct task *next;
    struct broker *broker;
    char id[PROTOCOL_EXEC_ID + 1];
    char workspace[PROTOCOL_ID + 1];
    struct desk *desk; /* NULL: over */
    struct exec *exec; /* NULL: gone */
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
    int state;                      /* DIR */
    char state_named[1024];         /* DIR as it was named; settings.state is without symlinks */
    int lock;                       /* DIR/lock */
    bool was_killed;                /* the daemon before this one did not stop by itself */
    bool began;                     /* the start of this one is in the record */
    char admin_hash[KEY_HASH_TEXT]; /* SHA-256 of the admin key */
    char init_path[4096];
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
    struct timer anchor_timer;
    uint64_t anchored; /* the newest record that a signed head is of */
    uint64_t exported; /* the newest record that was acknowledged */
    uint64_t anchor_answers;
    uint32_t anchor_status;  /* of the last; enum sink_status */
    uint32_t anchor_segment; /* the newest, when last looked */
    bool anchor_asked;
    uint64_t anchor_asked_ms;
    bool anchor_complained;
    char anchor_why[480];
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

    struct desk *desks[BROKER_SLOTS];
    size_t desk_count;
    struct task *tasks[BROKER_SLOTS];
    size_t task_count;    /* not gone */
    size_t awaited_tasks; /* not ended, and somebody waits for the result */
    bool sweep;           /* a desk is over */

    /* chores.c */
    struct chore *chores;

    /* package_cache.c */
    uint64_t cache;     /* the newest generation of the shared package cache; 0: there is none */
    bool cache_has_old; /* others wait until no sandbox uses them */

    /* templates.c */
    struct freeze *freezes;

    /* plans.c */
    int plan_program; /* open on carrel-plan */
    struct plan_job *plan_jobs;
    size_t plan_job_count;

    /* egress.c */
    int egress_program; /* open on carrel-egress */
    uid_t egress_uid;
    struct helper egress;
    bool egress_ready;
    struct outlet *outlets;
    uint64_t outlets_begun;
    struct timer egress_timer;

    struct tree_lock *locks;
    struct quiet *quiets; /* quiet.c */
    uint64_t desks_begun; /* so many sandboxes */

    bool stopping; /* nothing new is begun */
};

size_t broker_slot(const char *name);
/* Runs the event loop until SIGTERM or SIGINT, then ends all sandboxes. */
int broker_run(struct broker *broker, struct err *err);

/* --- front_process.c */
int front_start(struct broker *broker, struct err *err);
/* For one that breaks the rules. */
void front_kill(struct broker *broker);
/* front_pid is 0 once it has. */
void front_ask_to_end(struct broker *broker);

/* --- channel.c */
int channel_open(struct broker *broker, int *socket, struct err *err);
void channel_close(struct broker *broker);
/* What a front that has died had still said. */
void channel_hear_out(struct broker *broker);
/* Borrows the descriptors. Without a front nothing happens. */
void channel_send(struct broker *broker, uint32_t kind, struct buf *message, const int *fds,
                  size_t fd_count);
void channel_send_plain(struct broker *broker, uint32_t kind, uint64_t tag,
                        const struct plain_message *m);
void channel_send_ok(struct broker *broker, uint64_t tag);
/* What has not reached it: queued, or in the socket. */
uint64_t channel_unread(const struct broker *broker);
void channel_send_error(struct broker *broker, uint64_t tag, const struct err *err);

/* --- watchdog.c */
void watchdog_begin(struct broker *broker);
void watchdog_end(struct broker *broker);
void watchdog_answered(struct broker *broker, uint64_t number);
/* Whether there is a front that answers, or one may yet. */
bool watchdog_is_content(const struct broker *broker);

/* --- requests.c */
/* `bytes` are changed. */
void request_handle(struct broker *broker, uint32_t kind, char *bytes, size_t n);
/* Logs, records, and ends the front. */
void request_refuse(struct broker *broker, uint32_t kind, const char *why);
/* Answers a RESUME once nothing that another front asked for is being started. */
void request_try_resume(struct broker *broker);

/* --- record.c */
int record_open(struct broker *broker, struct err *err);
void record_close(struct broker *broker);
/* 0, or -1: it cannot be written, and `waiter` will not be called. `waiter` may be NULL. */
int record_add(struct broker *broker, const struct audit_record *record, struct waiter *waiter,
               struct err *err);
/* The same for what must not begin without its record: that is in the file then, not yet on disk,
 * and written again if it cannot get there. */
int record_begin(struct broker *broker, const struct audit_record *record, struct waiter *waiter,
                 struct err *err);
/* The same for what has happened and cannot be refused any more: what cannot be written now is kept
 * and tried again. 0: `waiter` will be called; -1: it will not. */
int record_note(struct broker *broker, const struct audit_record *record, struct waiter *waiter);
/* What was added is in the file then, if it can be written. */
void record_write(struct broker *broker);
/* Whether the disk takes so long that nobody may go ahead of it. */
bool record_is_late(const struct broker *broker);
/* Once in each turn of the loop, before it waits: sends what was added to the disk. */
void record_commit(struct broker *broker);
/* Waits until everything is on disk, a few seconds at most. False: some of it is not. */
bool record_flush(struct broker *broker);
/* Why it cannot be written, while it cannot. */
int record_errno(const struct broker *broker);
/* Where the records are. */
void record_dir(const struct broker *broker, char *path, size_t size);
/* Whether something that is asked for may be recorded: with the last room, only what makes more,
 * or takes a right away. */
int record_may_add(struct broker *b, const char *operation, struct err *err);
/* A text as JSON, at most `most` bytes of it. */
void record_put_text(struct buf *b, const char *text, size_t most);

/* --- record_heads.c */
/* Once the record is open. An error when it is not the one that was signed before. */
int anchor_start(struct broker *broker, struct err *err);
/* Signs for the beginning of a record that has no head yet. */
void anchor_first(struct broker *broker);
/* Signs for all up to `last`, once that is on disk and nothing more is written. */
void anchor_stop(struct broker *broker, uint64_t last);
/* Once in each turn of the loop: whether a segment was begun. */
void anchor_look(struct broker *broker);

/* --- record_export.c */
void export_start(struct broker *broker);
void export_stop(struct broker *broker);

/* --- record_recover.c */
/* What the daemon before this one had begun when it was killed ended with it: adds that to the
 * record. To be called before the start of this one is in it. */
int unfinished_record(struct broker *broker, struct err *err);

/* --- sandbox_spec.c */
struct boundary {
    struct arena arena;
    struct carrel_spec spec;
    int fds[128]; /* what spec.mounts names by /proc/self/fd */
    size_t fd_count;
    int tree;   /* while it is made */
    bool looks; /* nothing is made for it */
    bool has_tools;
    bool has_ca;
    uint64_t cache; /* which generation of the package cache is shown; 0: none */
};

/* Everything but the pool. */
int boundary_make(struct broker *broker, const struct exec_message *m, struct boundary *ret,
                  struct err *err);
void boundary_clear(struct boundary *boundary);
/* A Python environment that is whole (front/workspaces/env.sh) takes the place of its
 * template's, now that the desk is over; unless something else of the workspace's lives. */
void boundary_put_staged(const struct broker *broker, const struct desk *desk);
/* Whether there is room for one more sandbox (if `new_desk`) and what was asked for (REQUEST_…). */
int boundary_check_room(struct broker *broker, uint32_t kind, const struct exec_message *m,
                        bool new_desk, struct err *err);

/* --- sandboxes.c */
/* The one that writes to the workspace's tree. */
struct desk *desk_find(const struct broker *broker, const char *workspace);
/* The one of a plan; "": as above. */
struct desk *desk_find_plan(const struct broker *broker, const char *workspace, const char *plan);
/* Any of the workspace's. */
struct desk *desk_find_any(const struct broker *broker, const char *workspace);
/* 1: the sandbox is ending, and the message, of that kind, was kept for later. */
int desk_find_or_start(struct broker *broker, uint32_t kind, const struct exec_message *m,
                       uint64_t tag, struct desk **ret, struct err *err);
void desk_end(struct desk *desk, const char *why);
/* The same where nothing is to be done to its tree: calls on files that are under way may finish.
 */
void desk_put_to_sleep(struct desk *desk, const char *why);
/* ANSWER_SANDBOX or EVENT_SANDBOX_LIVE. */
void desk_tell(const struct desk *desk, uint32_t kind, uint64_t tag);
/* A request, as packed, is looked at again when it is over. Returns 1. */
int desk_put_off(struct desk *desk, uint32_t kind, struct buf *request, uint64_t tag,
                 const char *shown, struct err *err);
/* ANSWER_OK to this tag when it is over. */
int desk_await_end(struct desk *desk, uint64_t tag, struct err *err);
/* The rules of the network are those of the message, where no more than that has changed. */
void desk_change_network(struct broker *broker, const struct exec_message *m);
/* Tells the commands that run in it, and who follows them. */
void desk_deny(struct desk *desk, const struct carrel_denial *denial);
/* After any call into its session. */
void desk_rearm(struct desk *desk);
/* Frees those that are over, and goes on with what waited for that. */
void desk_sweep(struct broker *broker);
void desk_end_all(struct broker *broker, const char *why);
/* Whether the workspace's tree appears in it: as its own, or as another's that is shown. */
bool desk_shows(const struct desk *desk, const char *workspace);
/* Commands that came while it was ending, of those that would show this workspace's tree, are
 * refused. */
void desk_refuse_deferred(struct desk *desk, const char *workspace, const char *why);

/* --- files.c */
/* One is started ahead, soon. */
void files_prepare(struct broker *broker);
void files_close(struct broker *broker);
/* Wakes the workspace; ANSWER_FILES when they can be asked for. */
void files_request(struct broker *broker, uint64_t tag, const struct exec_message *m);
void files_sandbox_lives(struct desk *desk);
/* With its sandbox. */
void files_server_end(struct desk *desk);
/* Before that: who still waits for it gets the next sandbox's. */
void files_put_off(struct desk *desk);
/* Those that still finish something in its tree, their own or shown to them: it is about to go. */
void files_end_leaving(struct broker *broker, const char *workspace);
/* Tells its file server what may still be added to the disk. */
void files_tell_disk(struct desk *desk);
/* Whether its files were asked for since the last time, or are being. */
bool files_is_busy(struct desk *desk);
/* Whether a call on them is being done. */
bool files_under_way(const struct desk *desk);
/* Likewise, whether there are any. */
bool files_are_leaving(const struct broker *broker, const char *workspace, uint64_t last);

/* What a file server is, to the one that started it. */
struct files_process {
    pid_t pid;
    int pidfd;
    int socket; /* to it */
};

/* `how`: its argument, or NULL. 0, or -1 with errno set. */
int files_spawn(const struct broker *broker, const char *how, struct files_process *ret);

/* --- files_asleep.c: who reads files of workspaces that sleep, src/protocol/files_asleep.h */
void asleep_prepare(struct broker *broker);
void asleep_close(struct broker *broker);
/* ANSWER_FILES, or ANSWER_ERROR where only the sandbox can answer. */
void asleep_request(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Nobody reads the tree this way any more; at once, but not before asleep_is_read says so. */
void asleep_end(struct broker *broker, const char *workspace);
bool asleep_is_read(const struct broker *broker, const char *workspace);

/* --- tree_locks.c: the table of who has a workspace's tree alone */
enum lock_use {
    LOCK_PLAN,
    LOCK_FREEZE,
    LOCK_FILL,
};

/* 0, or -1 with EBUSY: somebody else has it. From now on nothing new is begun in it. */
int lock_take(struct broker *broker, const char *workspace, enum lock_use use, const void *holder,
              struct err *err);
/* Nothing happens when `from` does not have it. */
void lock_pass(struct broker *broker, const char *workspace, const void *from, const void *to);
/* What waited goes on. Nothing happens for one that does not have it. */
void lock_release(struct broker *broker, const char *workspace, const void *holder);
bool lock_is_held(const struct broker *broker, const char *workspace);
/* 0: it may begin; 1: it is kept for later; -1: too many are. */
int lock_defer(struct broker *broker, uint32_t kind, const struct exec_message *m, uint64_t tag,
               struct err *err);
/* Puts what lives in it to sleep. 0: nothing does; 1: not yet; -1 with EBUSY: commands run.
 * `patient`: calls on files may finish first. */
int lock_settle(struct broker *broker, const char *workspace, bool patient, struct err *err);

/* The requests that wait for this workspace's tree are refused. */
void lock_refuse(struct broker *broker, const char *workspace, const char *why);

/* --- quiet.c */
void quiet_request(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Something has ended: who waited for that may be told. */
void quiet_look(struct broker *broker);

/* --- plans.c, plan_dirs.c; more in plans.h */
struct plan_message;
void plan_request(struct broker *broker, uint64_t tag, const struct plan_message *m);
void plan_request_cancel(struct broker *broker, uint64_t tag);
/* Whether something other than reading is done with it. */
bool plan_is_worked_on(const struct broker *broker, const char *plan);
/* Whether anything is done with any of the workspace's. */
bool plans_use(const struct broker *broker, const char *workspace);
/* A sandbox has gone: who waited for that may begin. */
void plans_look(struct broker *broker);
/* What a daemon that was killed had half done is taken back, before anybody uses those trees.
 * -1: one may be left that is not known of. */
int plans_recover_all(struct broker *broker, struct err *err);
void plans_front_died(struct broker *broker);
/* Those that change nothing. */
void plans_end_all(struct broker *broker);
bool plans_are_over(const struct broker *broker);
void plan_jobs_close(struct broker *broker);
/* The names of all that have a directory, packed as a list. */
int plan_scan(const struct broker *broker, const char *bucket, struct buf *names, struct err *err);
/* The directory above those of all workspaces of a bucket; -errno. */
int plan_open_workspaces(const struct broker *broker, const char *bucket);

/* --- idle.c */
/* Looks again and again until it ends it. */
void idle_watch(struct desk *desk);

/* --- execs.c */
struct task *task_find(const struct broker *broker, const char *id);
void task_request(struct broker *broker, uint64_t tag, const struct exec_message *m);
void task_forget(struct task *task);
/* Now, or with what is in the backlog. */
void task_end_input(struct task *task, bool after_backlog);
/* Whether the front has written down the end of every one. */
bool tasks_are_told(const struct broker *broker);
/* At the very end. */
void tasks_clear(struct broker *broker);
/* All that is known of it, to a new front. */
void task_tell(struct task *task, uint64_t resume_tag);
bool task_is_starting(const struct task *task);
/* For struct session_calls. */
void task_started(void *owner, struct exec *exec, int fds[3]);
void task_ended(void *owner, struct exec *exec, const struct carrel_result *result);
void task_gone(void *owner, struct exec *exec);

/* --- trees.c */
/* The names of all trees of a bucket, packed as a list. */
int tree_scan(const struct broker *b, const char *bucket, struct buf *names, struct err *err);
/* Answers REQUEST_TREE_LOOK. */
void tree_look(struct broker *b, uint64_t tag, const struct plain_message *m);
/* sandbox_spec.c: answers REQUEST_TREE_POINTS, packed as a list. */
int tree_points(struct broker *b, const struct exec_message *m, struct buf *answer,
                struct err *err);
/* A tree's directory below DIR, or -1. */
int tree_open(const struct broker *broker, const char *bucket, const char *workspace,
              struct err *err);
/* The .bashrc that a new workspace gets, which names it; not one that somebody has changed. */
void tree_drop_bashrc(int tree, const char *workspace);
/* A workspace in an image begins empty; one that has nothing but what it was made with is. */
void tree_empty_for_image(const struct broker *b, int tree, const char *workspace);
void tree_make(struct broker *broker, uint64_t tag, const struct plain_message *m);
void tree_trash(struct broker *broker, uint64_t tag, const struct plain_message *m);
void tree_back(struct broker *broker, uint64_t tag, const struct plain_message *m);
void tree_purge(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Whether what is in it is in an image beside it, and not in the directory itself. */
bool tree_has_image(const struct broker *broker, const char *bucket, const char *workspace);
/* Makes a copy of a plan's layer, as another plan. */
void tree_copy_plan(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Copies the layer in one plan's directory to another's, both below `dir`; for a process of its
 * own. 0 or -errno. */
int tree_copy(int dir, const char *name, const char *copy);
/* Likewise, from one open directory to another: what a new workspace has of its template; the files
 * of a package cache themselves, over what is there. */
int tree_fill_from(int from, int to);
int tree_link_from(int from, int to);
/* All that is in it is on disk. */
int tree_sync(int dir);
/* `partly`: only what tree_fill_from copies. */
int tree_count(int from, bool partly, uint64_t *ret_files, uint64_t *ret_bytes);
/* Removes a plan's directory. */
void tree_drop_plan(struct broker *broker, uint64_t tag, const struct plain_message *m);

/* --- state.c */
/* Opens or makes DIR and what is in it, takes the lock, reads or makes the key. */
int state_open(struct broker *broker, struct err *err);
/* Releases the lock. stopped: clean shutdown; the next start has nothing to recover. */
void state_close(struct broker *broker, bool stopped);
/* A bucket's directories, made if need be. */
int state_make_bucket(const struct broker *broker, const char *bucket, struct err *err);

/* --- listen.c */
/* Whether the address is one that may be listened on. */
int listen_check(const struct broker *broker, bool may_go_beyond, struct err *err);
int listen_open(struct broker *broker, struct err *err);
void listen_close(struct broker *broker);
/* The ports of ours, 0 after the last: no sandbox connects to them. */
void listen_ports(const struct broker *broker, uint16_t ret[CARREL_MAX_PORTS]);
void listen_describe(const struct broker *broker, char *tcp, size_t tcp_size, char *path,
                     size_t path_size);
/* "READY=1" and the like, to the service manager, if there is one. */
/* For a person, when the first front is ready: where it is, and a line to paste. */
void listen_welcome(const struct broker *b);
void listen_notify(const char *text);
/* How often to send WATCHDOG=1, in ms; 0: never. */
uint64_t listen_watchdog_ms(void);
