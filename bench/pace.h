/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark programs share: the clock, the gaps between starts, cpu time, arguments. */
#pragma once

#include <err.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum {
    EXIT_OWN = 125,
};

static inline int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void sleep_until(int64_t when)
{
    struct timespec t = {.tv_sec = when / 1000000000, .tv_nsec = when % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Exponential gap in ns. xorshift64*: the same on every machine, unlike rand(). */
static inline int64_t next_gap(uint64_t *random, long mean_us)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    double unit = (double)((*random * 0x2545F4914F6CDD1DULL) >> 11) / 9007199254740992.0;
    return (int64_t)(-log(1.0 - unit) * (double)mean_us * 1000.0);
}

static inline int64_t cpu_of(const struct rusage *u)
{
    return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * INT64_C(1000000) + u->ru_utime.tv_usec +
           u->ru_stime.tv_usec;
}

/* Of this process, all its threads, and all its children that have ended, in us. */
static inline int64_t cpu_in_all(void)
{
    struct rusage self;
    struct rusage children;

    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return cpu_of(&self) + cpu_of(&children);
}

static inline long number(const char *text)
{
    char *end;

    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < 0) {
        errno = EINVAL;
        err(EXIT_OWN, "%s", text);
    }
    return n;
}

/* xorshift must not start at 0. */
static inline uint64_t seed_of(const char *text)
{
    return (uint64_t)number(text) * 2 + 1;
}
