/* SPDX-License-Identifier: Apache-2.0 */
/* The record, and who waits until it is on disk: in the order of their records, as that is the
 * order in which these become durable. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/record.h"

enum {
    /* A full disk may have room again. To look costs the check of two segments, which the loop
     * waits for: so each time it was in vain, twice as long goes by. */
    FIRST_RETRY_MS = 2000,
    LAST_RETRY_MS = 60000,
    FLUSH_MS = 5000,
    PATIENT_MS = 10,   /* what nobody waits for goes with what somebody does, or after this */
    LATE_MS = 1000,    /* since when something is on its way to the disk */
    GATHER_FROM = 3,   /* commands that somebody waits for ... */
    GATHER_MS = 3,     /* ... go to the disk together, once in so long */
    MOST_KEPT = 16384, /* records that wait until they can be written */
};

/* Who is told may have the record opened anew, and others wait for that then: so how things stand
 * is asked for each of them. */
static void look(struct broker *b)
{
    struct err err;

    while (b->audit) {
        uint64_t synced = audit_hear(b->audit);
        bool failed = audit_has_failed(b->audit, &err);
        struct waiter *waiter = b->first_waiter;
        if (!waiter || (!failed && waiter->seq > synced))
            return;
        b->first_waiter = waiter->next;
        if (!b->first_waiter)
            b->last_waiter = NULL;
        waiter->done(b, waiter, waiter->seq <= synced);
    }
}

static void ready(struct watch *watch, uint32_t what)
{
    struct broker *b = container_of(watch, struct broker, audit_watch);
    struct err err;

    (void)what;
    look(b);
    if (b->audit && audit_has_failed(b->audit, &err)) {
        log_err("audit_failed", "nothing is started or changed until it can be written", &err);
        events_forget(b->events, &b->audit_watch); /* else it would stay readable */
    }
}

int record_errno(const struct broker *b)
{
    struct err err;

    return b->audit && audit_has_failed(b->audit, &err) ? err.os_errno : 0;
}

void record_dir(const struct broker *b, char *path, size_t size)
{
    snprintf(path, size, "%s/audit", b->settings.state);
}

int record_open(struct broker *b, struct err *err)
{
    char path[sizeof(b->settings.state) + 8];

    record_dir(b, path, sizeof(path));
    int64_t group = b->front_uid != geteuid() ? (int64_t)b->front_gid : -1;
    if (audit_open(&b->audit, path, group, b->settings.audit_segment_bytes, err) < 0) {
        b->audit = NULL;
        return err_wrap(err, "open the audit");
    }
    b->audit_opened_ms = now_ms();
    b->audit_watch.ready = ready;
    int r = events_watch(b->events, &b->audit_watch, audit_fd(b->audit), EPOLLIN);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "watch the audit");
    return 0;
}

void record_close(struct broker *b)
{
    if (!b->audit)
        return;
    events_forget(b->events, &b->audit_watch);
    audit_close(b->audit);
    b->audit = NULL;
}

/* One that is opened and fails again soon is no better than one that cannot be opened. */
static void plan_retry(struct broker *b)
{
    uint64_t now = now_ms();

    if (!b->audit_pause_ms || (b->audit && now - b->audit_opened_ms > LAST_RETRY_MS))
        b->audit_pause_ms = FIRST_RETRY_MS;
    b->audit_due_ms = now + b->audit_pause_ms;
    b->audit_pause_ms *= 2;
    if (b->audit_pause_ms > LAST_RETRY_MS)
        b->audit_pause_ms = LAST_RETRY_MS;
}

/* After a failure, when somebody wants to write, from time to time: it may go now. */
static int reopen(struct broker *b, struct err *err)
{
    struct err failed;

    if (b->audit && !audit_has_failed(b->audit, &failed))
        return 0;
    if (b->audit_due_ms == 0)
        plan_retry(b);
    if (now_ms() < b->audit_due_ms)
        return err_set(err, ERR_IO, b->audit ? failed.os_errno : 0,
                       "the audit record cannot be written, so the daemon refuses every change");
    b->audit_due_ms = now_ms() + b->audit_pause_ms; /* what is done below may come here again */
    look(b);                                        /* nobody waits for the old one any more */
    record_close(b);
    if (record_open(b, err) < 0) {
        plan_retry(b);
        return -1;
    }
    b->audit_due_ms = 0;
    log_info("audit_reopened", NULL);
    return 0;
}

int record_add(struct broker *b, const struct audit_record *record, struct waiter *waiter,
               struct err *err)
{
    if (reopen(b, err) < 0)
        return -1;
    uint64_t seq = audit_add(b->audit, record);
    if (seq == 0) {
        struct err why;
        if (audit_has_failed(b->audit, &why)) {
            *err = why;
            return err_wrap(err, "the audit cannot be written");
        }
        return err_set(err, ERR_IO, 0, "the audit does not take the record '%s'",
                       record->operation);
    }
    b->audit_added = true;
    b->audit_awaited |= waiter && !waiter->patient;
    if (!waiter)
        return 0;
    waiter->seq = seq;
    waiter->added_ms = now_ms();
    waiter->next = NULL;
    if (b->last_waiter)
        b->last_waiter->next = waiter;
    else
        b->first_waiter = waiter;
    b->last_waiter = waiter;
    return 0;
}

/* What gives room back, ends what takes it, or takes a right away: with the last room that has to
 * work, or nobody could do anything about it. */
static bool may_use_reserve(const char *operation)
{
    static const char *const known[] = {
        "file.delete",     "file.write",      "workspace.delete", "workspace.purge",
        "workspace.sleep", "template.delete", "plan.discard",     "plan.reject",
        "exec.kill",       "port.close",      "key.revoke",
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(operation, known[i]) == 0)
            return true;
    }
    return false;
}

int record_may_add(struct broker *b, const char *operation, struct err *err)
{
    if (!b->audit || may_use_reserve(operation) || !audit_is_low(b->audit))
        return 0;
    return err_set(err, ERR_IO, ENOSPC,
                   "the disk has no room for the audit record, so the daemon does only what frees "
                   "room: delete files by calls (carrel rm, or DELETE .../files/PATH), not by a "
                   "command, or make room on the host");
}

bool record_is_late(const struct broker *b)
{
    return b->first_waiter && now_ms() - b->first_waiter->added_ms > LATE_MS;
}

static void patience_ends(struct timer *timer)
{
    struct broker *b = container_of(timer, struct broker, audit_timer);

    b->audit_awaited = true; /* record_commit comes next */
}

/* Where many commands are on their way, and end one soon after the other, the disk takes the ends
 * of several as fast as that of one, and the processors are better used for the commands. Whether
 * those that wait wait a moment more. */
static bool is_gathering(struct broker *b)
{
    uint64_t due = b->audit_commit_ms + GATHER_MS;

    if (b->awaited_execs < GATHER_FROM || now_ms() >= due)
        return false;
    b->audit_timer.ring = patience_ends;
    return (b->audit_timer.due_ms && b->audit_timer.due_ms <= due) ||
           timer_set(b->events, &b->audit_timer, due) == 0;
}

/* The loop itself never waits for the disk: one that does not answer would hold up what has nothing
 * to do with the record, the start of the next front among it. */
void record_commit(struct broker *b)
{
    if (b->audit && b->audit_awaited) {
        if (is_gathering(b))
            return;
        b->audit_awaited = b->audit_added = false;
        b->audit_commit_ms = now_ms();
        timer_stop(b->events, &b->audit_timer);
        audit_push(b->audit);
        return;
    }
    if (!b->audit_added || b->audit_timer.due_ms)
        return;
    b->audit_timer.ring = patience_ends;
    if (timer_set(b->events, &b->audit_timer, now_ms() + PATIENT_MS) < 0)
        audit_push(b->audit);
    b->audit_added = false;
}

/* A record of something that has happened, with copies of its texts. */
struct kept {
    struct waiter waiter;
    struct kept *next;
    struct waiter *outer; /* who wanted to know; or NULL */
    bool is_void;         /* it was refused after all */
    struct audit_record record;
    char texts[];
};

static struct kept *copy_record(const struct audit_record *r)
{
    const char *from[6] = {r->actor, r->workspace, r->request, r->operation, r->result, r->details};
    const char *copies[6];
    size_t total = 0;
    size_t at = 0;

    for (size_t i = 0; i < 6; i++)
        total += strlen(from[i]) + 1;
    struct kept *kept = calloc(1, sizeof(*kept) + total);
    if (!kept)
        return NULL;
    for (size_t i = 0; i < 6; i++) {
        size_t n = strlen(from[i]) + 1;
        copies[i] = memcpy(kept->texts + at, from[i], n);
        at += n;
    }
    kept->record = (struct audit_record){.actor = copies[0],
                                         .workspace = copies[1],
                                         .request = copies[2],
                                         .operation = copies[3],
                                         .result = copies[4],
                                         .details = copies[5]};
    return kept;
}

static void try_again(struct timer *timer);

static void keep(struct broker *b, struct kept *kept)
{
    uint64_t due = now_ms() + FIRST_RETRY_MS;

    if (b->kept_count == MOST_KEPT) {
        log_error("audit_lost_record", "operation", kept->record.operation, "workspace",
                  kept->record.workspace, NULL);
        free(kept);
        return;
    }
    kept->next = NULL;
    if (b->last_kept)
        b->last_kept->next = kept;
    else
        b->kept = kept;
    b->last_kept = kept;
    b->kept_count++;
    b->kept_timer.ring = try_again;
    if (due < b->audit_due_ms)
        due = b->audit_due_ms;
    if (!b->kept_timer.due_ms && timer_set(b->events, &b->kept_timer, due) < 0)
        log_error("timer_failed", "then", "records wait for the next ones", NULL);
}

static void note_done(struct broker *b, struct waiter *waiter, bool written)
{
    struct kept *kept = (struct kept *)(void *)waiter;

    if (kept->outer)
        kept->outer->done(b, kept->outer, written);
    kept->outer = NULL; /* is told once */
    if (written || kept->is_void)
        free(kept);
    else
        keep(b, kept);
}

static void try_again(struct timer *timer)
{
    struct broker *b = container_of(timer, struct broker, kept_timer);
    struct kept *kept = b->kept;
    struct err err;

    b->kept = NULL;
    b->last_kept = NULL;
    b->kept_count = 0;
    while (kept) {
        struct kept *next = kept->next;
        if (record_add(b, &kept->record, &kept->waiter, &err) < 0)
            keep(b, kept);
        kept = next;
    }
}

int record_note(struct broker *b, const struct audit_record *record, struct waiter *waiter)
{
    struct kept *kept = copy_record(record);
    struct err err;

    if (!kept) {
        log_error("audit_lost_record", "operation", record->operation, NULL);
        return -1;
    }
    kept->waiter.done = note_done;
    kept->waiter.patient = !waiter || waiter->patient; /* else the loop would wait for the disk */
    /* In their order: what is new waits behind what is kept. */
    if (!b->kept && record_add(b, &kept->record, &kept->waiter, &err) == 0) {
        kept->outer = waiter;
        return 0;
    }
    keep(b, kept);
    return -1;
}

int record_begin(struct broker *b, const struct audit_record *record, struct waiter *waiter,
                 struct err *err)
{
    struct kept *kept = copy_record(record);

    if (!kept)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep a record");
    kept->waiter.done = note_done;
    kept->waiter.patient = waiter->patient;
    if (record_add(b, &kept->record, &kept->waiter, err) < 0) {
        free(kept);
        return -1;
    }
    audit_write_here(b->audit);
    if (!audit_has_failed(b->audit, err)) {
        kept->outer = waiter;
        return 0; /* kept by the record; NOLINT(clang-analyzer-unix.Malloc) */
    }
    kept->is_void = true;
    return err_wrap(err, "the audit cannot be written, and without it nothing is done");
}

void record_write(struct broker *b)
{
    if (b->audit)
        audit_write_here(b->audit);
}

bool record_flush(struct broker *b)
{
    uint64_t due = now_ms() + FLUSH_MS;

    if (b->audit_due_ms)
        b->audit_due_ms = 1; /* there is no later */
    try_again(&b->kept_timer);
    if (b->audit)
        audit_push(b->audit);
    while (b->audit && b->first_waiter && now_ms() < due) {
        struct pollfd p = {.fd = audit_fd(b->audit), .events = POLLIN};
        (void)poll(&p, 1, 100);
        look(b);
    }
    bool all = !b->kept && !b->first_waiter;
    while (b->kept) {
        struct kept *kept = b->kept;
        b->kept = kept->next;
        log_error("audit_lost_record", "operation", kept->record.operation, "workspace",
                  kept->record.workspace, NULL);
        free(kept);
    }
    b->last_kept = NULL;
    timer_stop(b->events, &b->kept_timer);
    return all;
}

/* The length of the UTF-8 character at `c`, or 0: none, or one that must be escaped. */
static size_t plain_character(const unsigned char *c)
{
    uint32_t code = 0;
    size_t n = utf8_next(c, 4, &code); /* no further than to the NUL that ends the text */

    return code < ' ' || code == '"' || code == '\\' || code == 0x7f ? 0 : n;
}

void record_put_text(struct buf *b, const char *text, size_t most)
{
    const unsigned char *c = (const unsigned char *)text;
    const unsigned char *end = c + strnlen(text, most);

    buf_str(b, "\"");
    while (c < end) {
        size_t n = plain_character(c);
        if (n > (size_t)(end - c))
            break; /* a character that was cut */
        if (n)
            buf_add(b, c, n);
        else
            buf_printf(b, "\\u%04x", *c); /* a stray byte as the character of that number */
        c += n ? n : 1;
    }
    buf_str(b, "\"");
}
