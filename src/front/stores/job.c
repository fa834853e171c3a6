/* SPDX-License-Identifier: Apache-2.0 */
#include "front/stores/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/core/channel.h"
#include "protocol/broker.h"

enum {
    LONGEST_LINE = 65536,
    MESSAGE = 65536,
};

struct store_work {
    struct front *front;
    const struct store_calls *calls;
    void *owner;
    uint64_t tag;
    struct watch watch;
    int fd; /* what it tells; -1: not yet, or no more */
    struct buf line;
    json_t *last; /* {"done": ...} or {"error": ...} */
};

static const struct {
    const char *code;
    int status;
} failures[] = {{"store_failed", 502},
                {"store_taken", 409},
                {"store_has_copy", 409},
                {"rclone_missing", 501},
                {"not_found", 404}};

static void free_work(struct store_work *work)
{
    broker_settle(work->front->channel, work->tag);
    events_forget(work->front->events, &work->watch);
    scope_close(&work->fd);
    buf_clear(&work->line);
    json_decref(work->last);
    free(work);
}

static void end(struct store_work *work, struct store_end *how)
{
    const struct store_calls *calls = work->calls;
    void *owner = work->owner;
    json_t *kept = json_incref(work->last); /* what `how` points into */

    free_work(work);
    calls->ended(owner, how);
    json_decref(kept);
}

static void take_line(struct store_work *work, const char *line, size_t n)
{
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *progress = json_object_get(object, "progress");

    if (progress && work->calls->progress)
        work->calls->progress(work->owner, progress);
    if (json_object_get(object, "done") || json_object_get(object, "error")) {
        json_decref(work->last);
        work->last = object;
        return;
    }
    json_decref(object);
}

static void take_lines(struct store_work *work)
{
    size_t at = 0;

    for (;;) {
        const char *from = work->line.p + at;
        const char *stop = memchr(from, '\n', work->line.n - at);
        if (!stop)
            break;
        take_line(work, from, (size_t)(stop - from));
        at = (size_t)(stop + 1 - work->line.p);
    }
    memmove(work->line.p, work->line.p + at, work->line.n - at);
    work->line.n -= at;
    if (work->line.n > LONGEST_LINE)
        work->line.n = 0; /* no line of ours */
}

/* False: there is no more now. */
static bool hear_some(struct store_work *work)
{
    char piece[16384];
    ssize_t n = work->fd < 0 ? 0 : read(work->fd, piece, sizeof(piece));

    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0) {
        if (n == 0)
            events_forget(work->front->events, &work->watch);
        return false;
    }
    buf_add(&work->line, piece, (size_t)n);
    if (work->line.failed || !work->line.p)
        return false;
    take_lines(work);
    return true;
}

static void ready(struct watch *watch, uint32_t what)
{
    (void)what;
    (void)hear_some(container_of(watch, struct store_work, watch));
}

static void begun(struct store_work *work, struct answer *answer)
{
    if (answer->fd_count < 1)
        return;
    work->fd = take_fd(&answer->fds[0]);
    ignore(fcntl(work->fd, F_SETFL, O_NONBLOCK) == 0);
    work->watch.ready = ready;
    ignore(events_watch(work->front->events, &work->watch, work->fd, EPOLLIN) == 0);
}

static void ended(struct store_work *work, uint64_t status)
{
    while (hear_some(work))
        continue;
    const json_t *error = json_object_get(work->last, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    struct store_end how = {.done = json_object_get(work->last, "done"),
                            .status = 502,
                            .code = "store_failed",
                            .message = message ? message
                                               : "carrel-mover was killed before it had finished"};

    if (how.done && status != 0)
        how.done = NULL;
    for (size_t i = 0; code && i < sizeof(failures) / sizeof(failures[0]); i++) {
        if (strcmp(code, failures[i].code) == 0) {
            how.code = failures[i].code;
            how.status = failures[i].status;
        }
    }
    end(work, &how);
}

static void failed(struct store_work *work, struct answer *answer)
{
    char text[512];
    struct err err;
    uint64_t tag;
    bool readable = protocol_unpack_error(answer->bytes, answer->n, &tag, &err);
    struct store_end how = {.status = readable && err.code == ERR_NOT_FOUND ? 404 : 502,
                            .code = readable && err.code == ERR_NOT_FOUND ? "not_found"
                                                                          : "store_failed",
                            .message = readable ? err_text(&err, text, sizeof(text))
                                                : "the broker's answer cannot be read"};

    end(work, &how);
}

static void heard(void *context, struct answer *answer)
{
    struct store_work *work = context;
    struct plain_message m;
    uint64_t tag;

    if (answer->kind == ANSWER_ERROR)
        failed(work, answer);
    else if (answer->kind == ANSWER_STORE)
        begun(work, answer);
    else if (answer->kind == ANSWER_STORE_ENDED)
        ended(work,
              protocol_unpack_plain(answer->bytes, answer->n, &tag, &m) ? m.number : STORE_KILLED);
}

struct store_work *store_work_start(struct front *front, const struct store_job *job,
                                    const struct store_calls *calls, void *owner)
{
    struct store_work *work = calloc(1, sizeof(*work));
    struct buf b;

    if (!work)
        return NULL;
    *work = (struct store_work){
        .front = front, .calls = calls, .owner = owner, .fd = -1, .watch = {.fd = -1}};
    buf_init(&work->line, LONGEST_LINE + 32768);
    work->tag = broker_expect_many(front->channel, heard, work);
    if (!work->tag) {
        free(work);
        return NULL;
    }
    buf_init(&b, MESSAGE);
    store_job_pack(&b, work->tag, job);
    broker_send(front->channel, REQUEST_STORE_JOB, &b);
    return work;
}

void store_work_cancel(struct store_work *work)
{
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &(struct plain_message){.number = work->tag});
    broker_send(work->front->channel, REQUEST_STORE_CANCEL, &b);
}
