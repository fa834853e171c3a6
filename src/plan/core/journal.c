/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"

enum {
    VERSION = 1,
    MOST_BYTES = 512 << 20,
    PIECE = 1 << 20, /* written at a time */
    HEADER = 8,      /* kind and length */
    TRAILER = 8,     /* checksum */
    END_BYTES = 160, /* kept free for each operation: the end must not fail for lack of space */
};

enum record {
    RECORD_HEAD = 0x4c500001,
    RECORD_SET,
    RECORD_STEP,
    RECORD_DIRECTORY,
    RECORD_BEGIN,
    RECORD_AFTER,
    RECORD_CTIME,
    RECORD_TIMES,
    RECORD_LOCK,
    RECORD_DONE,
    RECORD_BACK,
};

/* FNV-1a: it tells a torn record, and has no enemy here. */
static uint64_t sum_of(uint64_t sum, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
    return sum;
}

enum {
    SUM_START = 0x4c50
};

/* --- reading --- */

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, 0, "no memory for the plan's journal");
}

static void *grown(void *items, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return items;
    void *more = reallocarray(items, count == 0 ? 16 : 2 * count, size);
    if (more)
        *room = count == 0 ? 16 : 2 * count;
    return more;
}

static int read_head(struct journal *j, struct unpack *u, struct err *err)
{
    uint64_t version = unpack_u64(u);
    uint64_t operations = unpack_u64(u);
    uint64_t hash[PLAN_HASH / 8];

    for (size_t i = 0; i < PLAN_HASH / 8; i++)
        hash[i] = unpack_u64(u);
    if (u->failed || version != VERSION)
        return err_set(err, ERR_INVALID, 0, "the plan's journal is of another version of Carrel");
    if (operations != j->operations || memcmp(hash, j->hash, PLAN_HASH) != 0)
        return err_set(err, ERR_CONFLICT, 0, "the journal is another plan's");
    return 0;
}

static int read_set(struct journal *j, struct unpack *u, struct err *err)
{
    size_t n = (j->operations + 7) / 8;

    j->old_times = j->time_count;
    j->old_locks = j->lock_count;
    if ((size_t)(u->end - u->at) != n)
        return err_set(err, ERR_INVALID, 0, "the plan's journal names too many operations");
    for (size_t i = 0; i < j->operations; i++)
        j->target[i] = (u->at[i / 8] >> (i % 8)) & 1;
    steps_clear(&j->steps);
    steps_init(&j->steps);
    j->directory_count = 0;
    return 0;
}

static int read_step(struct journal *j, struct unpack *u, struct err *err)
{
    struct step *step = steps_add(&j->steps, err);

    if (!step)
        return -1;
    step->kind = (enum step_kind)unpack_upto(u, STEP_COUNT_ - 1);
    step->operation = (uint32_t)unpack_upto(u, UINT32_MAX);
    step->mode = (uint32_t)unpack_upto(u, 07777);
    step->old_mode = (uint32_t)unpack_upto(u, 07777);
    step->is_directory = unpack_upto(u, 1);
    step->ino = unpack_u64(u);
    step->path = unpack_string(u);
    step->home = unpack_string(u);
    if (step->operation != STEP_NO_OPERATION && step->operation >= j->operations)
        u->failed = true;
    return 0;
}

static int read_directory(struct journal *j, struct unpack *u, struct err *err)
{
    struct journal_directory *all =
        grown(j->directories, j->directory_count, &j->directory_room, sizeof(*all));

    if (!all)
        return no_memory(err);
    j->directories = all;
    struct journal_directory *d = &all[j->directory_count++];
    d->path = unpack_string(u);
    d->ino = unpack_u64(u);
    d->mtime_ns = (int64_t)unpack_u64(u);
    return 0;
}

static int read_begin(struct journal *j, struct unpack *u, struct err *err)
{
    (void)err;
    u->failed |= unpack_u64(u) != j->steps.count;
    j->open = true;
    return 0;
}

static int read_after(struct journal *j, struct unpack *u, struct err *err)
{
    size_t i = (size_t)unpack_upto(u, j->operations ? j->operations - 1 : 0);
    struct plan_identity *id = &j->after[i];

    (void)err;
    id->dev = unpack_u64(u);
    id->ino = unpack_u64(u);
    id->size = unpack_u64(u);
    id->mtime_ns = (int64_t)unpack_u64(u);
    id->ctime_ns = (int64_t)unpack_u64(u);
    id->mode = (uint32_t)unpack_upto(u, UINT32_MAX);
    return 0;
}

static int read_ctime(struct journal *j, struct unpack *u, struct err *err)
{
    size_t i = (size_t)unpack_upto(u, j->operations ? j->operations - 1 : 0);

    (void)err;
    j->ctimes[i] = (int64_t)unpack_u64(u);
    return 0;
}

static int read_times(struct journal *j, struct unpack *u, struct err *err)
{
    struct journal_times times = {.base = unpack_string(u)};

    times.ino = unpack_u64(u);
    times.before_ns = (int64_t)unpack_u64(u);
    times.after_ns = (int64_t)unpack_u64(u);
    struct journal_times *all = grown(j->times, j->time_count, &j->time_room, sizeof(*all));
    if (!all)
        return no_memory(err);
    j->times = all;
    all[j->time_count++] = times;
    return 0;
}

static int read_lock(struct journal *j, struct unpack *u, struct err *err)
{
    struct journal_lock *all = grown(j->locks, j->lock_count, &j->lock_room, sizeof(*all));

    if (!all)
        return no_memory(err);
    j->locks = all;
    struct journal_lock *lock = &all[j->lock_count++];
    lock->base = unpack_string(u);
    lock->mode = (uint32_t)unpack_upto(u, 07777);
    lock->ino = unpack_u64(u);
    return 0;
}

/* Each transaction that is done says all that is to be known of directories. */
static void forget_old(struct journal *j)
{
    j->time_count -= j->old_times;
    j->lock_count -= j->old_locks;
    if (j->time_count > 0)
        memmove(j->times, j->times + j->old_times, j->time_count * sizeof(j->times[0]));
    if (j->lock_count > 0)
        memmove(j->locks, j->locks + j->old_locks, j->lock_count * sizeof(j->locks[0]));
    j->old_times = j->old_locks = 0;
}

static int read_done(struct journal *j, struct unpack *u, struct err *err)
{
    (void)u;
    (void)err;
    if (j->open)
        memcpy(j->in_force, j->target, j->operations);
    j->open = false;
    forget_old(j);
    return 0;
}

static int read_back(struct journal *j, struct unpack *u, struct err *err)
{
    (void)u;
    (void)err;
    j->open = false;
    j->time_count = j->old_times;
    j->lock_count = j->old_locks;
    return 0;
}

static int (*const readers[])(struct journal *, struct unpack *, struct err *) = {
    [RECORD_HEAD - RECORD_HEAD] = read_head,   [RECORD_SET - RECORD_HEAD] = read_set,
    [RECORD_STEP - RECORD_HEAD] = read_step,   [RECORD_DIRECTORY - RECORD_HEAD] = read_directory,
    [RECORD_BEGIN - RECORD_HEAD] = read_begin, [RECORD_AFTER - RECORD_HEAD] = read_after,
    [RECORD_CTIME - RECORD_HEAD] = read_ctime, [RECORD_TIMES - RECORD_HEAD] = read_times,
    [RECORD_LOCK - RECORD_HEAD] = read_lock,   [RECORD_DONE - RECORD_HEAD] = read_done,
    [RECORD_BACK - RECORD_HEAD] = read_back,
};

/* Bytes of the record at `at`, or 0 where the journal ends, perhaps in the middle of one. */
static size_t whole_record(const struct journal *j, size_t at, uint32_t *ret_kind)
{
    uint32_t head[2];
    uint64_t sum;
    size_t left = j->text.n - at;

    if (left < HEADER + TRAILER)
        return 0;
    memcpy(head, j->text.p + at, sizeof(head));
    if (head[0] < RECORD_HEAD || head[0] > RECORD_BACK || head[1] > left - HEADER - TRAILER)
        return 0;
    memcpy(&sum, j->text.p + at + HEADER + head[1], sizeof(sum));
    if (sum != sum_of(j->sum, j->text.p + at, HEADER + head[1]))
        return 0;
    *ret_kind = head[0];
    return HEADER + head[1] + TRAILER;
}

static int parse(struct journal *j, struct err *err)
{
    uint32_t kind = 0;
    size_t n;

    for (size_t at = 0; (n = whole_record(j, at, &kind)) > 0; at += n) {
        char *p = j->text.p + at;
        struct unpack u = {.at = p + HEADER, .end = p + n - TRAILER};
        if (at == 0 && kind != RECORD_HEAD)
            return err_set(err, ERR_INVALID, 0, "the plan's journal has no beginning");
        if (readers[kind - RECORD_HEAD](j, &u, err) < 0)
            return -1;
        if (u.failed)
            return err_set(err, ERR_INVALID, 0, "the plan's journal has a record that is none");
        memcpy(&j->sum, p + n - TRAILER, sizeof(j->sum));
        j->bytes = at + n;
    }
    j->exists = j->bytes > 0;
    j->safe_sum = j->sum;
    return 0;
}

static int read_all(struct journal *j, struct err *err)
{
    char *piece = malloc(PIECE);
    ssize_t got = -1;

    if (!piece)
        return no_memory(err);
    while ((got = read(j->fd, piece, PIECE)) > 0)
        buf_add(&j->text, piece, (size_t)got);
    int error = errno;
    free(piece);
    if (got < 0)
        return err_set(err, ERR_IO, error, "read the plan's journal");
    return buf_done(&j->text) < 0
               ? err_set(err, ERR_LIMIT, 0, "the plan's journal is larger than %d MiB",
                         MOST_BYTES >> 20)
               : 0;
}

int journal_open(struct journal *j, int dir, const unsigned char hash[PLAN_HASH], size_t operations,
                 struct err *err)
{
    *j = (struct journal){
        .dir = dir, .fd = -1, .operations = operations, .sum = SUM_START, .safe_sum = SUM_START};
    memcpy(j->hash, hash, PLAN_HASH);
    buf_init(&j->text, MOST_BYTES);
    buf_init(&j->out, MOST_BYTES);
    steps_init(&j->steps);
    j->in_force = calloc(operations + 1, 1);
    j->target = calloc(operations + 1, 1);
    j->after = calloc(operations + 1, sizeof(j->after[0]));
    j->ctimes = calloc(operations + 1, sizeof(j->ctimes[0]));
    if (!j->in_force || !j->target || !j->after || !j->ctimes)
        return no_memory(err);
    j->fd = openat(dir, "journal", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (j->fd < 0 && errno == ENOENT)
        return 0;
    if (j->fd < 0)
        return err_set(err, ERR_IO, errno, "open the plan's journal");
    return read_all(j, err) < 0 ? -1 : parse(j, err);
}

void journal_clear(struct journal *j)
{
    scope_close(&j->fd);
    free(j->in_force);
    free(j->target);
    free(j->directories);
    free(j->times);
    free(j->locks);
    free(j->after);
    free(j->ctimes);
    steps_clear(&j->steps);
    buf_clear(&j->text);
    buf_clear(&j->out);
    *j = (struct journal){.fd = -1};
}

bool journal_has_in_force(const struct journal *j)
{
    return memchr(j->in_force, 1, j->operations) != NULL;
}

/* --- writing --- */

/* Returns where the record starts in `out`; record_end fills in the rest. */
static size_t record_start(struct journal *j, enum record kind)
{
    uint32_t head[2] = {(uint32_t)kind, 0};
    size_t at = j->out.n;

    buf_add(&j->out, head, sizeof(head));
    return at;
}

static void record_end(struct journal *j, size_t at)
{
    struct buf *b = &j->out;
    uint32_t length = (uint32_t)(b->n - at - HEADER);

    if (b->failed)
        return;
    memcpy(b->p + at + sizeof(uint32_t), &length, sizeof(length));
    j->sum = sum_of(j->sum, b->p + at, HEADER + length);
    buf_add(b, &j->sum, sizeof(j->sum));
}

static int write_out(struct journal *j, struct err *err)
{
    if (j->out.failed)
        return no_memory(err);
    for (size_t at = 0; at < j->out.n;) {
        size_t n = j->out.n - at < PIECE ? j->out.n - at : PIECE;
        ssize_t done = pwrite(j->fd, j->out.p + at, n, (off_t)(j->bytes + at));
        if (done < 0)
            return err_set(err, ERR_IO, errno, "write the plan's journal");
        at += (size_t)done;
    }
    if (fsync(j->fd) < 0)
        return err_set(err, ERR_IO, errno, "write the plan's journal to disk");
    return 0;
}

/* After a failure nothing of it counts, for this process; what is on disk journal_retract says. */
static int flush(struct journal *j, struct err *err)
{
    int r = write_out(j, err);

    if (r == 0) {
        j->bytes += j->out.n;
        j->safe_sum = j->sum;
    }
    j->sum = j->safe_sum;
    j->out.n = 0;
    j->out.failed = false;
    return r;
}

int journal_retract(struct journal *j, struct err *err)
{
    if (ftruncate(j->fd, (off_t)j->bytes) < 0 || fsync(j->fd) < 0)
        return err_set(err, ERR_IO, errno, "write the plan's journal to disk");
    return 0;
}

static void write_head(struct journal *j)
{
    size_t at = record_start(j, RECORD_HEAD);

    pack_u64(&j->out, VERSION);
    pack_u64(&j->out, j->operations);
    buf_add(&j->out, j->hash, PLAN_HASH);
    record_end(j, at);
    for (size_t i = 0; i < j->operations; i++) {
        if (j->ctimes[i] != 0)
            journal_note_ctime(j, i, j->ctimes[i]);
    }
}

static void write_set(struct journal *j, const char *set)
{
    size_t at = record_start(j, RECORD_SET);

    for (size_t i = 0; i < j->operations; i += 8) {
        unsigned char byte = 0;
        for (size_t k = i; k < j->operations && k < i + 8; k++)
            byte |= (unsigned char)((set[k] ? 1 : 0) << (k - i));
        buf_add(&j->out, &byte, 1);
    }
    record_end(j, at);
}

static void write_step(struct journal *j, const struct step *step)
{
    size_t at = record_start(j, RECORD_STEP);

    pack_u64(&j->out, step->kind);
    pack_u64(&j->out, step->operation);
    pack_u64(&j->out, step->mode);
    pack_u64(&j->out, step->old_mode);
    pack_u64(&j->out, step->is_directory);
    pack_u64(&j->out, step->ino);
    pack_text(&j->out, step->path);
    pack_text(&j->out, step->home);
    record_end(j, at);
}

uint64_t journal_estimate(const struct steps *steps)
{
    uint64_t bytes = 4096;

    for (size_t i = 0; i < steps->count; i++)
        bytes += 96 + END_BYTES + strlen(steps->items[i].path) + strlen(steps->items[i].home);
    for (size_t i = 0; i < steps->directory_count; i++)
        bytes += 160 + 2 * strlen(steps->directories[i].path);
    return bytes;
}

/* A new file under another name, or the old one without its torn end. */
static int prepare_file(struct journal *j, bool anew, struct err *err)
{
    if (!anew)
        return ftruncate(j->fd, (off_t)j->bytes) < 0
                   ? err_set(err, ERR_IO, errno, "write the plan's journal")
                   : 0;
    scope_close(&j->fd);
    j->fd =
        openat(j->dir, "journal.new", O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (j->fd < 0)
        return err_set(err, ERR_IO, errno, "make the plan's journal");
    j->bytes = 0;
    j->sum = j->safe_sum = SUM_START;
    write_head(j);
    return 0;
}

static int publish(struct journal *j, struct err *err)
{
    scoped_fd int dir = openat(j->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0 || renameat(dir, "journal.new", dir, "journal") < 0 || fsync(dir) < 0)
        return err_set(err, ERR_IO, errno, "put the plan's journal in its place");
    return 0;
}

int journal_begin(struct journal *j, const char *target, const struct steps *steps,
                  const struct journal_directory *directories, struct err *err)
{
    bool anew = !journal_has_in_force(j);

    if (prepare_file(j, anew, err) < 0)
        return -1;
    write_set(j, target);
    for (size_t i = 0; i < steps->count; i++)
        write_step(j, &steps->items[i]);
    for (size_t i = 0; i < steps->directory_count; i++) {
        size_t at = record_start(j, RECORD_DIRECTORY);
        pack_text(&j->out, directories[i].path);
        pack_u64(&j->out, directories[i].ino);
        pack_u64(&j->out, (uint64_t)directories[i].mtime_ns);
        record_end(j, at);
    }
    size_t at = record_start(j, RECORD_BEGIN);
    pack_u64(&j->out, steps->count);
    record_end(j, at);
    /* A file system that cannot promise it (ENOTSUP) has to do without. */
    if (fallocate(j->fd, FALLOC_FL_KEEP_SIZE, 0,
                  (off_t)(j->bytes + j->out.n + journal_estimate(steps))) < 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS)
        return err_set(err, ERR_IO, errno, "make room for the plan's journal");
    if (flush(j, err) < 0 || (anew && publish(j, err) < 0))
        return -1;
    memcpy(j->target, target, j->operations);
    j->exists = j->open = true;
    return 0;
}

void journal_note_after(struct journal *j, size_t operation, const struct plan_identity *identity)
{
    size_t at = record_start(j, RECORD_AFTER);

    pack_u64(&j->out, operation);
    pack_u64(&j->out, identity->dev);
    pack_u64(&j->out, identity->ino);
    pack_u64(&j->out, identity->size);
    pack_u64(&j->out, (uint64_t)identity->mtime_ns);
    pack_u64(&j->out, (uint64_t)identity->ctime_ns);
    pack_u64(&j->out, identity->mode);
    record_end(j, at);
    j->after[operation] = *identity;
}

void journal_note_ctime(struct journal *j, size_t operation, int64_t ctime_ns)
{
    size_t at = record_start(j, RECORD_CTIME);

    pack_u64(&j->out, operation);
    pack_u64(&j->out, (uint64_t)ctime_ns);
    record_end(j, at);
    j->ctimes[operation] = ctime_ns;
}

void journal_note_times(struct journal *j, const struct journal_times *times)
{
    size_t at = record_start(j, RECORD_TIMES);

    pack_text(&j->out, times->base);
    pack_u64(&j->out, times->ino);
    pack_u64(&j->out, (uint64_t)times->before_ns);
    pack_u64(&j->out, (uint64_t)times->after_ns);
    record_end(j, at);
}

void journal_note_lock(struct journal *j, const struct journal_lock *lock)
{
    size_t at = record_start(j, RECORD_LOCK);

    pack_text(&j->out, lock->base);
    pack_u64(&j->out, lock->mode);
    pack_u64(&j->out, lock->ino);
    record_end(j, at);
}

int journal_note(struct journal *j, struct err *err)
{
    if (j->fd < 0 || !j->exists) { /* nothing is known that a new journal will not say */
        j->out.n = 0;
        j->sum = j->safe_sum;
        return 0;
    }
    return flush(j, err);
}

int journal_end(struct journal *j, bool done, struct err *err)
{
    record_end(j, record_start(j, done ? RECORD_DONE : RECORD_BACK));
    if (flush(j, err) < 0)
        return -1;
    if (done)
        memcpy(j->in_force, j->target, j->operations);
    j->open = false;
    return 0;
}
