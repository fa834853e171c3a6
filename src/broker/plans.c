/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with plans: a process each (carrel-plan), which gets the tree and the plan's
 * directory and is told by the front what to do. We never read what the two say to each other.
 *
 *   asked --(nobody is in the way)--> running, ANSWER_PLAN --(it ends, its records are on disk)-->
 * ANSWER_PLAN_ENDED
 *
 * Who changes the tree has the workspace alone (tree_locks.c). When such a process does not end
 * well, or the daemon before this one was killed with it, another one takes back what was half done
 * before anybody else may use the tree. That is tried until it succeeds, ever more seldom, or until
 * the plan's directory is gone: then the tree is left as it is. A front that asks what a plan has
 * come to (PLAN_RECOVER) waits for that, and has the workspace next. */
#include "broker/plans.h"

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
#include "broker/log.h"
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
    TELL_MS = 200,      /* how often it is told how far it is */
    LONGEST_STEP = 32768,
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
    [PLAN_RECOVER] = {"recover", 120 * MINUTE, .alone = true},
    [PLAN_VIEW] = {"view", 30 * MINUTE, .rights = PLAN_READS_LAYERS},
};

struct plan_job {
    struct plan_job *next;
    struct broker *broker;
    struct plan_place at;
    const struct verb *verb;
    uint64_t tag; /* 0: our own */
    uint64_t generation;
    char actor[TEXT_ROOM];
    char request[TEXT_ROOM];
    uint64_t asked_ms;
    struct timer timer; /* to look again; while it runs, its deadline */
    struct timer tell;
    struct plan_child child;
    struct watch gone;
    struct watch steps;
    struct buf line;
    uint64_t step_count;
    uint64_t steps_told;
    bool runs;
    bool ended;
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

static void unlink_job(struct plan_job *job)
{
    struct plan_job **at = &job->broker->plan_jobs;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->broker->plan_job_count--;
}

/* Another plan of the workspace that is to be taken back has it next, then a front that asks what
 * became of one, and nobody in between. */
static void let_go(struct plan_job *job)
{
    struct broker *b = job->broker;
    const struct plan_job *next = NULL;

    for (const struct plan_job *other = b->plan_jobs; other; other = other->next) {
        if (other->verb == &verbs[PLAN_RECOVER] && (!next || !other->tag) &&
            strcmp(other->at.workspace, job->at.workspace) == 0)
            next = other;
    }
    if (next)
        lock_pass(b, job->at.workspace, job, next);
    else
        lock_release(b, job->at.workspace, job);
}

static void forget_child(struct plan_job *job)
{
    struct broker *b = job->broker;

    timer_stop(b->events, &job->tell);
    events_forget(b->events, &job->gone);
    events_forget(b->events, &job->steps);
    plan_child_close(&job->child);
    buf_clear(&job->line);
}

static void free_job(struct plan_job *job)
{
    unlink_job(job);
    timer_stop(job->broker->events, &job->timer);
    forget_child(job);
    if (job->verb->alone)
        let_go(job);
    free(job);
}

static bool is_heard(const struct plan_job *job)
{
    return job->tag && job->generation == job->broker->generation && job->broker->resumed;
}

static void fail(struct plan_job *job, const struct err *err)
{
    if (is_heard(job))
        channel_send_error(job->broker, job->tag, err);
    free_job(job);
}

static void stay(struct timer *timer);

/* A job's timer is set as long as there is the job: setting it anew needs no memory, so that one
 * that is to be taken back cannot be lost for the lack of it. */
static void hold_place(struct plan_job *job)
{
    job->timer.ring = stay;
    ignore(timer_set(job->broker->events, &job->timer, now_ms() + PLACE_MS) == 0);
}

static void stay(struct timer *timer)
{
    hold_place(container_of(timer, struct plan_job, timer));
}

static void look_again(struct plan_job *job, uint64_t after_ms);

/* --- what is taken back --- */

/* What is tried again and ends as it did is not told again. */
static bool is_news(struct plan_job *job, const char *result)
{
    if (!job->tag && job->told && strcmp(job->told, result) == 0 && job->told_status == job->status)
        return false;
    job->told = result;
    job->told_status = job->status;
    return true;
}

/* Whoever runs the daemon has to do something about it. */
static void log_stuck(const struct plan_job *job, const char *error)
{
    const struct broker *b = job->broker;
    char path[sizeof(b->settings.state) + 256];

    plan_path(b, job->at.bucket, job->at.workspace, job->at.plan, path, sizeof(path));
    log_error("recovery_failed", "workspace", job->at.workspace, "plan", job->at.plan, "error",
              error, "directory", path, "then",
              "the workspace cannot be used until the plan is recovered; the broker tries again. "
              "If you move the directory away, the workspace is left as it is",
              NULL);
}

static void try_later(struct plan_job *job)
{
    uint64_t after_ms = RETRY_MS;

    for (unsigned i = 0; i < job->tries && after_ms < LONGEST_RETRY_MS; i++)
        after_ms *= 2;
    job->tries++;
    job->runs = job->ended = false;
    job->why = "";
    forget_child(job);
    look_again(job, after_ms < LONGEST_RETRY_MS ? after_ms : LONGEST_RETRY_MS);
}

/* What an end that was not good has left: nobody else uses the tree before that is dealt with. The
 * job itself becomes that, as it has the workspace and all it needs. */
static void recover_after(struct plan_job *job)
{
    if (!job->tag) {
        if (job->news)
            log_stuck(job, job->told);
        try_later(job);
        return;
    }
    job->tag = 0;
    job->verb = &verbs[PLAN_RECOVER];
    job->request[0] = '\0';
    job->asked_ms = now_ms();
    job->told = NULL;
    job->runs = job->ended = false;
    job->why = "";
    forget_child(job);
    look_again(job, 0);
}

/* Of a recovery that did not even begin. */
static void note_recovery(const struct plan_job *job, const char *result, const char *error)
{
    scoped_buf struct buf details;

    buf_init(&details, PROTOCOL_DETAILS);
    buf_printf(&details, "{\"plan\":\"%s\",\"error\":", job->at.plan);
    record_put_text(&details, error, 1024);
    buf_str(&details, "}");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(job->broker,
                      &(struct audit_record){.actor = "broker",
                                             .workspace = job->at.workspace,
                                             .request = "",
                                             .operation = "plan.recover",
                                             .result = result,
                                             .details = details.p},
                      NULL);
}

/* It has not got its job, and done nothing. */
static void not_started(struct plan_job *job, const struct err *err)
{
    char text[512];

    if (job->tag) {
        fail(job, err);
        return;
    }
    err_text(err, text, sizeof(text));
    if (err->code == ERR_NOT_FOUND) { /* somebody has taken the plan, or the tree, away */
        log_warning("recovery_given_up", "workspace", job->at.workspace, "plan", job->at.plan,
                    "error", text, "then", "the workspace is left as it is", NULL);
        note_recovery(job, "left", text);
        plan_unmark(job->broker, &job->at);
        free_job(job);
        return;
    }
    job->status = -err->os_errno;
    if (is_news(job, "not_started")) {
        log_stuck(job, text);
        note_recovery(job, "not_started", text);
    }
    try_later(job);
}

/* --- its end --- */

static void tell_end(struct plan_job *job)
{
    struct broker *b = job->broker;
    scoped_buf struct buf message;
    struct plain_message m = {.texts = {job->at.plan, job->why},
                              .number = job->answered | (uint64_t)job->status << PLAN_STATUS_SHIFT};

    buf_init(&message, 4096); /* first: every way out clears it */
    if (!is_heard(job))
        return;
    protocol_pack_plain(&message, job->tag, &m);
    channel_send(b, ANSWER_PLAN_ENDED, &message, &job->child.answer, 1);
}

static void end_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct plan_job *job = container_of(waiter, struct plan_job, end_wait);

    (void)written; /* it has ended all the same, and the journal tries again */
    tell_end(job);
    if (job->verb->alone && job->status != 0) {
        recover_after(job);
        return;
    }
    if (job->verb->alone)
        plan_unmark(b, &job->at);
    free_job(job);
}

static const char *result_of(const struct plan_job *job)
{
    if (*job->why)
        return job->why;
    return job->status == 0 ? "done" : job->status == PLAN_KILLED ? "killed" : "failed";
}

/* Of what changed the tree. */
static void record_end(struct plan_job *job)
{
    char operation[32];
    char details[160];

    snprintf(operation, sizeof(operation), "plan.%s", job->verb->name);
    snprintf(details, sizeof(details), "{\"plan\":\"%s\",\"steps\":%llu,\"status\":%d}",
             job->at.plan, (unsigned long long)job->step_count, job->status);
    struct audit_record record = {.actor = job->tag ? job->actor : "broker",
                                  .workspace = job->at.workspace,
                                  .request = job->request,
                                  .operation = operation,
                                  .result = result_of(job),
                                  .details = details};
    job->end_wait.done = end_written;
    if (record_note(job->broker, &record, &job->end_wait) < 0)
        end_written(job->broker, &job->end_wait, false);
}

/* --- its steps --- */

static void record_step(struct plan_job *job, const char *line)
{
    scoped_buf struct buf details;

    buf_init(&details, PROTOCOL_DETAILS);
    if (++job->step_count > MOST_STEPS)
        return;
    buf_printf(&details, "{\"plan\":\"%s\",\"step\":", job->at.plan);
    if (*line && protocol_details_are_sane(line))
        buf_str(&details, line);
    else
        record_put_text(&details, line, 1024);
    buf_str(&details, "}");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(job->broker,
                      &(struct audit_record){.actor = job->tag ? job->actor : "broker",
                                             .workspace = job->at.workspace,
                                             .request = job->request,
                                             .operation = "plan.step",
                                             .result = job->verb->name,
                                             .details = details.p},
                      NULL);
}

static void take_lines(struct plan_job *job)
{
    size_t at = 0;

    for (;;) {
        char *end = memchr(job->line.p + at, '\n', job->line.n - at);
        if (!end)
            break;
        *end = '\0';
        record_step(job, job->line.p + at);
        at = (size_t)(end + 1 - job->line.p);
    }
    memmove(job->line.p, job->line.p + at, job->line.n - at);
    job->line.n -= at;
    if (job->line.n > LONGEST_STEP)
        job->line.n = 0; /* no line of ours */
}

/* False: there are no more now. */
static bool read_steps(struct plan_job *job)
{
    char piece[16384];
    ssize_t n = read(job->child.steps, piece, sizeof(piece));

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            events_forget(job->broker->events, &job->steps);
        return false;
    }
    buf_add(&job->line, piece, (size_t)n);
    if (job->line.failed || !job->line.p)
        return false;
    take_lines(job);
    return true;
}

static void tell_steps(struct timer *timer)
{
    struct plan_job *job = container_of(timer, struct plan_job, tell);

    if (is_heard(job) && job->step_count != job->steps_told)
        channel_send_plain(
            job->broker, ANSWER_PLAN_STEPS, job->tag,
            &(struct plain_message){.texts = {job->at.plan}, .number = job->step_count});
    job->steps_told = job->step_count;
}

static void steps_ready(struct watch *watch, uint32_t what)
{
    struct plan_job *job = container_of(watch, struct plan_job, steps);

    (void)what;
    (void)read_steps(job);
    if (job->step_count != job->steps_told && !job->tell.due_ms)
        ignore(timer_set(job->broker->events, &job->tell, now_ms() + TELL_MS) == 0);
}

/* --- running --- */

static void has_gone(struct watch *watch, uint32_t what)
{
    struct plan_job *job = container_of(watch, struct plan_job, gone);
    int status = 0;

    (void)what;
    if (waitpid(job->child.pid, &status, WNOHANG) != job->child.pid)
        return;
    events_forget(job->broker->events, watch);
    hold_place(job);
    timer_stop(job->broker->events, &job->tell);
    while (read_steps(job))
        continue;
    job->ended = true;
    job->status = WIFEXITED(status) ? WEXITSTATUS(status) : PLAN_KILLED;
    off_t written = lseek(job->child.answer, 0, SEEK_CUR);
    job->answered = written > 0 && written <= PLAN_ANSWER_BYTES ? (uint64_t)written : 0;
    job->news = is_news(job, result_of(job));
    if (job->verb->alone && job->news)
        record_end(job);
    else
        end_written(job->broker, &job->end_wait, true);
}

static void is_late(struct timer *timer)
{
    struct plan_job *job = container_of(timer, struct plan_job, timer);

    hold_place(job);
    job->why = "timeout";
    (void)kill(job->child.pid, SIGKILL);
}

static int start(struct plan_job *job, struct err *err)
{
    const struct broker *b = job->broker;
    scoped_fd int tree = tree_open(b, job->at.bucket, job->at.workspace, err);
    scoped_fd int dir = tree < 0 ? -1 : plan_open_dir(b, &job->at, job->verb->makes, err);

    if (dir < 0 || (job->verb->alone && plan_mark(b, &job->at, err) < 0))
        return -1;
    struct plan_start start_it = {
        .verb = job->verb->name, .tree = tree, .dir = dir, .rights = job->verb->rights};
    return plan_child_start(b, &start_it, &job->child, err);
}

/* The front writes the job; ours have none. */
static void tell_start(struct plan_job *job)
{
    struct plain_message m = {.texts = {job->at.plan}, .number = overlay_is_privileged()};
    scoped_buf struct buf message;

    buf_init(&message, 4096);
    if (is_heard(job)) {
        protocol_pack_plain(&message, job->tag, &m);
        channel_send(job->broker, ANSWER_PLAN, &message, &job->child.job, 1);
    } else if (!job->tag) {
        ignore(write(job->child.job, "{}", 2) == 2); /* it fails, and is tried again */
    }
    scope_close(&job->child.job); /* the end of the job is seen when the last one is closed */
}

static void begin(struct plan_job *job)
{
    struct broker *b = job->broker;
    struct err err;

    if (start(job, &err) < 0) {
        not_started(job, &err);
        return;
    }
    job->gone.ready = has_gone;
    job->steps.ready = steps_ready;
    job->step_count = job->steps_told = 0;
    buf_init(&job->line, LONGEST_STEP + 32768);
    if (events_watch(b->events, &job->gone, job->child.pidfd, EPOLLIN) < 0 ||
        events_watch(b->events, &job->steps, job->child.steps, EPOLLIN) < 0) {
        (void)kill(job->child.pid, SIGKILL);
        (void)waitpid(job->child.pid, NULL, 0);
        err_set(&err, ERR_LIMIT, ENOMEM, "watch a plan's process");
        not_started(job, &err);
        return;
    }
    job->runs = true;
    job->timer.ring = is_late;
    ignore(timer_set(b->events, &job->timer, now_ms() + job->verb->most_ms) == 0);
    tell_start(job);
}

/* --- until nobody is in the way --- */

static bool is_taken(const struct plan_job *job)
{
    size_t recoveries = 0;

    for (const struct plan_job *other = job->broker->plan_jobs; other; other = other->next) {
        if (other == job || !other->runs)
            continue;
        recoveries += other->verb == &verbs[PLAN_RECOVER];
        if (job->verb->alone && other->verb->alone &&
            strcmp(other->at.workspace, job->at.workspace) == 0)
            return true;
        if (strcmp(other->at.plan, job->at.plan) == 0 && !(job->verb->reads && other->verb->reads))
            return true;
    }
    return job->verb == &verbs[PLAN_RECOVER] && recoveries >= MOST_RECOVERIES;
}

/* 0: it may begin; 1: not yet; -1: not at all. */
static int check_free(struct plan_job *job, struct err *err)
{
    struct broker *b = job->broker;
    struct desk *d = desk_find_plan(b, job->at.workspace, job->at.plan);
    char path[sizeof(b->settings.state) + 256];
    struct err unused;

    /* Our own have it, or get it from the one that has. */
    if (job->verb->alone && job->tag && lock_take(b, job->at.workspace, LOCK_PLAN, job, err) < 0)
        return job->verb == &verbs[PLAN_RECOVER] && err->os_errno == EBUSY ? 1 : -1;
    if (is_taken(job))
        return 1;
    if (job->verb->alone)
        return lock_settle(b, job->at.workspace, now_ms() < job->asked_ms + PATIENT_MS, err);
    if (!job->verb->ends_run)
        return 0;
    if (d) {
        desk_end(d, "the plan is closed");
        return 1;
    }
    plan_path(b, job->at.bucket, job->at.workspace, job->at.plan, path, sizeof(path));
    return overlay_settle(path, 0, &unused) < 0;
}

static void try_begin(struct plan_job *job)
{
    struct err err;
    int r = check_free(job, &err);

    if (r > 0 && now_ms() > job->asked_ms + BEGIN_MS && job->tag)
        r = err_set(
            &err, ERR_CONFLICT, EBUSY,
            "a process of the workspace does not end, and the plan waits for it; try again later");
    if (r == 0)
        begin(job);
    else if (r > 0 || !job->tag)
        look_again(job, LOOK_MS);
    else
        fail(job, &err);
}

static void look(struct timer *timer)
{
    struct plan_job *job = container_of(timer, struct plan_job, timer);

    hold_place(job);
    try_begin(job);
}

static void look_again(struct plan_job *job, uint64_t after_ms)
{
    job->timer.ring = look;
    ignore(timer_set(job->broker->events, &job->timer, now_ms() + after_ms) == 0);
}

void plans_look(struct broker *b)
{
    for (struct plan_job *job = b->plan_jobs, *next; job; job = next) {
        next = job->next;
        if (!job->runs && job->tag)
            try_begin(job);
    }
}

/* --- asking --- */

static struct plan_job *new_job(struct broker *b, const struct plan_message *m, uint64_t tag)
{
    struct plan_job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->timer.ring = stay;
    if (timer_set(b->events, &job->timer, now_ms() + PLACE_MS) < 0) {
        free(job);
        return NULL;
    }
    job->broker = b;
    job->verb = &verbs[m->verb];
    job->tag = tag;
    job->generation = b->generation;
    job->asked_ms = now_ms();
    job->gone.fd = job->steps.fd = -1;
    job->child = (struct plan_child){.pidfd = -1, .job = -1, .answer = -1, .steps = -1};
    job->why = "";
    job->tell.ring = tell_steps;
    snprintf(job->at.bucket, sizeof(job->at.bucket), "%s", m->bucket);
    snprintf(job->at.workspace, sizeof(job->at.workspace), "%s", m->workspace);
    snprintf(job->at.plan, sizeof(job->at.plan), "%s", m->plan);
    snprintf(job->actor, sizeof(job->actor), "%s", m->actor);
    snprintf(job->request, sizeof(job->request), "%s", m->request);
    job->next = b->plan_jobs;
    b->plan_jobs = job;
    b->plan_job_count++;
    return job;
}

void plan_request(struct broker *b, uint64_t tag, const struct plan_message *m)
{
    struct plan_job *job = NULL;
    struct err err;

    if (b->stopping)
        err_set(&err, ERR_CONFLICT, 0, "the daemon is stopping");
    else if (b->plan_job_count >= MOST_JOBS)
        err_set(&err, ERR_LIMIT, 0, "%d plans are being worked on; try again", MOST_JOBS);
    else if (tree_has_image(b, m->bucket, m->workspace))
        err_set(&err, ERR_KERNEL, 0,
                "the workspace's files are in a disk image, which plans cannot be made of; use a "
                "policy with a disk limit that is not an image");
    else if (!(job = new_job(b, m, tag)))
        err_set(&err, ERR_LIMIT, ENOMEM, "keep the request");
    if (!job) {
        channel_send_error(b, tag, &err);
        return;
    }
    try_begin(job);
}

int plan_recover(struct broker *b, const struct plan_place *at, struct err *err)
{
    struct plan_message m = {.bucket = at->bucket,
                             .workspace = at->workspace,
                             .plan = at->plan,
                             .actor = "broker",
                             .request = "",
                             .verb = PLAN_RECOVER};
    struct plan_job *job = new_job(b, &m, 0);

    if (!job)
        return err_set(err, ERR_LIMIT, ENOMEM, "take back what a plan has half done");
    /* Another plan of the workspace may be there to be taken back: then this one has it next. */
    if (!lock_is_held(b, at->workspace) && lock_take(b, at->workspace, LOCK_PLAN, job, err) < 0) {
        free_job(job);
        return -1;
    }
    look_again(job, 0);
    return 0;
}

void plan_request_cancel(struct broker *b, uint64_t tag)
{
    struct err err;

    for (struct plan_job *job = b->plan_jobs; job; job = job->next) {
        if (!job->tag || job->tag != tag || job->generation != b->generation)
            continue;
        if (!job->runs) {
            err_set(&err, ERR_CONFLICT, 0, "it was cancelled before it began");
            fail(job, &err);
        } else if (!job->verb->alone) {
            job->why = "cancelled";
            (void)kill(job->child.pid, SIGKILL);
        }
        return;
    }
}

bool plan_is_worked_on(const struct broker *b, const char *plan)
{
    for (const struct plan_job *job = b->plan_jobs; job; job = job->next) {
        if (strcmp(job->at.plan, plan) == 0 && !job->verb->reads)
            return true;
    }
    return false;
}

bool plans_use(const struct broker *b, const char *workspace)
{
    for (const struct plan_job *job = b->plan_jobs; job; job = job->next) {
        if (strcmp(job->at.workspace, workspace) == 0)
            return true;
    }
    return false;
}

/* --- the end of a front, and of all --- */

void plans_front_died(struct broker *b)
{
    for (struct plan_job *job = b->plan_jobs, *next; job; job = next) {
        next = job->next;
        if (!job->tag)
            continue;
        if (!job->runs)
            free_job(job);
        else if (!job->verb->alone)
            (void)kill(job->child.pid, SIGKILL); /* nobody hears the answer */
    }
}

void plans_end_all(struct broker *b)
{
    for (const struct plan_job *job = b->plan_jobs; job; job = job->next) {
        if (job->runs && !job->verb->alone)
            (void)kill(job->child.pid, SIGKILL);
    }
}

bool plans_are_over(const struct broker *b)
{
    for (const struct plan_job *job = b->plan_jobs; job; job = job->next) {
        if (job->runs)
            return false;
    }
    return true;
}

void plan_jobs_close(struct broker *b)
{
    for (struct plan_job *job = b->plan_jobs, *next; job; job = next) {
        next = job->next;
        if (job->runs && !job->ended) {
            (void)kill(job->child.pid, SIGKILL); /* the next start takes it back */
            (void)waitpid(job->child.pid, NULL, 0);
        }
        free_job(job);
    }
}
