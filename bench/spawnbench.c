/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times starts of programs: from just before posix_spawn() until the child has been reaped.
 *
 *   spawnbench ROUNDS BLOCK GAP_US SEED ::: COMMAND [ARG...] [::: COMMAND [ARG...]]...
 *
 * Each round goes through the rows in turn, so that drift of the machine meets all alike, and
 * starts each BLOCK times.
 *   GAP_US 0   the starts of a block follow one another at once; after each block the machine gets
 *              60 ms to finish what is left over (the kernel takes network namespaces down in
 *              the background), so that no row pays for another
 *   GAP_US n   starts lie n microseconds apart on average, exponentially distributed from SEED
 *
 * Standard input, output and error of the children are pipes, as with any program that runs
 * commands for somebody. Results go to stdout, only when all is over, as lines of numbers:
 *   start ROW INDEX_IN_BLOCK WALL_NS GONE_NS CPU_US STATUS
 *   block ROW STARTS WALL_NS IDLE_TICKS      (ROW -1: nothing was run)
 * GONE_NS is when the last descendant was reaped: a program may exit before what it started is
 * gone. CPU_US is user + system time of the child and all its descendants. IDLE_TICKS covers all
 * cpus and gives, against WALL_NS, the whole machine's cpu time, kernel threads included.
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pace.h"

enum {
    MAX_ROWS = 32,
};

static const int64_t settle_ns = 60000000;

struct start {
    int row, index, status;
    int64_t wall, gone, cpu;
};

struct block {
    int row;
    long starts;
    int64_t wall, idle;
};

struct bench {
    char **rows[MAX_ROWS]; /* the argv of each */
    int row_count;
    long rounds, block, gap_us;
    uint64_t random;
    struct start *starts;
    size_t start_count;
    struct block *blocks;
    size_t block_count;
    posix_spawn_file_actions_t stdio;
    int drain[2]; /* read ends of the children's output pipes */
};

/* Idle + iowait of all cpus: exact in a tickless kernel, where busy time is only sampled. */
static int64_t idle_ticks(void)
{
    char line[512];
    FILE *f = fopen("/proc/stat", "re");

    if (!f || !fgets(line, sizeof line, f))
        err(EXIT_OWN, "read /proc/stat");
    fclose(f);
    char *at = line + strcspn(line, " ");
    int64_t field[5] = {0};
    for (int i = 0; i < 5; i++)
        field[i] = strtoll(at, &at, 10);
    return field[3] + field[4];
}

static void drain_output(struct bench *b)
{
    char scrap[4096];

    for (int i = 0; i < 2; i++)
        while (read(b->drain[i], scrap, sizeof scrap) > 0)
            ;
}

static void start_once(struct bench *b, int row, int index)
{
    struct start *s = &b->starts[b->start_count++];
    struct rusage usage;
    pid_t pid;
    char **argv = b->rows[row];

    int64_t begin = now();
    int r = posix_spawn(&pid, argv[0], &b->stdio, NULL, argv, environ);
    if (r) {
        errno = r;
        err(EXIT_OWN, "%s", argv[0]);
    }
    int status;
    if (wait4(pid, &status, 0, &usage) != pid)
        err(EXIT_OWN, "wait for the child");
    int64_t end = now();

    *s = (struct start){.row = row, .index = index, .wall = end - begin, .cpu = cpu_of(&usage)};
    s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    s->gone = s->wall;
    /* We are the subreaper: what the child left running comes to us. */
    while (wait4(-1, &status, 0, &usage) > 0) {
        s->cpu += cpu_of(&usage);
        s->gone = now() - begin;
    }
    drain_output(b);
}

/* Row -1 runs nothing, to learn what the machine does by itself. */
static void tight_block(struct bench *b, int row)
{
    int64_t idle = idle_ticks();
    int64_t begin = now();
    long starts = row < 0 ? 0 : b->block;
    for (int i = 0; i < starts; i++)
        start_once(b, row, i);
    sleep_until(now() + settle_ns);
    b->blocks[b->block_count++] = (struct block){
        .row = row, .starts = starts, .wall = now() - begin, .idle = idle_ticks() - idle};
}

static void run_rounds(struct bench *b)
{
    start_once(b, 0, 0); /* what this process does for the first time is not part of any start */
    b->start_count = 0;
    int64_t due = now();
    for (long round = 0; round < b->rounds; round++) {
        if (b->gap_us == 0)
            tight_block(b, -1);
        for (int row = 0; row < b->row_count; row++) {
            if (b->gap_us == 0) {
                tight_block(b, row);
                continue;
            }
            for (int i = 0; i < b->block; i++) {
                due += next_gap(&b->random, b->gap_us);
                sleep_until(due);
                start_once(b, row, i);
            }
        }
    }
}

static void print_results(const struct bench *b)
{
    for (size_t i = 0; i < b->start_count; i++) {
        const struct start *s = &b->starts[i];
        printf("start %d %d %jd %jd %jd %d\n", s->row, s->index, (intmax_t)s->wall,
               (intmax_t)s->gone, (intmax_t)s->cpu, s->status);
    }
    for (size_t i = 0; i < b->block_count; i++) {
        const struct block *k = &b->blocks[i];
        printf("block %d %ld %jd %jd\n", k->row, k->starts, (intmax_t)k->wall, (intmax_t)k->idle);
    }
    if (fflush(stdout) != 0)
        err(EXIT_OWN, "write the results");
}

/* Cuts argv at each ":::" into rows; the separators become the NULL that ends a row's argv. */
static void parse_rows(struct bench *b, char **argv)
{
    while (*argv) {
        if (strcmp(*argv, ":::") != 0 || b->row_count == MAX_ROWS || !argv[1]) {
            errno = EINVAL;
            err(EXIT_OWN, "%s", *argv);
        }
        *argv++ = NULL;
        b->rows[b->row_count++] = argv;
        while (*argv && strcmp(*argv, ":::") != 0)
            argv++;
    }
}

static void prepare_stdio(struct bench *b)
{
    posix_spawn_file_actions_init(&b->stdio);
    for (int fd = 0; fd < 3; fd++) {
        int end[2]; /* both stay open here: the children see neither end of file nor SIGPIPE */
        if (pipe2(end, O_CLOEXEC) < 0)
            err(EXIT_OWN, "pipe");
        posix_spawn_file_actions_adddup2(&b->stdio, end[fd != 0], fd);
        if (fd != 0) {
            b->drain[fd - 1] = end[0];
            fcntl(end[0], F_SETFL, O_NONBLOCK);
        }
    }
}

int main(int argc, char **argv)
{
    struct bench b = {0};

    if (argc < 7) {
        fputs("usage: spawnbench ROUNDS BLOCK GAP_US SEED ::: COMMAND [ARG...]...\n", stderr);
        return EXIT_OWN;
    }
    b.rounds = number(argv[1]);
    b.block = number(argv[2]);
    b.gap_us = number(argv[3]);
    b.random = seed_of(argv[4]);
    parse_rows(&b, argv + 5);

    size_t blocks = (size_t)b.rounds * (size_t)(b.row_count + 1);
    b.blocks = calloc(blocks, sizeof *b.blocks);
    b.starts = calloc(blocks * (size_t)b.block + 1, sizeof *b.starts);
    if (!b.blocks || !b.starts)
        err(EXIT_OWN, "memory for the results");
    /* Touch the pages now: a page fault must not fall into a measurement. */
    memset(b.starts, 0xff, (blocks * (size_t)b.block + 1) * sizeof *b.starts);
    prepare_stdio(&b);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        err(EXIT_OWN, "become the subreaper");
    run_rounds(&b);
    print_results(&b);
    return 0;
}
