/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bad neighbour, for inside a sandbox with limits.
 *
 *   bomb fork | threads | memory | tmpfs | disk | files | print
 *
 * Should the limits not hold, the bomb stops by itself at a size that an ordinary machine survives
 * and ends with status 99: whoever started it must take that for a failure.
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    EXIT_NOT_HELD = 99,
    CHUNK = 1 << 20,
    MOST_PROCESSES = 4000,
    MOST_CHUNKS = 3000,
    MOST_FILES = 200000,
    MOST_LINES = 1 << 24,
};

static char chunk[CHUNK];

static void fork_without_end(void)
{
    atomic_int *forked =
        mmap(NULL, sizeof *forked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (forked == MAP_FAILED)
        err(1, "mmap");
    while (atomic_load(forked) < MOST_PROCESSES)
        if (fork() == 0)
            atomic_fetch_add(forked, 1);
}

static void *sleep_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void make_threads(void)
{
    for (int made = 0; made < MOST_PROCESSES;) {
        pthread_t thread;
        made += pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0;
    }
}

static void use_memory(void)
{
    for (int i = 0; i < MOST_CHUNKS; i++) {
        char *p = malloc(CHUNK);
        if (p)
            memset(p, i | 1, CHUNK);
    }
}

/* An error is no reason to stop: a program that is out of control does not look. */
static void fill(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0)
        err(1, "%s", path);
    for (int i = 0; i < MOST_CHUNKS; i++)
        if (write(fd, chunk, CHUNK) < 0)
            usleep(1000);
}

static void make_files(void)
{
    char name[32];

    for (int i = 0; i < MOST_FILES; i++) {
        snprintf(name, sizeof name, "bomb.%d", i);
        int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (fd >= 0)
            close(fd);
    }
}

static void print_lines(void)
{
    for (int i = 0; i < MOST_LINES; i++)
        puts("a line like any other, over and over again, until somebody stops it");
}

int main(int argc, char **argv)
{
    const char *kind = argc == 2 ? argv[1] : "";

    memset(chunk, 'b', sizeof chunk);
    if (strcmp(kind, "fork") == 0)
        fork_without_end();
    else if (strcmp(kind, "threads") == 0)
        make_threads();
    else if (strcmp(kind, "memory") == 0)
        use_memory();
    else if (strcmp(kind, "tmpfs") == 0)
        fill("/tmp/bomb");
    else if (strcmp(kind, "disk") == 0)
        fill("bomb.data");
    else if (strcmp(kind, "files") == 0)
        make_files();
    else if (strcmp(kind, "print") == 0)
        print_lines();
    else
        errx(1, "usage: bomb fork|threads|memory|tmpfs|disk|files|print");
    return EXIT_NOT_HELD;
}
