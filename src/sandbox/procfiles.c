/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/procfiles.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

/* The line of the first processor that says what instructions there are: any program can ask the
 * processor itself, and some look for it here. */
static void add_features(struct buf *b)
{
    static const char *const names[] = {"\nflags\t", "\nFeatures\t"};
    char text[8192];
    scoped_fd int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *line = strstr(text, names[i]);
        if (line)
            buf_add(b, line + 1, strcspn(line + 1, "\n") + 1);
    }
}

static char *into_arena(struct arena *arena, struct buf *b)
{
    return buf_done(b) < 0 ? NULL : arena_copy(arena, b->p, b->n);
}

char *procfile_cpuinfo(struct arena *arena, const struct host *host)
{
    scoped_buf struct buf features;
    scoped_buf struct buf b;

    buf_init(&features, 8192);
    buf_init(&b, 1UL << 20);
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

    buf_init(&b, 64UL << 10);
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
    return arena_printf(
        arena, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", r[0], r[1],
        r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
}
