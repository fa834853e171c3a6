/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/procfiles.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#ifdef __x86_64__
#include <sys/platform/x86.h>
#endif

#ifdef __x86_64__
/* Flags that programs look for in /proc/cpuinfo: name, and where cpuid has it (leaf index of the
 * C library's copy, register, bit). */
static const struct {
    const char *name;
    unsigned char leaf;
    unsigned char reg; /* eax ebx ecx edx */
    unsigned char bit;
} flags[] = {
    {"fpu", 0, 3, 0},       {"tsc", 0, 3, 4},       {"cx8", 0, 3, 8},
    {"sep", 0, 3, 11},      {"cmov", 0, 3, 15},     {"clflush", 0, 3, 19},
    {"mmx", 0, 3, 23},      {"fxsr", 0, 3, 24},     {"sse", 0, 3, 25},
    {"sse2", 0, 3, 26},     {"ht", 0, 3, 28},       {"pni", 0, 2, 0},
    {"pclmulqdq", 0, 2, 1}, {"ssse3", 0, 2, 9},     {"fma", 0, 2, 12},
    {"cx16", 0, 2, 13},     {"sse4_1", 0, 2, 19},   {"sse4_2", 0, 2, 20},
    {"movbe", 0, 2, 22},    {"popcnt", 0, 2, 23},   {"aes", 0, 2, 25},
    {"xsave", 0, 2, 26},    {"avx", 0, 2, 28},      {"f16c", 0, 2, 29},
    {"rdrand", 0, 2, 30},   {"bmi1", 1, 1, 3},      {"avx2", 1, 1, 5},
    {"bmi2", 1, 1, 8},      {"erms", 1, 1, 9},      {"avx512f", 1, 1, 16},
    {"avx512dq", 1, 1, 17}, {"rdseed", 1, 1, 18},   {"adx", 1, 1, 19},
    {"avx512cd", 1, 1, 28}, {"sha_ni", 1, 1, 29},   {"avx512bw", 1, 1, 30},
    {"avx512vl", 1, 1, 31}, {"lahf_lm", 2, 2, 0},   {"abm", 2, 2, 5},
    {"syscall", 2, 3, 11},  {"nx", 2, 3, 20},       {"pdpe1gb", 2, 3, 26},
    {"rdtscp", 2, 3, 27},   {"lm", 2, 3, 29},
};

static void add_features(struct buf *b)
{
    buf_str(b, "flags\t\t:");
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        const struct cpuid_feature *leaf = __x86_get_cpuid_feature_leaf(flags[i].leaf);
        if (leaf->cpuid_array[flags[i].reg] & (1U << flags[i].bit))
            buf_printf(b, " %s", flags[i].name);
    }
    buf_str(b, "\n");
}
#else
static void add_features(struct buf *b)
{
    buf_str(b, "Features\t: fp asimd\n");
}
#endif

static char *into_arena(struct arena *arena, struct buf *b)
{
    return buf_done(b) < 0 ? NULL : arena_copy(arena, b->p, b->n);
}

char *procfile_cpuinfo(struct arena *arena, const struct host *host)
{
    scoped_buf struct buf features;
    scoped_buf struct buf b;

    buf_init(&features, 4096);
    buf_init(&b, 256 * 1024);
    add_features(&features);
    if (buf_done(&features) < 0)
        return NULL;
    for (unsigned i = 0; i < host->cpus && i < 256; i++)
        buf_printf(&b,
                   "processor\t: %u\nvendor_id\t: Carrel\nmodel name\t: Carrel virtual CPU\n"
                   "physical id\t: 0\nsiblings\t: %u\ncore id\t\t: %u\ncpu cores\t: %u\n%s"
                   "address sizes\t: 48 bits physical, 48 bits virtual\n\n",
                   i, host->cpus, i, host->cpus, features.p);
    return into_arena(arena, &b);
}

char *procfile_meminfo(struct arena *arena, const struct host *host)
{
    unsigned long kib = host->memory_bytes / 1024;

    return arena_printf(arena,
                        "MemTotal:       %8lu kB\nMemFree:        %8lu kB\n"
                        "MemAvailable:   %8lu kB\nBuffers:               0 kB\n"
                        "Cached:                0 kB\nSwapCached:            0 kB\n"
                        "Active:                0 kB\nInactive:              0 kB\n"
                        "SwapTotal:             0 kB\nSwapFree:              0 kB\n"
                        "Dirty:                 0 kB\nWriteback:             0 kB\n"
                        "Mapped:                0 kB\nShmem:                 0 kB\n"
                        "Slab:                  0 kB\nSReclaimable:          0 kB\n"
                        "SUnreclaim:            0 kB\n",
                        kib, kib, kib);
}

char *procfile_stat(struct arena *arena, const struct host *host)
{
    scoped_buf struct buf b;

    buf_init(&b, 64 * 1024);
    buf_str(&b, "cpu  0 0 0 0 0 0 0 0 0 0\n");
    for (unsigned i = 0; i < host->cpus && i < 256; i++)
        buf_printf(&b, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
    buf_printf(&b, "intr 0\nctxt 0\nbtime %ld\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n",
               (long)time(NULL));
    return into_arena(arena, &b);
}

char *procfile_random_id(struct arena *arena)
{
    unsigned char r[16];

    if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
        return NULL;
    r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
    r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
    return arena_printf(arena,
                        "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n",
                        r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11],
                        r[12], r[13], r[14], r[15]);
}
