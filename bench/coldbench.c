/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times carrel_run() of /bin/true with a pool that has just let everything go for want of use.
 *
 *   coldbench COUNT GAP_US SEED CARREL_INIT WORKSPACE POOL
 *
 * The arguments and the lines printed are those of enginebench.
 */
#include <carrel.h>
#include <signal.h>
#include <stdio.h>

#include "pace.h"

enum {
    IDLE_MS = 20,
};

/* The pool goes on preparing until it has been idle for so long, then lets all of them go. */
static void wait_until_empty(struct carrel_pool *pool)
{
    struct carrel_pool_stats stats;

    do {
        sleep_until(now() + 3 * IDLE_MS * INT64_C(1000000));
        carrel_pool_stats(pool, &stats);
    } while (stats.ready > 0);
}

static void run_once(const struct carrel_spec *spec, long index)
{
    struct carrel_result result;
    struct carrel_error error;

    int64_t cpu = cpu_in_all();
    int64_t begin = now();
    if (carrel_run(spec, &result, &error) < 0)
        errx(EXIT_OWN, "%s", error.message);
    int64_t wall = now() - begin;
    printf("start 0 %ld %jd %jd %jd %d\n", index, (intmax_t)wall, (intmax_t)wall,
           (intmax_t)(cpu_in_all() - cpu), result.exit_code);
    carrel_result_clear(&result);
}

int main(int argc, char **argv)
{
    char program[] = "/bin/true";
    char *const command[] = {program, NULL};
    struct carrel_spec spec = {.argv = command, .stdin_fd = -1};
    struct carrel_error error;

    if (argc != 7)
        errx(EXIT_OWN, "usage: coldbench COUNT GAP_US SEED CARREL_INIT WORKSPACE POOL");
    long count = number(argv[1]);
    long gap_us = number(argv[2]);
    uint64_t random = seed_of(argv[3]);
    spec.init_path = argv[4];
    spec.workspace = argv[5];
    struct carrel_pool_options options = {
        .like = spec, .size = (unsigned)number(argv[6]), .idle_ms = IDLE_MS};
    if (carrel_pool_open(&options, &spec.pool, &error) < 0)
        errx(EXIT_OWN, "%s", error.message);
    (void)signal(SIGPIPE, SIG_IGN);
    int64_t due = now();
    int64_t cpu = cpu_in_all();
    for (long i = 0; i < count; i++) {
        wait_until_empty(spec.pool);
        due += gap_us ? next_gap(&random, gap_us) : 0;
        sleep_until(due);
        run_once(&spec, i);
    }
    carrel_pool_close(spec.pool);
    printf("cpu %jd\n", (intmax_t)(cpu_in_all() - cpu));
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
