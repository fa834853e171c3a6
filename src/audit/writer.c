/* SPDX-License-Identifier: Apache-2.0 */
/* The one writer. audit_add makes the line and its hash and puts it into `queue`; when pushed the
 * thread takes all there is, writes it in one piece and syncs it once, while the next lines gather.
 * So the disk is asked as often as it can answer, however many records there are. A caller with
 * nothing else to do does the same by itself and saves two changes of thread.
 *
 *   audit_add -> queue --swap--> batch -> write, fdatasync -> synced, eventfd
 *
 * The file is not allocated in advance: that keeps reading simple, and no gain from it has been
 * shown. */
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
#include <time.h>
#include <unistd.h>

#include "audit/line.h"
#include "base/fd.h"

enum {
    QUEUE_MAX = 8 << 20,     /* bytes that wait for the disk */
    KEEP_ROOM = 1 << 20,     /* a larger buffer is given back after a rush */
    STACK_BYTES = 256 << 10, /* of the thread */
    FAST_NS = 1000000,       /* a disk that is waited for by the caller */
};

struct audit {
    /* Fixed. */
    int dir;
    int event;
    int64_t group;
    uint64_t segment_bytes;
    pthread_t thread;

    /* Of whoever has set is_writing. */
    int fd;
    uint32_t number;
    uint64_t written; /* bytes in the segment */
    struct buf batch;

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t wake;
    struct audit_chain chain; /* where the last line that was added leaves it */
    struct buf queue;
    struct buf line;      /* the one being made */
    uint64_t written_seq; /* in the file */
    uint64_t synced;      /* on the disk */
    uint64_t took_ns;     /* the last sync */
    bool is_pushed;
    bool is_rotating; /* the next line begins a segment */
    bool is_writing;
    bool is_ending;
    bool is_told; /* the event is not empty */
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
    audit->written = 0;
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
                       "segment %u of the audit record was changed by somebody else: %jd bytes, "
                       "not %ju",
                       audit->number, (intmax_t)st.st_size, (uintmax_t)audit->written);
    return 0;
}

/* What was only written to the full one is synced with it: a later sync is of the new one alone. */
static int next_segment(struct audit *audit, struct err *err)
{
    if (fdatasync(audit->fd) < 0)
        return err_set(err, ERR_IO, errno, "sync the audit record");
    return open_segment(audit, audit->number + 1, err);
}

/* What is in the batch, which may be nothing, and then, if asked, to the disk. */
static int write_batch(struct audit *audit, bool sync, bool rotate, struct err *err)
{
    const char *p = audit->batch.p;
    size_t n = audit->batch.n;

    if (check_alone(audit, err) < 0)
        return -1;
    bool is_full = audit->written >= audit->segment_bytes || (rotate && n && audit->written);
    if (is_full && next_segment(audit, err) < 0)
        return -1;
    while (n) {
        ssize_t done = write(audit->fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_set(err, ERR_IO, errno, "write the audit record");
        p += done;
        n -= (size_t)done;
        audit->written += (uint64_t)done;
    }
    if (sync && fdatasync(audit->fd) < 0)
        return err_set(err, ERR_IO, errno, "sync the audit record");
    return 0;
}

static void empty(struct buf *b)
{
    if (b->cap > KEEP_ROOM)
        buf_clear(b);
    b->n = 0;
}

/* With the lock. */
static void tell(struct audit *audit)
{
    uint64_t one = 1;

    audit->is_told = true;
    ignore(write(audit->event, &one, sizeof(one))); /* full: then it is readable all the same */
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* With the lock. */
static bool has_work(const struct audit *audit)
{
    return audit->queue.n > 0 || audit->written_seq > audit->synced;
}

/* With the lock, which is let go meanwhile, and nobody else writing. */
static void write_queue(struct audit *audit, bool sync)
{
    struct buf taken = audit->queue;
    uint64_t last = audit->chain.seq;
    struct err err;

    audit->queue = audit->batch;
    audit->batch = taken;
    if (sync)
        audit->is_pushed = false;
    bool rotate = audit->is_rotating;
    audit->is_rotating = rotate && !taken.n;
    audit->is_writing = true;
    pthread_mutex_unlock(&audit->lock);
    uint64_t began = now_ns();
    int rc = write_batch(audit, sync, rotate, &err);
    uint64_t took = now_ns() - began;
    empty(&audit->batch);
    pthread_mutex_lock(&audit->lock);
    audit->is_writing = false;
    if (sync)
        audit->took_ns = took;
    if (rc < 0) {
        /* Part of it may be in the file: more of it would only be harder to judge. */
        audit->has_failed = true;
        audit->err = err;
    } else {
        audit->written_seq = last;
        audit->synced = sync ? last : audit->synced;
    }
}

static void *write_all(void *context)
{
    struct audit *audit = context;

    pthread_mutex_lock(&audit->lock);
    while (!audit->has_failed) {
        bool may = has_work(audit) && !audit->is_writing;
        if (may && (audit->is_pushed || audit->is_ending)) {
            write_queue(audit, true);
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
    buf_clear(&audit->batch);
    buf_clear(&audit->queue);
    buf_clear(&audit->line);
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
                            .wake = PTHREAD_COND_INITIALIZER};
    buf_init(&audit->queue, QUEUE_MAX);
    buf_init(&audit->batch, QUEUE_MAX);
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
    if (!audit->is_writing) /* else it looks again by itself */
        pthread_cond_signal(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
}

/* In the caller. Whether it was done, well or not. */
static bool write_here(struct audit *audit, bool sync)
{
    pthread_mutex_lock(&audit->lock);
    bool may = has_work(audit) && !audit->is_writing && !audit->has_failed &&
               (!sync || audit->took_ns < FAST_NS);
    if (may)
        write_queue(audit, sync);
    if (may && (audit->has_failed || audit->is_pushed))
        pthread_cond_signal(&audit->wake); /* the thread ends, or found us at it and waits again */
    if (may && audit->has_failed)
        tell(audit);
    pthread_mutex_unlock(&audit->lock);
    return may;
}

bool audit_sync_here(struct audit *audit)
{
    return write_here(audit, true);
}

void audit_write_here(struct audit *audit)
{
    if (!write_here(audit, false))
        audit_push(audit); /* somebody is at it, and goes on with this */
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
