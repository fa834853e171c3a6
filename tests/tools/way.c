/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into the programs of build/way, whose functions all call it: marks each that is entered in
 * a file beside the program, map/PROGRAM, a byte for 16 bytes of code. tools/way makes, clears and
 * reads these files. The map is there before main, and so before any right is given up; without the
 * file nothing is marked. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MAP_BYTES = 1 << 20,
    CODE_STEP = 16, /* functions are aligned to that: Makefile */
};

extern const char __executable_start[]; /* the linker's */

static volatile unsigned char *map;

void __cyg_profile_func_enter(void *function, void *site) __attribute__((no_instrument_function));
void __cyg_profile_func_exit(void *function, void *site) __attribute__((no_instrument_function));
static void open_map(void) __attribute__((no_instrument_function, constructor(101)));

static void open_map(void)
{
    char program[4000];
    char name[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *last = n > 0 ? memrchr(program, '/', (size_t)n) : NULL;

    if (!last)
        return;
    program[n] = *last = '\0';
    snprintf(name, sizeof(name), "%s/map/%s", program, last + 1);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *at = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        map = at;
}

void __cyg_profile_func_enter(void *function, void *site)
{
    uintptr_t at = ((uintptr_t)function - (uintptr_t)__executable_start) / CODE_STEP;

    (void)site;
    if (map && at < MAP_BYTES)
        map[at] = 1;
}

void __cyg_profile_func_exit(void *function, void *site)
{
    (void)function;
    (void)site;
}
