/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attack programs share. Each prints one line per attempt and ends with verdict():
 * "contained" and 0, or, when anything got through, 1 after a line "ESCAPED: what" for each. They
 * are static and stand alone, so that they run the same in a workspace with nothing in it and on
 * the host itself.
 */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int escapes;

__attribute__((format(printf, 1, 2))) static inline void escaped(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("ESCAPED: ", stdout);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    escapes++;
}

/* The attempt must have failed with one of two errors; any other end means that it came too far. */
static inline void refused_either(const char *what, long result, int first, int second)
{
    int error = errno;

    if (result >= 0)
        escaped("%s succeeded", what);
    else if (error != first && error != second)
        escaped("%s came as far as %s, wanted %s", what, strerrorname_np(error),
                strerrorname_np(first));
    else
        printf("refused: %s: %s\n", what, strerrorname_np(error));
}

static inline void refused(const char *what, long result, int wanted)
{
    refused_either(what, result, wanted, wanted);
}

/* For what may fail in any way, as long as it fails. */
static inline void failed(const char *what, long result)
{
    if (result >= 0)
        escaped("%s succeeded", what);
    else
        printf("refused: %s: %s\n", what, strerrorname_np(errno));
}

/* Something the attack needs first is missing: neither verdict would be true. */
__attribute__((noreturn)) static inline void unclear(const char *what)
{
    printf("UNCLEAR: %s: %s\n", what, strerror(errno));
    exit(2);
}

static inline int verdict(void)
{
    if (escapes == 0)
        puts("contained");
    fflush(stdout);
    return escapes != 0;
}

struct attack {
    const char *name;
    void (*run)(char **args);
};

/* Runs the attack named by argv[1] with the arguments after it. */
static inline int run_attack(const struct attack *attacks, int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (; argc > 1 && attacks->name != NULL; attacks++) {
        if (strcmp(argv[1], attacks->name) == 0) {
            attacks->run(argv + 2);
            return verdict();
        }
    }
    fputs("usage: probe ATTACK [ARG...]\n", stderr);
    return 2;
}
