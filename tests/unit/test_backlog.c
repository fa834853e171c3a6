/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/input.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd.h"
#include "unit.h"

enum {
    PIPE_HOLDS = 65536,
    PIECE = 30000, /* no power of two: pages are shared by pieces */
    ROUNDS = 600,
    MOST_WAITING = 4 << 20,
};

static int file(void)
{
    return memfd_create("input", MFD_CLOEXEC);
}

static int again(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static uint64_t size_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : UINT64_MAX;
}

TEST(what_waits_moves_on_in_order_and_leaves_an_empty_file)
{
    scoped_fd int kept = file();
    int fd = again(kept);
    struct backlog b;
    char text[16] = "";
    int pipe[2];

    CHECK(pipe2(pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(backlog_open(&b, &fd) == 0 && fd == -1 && backlog_left(&b) == 0);
    CHECK(backlog_add(&b, "one ", 4) == 0 && backlog_add(&b, "two", 3) == 0);
    CHECK(backlog_left(&b) == 7);
    CHECK(backlog_move(&b, pipe[1], false) == 7 && backlog_left(&b) == 0);
    CHECK(size_of(kept) == 0 && lseek(kept, 0, SEEK_CUR) == 0);
    CHECK(backlog_add(&b, "!", 1) == 0); /* the pages that are in the pipe stay as they are */
    CHECK(backlog_move(&b, pipe[1], false) == 1);
    CHECK(read(pipe[0], text, sizeof(text)) == 8 && memcmp(text, "one two!", 8) == 0);
    (void)close(pipe[0]);
    (void)signal(SIGPIPE, SIG_IGN);
    CHECK(backlog_add(&b, "three", 5) == 0 && backlog_move(&b, pipe[1], false) == -EPIPE);
    backlog_close(&b);
    CHECK(backlog_add(&b, "four", 4) == -EBADF);
    (void)close(pipe[1]);
    return 0;
}

TEST(another_copy_of_the_descriptor_goes_on_where_the_first_was)
{
    static char bytes[3 * PIPE_HOLDS];
    scoped_fd int kept = file();
    int fd = again(kept);
    struct backlog b;
    int pipe[2];

    CHECK(pipe2(pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(backlog_open(&b, &fd) == 0 && backlog_add(&b, bytes, sizeof(bytes)) == 0);
    CHECK(backlog_move(&b, pipe[1], false) == PIPE_HOLDS);
    CHECK(backlog_move(&b, pipe[1], false) == -EAGAIN);
    backlog_close(&b);
    fd = again(kept);
    CHECK(backlog_open(&b, &fd) == 0 && backlog_left(&b) == 2UL * PIPE_HOLDS);
    backlog_close(&b);
    /* Killed when all was passed and the size was 0, but not yet the position. */
    CHECK(ftruncate(kept, 0) == 0);
    fd = again(kept);
    CHECK(backlog_open(&b, &fd) == 0 && backlog_left(&b) == 0 && lseek(kept, 0, SEEK_CUR) == 0);
    backlog_close(&b);
    (void)close(pipe[0]);
    (void)close(pipe[1]);
    return 0;
}

TEST(what_was_passed_long_ago_takes_no_room)
{
    static char bytes[PIPE_HOLDS];
    scoped_fd int kept = file();
    int fd = again(kept);
    struct backlog b;
    struct stat st;
    int pipe[2];

    CHECK(pipe2(pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(backlog_open(&b, &fd) == 0 && backlog_add(&b, bytes, sizeof(bytes)) == 0);
    for (int i = 0; i < 200; i++) { /* it is never empty */
        CHECK(backlog_add(&b, bytes, sizeof(bytes)) == 0);
        CHECK(backlog_move(&b, pipe[1], false) == sizeof(bytes));
        CHECK(read(pipe[0], bytes, sizeof(bytes)) == sizeof(bytes));
    }
    CHECK(size_of(kept) == 201UL * sizeof(bytes) && fstat(kept, &st) == 0);
    CHECK((uint64_t)st.st_blocks * 512 < 4UL << 20);
    backlog_close(&b);
    (void)close(pipe[0]);
    (void)close(pipe[1]);
    return 0;
}

/* Numbers in a row, so that any byte that is lost or comes twice is seen. */
struct shared {
    uint32_t next;   /* the first that nobody has said to have taken */
    uint32_t broken; /* what the child could not do */
};

static _Noreturn void be_a_front(int kept, int to, volatile struct shared *shared)
{
    static uint32_t numbers[PIECE / 4];
    int fd = again(kept);
    struct backlog b;

    if (backlog_open(&b, &fd) < 0)
        _exit(1);
    for (;;) {
        uint32_t first = shared->next;
        for (uint32_t i = 0; i < LENGTH(numbers); i++)
            numbers[i] = first + i;
        if (backlog_left(&b) < MOST_WAITING) {
            if (backlog_add(&b, (char *)numbers, sizeof(numbers)) < 0)
                shared->broken = 1;
            shared->next = first + LENGTH(numbers);
        }
        ssize_t n = 1;
        while (n > 0 && backlog_left(&b) > 0)
            n = backlog_move(&b, to, false);
        if (n < 0 && n != -EAGAIN)
            shared->broken = 2;
    }
}

/* Takes what is there. A piece that was not acknowledged may be there, whole or in part, and again
 * when the next front has taken it; anything else is wrong. */
struct reader {
    uint32_t want;
    char part[4]; /* of a number */
    size_t n;
    bool wrong;
};

static void take(struct reader *r, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t got;
        r->part[r->n++] = bytes[i];
        if (r->n < 4)
            continue;
        r->n = 0;
        memcpy(&got, r->part, 4);
        bool is_repeated = got < r->want && r->want - got <= PIECE / 4 && got % (PIECE / 4) == 0;
        r->wrong |= got != r->want && !is_repeated;
        r->want = got + 1;
    }
}

static uint64_t now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

TEST(one_that_is_killed_at_any_instant_loses_nothing_and_repeats_nothing)
{
    static char bytes[PIPE_HOLDS];
    volatile struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    scoped_fd int kept = file();
    struct reader r = {0};
    int pipe[2];

    CHECK(shared != MAP_FAILED && pipe2(pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            be_a_front(kept, pipe[1], shared);
        /* It reads all the while: the front is killed at work, not while it waits. */
        for (uint64_t end = now_us() + 300 + (uint64_t)round * 37 % 1500; now_us() < end;) {
            ssize_t n = read(pipe[0], bytes, sizeof(bytes) - (size_t)round * 977 % 9000);
            take(&r, bytes, n > 0 ? (size_t)n : 0);
        }
        (void)kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
    }
    int fd = again(kept);
    struct backlog b;
    CHECK(backlog_open(&b, &fd) == 0);
    for (ssize_t n = 1; n > 0 || backlog_left(&b) > 0;) {
        if (backlog_left(&b) > 0)
            (void)backlog_move(&b, pipe[1], false);
        n = read(pipe[0], bytes, sizeof(bytes));
        take(&r, bytes, n > 0 ? (size_t)n : 0);
    }
    CHECK(!r.wrong && shared->broken == 0);
    CHECK(r.want >= shared->next && r.want - shared->next <= PIECE / 4 && shared->next > 0);
    backlog_close(&b);
    return 0;
}
