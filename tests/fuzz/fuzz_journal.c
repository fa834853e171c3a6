/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a plan: any records with right checksums, and any bytes. What is read is within
 * its bounds; cut off anywhere it is read as what was whole before; a transaction can be added to
 * it, and is read again. */
#include "fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/core/journal.h"

enum {
    MOST_OPERATIONS = 40,
    RECORDS = 11,
    FIRST_RECORD = 0x4c500001,
    SUM_START = 0x4c50,
    MOST_BYTES = 65536,
};

static const unsigned char hash[PLAN_HASH] = {1, 2, 3};
static char folder[96];
static int dir = -1;

static void leave(void)
{
    (void)unlinkat(dir, "journal", 0);
    (void)unlinkat(dir, "journal.new", 0);
    (void)rmdir(folder);
}

static void begin(void)
{
    const char *scratch = getenv("FUZZ_TMP"); /* one thread: NOLINT(concurrency-mt-unsafe) */

    if (dir >= 0)
        return;
    (void)snprintf(folder, sizeof(folder), "%s/fuzz-journal-XXXXXX", scratch ? scratch : "/tmp");
    MUST(mkdtemp(folder) && atexit(leave) == 0);
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(dir >= 0);
}

struct text {
    char bytes[MOST_BYTES];
    size_t n;
    uint64_t sum;
};

/* With the checksum that continues the one before it. */
static void add_record(struct text *t, uint32_t kind, const void *bytes, uint32_t n)
{
    const uint32_t head[2] = {kind, n};
    char *at = t->bytes + t->n;

    if (t->n + sizeof(head) + n + sizeof(t->sum) > sizeof(t->bytes))
        return;
    memcpy(at, head, sizeof(head));
    if (n > 0)
        memcpy(at + sizeof(head), bytes, n);
    for (size_t i = 0; i < sizeof(head) + n; i++)
        t->sum = (t->sum ^ (unsigned char)at[i]) * 0x100000001b3ULL;
    memcpy(at + sizeof(head) + n, &t->sum, sizeof(t->sum));
    t->n += sizeof(head) + n + sizeof(t->sum);
}

static void add_head(struct text *t, uint64_t operations)
{
    char bytes[16 + PLAN_HASH];
    const uint64_t numbers[2] = {1, operations};

    memcpy(bytes, numbers, sizeof(numbers));
    memcpy(bytes + sizeof(numbers), hash, PLAN_HASH);
    add_record(t, FIRST_RECORD, bytes, sizeof(bytes));
}

/* Kind, two bytes of length, bytes; and so on. */
static void make(struct text *t, const uint8_t *data, size_t size, uint64_t operations)
{
    *t = (struct text){.sum = SUM_START};
    add_head(t, operations);
    while (size > 3) {
        uint32_t n = (uint32_t)data[1] | (uint32_t)data[2] << 8;
        if (n > size - 3)
            n = (uint32_t)(size - 3);
        add_record(t, FIRST_RECORD + data[0] % RECORDS, data + 3, n);
        data += 3 + n;
        size -= 3 + n;
    }
}

static void put(const void *bytes, size_t n)
{
    int fd = openat(dir, "journal", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    MUST(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && close(fd) == 0);
}

/* All paths point into what was read; one that was not written is "". */
static void must_point_in(const struct journal *j, const char *text)
{
    MUST(!*text || (text >= j->text.p && text < j->text.p + j->text.n));
}

static void must_be_a_step(const struct journal *j, const struct step *s)
{
    must_point_in(j, s->path);
    must_point_in(j, s->home);
    MUST((unsigned)s->kind < STEP_COUNT_ && s->mode <= 07777 && s->old_mode <= 07777);
    MUST(s->operation == STEP_NO_OPERATION || s->operation < j->operations);
}

static void must_be_within(const struct journal *j, size_t size)
{
    MUST(j->bytes <= size);
    for (size_t i = 0; i < j->operations; i++)
        MUST((j->in_force[i] | j->target[i] | 1) == 1);
    for (size_t i = 0; i < j->steps.count; i++)
        must_be_a_step(j, &j->steps.items[i]);
    for (size_t i = 0; i < j->directory_count; i++)
        must_point_in(j, j->directories[i].path);
    for (size_t i = 0; i < j->time_count; i++)
        must_point_in(j, j->times[i].base);
    for (size_t i = 0; i < j->lock_count; i++)
        must_point_in(j, j->locks[i].base);
    MUST(j->old_times <= j->time_count && j->old_locks <= j->lock_count);
}

/* Behind what was whole a transaction goes, and is there when it is read again. */
static void must_take_another(struct journal *j, size_t operations)
{
    char target[MOST_OPERATIONS + 1] = {0};
    struct steps steps;
    struct journal again;
    struct err err;

    if (operations > 0)
        target[operations - 1] = 1;
    steps_init(&steps);
    MUST(journal_begin(j, target, &steps, NULL, &err) == 0 && journal_end(j, true, &err) == 0);
    MUST(journal_open(&again, dir, hash, operations, &err) == 0);
    MUST(!again.open && memcmp(again.in_force, target, operations) == 0);
    journal_clear(&again);
    steps_clear(&steps);
}

/* True: it could be read. */
static bool try(const char *bytes, size_t n, size_t operations, bool with_another)
{
    struct journal j;
    struct err err = {0};

    put(bytes, n);
    bool good = journal_open(&j, dir, hash, operations, &err) == 0;
    if (good) {
        must_be_within(&j, n);
        if (with_another)
            must_take_another(&j, operations);
    } else {
        MUST(err.msg[0] && err.code != ERR_NONE);
    }
    journal_clear(&j);
    return good;
}

/* The first byte: how many operations, and whether the rest is records or bytes. The second: where
 * it is cut off. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct text text;

    begin();
    if (size < 2)
        return 0;
    size_t operations = (data[0] & 0x7f) % (MOST_OPERATIONS + 1);
    if (data[0] & 0x80) {
        (void)try((const char *)data + 2, size - 2, operations, true);
        return 0;
    }
    make(&text, data + 2, size - 2, operations);
    if (try(text.bytes, text.n, operations, true))
        MUST(try(text.bytes, text.n * data[1] / 256, operations, false));
    return 0;
}
