/* SPDX-License-Identifier: Apache-2.0 */
/* Commands, from the request to the moment when nothing of them is left.
 *
 *   broker_exec_request --> asked --broker_exec_started, recorded--> ANSWER_STARTED
 *                --broker_exec_ended--> EVENT_ENDED --recorded--> EVENT_SETTLED
 *                --broker_exec_gone--> EVENT_GONE --broker_exec_forget--> freed
 *
 * Recorded: the record is in its file, and on disk a moment later (setting audit_sync = grouped);
 * or it is on disk (strict, or where the disk lags behind). Only a power cut tells one from the
 * other. A exec is not freed before its records are on disk: what did not get there is written
 * again.
 *
 * Of a quiet one without input both are told in one, ANSWER_RAN, if it is over soon: each message
 * wakes the front, on a processor that the command could use. Nobody reads what it prints until
 * then.
 *
 * Strictly, a quiet one is answered before its start is on disk: nobody hears of it before
 * EVENT_SETTLED, and until then the front can get ready. Of its end the front is told then, all in
 * one: to wake it before would take longer than what it could do meanwhile.
 *
 * The broker keeps a copy of every descriptor that it hands out, for the next front. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fd.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/execs.h"
#include "broker/log.h"
#include "broker/record.h"
#include "broker/requests.h"
#include "broker/sandboxes.h"
#include "sys/message.h"

enum {
    LONGEST_DETAILS = 16384,
    LONGEST_ARGV = 2048, /* in the record */
    MOST_DENIALS = 8,    /* records for one command */
    SOON_MS = 2,         /* a command that takes less has its start told with its end */
};

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

static const char *const reasons[] = {
    [CARREL_ENDED_EXIT] = "exit",       [CARREL_ENDED_SIGNAL] = "signal",
    [CARREL_ENDED_TIMEOUT] = "timeout", [CARREL_ENDED_OUTPUT] = "output",
    [CARREL_ENDED_OOM] = "oom",         [CARREL_ENDED_PIDS] = "pids",
    [CARREL_ENDED_DISK] = "disk",
};

struct broker_exec *broker_exec_find(const struct broker *b, const char *id)
{
    struct broker_exec *t = b->execs[broker_slot(id)];

    while (t && strcmp(t->id, id) != 0)
        t = t->next;
    return t;
}

static bool is_grouped(const struct broker *b)
{
    return strcmp(b->settings.audit_sync, "grouped") == 0;
}

bool broker_exec_is_starting(const struct broker_exec *t)
{
    bool waits = t->start_pending && !t->quiet && !t->ahead;

    return !t->unwanted && (!t->started || waits);
}

static void unlink_task(struct broker_exec *t)
{
    struct broker_exec **at = &t->broker->execs[broker_slot(t->id)];

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
}

static void has_ended(struct broker_exec *t)
{
    if (t->quiet && !t->ended)
        t->broker->awaited_execs--;
    t->ended = true;
}

static void free_task(struct broker_exec *t)
{
    has_ended(t);
    unlink_task(t);
    timer_stop(t->broker->events, &t->start_timer);
    for (int i = 0; i < 3; i++)
        scope_close(&t->fds[i]);
    scope_close(&t->backlog);
    buf_clear(&t->end);
    free(t->actor);
    free(t->request);
    free(t);
}

static void free_if_done(struct broker_exec *t)
{
    if (t->exec || t->start_pending || t->end_pending)
        return;
    if (t->unwanted || (t->forgotten && t->settled))
        free_task(t);
}

bool broker_execs_are_told(const struct broker *b)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        if (b->execs[i])
            return false;
    }
    return true;
}

void broker_execs_clear(struct broker *b)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct broker_exec *t = b->execs[i], *next; t; t = next) {
            next = t->next;
            free_task(t);
        }
    }
}

/* Input and its backlog go together; a terminal's master is its output, too. */
static size_t list_fds(const struct broker_exec *t, int fds[4])
{
    size_t n = 0;

    if (t->fds[0] >= 0 && (t->tty || t->backlog >= 0))
        fds[n++] = t->fds[0];
    if (t->fds[0] >= 0 && t->backlog >= 0)
        fds[n++] = t->backlog;
    for (int i = 1; i < 3; i++) {
        if (t->fds[i] >= 0)
            fds[n++] = t->fds[i];
    }
    return n;
}

static void send_with_fds(struct broker_exec *t, uint32_t kind, uint64_t tag,
                          struct plain_message *m)
{
    scoped_buf struct buf message;
    int fds[4];
    size_t n = list_fds(t, fds);

    m->number |= (t->tty ? EXEC_TERMINAL : 0U) | (t->input_ends ? EXEC_INPUT_ENDS : 0U);
    buf_init(&message, MESSAGE_MAX_BYTES);
    protocol_pack_plain(&message, tag, m);
    channel_send(t->broker, kind, &message, fds, n);
}

/* Once it runs, and that is recorded. */
static void answer_start(struct broker_exec *t)
{
    struct broker *b = t->broker;
    uint64_t tag = t->soon_over ? 0 : t->tag;

    if (broker_exec_is_starting(t))
        return;
    if (tag)
        t->tag = 0;
    if (tag && t->generation == b->generation && !t->unwanted)
        send_with_fds(t, ANSWER_STARTED, tag, &(struct plain_message){.texts = {t->id}});
    request_try_resume(b);
}

static void is_not_over(struct timer *timer)
{
    struct broker_exec *t = container_of(timer, struct broker_exec, start_timer);

    t->soon_over = false;
    answer_start(t);
}

static void answer_failure(struct broker_exec *t, const struct err *err)
{
    uint64_t tag = t->tag;

    t->tag = 0;
    t->unwanted = true;
    if (tag && t->generation == t->broker->generation)
        channel_send_error(t->broker, tag, err);
    request_try_resume(t->broker);
}

static void send_event(const struct broker_exec *t, uint32_t kind, int number)
{
    struct plain_message m = {.texts = {t->id}, .number = (uint64_t)number};

    channel_send_plain(t->broker, kind, 0, &m);
}

static bool is_heard(const struct broker_exec *t)
{
    return t->broker->resumed && !t->unwanted;
}

/* With what has happened since; and with its start, if `tag` waits for that. */
static void send_end(struct broker_exec *t, uint64_t tag)
{
    size_t n = t->end.n;
    int fds[4];

    t->gone_told = t->settled && (!t->exec || exec_leaves_nothing(t->exec));
    uint64_t flags = (t->settled ? ENDED_SETTLED : 0U) | (t->gone_told ? ENDED_GONE : 0U) |
                     (t->is_last ? ENDED_LAST : 0U);
    protocol_pack_ended_flags(&t->end, flags, t->unrecorded);
    protocol_set_tag(&t->end, tag);
    channel_send(t->broker, tag ? ANSWER_RAN : EVENT_ENDED, &t->end, fds,
                 tag ? list_fds(t, fds) : 0);
    t->end.n = n;
}

/* As soon as its start is told. */
static void tell_end(struct broker_exec *t)
{
    if (!t->ended || t->end_told || broker_exec_is_starting(t))
        return;
    scope_close(&t->backlog); /* nobody is left whose input it is */
    if (t->quiet && !t->settled)
        return;
    t->end_told = true;
    if (is_heard(t))
        send_end(t, t->soon_over && t->generation == t->broker->generation ? t->tag : 0);
    t->soon_over = false;
    t->tag = 0;
}

static void settle_if_written(struct broker_exec *t)
{
    bool waits = (t->start_pending || t->end_pending) && !t->ahead;
    bool end_told = t->end_told;

    if (!t->ended || waits || t->settled)
        return;
    t->settled = true;
    tell_end(t);
    if (end_told && is_heard(t))
        send_event(t, EVENT_SETTLED, t->unrecorded);
    if (end_told && is_heard(t) && !t->exec && !t->gone_told)
        send_event(t, EVENT_GONE, 0);
}

static void start_not_written(struct broker_exec *t)
{
    struct err err;

    t->unrecorded = record_errno(t->broker);
    if (!t->unrecorded)
        t->unrecorded = EIO;
    if (t->tag) {
        err_set(&err, ERR_IO, t->unrecorded,
                "the start could not be recorded in the audit, so the command was ended");
        answer_failure(t, &err);
    }
    if (t->exec) {
        exec_kill(t->exec, CARREL_ENDED_SIGNAL);
        sandbox_rearm(t->sandbox);
    }
}

static void start_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct broker_exec *t = container_of(waiter, struct broker_exec, start_wait);

    (void)b;
    t->start_pending = false;
    if (!written && !t->unwanted && !t->settled)
        start_not_written(t);
    answer_start(t);
    tell_end(t);
    settle_if_written(t);
    free_if_done(t);
}

/* Also when it could not be written: an end cannot be refused, and the journal tries again. */
static void end_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct broker_exec *t = container_of(waiter, struct broker_exec, end_wait);

    (void)b;
    (void)written;
    t->end_pending = false;
    settle_if_written(t);
    free_if_done(t);
}

/* argv, as far as it fits: what was run matters, not all of a script. */
static void describe_start(struct buf *details, const struct exec_message *m)
{
    size_t room = LONGEST_ARGV;
    size_t i;

    buf_str(details, "{\"exec\":");
    record_put_text(details, m->exec, PROTOCOL_EXEC_ID);
    buf_str(details, ",\"argv\":[");
    for (i = 0; m->argv[i] && room > 0; i++) {
        size_t n = strnlen(m->argv[i], room);
        buf_str(details, i ? "," : "");
        record_put_text(details, m->argv[i], room);
        room -= n;
    }
    buf_printf(details, "]%s%s", m->argv[i] || room == 0 ? ",\"cut\":true" : "",
               m->tty ? ",\"tty\":true" : "");
    if (*m->plan)
        buf_printf(details, ",\"plan\":\"%s\"", m->plan);
    if (m->timeout_ms)
        buf_printf(details, ",\"timeout_ms\":%llu", (unsigned long long)m->timeout_ms);
    buf_str(details, "}");
}

static int record_start(struct broker_exec *t, const struct exec_message *m, struct err *err)
{
    scoped_buf struct buf details;

    buf_init(&details, LONGEST_DETAILS);
    describe_start(&details, m);
    if (buf_done(&details) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "describe the command");
    struct audit_record record = {.actor = m->actor,
                                  .workspace = m->workspace,
                                  .request = m->request,
                                  .operation = "exec.start",
                                  .result = "ok",
                                  .details = details.p};
    t->start_wait.done = start_written;
    t->start_wait.patient = t->quiet || t->ahead;
    if (record_may_add(t->broker, record.operation, err) < 0 ||
        record_begin(t->broker, &record, &t->start_wait, err) < 0)
        return -1;
    t->start_pending = true;
    return 0;
}

static void record_denial(struct broker_exec *t, const struct carrel_denial *d)
{
    scoped_buf struct buf details;

    buf_init(&details, LONGEST_DETAILS);
    buf_str(&details, "{\"exec\":");
    record_put_text(&details, t->id, PROTOCOL_EXEC_ID);
    buf_str(&details, ",\"what\":");
    record_put_text(&details, d->what, sizeof(d->what));
    buf_str(&details, ",\"rule\":");
    record_put_text(&details, d->rule, sizeof(d->rule));
    buf_printf(&details, ",\"count\":%u,\"source\":\"%s\"}", d->count,
               d->source == CARREL_SOURCE_KERNEL ? "kernel" : "inferred");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(t->broker,
                      &(struct audit_record){.actor = t->actor,
                                             .workspace = t->workspace,
                                             .request = t->request,
                                             .operation = "denial",
                                             .result = "denied",
                                             .details = details.p},
                      NULL);
}

/* Returns whether end_written will be called. */
static bool record_end(struct broker_exec *t, const struct carrel_result *r, const char *why)
{
    scoped_buf struct buf details;

    for (size_t i = 0; i < r->denial_count && i < MOST_DENIALS; i++)
        record_denial(t, &r->denials[i]);
    buf_init(&details, LONGEST_DETAILS);
    buf_str(&details, "{\"exec\":");
    record_put_text(&details, t->id, PROTOCOL_EXEC_ID);
    buf_printf(&details, ",\"exit_code\":%d,\"duration_ms\":%.3f,\"denials\":%zu", r->exit_code,
               r->duration_ms, r->denial_count);
    buf_str(&details, ",\"why\":");
    record_put_text(&details, why, PROTOCOL_TEXT);
    if (*r->note) {
        buf_str(&details, ",\"note\":");
        record_put_text(&details, r->note, sizeof(r->note));
    }
    buf_str(&details, "}");
    struct audit_record record = {.actor = t->actor,
                                  .workspace = t->workspace,
                                  .request = t->request,
                                  .operation = "exec.end",
                                  .result = reasons[r->reason],
                                  .details = buf_done(&details) == 0 ? details.p : ""};
    t->end_wait.done = end_written;
    t->ahead = t->ahead && !record_is_late(t->broker);
    t->end_wait.patient = t->ahead;
    bool waits = record_note(t->broker, &record, &t->end_wait) == 0;
    if (is_grouped(t->broker)) /* also of one that waits for the disk */
        record_write(t->broker);
    return waits;
}

void broker_exec_started(void *owner, struct exec *exec, int fds[3])
{
    struct broker_exec *t = owner;

    (void)exec;
    memcpy(t->fds, fds, sizeof(t->fds));
    t->started = true;
    t->start_timer.ring = is_not_over;
    t->soon_over = t->quiet && !t->tty && t->backlog < 0 &&
                   timer_set(t->broker->events, &t->start_timer, now_ms() + SOON_MS) == 0;
    answer_start(t);
}

void broker_exec_ended(void *owner, struct exec *exec, const struct carrel_result *result)
{
    struct broker_exec *t = owner;
    struct sandbox *sandbox = t->sandbox;
    const char *why = reasons[result->reason];
    struct err never;

    (void)exec;
    if (!t->started && session_never_stood(t->sandbox->session, &never)) {
        if (never.code == ERR_NOT_FOUND)
            never.code = ERR_CONFLICT; /* something in the tree is; the workspace is there */
        answer_failure(t, &never);     /* a command that never was has no result */
    }
    /* Where somebody else's end was its own, the session says whose. */
    if (result->reason == CARREL_ENDED_SIGNAL && *result->note)
        why = result->note;
    struct ended_message m = {.exec = t->id,
                              .workspace = t->workspace,
                              .result = *result,
                              .ended_at_ms = (uint64_t)wall_ms(),
                              .why = why};
    buf_init(&t->end, MESSAGE_MAX_BYTES);
    protocol_pack_ended(&t->end, &m);
    (void)buf_room(&t->end, ENDED_FLAGS_BYTES); /* sending it needs no memory then */
    has_ended(t);
    sandbox->running--;
    t->is_last = sandbox->tmp_exec && sandbox->running == 0;
    sandbox->busy_ms = now_ms();
    t->started = true; /* or could not be: that is told by how it ended */
    timer_stop(t->broker->events, &t->start_timer);
    answer_start(t);
    if (!t->ahead) /* else all in one, which is now */
        tell_end(t);
    t->end_pending = record_end(t, result, why);
    settle_if_written(t);
    /* Before the next one can be asked for: that waits for the end, and finds /tmp empty. */
    if (t->is_last)
        sandbox_put_to_sleep(sandbox, "its commands have ended, and \"tmp\" is \"exec\"");
}

void broker_exec_gone(void *owner, struct exec *exec)
{
    struct broker_exec *t = owner;

    (void)exec;
    t->exec = NULL;
    t->sandbox = NULL;
    t->broker->exec_count--;
    if (t->settled && !t->gone_told && is_heard(t))
        send_event(t, EVENT_GONE, 0);
    free_if_done(t);
}

void broker_exec_end_input(struct broker_exec *t, bool after_backlog)
{
    if (after_backlog) {
        t->input_ends = true;
        return;
    }
    scope_close(&t->backlog);
    if (!t->tty) /* its end is a character */
        scope_close(&t->fds[0]);
}

void broker_exec_forget(struct broker_exec *t)
{
    t->forgotten = true;
    free_if_done(t);
}

void broker_exec_tell(struct broker_exec *t, uint64_t resume_tag)
{
    struct plain_message m = {.texts = {t->workspace, t->id}, .number = EXEC_STATE_RUNNING};

    if (t->unwanted)
        return;
    if (t->settled)
        m.number = t->exec ? EXEC_STATE_ENDED : EXEC_STATE_GONE;
    send_with_fds(t, ANSWER_EXEC, resume_tag, &m);
    if (t->end_told)
        send_end(t, 0);
}

static struct broker_exec *new_task(struct broker *b, uint64_t tag, const struct exec_message *m)
{
    struct broker_exec *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->broker = b;
    t->tag = tag;
    t->quiet = m->quiet;
    t->ahead = is_grouped(b) && !record_is_late(b);
    t->generation = b->generation;
    t->actor = strdup(m->actor);
    t->request = strdup(m->request);
    if (!t->actor || !t->request) {
        free(t->actor);
        free(t->request);
        free(t);
        return NULL;
    }
    snprintf(t->id, sizeof(t->id), "%s", m->exec);
    snprintf(t->workspace, sizeof(t->workspace), "%s", m->workspace);
    for (int i = 0; i < 3; i++)
        t->fds[i] = -1;
    t->backlog = -1;
    t->tty = m->tty;
    b->awaited_execs += t->quiet;
    struct broker_exec **slot = &b->execs[broker_slot(t->id)];
    t->next = *slot;
    *slot = t;
    return t;
}

/* Every start in the record has an end, also this one. */
static void record_no_start(struct broker_exec *t)
{
    char details[64];

    snprintf(details, sizeof(details), "{\"exec\":\"%s\"}", t->id);
    (void)record_note(t->broker,
                      &(struct audit_record){.actor = t->actor,
                                             .workspace = t->workspace,
                                             .request = t->request,
                                             .operation = "exec.end",
                                             .result = "not started",
                                             .details = details},
                      NULL);
}

/* A file without a name: gone with the last who has it open. */
static int make_backlog(struct broker_exec *t, struct err *err)
{
    t->backlog = memfd_create("carrel-input", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (t->backlog < 0 && errno == EINVAL) /* before Linux 6.3 */
        t->backlog = memfd_create("carrel-input", MFD_CLOEXEC);
    return t->backlog < 0 ? err_set(err, ERR_LIMIT, errno, "make room for the command's input") : 0;
}

static int start(struct broker_exec *t, struct sandbox *sandbox, const struct exec_message *m,
                 struct err *err)
{
    struct exec_request request = {.argv = (char *const *)(uintptr_t)m->argv,
                                   .env = m->env,
                                   .cwd = *m->cwd ? m->cwd : NULL,
                                   .timeout_ms = m->timeout_ms,
                                   .tty = m->tty,
                                   .input = m->input,
                                   .rows = (uint32_t)m->rows,
                                   .columns = (uint32_t)m->columns,
                                   .limits = m->limits,
                                   .owner = t};

    if (((m->input || m->tty) && make_backlog(t, err) < 0) || record_start(t, m, err) < 0)
        return -1;
    t->sandbox = sandbox;
    if (exec_start(sandbox->session, &request, &t->exec, err) == 0) {
        t->broker->exec_count++;
        sandbox->running++;
        return 0;
    }
    t->sandbox = NULL;
    t->exec = NULL;
    record_no_start(t);
    return -1;
}

void broker_exec_request(struct broker *b, uint64_t tag, const struct exec_message *m)
{
    struct sandbox *sandbox = NULL;
    struct err err;

    if (b->stopping) {
        err_set(&err, ERR_CONFLICT, 0, "the daemon is stopping");
        channel_send_error(b, tag, &err);
        return;
    }
    int r = sandbox_find_or_start(b, REQUEST_EXEC, m, tag, &sandbox, &err);
    if (r == 1)
        return;
    struct broker_exec *t = r < 0 ? NULL : new_task(b, tag, m);
    if (r == 0 && !t)
        err_set(&err, ERR_LIMIT, ENOMEM, "keep the command");
    if (!t) {
        channel_send_error(b, tag, &err);
        return;
    }
    if (start(t, sandbox, m, &err) < 0) {
        answer_failure(t, &err);
        free_if_done(t);
    }
    sandbox_rearm(sandbox);
}
