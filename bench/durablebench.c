/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a small file durably, again and again: a new file, fsync, rename to its name, fsync of the
 * directory.
 *
 *   durablebench DIRECTORY COUNT BYTES
 *
 * Prints what it took, as httpbench does.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "pace.h"

static void write_once(int dir, const char *bytes, size_t n, long index)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "f%ld", index);
    int fd = openat(dir, "new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || fsync(fd) < 0 || close(fd) < 0 ||
        renameat(dir, "new", dir, name) < 0 || fsync(dir) < 0)
        err(EXIT_OWN, "write %s", name);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        errx(EXIT_OWN, "usage: durablebench DIRECTORY COUNT BYTES");
    int dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long count = number(argv[2]);
    size_t n = (size_t)number(argv[3]);
    char *bytes = calloc(1, n);
    int64_t *wall = calloc((size_t)count, sizeof(*wall));
    int64_t begin = now();

    if (dir < 0 || !bytes || !wall)
        err(EXIT_OWN, "%s", argv[1]);
    for (long i = 0; i < count; i++) {
        int64_t before = now();
        write_once(dir, bytes, n, i);
        wall[i] = now() - before;
    }
    int64_t all = now() - begin;
    for (long i = 0; i < count; i++)
        printf("start 0 %ld %jd %jd 0 0\n", i, (intmax_t)wall[i], (intmax_t)wall[i]);
    printf("all %jd\n", (intmax_t)all);
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
