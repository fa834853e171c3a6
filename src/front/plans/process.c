/* SPDX-License-Identifier: Apache-2.0 */
#include "front/plans/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/answers.h"
#include "base/fd.h"
#include "base/text.h"

enum {
    ANSWER_MAX = 16 << 20, /* of an answer that is parsed: everybody waits for that */
};

struct plan_job {
    struct plan_job *next;
    struct front *front;
    char tenant[FRONT_ID]; /* the workspace's owner */
    const struct plan_job_calls *calls;
    void *owner; /* with calls; NULL: nobody listens */
    uint64_t tag;
    uint64_t verb;
    char *text;
    size_t n;
    size_t at;
    int fd; /* where the text goes */
    struct watch watch;
    struct buf asks; /* the broker is asked when its owner has fewer under way; else empty */
};

static void stop_writing(struct plan_job *job)
{
    events_forget(job->front->events, &job->watch);
    scope_close(&job->fd);
    free(job->text);
    job->text = NULL;
}

static bool is_of(const struct plan_job *job, const char *owner)
{
    return strcmp(job->tenant, owner) == 0;
}

/* The one that has waited longest, which is the last of the list. */
static void begin_next(struct front *front, const char *owner)
{
    struct plan_job *next = NULL;

    for (struct plan_job *job = front->plan_jobs; job; job = job->next) {
        if (job->asks.n > 0 && is_of(job, owner))
            next = job;
    }
    if (next)
        link_send(front->link, REQUEST_PLAN_JOB, &next->asks);
}

static void free_job(struct plan_job *job)
{
    struct plan_job **at = &job->front->plan_jobs;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    link_settle(job->front->link, job->tag);
    stop_writing(job);
    if (job->asks.n == 0) /* it had a place, which another may take */
        begin_next(job->front, job->tenant);
    buf_clear(&job->asks);
    free(job);
}

size_t plan_jobs_of(const struct front *front, const char *owner)
{
    size_t n = 0;

    for (const struct plan_job *job = front->plan_jobs; job; job = job->next)
        n += is_of(job, owner);
    return n;
}

/* A process that does not want all of it has said why in its answer. */
static void write_text(struct plan_job *job)
{
    while (job->at < job->n) {
        ssize_t n = write(job->fd, job->text + job->at, job->n - job->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            break;
        job->at += (size_t)n;
    }
    stop_writing(job);
}

static void writable(struct watch *watch, uint32_t what)
{
    (void)what;
    write_text(container_of(watch, struct plan_job, watch));
}

/* Only now it is known what the marks of its layer are. */
static int describe_layer(struct plan_job *job, bool privileged)
{
    char *text = NULL;
    int n = asprintf(&text, "{\"%s\":\"%.*s\",\"privileged\":%s}",
                     job->verb == PLAN_VIEW ? "hash" : "mode", (int)job->n, job->text,
                     privileged ? "true" : "false");

    if (n < 0)
        return -1;
    free(job->text);
    job->text = text;
    job->n = (size_t)n;
    return 0;
}

static void begun(struct plan_job *job, struct answer *answer, const struct plain_message *m)
{
    if (answer->fd_count < 1)
        return;
    job->fd = take_fd(&answer->fds[0]);
    if ((job->verb == PLAN_DERIVE || job->verb == PLAN_VIEW) &&
        describe_layer(job, m->number == 1) < 0) {
        stop_writing(job); /* it hears nothing, and says so */
        return;
    }
    ignore(fcntl(job->fd, F_SETFL, O_NONBLOCK | O_WRONLY) == 0);
    job->watch.ready = writable;
    if (events_watch(job->front->events, &job->watch, job->fd, EPOLLOUT) < 0)
        stop_writing(job);
    else
        write_text(job);
}

static void ended(struct plan_job *job, struct answer *answer, const struct plain_message *m)
{
    struct plan_end end = {.status = (int)(m->number >> PLAN_STATUS_SHIFT),
                           .why = m->texts[1],
                           .fd = answer->fd_count ? answer->fds[0] : -1,
                           .n = m->number & ((1ULL << PLAN_STATUS_SHIFT) - 1)};
    const struct plan_job_calls *calls = job->calls;
    void *owner = job->owner;

    free_job(job);
    if (calls)
        calls->ended(owner, &end);
}

static void fail(struct plan_job *job, const struct err *err)
{
    const struct plan_job_calls *calls = job->calls;
    void *owner = job->owner;

    free_job(job);
    if (calls)
        calls->failed(owner, err);
}

static void failed(struct plan_job *job, struct answer *answer)
{
    struct err err;
    uint64_t tag;

    if (!protocol_unpack_error(answer->bytes, answer->n, &tag, &err))
        err_set(&err, ERR_IO, 0, "the broker's answer cannot be read");
    fail(job, &err);
}

static void heard(void *context, struct answer *answer)
{
    struct plan_job *job = context;
    struct plain_message m;
    uint64_t tag;

    if (answer->kind == ANSWER_ERROR) {
        failed(job, answer);
        return;
    }
    if (!protocol_unpack_plain(answer->bytes, answer->n, &tag, &m))
        return;
    if (answer->kind == ANSWER_PLAN)
        begun(job, answer, &m);
    else if (answer->kind == ANSWER_PLAN_STEPS && job->calls && job->calls->steps)
        job->calls->steps(job->owner, m.number);
    else if (answer->kind == ANSWER_PLAN_ENDED)
        ended(job, answer, &m);
}

struct plan_job *plan_job_start(struct front *front, const struct plan_message *m, char *text,
                                size_t n, const struct plan_job_calls *calls, void *owner)
{
    struct plan_job *job = text ? calloc(1, sizeof(*job)) : NULL;

    if (job)
        *job = (struct plan_job){.front = front,
                                 .calls = calls,
                                 .owner = owner,
                                 .verb = m->verb,
                                 .text = text,
                                 .n = n,
                                 .fd = -1,
                                 .watch = {.fd = -1}};
    if (job)
        job->tag = link_expect_many(front->link, heard, job);
    if (!job || !job->tag) {
        free(job);
        free(text);
        return NULL;
    }
    if (m->owner)
        text_copy(job->tenant, sizeof(job->tenant), m->owner);
    bool waits = plan_jobs_of(front, job->tenant) >= PLAN_JOBS_OWN;
    job->next = front->plan_jobs;
    front->plan_jobs = job;
    buf_init(&job->asks, 16384);
    protocol_pack_plan(&job->asks, job->tag, m);
    if (!waits || job->asks.failed)
        link_send(front->link, REQUEST_PLAN_JOB, &job->asks);
    return job;
}

void plan_job_cancel(struct plan_job *job)
{
    struct plain_message m = {.number = job->tag};
    struct err err;
    struct buf b;

    if (job->asks.n > 0) { /* the broker knows nothing of it */
        err_set(&err, ERR_CONFLICT, 0, "the action was cancelled before it began");
        fail(job, &err);
        return;
    }
    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    link_send(job->front->link, REQUEST_PLAN_CANCEL, &b);
}

void plan_job_leave(struct plan_job *job)
{
    job->calls = NULL;
    job->owner = NULL;
    plan_job_cancel(job);
}

char *plan_end_text(const struct plan_end *end)
{
    char *text = malloc(end->n + 1);
    size_t at = 0;

    while (text && at < end->n) {
        ssize_t n = pread(end->fd, text + at, end->n - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    if (text)
        text[at] = '\0';
    return text;
}

enum err_said plan_answer_said(const json_t *error)
{
    enum err_said said = err_said_of(json_string_value(json_object_get(error, "code")));

    return err_answer(said)->plan == ERR_NONE ? SAID_IO_ERROR : said;
}

json_t *plan_end_json(const struct plan_end *end)
{
    bool readable = end->fd >= 0 && end->n <= ANSWER_MAX;
    char *text = readable ? plan_end_text(end) : NULL;
    json_t *object = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;

    free(text);
    if (json_is_object(object))
        return object;
    json_decref(object);
    return NULL;
}
