/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times carrel_run() of /bin/true in a process that lives on, as a program with libcarrel in it
 * does: a fresh sandbox each time, without the start of a command line.
 *
 *   enginebench COUNT GAP_US SEED CARREL_INIT WORKSPACE
 *
 * The arguments and the lines printed are those of spawnbench, for one row.
 */
#include <carrel.h>
#include <signal.h>
#include <stdio.h>

#include "pace.h"

struct sample {
    int64_t wall, cpu;
    int status;
};

static int64_t cpu_so_far(void)
{
    struct rusage self;
    struct rusage children;

    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return cpu_of(&self) + cpu_of(&children);
}

static void run_once(const struct carrel_spec *spec, struct sample *s)
{
    struct carrel_result result;
    struct carrel_error error;

    int64_t cpu = cpu_so_far();
    int64_t begin = now();
    if (carrel_run(spec, &result, &error) < 0)
        errx(EXIT_OWN, "%s", error.message);
    s->wall = now() - begin;
    s->cpu = cpu_so_far() - cpu;
    s->status = result.exit_code;
    carrel_result_clear(&result);
}

int main(int argc, char **argv)
{
    char program[] = "/bin/true";
    char *const command[] = {program, NULL};
    struct carrel_spec spec = {.argv = command, .stdin_fd = -1};

    if (argc != 6)
        errx(EXIT_OWN, "usage: enginebench COUNT GAP_US SEED CARREL_INIT WORKSPACE");
    long count = number(argv[1]);
    long gap_us = number(argv[2]);
    uint64_t random = seed_of(argv[3]);
    spec.init_path = argv[4];
    spec.workspace = argv[5];
    struct sample *samples = calloc((size_t)count + 1, sizeof *samples);
    if (!samples)
        err(EXIT_OWN, "memory for the results");
    (void)signal(SIGPIPE, SIG_IGN);

    run_once(&spec, &samples[0]); /* what is done for the first time is not part of any start */
    int64_t due = now();
    for (long i = 0; i < count; i++) {
        due += gap_us ? next_gap(&random, gap_us) : 0;
        sleep_until(due);
        run_once(&spec, &samples[i]);
    }
    for (long i = 0; i < count; i++)
        printf("start 0 %ld %jd %jd %jd %d\n", i, (intmax_t)samples[i].wall,
               (intmax_t)samples[i].wall, (intmax_t)samples[i].cpu, samples[i].status);
    free(samples);
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
