/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many at a time: COUNT threads, each of which runs one command to its end.
 *
 *   crowdbench COUNT GAP_US CARREL_INIT WORKSPACE COMMAND [ARG...]
 *
 * GAP_US 0: all threads begin at the same moment; n: one begins every n microseconds. Each command
 * runs in a sandbox made by libcarrel, or, where CARREL_INIT is "-", as a plain child. An '@' in
 * WORKSPACE or in an argument stands for the number of the thread. What the commands print comes
 * out on stdout; a command that never ends holds its sandbox until this program is killed. When
 * all have ended:
 *   start ROW(0) INDEX WALL_NS WALL_NS CPU_US(of all / COUNT) STATUS
 *   all WALL_NS                              (from the first begin to the last end)
 */
#include <carrel.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pace.h"

enum {
    STACK_BYTES = 512 * 1024,
    MAX_WORDS = 256,
};

struct crowd {
    const char *init, *workspace;
    char **command;
    pthread_barrier_t *together; /* NULL: begin at once */
};

struct member {
    const struct crowd *crowd;
    long index;
    pthread_t thread;
    int64_t begin, end;
    int status;
};

/* The text with each '@' replaced by the number; never freed. */
static char *numbered(const char *text, long number)
{
    char *result = strdup(text);

    for (char *at; result && (at = strchr(result, '@'));) {
        char *longer;
        *at = '\0';
        if (asprintf(&longer, "%s%ld%s", result, number, at + 1) < 0)
            longer = NULL;
        free(result);
        result = longer;
    }
    if (!result)
        err(EXIT_OWN, "memory");
    return result;
}

static int run_plain(char **argv)
{
    pid_t pid;
    int status;

    errno = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
    if (errno)
        err(EXIT_OWN, "%s", argv[0]);
    if (waitpid(pid, &status, 0) != pid)
        err(EXIT_OWN, "wait for %s", argv[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_sandboxed(const struct crowd *crowd, const char *workspace, char **argv)
{
    struct carrel_spec spec = {.init_path = crowd->init,
                               .workspace = workspace,
                               .create = true,
                               .argv = argv,
                               .stdin_fd = -1};
    struct carrel_result result;
    struct carrel_error error;

    if (carrel_run(&spec, &result, &error) < 0)
        errx(EXIT_OWN, "%s", error.message);
    int status = result.exit_code;
    carrel_result_clear(&result);
    return status;
}

static void *run_member(void *data)
{
    struct member *m = data;
    const struct crowd *crowd = m->crowd;
    char *argv[MAX_WORDS] = {NULL};

    for (int i = 0; crowd->command[i] && i < MAX_WORDS - 1; i++)
        argv[i] = numbered(crowd->command[i], m->index);
    char *workspace = numbered(crowd->workspace, m->index);
    if (crowd->together)
        pthread_barrier_wait(crowd->together);
    m->begin = now();
    m->status =
        strcmp(crowd->init, "-") == 0 ? run_plain(argv) : run_sandboxed(crowd, workspace, argv);
    m->end = now();
    return NULL;
}

static void begin_all(struct member *members, long count, long gap_us)
{
    pthread_attr_t attributes;
    int64_t due = now();

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (long i = 0; i < count; i++) {
        sleep_until(due += gap_us * 1000);
        errno = pthread_create(&members[i].thread, &attributes, run_member, &members[i]);
        if (errno)
            err(EXIT_OWN, "thread %ld", i);
    }
}

static void print_results(const struct member *members, long count)
{
    int64_t begin = members[0].begin;
    int64_t end = 0;
    int64_t cpu = cpu_in_all() / count;

    for (long i = 0; i < count; i++) {
        const struct member *m = &members[i];
        int64_t wall = m->end - m->begin;
        begin = m->begin < begin ? m->begin : begin;
        end = m->end > end ? m->end : end;
        printf("start 0 %ld %jd %jd %jd %d\n", i, (intmax_t)wall, (intmax_t)wall, (intmax_t)cpu,
               m->status);
    }
    printf("all %jd\n", (intmax_t)(end - begin));
}

/* A sandbox takes about ten descriptors. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
            err(EXIT_OWN, "raise the limit of open files");
    }
}

int main(int argc, char **argv)
{
    pthread_barrier_t together;

    if (argc < 6)
        errx(EXIT_OWN, "usage: crowdbench COUNT GAP_US CARREL_INIT WORKSPACE COMMAND [ARG...]");
    long count = number(argv[1]);
    long gap_us = number(argv[2]);
    struct crowd crowd = {.init = argv[3], .workspace = argv[4], .command = argv + 5};
    struct member *members = calloc((size_t)count + 1, sizeof *members);
    if (!members)
        err(EXIT_OWN, "memory");
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing is held for somebody who is gone */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    if (gap_us == 0 && count > 0) {
        pthread_barrier_init(&together, NULL, (unsigned)count);
        crowd.together = &together;
    }
    for (long i = 0; i < count; i++)
        members[i] = (struct member){.crowd = &crowd, .index = i};
    begin_all(members, count, gap_us);
    for (long i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
    while (wait(NULL) > 0) /* what a command has left running is ours, and its cpu time counts */
        ;
    print_results(members, count);
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
