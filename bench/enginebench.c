/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times carrel_run() of /bin/true in a process that lives on, as a program with libcarrel in it
 * does: a fresh sandbox each time, without the start of a command line.
 *
 *   enginebench COUNT GAP_US SEED CARREL_INIT WORKSPACE [POOL [MEMORY_MIB]]
 *
 * With a pool of POOL sandboxes made ahead (0: none), and with limits on memory and processes. The
 * arguments and the lines printed are those of spawnbench, for one row; then one more line:
 *
 *   cpu US                       user and system time in all, of the runs and of the pool
 *   pool TAKEN MISSED CPU_US     all that the pool cost outside of the runs
 */
#include <carrel.h>
#include <signal.h>
#include <stdio.h>

#include "pace.h"

struct sample {
    int64_t wall, cpu;
    int status;
};

static void run_once(const struct carrel_spec *spec, struct sample *s)
{
    struct carrel_result result;
    struct carrel_error error;

    int64_t cpu = cpu_in_all();
    int64_t begin = now();
    if (carrel_run(spec, &result, &error) < 0)
        errx(EXIT_OWN, "%s", error.message);
    s->wall = now() - begin;
    s->cpu = cpu_in_all() - cpu;
    s->status = result.exit_code;
    carrel_result_clear(&result);
}

static struct carrel_pool *open_pool(const struct carrel_spec *like, long size)
{
    struct carrel_pool_options options = {.like = *like, .size = (unsigned)size};
    struct carrel_pool *pool = NULL;
    struct carrel_pool_stats stats = {0};
    struct carrel_error error;

    if (size == 0)
        return NULL;
    if (carrel_pool_open(&options, &pool, &error) < 0)
        errx(EXIT_OWN, "%s", error.message);
    while (stats.ready < options.size) {
        sleep_until(now() + 1000000);
        carrel_pool_stats(pool, &stats);
    }
    return pool;
}

static void close_pool(struct carrel_pool *pool)
{
    struct carrel_pool_stats stats;

    if (!pool)
        return;
    carrel_pool_stats(pool, &stats);
    printf("pool %ju %ju %.0f\n", (uintmax_t)stats.taken, (uintmax_t)stats.missed,
           stats.cpu_ms * 1000);
    carrel_pool_close(pool);
}

int main(int argc, char **argv)
{
    char program[] = "/bin/true";
    char *const command[] = {program, NULL};
    struct carrel_spec spec = {.argv = command, .stdin_fd = -1};

    if (argc < 6 || argc > 8)
        errx(EXIT_OWN, "usage: enginebench COUNT GAP_US SEED CARREL_INIT WORKSPACE [POOL [MIB]]");
    long count = number(argv[1]);
    long gap_us = number(argv[2]);
    uint64_t random = seed_of(argv[3]);
    spec.init_path = argv[4];
    spec.workspace = argv[5];
    struct sample *samples = calloc((size_t)count + 1, sizeof *samples);
    if (!samples)
        err(EXIT_OWN, "memory for the results");
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 7) {
        spec.limits.memory_bytes = (uint64_t)number(argv[7]) << 20;
        spec.limits.pids = 256;
    }
    spec.pool = open_pool(&spec, argc > 6 ? number(argv[6]) : 0);

    run_once(&spec, &samples[0]); /* what is done for the first time is not part of any start */
    int64_t cpu = cpu_in_all();
    int64_t due = now();
    for (long i = 0; i < count; i++) {
        due += gap_us ? next_gap(&random, gap_us) : 0;
        sleep_until(due);
        run_once(&spec, &samples[i]);
    }
    cpu = cpu_in_all() - cpu;
    for (long i = 0; i < count; i++)
        printf("start 0 %ld %jd %jd %jd %d\n", i, (intmax_t)samples[i].wall,
               (intmax_t)samples[i].wall, (intmax_t)samples[i].cpu, samples[i].status);
    printf("cpu %jd\n", (intmax_t)cpu);
    close_pool(spec.pool);
    free(samples);
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
