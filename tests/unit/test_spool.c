/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "unit.h"

enum {
    BOUND = 1 << 20
};

static int here(void)
{
    return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void put(int pipe, const char *text)
{
    ignore(write(pipe, text, strlen(text)) > 0);
}

/* Everything from the reader's place on, each stream's part behind its number. */
static void read_all(struct spool *s, uint64_t from, char *text, size_t size)
{
    struct spool_reader r;
    enum spool_stream stream;
    size_t n = 0;
    ssize_t got;

    text[0] = '\0';
    if (spool_reader_add(s, &r, from, false) < 0)
        return;
    while (n + 2 < size && (got = spool_read(s, &r, text + n + 1, size - n - 2, &stream)) > 0) {
        text[n] = (char)('0' + (int)stream);
        n += (size_t)got + 1;
        text[n] = '\0';
    }
    spool_reader_drop(s, &r);
}

TEST(streams_keep_their_order_and_are_told_apart_also_when_opened_again)
{
    scoped_fd int dir = here();
    struct spool s;
    char text[256];
    int out[2];
    int err[2];

    CHECK(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(err, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(spool_create(&s, dir, "a", BOUND) == 0);
    CHECK(spool_take(&s, out[0], SPOOL_OUT) == -EAGAIN);
    put(out[1], "one");
    CHECK(spool_take(&s, out[0], SPOOL_OUT) == 3);
    put(err[1], "two");
    CHECK(spool_take(&s, err[0], SPOOL_ERR) == 3);
    put(out[1], "three");
    CHECK(spool_take(&s, out[0], SPOOL_OUT) == 5);
    read_all(&s, 0, text, sizeof(text));
    CHECK(strcmp(text, "0one1two0three") == 0);
    read_all(&s, 4, text, sizeof(text));
    CHECK(strcmp(text, "1wo0three") == 0);
    spool_close(&s);
    CHECK(spool_open(&s, dir, "a", BOUND) == 0 && s.end == 11);
    put(out[1], "!");
    CHECK(spool_take(&s, out[0], SPOOL_OUT) == 1);
    read_all(&s, 5, text, sizeof(text));
    CHECK(strcmp(text, "1o0three!") == 0);
    (void)close(out[1]);
    CHECK(spool_take(&s, out[0], SPOOL_OUT) == 0); /* its end */
    spool_close(&s);
    CHECK(spool_remove(dir, "a") == 0 && spool_remove(dir, "a") == 0);
    (void)close(out[0]);
    (void)close(err[0]);
    (void)close(err[1]);
    return 0;
}

TEST(the_oldest_goes_but_never_what_a_reader_has_yet_to_see)
{
    static char block[65536];
    scoped_fd int dir = here();
    struct spool_reader holds;
    struct spool_reader late;
    struct spool s;
    struct stat st;
    enum spool_stream stream;
    int out[2];
    ssize_t n;

    memset(block, 'x', sizeof(block));
    CHECK(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(spool_create(&s, dir, "b", BOUND) == 0);
    for (int i = 0; i < 64; i++) { /* four times the bound, and nobody reads */
        CHECK(write(out[1], block, sizeof(block)) == (ssize_t)sizeof(block));
        CHECK(spool_take(&s, out[0], SPOOL_OUT) == (ssize_t)sizeof(block));
    }
    CHECK(s.end == 64 * sizeof(block) && s.end - s.first <= BOUND && s.end - s.first >= BOUND / 4);
    CHECK(fstat(s.out, &st) == 0 && (uint64_t)st.st_blocks * 512 <= BOUND + BOUND / 2);
    CHECK(spool_reader_add(&s, &late, 0, false) == -ESPIPE);
    CHECK(spool_reader_add(&s, &late, s.end + 1, false) == -EINVAL);
    CHECK(spool_reader_add(&s, &holds, s.end, true) == 0);
    CHECK(spool_reader_add(&s, &late, s.end, false) == 0);
    uint64_t before = s.end;
    do {
        CHECK(write(out[1], block, sizeof(block)) == (ssize_t)sizeof(block));
        n = spool_take(&s, out[0], SPOOL_OUT);
    } while (n > 0);
    CHECK(n == -ENOBUFS && s.end - before <= BOUND); /* the command waits */
    CHECK(s.first <= before);
    while (spool_read(&s, &holds, block, sizeof(block), &stream) > 0)
        ;
    CHECK(holds.at == s.end);
    CHECK(spool_take(&s, out[0], SPOOL_OUT) > 0); /* and goes on */
    spool_reader_drop(&s, &holds);
    for (int i = 0; i < 64; i++) {
        ignore(write(out[1], block, sizeof(block)) > 0);
        (void)spool_take(&s, out[0], SPOOL_OUT);
    }
    CHECK(spool_read(&s, &late, block, sizeof(block), &stream) == -ESPIPE); /* it holds nobody up */
    spool_reader_drop(&s, &late);
    spool_close(&s);
    (void)close(out[0]);
    (void)close(out[1]);
    return spool_remove(dir, "b");
}

TEST(one_that_must_keep_less_keeps_what_a_reader_has_yet_to_see)
{
    static char block[65536];
    scoped_fd int dir = here();
    struct spool_reader holds;
    struct spool s;
    enum spool_stream stream;
    int out[2];

    memset(block, 'x', sizeof(block));
    CHECK(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(spool_create(&s, dir, "t", BOUND) == 0 && spool_kept(&s) == 0);
    for (int i = 0; i < 12; i++) {
        CHECK(write(out[1], block, sizeof(block)) == (ssize_t)sizeof(block));
        CHECK(spool_take(&s, out[0], SPOOL_OUT) == (ssize_t)sizeof(block));
    }
    CHECK(spool_kept(&s) == 12 * sizeof(block) && spool_size(dir, "t") >= spool_kept(&s));
    CHECK(spool_reader_add(&s, &holds, 8 * sizeof(block), true) == 0);
    spool_tighten(&s, sizeof(block));
    CHECK(s.first <= holds.at && s.first > 0 && spool_kept(&s) == s.end - s.first);
    CHECK(spool_size(dir, "t") < 8 * sizeof(block));
    CHECK(write(out[1], block, sizeof(block)) == (ssize_t)sizeof(block));
    CHECK(spool_take(&s, out[0], SPOOL_OUT) == -ENOBUFS); /* the command waits for its reader */
    while (spool_read(&s, &holds, block, sizeof(block), &stream) > 0)
        ;
    CHECK(holds.at == 12 * sizeof(block));
    CHECK(spool_take(&s, out[0], SPOOL_OUT) > 0);
    spool_reader_drop(&s, &holds);
    spool_tighten(&s, sizeof(block));
    CHECK(s.end - s.first <= sizeof(block));
    spool_tighten(&s, BOUND); /* never more again */
    CHECK(s.bound == sizeof(block));
    spool_close(&s);
    (void)close(out[0]);
    (void)close(out[1]);
    return spool_remove(dir, "t");
}

TEST(one_that_is_emptied_says_that_there_was_something)
{
    scoped_fd int dir = here();
    struct spool_reader r;
    struct spool s;
    int out[2];

    CHECK(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(spool_create(&s, dir, "e", BOUND) == 0);
    put(out[1], "one");
    CHECK(spool_take(&s, out[0], SPOOL_OUT) == 3);
    put(out[1], "two");
    CHECK(spool_take(&s, out[0], SPOOL_ERR) == 3);
    spool_close(&s);
    CHECK(spool_size(dir, "e") > 0);
    CHECK(spool_open(&s, dir, "e", BOUND) == 0 && spool_keeps(&s, 0)); /* by who reads it */
    CHECK(spool_empty(dir, "e") == 0 && spool_size(dir, "e") == 0);
    CHECK(!spool_keeps(&s, 0));
    spool_close(&s);
    CHECK(spool_open(&s, dir, "e", BOUND) == 0 && s.end == 6 && s.first == 6);
    CHECK(spool_reader_add(&s, &r, 0, false) == -ESPIPE);
    CHECK(spool_reader_add(&s, &r, 6, false) == 0);
    spool_close(&s);
    CHECK(spool_empty(dir, "none") == -ENOENT && spool_size(dir, "none") == 0);
    (void)close(out[0]);
    (void)close(out[1]);
    return spool_remove(dir, "e");
}

/* Takes from the pipe until it is killed. */
static _Noreturn void take_for_ever(int dir, int from)
{
    struct spool s;

    if (spool_open(&s, dir, "c", BOUND) < 0)
        _exit(1);
    for (;;)
        (void)spool_take(&s, from, SPOOL_OUT);
}

TEST(a_taker_that_is_killed_at_any_instant_loses_no_byte_and_repeats_none)
{
    enum {
        NUMBERS = 60000
    };

    static uint32_t numbers[NUMBERS];
    scoped_fd int dir = here();
    struct spool_reader r;
    struct spool s;
    enum spool_stream stream;
    int out[2];
    size_t got = 0;
    ssize_t n;

    CHECK(pipe2(out, O_CLOEXEC) == 0 && spool_create(&s, dir, "c", BOUND) == 0);
    spool_close(&s);
    pid_t writer = fork();
    if (writer == 0) {
        for (uint32_t i = 0; i < NUMBERS; i++) {
            if (write(out[1], &i, sizeof(i)) != (ssize_t)sizeof(i))
                _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < 60; i++) {
        pid_t taker = fork();
        if (taker == 0)
            take_for_ever(dir, out[0]);
        usleep(500 + (useconds_t)(i * 37 % 400));
        kill(taker, SIGKILL);
        CHECK(waitpid(taker, NULL, 0) == taker);
    }
    CHECK(spool_open(&s, dir, "c", BOUND) == 0 && fcntl(out[0], F_SETFL, O_NONBLOCK) == 0);
    (void)close(out[1]);
    while ((n = spool_take(&s, out[0], SPOOL_OUT)) != 0)
        CHECK(n > 0 || n == -EAGAIN);
    CHECK(s.end == sizeof(numbers) && s.first == 0 && spool_reader_add(&s, &r, 0, false) == 0);
    while ((n = spool_read(&s, &r, (char *)numbers + got, sizeof(numbers) - got, &stream)) > 0)
        got += (size_t)n;
    for (uint32_t i = 0; i < NUMBERS; i++)
        CHECK(numbers[i] == i);
    CHECK(waitpid(writer, NULL, 0) == writer);
    spool_close(&s);
    (void)close(out[0]);
    return spool_remove(dir, "c");
}
