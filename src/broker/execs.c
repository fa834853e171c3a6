/* SPDX-License-Identifier: Apache-2.0 */
/* Commands, from the request to the moment when nothing of them is left.
 *
 *   broker_exec_request --> asked --broker_exec_started, recorded--> ANSWER_STARTED
 *                                 --broker_exec_ended--> EVENT_ENDED --recorded--> EVENT_SETTLED
 *                                 --broker_exec_gone--> EVENT_GONE --broker_exec_forget--> freed
 *
 * Recorded: the record is in its file, and on disk a moment later (setting audit_sync = grouped);
 * or it is on disk (strict, or where the disk lags behind). Only a power cut tells one from the
 * other. An exec is not freed before its records are on disk: what did not get there is written
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
#include "base/log.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/execs.h"
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
    struct broker_exec *e = b->execs[broker_slot(id)];

    while (e && strcmp(e->id, id) != 0)
        e = e->next;
    return e;
}

static bool is_grouped(const struct broker *b)
{
    return strcmp(b->settings.audit_sync, "grouped") == 0;
}

bool broker_exec_is_starting(const struct broker_exec *e)
{
    bool waits = e->start_pending && !e->quiet && !e->ahead;

    return !e->unwanted && (!e->started || waits);
}

static void has_ended(struct broker_exec *e)
{
    if (e->quiet && !e->ended)
        e->broker->awaited_execs--;
    e->ended = true;
}

static void free_exec(struct broker_exec *e)
{
    struct broker_exec **at = &e->broker->execs[broker_slot(e->id)];

    has_ended(e);
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    timer_stop(e->broker->events, &e->start_timer);
    for (int i = 0; i < 3; i++)
        scope_close(&e->fds[i]);
    scope_close(&e->backlog);
    buf_clear(&e->end);
    free(e->actor);
    free(e->request);
    free(e);
}

static void free_if_done(struct broker_exec *e)
{
    if (e->exec || e->start_pending || e->end_pending)
        return;
    if (e->unwanted || (e->forgotten && e->settled))
        free_exec(e);
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
        for (struct broker_exec *e = b->execs[i], *next; e; e = next) {
            next = e->next;
            free_exec(e);
        }
    }
}

/* Input and its backlog go together; a terminal's master is its output, too. */
static size_t list_fds(const struct broker_exec *e, int fds[4])
{
    size_t n = 0;

    if (e->fds[0] >= 0 && (e->tty || e->backlog >= 0))
        fds[n++] = e->fds[0];
    if (e->fds[0] >= 0 && e->backlog >= 0)
        fds[n++] = e->backlog;
    for (int i = 1; i < 3; i++) {
        if (e->fds[i] >= 0)
            fds[n++] = e->fds[i];
    }
    return n;
}

static void send_with_fds(struct broker_exec *e, uint32_t kind, uint64_t tag,
                          struct plain_message *m)
{
    scoped_buf struct buf message;
    int fds[4];
    size_t n = list_fds(e, fds);

    m->number |= (e->tty ? EXEC_TERMINAL : 0U) | (e->input_ends ? EXEC_INPUT_ENDS : 0U);
    buf_init(&message, MESSAGE_MAX_BYTES);
    protocol_pack_plain(&message, tag, m);
    channel_send(e->broker, kind, &message, fds, n);
}

/* Once it runs, and that is recorded. */
static void answer_start(struct broker_exec *e)
{
    struct broker *b = e->broker;
    uint64_t tag = e->soon_over ? 0 : e->tag;

    if (broker_exec_is_starting(e))
        return;
    if (tag)
        e->tag = 0;
    if (tag && e->generation == b->generation && !e->unwanted)
        send_with_fds(e, ANSWER_STARTED, tag, &(struct plain_message){.texts = {e->id}});
    request_try_resume(b);
}

static void is_not_over(struct timer *timer)
{
    struct broker_exec *e = container_of(timer, struct broker_exec, start_timer);

    e->soon_over = false;
    answer_start(e);
}

static void answer_failure(struct broker_exec *e, const struct err *err)
{
    uint64_t tag = e->tag;

    e->tag = 0;
    e->unwanted = true;
    if (tag && e->generation == e->broker->generation)
        channel_send_error(e->broker, tag, err);
    request_try_resume(e->broker);
}

static void send_event(const struct broker_exec *e, uint32_t kind, int number)
{
    struct plain_message m = {.texts = {e->id}, .number = (uint64_t)number};

    channel_send_plain(e->broker, kind, 0, &m);
}

static bool is_heard(const struct broker_exec *e)
{
    return e->broker->resumed && !e->unwanted;
}

/* With what has happened since; and with its start, if `tag` waits for that. */
static void send_end(struct broker_exec *e, uint64_t tag)
{
    size_t n = e->end.n;
    int fds[4];

    e->gone_told = e->settled && (!e->exec || exec_leaves_nothing(e->exec));
    uint64_t flags = (e->settled ? ENDED_SETTLED : 0U) | (e->gone_told ? ENDED_GONE : 0U) |
                     (e->is_last ? ENDED_LAST : 0U);
    protocol_pack_ended_flags(&e->end, flags, e->unrecorded);
    protocol_set_tag(&e->end, tag);
    channel_send(e->broker, tag ? ANSWER_RAN : EVENT_ENDED, &e->end, fds,
                 tag ? list_fds(e, fds) : 0);
    e->end.n = n;
}

/* As soon as its start is told. */
static void tell_end(struct broker_exec *e)
{
    if (!e->ended || e->end_told || broker_exec_is_starting(e))
        return;
    scope_close(&e->backlog); /* nobody is left whose input it is */
    if (e->quiet && !e->settled)
        return;
    e->end_told = true;
    if (is_heard(e))
        send_end(e, e->soon_over && e->generation == e->broker->generation ? e->tag : 0);
    e->soon_over = false;
    e->tag = 0;
}

static void settle_if_written(struct broker_exec *e)
{
    bool waits = (e->start_pending || e->end_pending) && !e->ahead;
    bool end_told = e->end_told;

    if (!e->ended || waits || e->settled)
        return;
    e->settled = true;
    tell_end(e);
    if (end_told && is_heard(e))
        send_event(e, EVENT_SETTLED, e->unrecorded);
    if (end_told && is_heard(e) && !e->exec && !e->gone_told)
        send_event(e, EVENT_GONE, 0);
}

static void start_not_written(struct broker_exec *e)
{
    struct err err;

    e->unrecorded = record_errno(e->broker);
    if (!e->unrecorded)
        e->unrecorded = EIO;
    if (e->tag) {
        err_set(&err, ERR_IO, e->unrecorded,
                "the start could not be recorded in the audit, so the command was ended");
        answer_failure(e, &err);
    }
    if (e->exec) {
        exec_kill(e->exec, CARREL_ENDED_SIGNAL);
        sandbox_rearm(e->sandbox);
    }
}

static void start_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct broker_exec *e = container_of(waiter, struct broker_exec, start_wait);

    (void)b;
    e->start_pending = false;
    if (!written && !e->unwanted && !e->settled)
        start_not_written(e);
    answer_start(e);
    tell_end(e);
    settle_if_written(e);
    free_if_done(e);
}

/* Also when it could not be written: an end cannot be refused, and the record tries again. */
static void end_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct broker_exec *e = container_of(waiter, struct broker_exec, end_wait);

    (void)b;
    (void)written;
    e->end_pending = false;
    settle_if_written(e);
    free_if_done(e);
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
    if (m->root)
        buf_str(details, ",\"user\":\"root\"");
    if (*m->plan)
        buf_printf(details, ",\"plan\":\"%s\"", m->plan);
    if (m->timeout_ms)
        buf_printf(details, ",\"timeout_ms\":%llu", (unsigned long long)m->timeout_ms);
    buf_str(details, "}");
}

static int record_start(struct broker_exec *e, const struct exec_message *m, struct err *err)
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
    e->start_wait.done = start_written;
    e->start_wait.patient = e->quiet || e->ahead;
    if (record_may_add(e->broker, record.operation, err) < 0 ||
        record_begin(e->broker, &record, &e->start_wait, err) < 0)
        return -1;
    e->start_pending = true;
    return 0;
}

static void record_denial(struct broker_exec *e, const struct carrel_denial *d)
{
    scoped_buf struct buf details;

    buf_init(&details, LONGEST_DETAILS);
    buf_str(&details, "{\"exec\":");
    record_put_text(&details, e->id, PROTOCOL_EXEC_ID);
    buf_str(&details, ",\"what\":");
    record_put_text(&details, d->what, sizeof(d->what));
    buf_str(&details, ",\"rule\":");
    record_put_text(&details, d->rule, sizeof(d->rule));
    buf_printf(&details, ",\"count\":%u,\"source\":\"%s\"}", d->count,
               d->source == CARREL_SOURCE_KERNEL ? "kernel" : "inferred");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(e->broker,
                      &(struct audit_record){.actor = e->actor,
                                             .workspace = e->workspace,
                                             .request = e->request,
                                             .operation = "denial",
                                             .result = "denied",
                                             .details = details.p},
                      NULL);
}

/* Returns whether end_written will be called. */
static bool record_end(struct broker_exec *e, const struct carrel_result *r, const char *why)
{
    scoped_buf struct buf details;

    for (size_t i = 0; i < r->denial_count && i < MOST_DENIALS; i++)
        record_denial(e, &r->denials[i]);
    buf_init(&details, LONGEST_DETAILS);
    buf_str(&details, "{\"exec\":");
    record_put_text(&details, e->id, PROTOCOL_EXEC_ID);
    buf_printf(&details, ",\"exit_code\":%d,\"duration_ms\":%.3f,\"denials\":%zu", r->exit_code,
               r->duration_ms, r->denial_count);
    buf_str(&details, ",\"why\":");
    record_put_text(&details, why, PROTOCOL_TEXT);
    if (*r->note) {
        buf_str(&details, ",\"note\":");
        record_put_text(&details, r->note, sizeof(r->note));
    }
    buf_str(&details, "}");
    struct audit_record record = {.actor = e->actor,
                                  .workspace = e->workspace,
                                  .request = e->request,
                                  .operation = "exec.end",
                                  .result = reasons[r->reason],
                                  .details = buf_done(&details) == 0 ? details.p : ""};
    e->end_wait.done = end_written;
    e->ahead = e->ahead && !record_is_late(e->broker);
    e->end_wait.patient = e->ahead;
    bool waits = record_note(e->broker, &record, &e->end_wait) == 0;
    if (is_grouped(e->broker)) /* also of one that waits for the disk */
        record_write(e->broker);
    return waits;
}

/* The command does not wait for its record, which comes before those of all that it brings about.
 */
void broker_exec_root(void *owner, const char *command)
{
    struct broker_exec *e = owner;
    scoped_buf struct buf details;

    buf_init(&details, LONGEST_DETAILS);
    buf_str(&details, "{\"exec\":");
    record_put_text(&details, e->id, PROTOCOL_EXEC_ID);
    buf_str(&details, ",\"command\":");
    record_put_text(&details, command, PROTOCOL_TEXT);
    buf_str(&details, "}");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(e->broker,
                      &(struct audit_record){.actor = e->actor,
                                             .workspace = e->workspace,
                                             .request = e->request,
                                             .operation = "exec.sudo",
                                             .result = "ok",
                                             .details = details.p},
                      NULL);
}

void broker_exec_started(void *owner, struct exec *exec, int fds[3])
{
    struct broker_exec *e = owner;

    (void)exec;
    memcpy(e->fds, fds, sizeof(e->fds));
    e->started = true;
    e->start_timer.ring = is_not_over;
    e->soon_over = e->quiet && !e->tty && e->backlog < 0 &&
                   timer_set(e->broker->events, &e->start_timer, now_ms() + SOON_MS) == 0;
    answer_start(e);
}

void broker_exec_ended(void *owner, struct exec *exec, const struct carrel_result *result)
{
    struct broker_exec *e = owner;
    struct sandbox *sandbox = e->sandbox;
    const char *why = reasons[result->reason];
    struct err never;

    (void)exec;
    if (!e->started && session_never_stood(e->sandbox->session, &never)) {
        if (never.code == ERR_NOT_FOUND)
            never.code = ERR_CONFLICT; /* something in the tree is; the workspace is there */
        answer_failure(e, &never);     /* a command that never was has no result */
    }
    /* Where somebody else's end was its own, the session says whose. */
    if (result->reason == CARREL_ENDED_SIGNAL && *result->note)
        why = result->note;
    struct ended_message m = {.exec = e->id,
                              .workspace = e->workspace,
                              .result = *result,
                              .ended_at_ms = (uint64_t)wall_ms(),
                              .why = why};
    buf_init(&e->end, MESSAGE_MAX_BYTES);
    protocol_pack_ended(&e->end, &m);
    (void)buf_room(&e->end, ENDED_FLAGS_BYTES); /* sending it needs no memory then */
    has_ended(e);
    sandbox->running--;
    e->is_last = sandbox->tmp_exec && sandbox->running == 0;
    sandbox->busy_ms = now_ms();
    e->started = true; /* or could not be: that is told by how it ended */
    timer_stop(e->broker->events, &e->start_timer);
    answer_start(e);
    if (!e->ahead) /* else all in one, which is now */
        tell_end(e);
    e->end_pending = record_end(e, result, why);
    settle_if_written(e);
    /* Before the next one can be asked for: that waits for the end, and finds /tmp empty. */
    if (e->is_last)
        sandbox_put_to_sleep(sandbox, "its commands have ended, and \"tmp\" is \"exec\"");
}

void broker_exec_gone(void *owner, struct exec *exec)
{
    struct broker_exec *e = owner;

    (void)exec;
    e->exec = NULL;
    e->sandbox = NULL;
    e->broker->exec_count--;
    if (e->settled && !e->gone_told && is_heard(e))
        send_event(e, EVENT_GONE, 0);
    free_if_done(e);
}

void broker_exec_end_input(struct broker_exec *e, bool after_backlog)
{
    if (after_backlog) {
        e->input_ends = true;
        return;
    }
    scope_close(&e->backlog);
    if (!e->tty) /* its end is a character */
        scope_close(&e->fds[0]);
}

void broker_exec_forget(struct broker_exec *e)
{
    e->forgotten = true;
    free_if_done(e);
}

void broker_exec_tell(struct broker_exec *e, uint64_t resume_tag)
{
    struct plain_message m = {.texts = {e->workspace, e->id}, .number = EXEC_STATE_RUNNING};

    if (e->unwanted)
        return;
    if (e->settled)
        m.number = e->exec ? EXEC_STATE_ENDED : EXEC_STATE_GONE;
    send_with_fds(e, ANSWER_EXEC, resume_tag, &m);
    if (e->end_told)
        send_end(e, 0);
}

static struct broker_exec *new_exec(struct broker *b, uint64_t tag, const struct exec_message *m)
{
    struct broker_exec *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->broker = b;
    e->tag = tag;
    e->quiet = m->quiet;
    e->ahead = is_grouped(b) && !record_is_late(b);
    e->generation = b->generation;
    e->actor = strdup(m->actor);
    e->request = strdup(m->request);
    if (!e->actor || !e->request) {
        free(e->actor);
        free(e->request);
        free(e);
        return NULL;
    }
    snprintf(e->id, sizeof(e->id), "%s", m->exec);
    snprintf(e->workspace, sizeof(e->workspace), "%s", m->workspace);
    for (int i = 0; i < 3; i++)
        e->fds[i] = -1;
    e->backlog = -1;
    e->tty = m->tty;
    b->awaited_execs += e->quiet;
    struct broker_exec **slot = &b->execs[broker_slot(e->id)];
    e->next = *slot;
    *slot = e;
    return e;
}

/* Every start in the record has an end, also this one. */
static void record_no_start(struct broker_exec *e)
{
    char details[64];

    snprintf(details, sizeof(details), "{\"exec\":\"%s\"}", e->id);
    (void)record_note(e->broker,
                      &(struct audit_record){.actor = e->actor,
                                             .workspace = e->workspace,
                                             .request = e->request,
                                             .operation = "exec.end",
                                             .result = "not started",
                                             .details = details},
                      NULL);
}

/* A file without a name: gone with the last who has it open. */
static int make_backlog(struct broker_exec *e, struct err *err)
{
    e->backlog = memfd_create("carrel-input", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (e->backlog < 0 && errno == EINVAL) /* before Linux 6.3 */
        e->backlog = memfd_create("carrel-input", MFD_CLOEXEC);
    return e->backlog < 0 ? err_set(err, ERR_LIMIT, errno, "make room for the command's input") : 0;
}

static int start(struct broker_exec *e, struct sandbox *sandbox, const struct exec_message *m,
                 struct err *err)
{
    struct exec_request request = {.argv = (char *const *)(uintptr_t)m->argv,
                                   .env = m->env,
                                   .cwd = *m->cwd ? m->cwd : NULL,
                                   .timeout_ms = m->timeout_ms,
                                   .tty = m->tty,
                                   .root = m->root,
                                   .input = m->input,
                                   .rows = (uint32_t)m->rows,
                                   .columns = (uint32_t)m->columns,
                                   .limits = m->limits,
                                   .owner = e};

    if (((m->input || m->tty) && make_backlog(e, err) < 0) || record_start(e, m, err) < 0)
        return -1;
    e->sandbox = sandbox;
    if (exec_start(sandbox->session, &request, &e->exec, err) == 0) {
        e->broker->exec_count++;
        sandbox->running++;
        return 0;
    }
    e->sandbox = NULL;
    e->exec = NULL;
    record_no_start(e);
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
    struct broker_exec *e = r < 0 ? NULL : new_exec(b, tag, m);
    if (r == 0 && !e)
        err_set(&err, ERR_LIMIT, ENOMEM, "keep the command");
    if (!e) {
        channel_send_error(b, tag, &err);
        return;
    }
    if (start(e, sandbox, m, &err) < 0) {
        answer_failure(e, &err);
        free_if_done(e);
    }
    sandbox_rearm(sandbox);
}
