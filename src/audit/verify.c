/* SPDX-License-Identifier: Apache-2.0 */
/* Is the chain whole, and if not, which line is the first that cannot be believed? */
#include "audit/line.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/head.h"
#include "base/bytes.h"
#include "base/fd.h"

enum {
    TORN_LOOKS = 25,  /* how often a last line without an end is looked at again */
    TORN_PAUSE_MS = 4 /* a writer at work needs microseconds */
};

struct record_place {
    uint32_t segment;
    uint64_t line;
};

struct record_walk {
    struct audit_check *check;
    struct audit_report *report;
    struct record_place here;
    struct record_place before;  /* the line before it */
    bool is_first;               /* nothing has been read yet */
    bool is_trusting;            /* and what it should follow is not here */
    bool has_expected;           /* the hash kept elsewhere was met */
    size_t anchor;               /* the next signed head to come by */
    bool is_stopped;             /* the last line is of a daemon that ended in order */
    struct record_place suspect; /* the first line that no signed head vouches for */
    bool is_suspect_next;        /* ... is the next one */
    /* A line that is not what was signed, until the next one says whether only it was changed. */
    bool is_contradicted;
    struct audit_anchor contradiction;
    /* The last line that is missing at the beginning, and whether its going is on record. */
    struct audit_checkpoint missing;
    bool is_put_away;
    /* A line whose `prev` was wrong, until the line after it says which of the two was changed. */
    bool is_in_doubt;
    struct record_place doubted;
    struct record_place doubted_before;
};

__attribute__((format(printf, 3, 4))) static void
problem(struct record_walk *walk, struct record_place where, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(walk->report->problem, sizeof(walk->report->problem), format, args);
    va_end(args);
    if (where.segment)
        audit_segment_name(where.segment, walk->report->file);
    else
        snprintf(walk->report->file, sizeof(walk->report->file), "record");
    walk->report->line = where.line;
}

/* --- signed heads --- */

/* The chain is whole up to here and yet not what was signed: it was hashed anew after a change.
 * Where the change is nobody can say; the last head that agrees says where it is not. */
static void judge_contradiction(struct record_walk *walk)
{
    uint64_t good = walk->report->anchored_seq;

    walk->is_contradicted = false;
    problem(walk, walk->suspect,
            "written anew: record %ju is not the one that was signed at %s; nothing after record "
            "%ju, the last that a signed head agrees with, can be believed",
            (uintmax_t)walk->contradiction.seq, walk->contradiction.time, (uintmax_t)good);
}

/* The last line is taken in, and has the hash in chain.head. */
static void hold_against_anchors(struct record_walk *walk)
{
    const struct audit_anchors *anchors = walk->check->anchors;
    const struct audit_chain *chain = &walk->check->chain;

    for (; anchors && walk->anchor < anchors->count; walk->anchor++) {
        const struct audit_anchor *one = &anchors->items[walk->anchor];
        if (one->seq > chain->seq)
            return;
        if (one->seq < chain->seq) /* of what was put away */
            continue;
        if (!audit_anchor_is(one, chain->head)) {
            if (!walk->is_contradicted)
                walk->contradiction = *one;
            walk->is_contradicted = true;
        } else if (!walk->is_contradicted) {
            walk->report->anchored_seq = one->seq;
            memcpy(walk->report->anchored_time, one->time, sizeof(one->time));
            walk->is_suspect_next = true;
        }
    }
}

/* The first line of all says what hash the one before it had: a head may say otherwise. */
static void hold_beginning(struct record_walk *walk)
{
    const struct audit_anchors *anchors = walk->check->anchors;

    for (size_t i = 0; anchors && i < anchors->count; i++)
        if (anchors->items[i].seq == walk->missing.through &&
            !audit_anchor_is(&anchors->items[i], walk->missing.hash)) {
            problem(walk, walk->here,
                    "does not follow record %ju, which was put away, as that was signed at %s",
                    (uintmax_t)walk->missing.through, anchors->items[i].time);
            return;
        }
}

static void find_cut(struct record_walk *walk)
{
    const struct audit_anchors *anchors = walk->check->anchors;

    if (walk->is_contradicted && !walk->report->problem[0])
        judge_contradiction(walk);
    if (!anchors || !anchors->count || walk->report->problem[0])
        return;
    const struct audit_anchor *last = &anchors->items[anchors->count - 1];
    if (last->seq <= walk->check->chain.seq)
        return;
    walk->here.line++;
    problem(walk, walk->here,
            "missing: the record ends with %ju, but record %ju was signed at %s: it was cut off, "
            "or the state directory is an earlier one put back",
            (uintmax_t)walk->check->chain.seq, (uintmax_t)last->seq, last->time);
}

/* --- lines --- */

/* A changed line no longer has the hash that the next one holds. So does a next one whose hash was
 * changed, but then the line after that does not fit either. */
static void judge_doubt(struct record_walk *walk, const struct audit_line *next)
{
    bool is_earlier = !next || memcmp(next->prev, walk->check->chain.head, AUDIT_HEX - 1) == 0;

    walk->is_in_doubt = false;
    problem(walk, is_earlier ? walk->doubted_before : walk->doubted,
            is_earlier ? "changed: it does not have the hash that the next line holds"
                       : "changed: neither the line before nor the one after fits it");
}

static void judge_line(struct record_walk *walk, const char *bytes, size_t n)
{
    struct audit_chain *chain = &walk->check->chain;
    struct audit_line line;

    bool is_record = audit_parse(bytes, n, &line);
    if (walk->is_in_doubt) {
        judge_doubt(walk, is_record ? &line : NULL);
        return;
    }
    /* This line goes on with one that is not the signed one: it was made to. */
    if (walk->is_contradicted && is_record && line.seq == chain->seq + 1 &&
        memcmp(line.prev, chain->head, AUDIT_HEX - 1) == 0) {
        judge_contradiction(walk);
        return;
    }
    walk->is_contradicted = false; /* only that line was changed: told below */
    bool is_taken_on_trust = walk->is_first && walk->is_trusting;
    if (!is_record) {
        problem(walk, walk->here, "not a record");
    } else if (!is_taken_on_trust && line.seq != chain->seq + 1) {
        problem(walk, walk->here, "sequence number %ju where %ju belongs: lines %s",
                (uintmax_t)line.seq, (uintmax_t)(chain->seq + 1),
                line.seq > chain->seq ? "are missing" : "are out of order");
    } else if (!is_taken_on_trust && memcmp(line.prev, chain->head, AUDIT_HEX - 1) != 0) {
        if (walk->is_first) {
            problem(walk, walk->here, "the first line of all follows no other");
            return;
        }
        walk->is_in_doubt = true;
        walk->doubted = walk->here;
        walk->doubted_before = walk->before;
    } else if (memcmp(line.time, chain->time, AUDIT_TIME - 1) < 0) {
        problem(walk, walk->here, "its time is before that of the line before");
    }
    if (walk->report->problem[0])
        return;
    if (is_taken_on_trust) {
        walk->missing.through = line.seq - 1;
        memcpy(walk->missing.hash, line.prev, AUDIT_HEX - 1);
        hold_beginning(walk);
    }
    chain->seq = line.seq;
    memcpy(chain->time, line.time, AUDIT_TIME - 1);
}

/* Records are missing at the beginning. That is in order when a later one, of the chain itself,
 * says so; where it says up to the very one, also with which hash. */
static void look_for_checkpoint(struct record_walk *walk, const char *bytes, size_t n)
{
    struct audit_checkpoint said;

    if (!walk->missing.through || walk->is_put_away || !audit_checkpoint_parse(bytes, n, &said) ||
        said.through < walk->missing.through)
        return;
    walk->is_put_away = said.through > walk->missing.through ||
                        memcmp(said.hash, walk->missing.hash, AUDIT_HEX - 1) == 0;
}

/* The record itself shows of some others that they were signed: the daemon says at its start what
 * was, signs its last one, and puts nothing away without a head behind it. */
static void note_due(struct record_walk *walk, const char *bytes, size_t n)
{
    struct audit_report *report = walk->report;
    struct audit_checkpoint away;
    struct audit_line line;
    uint64_t due = 0;

    ignore(audit_parse(bytes, n, &line)); /* it was, above */
    walk->is_stopped = audit_is_brokers(bytes, n, &line, AUDIT_STOP);
    if (audit_is_brokers(bytes, n, &line, AUDIT_START)) {
        const char *said = memmem(bytes, n, AUDIT_SIGNED, strlen(AUDIT_SIGNED));
        if (said)
            due = strtoull(said + strlen(AUDIT_SIGNED), NULL, 10); /* ends before `prev` */
    } else if (audit_is_brokers(bytes, n, &line, AUDIT_ANEW)) {
        report->anew_seq = walk->check->chain.seq;
    } else if (audit_is_brokers(bytes, n, &line, AUDIT_RETENTION) &&
               audit_checkpoint_parse(bytes, n, &away)) {
        due = away.through + 1;
    }
    if (due > report->due_seq)
        report->due_seq = due;
}

/* Takes one line into account; -1 when there is no memory. */
static int take_line(struct record_walk *walk, const char *bytes, size_t n, struct err *err)
{
    struct audit_chain *chain = &walk->check->chain;
    const char *expected = walk->check->expected_head;

    walk->here.line++;
    if (walk->is_first || walk->is_suspect_next)
        walk->suspect = walk->here;
    walk->is_suspect_next = false;
    judge_line(walk, bytes, n);
    if (walk->report->problem[0])
        return 0;
    look_for_checkpoint(walk, bytes, n);
    note_due(walk, bytes, n);
    if (walk->is_first)
        walk->report->first_seq = chain->seq;
    if (audit_hash(bytes, n, chain->head) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "hash a line");
    if (expected && strcmp(chain->head, expected) == 0) {
        walk->has_expected = true;
        walk->report->kept_seq = chain->seq;
    }
    hold_against_anchors(walk);
    walk->is_first = false;
    walk->before = walk->here;
    walk->report->records++;
    return 0;
}

static int walk_lines(struct record_walk *walk, struct audit_lines *lines, struct err *err)
{
    const char *line;
    size_t n;

    while (!walk->report->problem[0]) {
        int rc = audit_lines_next(lines, &line, &n);
        if (rc == -EMSGSIZE) {
            walk->here.line++;
            problem(walk, walk->here, "not a record: longer than any");
            return 0;
        }
        if (rc < 0)
            return err_set(err, ERR_IO, -rc, "read segment %u of the audit record",
                           walk->here.segment);
        if (rc == 0)
            return 0;
        if (take_line(walk, line, n, err) < 0)
            return -1;
    }
    return 0;
}

/* The writer may be in the middle of the last line: is its end still on the way? */
static int walk_torn(struct record_walk *walk, struct audit_lines *lines, struct err *err)
{
    for (int i = 0; i < TORN_LOOKS && lines->torn && !walk->report->problem[0]; i++) {
        (void)poll(NULL, 0, TORN_PAUSE_MS);
        if (walk_lines(walk, lines, err) < 0)
            return -1;
    }
    return 0;
}

static int walk_segment(struct record_walk *walk, uint32_t number, bool is_newest, struct err *err)
{
    struct audit_check *check = walk->check;
    struct audit_lines lines;

    walk->here = (struct record_place){number, 0};
    scoped_fd int fd = audit_segment_open(check->dir, number);
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "open segment %u of the audit record", number);
    audit_lines_init(&lines, &fd);
    int rc = walk_lines(walk, &lines, err);
    if (rc == 0 && is_newest)
        rc = walk_torn(walk, &lines, err);
    check->last_line = (uint32_t)walk->here.line;
    check->whole = lines.offset;
    check->torn = lines.torn;
    audit_lines_clear(&lines);
    if (rc == 0 && check->torn && !is_newest && !walk->report->problem[0]) {
        walk->here.line++;
        problem(walk, walk->here, "the line has no end, and other files follow");
    }
    return rc;
}

static void find_expected(struct record_walk *walk)
{
    if (walk->check->expected_head && !walk->has_expected && !walk->report->problem[0])
        problem(walk, walk->here,
                "the hash kept elsewhere is not in the chain: it was cut off or written anew");
}

/* What can be said only when all lines were seen. */
static void conclude(struct record_walk *walk)
{
    if (walk->is_in_doubt)
        judge_doubt(walk, NULL);
    if (walk->missing.through && !walk->is_put_away && !walk->check->may_begin_late &&
        !walk->report->problem[0])
        problem(walk, (struct record_place){walk->here.segment ? 1 : 0, 1},
                "the file is missing: the record begins with %ju, and nothing in it says that what "
                "was before was put away",
                (uintmax_t)walk->missing.through + 1);
    find_cut(walk);
    find_expected(walk);
    if (walk->is_stopped)
        walk->report->due_seq = walk->check->chain.seq;
    walk->report->last_seq = walk->check->chain.seq;
    memcpy(walk->report->head, walk->check->chain.head, sizeof(walk->report->head));
}

static void begin(struct record_walk *walk, struct audit_check *check, struct audit_report *ret)
{
    *walk = (struct record_walk){
        .check = check, .report = ret, .is_first = true, .here = {1, 0}, .suspect = {1, 1}};
    *ret = (struct audit_report){0};
    audit_chain_init(&check->chain);
    /* Nothing at all is a chain too, and this is its head. */
    walk->has_expected =
        check->expected_head && strcmp(check->chain.head, check->expected_head) == 0;
}

int audit_check_run(struct audit_check *check, struct audit_report *ret, struct err *err)
{
    const struct audit_segments *segments = check->segments;
    struct record_walk walk;

    begin(&walk, check, ret);
    walk.is_trusting = check->from > 0 || (segments->count && segments->numbers[0] != 1);
    for (size_t i = check->from; i < segments->count && !ret->problem[0]; i++) {
        if (i && segments->numbers[i] != segments->numbers[i - 1] + 1) {
            if (walk.is_in_doubt)
                judge_doubt(&walk, NULL);
            else
                problem(&walk, (struct record_place){segments->numbers[i - 1] + 1, 1},
                        "the file is missing");
        } else if (walk_segment(&walk, segments->numbers[i], i + 1 == segments->count, err) < 0) {
            return -1;
        }
        /* The last line of a full one; of the newest of these the head may be on its way. */
        if (i + 2 < segments->count && check->chain.seq > ret->due_seq)
            ret->due_seq = check->chain.seq;
    }
    conclude(&walk);
    return 0;
}

static int check_wanted(const struct audit_wanted *wanted, struct err *err)
{
    if (wanted->hash && !bytes_are_hex(wanted->hash, AUDIT_HEX - 1))
        return err_set(err, ERR_INVALID, 0, "the hash to find is not 64 digits of lower-case hex");
    return 0;
}

int audit_verify_with(const char *dir, const struct audit_wanted *wanted, struct audit_report *ret,
                      struct err *err)
{
    struct audit_segments segments;

    if (check_wanted(wanted, err) < 0)
        return -1;
    scoped_fd int fd = audit_open_dir(dir, &segments, err);
    if (fd < 0)
        return -1;
    struct audit_check check = {.dir = fd,
                                .segments = &segments,
                                .expected_head = wanted->hash,
                                .anchors = wanted->anchors};
    struct audit_report report;
    int rc = audit_check_run(&check, &report, err);
    if (rc == 0 && check.torn && !report.problem[0]) {
        uint32_t newest = segments.numbers[segments.count - 1];
        snprintf(report.problem, sizeof(report.problem),
                 "the last line has no end (%zu bytes): a daemon was killed, or has no room; it is "
                 "cut off at its next start, and that is recorded",
                 check.torn);
        report.torn = check.torn;
        audit_segment_name(newest, report.file);
        report.line = check.last_line + 1;
    }
    audit_segments_clear(&segments);
    if (rc == 0)
        *ret = report;
    return rc;
}

int audit_verify(const char *dir, const char *expected_head, struct audit_report *ret,
                 struct err *err)
{
    return audit_verify_with(dir, &(struct audit_wanted){.hash = expected_head}, ret, err);
}

/* --- lines that come one by one --- */

struct audit_stream {
    struct audit_check check;
    struct audit_report report;
    struct record_walk walk;
};

int audit_stream_open(struct audit_stream **ret, const struct audit_wanted *wanted, struct err *err)
{
    struct audit_stream *stream = check_wanted(wanted, err) < 0 ? NULL : malloc(sizeof(*stream));

    if (!stream)
        return err->code == ERR_INVALID ? -1 : err_set(err, ERR_LIMIT, ENOMEM, "verify a record");
    stream->check =
        (struct audit_check){.dir = -1, .expected_head = wanted->hash, .anchors = wanted->anchors};
    begin(&stream->walk, &stream->check, &stream->report);
    stream->walk.here = (struct record_place){0, 0};
    stream->walk.suspect = (struct record_place){0, 1};
    *ret = stream;
    return 0;
}

int audit_stream_line(struct audit_stream *stream, const char *line, size_t n, struct err *err)
{
    struct record_walk *walk = &stream->walk;
    struct audit_line first;

    if (stream->report.problem[0])
        return 1;
    if (walk->is_first && audit_parse(line, n, &first) && first.seq > 1) {
        walk->is_trusting = true;
        walk->here.line = first.seq - 1;
    }
    if (take_line(walk, line, n, err) < 0)
        return -1;
    return stream->report.problem[0] != '\0';
}

void audit_stream_close(struct audit_stream *stream, struct audit_report *ret)
{
    conclude(&stream->walk);
    *ret = stream->report;
    free(stream);
}
