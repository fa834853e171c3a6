/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with plans: a process each (carrel-plan), which gets the tree and the plan's
 * directory and is told by the front what to do. We never read what the two say to each other.
 *
 *   asked --(nobody is in the way)--> running, ANSWER_PLAN
 *         --(it ends, its records are on disk)--> ANSWER_PLAN_ENDED
 *
 * Who changes the tree has the workspace alone (tree_locks.c). When such a process does not end
 * well, or the daemon before this one was killed with it, another one takes back what was half done
 * before anybody else may use the tree. That is tried until it succeeds, ever more seldom, or until
 * the plan's directory is gone: then the tree is left as it is. A front that asks what a plan has
 * come to (PLAN_JOURNAL) waits for that; it only reads, so commands may run by then. */
#include "broker/plans.h"
#include "broker/bases.h"
#include "broker/channel.h"
#include "broker/forks.h"
#include "broker/plan_steps.h"
#include "broker/record.h"
#include "broker/sandboxes.h"
#include "broker/tree_freeze.h"
#include "broker/tree_locks.h"
#include "broker/trees.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "sandbox/overlay.h"

enum {
    MOST_JOBS = 64,
    MOST_RECOVERIES = 4, /* at a time */
    LOOK_MS = 5,         /* whether what is in the way has gone */
    PATIENT_MS = 3000,   /* with calls on files */
    BEGIN_MS = 30000,    /* until nobody is in the way */
    RETRY_MS = 1000,     /* what cannot be recovered is tried again, twice as late each time */
    LONGEST_RETRY_MS = 300000,
    PLACE_MS = 3600000, /* of a timer that waits for nothing */
    MOST_STEPS = 1000000,
    TEXT_ROOM = 256,
};

struct verb {
    const char *name;
    uint64_t most_ms;
    enum plan_rights rights;
    bool reads;    /* others that read may be at it, too */
    bool alone;    /* changes the tree */
    bool ends_run; /* needs the plan's layer */
    bool makes;    /* the plan's directory */
    bool kept;     /* gets the directory of the workspace's snapshots, and no plan's */
    bool freezes;  /* has the tree to itself, and what writes there stands still */
};

#define MINUTE 60000ULL

static const struct verb verbs[PLAN_VERB_COUNT_] = {
    [PLAN_DERIVE] = {"derive", 30 * MINUTE, PLAN_READS_LAYERS, .ends_run = true},
    [PLAN_SUBMIT] = {"submit", 30 * MINUTE, .makes = true},
    [PLAN_SHOW] = {"show", 10 * MINUTE, .reads = true},
    [PLAN_DIFF] = {"diff", 10 * MINUTE, .reads = true},
    [PLAN_VERIFY] = {"verify", 30 * MINUTE, .reads = true},
    [PLAN_APPLY] = {"apply", 120 * MINUTE, .alone = true},
    [PLAN_UNDO] = {"undo", 120 * MINUTE, .alone = true},
    [PLAN_VIEW] = {"view", 30 * MINUTE, .rights = PLAN_READS_LAYERS},
    [PLAN_JOURNAL] = {"journal", 10 * MINUTE, .reads = true},
    [PLAN_SNAPSHOT] = {"snapshot", 10 * MINUTE, PLAN_READS_ALL, .kept = true, .freezes = true},
    [PLAN_SNAPSHOTS] = {"snapshots", 10 * MINUTE, PLAN_READS_ALL, .kept = true},
    [PLAN_MERGE] = {"merge", 30 * MINUTE, PLAN_READS_ALL, .makes = true},
    [PLAN_COMPARE] = {"compare", 10 * MINUTE, PLAN_READS_ALL, .kept = true},
};

static const struct verb fork_snapshot = {"snapshot-fork", 10 * MINUTE, PLAN_READS_LAYERS,
                                          .kept = true, .freezes = true};
static const struct verb recovery = {"recover", 120 * MINUTE, .alone = true};

struct plan_process {
    struct plan_process *next;
    struct broker *broker;
    struct plan_id at;
    const struct verb *verb;
    char base[PROTOCOL_ID + PROTOCOL_EXEC_ID + 2]; /* snapshots, as they were asked for */
    char theirs[PROTOCOL_ID + PROTOCOL_EXEC_ID + 2];
    uint64_t tag; /* of the front's request; 0: a recovery of ours, of which no front hears */
    uint64_t generation;
    char actor[TEXT_ROOM];
    char request[TEXT_ROOM];
    uint64_t asked_ms;
    struct timer timer; /* to look again; while it runs, its deadline */
    struct plan_child child;
    struct watch gone;
    struct plan_steps steps;
    bool runs;
    bool ended;
    bool has_frozen;
    bool cannot_freeze;
    uint64_t frozen_ms; /* since when, and in the end for how long */
    int status;
    uint64_t answered; /* bytes */
    const char *why;
    struct waiter end_wait;
    unsigned tries;   /* of a recovery, without success */
    const char *told; /* how the last one ended, of which there is a record */
    int told_status;
    bool news; /* how this one ended */
};

/* --- the end --- */

/* Another plan of the workspace that is to be taken back has it next, and nobody in between. */
static void let_go(struct plan_process *process)
{
    struct broker *b = process->broker;
    const struct plan_process *next = NULL;

    for (const struct plan_process *other = b->plan_processes; other; other = other->next) {
        if (other->verb == &recovery && strcmp(other->at.workspace, process->at.workspace) == 0)
            next = other;
    }
    if (next)
        lock_pass(b, process->at.workspace, process, next);
    else
        lock_release(b, process->at.workspace, process);
}

static void forget_child(struct plan_process *process)
{
    struct broker *b = process->broker;

    plan_steps_end(&process->steps);
    events_forget(b->events, &process->gone);
    plan_child_close(&process->child);
}

static void thaw(struct plan_process *process)
{
    if (!process->has_frozen)
        return;
    process->has_frozen = false;
    process->frozen_ms = now_ms() - process->frozen_ms;
    tree_thaw(process->broker, process->at.workspace);
}

static void free_process(struct plan_process *process)
{
    struct plan_process **at = &process->broker->plan_processes;

    while (*at != process)
        at = &(*at)->next;
    *at = process->next;
    process->broker->plan_process_count--;
    timer_stop(process->broker->events, &process->timer);
    forget_child(process);
    if (process->verb->freezes)
        thaw(process);
    if (process->verb->alone || process->verb->freezes)
        let_go(process);
    free(process);
}

static bool is_heard(const struct plan_process *process)
{
    return process->tag && process->generation == process->broker->generation &&
           process->broker->resumed;
}

static void fail(struct plan_process *process, const struct err *err)
{
    if (is_heard(process))
        channel_send_error(process->broker, process->tag, err);
    free_process(process);
}

static void stay(struct timer *timer);

/* The timer of an entry is set as long as there is the entry: setting it anew needs no memory, so
 * that one that is to be taken back cannot be lost for the lack of it. */
static void hold_place(struct plan_process *process)
{
    process->timer.ring = stay;
    ignore(timer_set(process->broker->events, &process->timer, now_ms() + PLACE_MS) == 0);
}

static void stay(struct timer *timer)
{
    hold_place(container_of(timer, struct plan_process, timer));
}

static void look_again(struct plan_process *process, uint64_t after_ms);

/* --- what is taken back --- */

/* What is tried again and ends as it did is not told again. */
static bool is_news(struct plan_process *process, const char *result)
{
    if (!process->tag && process->told && strcmp(process->told, result) == 0 &&
        process->told_status == process->status)
        return false;
    process->told = result;
    process->told_status = process->status;
    return true;
}

/* Whoever runs the daemon has to do something about it. */
static void log_stuck(const struct plan_process *process, const char *error)
{
    const struct broker *b = process->broker;
    char path[sizeof(b->settings.state) + 256];

    plan_path(b, process->at.bucket, process->at.workspace, process->at.plan, path, sizeof(path));
    log_error("recovery_failed", "workspace", process->at.workspace, "plan", process->at.plan,
              "error", error, "directory", path, "then",
              "the workspace cannot be used until the plan is recovered; the broker tries again. "
              "If you move the directory away, the workspace is left as it is",
              NULL);
}

static void try_later(struct plan_process *process)
{
    uint64_t after_ms = RETRY_MS;

    for (unsigned i = 0; i < process->tries && after_ms < LONGEST_RETRY_MS; i++)
        after_ms *= 2;
    process->tries++;
    process->runs = process->ended = false;
    process->why = "";
    forget_child(process);
    look_again(process, after_ms < LONGEST_RETRY_MS ? after_ms : LONGEST_RETRY_MS);
}

/* What an end that was not good has left: nobody else uses the tree before that is dealt with. The
 * entry itself becomes that, as it has the workspace and all it needs. */
static void recover_after(struct plan_process *process)
{
    if (!process->tag) {
        if (process->news)
            log_stuck(process, process->told);
        try_later(process);
        return;
    }
    process->tag = 0;
    process->verb = &recovery;
    process->request[0] = '\0';
    process->asked_ms = now_ms();
    process->told = NULL;
    process->runs = process->ended = false;
    process->why = "";
    forget_child(process);
    look_again(process, 0);
}

/* Of a recovery that did not even begin. */
static void note_recovery(const struct plan_process *process, const char *result, const char *error)
{
    scoped_buf struct buf details;

    buf_init(&details, PROTOCOL_DETAILS);
    buf_printf(&details, "{\"plan\":\"%s\",\"error\":", process->at.plan);
    record_put_text(&details, error, 1024);
    buf_str(&details, "}");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(process->broker,
                      &(struct audit_record){.actor = "broker",
                                             .workspace = process->at.workspace,
                                             .request = "",
                                             .operation = "plan.recover",
                                             .result = result,
                                             .details = details.p},
                      NULL);
}

/* There is no process, and nothing was done. */
static void not_started(struct plan_process *process, const struct err *err)
{
    char text[512];

    if (process->tag) {
        fail(process, err);
        return;
    }
    err_text(err, text, sizeof(text));
    if (err->code == ERR_NOT_FOUND) { /* somebody has taken the plan, or the tree, away */
        log_warning("recovery_given_up", "workspace", process->at.workspace, "plan",
                    process->at.plan, "error", text, "then", "the workspace is left as it is",
                    NULL);
        note_recovery(process, "left", text);
        plan_unmark(process->broker, &process->at);
        free_process(process);
        return;
    }
    process->status = -err->os_errno;
    if (is_news(process, "not_started")) {
        log_stuck(process, text);
        note_recovery(process, "not_started", text);
    }
    try_later(process);
}

/* --- its end --- */

static void tell_end(struct plan_process *process)
{
    struct broker *b = process->broker;
    scoped_buf struct buf message;
    char frozen[24];
    struct plain_message m = {.texts = {process->at.plan, process->why, frozen},
                              .number = process->answered | (uint64_t)process->status
                                                                << PLAN_STATUS_SHIFT};

    snprintf(frozen, sizeof(frozen), "%llu", (unsigned long long)process->frozen_ms);
    buf_init(&message, 4096); /* first: every way out clears it */
    if (!is_heard(process))
        return;
    protocol_pack_plain(&message, process->tag, &m);
    channel_send(b, ANSWER_PLAN_ENDED, &message, &process->child.answer, 1);
}

static void end_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct plan_process *process = container_of(waiter, struct plan_process, end_wait);

    (void)written; /* it has ended all the same, and the record tries again */
    thaw(process);
    tell_end(process);
    if (process->verb->alone && process->status != 0) {
        recover_after(process);
        return;
    }
    if (process->verb->alone)
        plan_unmark(b, &process->at);
    free_process(process);
}

static const char *result_of(const struct plan_process *process)
{
    if (*process->why)
        return process->why;
    return process->status == 0 ? "done" : process->status == PLAN_KILLED ? "killed" : "failed";
}

/* Of what changed the tree. */
static void record_end(struct plan_process *process)
{
    char operation[32];
    char details[160];

    snprintf(operation, sizeof(operation), "plan.%s", process->verb->name);
    snprintf(details, sizeof(details), "{\"plan\":\"%s\",\"steps\":%llu,\"status\":%d}",
             process->at.plan, (unsigned long long)process->steps.count, process->status);
    struct audit_record record = {.actor = process->tag ? process->actor : "broker",
                                  .workspace = process->at.workspace,
                                  .request = process->request,
                                  .operation = operation,
                                  .result = result_of(process),
                                  .details = details};
    process->end_wait.done = end_written;
    if (record_note(process->broker, &record, &process->end_wait) < 0)
        end_written(process->broker, &process->end_wait, false);
}

/* --- its steps --- */

static void record_step(struct plan_steps *steps, const char *line)
{
    const struct plan_process *process = container_of(steps, struct plan_process, steps);
    scoped_buf struct buf details;

    buf_init(&details, PROTOCOL_DETAILS);
    if (steps->count > MOST_STEPS)
        return;
    buf_printf(&details, "{\"plan\":\"%s\",\"step\":", process->at.plan);
    if (*line && protocol_details_are_sane(line))
        buf_str(&details, line);
    else
        record_put_text(&details, line, 1024);
    buf_str(&details, "}");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(process->broker,
                      &(struct audit_record){.actor = process->tag ? process->actor : "broker",
                                             .workspace = process->at.workspace,
                                             .request = process->request,
                                             .operation = "plan.step",
                                             .result = process->verb->name,
                                             .details = details.p},
                      NULL);
}

static void tell_steps(struct plan_steps *steps)
{
    const struct plan_process *process = container_of(steps, struct plan_process, steps);

    if (is_heard(process))
        channel_send_plain(
            process->broker, ANSWER_PLAN_STEPS, process->tag,
            &(struct plain_message){.texts = {process->at.plan}, .number = steps->count});
}

/* --- running --- */

static void has_gone(struct watch *watch, uint32_t what)
{
    struct plan_process *process = container_of(watch, struct plan_process, gone);
    int status = 0;

    (void)what;
    if (waitpid(process->child.pid, &status, WNOHANG) != process->child.pid)
        return;
    events_forget(process->broker->events, watch);
    hold_place(process);
    plan_steps_drain(&process->steps);
    process->ended = true;
    process->status = WIFEXITED(status) ? WEXITSTATUS(status) : PLAN_KILLED;
    off_t written = lseek(process->child.answer, 0, SEEK_CUR);
    process->answered = written > 0 && written <= PLAN_ANSWER_BYTES ? (uint64_t)written : 0;
    process->news = is_news(process, result_of(process));
    if (process->verb->alone && process->news)
        record_end(process);
    else
        end_written(process->broker, &process->end_wait, true);
}

static void is_late(struct timer *timer)
{
    struct plan_process *process = container_of(timer, struct plan_process, timer);

    hold_place(process);
    process->why = "timeout";
    (void)kill(process->child.pid, SIGKILL);
}

/* A snapshot; -1 where none is named, or with `err` set. */
static int open_named(const struct plan_process *process, const char *text, struct err *err)
{
    struct fork_base base;

    return fork_base_parse(text, &base)
               ? fork_open_kept(process->broker, process->at.bucket, &base, err)
               : -1;
}

/* What it is given beside the tree. */
static int open_others(const struct plan_process *process, int *ret, struct err *err)
{
    const struct broker *b = process->broker;
    struct fork_base base;

    if (process->verb == &fork_snapshot) {
        if (fork_find(b, process->at.bucket, process->at.workspace, &base, err) != 1 ||
            (ret[0] = fork_open_kept(b, process->at.bucket, &base, err)) < 0)
            return -1;
        ret[1] = fork_open_layer(b, process->at.bucket, process->at.workspace, err);
        return ret[1] < 0 ? -1 : 0;
    }
    ret[0] = open_named(process, process->base, err);
    ret[1] = open_named(process, process->theirs, err);
    bool failed = (*process->base && ret[0] < 0) || (*process->theirs && ret[1] < 0);
    return failed ? -1 : 0;
}

static int start(struct plan_process *process, struct err *err)
{
    const struct broker *b = process->broker;
    scoped_fd int tree = tree_open(b, process->at.bucket, process->at.workspace, err);
    scoped_fd int dir = tree < 0 ? -1
                        : process->verb->kept
                            ? plan_open_snapshots(b, &process->at, err)
                            : plan_open_dir(b, &process->at, process->verb->makes, err);

    scoped_fd int base = -1;
    scoped_fd int theirs = -1;
    int others[2] = {-1, -1};
    int r = dir < 0 ? -1 : open_others(process, others, err);

    base = others[0];
    theirs = others[1];
    if (r < 0 || (process->verb->alone && plan_mark(b, &process->at, err) < 0))
        return -1;
    struct plan_start start_it = {.verb = process->verb->name,
                                  .tree = tree,
                                  .dir = dir,
                                  .others = {base, theirs},
                                  .rights = process->verb->rights};
    return plan_child_start(b, &start_it, &process->child, err);
}

/* The front writes the job; ours have an empty one. */
static void tell_start(struct plan_process *process)
{
    struct plain_message m = {.texts = {process->at.plan}, .number = overlay_is_privileged()};
    scoped_buf struct buf message;

    buf_init(&message, 4096);
    if (is_heard(process)) {
        protocol_pack_plain(&message, process->tag, &m);
        channel_send(process->broker, ANSWER_PLAN, &message, &process->child.job, 1);
    } else if (!process->tag) {
        ignore(write(process->child.job, "{}", 2) == 2); /* it fails, and is tried again */
    }
    scope_close(
        &process->child.job); /* the end of the process is seen when the last one is closed */
}

static void begin(struct plan_process *process)
{
    struct broker *b = process->broker;
    struct err err;

    if (start(process, &err) < 0) {
        not_started(process, &err);
        return;
    }
    process->gone.ready = has_gone;
    if (events_watch(b->events, &process->gone, process->child.pidfd, EPOLLIN) < 0 ||
        plan_steps_begin(&process->steps, process->child.steps) < 0) {
        (void)kill(process->child.pid, SIGKILL);
        (void)waitpid(process->child.pid, NULL, 0);
        err_set(&err, ERR_LIMIT, ENOMEM, "watch a plan's process");
        not_started(process, &err);
        return;
    }
    process->runs = true;
    process->timer.ring = is_late;
    ignore(timer_set(b->events, &process->timer, now_ms() + process->verb->most_ms) == 0);
    tell_start(process);
}

/* --- until nobody is in the way --- */

static bool is_taken(const struct plan_process *process)
{
    size_t recoveries = 0;

    for (const struct plan_process *other = process->broker->plan_processes; other;
         other = other->next) {
        bool same = strcmp(other->at.plan, process->at.plan) == 0;
        if (process->verb == &verbs[PLAN_JOURNAL] && other->verb == &recovery && same)
            return true; /* also while it waits for its next try */
        if (other == process || !other->runs)
            continue;
        recoveries += other->verb == &recovery;
        if (process->verb->kept && other->verb->kept &&
            strcmp(other->at.workspace, process->at.workspace) == 0)
            return true;
        if (process->verb->alone && other->verb->alone &&
            strcmp(other->at.workspace, process->at.workspace) == 0)
            return true;
        if (same && !(process->verb->reads && other->verb->reads))
            return true;
    }
    return process->verb == &recovery && recoveries >= MOST_RECOVERIES;
}

/* Commands go on when it has ended. Where they cannot be made to stand still, none may run. */
static int check_frozen(struct plan_process *process, struct err *err)
{
    struct broker *b = process->broker;

    if (lock_take(b, process->at.workspace, LOCK_SNAPSHOT, process, err) < 0)
        return -1;
    if (is_taken(process))
        return 1;
    int r = process->cannot_freeze ? -1 : tree_freeze(b, process->at.workspace);
    if (!process->has_frozen && r >= 0 && tree_has_writers(b, process->at.workspace)) {
        process->has_frozen = true;
        process->frozen_ms = now_ms();
    }
    if (r >= 0)
        return r;
    process->has_frozen = false;
    process->cannot_freeze = true;
    r = lock_settle(b, process->at.workspace, now_ms() < process->asked_ms + PATIENT_MS, err);
    return r < 0 ? err_wrap(err, "this host has no freezer, by which commands could stand still "
                                 "for a snapshot")
                 : r;
}

/* 0: it may begin; 1: not yet; -1: not at all. */
static int check_free(struct plan_process *process, struct err *err)
{
    struct broker *b = process->broker;
    struct sandbox *s = sandbox_find_plan(b, process->at.workspace, process->at.plan);
    char path[sizeof(b->settings.state) + 256];
    struct err unused;

    /* A recovery has the lock, or is passed it by the one that has. */
    if (process->verb->alone && process->tag &&
        lock_take(b, process->at.workspace, LOCK_PLAN, process, err) < 0)
        return -1;
    if (process->verb->freezes)
        return check_frozen(process, err);
    if (is_taken(process))
        return 1;
    if (process->verb->alone)
        return lock_settle(b, process->at.workspace, now_ms() < process->asked_ms + PATIENT_MS,
                           err);
    if (!process->verb->ends_run)
        return 0;
    if (s) {
        sandbox_end(s, "the plan is closed");
        return 1;
    }
    plan_path(b, process->at.bucket, process->at.workspace, process->at.plan, path, sizeof(path));
    return overlay_settle(path, 0, &unused) < 0;
}

static void try_begin(struct plan_process *process)
{
    struct err err;
    int r = check_free(process, &err);

    if (r > 0 && now_ms() > process->asked_ms + BEGIN_MS && process->tag)
        r = err_set(
            &err, ERR_CONFLICT, EBUSY,
            "a process of the workspace does not end, and the plan waits for it; try again later");
    if (r == 0)
        begin(process);
    else if (r > 0 || !process->tag)
        look_again(process, LOOK_MS);
    else
        fail(process, &err);
}

static void look(struct timer *timer)
{
    struct plan_process *process = container_of(timer, struct plan_process, timer);

    hold_place(process);
    try_begin(process);
}

static void look_again(struct plan_process *process, uint64_t after_ms)
{
    process->timer.ring = look;
    ignore(timer_set(process->broker->events, &process->timer, now_ms() + after_ms) == 0);
}

void plans_look(struct broker *b)
{
    for (struct plan_process *process = b->plan_processes, *next; process; process = next) {
        next = process->next;
        if (!process->runs && process->tag)
            try_begin(process);
    }
}

/* --- asking --- */

static struct plan_process *new_process(struct broker *b, const struct plan_message *m,
                                        const struct verb *verb, uint64_t tag)
{
    struct plan_process *process = calloc(1, sizeof(*process));

    if (!process)
        return NULL;
    process->timer.ring = stay;
    if (timer_set(b->events, &process->timer, now_ms() + PLACE_MS) < 0) {
        free(process);
        return NULL;
    }
    process->broker = b;
    process->verb = verb;
    process->tag = tag;
    process->generation = b->generation;
    process->asked_ms = now_ms();
    process->gone.fd = -1;
    plan_steps_init(&process->steps, b->events);
    process->steps.heard = record_step;
    process->steps.tell = tell_steps;
    process->child = (struct plan_child){.pidfd = -1, .job = -1, .answer = -1, .steps = -1};
    process->why = "";
    snprintf(process->at.bucket, sizeof(process->at.bucket), "%s", m->bucket);
    snprintf(process->at.workspace, sizeof(process->at.workspace), "%s", m->workspace);
    snprintf(process->at.plan, sizeof(process->at.plan), "%s", m->plan);
    snprintf(process->actor, sizeof(process->actor), "%s", m->actor);
    snprintf(process->request, sizeof(process->request), "%s", m->request);
    snprintf(process->base, sizeof(process->base), "%s", m->base ? m->base : "");
    snprintf(process->theirs, sizeof(process->theirs), "%s", m->theirs ? m->theirs : "");
    process->next = b->plan_processes;
    b->plan_processes = process;
    b->plan_process_count++;
    return process;
}

/* What is done for it. Of a fork only its snapshots know all that it shows, and of a system of the
 * workspace's own none does. NULL: `err` says why not. */
static const struct verb *verb_for(const struct broker *b, const struct plan_message *m,
                                   struct err *err)
{
    bool is_kept = verbs[m->verb].kept;
    int r = is_kept ? fork_find(b, m->bucket, m->workspace, NULL, err)
                    : fork_refuse(b, m->bucket, m->workspace, "of which there are no plans", err);

    if (r < 0)
        return NULL;
    const struct verb *verb = r > 0 && m->verb == PLAN_SNAPSHOT ? &fork_snapshot : &verbs[m->verb];
    if (verb->freezes && base_refuse_changed(b, m->bucket, m->workspace,
                                             "which a snapshot would be without", err) < 0)
        return NULL;
    return verb;
}

void plan_request(struct broker *b, uint64_t tag, const struct plan_message *m)
{
    struct plan_process *process = NULL;
    const struct verb *verb = NULL;
    struct err err;

    if (b->stopping)
        err_set(&err, ERR_CONFLICT, 0, "the daemon is stopping");
    else if (b->plan_process_count >= MOST_JOBS)
        err_set(&err, ERR_LIMIT, 0, "%d plans are being worked on; try again", MOST_JOBS);
    else if (tree_has_image(b, m->bucket, m->workspace))
        err_set(&err, ERR_KERNEL, 0,
                "the workspace's files are in a disk image, which plans and snapshots cannot be "
                "made of; use a "
                "policy with a disk limit that is not an image");
    else if (!(verb = verb_for(b, m, &err)))
        (void)0; /* it says why */
    else if (!(process = new_process(b, m, verb, tag)))
        err_set(&err, ERR_LIMIT, ENOMEM, "keep the request");
    if (!process) {
        channel_send_error(b, tag, &err);
        return;
    }
    try_begin(process);
}

int plan_recover(struct broker *b, const struct plan_id *at, struct err *err)
{
    struct plan_message m = {.bucket = at->bucket,
                             .workspace = at->workspace,
                             .plan = at->plan,
                             .actor = "broker",
                             .request = ""};
    struct plan_process *process = new_process(b, &m, &recovery, 0);

    if (!process)
        return err_set(err, ERR_LIMIT, ENOMEM, "take back what a plan has half done");
    /* Another plan of the workspace may be there to be taken back: then this one has it next. */
    if (!lock_is_held(b, at->workspace) &&
        lock_take(b, at->workspace, LOCK_PLAN, process, err) < 0) {
        free_process(process);
        return -1;
    }
    look_again(process, 0);
    return 0;
}

void plan_request_cancel(struct broker *b, uint64_t tag)
{
    struct err err;

    for (struct plan_process *process = b->plan_processes; process; process = process->next) {
        if (!process->tag || process->tag != tag || process->generation != b->generation)
            continue;
        if (!process->runs) {
            err_set(&err, ERR_CONFLICT, 0, "it was cancelled before it began");
            fail(process, &err);
        } else if (!process->verb->alone) {
            process->why = "cancelled";
            (void)kill(process->child.pid, SIGKILL);
        }
        return;
    }
}

bool plan_is_worked_on(const struct broker *b, const char *plan)
{
    for (const struct plan_process *process = b->plan_processes; process; process = process->next) {
        if (strcmp(process->at.plan, plan) == 0 && !process->verb->reads)
            return true;
    }
    return false;
}

bool plans_use(const struct broker *b, const char *workspace)
{
    for (const struct plan_process *process = b->plan_processes; process; process = process->next) {
        if (strcmp(process->at.workspace, workspace) == 0)
            return true;
    }
    return false;
}

/* --- the end of a front, and of all --- */

void plans_front_died(struct broker *b)
{
    for (struct plan_process *process = b->plan_processes, *next; process; process = next) {
        next = process->next;
        if (!process->tag)
            continue;
        if (!process->runs)
            free_process(process);
        else if (!process->verb->alone)
            (void)kill(process->child.pid, SIGKILL); /* nobody hears the answer */
    }
}

void plans_end_all(struct broker *b)
{
    for (const struct plan_process *process = b->plan_processes; process; process = process->next) {
        if (process->runs && !process->verb->alone)
            (void)kill(process->child.pid, SIGKILL);
    }
}

bool plans_are_over(const struct broker *b)
{
    for (const struct plan_process *process = b->plan_processes; process; process = process->next) {
        if (process->runs)
            return false;
    }
    return true;
}

void plan_processes_close(struct broker *b)
{
    for (struct plan_process *process = b->plan_processes, *next; process; process = next) {
        next = process->next;
        if (process->runs && !process->ended) {
            (void)kill(process->child.pid, SIGKILL); /* the next start takes it back */
            (void)waitpid(process->child.pid, NULL, 0);
        }
        free_process(process);
    }
}
