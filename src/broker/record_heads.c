/* SPDX-License-Identifier: Apache-2.0 */
/* Signed heads of the record, by carrel-sink; rotation by age; and the going of the oldest
 * segments, once they are signed for, and exported where that is asked for. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/head.h"
#include "audit/retain.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/record.h"
#include "broker/record_heads.h"
#include "protocol/sink.h"

enum {
    START_MS = 15000, /* for the first answer: it reads what was written after the last head */
    STOP_MS = 3000,
    LONGEST_TICK_MS = 60000,
    SHORTEST_TICK_MS = 200,
};

static const char *sink_word(const struct settings *s)
{
    return *s->audit_sink_file  ? (*s->audit_sink_url ? "file+url" : "file")
           : *s->audit_sink_url ? "url"
                                : "none";
}

/* The file is the sink's: made by us where a directory of root's is, and never written by us. */
static int open_sink_file(const struct broker *b, struct err *err)
{
    const char *path = b->settings.audit_sink_file;
    struct stat st;

    if (!*path)
        return open("/dev/null", O_WRONLY | O_CLOEXEC);
    scoped_fd int fd =
        open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "open '%s' (setting 'audit_sink_file')", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "'%s' (setting 'audit_sink_file') is not a file", path);
    if (st.st_uid != b->sink_uid && st.st_size == 0 && fchown(fd, b->sink_uid, (gid_t)-1) < 0)
        return err_set(err, ERR_IO, errno, "give '%s' to the sink's user", path);
    return take_fd(&fd);
}

static char *const *prepare(struct helper *h, struct arena *arena, int fds[HELPER_FDS],
                            struct err *err)
{
    const char **argv = arena_alloc(arena, 3 * sizeof(*argv));

    if (!argv) {
        err_set(err, ERR_LIMIT, ENOMEM, "start carrel-sink");
        return NULL;
    }
    fds[0] = open_sink_file(h->broker, err);
    if (fds[0] < 0)
        return NULL;
    h->extra_count = 1;
    argv[0] = "carrel-sink";
    argv[1] = sink_word(&h->broker->settings);
    return (char *const *)(uintptr_t)argv;
}

static void note(struct broker *b, const char *operation, const char *text)
{
    scoped_buf struct buf details;

    buf_init(&details, 4096);
    buf_str(&details, "{\"why\":");
    record_put_text(&details, text, SINK_TEXT);
    buf_str(&details, "}");
    if (buf_done(&details) < 0)
        return;
    (void)record_note(b,
                      &(struct audit_record){.actor = "broker",
                                             .workspace = "",
                                             .request = "",
                                             .operation = operation,
                                             .result = "failed",
                                             .details = details.p},
                      NULL);
}

static void heard(struct helper *h, const char *bytes, size_t n)
{
    struct broker *b = h->broker;
    struct sink_answer a;

    if (n != sizeof(a))
        return;
    memcpy(&a, bytes, sizeof(a));
    a.text[sizeof(a.text) - 1] = '\0';
    b->heads_asked = false;
    b->heads_status = a.status;
    b->heads_answers++;
    memcpy(b->heads_why, a.text, sizeof(b->heads_why));
    if (a.status == SINK_SIGNED) {
        b->heads_through = a.seq;
        b->heads_complained = false;
        return;
    }
    if (b->heads_complained)
        return;
    b->heads_complained = true;
    log_error(a.status == SINK_MISMATCH ? "audit_mismatch" : "audit_not_signed", "error", a.text,
              "then", a.status == SINK_MISMATCH ? "nothing is signed" : "trying again", NULL);
    if (a.status == SINK_MISMATCH && b->began)
        note(b, "audit.mismatch", a.text);
}

/* --- asking for a head --- */

static void order(struct broker *b, uint64_t seq, uint64_t forget)
{
    struct sink_order o = {.seq = seq, .forget = forget};

    b->heads_asked = helper_send(&b->sink, &o, sizeof(o));
    b->heads_asked_ms = now_ms();
}

/* One that has died since will not answer. */
static bool is_waiting(const struct broker *b)
{
    return b->heads_asked && b->sink.since_ms <= b->heads_asked_ms;
}

static void heads_now(struct broker *b)
{
    uint64_t seq = b->audit ? audit_synced(b->audit) : 0;

    if (seq > b->heads_through && b->heads_status != SINK_MISMATCH && !is_waiting(b))
        order(b, seq, 0);
}

/* For the moments when there is nothing else to do: the start and the end. */
static void await(struct broker *b, uint64_t patience_ms)
{
    uint64_t due = now_ms() + patience_ms;
    uint64_t before = b->heads_answers;

    while (b->sink.socket >= 0 && b->heads_answers == before && now_ms() < due) {
        struct pollfd p = {.fd = b->sink.socket, .events = POLLIN};
        (void)poll(&p, 1, 100);
        if (p.revents && b->sink.talk.fd < 0)
            return; /* it has gone */
        if (p.revents)
            b->sink.talk.ready(&b->sink.talk, EPOLLIN);
    }
}

/* --- the oldest segments --- */

/* The head of that very record, as it was signed, for the record of its going. */
static void find_head(const struct broker *b, uint64_t seq, char ret[AUDIT_HEAD])
{
    struct audit_head head;

    ret[0] = '\0';
    if (audit_heads_find(b->state, "heads/heads.jsonl", seq, &head))
        audit_head_encode(&head, ret);
}

static void put_away(struct broker *b, struct waiter *waiter, bool written)
{
    struct err err;
    char path[sizeof(b->settings.state) + 8];

    (void)waiter;
    b->retaining = false;
    if (!written)
        return;
    record_dir(b, path, sizeof(path));
    scoped_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || audit_retain_drop(dir, b->retain_last, &err) < 0) {
        log_error("audit_retention_failed", "then", "trying again", NULL);
        return;
    }
    order(b, audit_synced(b->audit), b->retain_through);
}

/* What may go at most: what is signed for, by a head of a record that stays; and what was exported,
 * as long as there is not too much of it. */
static uint64_t may_go(struct broker *b, int dir)
{
    const struct settings *s = &b->settings;
    uint64_t through = b->heads_through ? b->heads_through - 1 : 0;
    struct audit_drop all;
    struct err err;

    if (!*s->export || b->exported >= through)
        return through;
    if (audit_retain_plan(dir, &(struct audit_keep){0}, 0, &all, &err) < 0)
        return 0;
    if (all.left > s->audit_hold)
        return through;
    return b->exported;
}

static void retain(struct broker *b, int dir)
{
    const struct settings *s = &b->settings;
    struct audit_keep keep = {.most_bytes = s->audit_keep_bytes};
    scoped_buf struct buf details;
    struct audit_drop drop;
    char head[AUDIT_HEAD];
    struct err err;

    buf_init(&details, 4096);
    if (s->audit_keep_ms)
        audit_time_ago(s->audit_keep_ms, keep.before);
    if (audit_retain_plan(dir, &keep, may_go(b, dir), &drop, &err) < 0 || drop.last == 0)
        return;
    uint64_t through = drop.checkpoint.through;
    uint64_t unexported = *s->export && b->exported < through ? through - b->exported : 0;
    if (unexported)
        log_warning("audit_unexported", "then",
                    "the oldest segments go though they were not exported: there is more than "
                    "'audit_hold' of them",
                    NULL);
    find_head(b, through, head);
    audit_checkpoint_encode(&details, &drop, unexported, head);
    b->retain_last = drop.last;
    b->retain_through = through;
    b->retain_wait = (struct waiter){.done = put_away};
    if (buf_done(&details) < 0)
        return;
    b->retaining = record_add(b,
                              &(struct audit_record){.actor = "broker",
                                                     .workspace = "",
                                                     .request = "",
                                                     .operation = AUDIT_RETENTION,
                                                     .result = "ok",
                                                     .details = details.p},
                              &b->retain_wait, &err) == 0;
}

static void rotate_if_old(struct broker *b, int dir)
{
    char before[AUDIT_TIME];
    struct audit_first first;

    if (!b->settings.audit_segment_age_ms || !b->audit)
        return;
    audit_time_ago(b->settings.audit_segment_age_ms, before);
    if (audit_first(dir, audit_segment(b->audit), &first) && strcmp(first.time, before) < 0)
        audit_rotate(b->audit);
}

/* --- from time to time --- */

static void tick(struct timer *timer)
{
    struct broker *b = container_of(timer, struct broker, heads_timer);
    const struct settings *s = &b->settings;
    char path[sizeof(b->settings.state) + 8];
    uint64_t next = !b->heads_through   ? SHORTEST_TICK_MS
                    : s->audit_heads_ms ? s->audit_heads_ms
                                        : LONGEST_TICK_MS;

    if (s->audit_heads_ms || !b->heads_through)
        heads_now(b);
    record_dir(b, path, sizeof(path));
    scoped_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && b->audit) {
        rotate_if_old(b, dir);
        if ((s->audit_keep_ms || s->audit_keep_bytes) && !b->retaining)
            retain(b, dir);
    }
    next = next > LONGEST_TICK_MS ? LONGEST_TICK_MS : next;
    next = next < SHORTEST_TICK_MS ? SHORTEST_TICK_MS : next;
    ignore(timer_set(b->events, timer, now_ms() + next) == 0); /* it had its place */
}

void heads_look(struct broker *b)
{
    uint32_t segment = b->audit ? audit_segment(b->audit) : 0;

    if (segment == 0 || segment == b->heads_segment)
        return;
    if (b->heads_segment)
        heads_now(b); /* the last line of a full segment */
    b->heads_segment = segment;
}

void heads_first(struct broker *b)
{
    if (b->heads_through || b->sink.socket < 0 || !audit_sync_here(b->audit))
        return; /* the timer sees to it */
    order(b, audit_synced(b->audit), 0);
    await(b, START_MS);
}

static bool has_heads(const struct broker *b)
{
    struct stat st;

    return fstatat(b->state, "heads/heads.jsonl", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0;
}

int heads_start(struct broker *b, struct err *err)
{
    /* More than the first start left when it was killed before it could sign. */
    bool is_anew = audit_synced(b->audit) > 1 && !has_heads(b);

    b->sink = helper_make(b, "carrel-sink");
    b->sink.program = b->sink_program;
    b->sink.uid = b->sink_uid;
    b->sink.prepare = prepare;
    b->sink.heard = heard;
    if (helper_start(&b->sink, err) < 0)
        return -1;
    order(b, audit_synced(b->audit), 0);
    await(b, START_MS);
    if (b->heads_status == SINK_MISMATCH)
        return err_set(err, ERR_CONFLICT, 0, "%.360s", b->heads_why);
    if (is_anew) {
        note(b, AUDIT_ANEW, "there is no signed head of what was recorded before");
        record_write(b); /* nothing else may be recorded for a long time */
    }
    b->heads_segment = audit_segment(b->audit);
    b->heads_timer.ring = tick;
    return timer_set(b->events, &b->heads_timer, now_ms() + SHORTEST_TICK_MS) < 0
               ? err_set(err, ERR_LIMIT, ENOMEM, "set a timer")
               : 0;
}

void heads_stop(struct broker *b, uint64_t last)
{
    timer_stop(b->events, &b->heads_timer);
    if (is_waiting(b))
        await(b, STOP_MS);
    if (last > b->heads_through && b->heads_status != SINK_MISMATCH && b->sink.socket >= 0) {
        order(b, last, 0);
        await(b, STOP_MS);
    }
    if (b->heads_through < last)
        log_warning("audit_tail_not_signed", "then", "the next start does it", NULL);
    helper_stop(&b->sink, 0, STOP_MS);
}
