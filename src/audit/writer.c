/* SPDX-License-Identifier: Apache-2.0 */
/* The one writer. audit_add makes the line and its hash and puts it into `queue`; when pushed the
 * thread writes all there is in one piece and syncs it once, while the next lines gather. So the
 * disk is asked as often as it can answer, however many records there are.
 *
 *   audit_add -> queue --write--> file, written_seq --fdatasync--> synced, eventfd
 *
 * Writing is done with the lock, waiting for the disk without: what must be in the file at once is
 * written there also while the thread waits for the disk.
 *
 * A little of the file is allocated in advance, behind its end: where the disk is full, what makes
 * room can still be recorded. */
#include "audit/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/line.h"
#include "base/fd.h"

enum {
    QUEUE_MAX = 8 << 20,     /* bytes that wait for the disk */
    KEEP_ROOM = 1 << 20,     /* a larger buffer is given back after a rush */
    STACK_BYTES = 256 << 10, /* of the thread */
    RESERVE = 256 << 10,     /* bytes behind the end of the file ... */
    /* ... and when there are to be more again: soon, so that of others' reserves on the same disk
     * little is used before this one refuses what they would be used for. */
    LEAST_RESERVE = RESERVE - (16 << 10),
};

struct audit {
    /* Fixed. */
    int dir;
    int event;
    int64_t group;
    uint64_t segment_bytes;
    pthread_t thread;

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t wake;
    pthread_cond_t calm; /* nobody waits for the disk any more */
    int fd;              /* not another one while is_syncing */
    uint32_t number;
    uint64_t written;         /* bytes in the segment */
    uint64_t reserved;        /* up to here it has room; 0: its file system does not say */
    struct audit_chain chain; /* where the last line that was added leaves it */
    struct buf queue;
    struct buf line;      /* the one being made */
    uint64_t written_seq; /* in the file */
    uint64_t synced;      /* on the disk */
    bool is_pushed;
    bool is_rotating; /* the next line begins a segment */
    bool is_syncing;
    bool is_ending;
    bool is_told; /* the event is not empty */
    bool is_low;  /* nothing is left but the reserve */
    bool has_failed;
    struct err err;
};

/* --- the thread --- */

static int open_segment(struct audit *audit, uint32_t number, struct err *err)
{
    mode_t mode = audit->group < 0 ? 0600 : 0640;
    char name[AUDIT_NAME];

    if (number > 999999999)
        return err_set(err, ERR_LIMIT, 0, "the audit record has no more numbers for files");
    audit_segment_name(number, name);
    scoped_fd int fd = openat(
        audit->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "create '%s' of the audit record", name);
    if (audit->group >= 0 && fchown(fd, (uid_t)-1, (gid_t)audit->group) < 0)
        return err_set(err, ERR_IO, errno, "give '%s' of the audit record to its group", name);
    if (fchmod(fd, mode) < 0) /* whatever the umask */
        return err_set(err, ERR_IO, errno, "set the mode of '%s' of the audit record", name);
    if (fsync(audit->dir) < 0)
        return err_set(err, ERR_IO, errno, "sync the directory of the audit record");
    scope_close(&audit->fd);
    audit->fd = take_fd(&fd);
    __atomic_store_n(&audit->number, number, __ATOMIC_RELAXED); /* audit_segment looks at it */
    audit->written = audit->reserved = 0;
    return 0;
}

/* Whoever else writes, cuts or removes the file breaks the chain: better seen now than later. */
static int check_alone(const struct audit *audit, struct err *err)
{
    struct stat st;

    if (fstat(audit->fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at segment %u of the audit record", audit->number);
    if (st.st_nlink == 0)
        return err_set(err, ERR_IO, 0, "segment %u of the audit record was removed", audit->number);
    if ((uint64_t)st.st_size != audit->written)
        return err_set(err, ERR_IO, 0,
                       "segment %u of the audit record was changed by another program: %jd bytes, "
                       "not %ju",
                       audit->number, (intmax_t)st.st_size, (uintmax_t)audit->written);
    return 0;
}

/* With the lock. Whether there is as much room as there should be. Where there never was any,
 * nothing is kept. */
static bool reserve(struct audit *audit)
{
    if (audit->reserved >= audit->written + LEAST_RESERVE)
        return true;
    if (fallocate(audit->fd, FALLOC_FL_KEEP_SIZE, (off_t)audit->written, RESERVE) == 0) {
        audit->reserved = audit->written + RESERVE;
        return true;
    }
    return audit->reserved == 0;
}

static void empty(struct buf *b)
{
    if (b->cap > KEEP_ROOM)
        buf_clear(b);
    b->n = 0;
}

/* What was only written to the full one is synced with it: a later sync is of the new one alone. */
static int next_segment(struct audit *audit, struct err *err)
{
    if (fdatasync(audit->fd) < 0)
        return err_set(err, ERR_IO, errno, "sync the audit record");
    ignore(ftruncate(audit->fd, (off_t)audit->written) == 0); /* what was reserved */
    return open_segment(audit, audit->number + 1, err);
}

static bool is_full(const struct audit *audit)
{
    return audit->queue.n > 0 &&
           (audit->written >= audit->segment_bytes || (audit->is_rotating && audit->written > 0));
}

/* Where a segment is begun, the sync of the full one has to end first. */
static int write_lines(struct audit *audit, struct err *err)
{
    while (is_full(audit) && audit->is_syncing)
        pthread_cond_wait(&audit->calm, &audit->lock);
    if (audit->has_failed) { /* meanwhile */
        *err = audit->err;
        return -1;
    }
    if (check_alone(audit, err) < 0 || (is_full(audit) && next_segment(audit, err) < 0))
        return -1;
    audit->is_rotating &= audit->queue.n == 0;
    for (size_t done = 0; done < audit->queue.n;) {
        ssize_t n = write(audit->fd, audit->queue.p + done, audit->queue.n - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, ERR_IO, errno, "write the audit record");
        done += (size_t)n;
        audit->written += (uint64_t)n;
    }
    empty(&audit->queue);
    audit->written_seq = audit->chain.seq;
    return 0;
}

/* With the lock. Part of what could not be written may be in the file: more of it would only be
 * harder to judge. */
static void write_queue(struct audit *audit)
{
    struct err err;

    if (write_lines(audit, &err) == 0)
        return;
    audit->has_failed = true;
    audit->err = err;
}

/* With the lock. */
static void tell(struct audit *audit)
{
    uint64_t one = 1;

    audit->is_told = true;
    ignore(write(audit->event, &one, sizeof(one))); /* full: then it is readable all the same */
}

/* With the lock. */
static bool has_work(const struct audit *audit)
{
    return audit->queue.n > 0 || audit->written_seq > audit->synced;
}

/* With the lock, which is let go while the disk is waited for, and nobody else doing so. */
static void flush(struct audit *audit)
{
    audit->is_pushed = false;
    audit->is_low = !reserve(audit);
    write_queue(audit);
    if (audit->has_failed)
        return;
    uint64_t last = audit->written_seq;
    audit->is_syncing = true;
    pthread_mutex_unlock(&audit->lock);
    int failed = fdatasync(audit->fd) < 0 ? errno : 0;
    pthread_mutex_lock(&audit->lock);
    audit->is_syncing = false;
    pthread_cond_signal(&audit->calm);
    if (!failed)
        audit->synced = last;
    if (failed && !audit->has_failed) {
        audit->has_failed = true;
        err_set(&audit->err, ERR_IO, failed, "sync the audit record");
    }
}

static void *write_all(void *context)
{
    struct audit *audit = context;

    pthread_mutex_lock(&audit->lock);
    while (!audit->has_failed) {
        bool may = has_work(audit) && !audit->is_syncing;
        if (may && (audit->is_pushed || audit->is_ending)) {
            flush(audit);
            tell(audit);
        } else if (audit->is_ending) {
            break;
        } else {
            pthread_cond_wait(&audit->wake, &audit->lock);
        }
    }
    pthread_mutex_unlock(&audit->lock);
    return NULL;
}

/* No signal is for this thread; a file that may not grow is an error and not the end of us. */
static int start_thread(struct audit *audit, struct err *err)
{
    pthread_attr_t attr;
    sigset_t all;
    sigset_t before;

    int rc = pthread_attr_init(&attr);
    if (rc)
        return err_set(err, ERR_LIMIT, rc, "start the writer of the audit record");
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* else the usual size */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&audit->thread, &attr, write_all, audit);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc ? err_set(err, ERR_LIMIT, rc, "start the writer of the audit record") : 0;
}

/* --- opening --- */

/* The newest two segments that hold something, or where one is missing. Checking every line of
 * all would make a start slower with every day; `carrel audit verify` does. */
static size_t where_to_check(int dir, const struct audit_segments *segments)
{
    size_t from = segments->count;
    char name[AUDIT_NAME];
    struct stat st;

    for (size_t i = 1; i < segments->count; i++)
        if (segments->numbers[i] != segments->numbers[i - 1] + 1)
            return i;
    for (int full = 0; from > 0 && full < 2;) {
        audit_segment_name(segments->numbers[--from], name);
        full += fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0;
    }
    return from;
}

/* Opens the newest segment behind its last whole line. */
static int reopen_segment(struct audit *audit, const struct audit_check *check, struct err *err)
{
    char name[AUDIT_NAME];

    audit_segment_name(audit->number, name);
    audit->fd = openat(audit->dir, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (audit->fd < 0)
        return err_set(err, ERR_IO, errno, "open '%s' of the audit record", name);
    audit->written = (uint64_t)check->whole;
    if (check->torn && (ftruncate(audit->fd, check->whole) < 0 || fsync(audit->fd) < 0))
        return err_set(err, ERR_IO, errno, "cut the torn last line off '%s' of the audit record",
                       name);
    return 0;
}

static int resume(struct audit *audit, const struct audit_segments *segments, size_t *ret_torn,
                  struct err *err)
{
    struct audit_check check = {.dir = audit->dir, .segments = segments, .may_begin_late = true};
    struct audit_report report;

    check.from = where_to_check(audit->dir, segments);
    if (audit_check_run(&check, &report, err) < 0)
        return -1;
    if (report.problem[0])
        return err_set(err, ERR_IO, 0, "the audit record is damaged: %s, line %ju: %s", report.file,
                       (uintmax_t)report.line, report.problem);
    audit->chain = check.chain;
    audit->synced = audit->written_seq = check.chain.seq;
    *ret_torn = check.torn;
    if (!segments->count)
        return open_segment(audit, 1, err);
    audit->number = segments->numbers[segments->count - 1];
    return reopen_segment(audit, &check, err);
}

static void audit_free(struct audit *audit)
{
    scope_close(&audit->fd);
    scope_close(&audit->event);
    scope_close(&audit->dir);
    buf_clear(&audit->queue);
    buf_clear(&audit->line);
    pthread_cond_destroy(&audit->calm);
    pthread_cond_destroy(&audit->wake);
    pthread_mutex_destroy(&audit->lock);
    free(audit);
}

static int prepare(struct audit *audit, const char *dir, size_t *ret_torn, struct err *err)
{
    struct audit_segments segments;

    audit->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (audit->dir < 0)
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                       "open the audit record '%s'", dir);
    audit->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (audit->event < 0)
        return err_set(err, ERR_IO, errno, "eventfd");
    if (audit_list(audit->dir, &segments, err) < 0)
        return -1;
    int rc = resume(audit, &segments, ret_torn, err);
    audit_segments_clear(&segments);
    return rc < 0 ? -1 : start_thread(audit, err);
}

int audit_open(struct audit **ret, const char *dir, int64_t group, uint64_t segment_bytes,
               struct err *err)
{
    struct audit *audit = malloc(sizeof(*audit));
    size_t torn = 0;

    if (!audit)
        return err_set(err, ERR_LIMIT, ENOMEM, "open the audit record");
    *audit = (struct audit){.dir = -1,
                            .event = -1,
                            .fd = -1,
                            .group = group,
                            .segment_bytes = segment_bytes,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .wake = PTHREAD_COND_INITIALIZER,
                            .calm = PTHREAD_COND_INITIALIZER};
    buf_init(&audit->queue, QUEUE_MAX);
    buf_init(&audit->line, AUDIT_LINE);
    if (prepare(audit, dir, &torn, err) < 0) {
        audit_free(audit);
        return -1;
    }
    if (torn) {
        char details[64];
        (void)snprintf(details, sizeof(details), "{\"cut_bytes\":%zu}", torn);
        audit_add(audit, &(struct audit_record){.actor = "carrel",
                                                .operation = "audit.repair",
                                                .result = "ok",
                                                .details = details});
        audit_push(audit);
    }
    *ret = audit;
    return 0;
}

/* --- what the broker calls --- */

/* With the lock. */
static uint64_t add_line(struct audit *audit, const struct audit_record *record)
{
    struct buf *line = &audit->line;
    char time[AUDIT_TIME];
    char hash[AUDIT_HEX];
    struct audit_line made;

    line->n = 0;
    line->failed = false;
    audit_now(time);
    audit_encode(line, &audit->chain, time, record);
    /* Parsed again: a line that our own verifier would not take must never get into the chain. */
    if (buf_done(line) < 0 || !audit_parse(line->p, line->n, &made) ||
        audit_hash(line->p, line->n, hash) < 0)
        return 0;
    buf_add(line, "\n", 1);
    buf_add(&audit->queue, line->p, line->failed ? 0 : line->n);
    if (line->failed || audit->queue.failed) { /* a buffer that refuses keeps what it has */
        audit->queue.failed = false;
        return 0;
    }
    audit->chain.seq = made.seq;
    memcpy(audit->chain.time, made.time, AUDIT_TIME - 1);
    memcpy(audit->chain.head, hash, sizeof(hash));
    return made.seq;
}

uint64_t audit_add(struct audit *audit, const struct audit_record *record)
{
    pthread_mutex_lock(&audit->lock);
    uint64_t seq = audit->has_failed ? 0 : add_line(audit, record);
    pthread_mutex_unlock(&audit->lock);
    return seq;
}

void audit_push(struct audit *audit)
{
    pthread_mutex_lock(&audit->lock);
    audit->is_pushed = true;
    if (!audit->is_syncing) /* else it looks again by itself */
        pthread_cond_signal(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
}

/* With the lock: what the caller did by itself may concern the thread, and those who wait. */
static void done_here(struct audit *audit)
{
    if (audit->has_failed || audit->is_pushed)
        pthread_cond_signal(&audit->wake); /* it ends, or found us at it and waits again */
    if (audit->has_failed)
        tell(audit);
}

bool audit_sync_here(struct audit *audit)
{
    pthread_mutex_lock(&audit->lock);
    bool may = has_work(audit) && !audit->is_syncing && !audit->has_failed;
    if (may) {
        flush(audit);
        done_here(audit);
    }
    pthread_mutex_unlock(&audit->lock);
    return may;
}

void audit_write_here(struct audit *audit)
{
    pthread_mutex_lock(&audit->lock);
    if (audit->queue.n > 0 && !audit->has_failed) {
        write_queue(audit);
        done_here(audit);
    }
    pthread_mutex_unlock(&audit->lock);
}

bool audit_is_low(struct audit *audit)
{
    pthread_mutex_lock(&audit->lock);
    if (audit->is_low)
        audit->is_low = !reserve(audit);
    bool is_low = audit->is_low;
    pthread_mutex_unlock(&audit->lock);
    return is_low;
}

void audit_rotate(struct audit *audit)
{
    pthread_mutex_lock(&audit->lock);
    audit->is_rotating = true;
    pthread_mutex_unlock(&audit->lock);
}

uint32_t audit_segment(struct audit *audit)
{
    return __atomic_load_n(&audit->number, __ATOMIC_RELAXED);
}

int audit_fd(const struct audit *audit)
{
    return audit->event;
}

uint64_t audit_synced(struct audit *audit)
{
    pthread_mutex_lock(&audit->lock);
    uint64_t synced = audit->synced;
    pthread_mutex_unlock(&audit->lock);
    return synced;
}

uint64_t audit_hear(struct audit *audit)
{
    uint64_t count;

    pthread_mutex_lock(&audit->lock);
    if (audit->is_told)
        ignore(read(audit->event, &count, sizeof(count))); /* never waits */
    audit->is_told = false;
    uint64_t synced = audit->synced;
    pthread_mutex_unlock(&audit->lock);
    return synced;
}

bool audit_has_failed(struct audit *audit, struct err *err)
{
    pthread_mutex_lock(&audit->lock);
    bool has_failed = audit->has_failed;
    if (has_failed)
        *err = audit->err;
    pthread_mutex_unlock(&audit->lock);
    return has_failed;
}

void audit_close(struct audit *audit)
{
    if (!audit)
        return;
    pthread_mutex_lock(&audit->lock);
    audit->is_ending = true;
    pthread_cond_signal(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
    pthread_join(audit->thread, NULL);
    audit_free(audit);
}
