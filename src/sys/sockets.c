/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/sockets.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    READ_AT_ONCE = 64 * 1024,
    MOST_READS = 512 /* of a page or more each: ten thousand sockets and more */
};

/* Where the fifth column of a line begins. */
static char *fifth_column(char *line)
{
    for (int i = 0; i < 4; i++) {
        line += strspn(line, " ");
        line += strcspn(line, " ");
    }
    return line;
}

/* "sk Eth Pid Groups Rmem Wmem ..." */
static uint64_t queued_netlink(char *line)
{
    char *at = fifth_column(line);
    uint64_t received = strtoull(at, &at, 10);

    return received + strtoull(at, NULL, 10);
}

/* "sl local rem st tx:rx ...", in hexadecimal */
static uint64_t queued_udp(char *line)
{
    char *at = fifth_column(line);
    uint64_t sent = strtoull(at, &at, 16);

    return *at == ':' ? sent + strtoull(at + 1, NULL, 16) : 0;
}

/* Sums whole lines; what is left of the last one moves to the front. */
static size_t sum_lines(char *text, size_t n, uint64_t (*queued)(char *), uint64_t *sum)
{
    char *at = text;
    char *end;

    while ((end = memchr(at, '\n', n - (size_t)(at - text)))) {
        *end = '\0';
        *sum += queued(at);
        at = end + 1;
    }
    size_t rest = n - (size_t)(at - text);
    memmove(text, at, rest);
    return rest;
}

static uint64_t sum_file(pid_t pid, const char *name, uint64_t (*queued)(char *), char *text)
{
    char path[64];
    uint64_t sum = 0;
    size_t kept = 0;

    snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, name);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (int i = 0; fd >= 0; i++) {
        if (kept == READ_AT_ONCE)
            kept = 0; /* no line is that long */
        ssize_t n = read(fd, text + kept, READ_AT_ONCE - kept);
        if (n <= 0)
            return sum;
        if (i == MOST_READS)
            return UINT64_MAX / 4; /* nobody needs that many, and the rest could hold anything */
        kept = sum_lines(text, kept + (size_t)n, queued, &sum);
    }
    return sum;
}

uint64_t sockets_queued(pid_t pid)
{
    static const struct {
        const char *name;
        uint64_t (*queued)(char *);
    } files[] = {{"netlink", queued_netlink}, {"udp", queued_udp}, {"udp6", queued_udp}};

    char *text = malloc(READ_AT_ONCE);
    uint64_t sum = 0;

    for (size_t i = 0; text && i < sizeof(files) / sizeof(files[0]); i++)
        sum += sum_file(pid, files[i].name, files[i].queued, text);
    free(text);
    return sum;
}
