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

struct plan_process {
    struct plan_process *next;
    struct front *front;
    char tenant[FRONT_ID]; /* the workspace's owner */
    const struct plan_process_calls *calls;
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

static void stop_writing(struct plan_process *process)
{
    events_forget(process->front->events, &process->watch);
    scope_close(&process->fd);
    free(process->text);
    process->text = NULL;
}

static bool is_of(const struct plan_process *process, const char *owner)
{
    return strcmp(process->tenant, owner) == 0;
}

/* The one that has waited longest, which is the last of the list. */
static void begin_next(struct front *front, const char *owner)
{
    struct plan_process *next = NULL;

    for (struct plan_process *process = front->plan_processes; process; process = process->next) {
        if (process->asks.n > 0 && is_of(process, owner))
            next = process;
    }
    if (next)
        broker_send(front->channel, REQUEST_PLAN_JOB, &next->asks);
}

static void free_process(struct plan_process *process)
{
    struct plan_process **at = &process->front->plan_processes;

    while (*at != process)
        at = &(*at)->next;
    *at = process->next;
    broker_settle(process->front->channel, process->tag);
    stop_writing(process);
    if (process->asks.n == 0) /* it had a place, which another may take */
        begin_next(process->front, process->tenant);
    buf_clear(&process->asks);
    free(process);
}

size_t plan_processes_of(const struct front *front, const char *owner)
{
    size_t n = 0;

    for (const struct plan_process *process = front->plan_processes; process;
         process = process->next)
        n += is_of(process, owner);
    return n;
}

/* A process that does not want all of it has said why in its answer. */
static void write_text(struct plan_process *process)
{
    while (process->at < process->n) {
        ssize_t n = write(process->fd, process->text + process->at, process->n - process->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            break;
        process->at += (size_t)n;
    }
    stop_writing(process);
}

static void writable(struct watch *watch, uint32_t what)
{
    (void)what;
    write_text(container_of(watch, struct plan_process, watch));
}

/* Only now it is known what the marks of its layer are. */
static int describe_layer(struct plan_process *process, bool privileged)
{
    char *text = NULL;
    int n = asprintf(&text, "{\"%s\":\"%.*s\",\"privileged\":%s}",
                     process->verb == PLAN_VIEW ? "hash" : "mode", (int)process->n, process->text,
                     privileged ? "true" : "false");

    if (n < 0)
        return -1;
    free(process->text);
    process->text = text;
    process->n = (size_t)n;
    return 0;
}

/* Likewise of a snapshot, whose job is an object. */
static int describe_snapshot(struct plan_process *process, bool privileged)
{
    char *text = NULL;
    int n = process->n < 2 ? -1
                           : asprintf(&text, "{\"privileged\":%s,%s", privileged ? "true" : "false",
                                      process->text + 1);

    if (n < 0)
        return -1;
    free(process->text);
    process->text = text;
    process->n = (size_t)n;
    return 0;
}

static void begun(struct plan_process *process, struct answer *answer,
                  const struct plain_message *m)
{
    if (answer->fd_count < 1)
        return;
    process->fd = take_fd(&answer->fds[0]);
    if (((process->verb == PLAN_DERIVE || process->verb == PLAN_VIEW) &&
         describe_layer(process, m->number == 1) < 0) ||
        (process->verb == PLAN_SNAPSHOT && describe_snapshot(process, m->number == 1) < 0)) {
        stop_writing(process); /* it hears nothing, and says so */
        return;
    }
    ignore(fcntl(process->fd, F_SETFL, O_NONBLOCK | O_WRONLY) == 0);
    process->watch.ready = writable;
    if (events_watch(process->front->events, &process->watch, process->fd, EPOLLOUT) < 0)
        stop_writing(process);
    else
        write_text(process);
}

static void ended(struct plan_process *process, struct answer *answer,
                  const struct plain_message *m)
{
    struct plan_end end = {.status = (int)(m->number >> PLAN_STATUS_SHIFT),
                           .why = m->texts[1],
                           .fd = answer->fd_count ? answer->fds[0] : -1,
                           .n = m->number & ((1ULL << PLAN_STATUS_SHIFT) - 1),
                           .frozen_ms = strtoull(m->texts[2], NULL, 10)};
    const struct plan_process_calls *calls = process->calls;
    void *owner = process->owner;

    free_process(process);
    if (calls)
        calls->ended(owner, &end);
}

static void fail(struct plan_process *process, const struct err *err)
{
    const struct plan_process_calls *calls = process->calls;
    void *owner = process->owner;

    free_process(process);
    if (calls)
        calls->failed(owner, err);
}

static void failed(struct plan_process *process, struct answer *answer)
{
    struct err err;
    uint64_t tag;

    if (!protocol_unpack_error(answer->bytes, answer->n, &tag, &err))
        err_set(&err, ERR_IO, 0, "the broker's answer cannot be read");
    fail(process, &err);
}

static void heard(void *context, struct answer *answer)
{
    struct plan_process *process = context;
    struct plain_message m;
    uint64_t tag;

    if (answer->kind == ANSWER_ERROR) {
        failed(process, answer);
        return;
    }
    if (!protocol_unpack_plain(answer->bytes, answer->n, &tag, &m))
        return;
    if (answer->kind == ANSWER_PLAN)
        begun(process, answer, &m);
    else if (answer->kind == ANSWER_PLAN_STEPS && process->calls && process->calls->steps)
        process->calls->steps(process->owner, m.number);
    else if (answer->kind == ANSWER_PLAN_ENDED)
        ended(process, answer, &m);
}

struct plan_process *plan_process_start(struct front *front, const struct plan_message *m,
                                        char *text, size_t n,
                                        const struct plan_process_calls *calls, void *owner)
{
    struct plan_process *process = text ? calloc(1, sizeof(*process)) : NULL;

    if (process)
        *process = (struct plan_process){.front = front,
                                         .calls = calls,
                                         .owner = owner,
                                         .verb = m->verb,
                                         .text = text,
                                         .n = n,
                                         .fd = -1,
                                         .watch = {.fd = -1}};
    if (process)
        process->tag = broker_expect_many(front->channel, heard, process);
    if (!process || !process->tag) {
        free(process);
        free(text);
        return NULL;
    }
    if (m->owner)
        text_copy(process->tenant, sizeof(process->tenant), m->owner);
    bool waits = plan_processes_of(front, process->tenant) >= PLAN_PROCESSES_OWN;
    process->next = front->plan_processes;
    front->plan_processes = process;
    buf_init(&process->asks, 16384);
    protocol_pack_plan(&process->asks, process->tag, m);
    if (!waits || process->asks.failed)
        broker_send(front->channel, REQUEST_PLAN_JOB, &process->asks);
    return process;
}

void plan_process_cancel(struct plan_process *process)
{
    struct plain_message m = {.number = process->tag};
    struct err err;
    struct buf b;

    if (process->asks.n > 0) { /* the broker knows nothing of it */
        err_set(&err, ERR_CONFLICT, 0, "the action was cancelled before it began");
        fail(process, &err);
        return;
    }
    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    broker_send(process->front->channel, REQUEST_PLAN_CANCEL, &b);
}

void plan_process_leave(struct plan_process *process)
{
    process->calls = NULL;
    process->owner = NULL;
    plan_process_cancel(process);
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
