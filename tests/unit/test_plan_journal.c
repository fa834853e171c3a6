/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/journal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/text.h"
#include "unit.h"

enum {
    OPERATIONS = 10
};

static const unsigned char hash[PLAN_HASH] = {1, 2, 3};

static int scratch(char path[32])
{
    text_copy(path, 32, "journal.XXXXXX");
    return mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

static void tidy(int dir, const char *path)
{
    ignore(unlinkat(dir, "journal", 0)); /* may not be there */
    ignore(unlinkat(dir, "journal.new", 0));
    ignore(rmdir(path));
}

/* A transaction to `target` with two steps, up to its BEGIN. */
static int begin(struct journal *j, const char *target)
{
    struct err err;
    struct steps steps;
    struct journal_directory directory = {.path = "d", .ino = 5, .mtime_ns = -7};
    struct step_directory known = {.path = "d"};

    steps_init(&steps);
    for (int i = 0; i < 2; i++) {
        struct step *step = steps_add(&steps, &err);
        *step = (struct step){.kind = i ? STEP_IN : STEP_OUT,
                              .operation = 3,
                              .path = i ? "new\xff" : "old\n",
                              .home = "slots/3.base",
                              .is_directory = true,
                              .ino = 1ULL << 63};
    }
    steps.directories = malloc(sizeof(known));
    steps.directories[0] = known;
    steps.directory_count = 1;
    int r = journal_begin(j, target, &steps, &directory, &err);
    if (r < 0)
        printf("    %s\n", err.msg);
    steps_clear(&steps);
    return r;
}

static int reopen(struct journal *j, int dir)
{
    struct err err;

    return journal_open(j, dir, hash, OPERATIONS, &err);
}

TEST(what_was_begun_is_read_again_and_so_is_its_end)
{
    char path[32];
    scoped_fd int dir = scratch(path);
    struct journal j;
    struct err err;
    char target[OPERATIONS] = {[3] = 1, [9] = 1};
    struct plan_identity after = {.ino = 77, .size = 1, .mtime_ns = -1, .ctime_ns = 2, .mode = 3};

    CHECK(reopen(&j, dir) == 0 && !j.exists && !j.open);
    CHECK(begin(&j, target) == 0);
    journal_clear(&j);
    CHECK(reopen(&j, dir) == 0);
    CHECK(j.open && !journal_has_in_force(&j) && j.steps.count == 2);
    CHECK(strcmp(j.steps.items[0].path, "old\n") == 0 && j.steps.items[1].kind == STEP_IN);
    CHECK(j.steps.items[1].ino == 1ULL << 63 && j.steps.items[1].is_directory);
    CHECK(j.directory_count == 1 && j.directories[0].mtime_ns == -7);
    journal_note_after(&j, 9, &after);
    journal_note_times(&j, &(struct journal_times){"d", 5, 6, 7});
    journal_note_lock(&j, &(struct journal_lock){"e", 0555, 8});
    CHECK(journal_end(&j, true, &err) == 0);
    journal_clear(&j);
    CHECK(reopen(&j, dir) == 0);
    CHECK(!j.open && j.in_force[3] && j.in_force[9] && !j.in_force[0]);
    CHECK(j.after[9].ino == 77 && j.after[9].mtime_ns == -1);
    CHECK(j.time_count == 1 && j.times[0].after_ns == 7 && j.lock_count == 1);
    journal_clear(&j);
    tidy(dir, path);
    return 0;
}

TEST(one_taken_back_leaves_what_was_in_force)
{
    char path[32];
    scoped_fd int dir = scratch(path);
    struct journal j;
    struct err err;
    char some[OPERATIONS] = {[1] = 1};
    char none[OPERATIONS] = {0};

    CHECK(reopen(&j, dir) == 0 && begin(&j, some) == 0 && journal_end(&j, true, &err) == 0);
    CHECK(begin(&j, none) == 0);
    journal_note_ctime(&j, 4, 44);
    CHECK(journal_end(&j, false, &err) == 0);
    journal_clear(&j);
    CHECK(reopen(&j, dir) == 0 && !j.open && j.in_force[1] && j.ctimes[4] == 44);
    journal_clear(&j);
    tidy(dir, path);
    return 0;
}

static ssize_t read_journal(int dir, char *bytes, size_t size)
{
    scoped_fd int fd = openat(dir, "journal", O_RDONLY | O_CLOEXEC);

    return read(fd, bytes, size);
}

static int write_journal(int dir, const char *bytes, size_t n)
{
    scoped_fd int fd = openat(dir, "journal", O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);

    return write(fd, bytes, n) == (ssize_t)n ? 0 : -1;
}

/* The states it may be read as, by how much of it there is. */
static int state(const struct journal *j)
{
    return !j->exists ? 0 : !j->open && !journal_has_in_force(j) ? 1 : j->open ? 2 : 3;
}

TEST(any_part_of_it_is_read_as_a_state_before_the_last)
{
    char path[32];
    scoped_fd int dir = scratch(path);
    struct journal j;
    struct err err;
    char target[OPERATIONS] = {[3] = 1};
    static char bytes[65536];
    int last = 0;

    CHECK(reopen(&j, dir) == 0 && begin(&j, target) == 0 && journal_end(&j, true, &err) == 0);
    journal_clear(&j);
    ssize_t n = read_journal(dir, bytes, sizeof(bytes));
    CHECK(n > 100);
    for (ssize_t cut = 0; cut <= n; cut++) {
        CHECK(write_journal(dir, bytes, (size_t)cut) == 0);
        CHECK(reopen(&j, dir) == 0);
        CHECK(state(&j) >= last);
        last = state(&j);
        journal_clear(&j);
    }
    CHECK(last == 3);
    tidy(dir, path);
    return 0;
}

TEST(a_flipped_bit_ends_it_there_and_never_reads_as_something_else)
{
    char path[32];
    scoped_fd int dir = scratch(path);
    struct journal j;
    struct err err;
    char target[OPERATIONS] = {[3] = 1};
    static char bytes[65536];

    CHECK(reopen(&j, dir) == 0 && begin(&j, target) == 0 && journal_end(&j, true, &err) == 0);
    journal_clear(&j);
    ssize_t n = read_journal(dir, bytes, sizeof(bytes));
    for (ssize_t at = 0; at < n; at++) {
        bytes[at] ^= 0x10;
        CHECK(write_journal(dir, bytes, (size_t)n) == 0);
        CHECK(reopen(&j, dir) == 0);
        CHECK(state(&j) < 3);
        journal_clear(&j);
        bytes[at] ^= 0x10;
    }
    tidy(dir, path);
    return 0;
}

TEST(a_torn_end_is_written_over)
{
    char path[32];
    scoped_fd int dir = scratch(path);
    struct journal j;
    struct err err;
    char one[OPERATIONS] = {[1] = 1};
    char none[OPERATIONS] = {0};
    static char bytes[65536];

    CHECK(reopen(&j, dir) == 0 && begin(&j, one) == 0 && journal_end(&j, true, &err) == 0);
    CHECK(begin(&j, none) == 0);
    journal_clear(&j);
    ssize_t n = read_journal(dir, bytes, sizeof(bytes));
    CHECK(write_journal(dir, bytes, (size_t)n - 3) == 0);
    CHECK(reopen(&j, dir) == 0 && !j.open && j.in_force[1]);
    CHECK(begin(&j, none) == 0 && journal_end(&j, true, &err) == 0);
    journal_clear(&j);
    CHECK(reopen(&j, dir) == 0 && !j.open && !journal_has_in_force(&j));
    journal_clear(&j);
    tidy(dir, path);
    return 0;
}

TEST(the_journal_of_another_plan_is_refused)
{
    char path[32];
    scoped_fd int dir = scratch(path);
    struct journal j;
    struct err err;
    char target[OPERATIONS] = {0};
    unsigned char other[PLAN_HASH] = {9};

    CHECK(reopen(&j, dir) == 0 && begin(&j, target) == 0);
    journal_clear(&j);
    CHECK(journal_open(&j, dir, other, OPERATIONS, &err) < 0 && err.code == ERR_CONFLICT);
    journal_clear(&j);
    CHECK(journal_open(&j, dir, hash, OPERATIONS + 1, &err) < 0);
    journal_clear(&j);
    tidy(dir, path);
    return 0;
}
